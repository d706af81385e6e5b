"""NumPy's .npy files, read where they lie: only the rows of the box, never pickled objects."""

from pathlib import Path

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from hires.tiling.box import Box
from hires.tiling.errors import ImageError
from hires.tiling.files import File, cut_off
from hires.tiling.lazy import Image, axes_for, checked, in_order
from hires.tiling.memory import bytes_of
from hires.tiling.readers.options import Options


class NpyImage(Image):
    """An array in a .npy file; rows of the box are read with plain reads, so resident memory stays that of the box."""

    def __init__(self, path: Path, options: Options) -> None:
        self._file, self._options = File(path), options
        try:
            with path.open("rb") as file:
                version = npy.read_magic(file)
                read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
                shape, fortran, dtype = read(file)
                self._offset = file.tell()
        except (ValueError, OSError) as e:
            raise ImageError(f"{path} is a damaged .npy file: {e}") from e
        if dtype.hasobject or dtype.kind not in "buif":
            raise ImageError(f"{path} holds {dtype}, not numbers; pickled objects are never loaded")
        if self._offset + bytes_of(shape, dtype) > self._file.size:
            raise cut_off(path, self._offset + bytes_of(shape, dtype), self._file.size)
        self._fortran, self._stored = fortran, dtype
        self.shape, self.dtype = tuple(int(n) for n in shape), dtype.newbyteorder("=")
        self.axes = axes_for(self.shape, options.axes)
        self.metadata = {"format": "npy"}

    def read(self, box: Box) -> NDArray:
        """Values of the box."""
        box, shape = checked(self, box), self.shape
        if self._fortran:
            box, shape = box[::-1], shape[::-1]
        with self._file.opened() as handle:
            values = handle.array(self._offset, shape, self._stored, box).astype(self.dtype, copy=False)
        return np.ascontiguousarray(values.T) if self._fortran else values

    def __reduce__(self) -> tuple:
        return NpyImage, (self._file.path, self._options)


def open_npy(path: Path, options: Options) -> Image:
    """A .npy file; see `open_image`."""
    return in_order(NpyImage(path, options))
