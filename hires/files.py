"""Writing so that a file is always whole: aside first, then renamed."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO


def write_aside(path: Path, content: bytes | Callable[[BinaryIO], object]) -> None:
    """Write `path` as a whole or not at all: to ``path.part``, flushed to disk, then renamed over it."""
    part = path.with_name(path.name + ".part")
    with part.open("wb") as file:
        if callable(content):
            content(file)
        else:
            file.write(content)
        file.flush()
        os.fsync(file.fileno())
    rename(part, path)


def rename(old: Path, new: Path) -> None:
    """Rename over whatever is there, and make the new name last through a power cut."""
    os.replace(old, new)
    if os.name != "nt":     # a folder can't be opened, and needs no flush, on Windows
        folder = os.open(new.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
