"""Images that are read by box, and views of them that cost nothing until they are read.

Axes are letters, one per axis: ``t`` time, ``c`` channel, ``z``, ``y``, ``x`` space. Images from files
always come in that order, so a colour picture is ``cyx`` whatever its file does.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from hires.tiling.box import Box, Interval, size, slices
from hires.tiling.errors import ImageError

SPATIAL = "zyx"
DEFAULT_AXES = {1: "x", 2: "yx", 3: "cyx", 4: "czyx", 5: "tczyx"}


class Image:
    """Base of everything that can be read by box.

    shape: extent per axis, in pixels. axes: one letter per axis. dtype: of what `read` returns.
    pixel_size: extent of a pixel per spatial axis, ``{"y": 0.25, "x": 0.25}``, in `pixel_unit` (a UDUNITS
    name such as "micrometer", or None); axes of unknown pixel size are missing.
    channel_names: one per channel, or empty. chunks: extent per axis of the pieces that are decoded at a time.
    resident: bytes that stay in memory once something was read (formats that can only be decoded whole).
    metadata: what else the file says (see the readers).

    Reading is safe from many threads; images can be pickled, and then open their files anew.
    """

    shape: tuple[int, ...]
    axes: str
    dtype: np.dtype
    pixel_size: Mapping[str, float] = {}
    pixel_unit: str | None = None
    channel_names: tuple[str, ...] = ()
    chunks: tuple[int, ...] | None = None
    resident: int = 0
    metadata: Mapping[str, Any] = {}

    def read(self, box: Box) -> NDArray:
        """Values of a box over all axes in order, ``((start, stop), …)``; a new array the caller may change.

        Raises ImageError for a box that doesn't lie in the image and for data that can't be decoded.
        """
        raise NotImplementedError

    def flip(self, axis: str) -> "Image":
        """Mirrored along one axis, given by letter."""
        return Flipped(self, axis)

    def rot90(self, k: int = 1) -> "Image":
        """Turned by k quarter turns in the plane (y, x), in the direction of `numpy.rot90`."""
        k %= 4
        if k == 0:
            return self
        if k == 2:
            return Flipped(Flipped(self, "y"), "x")
        turned = Swapped(self)
        return Flipped(turned, "y" if k == 1 else "x")

    def crop(self, box: Sequence[Interval] | Mapping[str, Interval]) -> "Image":
        """Part of the image: a box over all axes, or ``{"y": (start, stop)}`` for some of them."""
        return Cropped(self, box)

    def normalize(self, mean: float | Sequence[float], std: float | Sequence[float]) -> "Image":
        """``(value - mean) / std``, one number or one per channel; float32, or float64 for float64 images."""
        return Normalized(self, mean, std)

    def astype(self, dtype: DTypeLike) -> "Image":
        """Values cast as numpy casts them: no scaling."""
        return Cast(self, dtype)

    def _like(self, image: "Image") -> None:
        """Take over the description of another image."""
        self.shape, self.axes, self.dtype = tuple(image.shape), image.axes, np.dtype(image.dtype)
        self.pixel_size, self.pixel_unit = image.pixel_size, image.pixel_unit
        self.channel_names, self.chunks = image.channel_names, image.chunks
        self.resident, self.metadata = image.resident, image.metadata

    def _place(self, axis: str) -> int:
        place = self.axes.find(axis)
        if place < 0 or len(axis) != 1:
            raise ImageError(f"no axis {axis!r}: the image has the axes {', '.join(self.axes)}")
        return place

    def __repr__(self) -> str:
        extent = " × ".join(f"{a} {n}" for a, n in zip(self.axes, self.shape, strict=True))
        return f"<{type(self).__name__} {extent}, {np.dtype(self.dtype).name}>"


def checked(image: Image, box: Sequence[Interval]) -> Box:
    """The box as plain integers; ImageError unless it lies in the image."""
    if len(box) != len(image.shape):
        raise ImageError(f"a box over {len(box)} axes for an image with the axes {', '.join(image.axes)}")
    out = tuple((int(a), int(b)) for a, b in box)
    for (a, b), n, axis in zip(out, image.shape, image.axes, strict=True):
        if not 0 <= a <= b <= n:
            raise ImageError(f"a box from {a} to {b} on axis {axis}, which has {n} pixels")
    return out


class ArrayImage(Image):
    """An array (numpy, Zarr, dask: anything with shape, dtype and slicing) as an image.

    axes: one letter per axis in order; without it by dimension x, yx, cyx, czyx, tczyx.
    """

    def __init__(
        self,
        array: Any,
        axes: str | None = None,
        *,
        pixel_size: Mapping[str, float] | None = None,
        pixel_unit: str | None = None,
        channel_names: Sequence[str] = (),
    ) -> None:
        self.shape = tuple(int(n) for n in array.shape)
        self.axes = axes_for(self.shape, axes)
        self.dtype = np.dtype(array.dtype)
        self.pixel_size = dict(pixel_size or {})
        self.pixel_unit = pixel_unit
        self.channel_names = tuple(channel_names)
        chunks = getattr(array, "chunksize", None) or getattr(array, "chunks", None)
        if isinstance(chunks, tuple) and all(isinstance(n, int) for n in chunks):
            self.chunks = chunks
        self._array = array

    def read(self, box: Box) -> NDArray:
        """A copy of that part of the array."""
        return np.array(self._array[slices(checked(self, box))])


def axes_for(shape: Sequence[int], axes: str | None) -> str:
    """Letters for the axes of an array that doesn't name them itself."""
    if axes is None:
        if len(shape) not in DEFAULT_AXES:
            raise ImageError(f"an array of {len(shape)} dimensions; images have 1 to 5")
        return DEFAULT_AXES[len(shape)]
    if len(axes) != len(shape) or len(set(axes)) < len(axes) or not set(axes) <= set("tczyx"):
        raise ImageError(f"axes {axes!r} for an array of shape {tuple(shape)}: one letter each of t, c, z, y, x")
    return axes


class Flipped(Image):
    """Mirrored along one axis."""

    def __init__(self, image: Image, axis: str) -> None:
        self._like(image)
        self._image, self._axis = image, self._place(axis)
        if axis == "c":
            self.channel_names = tuple(reversed(self.channel_names))

    def read(self, box: Box) -> NDArray:
        """The mirrored box of the image, mirrored."""
        inner, n = list(checked(self, box)), self.shape[self._axis]
        a, b = inner[self._axis]
        inner[self._axis] = (n - b, n - a)
        return np.ascontiguousarray(np.flip(self._image.read(tuple(inner)), self._axis))


class Swapped(Image):
    """Rows and columns exchanged; the axes keep their letters."""

    def __init__(self, image: Image) -> None:
        self._like(image)
        self._image, self._y, self._x = image, self._place("y"), self._place("x")
        self.shape = self._swap(self.shape)
        self.chunks = self._swap(self.chunks) if self.chunks else None
        other = {"y": "x", "x": "y"}
        self.pixel_size = {other.get(a, a): value for a, value in self.pixel_size.items()}

    def _swap(self, values: tuple) -> tuple:
        out = list(values)
        out[self._y], out[self._x] = out[self._x], out[self._y]
        return tuple(out)

    def read(self, box: Box) -> NDArray:
        """The exchanged box of the image, exchanged."""
        inner = self._swap(checked(self, box))
        return np.ascontiguousarray(np.swapaxes(self._image.read(inner), self._y, self._x))


class Cropped(Image):
    """Part of an image."""

    def __init__(self, image: Image, box: Sequence[Interval] | Mapping[str, Interval]) -> None:
        self._like(image)
        if isinstance(box, Mapping):
            for axis in box:
                self._place(axis)
            box = [box.get(axis, (0, n)) for axis, n in zip(image.axes, image.shape, strict=True)]
        self._box, self._image = checked(image, box), image
        self.shape = size(self._box)
        place = self.axes.find("c")
        if self.channel_names and place >= 0:
            self.channel_names = self.channel_names[slice(*self._box[place])]

    def read(self, box: Box) -> NDArray:
        """The box of the image that lies under that of the part."""
        inner = checked(self, box)
        return self._image.read(tuple((a + o, b + o) for (a, b), (o, _) in zip(inner, self._box, strict=True)))


class Normalized(Image):
    """``(value - mean) / std`` in floating point."""

    def __init__(self, image: Image, mean: float | Sequence[float], std: float | Sequence[float]) -> None:
        self._like(image)
        self._image = image
        self.dtype = self.dtype if self.dtype.kind == "f" else np.dtype(np.float32)
        self._c = self.axes.find("c")
        self._mean, self._std = (self._per_channel(v, name) for v, name in ((mean, "mean"), (std, "std")))
        if not np.all(self._std > 0):
            raise ImageError(f"normalize: std must be above zero, not {std}")

    def _per_channel(self, values: float | Sequence[float], name: str) -> NDArray:
        out = np.asarray(values, self.dtype)
        if out.ndim and (self._c < 0 or out.shape != (self.shape[self._c],)):
            channels = self.shape[self._c] if self._c >= 0 else 1
            raise ImageError(f"normalize: {out.size} numbers as {name} for an image of {channels} channels")
        return out

    def _at(self, values: NDArray, interval: Interval) -> NDArray:
        if values.ndim == 0:
            return values
        return values[slice(*interval)].reshape([-1 if i == self._c else 1 for i in range(len(self.shape))])

    def read(self, box: Box) -> NDArray:
        """Normalized values of the box."""
        inner = checked(self, box)
        values = self._image.read(inner).astype(self.dtype)
        values -= self._at(self._mean, inner[self._c])
        values /= self._at(self._std, inner[self._c])
        return values


class Cast(Image):
    """Values in another dtype."""

    def __init__(self, image: Image, dtype: DTypeLike) -> None:
        self._like(image)
        self._image, self.dtype = image, np.dtype(dtype)

    def read(self, box: Box) -> NDArray:
        """Cast values of the box."""
        return self._image.read(checked(self, box)).astype(self.dtype)


class Ordered(Image):
    """Axes in another order, so that every image of a kind comes with the same one."""

    def __init__(self, image: Image, axes: str) -> None:
        self._like(image)
        self._image, self.axes = image, axes
        self._order = [image.axes.index(a) for a in axes]
        self._back = [axes.index(a) for a in image.axes]
        self.shape = tuple(image.shape[i] for i in self._order)
        self.chunks = tuple(image.chunks[i] for i in self._order) if image.chunks else None

    def read(self, box: Box) -> NDArray:
        """The box of the image, its axes put in order."""
        inner = checked(self, box)
        values = self._image.read(tuple(inner[i] for i in self._back))
        return np.ascontiguousarray(values.transpose(self._order))


def in_order(image: Image) -> Image:
    """The image with its axes in the order t, c, z, y, x."""
    axes = "".join(a for a in "tczyx" if a in image.axes)
    return image if axes == image.axes else Ordered(image, axes)


def upright(image: Image, orientation: int) -> Image:
    """An image as stored, turned as its Exif or TIFF orientation (1 to 8) says.

    TIFF 6.0, tag 274: 2 mirrored, 3 upside down, 4 mirrored and upside down, 5 to 8 with rows for columns.
    """
    if orientation in (5, 6, 7, 8):
        image = Swapped(image)
    if orientation in (2, 3, 6, 7):
        image = Flipped(image, "x")
    if orientation in (3, 4, 7, 8):
        image = Flipped(image, "y")
    return image
