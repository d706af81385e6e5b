"""From what a mask or a manifest says to class numbers 0 … K-1, and how often each occurs."""

import numpy as np
from numpy.typing import NDArray

from hires.config import Data, nearest
from hires.errors import DataError

IGNORE = -100       # class number of what counts for nothing; also the default of torch's losses


class ClassMap:
    """Maps raw values (integers of a mask, or words of a manifest) to class numbers.

    `names` are the K classes in order. Built from ``[data] classes``:
    a list of names (raw value = place in the list; for classification, raw = name),
    a list of integers (those raw values, in that order),
    or a table raw value → name (classes in order of first appearance) or → class number.
    The name "ignore" in a table is no class: such pixels count for nothing, like those of ``[data] ignore``.
    """

    def __init__(self, data: Data, labels: list[str]) -> None:
        """`labels`: what a manifest for classification says, used where `classes` isn't given."""
        self.pixels = data.task == "segmentation"
        given = data.classes
        if given is None:
            if self.pixels:
                raise DataError("[data] classes: is missing: a list of names, one for each value 0, 1, … of "
                                'the masks, or a table of value = "name"')
            given = list(sorted(set(labels), key=_by_number))
        table: dict[str, int] = {}
        self.names: list[str] = []
        if isinstance(given, list):
            self.names = [str(g) for g in given]
            raws = [str(i) if self.pixels and isinstance(g, str) else str(g) for i, g in enumerate(given)]
            table = {raw: i for i, raw in enumerate(raws)}
        else:
            self._from_table(given, table)
        if len(set(self.names)) < len(self.names):
            raise DataError(f"[data] classes: a class is listed twice in {self.names}")
        if len(self.names) < 2:
            raise DataError(f"[data] classes: two classes are needed at least, not {self.names}")
        if self.pixels:
            for value in data.ignore if isinstance(data.ignore, list) else [data.ignore]:
                if value is None:
                    continue
                if table.get(str(value), IGNORE) != IGNORE:
                    raise DataError(f"[data] ignore: {value} is the class "
                                    f'"{self.names[table[str(value)]]}" in [data] classes')
                table[str(value)] = IGNORE
        self._table = table
        if self.pixels:
            self._prepare_lookup()

    def _from_table(self, given: dict[str, str | int], table: dict[str, int]) -> None:
        numbered = {raw: to for raw, to in given.items() if isinstance(to, int)}
        named = {raw: to for raw, to in given.items() if isinstance(to, str) and to != "ignore"}
        if numbered and named:
            raise DataError("[data] classes: give names or class numbers, not some of both")
        if numbered:
            count = max(numbered.values()) + 1
            if sorted(set(numbered.values())) != list(range(count)):
                raise DataError(f"[data] classes: class numbers must be 0, 1, … without a gap, "
                                f"not {sorted(set(numbered.values()))}")
            self.names = [str(i) for i in range(count)]
            table.update(numbered)
        else:
            self.names = list(dict.fromkeys(named.values()))
            table.update({raw: self.names.index(name) for raw, name in named.items()})
        for raw, to in given.items():
            if to == "ignore":
                if not self.pixels:
                    raise DataError(f'[data] classes: {raw} = "ignore" is for the values of masks')
                table[raw] = IGNORE

    def _prepare_lookup(self) -> None:
        try:
            pairs = sorted((int(raw), number) for raw, number in self._table.items())
        except ValueError:
            wrong = next(raw for raw in self._table if not raw.lstrip("-").isdecimal())
            raise DataError(f'[data] classes: "{wrong}" is no value of a mask; a table for masks is '
                            'value = "name", as in 38 = "nerve"') from None
        self._raw = np.array([raw for raw, _ in pairs], np.int64)
        self._number = np.array([number for _, number in pairs], np.int16)

    def lookup(self, raw: NDArray) -> tuple[NDArray, tuple[int, ...] | None]:
        """Class numbers (int16, same shape) of a mask's values, and the first cell that has none."""
        values = raw if raw.dtype.kind in "iub" else raw.astype(np.int64)
        place = np.searchsorted(self._raw, values.astype(np.int64, copy=False))
        np.minimum(place, len(self._raw) - 1, out=place)
        wrong = self._raw[place] != raw     # against the raw value, so that 1.5 isn't taken for 1
        bad = None
        if wrong.any():
            bad = tuple(int(i) for i in np.unravel_index(int(np.argmax(wrong)), wrong.shape))
        return self._number[place], bad

    def number(self, label: str, where: str) -> int:
        """Class number of a word of the manifest; DataError with `where` if there is none."""
        if label not in self._table:
            raise DataError(f'{where}: class "{label}" isn\'t in [data] classes{nearest(label, self._table)}')
        return self._table[label]

    def unmapped(self, value: object) -> str:
        """What to say of a value that isn't in the map."""
        known = ", ".join(str(v) for v in self._raw[:30].tolist())
        return (f"value {value} isn't a class: [data] classes and ignore know {known}"
                f"{', …' if len(self._raw) > 30 else ''}")


def _by_number(label: str) -> tuple[bool, int, str]:
    return (not label.isdecimal(), int(label) if label.isdecimal() else 0, label)


def balanced(counts: NDArray[np.int64]) -> list[float]:
    """Weight per class, total / (classes present * count): each class weighs the same; 0 for an absent one.

    The formula is scikit-learn's ``class_weight="balanced"``.
    """
    present = int((counts > 0).sum())
    total = int(counts.sum())
    return [total / (present * int(n)) if n else 0.0 for n in counts]
