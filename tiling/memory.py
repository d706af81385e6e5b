"""Sizes are checked before memory is taken."""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import psutil

from hires.tiling.errors import ImageError

# Formats that deflate or Huffman-code can't shrink pictures further than this: deflate reaches 1032 : 1,
# JPEG about 1400 : 1 (one bit per block of 64, chroma at a sixteenth). A file that declares more is damaged or hostile.
MOST_SHRUNK = 2000


def bytes_of(shape: Sequence[int], dtype: np.dtype) -> int:
    """Bytes of an array, in whole numbers of any size."""
    return math.prod(int(n) for n in shape) * dtype.itemsize


def in_words(nbytes: float) -> str:
    """A number of bytes for people.

    >>> in_words(3_900_000_000_000)
    '3.9 TB'
    """
    for unit in ("bytes", "kB", "MB", "GB", "TB"):
        if nbytes < 1000 or unit == "TB":
            break
        nbytes /= 1000
    return f"{nbytes:.0f} {unit}" if nbytes >= 10 or unit == "bytes" else f"{nbytes:.1f} {unit}"


def declared(shape: Sequence[int], dtype: np.dtype) -> str:
    """A declared size for people: shape, dtype, bytes."""
    return f"{' × '.join(str(n) for n in shape)} {dtype.name}, {in_words(bytes_of(shape, dtype))}"


def check_memory(path: Path | str, shape: Sequence[int], dtype: np.dtype, what: str, copies: float = 1) -> None:
    """Refuse what must be decoded in one piece and doesn't fit: ImageError naming the declared size."""
    free = psutil.virtual_memory().available
    if bytes_of(shape, dtype) * copies > free:
        raise ImageError(f"{path} declares {what} of {declared(shape, dtype)}, which can only be decoded as a whole; "
                         f"{in_words(free)} of memory are free. Is the file what it should be? If so, "
                         "store it in tiles (TIFF or OME-Zarr)")


def check_shrunk(path: Path | str, shape: Sequence[int], dtype: np.dtype, stored: int) -> None:
    """Refuse a size that the stored bytes can't hold: ImageError naming both."""
    if bytes_of(shape, dtype) > MOST_SHRUNK * max(stored, 1):
        raise ImageError(f"{path} declares {declared(shape, dtype)}, but holds only {in_words(stored)} of pixel data: "
                         "it's cut off or damaged")
