"""What colour alone can do: the scores that the network has to beat, fitted on the training part only.

    python examples/relief/baseline.py

Two ways to tell the classes of a pixel from its colour:
- threshold: land where one of r, g, b, b-r, b-g, g-r is below (or above) a threshold, else sea; the one of
  all these with the most right pixels. It never says lake.
- table: the commonest class of each of 32³ colours. `lakes count k times`: lake pixels weigh k; k is the one
  of 1, 2, 5, 10, 20 with the best mean IoU on the training part.
"""

import argparse
from pathlib import Path

import numpy as np
import tifffile
from numpy.typing import NDArray
from prepare import CLASSES, HERE

FEATURES = {"r": (1, 0, 0), "g": (0, 1, 0), "b": (0, 0, 1),
            "b-r": (-1, 0, 1), "b-g": (0, -1, 1), "g-r": (-1, 1, 0)}


def scores(predicted: NDArray, target: NDArray) -> dict[str, float]:
    """IoU of each class, their mean, and the share of right pixels; arrays of one shape, values 0, 1, 2."""
    pairs = np.bincount((target.astype(np.int64) * 3 + predicted).ravel(), minlength=9).reshape(3, 3)
    hit = np.diag(pairs)
    iou = hit / (pairs.sum(0) + pairs.sum(1) - hit)
    return {**dict(zip(CLASSES, iou.tolist(), strict=True)), "mean IoU": float(iou.mean()),
            "accuracy": float(hit.sum() / pairs.sum())}


def row(name: str, got: dict[str, float]) -> str:
    """A line of a Markdown table."""
    return f"| {name} | " + " | ".join(f"{v:.3f}" for v in got.values()) + " |"


def fit_threshold(picture: NDArray[np.uint8], mask: NDArray) -> tuple[str, int, bool]:
    """(feature, threshold, land is below) with the most right pixels; picture (y, x, 3)."""
    best, found = -1, ("", 0, True)
    for name, weights in FEATURES.items():
        values = picture.astype(np.int32) @ np.array(weights) + 255
        counts = np.stack([np.bincount(values[mask == k], minlength=512) for k in range(3)])
        below = np.concatenate([np.zeros((3, 1), int), counts.cumsum(1)], 1)    # [class, values < t]
        above = counts.sum(1, keepdims=True) - below
        for land_below, right in ((True, below[1] + above[0]), (False, above[1] + below[0])):
            if right.max() > best:
                best, found = int(right.max()), (name, int(right.argmax()) - 255, land_below)
    return found


def by_threshold(picture: NDArray[np.uint8], fitted: tuple[str, int, bool]) -> NDArray[np.int64]:
    """Classes 0 or 1, (y, x)."""
    name, threshold, land_below = fitted
    below = picture.astype(np.int32) @ np.array(FEATURES[name]) < threshold
    return (below if land_below else ~below).astype(np.int64)


def colour(picture: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Number of the colour, 0 … 32³ - 1."""
    r, g, b = np.moveaxis(picture.astype(np.int64) >> 3, -1, 0)
    return (r * 32 + g) * 32 + b


def fit_table(picture: NDArray[np.uint8], mask: NDArray, lake: float) -> NDArray[np.int64]:
    """Class of each colour, (32³,); land where the training part hasn't the colour."""
    counts = np.stack([np.bincount(colour(picture)[mask == k], minlength=32**3) for k in range(3)])
    return np.where(counts.sum(0) > 0, (counts * np.array([1, 1, lake])[:, None]).argmax(0), 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=HERE / "data", help="folder that prepare.py has written")
    data: Path = parser.parse_args().data
    picture, mask, unseen, truth = (tifffile.imread(data / f"{name}.tif") for name in
                                    ("train", "train_mask", "held_out", "held_out_mask"))
    print("| on the held-out part | " + " | ".join(scores(truth, truth)) + " |")
    print("|---|" + "---|" * 5)
    fitted = fit_threshold(picture, mask)
    name, threshold, land_below = fitted
    sign = "<" if land_below else "≥"
    print(row(f"land: {name} {sign} {threshold}", scores(by_threshold(unseen, fitted), truth)))
    tables = {k: fit_table(picture, mask, k) for k in (1, 2, 5, 10, 20)}
    best = max(tables, key=lambda k: scores(tables[k][colour(picture)], mask)["mean IoU"])
    for k in dict.fromkeys((1, best)):
        print(row(f"colour table, lakes count {k} times", scores(tables[k][colour(unseen)], truth)))


if __name__ == "__main__":
    main()
