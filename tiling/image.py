"""Open an image of any kind that hires reads; nothing is decoded until a box of it is read."""

import os
from pathlib import Path

from hires.tiling.errors import ImageError
from hires.tiling.lazy import ArrayImage, Image
from hires.tiling.readers.npy import open_npy
from hires.tiling.readers.ome_zarr import is_zarr, open_zarr
from hires.tiling.readers.options import Options
from hires.tiling.readers.tiff import open_tiff
from hires.tiling.readers.whole import PNG_MAGIC, open_whole

__all__ = ["ArrayImage", "Image", "open_image"]

KINDS = "OME-Zarr, Zarr, TIFF, JPEG, PNG, JPEG 2000, WebP, npy"
_STARTS = [
    (b"II*\0", open_tiff), (b"MM\0*", open_tiff), (b"II+\0", open_tiff), (b"MM\0+", open_tiff),
    (b"\xff\xd8\xff", open_whole), (PNG_MAGIC, open_whole), (b"\0\0\0\x0cjP  \r\n\x87\n", open_whole),
    (b"\xff\x4f\xff\x51", open_whole), (b"\x93NUMPY", open_npy), (b"PK\x03\x04", open_zarr),
]
# Recognised only to be named in the message.
_OTHERS = [(b"\x89HDF\r\n\x1a\n", "HDF5"), (b"GIF8", "GIF"), (b"BM", "BMP"), (b"%PDF", "PDF"), (b"SIMPLE  =", "FITS"),
           (b"\x1f\x8b", "gzip"), (b"<svg", "SVG"), (b"<?xml", "XML"), (b"\x00\x00\x00\x0cJXL ", "JPEG XL")]


def open_image(
    path: str | os.PathLike[str],
    *,
    page: int | None = None,
    series: int = 0,
    level: int = 0,
    label: bool = False,
    keep_colour: bool = False,
    axes: str | None = None,
    fill: float | None = None,
) -> Image:
    """A lazy image of a file or Zarr store, its kind found by content. Axes come in the order t, c, z, y, x.

    Reads OME-Zarr 0.1 to 0.5 and Zarr 2 and 3 (folders, zip files), TIFF (BigTIFF, OME-TIFF, ImageJ, GeoTIFF,
    Aperio slides), JPEG, PNG, JPEG 2000, WebP and .npy. JPEG, PNG, JPEG 2000 and WebP can only be decoded as a whole.

    page: page of a TIFF; without it the main picture: a stack whose axes the file names (OME, ImageJ), else the
    first page that isn't a thumbnail, slide label or overview. `metadata["pages"]` lists all.
    series: image of a file or store that holds several. level: of the pyramid, 0 is full size.
    label: the file is a mask of classes: values as stored, palette indices, 1-bit as 0 and 1, nothing inverted.
    keep_colour: leave CMYK, CIELAB, YCbCr (TIFF) and palettes as they are instead of turning them into RGB.
    axes: letters for the axes of arrays that don't name them (npy, plain Zarr), such as "yxc".
    fill: value, in stored samples, of TIFF tiles and Zarr chunks that were never written. Default: TIFF no-data
    value, else 255 on Aperio slides, else 0; Zarr its own fill value.

    Orientation (Exif, TIFF) is applied. Bit depth is kept; below 8 bits grey is scaled to 0 … 255. Min-is-white is
    inverted. Alpha stays a channel, as stored; `metadata["alpha"]` says whether it is associated.
    Raises ImageError for what can't be read, is cut off or damaged, or declares more than memory holds.
    """
    where = Path(path)
    for name, value in (("page", page), ("series", series), ("level", level)):
        if value is not None and value < 0:
            raise ImageError(f"{where}: {name} {value} is below zero")
    options = Options(page, series, level, label, keep_colour, axes, fill)
    try:
        if where.is_dir():
            if not is_zarr(where):
                raise ImageError(f"{where} is a folder without Zarr metadata{_unfinished(where)}")
            return open_zarr(where, options)
        if not where.exists():
            raise ImageError(f"{where}: no such file")
        with where.open("rb") as file:
            start = file.read(32)
    except OSError as e:
        raise ImageError(f"{where}: {(e.strerror or str(e)).lower()}") from None
    if not start:
        raise ImageError(f"{where} is empty")
    for magic, reader in _STARTS:
        if start.startswith(magic):
            return reader(where, options)
    if start[:4] == b"RIFF" and start[8:12] == b"WEBP":
        return open_whole(where, options)
    other = next((f" It looks like {name}." for magic, name in _OTHERS if start.startswith(magic)), "")
    raise ImageError(f"{where} is of no kind that hires reads ({KINDS}).{other}")


def _unfinished(folder: Path) -> str:
    return " (a conversion that hasn't finished)" if folder.name.endswith(".part") else ""
