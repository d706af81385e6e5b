"""TIFF, BigTIFF, OME-TIFF, ImageJ, GeoTIFF and Aperio slides, strip by strip or tile by tile.

tifffile finds pages, series and decoders; which pieces are read, and when, is decided here.
"""

import logging
import struct
import warnings
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import tifffile
from numpy.typing import NDArray

from hires.tiling.box import Box, size
from hires.tiling.colour import Colour, palette_table
from hires.tiling.errors import ImageError, ImageWarning
from hires.tiling.files import File
from hires.tiling.lazy import Image, checked, in_order, upright
from hires.tiling.readers.options import Options
from hires.tiling.readers.tiff_levels import Choice, choose
from hires.tiling.readers.tiff_planes import JPEG_KINDS, PieceReader, Plane, layout_of, plane_of
from hires.tiling.readers.tiff_tags import channel_labels, geo_reference, pixel_sizes

# What tifffile has to say about damage is found here too, and raised as errors.
logging.getLogger("tifffile").addHandler(logging.NullHandler())


def open_tiff(path: Path, options: Options) -> Image:
    """A TIFF of any sort; see `open_image`."""
    stored = open_stored(path, options)
    return in_order(upright(stored, stored.orientation))


def open_stored(path: Path, options: Options) -> "TiffImage":
    """The image as it lies in the file: not turned."""
    file = File(path)
    try:
        with tifffile.TiffFile(path, _multifile=False) as tif:
            return TiffImage(file, tif, options)
    except ImageError:
        raise
    except (tifffile.TiffFileError, OSError, ValueError, TypeError, KeyError, IndexError, AttributeError,
            NotImplementedError, OverflowError, ZeroDivisionError, AssertionError, struct.error) as e:
        raise ImageError(f"{path} is a damaged TIFF or of a kind that isn't read: {e}") from e


@dataclass(frozen=True)
class _Leading:
    """Axes that lie on pages: letters and extents."""

    axes: str
    shape: tuple[int, ...]


class TiffImage(Image):
    """One image of a TIFF: the axes of its pages, then samples, y, x. Channels of pages and samples are one axis."""

    def __init__(self, file: File, tif: tifffile.TiffFile, options: Options) -> None:
        self._file, self._options = file, options
        choice = choose(tif, options, file.path)
        page = choice.keyframe
        layout = layout_of(page, file.path)
        leading = _Leading(choice.axes, choice.shape)
        self._planes: list[Plane] = [plane_of(p, layout, file) for p in choice.pages]
        self._colour = colour_of(page, layout.dtype, options, file.path)
        fill = _fill(page, layout.dtype, options)
        self._reader = PieceReader(file, layout, page.decode, page.compression, fill)
        self._leading = leading
        self.orientation = _orientation(page)
        self.dtype = self._colour.out
        self._describe(tif, page, choice)

    def _describe(self, tif: tifffile.TiffFile, page: tifffile.TiffPage, choice: Choice) -> None:
        layout, channels = self._reader.layout, self._colour.channels
        extents = dict(zip(self._leading.axes, self._leading.shape, strict=True))
        on_pages = extents.pop("c", None)
        if on_pages is not None or channels > 1:
            extents["c"] = (on_pages or 1) * channels
        extents |= {"y": layout.height, "x": layout.width}
        self.axes = "".join(a for a in "tczyx" if a in extents)
        self.shape = tuple(extents[a] for a in self.axes)
        pieces = {"y": min(layout.piece[0], layout.height), "x": min(layout.piece[1], layout.width),
                  "c": 1 if layout.planar and self._colour.separable else channels}
        self.chunks = tuple(pieces.get(a, 1) for a in self.axes)
        sizes, unit = pixel_sizes(page, tif, self._options.series)
        factor = choice.factor
        scale = {"y": factor[0], "x": factor[1]}
        self.pixel_size = {a: v * scale.get(a, 1) for a, v in sizes.items() if a in self.axes}
        self.pixel_unit = unit if self.pixel_size else None
        names = channel_labels(tif, self._options.series)
        count = extents.get("c", 1)
        if not names and on_pages is None:
            names = self._colour_names(page, count)
        self.channel_names = tuple(names) if len(names) == count else ()
        empty = sum(int((plane.counts == 0).sum()) for plane in self._planes)
        self.metadata = {
            "format": "TIFF", "page": choice.numbers[0], "pages": choice.listing, "levels": choice.levels,
            "compression": _name(page.compression), "photometric": _name(page.photometric),
            "empty_pieces": empty, "fill": _plain(self._reader.fill), "alpha": _alpha(page),
            "nodata": _plain(page.nodata) if 42113 in page.tags else None,
            "geo": geo_reference(page), "description": page.description or "",
            "icc_profile": page.tags.valueof(34675),
        }

    def _colour_names(self, page: tifffile.TiffPage, count: int) -> list[str]:
        rgb = self._colour.kind in ("palette", "cmyk", "lab", "icclab", "ycbcr") or page.photometric in (2, 6)
        names = (["red", "green", "blue"] if rgb else ["grey"])
        if self._colour.kind == "keep" and page.photometric not in (0, 1, 2, 6):
            return []
        if _alpha(page) and len(names) < count:
            names.append("alpha")
        return names if count > 1 else []

    def read(self, box: Box) -> NDArray:
        """Values of the box; reads the strips or tiles that it touches."""
        box = checked(self, box)
        out = np.empty(size(box), self.dtype)
        if out.size == 0:
            return out
        at = dict(zip(self.axes, box, strict=True))
        channels, per_page = at.get("c", (0, 1)), self._colour.channels
        ranges = [range(channels[0] // per_page, (channels[1] - 1) // per_page + 1) if a == "c" else range(*at[a])
                  for a in self._leading.axes]
        for index in product(*ranges):
            where = dict(zip(self._leading.axes, index, strict=True))
            number = int(np.ravel_multi_index(index, self._leading.shape)) if index else 0
            first = where.get("c", 0) * per_page
            part = (max(channels[0] - first, 0), min(channels[1] - first, per_page))
            values = self._page(self._planes[number], at["y"], at["x"], part)
            place: list[Any] = []
            for a in self.axes:
                if a in "yx":
                    place.append(slice(None))
                elif a == "c":
                    place.append(slice(first + part[0] - channels[0], first + part[1] - channels[0]))
                else:
                    place.append(where[a] - at[a][0])
            out[tuple(place)] = np.moveaxis(values, -1, 0) if "c" in self.axes else values[..., 0]
        return out

    def _page(self, plane: Plane, ys: tuple[int, int], xs: tuple[int, int], channels: tuple[int, int]) -> NDArray:
        """Channels of a region of one page, (rows, columns, channels)."""
        if self._colour.separable:
            return self._colour(self._reader.read(plane, ys, xs, channels))
        return self._colour(self._reader.read(plane, ys, xs, (0, self._colour.samples)))[..., slice(*channels)]

    def __reduce__(self) -> tuple:
        return open_stored, (self._file.path, self._options)


def colour_of(page: tifffile.TiffPage, dtype: np.dtype, options: Options, path: Path) -> Colour:
    """How this page's samples become channels: PhotometricInterpretation, with the exceptions people meet."""
    bits = page.bitspersample if isinstance(page.bitspersample, int) else 8 * dtype.itemsize
    photometric, samples = int(page.photometric), page.samplesperpixel
    if options.label:
        if dtype.kind == "b":
            return Colour("keep", np.dtype(np.uint8), samples, bits)
        return Colour("keep", dtype, samples, bits)
    if 262 not in page.tags:
        photometric = 2 if samples in (3, 4) and bits == 8 else 1
        warnings.warn(f"{path} doesn't say what its samples mean (no PhotometricInterpretation); read as "
                      f"{'RGB' if photometric == 2 else 'grey'}", ImageWarning, stacklevel=2)
    small = bits < 8 and dtype.kind in "ub" or dtype.kind == "b"
    if photometric == 3 and page.colormap is not None and dtype.kind in "ub":
        if options.keep_colour:
            return Colour("keep", np.dtype(np.uint8) if dtype.kind == "b" else dtype, samples, bits)
        return Colour("palette", dtype, samples, bits, table=palette_table(page.colormap))
    if photometric in (0, 4) or small:
        negative = photometric == 0 and dtype.kind in "ub"
        return Colour("scale" if small else "keep", dtype, samples, 1 if dtype.kind == "b" else bits, negative)
    if options.keep_colour:
        return Colour("keep", dtype, samples, bits)
    whole = dtype.kind == "u" and dtype.itemsize <= 2
    if photometric == 5 and samples >= 4 and page.tags.valueof(332, 1) == 1 and whole:
        return Colour("cmyk", dtype, samples, bits)
    if photometric in (8, 9) and samples >= 3 and whole and bits in (8, 16):
        return Colour("lab" if photometric == 8 else "icclab", dtype, samples, bits)
    if photometric == 6 and samples >= 3 and whole and page.compression not in (*JPEG_KINDS, 34712, 50001, 50002):
        luma = _fractions(page.tags.valueof(529), (0.299, 0.587, 0.114))
        most = (1 << bits) - 1
        usual = (0, most, most // 2 + 1, most, most // 2 + 1, most)
        return Colour("ycbcr", dtype, samples, bits, luma=luma,
                      reference=_fractions(page.tags.valueof(532), usual))
    if photometric in (10, 32844, 32845) or photometric in (8, 9):
        raise ImageError(f"{path}: colours in {_name(page.photometric)} with {bits} bits can't be turned into RGB; "
                         "keep_colour reads the samples as they are")
    return Colour("keep", dtype, samples, bits)


def _fractions(value: Any, default: tuple[float, ...]) -> tuple[float, ...]:
    if value is None:
        return default
    if len(value) == 2 * len(default):
        pairs = list(zip(value[::2], value[1::2], strict=True))
        return tuple(a / b for a, b in pairs) if all(b for _, b in pairs) else default
    return tuple(float(v) for v in value) if len(value) == len(default) else default


def _orientation(page: tifffile.TiffPage) -> int:
    value = page.tags.valueof(274, 1)
    return int(value) if value in range(1, 9) else 1


def _fill(page: tifffile.TiffPage, dtype: np.dtype, options: Options) -> Any:
    """What pieces that were never written hold: as asked, else the no-data value, else white on slides, else 0."""
    if options.fill is not None:
        return np.asarray(options.fill).astype(dtype)[()]
    if 42113 in page.tags:
        return dtype.type(page.nodata)
    slide = (page.description or "").startswith("Aperio") and page.photometric in (2, 6) and dtype == np.uint8
    return dtype.type(255 if slide and not options.label else 0)


def _alpha(page: tifffile.TiffPage) -> str | None:
    """Whether the last sample is alpha, and whether the colours are multiplied by it already (then as stored)."""
    extra = [int(e) for e in page.extrasamples]
    return "associated" if 1 in extra else "unassociated" if 2 in extra else None


def _name(value: Any) -> str:
    return getattr(value, "name", str(value)).lower()


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value
