"""One Zarr array (version 2 or 3): metadata, and boxes read chunk by chunk."""

import base64
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hires.tiling.box import Box, size
from hires.tiling.cache import pieces
from hires.tiling.errors import ImageError
from hires.tiling.memory import check_memory
from hires.tiling.readers.zarr_codecs import Chain, Shard, chain_v2, chain_v3, shard_of
from hires.tiling.readers.zarr_files import MOST_METADATA, Store

_TYPES = {"bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32",
          "float64"}
_MISSING = np.iinfo(np.uint64).max


@dataclass(frozen=True)
class ZarrArray:
    """shape, dtype as usual. files: extent per axis of what lies in one file. shard: where that holds several chunks.

    names: of the axes, where given. fill: value of chunks that were never written. strict: there may be none such.
    """

    store: Store
    key: str
    shape: tuple[int, ...]
    dtype: np.dtype
    files: tuple[int, ...]
    chain: Chain | None
    shard: Shard | None
    fill: Any
    prefix: str
    separator: str
    names: tuple[str | None, ...] | None
    attributes: Mapping[str, Any]
    strict: bool = False

    @property
    def chunks(self) -> tuple[int, ...]:
        """Extent per axis of what is decoded at a time."""
        return self.shard.inner if self.shard else self.files

    @property
    def path(self) -> str:
        """Where the array lies, for people."""
        return self.store.name(self.key)

    def file_key(self, index: tuple[int, ...]) -> str:
        """Key of the file at a place in the grid of files."""
        numbers = [str(i) for i in index] or ["0"] * (self.prefix == "")
        inner = self.separator.join([self.prefix, *numbers] if self.prefix else numbers)
        return f"{self.key}/{inner}" if self.key else inner

    def check_files(self) -> None:
        """ImageError naming the first file of the array that isn't there."""
        for index in product(*(range(math.ceil(n / f)) for n, f in zip(self.shape, self.files, strict=True))):
            if self.store.stamp(self.file_key(index)) is None:
                raise self._gone(self.file_key(index))

    def _gone(self, key: str) -> ImageError:
        return ImageError(f"{self.store.name(key)} is missing: the store was complete once, and has lost this file; "
                          "convert the source again")

    def read(self, box: Box) -> NDArray:
        """Values of a box that lies in the array."""
        out = np.full(size(box), self.fill, self.dtype)
        if out.size:
            for index in product(*(range(a // f, (b - 1) // f + 1) for (a, b), f in zip(box, self.files, strict=True))):
                self._from_file(index, box, out)
        return out

    def _from_file(self, index: tuple[int, ...], box: Box, out: NDArray) -> None:
        key = self.file_key(index)
        stamp = self.store.stamp(key)
        if stamp is None:
            if self.strict:
                raise self._gone(key)
            return
        origin = tuple(i * f for i, f in zip(index, self.files, strict=True))
        if self.shard is None:
            assert self.chain is not None
            chain = self.chain
            self._paste(key, stamp, origin, self.files, box, out,
                        lambda: self._decoded(key, chain, 0, None, self.files))
            return
        shard = self.shard
        grid = tuple(f // c for f, c in zip(self.files, shard.inner, strict=True))
        table = self._index(key, stamp, shard, grid)
        ranges = []
        for (a, b), o, f, c in zip(box, origin, self.files, shard.inner, strict=True):
            ranges.append(range(max(a - o, 0) // c, (min(b - o, f) - 1) // c + 1))
        for inner in product(*ranges):
            offset, count = (int(v) for v in table[inner])
            if offset == _MISSING and count == _MISSING:
                continue
            start = tuple(o + i * c for o, i, c in zip(origin, inner, shard.inner, strict=True))
            self._paste(key, stamp, start, shard.inner, box, out,
                        lambda offset=offset, count=count: self._decoded(key, shard.chain, offset, count, shard.inner))

    def _index(self, key: str, stamp: tuple[int, int], shard: Shard, grid: tuple[int, ...]) -> NDArray:
        length = stamp[0]

        def load() -> NDArray:
            count = shard.index_bytes(grid)
            if length < count:
                raise ImageError(f"{self.store.name(key)} is cut off: {length:,} bytes can't hold its index of {count:,}")
            try:
                return shard.index(self.store.read(key, length - count if shard.at_end else 0, count), grid)
            except ImageError:
                raise
            except ValueError as e:
                raise ImageError(f"{self.store.name(key)} is cut off or damaged: {e}") from e
        return pieces.get((self.store.root, key, stamp, "index"), load)

    def _paste(self, key: str, stamp: tuple[int, int], start: tuple[int, ...], extent: tuple[int, ...], box: Box,
               out: NDArray, make: Any) -> None:
        """Copy the part of a chunk that lies in the box."""
        target, source = [], []
        for (a, b), s, n in zip(box, start, extent, strict=True):
            lower, upper = max(a, s), min(b, s + n)
            if lower >= upper:
                return
            target.append(slice(lower - a, upper - a))
            source.append(slice(lower - s, upper - s))
        piece = pieces.get((self.store.root, key, stamp, start), make)
        out[tuple(target)] = piece[tuple(source)]

    def _decoded(self, key: str, chain: Chain, offset: int, count: int | None, shape: tuple[int, ...]) -> NDArray:
        try:
            return chain.decode(self.store.read(key, offset, count), shape)
        except ImageError:
            raise
        except Exception as e:      # decoders raise whatever they like
            raise ImageError(f"{self.store.name(key)} is cut off or damaged: {e}") from e


def json_at(store: Store, key: str) -> dict[str, Any] | None:
    """A metadata file; None where there is none, ImageError where it can't be parsed."""
    stamp = store.stamp(key)
    if stamp is None:
        return None
    length = stamp[0]
    if length > MOST_METADATA:
        raise ImageError(f"{store.name(key)}: {length:,} bytes of metadata")
    try:
        value = json.loads(store.read(key))
    except (ValueError, RecursionError) as e:
        if isinstance(e, ImageError):
            raise
        raise ImageError(f"{store.name(key)} is damaged: {e}") from e
    if not isinstance(value, dict):
        raise ImageError(f"{store.name(key)} is damaged: not a table of names and values")
    return value


def open_array(store: Store, key: str) -> ZarrArray | None:
    """The array under a key; None where there is none, ImageError for metadata that can't be used."""
    inside = f"{key}/" if key else ""
    try:
        meta = json_at(store, inside + "zarr.json")
        if meta is not None:
            return _version_3(store, key, meta) if meta.get("node_type") == "array" else None
        meta = json_at(store, inside + ".zarray")
        return None if meta is None else _version_2(store, key, meta, json_at(store, inside + ".zattrs") or {})
    except ImageError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError) as e:
        raise ImageError(f"{store.name(key)}: its Zarr metadata can't be used: "
                         f"{f'{e} is missing' if isinstance(e, KeyError) else e}") from e


def _version_3(store: Store, key: str, meta: dict[str, Any]) -> ZarrArray:
    if meta["data_type"] not in _TYPES:
        raise ValueError(f"data type {meta['data_type']!r} isn't read")
    dtype, shape = np.dtype(meta["data_type"]), _extents(meta["shape"], least=0)
    if meta["chunk_grid"]["name"] != "regular":
        raise ValueError(f"chunk grid {meta['chunk_grid']['name']!r} isn't read")
    files = _extents(meta["chunk_grid"]["configuration"]["chunk_shape"])
    encoding = meta.get("chunk_key_encoding") or {"name": "default"}
    default = encoding["name"] == "default"
    separator = (encoding.get("configuration") or {}).get("separator", "/" if default else ".")
    codecs, shard, chain = meta["codecs"], None, None
    if codecs[0]["name"] == "sharding_indexed":
        if len(codecs) > 1:
            raise ValueError("shards that are compressed as a whole aren't read")
        shard = shard_of(codecs[0]["configuration"], dtype, len(shape))
        if len(shard.inner) != len(files) or any(c < 1 or f % c for f, c in zip(files, shard.inner, strict=True)):
            raise ValueError(f"shards of {files} can't be cut into chunks of {shard.inner}")
    else:
        chain = chain_v3(codecs, dtype, len(shape))
    names = meta.get("dimension_names")
    attributes = meta.get("attributes") or {}
    array = ZarrArray(store, key, shape, dtype, files, chain, shard, _fill(meta.get("fill_value"), dtype),
                      "c" if default else "", separator, tuple(names) if names else None, attributes)
    return _usable(array)


def _version_2(store: Store, key: str, meta: dict[str, Any], attributes: dict[str, Any]) -> ZarrArray:
    if not isinstance(meta["dtype"], str):
        raise ValueError("records aren't read")
    stored, shape = np.dtype(meta["dtype"]), _extents(meta["shape"], least=0)
    if stored.kind not in "buif":
        raise ValueError(f"data type {stored} isn't read")
    dtype = stored.newbyteorder("=")
    names = attributes.get("_ARRAY_DIMENSIONS")
    return _usable(ZarrArray(store, key, shape, dtype, _extents(meta["chunks"]), chain_v2(meta, stored, len(shape)),
                             None, _fill(meta.get("fill_value"), dtype), "", meta.get("dimension_separator", "."),
                             tuple(names) if names else None, attributes))


def _usable(array: ZarrArray) -> ZarrArray:
    if len(array.files) != len(array.shape):
        raise ValueError(f"chunks of {array.files} for a shape of {array.shape}")
    check_memory(array.path, array.chunks, array.dtype, "a chunk", copies=2)
    return array


def _extents(values: Any, least: int = 1) -> tuple[int, ...]:
    out = tuple(int(v) for v in values)
    if any(v < least for v in out):
        raise ValueError(f"extents {out}")
    return out


def _fill(value: Any, dtype: np.dtype) -> Any:
    """The fill value; null (version 2: undefined) is 0."""
    if value is None:
        return dtype.type(0)
    if isinstance(value, str):
        words = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
        if value in words:
            return dtype.type(words[value])
        raw = bytes.fromhex(value[2:]) if value.startswith("0x") else base64.standard_b64decode(value)
        order = ">" if value.startswith("0x") else "<"
        return np.frombuffer(raw, dtype.newbyteorder(order))[0].astype(dtype)
    return np.asarray(value).astype(dtype)[()]

