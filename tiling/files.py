"""Reading parts of files: any thread, any process, nothing kept open."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hires.tiling.box import Box, size
from hires.tiling.errors import ImageError


class File:
    """A file that is opened for each read, so that it survives pickling, forks and thousands of siblings.

    A file that changes after it was first seen is refused: offsets taken from it no longer hold.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        try:
            status = self.path.stat()
        except OSError as e:
            raise ImageError(f"{self.path}: {_reason(e)}") from None
        self.size = status.st_size
        self.stamp = (status.st_size, status.st_mtime_ns)

    @contextmanager
    def opened(self) -> Iterator["Handle"]:
        """An open handle for one read."""
        try:
            fd = os.open(self.path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        except OSError as e:
            raise ImageError(f"{self.path}: {_reason(e)}") from None
        try:
            status = os.fstat(fd)
            if (status.st_size, status.st_mtime_ns) != self.stamp:
                raise ImageError(f"{self.path} changed while it was in use; open it again")
            yield Handle(fd, self)
        finally:
            os.close(fd)

    def content(self) -> bytes:
        """The whole file."""
        with self.opened() as handle:
            return handle.read(0, self.size)


class Handle:
    """An open file."""

    def __init__(self, fd: int, file: File) -> None:
        self._fd, self._file = fd, file

    def read(self, offset: int, count: int) -> bytes:
        """Exactly `count` bytes; ImageError where the file ends before."""
        if offset < 0 or count < 0 or offset + count > self._file.size:
            raise cut_off(self._file.path, offset + count, self._file.size)
        parts, place = [], offset
        while place < offset + count:
            part = os.pread(self._fd, min(offset + count - place, 1 << 30), place)
            if not part:
                raise cut_off(self._file.path, offset + count, place)
            parts.append(part)
            place += len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def array(self, offset: int, shape: Sequence[int], dtype: np.dtype, box: Box) -> NDArray:
        """A box of an array that lies uncompressed in the file, last axis fastest; only its bytes are read."""
        counts = size(box)
        out = np.empty(counts, dtype)
        if out.size == 0:
            return out
        # Trailing axes that the box covers whole are one run with the axis before them.
        split = len(shape)
        while split and counts[split - 1] == shape[split - 1]:
            split -= 1
        split = max(split - 1, 0)
        strides = [dtype.itemsize * int(np.prod(shape[i + 1:], dtype=np.int64)) for i in range(len(shape))]
        run = int(np.prod(counts[split:], dtype=np.int64)) * dtype.itemsize
        start = offset + sum(a * s for (a, _), s in zip(box[split:], strides[split:], strict=True))
        rows = out.reshape(-1).view(np.uint8).reshape(-1, run)
        leading = product(*(range(a, b) for a, b in box[:split]))
        for row, index in zip(rows, leading, strict=True):
            place = start + sum(i * s for i, s in zip(index, strides, strict=False))
            row[:] = np.frombuffer(self.read(place, run), np.uint8)
        return out


def cut_off(path: Path | str, needed: int, found: int) -> ImageError:
    """The error for a file that ends too early."""
    return ImageError(f"{path} is cut off: it should go on to byte {needed:,}, but ends at {found:,}")


def _reason(error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        return "no such file"
    return (error.strerror or str(error)).lower()
