"""Chunks of Zarr arrays (versions 2 and 3), decoded with a bound on every size.

Core codecs of version 3 (bytes, transpose, gzip, zstd, blosc, crc32c) and what numcodecs registers.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import google_crc32c
import imagecodecs
import numcodecs
import numpy as np
from numpy.typing import NDArray

Packed = Callable[[bytes, int], bytes]      # (packed, most bytes that may come out) -> bytes


@dataclass(frozen=True)
class Chain:
    """How the bytes of one chunk become its values.

    unpack: from the stored bytes on, in order of decoding. stored: dtype in the bytes. order: axes as they lie in
    the bytes, slowest first. filters: numcodecs filters of version 2, in order of decoding.
    """

    unpack: tuple[Packed, ...]
    stored: np.dtype
    order: tuple[int, ...]
    filters: tuple[Any, ...] = ()

    def decode(self, data: bytes, shape: Sequence[int]) -> NDArray:
        """Values of a chunk of that shape; ValueError where the bytes don't make one."""
        count = int(np.prod(shape, dtype=np.int64))
        needed = count * self.stored.itemsize
        most = needed + 64 if not self.filters else 8 * needed + 1024
        for step in self.unpack:
            data = step(data, most)
        if self.filters:
            values: Any = data
            for item in self.filters:
                values = item.decode(values)
            values = np.frombuffer(values, self.stored) if not isinstance(values, np.ndarray) else values
            values = values.reshape(-1).view(self.stored)
        else:
            if len(data) != needed:
                raise ValueError(f"{len(data):,} bytes instead of {needed:,}")
            values = np.frombuffer(data, self.stored)
        lying = values[:count].reshape([shape[i] for i in self.order])
        back = np.argsort(self.order)
        return np.ascontiguousarray(lying.transpose(back)).astype(self.stored.newbyteorder("="), copy=False)


def chain_v3(codecs: Sequence[Mapping[str, Any]], dtype: np.dtype, ndim: int) -> Chain:
    """The chain of a version 3 `codecs` list without sharding; ValueError for a codec that isn't known."""
    order, stored, unpack = tuple(range(ndim)), dtype, []
    for codec in codecs:
        name, config = codec["name"], codec.get("configuration") or {}
        if name == "transpose":
            turn = config["order"]
            if turn in ("C", "F"):
                turn = range(ndim) if turn == "C" else range(ndim)[::-1]
            if sorted(turn) != list(range(ndim)):
                raise ValueError(f"transpose order {turn}")
            order = tuple(order[i] for i in turn)
        elif name == "bytes":
            stored = dtype.newbyteorder("<" if config.get("endian", "little") == "little" else ">")
        elif name == "crc32c":
            unpack.append(_checked)
        else:
            unpack.append(unpacker(name.removeprefix("numcodecs."), {"id": name.removeprefix("numcodecs."), **config}))
    return Chain(tuple(reversed(unpack)), stored, order)


def chain_v2(meta: Mapping[str, Any], dtype: np.dtype, ndim: int) -> Chain:
    """The chain of a version 2 array."""
    compressor, filters = meta.get("compressor"), meta.get("filters") or []
    unpack = (unpacker(compressor["id"], compressor),) if compressor else ()
    order = tuple(range(ndim)) if meta.get("order", "C") == "C" else tuple(range(ndim))[::-1]
    return Chain(unpack, dtype, order, tuple(numcodecs.get_codec(dict(f)) for f in reversed(filters)))


def unpacker(name: str, config: Mapping[str, Any]) -> Packed:
    """A decompressor by name; those of everyday use stop at the given number of bytes."""
    if name == "zstd":
        return lambda data, most: imagecodecs.zstd_decode(data, out=most)
    if name == "blosc":
        return _blosc
    if name == "gzip":
        return lambda data, most: imagecodecs.gzip_decode(data, out=most)
    if name == "zlib":
        return lambda data, most: imagecodecs.zlib_decode(data, out=most)
    if name == "lz4":
        return lambda data, most: imagecodecs.lz4_decode(data, header=True, out=most)
    try:
        codec = numcodecs.get_codec(dict(config))
    except Exception as e:      # numcodecs has an error of its own, and raises others for bad settings
        raise ValueError(f"its codec {name!r} isn't known") from e
    return lambda data, most: bytes(codec.decode(data))


def _blosc(data: bytes, most: int) -> bytes:
    if len(data) < 16:
        raise ValueError("a blosc chunk without a header")
    (declared,) = struct.unpack_from("<I", data, 4)
    if declared > most:
        raise ValueError(f"a blosc chunk of {declared:,} bytes where {most:,} can be")
    return imagecodecs.blosc_decode(data, out=declared, numthreads=1)


def _checked(data: bytes, most: int) -> bytes:
    if len(data) < 4 or google_crc32c.value(data[:-4]) != int.from_bytes(data[-4:], "little"):
        raise ValueError("its checksum is wrong")
    return data[:-4]


@dataclass(frozen=True)
class Shard:
    """Chunks in one file with an index of (offset, bytes) at its end or start.

    Index: little-endian uint64 pairs in C order, 2⁶⁴−1 where a chunk is missing, then a CRC-32C.
    """

    inner: tuple[int, ...]
    chain: Chain
    at_end: bool
    checked: bool

    def index_bytes(self, grid: Sequence[int]) -> int:
        """Length of the index for that many chunks per axis."""
        return int(np.prod(grid, dtype=np.int64)) * 16 + 4 * self.checked

    def index(self, data: bytes, grid: Sequence[int]) -> NDArray[np.uint64]:
        """The index as (*grid, 2); ValueError where the checksum fails."""
        if self.checked:
            data = _checked(data, len(data))
        return np.frombuffer(data, "<u8").reshape(*grid, 2).astype(np.uint64)


def shard_of(config: Mapping[str, Any], dtype: np.dtype, ndim: int) -> Shard:
    """The shard layout of a sharding_indexed configuration."""
    names = [c["name"] for c in config["codecs"]]
    if "sharding_indexed" in names:
        raise ValueError("shards inside shards aren't read")
    index = [c["name"] for c in config.get("index_codecs", [])]
    if index not in (["bytes"], ["bytes", "crc32c"]):
        raise ValueError(f"shard indices packed as {index} aren't read")
    return Shard(tuple(config["chunk_shape"]), chain_v3(config["codecs"], dtype, ndim),
                 config.get("index_location", "end") == "end", "crc32c" in index)
