"""Boxes: half-open N-D intervals, ``((start, stop), …)``, one pair per axis."""

from collections.abc import Iterator, Sequence
from itertools import product
from math import ceil

Interval = tuple[int, int]
Box = tuple[Interval, ...]


def whole(shape: Sequence[int]) -> Box:
    """The box that covers an array of this shape."""
    return tuple((0, int(n)) for n in shape)


def size(box: Box) -> tuple[int, ...]:
    """Extent per axis."""
    return tuple(b - a for a, b in box)


def volume(box: Box) -> int:
    """Number of cells; 0 for an empty box."""
    n = 1
    for a, b in box:
        n *= max(0, b - a)
    return n


def is_empty(box: Box) -> bool:
    """True where any axis has no extent."""
    return any(b <= a for a, b in box)


def intersect(one: Box, other: Box) -> Box:
    """Common part; may be empty (stop <= start)."""
    return tuple((max(a, c), min(b, d)) for (a, b), (c, d) in zip(one, other, strict=True))


def hull(one: Box, other: Box) -> Box:
    """Smallest box that contains both; an empty box adds nothing."""
    if is_empty(one):
        return other
    if is_empty(other):
        return one
    return tuple((min(a, c), max(b, d)) for (a, b), (c, d) in zip(one, other, strict=True))


def contains(outer: Box, inner: Box) -> bool:
    """True where every cell of `inner` lies in `outer`."""
    return all(a <= c and d <= b for (a, b), (c, d) in zip(outer, inner, strict=True))


def slices(box: Box, origin: Box | None = None) -> tuple[slice, ...]:
    """Index of the box in an array whose first cell is `origin`'s start (default: zero)."""
    if origin is None:
        return tuple(slice(a, b) for a, b in box)
    return tuple(slice(a - o, b - o) for (a, b), (o, _) in zip(box, origin, strict=True))


def cuts(extent: int, tile: int) -> list[int]:
    """Positions ``[0, …, extent]`` that cut an axis into equal pieces of at most `tile` cells.

    >>> cuts(10, 4)
    [0, 3, 7, 10]
    """
    n = max(1, ceil(extent / max(1, tile)))
    return [(i * extent + n // 2) // n for i in range(n + 1)]


def grid(shape: Sequence[int], tile: Sequence[int]) -> Iterator[Box]:
    """Boxes of at most `tile` cells that cover `shape`, each cell once, last axis fastest."""
    axes = []
    for extent, step in zip(shape, tile, strict=True):
        marks = cuts(extent, step)
        axes.append([(a, b) for a, b in zip(marks, marks[1:], strict=False)])
    yield from product(*axes)
