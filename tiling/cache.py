"""Decoded pieces of files, kept for a while: neighbouring boxes often need the same tile or strip."""

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable

from numpy.typing import NDArray

LIMIT = 64 * 2**20      # bytes; per process, however many images are open


class PieceCache:
    """The pieces used last, up to `limit` bytes in all (the last one is kept even if it is larger)."""

    def __init__(self, limit: int = LIMIT) -> None:
        self.limit = limit
        self._pieces: OrderedDict[Hashable, NDArray] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def get(self, key: Hashable, make: Callable[[], NDArray]) -> NDArray:
        """The piece of that key, made by `make` where it isn't held; read-only, shared between callers.

        Two threads that miss at once both make it: cheaper than holding the lock while decoding.
        """
        with self._lock:
            piece = self._pieces.get(key)
            if piece is not None:
                self._pieces.move_to_end(key)
                return piece
        piece = make()
        piece.setflags(write=False)
        with self._lock:
            before = self._pieces.pop(key, None)
            if before is not None:
                self._bytes -= before.nbytes
            self._pieces[key] = piece
            self._bytes += piece.nbytes
            while self._bytes > self.limit and len(self._pieces) > 1:
                self._bytes -= self._pieces.popitem(last=False)[1].nbytes
        return piece

    def clear(self) -> None:
        """Let go of everything."""
        with self._lock:
            self._pieces.clear()
            self._bytes = 0


pieces = PieceCache()

if hasattr(os, "register_at_fork"):
    # Another thread may have held the lock at the moment of the fork; nobody would release it in the child.
    os.register_at_fork(after_in_child=lambda: pieces.__init__(pieces.limit))
