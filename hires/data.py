"""Images and targets of a run: opened lazily, read by box, never whole."""

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hires import draw
from hires.classes import IGNORE, ClassMap
from hires.config import Data
from hires.errors import DataError, HiresError
from hires.files import write_aside
from hires.manifest import Row
from hires.tiling.box import Box, grid
from hires.tiling.image import Image, open_image
from hires.views import ClassMask, Finite, Grey, Repeated, spatial_axes

_COUNT_TILE = 2048      # pixels per axis read at once while classes are counted
_THREADS = 4            # files opened at once while they are checked


@dataclass(frozen=True)
class Sample:
    """One image with its target, as the engine takes them.

    `image`: lazy, axes c + spatial or spatial, values after normalisation.
    `target`: lazy mask of class numbers (spatial axes, int16, IGNORE where nothing counts), or for
    classification a tensor (1,) int64.
    """

    image: Image
    target: Any
    row: Row
    dtype: np.dtype         # of the file

    @property
    def pixels(self) -> int:
        """Number of pixels of the image, channels not counted."""
        return prod(n for a, n in zip(self.image.axes, self.image.shape, strict=True) if a != "c")


@dataclass(frozen=True)
class Header:
    """What the header of an image says, after `crop`: spatial axes and size, and number of channels."""

    axes: str
    size: tuple[int, ...]
    channels: int
    dtype: np.dtype


class Dataset:
    """The images of one split. `epoch` None means without flips and turns, as in validation."""

    def __init__(self, rows: Sequence[Row], data: Data, classes: ClassMap, seed: int,
                 dtype: torch.dtype = torch.float32) -> None:
        self.rows = list(rows)
        self.classes = classes
        self._data = data
        self._seed = seed
        self._dtype = np.dtype(str(dtype).removeprefix("torch."))

    def __len__(self) -> int:
        return len(self.rows)

    def sample(self, index: int, epoch: int | None) -> Sample:
        """The image of row `index`, flipped and turned as drawn from (seed, epoch, index).

        Raises DataError or ImageError naming the file.
        """
        row, data = self.rows[index], self._data
        raw = self._open(row)
        image = self._cropped(self._normalised(raw, row), row.image)
        if data.task == "segmentation":
            target: Any = self._cropped(self._mask(row, raw), row.target)
        else:
            target = torch.tensor([self.classes.number(row.target, row.where)])
        if epoch is not None:
            image = self._turned(image, index, epoch)
            if data.task == "segmentation":
                target = self._turned(target, index, epoch)
        return Sample(image, target, row, raw.dtype)

    def check(self, stopped: Callable[[], bool] = lambda: False) -> list[Header]:
        """Open the header of every file once: sizes of image and mask, axes, channels, classes of a manifest.

        Raises DataError for the first row (in order) that doesn't fit.
        """
        def one(index: int) -> Header | None:
            if stopped():
                return None
            sample = self.sample(index, None)
            image = sample.image
            axes = spatial_axes(image)
            size = tuple(n for a, n in zip(image.axes, image.shape, strict=True) if a != "c")
            return Header(axes, size, _channels(image), sample.dtype)

        with ThreadPoolExecutor(_THREADS) as pool:
            headers = [h for h in pool.map(one, range(len(self))) if h is not None]
        for row, header in zip(self.rows, headers, strict=False):
            first = headers[0]
            if header.channels != first.channels or header.axes != first.axes:
                raise DataError(
                    f"{row.image}: {_kind(header)}, but {self.rows[0].image} has {_kind(first)}; all "
                    "images of a run need the same ([data] channels = 3 repeats grey ones)")
        return headers

    def counts(self, folder: Path | None) -> NDArray[np.int64]:
        """Cells (or, for classification, images) of each class, (K,); kept in `folder` for the next time."""
        kept = folder / "class_counts.json" if folder is not None else None
        key = self._fingerprint()
        if kept is not None and kept.is_file():
            try:
                known = json.loads(kept.read_text())
                if known["of"] == key:
                    return np.array(known["counts"], np.int64)
            except (json.JSONDecodeError, KeyError, TypeError):
                kept.unlink()       # only a cache: counted again below
        with ThreadPoolExecutor(_THREADS) as pool:
            counts = sum(pool.map(self._count, range(len(self))), np.zeros(len(self.classes.names), np.int64))
        if kept is not None:
            write_aside(kept, json.dumps({"of": key, "counts": counts.tolist()}).encode())
        return counts

    def names_hash(self) -> str:
        """Changes when an image is added, taken away, moved, or given another target."""
        return hashlib.sha256(repr([(r.image, r.target) for r in self.rows]).encode()).hexdigest()

    def _count(self, index: int) -> NDArray[np.int64]:
        target = self.sample(index, None).target
        number = len(self.classes.names)
        if isinstance(target, torch.Tensor):
            return np.bincount(target.numpy(), minlength=number).astype(np.int64)
        counts = np.zeros(number, np.int64)
        for box in grid(target.shape, [_COUNT_TILE] * len(target.shape)):
            cells = target.read(box)
            counts += np.bincount(cells[cells != IGNORE], minlength=number)
        return counts

    def _fingerprint(self) -> str:
        """Changes when a file, the class map, or what is cut from the masks does."""
        digest = hashlib.sha256(repr((self._data.classes, self._data.ignore, self._data.crop, self._data.nan,
                                      self._data.task)).encode())
        for row in self.rows:
            digest.update(repr((row.image, row.target)).encode())
            if self._data.task == "segmentation" and os.path.exists(row.target):
                stat = os.stat(row.target)
                digest.update(repr((stat.st_size, stat.st_mtime_ns)).encode())
        return digest.hexdigest()

    def _open(self, row: Row) -> Image:
        image = _opened(row, row.image, label=False)
        channels, wanted = _channels(image), self._data.channels
        if "c" in image.axes and channels == 1:
            image = Grey(image)     # one channel and no channel axis are the same thing
        if wanted is not None and wanted != channels:
            if channels != 1:
                raise DataError(f"{row.image}: has {channels} channels, [data] channels asks for {wanted}")
            image = Repeated(image, wanted)
        return image

    def _cropped(self, image: Image, name: str) -> Image:
        if not self._data.crop:
            return image
        box: Box = tuple((0, n) for n in image.shape)
        for axis, (start, stop) in self._data.crop.items():
            if axis not in image.axes:
                raise DataError(f"{name}: [data] crop.{axis}: the image has the axes {image.axes}, no {axis}")
            place = image.axes.index(axis)
            if stop > image.shape[place]:
                raise DataError(f"{name}: [data] crop.{axis} ends at {stop}, but the image has only "
                                f"{image.shape[place]} pixels along {axis}")
            box = (*box[:place], (start, stop), *box[place + 1:])
        return image.crop(box)

    def _normalised(self, image: Image, row: Row) -> Image:
        data = self._data
        channels = _channels(image)
        mean, std = self._per_channel("mean", channels, row), self._per_channel("std", channels, row)
        if image.dtype.kind == "f":
            fill = mean if data.nan == "mask" else None
            image = Finite(image, row.image, fill)
        elif data.unit and image.dtype.kind in "iu":
            largest = float(np.iinfo(image.dtype).max)
            mean, std = mean * largest, std * largest
        if data.mean is None and not (data.unit and image.dtype.kind in "iu"):
            return image
        if "c" not in image.axes:
            return image.astype(self._dtype).normalize(float(mean[0]), float(std[0]))
        return image.astype(self._dtype).normalize(mean.tolist(), std.tolist())

    def _per_channel(self, key: str, channels: int, row: Row) -> NDArray[np.float64]:
        value = getattr(self._data, key)
        if value is None:
            value = 0.0 if key == "mean" else 1.0
        values = value if isinstance(value, list) else [value] * channels
        if len(values) != channels:
            raise DataError(f"[data] {key} has {len(values)} values, but {row.image} has {channels} channels")
        return np.array(values, np.float64)

    def _mask(self, row: Row, image: Image) -> Image:
        mask = _opened(row, row.target, label=True)
        if "c" in mask.axes:
            if _channels(mask) != 1:
                raise DataError(f"{row.target}: a mask holds one class number per pixel, but this file has "
                                f"{_channels(mask)} channels; save it as one grey or palette channel")
            mask = Grey(mask)
        size = tuple(n for a, n in zip(image.axes, image.shape, strict=True) if a != "c")
        if tuple(mask.shape) != size or mask.axes != spatial_axes(image):
            raise DataError(f"{row.where}: image and mask differ in size: "
                            f"{row.image} is {_size(spatial_axes(image), size)}, "
                            f"{row.target} is {_size(mask.axes, mask.shape)}")
        hides = image if self._data.nan == "mask" and image.dtype.kind == "f" else None
        return ClassMask(mask, self.classes, row.target, hides)

    def _turned(self, image: Image, index: int, epoch: int) -> Image:
        data = self._data
        flips, turns = draw.orientation(self._seed, epoch, index, len(data.flip))
        for axis, flip in zip(data.flip, flips, strict=True):
            if axis not in image.axes:
                raise DataError(f"[data] flip: {self.rows[index].image} has the axes {image.axes}, no {axis}")
            if flip:
                image = image.flip(axis)
        return image.rot90(turns) if data.turns and turns else image


def _kind(header: Header) -> str:
    return f"axes {header.axes} and {header.channels} channel{'s' if header.channels > 1 else ''}"


def _channels(image: Image) -> int:
    return image.shape[image.axes.index("c")] if "c" in image.axes else 1


def _opened(row: Row, path: str, label: bool) -> Image:
    try:
        return open_image(path, label=label)
    except HiresError as e:
        raise (e if row.where == row.image else type(e)(f"{row.where}: {e}")) from None


def _size(axes: str, size: Sequence[int]) -> str:
    return f"{' x '.join(str(n) for n in size)} ({', '.join(axes)})"


def summary(headers: Sequence[Header]) -> str:
    """Sizes of a set of images in one line."""
    if not headers:
        return "no images"
    by_pixels = sorted(headers, key=lambda h: prod(h.size))
    total = sum(prod(h.size) for h in headers)
    smallest, middle, largest = by_pixels[0], by_pixels[len(by_pixels) // 2], by_pixels[-1]
    return (f"{len(headers)} images, {total / 1e6:,.3g} Mpx; smallest {'x'.join(map(str, smallest.size))}, "
            f"median {'x'.join(map(str, middle.size))}, largest {'x'.join(map(str, largest.size))}; "
            f"{largest.channels} channels, {largest.dtype}")
