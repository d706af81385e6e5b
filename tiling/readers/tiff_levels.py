"""Which pages of a TIFF make up the image that was asked for: series, pages, pyramid levels."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tifffile

from hires.tiling.errors import ImageError
from hires.tiling.readers.options import Options

_LETTERS = {"T": "t", "C": "c", "Z": "z"}


@dataclass(frozen=True)
class Choice:
    """The pages of one image. axes, shape: of the axes that lie on pages. pages: one per index, last axis fastest.

    numbers: of the pages in the file. listing: what pages there are. levels: (rows, columns) of each level.
    factor: by which this level is smaller than level 0, down and across.
    """

    keyframe: tifffile.TiffPage
    axes: str
    shape: tuple[int, ...]
    pages: list[Any]
    numbers: list[int]
    listing: list[str]
    levels: list[tuple[int, int]]
    factor: tuple[float, float]


@dataclass(frozen=True)
class _Piece:
    """A page without a directory of its own: data that follows the first page's in one run."""

    dataoffsets: list[int]
    databytecounts: list[int]


def choose(tif: tifffile.TiffFile, options: Options, path: Path) -> Choice:
    """The image that page, series and level ask for; ImageError listing what there is instead."""
    tops: list[Any] = list(tif.pages)
    if not tops:
        raise ImageError(f"{path} holds no pages")
    listing = [_described(i, p.aspage() if hasattr(p, "aspage") else p) for i, p in enumerate(tops)]
    if options.page is None:
        stack = _stack(tif, options, path, listing)
        if stack is not None:
            return stack
    number = _main(tops) if options.page is None else options.page
    if not 0 <= number < len(tops):
        raise ImageError(f"{path} has no page {number}; it has: " + "; ".join(listing))
    page = tops[number].aspage() if hasattr(tops[number], "aspage") else tops[number]
    chain = [page, *_smaller(page, tops[number + 1:])]
    level = _level(chain, options.level, path)
    return Choice(level, "", (), [level], [_number(level)], listing, _extents(chain), _factor(chain[0], level))


def _stack(tif: tifffile.TiffFile, options: Options, path: Path, listing: list[str]) -> Choice | None:
    """A series of pages with axes that the file names; None where it's pages without an order."""
    several = tif.series
    if not 0 <= options.series < len(several):
        kinds = "; ".join(f"{i}: {s.axes} {s.shape}" for i, s in enumerate(several))
        raise ImageError(f"{path} has no series {options.series}; it has: {kinds}")
    series = several[options.series]
    levels = [s for s in series.levels if _same_kind(series.keyframe, s.keyframe)]
    if len(levels) <= options.level and options.level > 0 and len(several) > 1 and options.series:
        _level([s.keyframe for s in levels], options.level, path)
    chosen = levels[options.level] if options.level < len(levels) else series
    page = chosen.keyframe
    leading = chosen.axes[:len(chosen.axes) - len(page.axes)]
    if not chosen.axes.endswith(page.axes) or not set(leading) <= set(_LETTERS) or len(set(leading)) < len(leading):
        leading = ""
        if options.series == 0:
            return None
    if not leading and options.series == 0:
        return None
    shape = tuple(int(n) for n in chosen.shape[:len(leading)])
    needed = math.prod(shape)
    if options.level and chosen is series:
        _level([s.keyframe for s in levels], options.level, path)
    pages = list(chosen.pages)
    if chosen.dataoffset is not None and len(pages) < needed:
        pages = _following(chosen, page, needed)
    found = sum(p is not None for p in pages)
    if found < needed or len(pages) < needed:
        raise ImageError(f"{path} declares {needed} pages ({', '.join(f'{a} {n}' for a, n in zip(leading, shape, strict=True))}"
                         f"), {found} of them are in the file; the others are missing or in other files")
    numbers = [_number(p) if isinstance(p, tifffile.TiffPage | tifffile.TiffFrame) else i for i, p in enumerate(pages)]
    return Choice(page, "".join(_LETTERS[a] for a in leading), shape, pages[:needed], numbers[:needed], listing,
                  _extents([s.keyframe for s in levels]), _factor(series.keyframe, page))


def _following(series: Any, page: tifffile.TiffPage, needed: int) -> list[_Piece]:
    """Pages of one run of uncompressed data of which only the first has a directory (ImageJ, shaped)."""
    planes = page.samplesperpixel if page.planarconfig == 2 else 1
    each = math.prod(page.shape) * series.dtype.itemsize
    rows = page.rowsperstrip if not page.is_tiled else page.imagelength
    strips = math.ceil(page.imagelength / rows)
    row = each // planes // page.imagelength
    out = []
    for i in range(needed):
        starts = [series.dataoffset + i * each + p * (each // planes) + s * rows * row
                  for p in range(planes) for s in range(strips)]
        counts = [min(rows, page.imagelength - s * rows) * row for _ in range(planes) for s in range(strips)]
        out.append(_Piece(starts, counts))
    return out


def _main(tops: list[Any]) -> int:
    """The page that shows the picture: the first, unless that's a small copy or a slide's label or overview.

    Then the largest tiled page that is none of these (else the largest).
    """
    first = tops[0]
    slide = (first.description or "").startswith("Aperio")
    if not slide and not int(first.subfiletype or 0) & 1:
        return 0
    area = {i: p.imagelength * p.imagewidth for i, p in enumerate(tops) if not _aside(p)}
    tiled = {i: a for i, a in area.items() if tops[i].is_tiled}
    candidates = tiled or area
    return max(candidates, key=lambda i: (candidates[i], -i)) if candidates else 0


def _aside(page: Any) -> bool:
    """True for thumbnails, labels and overviews."""
    description = (getattr(page, "description", "") or "").lower()
    head = description.splitlines()[1:2] if description.startswith("aperio") else [description]
    return bool(int(page.subfiletype or 0) & 1) or any(h.startswith(("label", "macro")) for h in head)


def _smaller(page: tifffile.TiffPage, later: list[Any]) -> list[tifffile.TiffPage]:
    """Pages that are the same picture, smaller and smaller: in SubIFDs, else among the pages that follow."""
    inner = list(page.pages) if page.subifds else []
    for candidates in (inner, later):
        chain = [page]
        for other in candidates:
            other = other.aspage() if hasattr(other, "aspage") else other
            if _same_kind(page, other) and other.imagelength < chain[-1].imagelength and _proportional(page, other):
                chain.append(other)
        if len(chain) > 1:
            return chain[1:]
    return []


def _same_kind(one: Any, other: Any) -> bool:
    return (one.dtype == other.dtype and one.samplesperpixel == other.samplesperpixel
            and one.is_tiled == other.is_tiled and (one.photometric in (2, 6)) == (other.photometric in (2, 6)))


def _proportional(one: Any, other: Any) -> bool:
    """True where the sides of a page are those of the other over one factor, rounded either way."""
    (h, w), (k, v) = (one.imagelength, one.imagewidth), (other.imagelength, other.imagewidth)
    least = max(h / (k + 1), w / (v + 1))
    most = min(h / (k - 1) if k > 1 else math.inf, w / (v - 1) if v > 1 else math.inf)
    return least <= most and min(h / k, w / v) > 1.2


def _level(chain: list[Any], level: int, path: Path) -> Any:
    if not 0 <= level < len(chain):
        extents = ", ".join(f"{i}: {h} × {w}" for i, (h, w) in enumerate(_extents(chain)))
        raise ImageError(f"{path} has no level {level}; it has: {extents}")
    return chain[level]


def _extents(chain: list[Any]) -> list[tuple[int, int]]:
    return [(p.imagelength, p.imagewidth) for p in chain]


def _factor(one: Any, other: Any) -> tuple[float, float]:
    return one.imagelength / max(other.imagelength, 1), one.imagewidth / max(other.imagewidth, 1)


def _number(page: Any) -> int:
    index = page.index
    return int(index if isinstance(index, int) else index[0])


def _described(number: int, page: Any) -> str:
    kind = page.dtype.name if page.dtype is not None else "unreadable"
    return (f"{number}: {page.imagelength} × {page.imagewidth} × {page.samplesperpixel} {kind}"
            f"{', tiled' if page.is_tiled else ''}{', reduced' if int(page.subfiletype or 0) & 1 else ''}")
