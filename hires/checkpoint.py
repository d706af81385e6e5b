"""Checkpoints that survive a kill at any moment.

A folder holds ``last.pt``, the one before it (``previous.pt``) and ``best.pt``. Each is written aside,
flushed, and renamed, so a file with one of these names is whole; should a disk spoil one all the same, its
checksums (those of the zip file that torch writes) tell. Loading runs nothing from the file
(``weights_only``).
"""

import pickle
import zipfile
from pathlib import Path
from typing import Any

import torch

from hires.errors import HiresError
from hires.files import rename, write_aside

FORMAT = "hires-checkpoint-1"
LAST, PREVIOUS, BEST = "last.pt", "previous.pt", "best.pt"
NEW = "last.pt.new"     # whole too: a kill just before it was renamed leaves the newest under this name

# Keys that may differ between a checkpoint and the run that goes on from it: they change no weight.
# (memory.* changes the order of sums only: the weights stay equal up to rounding.)
FREE = {("train", "output"), ("train", "epochs"), ("train", "max_steps"), ("train", "checkpoint_minutes"),
        ("train", "checkpoint_steps"), ("data", "cache"), ("model", "weights")}
FREE_SECTIONS = {"log", "memory"}


class CheckpointError(HiresError):
    """A checkpoint that can't be read, or belongs to another run."""


def save(folder: Path, state: dict[str, Any], best: bool) -> None:
    """Write `state` (dicts, lists, plain values, tensors) as the last, and if so the best, checkpoint.

    The best is written first: if only that one gets done, going on from the last one makes it again.
    """
    folder.mkdir(parents=True, exist_ok=True)
    state = {"format": FORMAT, **state}
    if best:
        write_aside(folder / BEST, lambda file: torch.save(state, file))
    part = folder / (NEW)
    write_aside(part, lambda file: torch.save(state, file))
    if (folder / LAST).exists():
        rename(folder / LAST, folder / PREVIOUS)
    rename(part, folder / LAST)


def load(path: Path) -> dict[str, Any]:
    """Read one checkpoint onto the CPU. CheckpointError if it is damaged or is none."""
    state = read(path)
    if state.get("format") != FORMAT:
        raise CheckpointError(f"{path}: not a checkpoint of hires, or of another version of it")
    return state


def read(path: Path) -> dict[str, Any]:
    """Read a dict that torch has saved, onto the CPU, running nothing from it; else CheckpointError."""
    try:
        with zipfile.ZipFile(path) as file:
            damaged = file.testzip()
        if damaged is not None:
            raise CheckpointError(f"{path}: damaged: the checksum of {damaged} is wrong")
        state = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise CheckpointError(f"{path}: no such checkpoint") from None
    except pickle.UnpicklingError as e:
        raise CheckpointError(f"{path}: holds more than tensors and plain values, so it isn't loaded: "
                              f"{str(e).splitlines()[0]}") from None
    except (OSError, RuntimeError, zipfile.BadZipFile, EOFError, NotImplementedError) as e:
        raise CheckpointError(f"{path}: damaged or cut short ({str(e).splitlines()[0]})") from None
    if not isinstance(state, dict):
        raise CheckpointError(f"{path}: holds {type(state).__name__}, not a dict")
    return state


def latest(folder: Path) -> tuple[dict[str, Any] | None, list[str]]:
    """The newest whole checkpoint of a run (None if it never saved one), and what to say of damaged ones.

    Raises CheckpointError if there are checkpoints but none is whole.
    """
    said: list[str] = []
    found = False
    for name in (NEW, LAST, PREVIOUS):
        path = folder / name
        if not path.exists():
            continue
        found = True
        try:
            state = load(path)
        except CheckpointError as e:
            said.append(str(e))
            continue
        if said:
            said.append(f"going on from {path} (step {state['step']}) instead")
        return state, said
    if found:
        best = f"\n{folder / BEST} may be whole: copy it to {folder / LAST} to go on from there" \
            if (folder / BEST).exists() else ""
        raise CheckpointError("no checkpoint of this run is whole:\n" + "\n".join(said) + best)
    return None, said


def same_run(saved: dict[str, Any], now: dict[str, Any], where: str) -> list[str]:
    """Compare the run's settings with the checkpoint's; returns notes on free keys that matter to rounding.

    Raises CheckpointError that lists every key which changes what is trained.
    """
    differences, notes = [], []
    for section in sorted({*saved, *now}):
        before, after = saved.get(section) or {}, now.get(section) or {}
        for key in sorted({*before, *after}):
            if before.get(key) == after.get(key) or (section, key) in FREE:
                continue
            if section in FREE_SECTIONS:
                if section == "memory":
                    notes.append(f"[memory] {key} differs from the checkpoint's: the weights will equal "
                                 "those of an undisturbed run up to rounding, not bit by bit")
                continue
            differences.append(f"  [{section}] {key}: {before.get(key)!r} in the checkpoint, "
                               f"{after.get(key)!r} now")
    if differences:
        raise CheckpointError(f"{where}: the checkpoint belongs to a run with other settings:\n"
                              + "\n".join(differences) + "\nSet them back to go on, or start a new run in "
                              "another [train] output (with [model] weights to start from these weights)")
    return notes


def load_weights(module: torch.nn.Module, state: dict[str, Any], where: str) -> None:
    """Put a state_dict into a model. CheckpointError that lists names and shapes which don't fit."""
    own = module.state_dict()
    wrong = [f"  {name}: missing" for name in own if name not in state]
    wrong += [f"  {name}: not in this model" for name in state if name not in own]
    wrong += [f"  {name}: shape {tuple(state[name].shape)}, this model's is {tuple(own[name].shape)}"
              for name in own if name in state and state[name].shape != own[name].shape]
    if wrong:
        more = f"\n  … and {len(wrong) - 10} more" if len(wrong) > 10 else ""
        raise CheckpointError(f"{where}: the weights are those of another model:\n"
                              + "\n".join(wrong[:10]) + more)
    module.load_state_dict(state)
