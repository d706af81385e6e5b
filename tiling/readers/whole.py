"""JPEG, PNG, JPEG 2000, WebP: formats that are decoded as a whole.

The header is read by hand first, so that a size that can't be is refused before anything is allocated.
Pixels are decoded at the first read and stay in memory as long as the image object does (`Image.resident`).
"""

import struct
import threading
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
from numpy.typing import NDArray

from hires.tiling.box import Box, slices
from hires.tiling.colour import cmyk_to_rgb
from hires.tiling.errors import ImageError
from hires.tiling.files import File
from hires.tiling.lazy import Image, checked, in_order, upright
from hires.tiling.memory import bytes_of, check_memory, check_shrunk
from hires.tiling.readers.headers import exif_orientation, jp2_size, jpeg_header, webp_size
from hires.tiling.readers.options import Options
from hires.tiling.readers.tiff_tags import METRES

_NAMES = {1: (), 2: ("grey", "alpha"), 3: ("red", "green", "blue"), 4: ("red", "green", "blue", "alpha")}
PNG_MAGIC = b"\x89PNG\r\n\x1a\n"


@dataclass(frozen=True)
class Header:
    """What a file declares. shape: rows, columns, samples as they come out. shrunk: whether MOST_SHRUNK bounds it."""

    kind: str
    shape: tuple[int, int, int]
    dtype: np.dtype
    orientation: int = 1
    metres: tuple[float, float] | None = None
    names: tuple[str, ...] = ()
    shrunk: bool = True
    detail: Any = None


class WholeImage(Image):
    """A picture that is decoded at the first read; axes yx, or yxc with more than one sample."""

    def __init__(self, path: Path, options: Options) -> None:
        self._file, self._options = File(path), options
        self._lock, self._pixels = threading.Lock(), None
        header = self._header = _parsed(path, self._file.content(), options)
        check_memory(path, header.shape, header.dtype, "an image", copies=2)
        if header.shrunk:
            check_shrunk(path, header.shape, header.dtype, self._file.size)
        several = header.shape[2] > 1
        self.shape, self.axes = (header.shape if several else header.shape[:2]), "yxc" if several else "yx"
        self.dtype, self.chunks, self.channel_names = header.dtype, self.shape, header.names
        self.resident = bytes_of(header.shape, header.dtype)
        if header.metres:
            self.pixel_size = {a: m / METRES["micrometer"] for a, m in zip("yx", header.metres, strict=True)}
            self.pixel_unit = "micrometer"
        self.metadata = {"format": header.kind}
        if len(header.names) in (2, 4) and header.names[-1] == "alpha":
            self.metadata["alpha"] = "unassociated"
        self.orientation = header.orientation

    def read(self, box: Box) -> NDArray:
        """A copy of that part of the decoded picture; the first call decodes it."""
        box = checked(self, box)
        with self._lock:
            if self._pixels is None:
                self._pixels = self._decoded()
            pixels = self._pixels
        return pixels[slices(box)].copy()

    def _decoded(self) -> NDArray:
        path, header = self._file.path, self._header
        try:
            pixels = _DECODERS[header.kind](self._file.content(), header, self._options)
        except ImageError:
            raise
        except Exception as e:      # decoders raise whatever they like
            raise ImageError(f"{path} is a damaged {header.kind}: {e}") from e
        pixels = pixels.reshape(self.shape) if pixels.size == np.prod(self.shape) else pixels
        if pixels.shape != self.shape or pixels.dtype != self.dtype:
            raise ImageError(f"{path} is a damaged {header.kind}: it declares {self.shape} {self.dtype}, "
                             f"but decodes to {pixels.shape} {pixels.dtype}")
        return pixels

    def __reduce__(self) -> tuple:
        return WholeImage, (self._file.path, self._options)


def open_whole(path: Path, options: Options) -> Image:
    """A JPEG, PNG, JPEG 2000 or WebP; see `open_image`."""
    stored = WholeImage(path, options)
    return in_order(upright(stored, stored.orientation))


def _parsed(path: Path, data: bytes, options: Options) -> Header:
    try:
        if data[:3] == b"\xff\xd8\xff":
            return _jpeg(data, options)
        if data[:8] == PNG_MAGIC:
            return _png(data, options)
        if data[:4] == b"RIFF":
            return _webp(data)
        return _jp2(data)
    except (ValueError, struct.error) as e:
        raise ImageError(f"{path} is damaged: {e}") from e


def _jpeg(data: bytes, options: Options) -> Header:
    frame = jpeg_header(data)
    if not frame.complete:
        raise ValueError(f"the JPEG is cut off (it has no end-of-image marker in {len(data):,} bytes)")
    if 0 in (frame.height, frame.width) or frame.samples not in (1, 3, 4):
        raise ValueError(f"it declares {frame.height} × {frame.width} pixels of {frame.samples} samples")
    samples = frame.samples if frame.samples < 4 or options.keep_colour else 3
    names = ("cyan", "magenta", "yellow", "black") if samples == 4 else _NAMES[samples]
    metres = None
    if frame.density:
        y, x, unit = frame.density
        metres = (METRES[unit] / y, METRES[unit] / x)
    dtype = np.dtype(np.uint8 if frame.bits == 8 else np.uint16)
    return Header("JPEG", (frame.height, frame.width, samples), dtype, frame.orientation, metres, names, detail=frame)


def _decode_jpeg(data: bytes, header: Header, options: Options) -> NDArray:
    frame = header.detail
    if frame.samples < 4:
        return imagecodecs.jpeg_decode(data, bitspersample=frame.bits)
    ink = imagecodecs.jpeg_decode(data, bitspersample=frame.bits, outcolorspace="CMYK")
    if frame.transform is not None:
        ink = ((1 << frame.bits) - 1) - ink     # Adobe writes full ink as 0
    return ink if options.keep_colour else cmyk_to_rgb(ink, frame.bits)


@dataclass(frozen=True)
class _Png:
    """The chunks that matter to pixels. divide: what palette indices and grey labels come out multiplied by."""

    divide: int
    chunks: tuple[tuple[bytes, bytes], ...]


def _png(data: bytes, options: Options) -> Header:
    chunks = list(_png_chunks(data))
    if not chunks or chunks[0][0] != b"IHDR" or len(chunks[0][1]) != 13:
        raise ValueError("it doesn't start with a header chunk")
    width, height, bits, colour, _, _, interlace = struct.unpack(">IIBBBBB", chunks[0][1])
    if 0 in (width, height) or colour not in (0, 2, 3, 4, 6) or bits not in (1, 2, 4, 8, 16):
        raise ValueError(f"it declares {height} × {width} pixels of colour type {colour} with {bits} bits")
    if colour == 3 and not any(kind == b"PLTE" for kind, _ in chunks):
        raise ValueError("it is a palette picture without a palette")
    kept = {b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND"}
    transparent = any(kind == b"tRNS" for kind, _ in chunks)
    divide = 1
    if colour == 3 and (options.label or options.keep_colour) or options.label and colour == 0:
        # Read as grey without palette, the index itself comes out.
        chunks[0] = (b"IHDR", struct.pack(">IIBBBBB", width, height, bits, 0, 0, 0, interlace))
        kept -= {b"PLTE", b"tRNS"}
        samples, divide = 1, 255 // ((1 << bits) - 1) if bits < 8 else 1
    else:
        samples = {0: 1, 2: 3, 3: 3, 4: 2, 6: 4}[colour] + (transparent and colour in (0, 2, 3))
    orientation, metres, pixels = 1, None, 0
    for kind, part in chunks:
        pixels += len(part) if kind == b"IDAT" else 0
        if kind == b"eXIf":
            orientation = exif_orientation(part)
        elif kind == b"pHYs" and len(part) == 9:
            x, y, unit = struct.unpack(">IIB", part)
            metres = (1 / y, 1 / x) if unit == 1 and x and y else None
    stored = (height, width, {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[colour])
    check_shrunk("it", stored, np.dtype(np.uint8 if bits <= 8 else np.uint16), pixels)
    detail = _Png(divide, tuple(c for c in chunks if c[0] in kept))
    return Header("PNG", (height, width, samples), np.dtype(np.uint16 if bits == 16 else np.uint8), orientation,
                  metres, _NAMES[samples], detail=detail, shrunk=False)


def _png_chunks(data: bytes) -> Any:
    """(kind, content) of each chunk up to IEND; ValueError where one is cut off or fails its checksum."""
    place = 8
    while True:
        if place + 12 > len(data):
            raise ValueError(f"the PNG is cut off (it ends at byte {len(data):,} without an end chunk)")
        (length,), kind = struct.unpack_from(">I", data, place), data[place + 4:place + 8]
        part = data[place + 8:place + 8 + length]
        if place + 12 + length > len(data):
            raise ValueError(f"the PNG is cut off (a chunk should reach to byte {place + 12 + length:,}, "
                             f"the file has {len(data):,})")
        (check,) = struct.unpack_from(">I", data, place + 8 + length)
        if kind[0] & 0x20 == 0 and zlib.crc32(part, zlib.crc32(kind)) != check:
            raise ValueError(f"the checksum of the chunk {kind.decode('latin1')} at byte {place:,} is wrong")
        yield kind, part
        if kind == b"IEND":
            return
        place += 12 + length


def _decode_png(data: bytes, header: Header, options: Options) -> NDArray:
    detail: _Png = header.detail
    # Only the chunks that make pixels are handed on: text and profiles can hide bombs.
    out = [PNG_MAGIC]
    for kind, part in detail.chunks:
        out += [struct.pack(">I", len(part)), kind, part, struct.pack(">I", zlib.crc32(part, zlib.crc32(kind)))]
    pixels = imagecodecs.png_decode(b"".join(out))
    return pixels // pixels.dtype.type(detail.divide) if detail.divide > 1 else pixels


def _jp2(data: bytes) -> Header:
    found = jp2_size(data)
    if found is None:
        raise ValueError("it has no JPEG 2000 code stream")
    height, width, samples, bits = found
    if min(height, width) <= 0 or samples not in _NAMES:
        raise ValueError(f"it declares {height} × {width} pixels of {samples} samples")
    dtype = np.dtype(np.uint8 if bits <= 8 else np.uint16 if bits <= 16 else np.uint32)
    return Header("JPEG 2000", (height, width, samples), dtype, names=_NAMES[samples], shrunk=False)


def _webp(data: bytes) -> Header:
    found = webp_size(data)
    if found is None:
        raise ValueError("it has no WebP header")
    alpha = data[12:16] == b"VP8X" and bool(data[20] & 0x10) or data[12:16] == b"VP8L" and bool(data[24] & 0x10)
    samples = 4 if alpha else 3
    return Header("WebP", (*found, samples), np.dtype(np.uint8), names=_NAMES[samples], shrunk=False)


_DECODERS = {
    "JPEG": _decode_jpeg,
    "PNG": _decode_png,
    "JPEG 2000": lambda data, header, options: imagecodecs.jpeg2k_decode(data),
    "WebP": lambda data, header, options: imagecodecs.webp_decode(data, hasalpha=header.shape[2] == 4),
}
