"""What is drawn by chance: pure functions of (seed, epoch, index), so that no state has to be kept.

The raw output of numpy's SeedSequence and Philox is fixed for good; the methods of Generator are not, so they
are not used.
"""

import hashlib
from collections.abc import Sequence

import numpy as np

_ORDER, _FLIP, _PASS = 1, 2, 3      # purposes, so that no two draws share a stream


def order(seed: int, epoch: int, count: int) -> list[int]:
    """A permutation of ``range(count)``: the order of the images in one epoch."""
    stream = np.random.Philox(np.random.SeedSequence((seed, epoch, _ORDER)))
    return np.argsort(stream.random_raw(count), kind="stable").tolist() if count else []


def orientation(seed: int, epoch: int, index: int, axes: int) -> tuple[list[bool], int]:
    """For one image: whether each of `axes` axes is flipped, and how many quarter turns (0-3) it gets."""
    word = int(np.random.SeedSequence((seed, epoch, index, _FLIP)).generate_state(1, np.uint64)[0])
    return [bool(word >> 2 + i & 1) for i in range(axes)], word & 3


def word(seed: int, count: int) -> int:
    """A 63-bit number for pass `count`: seeds torch's own generator before it."""
    return int(np.random.SeedSequence((seed, count, _PASS)).generate_state(1, np.uint64)[0]) >> 1


def held_out(seed: int, keys: Sequence[str], fraction: float) -> set[str]:
    """Which keys are for validation: ``round(fraction * number of different keys)`` of them.

    A key's rank comes from a hash of the key itself, so the order of the rows doesn't matter.
    """
    def rank(key: str) -> bytes:
        return hashlib.sha256(f"{seed}\0{key}".encode()).digest()

    different = sorted(set(keys), key=rank)
    return set(different[:round(fraction * len(different))])
