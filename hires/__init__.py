"""Train ordinary convolutional networks on full-resolution images, exactly, in the memory you have."""

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

# A checkout keeps models/, tiling/ and jobs/ beside hires/; a wheel has them inside it.
_here = Path(__file__).parent
if not (_here / "models").is_dir():
    __path__.append(str(_here.parent))

__version__ = "0.1.0"

# Public names and where they live; loaded on first use, so that `import hires` (and `hires convert`)
# need not wait for torch.
_PUBLIC = {
    "BudgetError": "hires.errors",
    "ConfigError": "hires.errors",
    "DataError": "hires.errors",
    "HiresError": "hires.errors",
    "Plan": "hires.plan",
    "Streamed": "hires.stream",
    "UnsupportedError": "hires.errors",
    "convert": "hires.tiling.convert",
    "open_image": "hires.tiling.image",
    "stream": "hires.stream",
}

__all__ = sorted([*_PUBLIC, "__version__"])

if TYPE_CHECKING:
    from hires.errors import BudgetError, ConfigError, DataError, HiresError, UnsupportedError
    from hires.plan import Plan
    from hires.stream import Streamed, stream
    from hires.tiling.convert import convert
    from hires.tiling.image import open_image


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        value = getattr(import_module(_PUBLIC[name]), name)
        # Also where a module of the same name (hires.stream) was bound as an attribute by the import above.
        globals()[name] = value
        return value
    raise AttributeError(f"module 'hires' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
