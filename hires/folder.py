"""The output folder of a run: what may be in it, and who may write to it."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hires.errors import ConfigError
from hires.files import write_aside

CONFIG, LOG, CHECKPOINTS, BOARD, LOCK = "config.toml", "log.jsonl", "checkpoints", "tensorboard", ".lock"
_OURS = {CONFIG, LOG, CHECKPOINTS, BOARD, LOCK, "loss.png", "memory.png", "class_counts.json"}


@contextmanager
def opened(path: Path, resume: bool, overwrite: bool) -> Iterator[None]:
    """Make the folder of a run ready and keep other runs out of it meanwhile.

    Raises ConfigError for a folder that holds a run (unless `resume` or `overwrite`), or something else.
    """
    check(path, resume, overwrite)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise ConfigError(f"[train] output: can't make the folder {path} ({e.strerror})") from None
    with _locked(path):
        if overwrite:
            for name in _OURS - {LOCK}:
                if (path / name).is_dir():
                    shutil.rmtree(path / name)
                else:
                    (path / name).unlink(missing_ok=True)
        for left in [*path.glob("*.part"), *(path / CHECKPOINTS).glob("*.part")]:
            left.unlink()       # what a kill in the middle of a write has left
        try:
            yield
        finally:
            if {p.name for p in path.iterdir()} == {LOCK}:      # nothing came of it: leave no trace
                shutil.rmtree(path)


def check(path: Path, resume: bool, overwrite: bool) -> None:
    """Refuse a folder that a run mustn't write to; touches nothing."""
    if not path.exists():
        return
    if not path.is_dir():
        raise ConfigError(f"[train] output: {path} is a file, not a folder")
    there = {p.name for p in path.iterdir() if not p.name.endswith(".part")}
    holds_run = LOG in there or CONFIG in there
    if holds_run and not (resume or overwrite):
        raise ConfigError(f"[train] output: {path} holds a run already: --resume goes on with it, "
                          "--overwrite starts anew in its place, --output names another folder")
    if not holds_run and there - _OURS:
        raise ConfigError(f"[train] output: {path} isn't empty and holds no run ({sorted(there - _OURS)[0]} "
                          "is in it); name another folder")


def save_config(path: Path, toml: str) -> None:
    """Write the resolved run file into the folder."""
    head = "# The run as it was resolved: every key, every path. `hires train` takes it as it is.\n\n"
    write_aside(path / CONFIG, (head + toml).encode())


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    try:
        import fcntl
    except ImportError:     # Windows has no flock: two runs in one folder are then the user's to avoid
        yield
        return
    with (path / LOCK).open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ConfigError(f"[train] output: another run is writing to {path} right now") from None
        yield
