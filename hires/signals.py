"""Leaving on Ctrl-C, SIGTERM and the batch system's warnings: after the image, with everything saved."""

import os
import signal
from collections.abc import Callable
from types import FrameType
from typing import Any

# Exit code for each: 128 + number for the two that everybody knows; 75 (EX_TEMPFAIL: "try again") for those
# that batch systems send some time before the limit.
CODES = {"SIGINT": 130, "SIGTERM": 143, "SIGUSR1": 75, "SIGUSR2": 75}


class Stop:
    """Context: the first signal sets `code` and says so; a second one leaves at once.

    Leaving at once is safe: files are written aside and renamed.
    """

    def __init__(self, last_words: Callable[[], str]) -> None:
        """`last_words`: what to say when leaving at once."""
        self.code: int | None = None
        self._last_words = last_words
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "Stop":
        for name in CODES:
            number = getattr(signal, name, None)    # Windows has no SIGUSR1
            if number is not None:
                self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def __bool__(self) -> bool:
        return self.code is not None

    def _handle(self, number: int, frame: FrameType | None) -> None:
        name = signal.Signals(number).name
        if self.code is not None and CODES[name] != 75:
            _say(f"{name} again: leaving at once. {self._last_words()}")
            os._exit(CODES[name])   # not sys.exit: nothing may wait for the step that is running
        if self.code is None:
            self.code = CODES[name]
            _say(f"{name}: finishing this image, then saving; again to leave at once")


def _say(line: str) -> None:
    # Straight to the descriptor: a handler may have interrupted a write to sys.stderr.
    os.write(2, f"\r{line}\n".encode())
