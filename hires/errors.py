"""Errors meant for the person at the keyboard.

    HiresError (ValueError)          one clear message; the command line prints it and exits with 2
    ├── ImageError                   a file that can't be read, or isn't what it should be
    ├── ConfigError                  a run file with a wrong key or value
    ├── DataError                    a manifest row, a mask or a class id that doesn't fit
    ├── UnsupportedError             a layer that can't be streamed exactly
    └── BudgetError                  the step doesn't fit into the memory given
"""


class HiresError(ValueError):
    """Base of every error that names what was wrong, where, and what to do."""


class ConfigError(HiresError):
    """A run file (TOML) with an unknown key or a wrong value."""


class DataError(HiresError):
    """Training data that doesn't fit together: missing files, sizes, class ids."""


class UnsupportedError(HiresError):
    """A layer that hires can't run exactly; the message names its module path and operator."""


class BudgetError(HiresError):
    """A step that doesn't fit into the budget; `smallest` is the least budget (bytes) that would do."""

    def __init__(self, message: str, smallest: int | None = None) -> None:
        super().__init__(message)
        self.smallest = smallest
