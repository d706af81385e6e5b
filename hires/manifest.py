"""Which images there are, what belongs to each, and what each is for."""

import csv
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hires import draw
from hires.config import Data, nearest
from hires.errors import DataError

# Endings of image files in folders; anything else there is counted and left alone.
_ENDINGS = {".tif", ".tiff", ".btf", ".svs", ".ndpi", ".scn", ".png", ".jpg", ".jpeg", ".jp2", ".j2k",
            ".webp", ".bmp", ".npy", ".zarr"}


@dataclass(frozen=True)
class Row:
    """One image. `target` is the path of its mask, or its class as written; `where` names it in errors."""

    image: str
    target: str
    where: str
    split: str | None = None
    group: str | None = None


@dataclass(frozen=True)
class Rows:
    """The rows of a run, in the order of the manifest; `unused` of it are for neither."""

    train: list[Row]
    val: list[Row]
    unused: int


def collect(data: Data, seed: int) -> Rows:
    """Rows from the manifest or the folder, parted into training and validation.

    Raises DataError naming the manifest, the row and the column or file; missing files are all found here,
    before anything is trained.
    """
    if data.manifest is not None:
        rows = _from_manifest(data, Path(data.manifest))
    else:
        rows = _from_folder(data, Path(str(data.folder)))
    if not rows:
        raise DataError(f"{data.manifest or data.folder}: no images in it")
    parted = _part(rows, data, seed)
    _all_exist([*parted.train, *parted.val], data)
    return parted


def _part(rows: list[Row], data: Data, seed: int) -> Rows:
    source = data.manifest or data.folder
    if any(r.split is not None for r in rows):
        train = [r for r in rows if r.split in _listed(data.train)]
        val = [r for r in rows if r.split in _listed(data.val)]
        if not train:
            found = ", ".join(sorted({f'"{r.split}"' for r in rows})[:20])
            raise DataError(f"{source}: no row is for training: column {data.split or 'folder'} holds "
                            f"{found}; [data] train says {data.train!r}")
        return Rows(train, val, len(rows) - len(train) - len(val))
    if not data.val_fraction:
        return Rows(rows, [], 0)
    keys = [r.group if r.group is not None else r.image for r in rows]
    chosen = draw.held_out(seed, keys, data.val_fraction)
    train = [r for r, k in zip(rows, keys, strict=True) if k not in chosen]
    val = [r for r, k in zip(rows, keys, strict=True) if k in chosen]
    if not train or not val:
        raise DataError(f"{source}: [data] val_fraction = {data.val_fraction:g} of {len(set(keys))} "
                        f"{'groups' if data.group else 'images'} leaves {len(train)} images to train on and "
                        f"{len(val)} to validate with; both need one at least")
    return Rows(train, val, 0)


def _listed(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value


def _all_exist(rows: list[Row], data: Data) -> None:
    missing = []
    for row in rows:
        for path in [row.image, row.target] if data.task == "segmentation" else [row.image]:
            if "://" not in path and not Path(path).exists():
                missing.append(f"{row.where}: no such file: {path}")
    if missing:
        more = f"\n… and {len(missing) - 5} more" if len(missing) > 5 else ""
        hint = "" if data.manifest is None else \
            "\nRelative paths in a manifest start from its own folder; [data] root names another one."
        raise DataError("\n".join(missing[:5]) + more + hint)


# ---- manifests

def _from_manifest(data: Data, path: Path) -> list[Row]:
    if not path.is_file():
        raise DataError(f"{path}: no such manifest")
    root = Path(data.root) if data.root else path.parent
    target = data.target or ("mask" if data.task == "segmentation" else "label")
    columns = [c for c in (data.image, target, data.split, data.group) if c]
    rows = []
    for where, record in _records(path, columns):
        where = f"{path} {where}"
        for column in columns:
            if column not in record:
                keys = {data.image: "image", target: "target", data.split: "split", data.group: "group"}
                raise DataError(f'{where}: no column "{column}" ([data] {keys[column]})'
                                f"{nearest(column, [str(k) for k in record])}")
            if record[column] is None or str(record[column]).strip() == "":
                raise DataError(f'{where}: column "{column}" is empty')
        image, what = _place(root, record[data.image]), str(record[target]).strip()
        rows.append(Row(
            image, _place(root, what) if data.task == "segmentation" else what, where,
            str(record[data.split]).strip() if data.split else None,
            str(record[data.group]).strip() if data.group else None))
    return rows


def _place(root: Path, value: Any) -> str:
    text = str(value).strip()
    return text if "://" in text else str(root / text)


def _records(path: Path, columns: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """(which row, its fields). Rows count from 1; the line is that of the file."""
    ending = path.suffix.lower()
    try:
        if ending in (".csv", ".tsv"):
            yield from _csv(path, "\t" if ending == ".tsv" else ",")
        elif ending == ".parquet":
            yield from _parquet(path, columns)
        elif ending in (".jsonl", ".ndjson"):
            with path.open(encoding="utf-8") as file:
                lines = [(n, line) for n, line in enumerate(file, 1) if line.strip()]
            for row, (number, line) in enumerate(lines, 1):
                yield f"row {row} (line {number})", _object(json.loads(line), path, f"line {number}")
        elif ending == ".json":
            listed = json.loads(path.read_text(encoding="utf-8"))
            if not isinstance(listed, list):
                raise DataError(f"{path}: expected a list of objects, one for each image")
            for row, record in enumerate(listed, 1):
                yield f"row {row}", _object(record, path, f"row {row}")
        else:
            raise DataError(f"{path}: a manifest ends in .csv, .tsv, .parquet, .json or .jsonl")
    except UnicodeDecodeError as e:
        raise DataError(f"{path}: not text in UTF-8 (byte {e.start}); save it as UTF-8") from None
    except json.JSONDecodeError as e:
        raise DataError(f"{path}: not valid JSON: {e}") from None


def _object(record: Any, path: Path, where: str) -> dict[str, Any]:
    if not isinstance(record, dict):
        raise DataError(f"{path} {where}: expected an object with a field for each column, "
                        f"not {record!r:.60}")
    return record


def _csv(path: Path, delimiter: str) -> Iterator[tuple[str, dict[str, Any]]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, delimiter=delimiter)
        header: list[str] | None = None
        row = 0
        try:
            for fields in reader:
                if not any(f.strip() for f in fields):
                    continue
                if header is None:
                    header = [f.strip() for f in fields]
                    if len(set(header)) < len(header):
                        twice = next(h for h in header if header.count(h) > 1)
                        raise DataError(f'{path}: column "{twice}" is there twice')
                    continue
                row += 1
                if len(fields) != len(header):
                    raise DataError(f"{path} row {row} (line {reader.line_num}): {len(fields)} fields, "
                                    f"but the header names {len(header)} columns")
                yield f"row {row} (line {reader.line_num})", dict(zip(header, fields, strict=True))
        except csv.Error as e:
            raise DataError(f"{path} line {reader.line_num}: {e}") from None


def _parquet(path: Path, columns: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise DataError(f"{path}: Parquet manifests need pyarrow: pip install pyarrow") from None
    try:
        file = pyarrow.parquet.ParquetFile(path)
        there = [c for c in columns if c in file.schema_arrow.names]
        if len(there) < len(columns):
            column = next(c for c in columns if c not in there)
            raise DataError(f'{path}: no column "{column}"{nearest(column, file.schema_arrow.names)}')
        row = 0
        for batch in file.iter_batches(columns=columns):
            for record in batch.to_pylist():
                row += 1
                yield f"row {row}", record
    except (pyarrow.ArrowException, OSError) as e:
        raise DataError(f"{path}: can't read the Parquet file: {e}") from None


# ---- folders

def _from_folder(data: Data, folder: Path) -> list[Row]:
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder")
    names = {name: name for name in [*_listed(data.train), *_listed(data.val)] if (folder / name).is_dir()}
    if not any(name in names for name in _listed(data.train)):
        return _rows_in(data, folder, None)
    if data.val_fraction and any(name in names for name in _listed(data.val)):
        raise DataError(f"{folder}: it has a folder for validation already; leave out [data] val_fraction")
    split = not data.val_fraction
    return [row for name in names for row in _rows_in(data, folder / name, name if split else None)]


def _rows_in(data: Data, folder: Path, split: str | None) -> list[Row]:
    if data.task == "segmentation":
        return _pairs(data, folder, split)
    rows = []
    for inner in sorted(p for p in folder.iterdir() if p.is_dir() and not p.name.startswith(".")):
        if inner.suffix == ".zarr":
            raise DataError(f"{inner}: an image where a folder for each class is expected")
        rows += [Row(str(p), inner.name, str(p), split) for p in _images(inner, deep=True)]
    return rows


def _pairs(data: Data, folder: Path, split: str | None) -> list[Row]:
    images, masks = folder / "images", folder / "masks"
    for needed in (images, masks):
        if not needed.is_dir():
            raise DataError(f"{folder}: segmentation from a folder needs images/ and masks/ in it; "
                            f"there is no {needed.name}/")
    by_stem = _by_stem(masks, data.mask_suffix)
    rows = []
    for stem, image in _by_stem(images, "").items():
        if stem not in by_stem:
            raise DataError(f"{image}: no mask {stem}{data.mask_suffix}.* in {masks}"
                            f"{nearest(stem, by_stem) if by_stem else ''}")
        rows.append(Row(str(image), str(by_stem[stem]), str(image), split))
    return rows


def _by_stem(folder: Path, suffix: str) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for path in _images(folder):
        stem = path.name[:-len(path.suffix)].removesuffix(".ome")
        if not stem.endswith(suffix):
            continue
        stem = stem[:len(stem) - len(suffix)]
        if stem in found:
            raise DataError(f"{path}: {found[stem].name} in the same folder has the same stem, "
                            "so which one belongs to the pair can't be told")
        found[stem] = path
    return found


def _images(folder: Path, deep: bool = False) -> list[Path]:
    """Image files (and .zarr folders) by name; hidden ones and other endings are left alone."""
    found = []
    for path in sorted(folder.iterdir()):
        if path.name.startswith("."):
            continue
        if path.suffix.lower() in _ENDINGS:
            found.append(path)
        elif deep and path.is_dir():
            found += _images(path, deep)
    return found
