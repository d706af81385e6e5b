"""Lazy views that the training needs and images as such don't: class numbers, checks, repeated channels."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hires.classes import IGNORE, ClassMap
from hires.errors import DataError
from hires.tiling.box import Box
from hires.tiling.image import Image


def spatial_axes(image: Image) -> str:
    """The letters of the axes that aren't channels, in order."""
    return image.axes.replace("c", "")


class ClassMask(Image):
    """A mask as class numbers: spatial axes, int16, IGNORE where a pixel counts for nothing.

    `hides`: the image; where one of its channels isn't finite, the pixel counts for nothing.
    Reading raises DataError with file, value and position for a value that the map doesn't know.
    """

    def __init__(self, mask: Image, classes: ClassMap, name: str, hides: Image | None = None) -> None:
        self.shape = tuple(mask.shape)
        self.axes = mask.axes
        self.dtype = np.dtype(np.int16)
        self._mask, self._classes, self._name, self._hides = mask, classes, name, hides

    def read(self, box: Box) -> NDArray[np.int16]:
        """Class numbers of the box, in the order of `axes`."""
        raw = self._mask.read(box)
        numbers, bad = self._classes.lookup(raw)
        if bad is not None:
            where = [start + i for (start, _), i in zip(box, bad, strict=True)]
            raise DataError(f"{self._name}: {self._classes.unmapped(raw[bad].item())} "
                            f"(at {_position(self.axes, where)})")
        if self._hides is not None:
            place = self._hides.axes.find("c")
            full = list(box) if place < 0 else [*box[:place], (0, self._hides.shape[place]), *box[place:]]
            finite = np.isfinite(self._hides.read(tuple(full)))
            numbers = np.where(finite if place < 0 else finite.all(axis=place), numbers, np.int16(IGNORE))
        return numbers


class Finite(Image):
    """A float image in which NaN and infinities are refused, or replaced by `fill` (one per channel)."""

    def __init__(self, image: Image, name: str, fill: Sequence[float] | NDArray | None) -> None:
        self.shape = tuple(image.shape)
        self.axes = image.axes
        self.dtype = image.dtype
        self._image, self._name = image, name
        self._fill = None if fill is None else np.asarray(fill, image.dtype)

    def read(self, box: Box) -> NDArray:
        """Values of the box; DataError with file and position at the first that isn't finite."""
        values = self._image.read(box)
        finite = np.isfinite(values)
        if finite.all():
            return values
        if self._fill is None:
            bad = np.unravel_index(int(np.argmin(finite)), finite.shape)
            where = [start + int(i) for (start, _), i in zip(box, bad, strict=True)]
            raise DataError(f"{self._name}: value {values[bad]} at {_position(self.axes, where)}; one "
                            'such pixel spoils every weight. Mend the file or set [data] nan = "mask" to '
                            "leave such pixels out")
        place = self.axes.find("c")
        fill = self._fill
        if place >= 0:
            start, stop = box[place]
            fill = fill[start:stop].reshape([-1 if i == place else 1 for i in range(values.ndim)])
        return np.where(finite, values, fill)


class Repeated(Image):
    """A grey image as one of `channels` equal channels, axes c + spatial."""

    def __init__(self, image: Image, channels: int) -> None:
        grey = Grey(image) if "c" in image.axes else image
        self.shape = (channels, *grey.shape)
        self.axes = "c" + grey.axes
        self.dtype = grey.dtype
        self._grey = grey

    def read(self, box: Box) -> NDArray:
        """Values of the box, (c, *spatial)."""
        values = self._grey.read(box[1:])
        return np.repeat(values[None], box[0][1] - box[0][0], axis=0)


class Grey(Image):
    """An image with one channel, without the channel axis."""

    def __init__(self, image: Image) -> None:
        place = image.axes.index("c")
        self.shape = (*image.shape[:place], *image.shape[place + 1:])
        self.axes = spatial_axes(image)
        self.dtype = image.dtype
        self._image, self._place = image, place

    def read(self, box: Box) -> NDArray:
        """Values of the box, spatial axes only."""
        return self._image.read((*box[:self._place], (0, 1), *box[self._place:])).squeeze(self._place)


def _position(axes: str, where: Sequence[int]) -> str:
    return ", ".join(f"{a} = {i}" for a, i in zip(axes, where, strict=True))
