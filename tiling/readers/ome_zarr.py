"""OME-Zarr (0.1 to 0.5) and plain Zarr arrays, in folders and zip files.

A chunk that was never written reads as the array's fill value, as Zarr says. Stores written by hires have no such
chunks: there, a missing file is an error that names it, when the store is opened and when it's read.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hires.tiling.box import Box
from hires.tiling.errors import ImageError
from hires.tiling.lazy import Image, axes_for, checked, in_order
from hires.tiling.readers.options import Options
from hires.tiling.readers.tiff_tags import in_one_unit, unit_name
from hires.tiling.readers.zarr_array import ZarrArray, json_at, open_array
from hires.tiling.readers.zarr_files import FolderStore, Store, ZipStore

COMPLETE = "hires"      # attribute of the root group of a finished store


def is_zarr(folder: Path) -> bool:
    """True where a folder holds Zarr metadata."""
    return any((folder / name).is_file() for name in ("zarr.json", ".zarray", ".zgroup", ".zattrs"))


def open_zarr(path: Path, options: Options) -> Image:
    """An OME-Zarr image or a Zarr array; see `open_image`. Axes t and z of extent 1 are left out."""
    image = in_order(ZarrImage(path, options))
    for axis in "tz":
        if axis in image.axes and image.shape[image.axes.index(axis)] == 1:
            image = Without(image, axis)
    return image


class ZarrImage(Image):
    """One array of a store, with what the metadata around it say."""

    def __init__(self, path: Path, options: Options) -> None:
        self._path, self._options = path, options
        store: Store = FolderStore(path) if path.is_dir() else ZipStore(path)
        array = open_array(store, "")
        if array is not None:
            if options.level or options.series or options.page:
                raise ImageError(f"{path} is a single Zarr array: it has no series, pages or levels")
            self._plain(array)
        else:
            self._group(store, "")

    def _plain(self, array: ZarrArray) -> None:
        if self._options.fill is not None:
            array = replace(array, fill=np.asarray(self._options.fill).astype(array.dtype)[()])
        self._array, self.shape, self.dtype, self.chunks = array, array.shape, array.dtype, array.chunks
        if 0 in array.shape:
            raise ImageError(f"{array.path} is empty: its shape is {array.shape}")
        axes = self._options.axes
        if axes is None and array.names and all(n in tuple("tczyx") for n in array.names):
            axes = "".join(str(n) for n in array.names)
        self.axes = axes_for(self.shape, axes)
        self.metadata = {"format": "Zarr", "fill": array.fill.item()}

    def _group(self, store: Store, key: str) -> None:
        attributes = attributes_of(store, key)
        ome = attributes.get("ome", attributes)
        if not isinstance(ome, Mapping):
            raise ImageError(f"{store.name(key)}: attribute 'ome' isn't a table")
        scales = ome.get("multiscales")
        if not scales:
            self._container(store, key, ome)
            return
        number = self._options.series if not key or len(scales) > 1 else 0
        try:
            if not 0 <= number < len(scales):
                raise ImageError(f"{store.name(key)} has {len(scales)} images; there is no series {number}")
            self._scale(store, key, attributes, ome, scales[number])
        except ImageError:
            raise
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as e:
            raise ImageError(f"{store.name(key)}: its OME metadata can't be used: "
                             f"{f'{e} is missing' if isinstance(e, KeyError) else e}") from e

    def _container(self, store: Store, key: str, ome: Mapping[str, Any]) -> None:
        """A group that is no image itself: a file's images in groups 0, 1 …, or one array."""
        inside = f"{key}/" if key else ""
        inner = [name for name in store.folders(key) if name != "OME"]
        images = [n for n in inner if _multiscale(attributes_of(store, inside + n))]
        if images and (len(images) > 1 or "bioformats2raw.layout" in ome):
            images.sort(key=lambda n: (not n.isdigit(), int(n) if n.isdigit() else 0, n))
            if not 0 <= self._options.series < len(images):
                raise ImageError(f"{store.name(key)} has no series {self._options.series}; it has {', '.join(images)}")
            self._group(store, inside + images[self._options.series])
            return
        arrays = [a for a in (open_array(store, inside + n) for n in inner) if a is not None]
        if len(arrays) == 1:
            self._plain(arrays[0])
            return
        there = ", ".join(images or [a.key for a in arrays]) or "nothing"
        raise ImageError(f"{store.name(key)} is a Zarr group without OME metadata; name what's meant in it: {there}")

    def _scale(self, store: Store, key: str, attributes: Mapping[str, Any], ome: Mapping[str, Any],
               scale: Mapping[str, Any]) -> None:
        datasets = scale["datasets"]
        level = self._options.level
        if not 0 <= level < len(datasets):
            raise ImageError(f"{store.name(key)} has {len(datasets)} levels (0 to {len(datasets) - 1}); "
                             f"there is no level {level}")
        arrays = []
        for dataset in datasets:
            part = str(dataset["path"]).strip("/")
            if ".." in part.split("/"):
                raise ImageError(f"{store.name(key)}: a level lies outside the store: {dataset['path']!r}")
            array = open_array(store, f"{key}/{part}" if key else part)
            if array is None:
                raise ImageError(f"{store.name(key)} lacks its level {dataset['path']!r}")
            arrays.append(array)
        finished = COMPLETE in attributes
        if finished:
            arrays[level].check_files()
        self._plain(replace(arrays[level], strict=finished))
        axes, units = letters(scale.get("axes"), len(self.shape))
        self.axes = axes
        sizes = _scales(scale, datasets[level], len(axes))
        base = _scales(scale, datasets[0], len(axes))
        found = {a: (s, unit_name(u)) for a, s, u in zip(axes, sizes, units, strict=True) if a in "zyx" and s > 0}
        known = any(u for u in units) or any(s != 1 for a, s in zip(axes, base, strict=True) if a in "zyx")
        self.pixel_size, self.pixel_unit = in_one_unit(found) if known else ({}, None)
        labels = [str(c.get("label", "")) for c in (ome.get("omero") or {}).get("channels", [])]
        count = self.shape[axes.index("c")] if "c" in axes else 1
        self.channel_names = tuple(labels) if len(labels) == count and any(labels) else ()
        own = attributes.get(COMPLETE)
        source = own.get("source", {}) if isinstance(own, Mapping) else {}
        self.metadata = {"format": "OME-Zarr", "version": str(ome.get("version", scale.get("version", ""))),
                         "levels": [a.shape for a in arrays], "fill": self._array.fill.item(), **source}

    def read(self, box: Box) -> NDArray:
        """Values of the box; reads the chunks that it touches."""
        return self._array.read(checked(self, box))

    def __reduce__(self) -> tuple:
        return ZarrImage, (self._path, self._options)


class Without(Image):
    """An image without one of its axes, which has the extent 1."""

    def __init__(self, image: Image, axis: str) -> None:
        self._like(image)
        self._image, self._at = image, self._place(axis)
        self.shape = self._drop(self.shape)
        self.axes = image.axes.replace(axis, "")
        self.chunks = self._drop(image.chunks) if image.chunks else None
        self.pixel_size = {a: v for a, v in image.pixel_size.items() if a != axis}

    def _drop(self, values: tuple) -> tuple:
        return values[:self._at] + values[self._at + 1:]

    def read(self, box: Box) -> NDArray:
        """The box of the image, without the axis."""
        inner = checked(self, box)
        return self._image.read((*inner[:self._at], (0, 1), *inner[self._at:])).squeeze(self._at)


def attributes_of(store: Store, key: str) -> dict[str, Any]:
    """Attributes of a group of either version; empty where there are none."""
    inside = f"{key}/" if key else ""
    meta = json_at(store, inside + "zarr.json")
    if meta is not None:
        return meta.get("attributes") or {}
    return json_at(store, inside + ".zattrs") or {}


def letters(axes: Any, ndim: int) -> tuple[str, list[str | None]]:
    """Letters and units of OME axes: by name, else by type. Versions before 0.3 have none: t, c, z, y, x."""
    if not axes:
        return "tczyx"[-ndim:] if ndim == 5 else axes_for((1,) * ndim, None), [None] * ndim
    if len(axes) != ndim:
        raise ValueError(f"{len(axes)} axes for an array of {ndim} dimensions")
    names = [a if isinstance(a, str) else a["name"] for a in axes]
    units = [None if isinstance(a, str) else a.get("unit") for a in axes]
    if all(n in tuple("tczyx") for n in names) and len(set(names)) == ndim:
        return "".join(names), units
    kinds = [None if isinstance(a, str) else a.get("type") for a in axes]
    space = list("zyx"[-kinds.count("space"):]) if 0 < kinds.count("space") <= 3 else []
    out = [space.pop(0) if k == "space" and space else {"channel": "c", "time": "t"}.get(k or "") for k in kinds]
    if None in out or len(set(out)) < ndim:
        raise ValueError(f"axes {names} aren't known")
    return "".join(str(a) for a in out), units


def _scales(scale: Mapping[str, Any], dataset: Mapping[str, Any], ndim: int) -> list[float]:
    out = [1.0] * ndim
    for transform in [*(dataset.get("coordinateTransformations") or []), *(scale.get("coordinateTransformations") or [])]:
        if transform.get("type") == "scale" and "scale" in transform:
            out = [a * float(b) for a, b in zip(out, transform["scale"], strict=True)]
    return out


def _multiscale(attributes: Mapping[str, Any]) -> bool:
    ome = attributes.get("ome", attributes)
    return isinstance(ome, Mapping) and bool(ome.get("multiscales"))
