"""Strips and tiles of TIFF pages: which ones a region touches, and their samples as stored."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import imagecodecs
import numpy as np
import tifffile
from numpy.typing import NDArray

from hires.tiling.box import Interval
from hires.tiling.cache import pieces
from hires.tiling.errors import ImageError
from hires.tiling.files import File, Handle
from hires.tiling.memory import check_memory, declared
from hires.tiling.readers.headers import picture_size

JPEG_KINDS = (6, 7, 34892, 33007)


@dataclass(frozen=True)
class Layout:
    """How the pages of one image are cut up; equal for all of them.

    planar: samples lie in planes of their own. piece: rows and columns of a strip or tile.
    raw: pieces lie in the file as plain numbers, so that any row of them can be read alone.
    blocks: rows and columns of luma that share one chroma sample, for data that isn't JPEG.
    """

    height: int
    width: int
    samples: int
    planar: bool
    tiled: bool
    piece: tuple[int, int]
    dtype: np.dtype
    stored: np.dtype
    raw: bool
    blocks: tuple[int, int]
    order: int

    @property
    def grid(self) -> tuple[int, int]:
        """Pieces down and across."""
        return math.ceil(self.height / self.piece[0]), math.ceil(self.width / self.piece[1])

    @property
    def planes(self) -> int:
        """Separately stored planes of samples."""
        return self.samples if self.planar else 1

    @property
    def depth(self) -> int:
        """Samples that lie together in a piece."""
        return 1 if self.planar else self.samples

    @property
    def word(self) -> str:
        """What the pieces are called."""
        return "tile" if self.tiled else "strip"


@dataclass(frozen=True)
class Plane:
    """Where the pieces of one page lie. Byte count 0: the piece was never written."""

    offsets: NDArray[np.int64]
    counts: NDArray[np.int64]
    tables: bytes | None


def layout_of(page: tifffile.TiffPage, path: Any) -> Layout:
    """The layout of a page; ImageError for what can't be read or is hostile."""
    if page.dtype is None or page._dtype is None:
        raise ImageError(f"{path}: samples of {page.bitspersample} bits in format {page.sampleformat} "
                         "are of no kind that hires reads")
    if page.planarconfig not in (1, 2):
        raise ImageError(f"{path} is damaged: PlanarConfiguration {page.planarconfig!r} (must be 1 or 2)")
    if page.imagedepth > 1:
        raise ImageError(f"{path}: pages with a depth of their own (tag ImageDepth) aren't read")
    height, width, samples = page.imagelength, page.imagewidth, page.samplesperpixel
    if 0 in (height, width, samples):
        raise ImageError(f"{path} declares an image of {height} × {width} pixels with {samples} samples")
    dtype = np.dtype(page.dtype).newbyteorder("=")
    tiled = bool(page.is_tiled)
    piece = (page.tilelength, page.tilewidth) if tiled else (min(page.rowsperstrip, height), width)
    if 0 in piece:
        raise ImageError(f"{path} is damaged: {'tiles' if tiled else 'strips'} of {piece[0]} × {piece[1]} pixels")
    planar = page.planarconfig == 2 and samples > 1
    stored = np.dtype(page.parent.byteorder + page._dtype.char)
    blocks = (1, 1)
    if page.photometric == 6 and page.compression not in (*JPEG_KINDS, 34712, 50001, 50002) and not planar:
        across, down = page.tags.valueof(530, (2, 2))
        blocks = (int(down), int(across))
    raw = (page.compression == 1 and page.predictor == 1 and page.fillorder == 1 and blocks == (1, 1)
           and page.bitspersample == 8 * dtype.itemsize and dtype.kind in "uif")
    layout = Layout(height, width, samples, planar, tiled, piece, dtype, stored, raw, blocks, page.fillorder)
    if not raw:
        whole = (height, width, samples)
        check_memory(f"{path}, which declares {declared(whole, dtype)},", (*piece, layout.depth), dtype,
                     f"a {layout.word}", copies=2)
    return layout


def plane_of(page: Any, layout: Layout, file: File) -> Plane:
    """Where a page's pieces lie; ImageError when some are missing from the table or from the file."""
    down, across = layout.grid
    needed = down * across * layout.planes
    offsets = np.asarray(page.dataoffsets, np.int64)
    counts = np.asarray(page.databytecounts, np.int64)
    found = min(len(offsets), len(counts))
    if found < needed:
        row = found // across % down
        raise ImageError(f"{file.path} is damaged: its table lists {found} of {needed} {layout.word}s for "
                         f"{declared((layout.height, layout.width, layout.samples), layout.dtype)}; missing from "
                         f"{layout.word} row {row} (pixel row {row * layout.piece[0]}) on")
    offsets, counts = offsets[:needed], counts[:needed]
    if layout.raw:
        rows = np.full(down, layout.piece[0])
        if not layout.tiled:
            rows[-1] = layout.height - (down - 1) * layout.piece[0]
        full = np.tile(np.repeat(rows, across), layout.planes)
        full = full * (layout.piece[1] * layout.depth * layout.dtype.itemsize)
        short = (counts < full) & (counts > 0)
        # Old writers leave the byte counts of a single strip at nonsense; the offsets decide then.
        if short.any() and (needed > 1 or offsets[0] + full[0] > file.size):
            first = int(np.argmax(short))
            raise ImageError(f"{file.path} is damaged: {layout.word} {first} has {counts[first]:,} bytes, "
                             f"needs {full[first]:,}")
        counts = np.where(counts > 0, full, 0)
    counts = np.where(offsets > 0, counts, 0)
    beyond = np.flatnonzero(offsets + counts > file.size)
    if len(beyond) or (offsets < 0).any() or (counts < 0).any():
        last = int((offsets + counts).max())
        raise ImageError(f"{file.path} is cut off or damaged: it has {file.size:,} bytes, its {layout.word}s reach "
                         f"to byte {last:,}; {max(len(beyond), 1)} of {needed} {layout.word}s don't lie in the file")
    return Plane(offsets, counts, getattr(page, "jpegtables", None))


class PieceReader:
    """Regions of planes, as stored: no colour conversion, no orientation."""

    def __init__(self, file: File, layout: Layout, decode: Callable[..., Any], compression: int, fill: Any) -> None:
        self.file, self.layout, self.fill = file, layout, fill
        self._decode, self._compression = decode, compression

    def read(self, plane: Plane, ys: Interval, xs: Interval, samples: Interval) -> NDArray:
        """Samples of a region, (rows, columns, samples). Planar images read only the planes asked for."""
        layout = self.layout
        wanted = range(*samples) if layout.planar else range(1)
        out = np.empty((ys[1] - ys[0], xs[1] - xs[0], samples[1] - samples[0]), layout.dtype)
        if out.size == 0:
            return out
        (tall, broad), (down, across) = layout.piece, layout.grid
        with self.file.opened() as handle:
            for number in wanted:
                for row in range(ys[0] // tall, (ys[1] - 1) // tall + 1):
                    for column in range(xs[0] // broad, (xs[1] - 1) // broad + 1):
                        top, left = row * tall, column * broad
                        y = (max(ys[0], top), min(ys[1], top + tall))
                        x = (max(xs[0], left), min(xs[1], left + broad))
                        part = self._part(handle, plane, (number * down + row) * across + column,
                                          (y[0] - top, y[1] - top), (x[0] - left, x[1] - left))
                        target = out[y[0] - ys[0]:y[1] - ys[0], x[0] - xs[0]:x[1] - xs[0]]
                        if layout.planar:
                            target[..., number - samples[0]] = part[..., 0]
                        else:
                            target[:] = part[..., slice(*samples)]
        return out

    def _part(self, handle: Handle, plane: Plane, index: int, y: Interval, x: Interval) -> NDArray:
        """Rows and columns of one piece, (rows, columns, samples that lie together)."""
        layout = self.layout
        if plane.counts[index] == 0:
            return np.full((y[1] - y[0], x[1] - x[0], layout.depth), self.fill, layout.dtype)
        if layout.raw:
            shape = (*layout.piece, layout.depth)
            return handle.array(int(plane.offsets[index]), shape, layout.stored, (y, x, (0, layout.depth)))
        key = (self.file.path, self.file.stamp, int(plane.offsets[index]), index, layout.piece)
        piece = pieces.get(key, lambda: self._whole(handle, plane, index))
        return piece[slice(*y), slice(*x)]

    def _whole(self, handle: Handle, plane: Plane, index: int) -> NDArray:
        layout = self.layout
        data = handle.read(int(plane.offsets[index]), int(plane.counts[index]))
        try:
            if layout.blocks != (1, 1):
                return self._subsampled(data, index)
            if self._compression in JPEG_KINDS and b"\xff\xd9" not in data[-64:]:
                raise ValueError("its JPEG data ends too early")
            inside = picture_size(data)
            if inside and math.prod(inside) > 4 * math.prod(layout.piece):
                raise ValueError(f"it holds a picture of {inside[0]} × {inside[1]} pixels")
            tables = {"jpegtables": plane.tables} if self._compression in JPEG_KINDS else {}
            piece = self._decode(data, index, **tables)[0]
        except ImageError:
            raise
        except Exception as e:      # decoders raise whatever they like
            raise self._broken(index, e) from e
        if piece is None or piece.ndim != 4:
            raise self._broken(index, "nothing came out of it")
        if layout.dtype == np.bool_ and piece.dtype == np.uint8:    # fax decoders
            piece = piece.astype(np.bool_)
        if piece.dtype != layout.dtype:
            raise self._broken(index, f"it decodes to {piece.dtype}, the file declares {layout.dtype}")
        return piece[0]

    def _broken(self, index: int, reason: object) -> ImageError:
        down, across = self.layout.grid
        row, column = index // across % down * self.layout.piece[0], index % across * self.layout.piece[1]
        return ImageError(f"{self.file.path} is damaged: {self.layout.word} {index} (at row {row}, column {column}) "
                          f"can't be decoded: {reason}")

    def _subsampled(self, data: bytes, index: int) -> NDArray:
        """Y, Cb, Cr of blocks that share their chroma (TIFF 6.0, section 21), chroma repeated."""
        layout = self.layout
        if layout.order == 2:
            data = imagecodecs.bitorder_decode(data)
        rows, columns = layout.piece
        if not layout.tiled:
            rows = min(rows, layout.height - index % layout.grid[0] * rows)
        v, h = layout.blocks
        down, across = math.ceil(rows / v), math.ceil(columns / h)
        size = down * across * (v * h + 2)
        if self._compression != 1:
            data = tifffile.TIFF.DECOMPRESSORS[self._compression](data, out=size)
        if layout.dtype != np.uint8 or layout.samples != 3:
            raise ValueError("shared chroma is read for 8-bit pictures of three samples only")
        if len(data) < size:
            raise ValueError(f"{len(data):,} of {size:,} bytes")
        units = np.frombuffer(data, np.uint8, size).reshape(down, across, v * h + 2)
        luma = units[..., :v * h].reshape(down, across, v, h).swapaxes(1, 2).reshape(down * v, across * h)
        chroma = units[..., v * h:].repeat(v, axis=0).repeat(h, axis=1)
        return np.concatenate([luma[..., None], chroma], axis=-1)[:rows, :columns]

