"""What the first bytes of pictures declare, read by hand: before anything is decoded or allocated."""

import re
import struct
from dataclasses import dataclass

_NEXT_MARKER = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]")


@dataclass(frozen=True)
class Jpeg:
    """Frame header of a JPEG. transform: Adobe's colour transform, None without that marker."""

    height: int
    width: int
    samples: int
    bits: int
    orientation: int
    density: tuple[float, float, str] | None
    transform: int | None
    complete: bool


def jpeg_header(data: bytes) -> Jpeg:
    """Walk the markers of a JPEG (ITU T.81, annex B); ValueError where that isn't possible."""
    place, frame, orientation, density, transform, complete = 2, None, 1, None, None, False
    while True:
        found = _NEXT_MARKER.search(data, place)
        if found is None:
            break
        marker, place = data[found.end() - 1], found.end()
        if marker == 0xD9:
            complete = frame is not None
            break
        if marker in (0x01, 0xD8):
            continue
        if place + 2 > len(data):
            break
        (length,) = struct.unpack_from(">H", data, place)
        part = data[place + 2:place + length]
        if length < 2 or len(part) < length - 2:
            break
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC) and frame is None:
            if len(part) < 6:
                raise ValueError("its frame header is too short")
            frame = struct.unpack_from(">BHHB", part)
        elif marker == 0xE0 and part[:5] == b"JFIF\0" and len(part) >= 12:
            unit, x, y = struct.unpack_from(">BHH", part, 7)
            density = (y, x, {1: "inch", 2: "centimeter"}[unit]) if unit in (1, 2) and x and y else None
        elif marker == 0xE1 and part[:6] == b"Exif\0\0":
            orientation = exif_orientation(part[6:])
        elif marker == 0xEE and part[:5] == b"Adobe" and len(part) >= 12:
            transform = part[11]
        place += length
    if frame is None:
        raise ValueError("it has no frame header")
    bits, height, width, samples = frame
    return Jpeg(height, width, samples, bits, orientation, density, transform, complete)


def exif_orientation(data: bytes) -> int:
    """Orientation (1 to 8) of the first image file directory of Exif data; 1 where there is none."""
    order = {b"II": "<", b"MM": ">"}.get(data[:2])
    if order is None or len(data) < 8:
        return 1
    (start,) = struct.unpack_from(order + "I", data, 4)
    if start + 2 > len(data):
        return 1
    (count,) = struct.unpack_from(order + "H", data, start)
    for i in range(count):
        entry = start + 2 + 12 * i
        if entry + 12 > len(data):
            break
        tag, kind = struct.unpack_from(order + "HH", data, entry)
        if tag == 0x0112:
            (value,) = struct.unpack_from(order + ("H" if kind == 3 else "I"), data, entry + 8)
            return value if 1 <= value <= 8 else 1
    return 1


def jp2_size(data: bytes) -> tuple[int, int, int, int] | None:
    """Rows, columns, samples and bits that a JPEG 2000 code stream declares (ITU T.800, annex A.5.1)."""
    place = data.find(b"\xff\x4f\xff\x51", 0, 1 << 20)
    if place < 0 or place + 46 > len(data):
        return None
    x1, y1, x0, y0 = struct.unpack_from(">IIII", data, place + 8)
    (samples,) = struct.unpack_from(">H", data, place + 40)
    return y1 - y0, x1 - x0, samples, (data[place + 42] & 0x7F) + 1


def webp_size(data: bytes) -> tuple[int, int] | None:
    """Rows and columns that a WebP declares (RFC 9649)."""
    chunk = data[12:16]
    if chunk == b"VP8X" and len(data) >= 30:
        return (int.from_bytes(data[27:30], "little") + 1, int.from_bytes(data[24:27], "little") + 1)
    if chunk == b"VP8L" and len(data) >= 25:
        bits = int.from_bytes(data[21:25], "little")
        return ((bits >> 14) & 0x3FFF) + 1, (bits & 0x3FFF) + 1
    if chunk == b"VP8 " and len(data) >= 30:
        width, height = struct.unpack_from("<HH", data, 26)
        return height & 0x3FFF, width & 0x3FFF
    return None


def picture_size(data: bytes) -> tuple[int, int] | None:
    """Rows and columns of a JPEG, PNG, JPEG 2000 or WebP; None for anything else."""
    if data[:3] == b"\xff\xd8\xff":
        # Frame headers come early; tiles needn't be walked to their end here.
        try:
            header = jpeg_header(data[:1 << 16])
        except ValueError:
            return None
        return header.height, header.width
    if data[:8] == b"\x89PNG\r\n\x1a\n" and len(data) >= 24:
        width, height = struct.unpack_from(">II", data, 16)
        return height, width
    if data[:4] == b"\xff\x4f\xff\x51" or data[4:8] == b"jP  ":
        size = jp2_size(data)
        return size[:2] if size else None
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return webp_size(data)
    return None
