"""What a run says and writes while it goes: progress on stderr, JSON lines, TensorBoard, plots."""

import json
import os
import resource
import sys
import time
from collections import deque
from pathlib import Path
from typing import Any

import psutil
import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from hires.errors import HiresError
from hires.files import write_aside


class JsonLines:
    """One JSON object a line, flushed as written. `count` lines are known to belong to the run so far."""

    def __init__(self, path: Path, keep: int) -> None:
        """Keep the first `keep` lines of an earlier part of the run, drop those after its checkpoint."""
        lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
        whole = [line for line in lines[:keep] if line.endswith(b"\n")]
        if len(whole) < keep:
            raise HiresError(f"{path}: has {len(whole)} lines, but the checkpoint was saved after {keep}; "
                             "put the file back, or start anew with --overwrite")
        if len(lines) != keep:
            write_aside(path, b"".join(whole))
        self.count = keep
        self._file = path.open("a", encoding="utf-8")

    def write(self, **record: Any) -> None:
        """Append one object; numbers that JSON doesn't have (NaN) become null."""
        self._file.write(json.dumps(_plain(record), allow_nan=False) + "\n")
        self._file.flush()
        self.count += 1

    def sync(self) -> None:
        """Make what was written last through a power cut; called before a checkpoint that counts on it."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_plain(v) for v in value]
    if isinstance(value, float) and not (abs(value) < float("inf")):
        return None
    return value


def memory(device: torch.device) -> tuple[int, int]:
    """(bytes held now, most bytes held so far): of the GPU's tensors, or of the process on a CPU."""
    if device.type == "cuda":
        return torch.cuda.memory_allocated(device), torch.cuda.max_memory_allocated(device)
    unit = 1 if sys.platform == "darwin" else 1024      # ru_maxrss: bytes on macOS, KiB elsewhere
    held = psutil.Process().memory_info().rss
    return held, max(held, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit)


class Reporter:
    """Progress on stderr: a bar on a terminal, else one line every few seconds and one for each epoch."""

    _WINDOW = 20    # images over which the speed is taken

    def __init__(self, device: torch.device, every_seconds: float, quiet: bool) -> None:
        self._device, self._every, self._quiet = device, every_seconds, quiet
        self._recent: deque[tuple[float, int]] = deque(maxlen=self._WINDOW)
        self._said = time.monotonic()
        self._bar: Progress | None = None
        self._console = Console(stderr=True, highlight=False, soft_wrap=True)
        if self._console.is_terminal and not quiet:
            self._bar = Progress(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
                                 TextColumn("{task.fields[facts]}"), console=self._console)
            self._task = self._bar.add_task("", facts="")
            self._bar.start()

    def close(self) -> None:
        """Leave the terminal as it was."""
        if self._bar is not None:
            self._bar.stop()

    def note(self, line: str) -> None:
        """Say one line (also when quiet: it's a warning or the way to go on)."""
        self._console.print(line, markup=False)

    def say(self, line: str) -> None:
        """Say one line unless quiet."""
        if not self._quiet:
            self.note(line)

    @property
    def speed(self) -> tuple[float, float]:
        """(images/s, Mpx/s) over the last images."""
        seconds = sum(s for s, _ in self._recent)
        if not seconds:
            return 0.0, 0.0
        return len(self._recent) / seconds, sum(n for _, n in self._recent) / seconds / 1e6

    def image(self, what: str, done: int, total: int, left: int | None, seconds: float, pixels: int,
              images: int, loss: float | None) -> None:
        """After a pass: image `done` of `total` in `what`; `left` images in the whole run, if known."""
        for _ in range(images):
            self._recent.append((seconds / images, pixels // images))
        now, peak = memory(self._device)
        each, mega = self.speed
        facts = [] if loss is None else [f"loss {loss:.4g}"]
        facts += [f"{each:.3g} images/s", f"{mega:.3g} Mpx/s",
                  f"{now / 2**30:.2f} GiB (peak {peak / 2**30:.2f})"]
        if left is not None and each:
            facts.append(f"{_span(left / each)} left")
        if self._bar is not None:
            self._bar.update(self._task, description=what, completed=done, total=total,
                             facts="  ".join(facts))
        elif time.monotonic() - self._said >= self._every:
            self._said = time.monotonic()
            self.say(f"{what}  {done}/{total}  " + "  ".join(facts))


def _span(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


class Board:
    """TensorBoard, or nothing if it is switched off. Steps after `step` of an earlier part are dropped."""

    def __init__(self, folder: Path, on: bool, step: int) -> None:
        self._writer: Any = None
        if on:
            from torch.utils.tensorboard import SummaryWriter
            self._writer = SummaryWriter(str(folder), purge_step=step + 1 if step else None)

    def scalars(self, prefix: str, values: dict[str, Any], step: int) -> None:
        """Write the numbers of `values` as ``prefix/name``; dicts go one level down, lists are left out."""
        for name, value in values.items():
            if isinstance(value, dict):
                self.scalars(f"{prefix}/{name}", value, step)
            elif isinstance(value, (int, float)) and self._writer is not None:
                self._writer.add_scalar(f"{prefix}/{name}", value, step)

    def image(self, tag: str, picture: Any, step: int) -> None:
        """Write a picture, (3, y, x) uint8."""
        if self._writer is not None:
            self._writer.add_image(tag, picture, step)

    def text(self, tag: str, text: str, step: int) -> None:
        """Write a line of text."""
        if self._writer is not None:
            self._writer.add_text(tag, text, step)

    def flush(self) -> None:
        """Write out what is pending."""
        if self._writer is not None:
            self._writer.flush()

    def close(self) -> None:
        """Close the files."""
        if self._writer is not None:
            self._writer.close()


def plot(log: Path, folder: Path) -> str | None:
    """Draw ``loss.png`` and ``memory.png`` from the JSON lines; returns what to say if that can't be done."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return "no plots of loss and memory: matplotlib isn't installed (pip install matplotlib)"
    records = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    steps = [r for r in records if r["kind"] == "step"]
    scored = [r for r in records if r["kind"] == "validation" and r.get("loss") is not None]

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.add_subplot(xlabel="step", ylabel="loss")
    axes.plot([r["step"] for r in steps], [_number(r["loss"]) for r in steps], lw=0.8, label="training")
    if scored:
        axes.plot([r["step"] for r in scored], [r["loss"] for r in scored], "o-", ms=4, label="validation")
    axes.legend()
    write_aside(folder / "loss.png", lambda file: figure.savefig(file, format="png", dpi=120))

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.add_subplot(xlabel="step", ylabel="memory, GiB")
    axes.plot([r["step"] for r in steps], [r["memory"] / 2**30 for r in steps], lw=0.8, label="held")
    axes.plot([r["step"] for r in steps], [r["memory_peak"] / 2**30 for r in steps], lw=0.8, label="peak")
    axes.legend()
    write_aside(folder / "memory.png", lambda file: figure.savefig(file, format="png", dpi=120))
    return None


def _number(value: float | None) -> float:
    return float("nan") if value is None else value
