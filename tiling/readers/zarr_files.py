"""The files of a Zarr store: in a folder, or in a zip. Read without threads or event loops, so forks are safe."""

import struct
import zipfile
import zlib
from pathlib import Path
from stat import S_ISREG

from hires.tiling.errors import ImageError
from hires.tiling.files import File

MOST_METADATA = 64 * 2**20      # bytes; metadata beyond that is hostile


class FolderStore:
    """Keys are paths below a folder."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def stamp(self, key: str) -> tuple[int, int] | None:
        """Bytes under a key and when they were written; None where there is nothing."""
        try:
            status = (self.root / key).stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as e:
            raise ImageError(f"{self.root / key}: {(e.strerror or str(e)).lower()}") from None
        return (status.st_size, status.st_mtime_ns) if S_ISREG(status.st_mode) else None

    def read(self, key: str, offset: int = 0, count: int | None = None) -> bytes:
        """Bytes under a key, or a part of them; ImageError where they end too early."""
        file = File(self.root / key)
        with file.opened() as handle:
            return handle.read(offset, file.size - offset if count is None else count)

    def folders(self, key: str) -> list[str]:
        """Names directly below a key that may be groups or arrays."""
        return sorted(p.name for p in (self.root / key).iterdir() if p.is_dir())

    def name(self, key: str) -> str:
        """A key for people."""
        return str(self.root / key)


class ZipStore:
    """Keys are entries of a zip file (stored or deflated)."""

    def __init__(self, path: Path) -> None:
        self._file = File(path)
        self.root = path
        try:
            with zipfile.ZipFile(path) as archive:
                infos = [i for i in archive.infolist() if not i.is_dir()]
        except (zipfile.BadZipFile, OSError, NotImplementedError) as e:
            raise ImageError(f"{path} is a damaged zip file: {e}") from e
        self._entries = {i.filename: (i.header_offset, i.compress_type, i.compress_size, i.file_size) for i in infos}

    def stamp(self, key: str) -> tuple[int, int] | None:
        """Bytes under a key and when the zip was written; None where there is nothing."""
        entry = self._entries.get(key)
        return None if entry is None else (entry[3], self._file.stamp[1])

    def read(self, key: str, offset: int = 0, count: int | None = None) -> bytes:
        """Bytes under a key, or a part of them; deflated entries are inflated as a whole."""
        header, method, packed, full = self._entries[key]
        count = full - offset if count is None else count
        with self._file.opened() as handle:
            name, extra = struct.unpack_from("<HH", handle.read(header + 26, 4))
            start = header + 30 + name + extra
            if method == zipfile.ZIP_STORED:
                return handle.read(start + offset, count)
            if method != zipfile.ZIP_DEFLATED:
                raise ImageError(f"{self.name(key)} is packed with zip method {method}; only stored and deflated are read")
            data = handle.read(start, packed)
        try:
            inflated = zlib.decompressobj(-15).decompress(data, full)
        except zlib.error as e:
            raise ImageError(f"{self.name(key)} is damaged: {e}") from e
        if len(inflated) < full:
            raise ImageError(f"{self.name(key)} is damaged: {len(inflated):,} of {full:,} bytes")
        return inflated[offset:offset + count]

    def folders(self, key: str) -> list[str]:
        """Names directly below a key that may be groups or arrays."""
        inside = f"{key}/" if key else ""
        names = {e[len(inside):].partition("/")[0] for e in self._entries if e.startswith(inside) and "/" in e[len(inside):]}
        return sorted(names)

    def name(self, key: str) -> str:
        """A key for people."""
        return f"{self.root}:{key}"


Store = FolderStore | ZipStore
