"""Models by name, as one would import them."""

import hashlib
import importlib
import importlib.util
import inspect
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn

from hires.errors import ConfigError
from hires.models.names import suggest
from hires.models.unet import UNet

OWN: dict[str, Callable[..., nn.Module]] = {"unet": UNet}
_FORMS = "torchvision:resnet18, hires:unet, my_package.nets:build or path/to/net.py:build"
# What Python says when a call doesn't fit a signature; other TypeErrors are faults inside of the model.
_MISFIT = re.compile(r"(unexpected keyword argument|missing \d+ required|multiple values for)")


def build(name: str, **args: Any) -> nn.Module:
    """The model that `name` stands for, made with `args`, with random weights.

    ======================== =================================================================
    ``torchvision:resnet18`` any name of ``torchvision.models.list_models()``; nothing is
                             downloaded unless `args` asks for weights
    ``hires:unet``           the models of this package
    ``my_package.nets:build`` any importable function or class that gives an `nn.Module`
    ``path/to/net.py:build`` the same, from a file (relative to the current folder); the file
                             is run
    ======================== =================================================================

    Raises:
        ConfigError: no such model, or arguments that it doesn't take; names what is near.
    """
    where, colon, what = name.rpartition(":")
    if not colon or not where or not what:
        raise ConfigError(f'model "{name}": expected a name such as {_FORMS}')
    if where == "hires":
        if what not in OWN:
            raise ConfigError(f'model "{name}": hires has no such model{suggest(what, OWN)}')
        factory = OWN[what]
    elif where == "torchvision":
        factory = _torchvision(name, what)
        for key in ("weights", "weights_backbone"):
            # torchvision's segmentation models download a backbone unless told not to.
            if key in inspect.signature(factory).parameters:
                args.setdefault(key, None)
    elif where.endswith(".py") or "/" in where or "\\" in where:
        factory = _attribute(name, _file(name, Path(where)), what)
    else:
        factory = _attribute(name, _module(name, where), what)
    return _make(name, factory, args)


def _torchvision(name: str, what: str) -> Callable[..., nn.Module]:
    import torchvision.models

    known = torchvision.models.list_models()
    if what not in known:
        raise ConfigError(f'model "{name}": torchvision has no such model{suggest(what, known)}')
    return torchvision.models.get_model_builder(what)


def _module(name: str, dotted: str) -> ModuleType:
    try:
        return importlib.import_module(dotted)
    except ModuleNotFoundError as e:
        if e.name is None or not (dotted == e.name or dotted.startswith(e.name + ".")):
            raise   # the module is there; something that it imports isn't
        raise ConfigError(f'model "{name}": no module {e.name} on Python\'s path; install it, or name its '
                          "file as in path/to/net.py:build") from None


def _file(name: str, path: Path) -> ModuleType:
    if not path.is_file() or path.suffix != ".py":
        raise ConfigError(f'model "{name}": no Python file {path} (in {Path.cwd()})')
    path = path.resolve()
    # One module a path: two files net.py must not replace each other.
    title = f"hires_file_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"
    spec = importlib.util.spec_from_file_location(title, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f'model "{name}": Python can\'t load {path}')
    module = importlib.util.module_from_spec(spec)
    sys.modules[title] = module     # dataclasses and pickle look a class's module up
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[title]
        raise
    return module


def _attribute(name: str, module: ModuleType, what: str) -> Callable[..., Any]:
    found = getattr(module, what, None)
    public = [k for k, v in vars(module).items() if callable(v) and not k.startswith("_")]
    where = module.__file__ or module.__name__
    if found is None:
        raise ConfigError(f'model "{name}": {where} has no {what}{suggest(what, public)}')
    if not callable(found):
        raise ConfigError(f'model "{name}": {what} in {where} is {type(found).__name__}, not a function or '
                          "class that gives a model")
    return found


def _make(name: str, factory: Callable[..., nn.Module], args: dict[str, Any]) -> nn.Module:
    try:
        inspect.signature(factory).bind(**args)
    except TypeError as e:
        known = [k for k in inspect.signature(factory).parameters]
        wrong = next((a for a in args if a not in known), None)
        hint = suggest(wrong, known) if wrong else f"; it takes {inspect.signature(factory)}"
        raise ConfigError(f'model "{name}": {e}{hint}') from None
    try:
        model = factory(**args)
    except TypeError as e:
        if not _MISFIT.search(str(e)):
            raise
        raise ConfigError(f'model "{name}": {e}') from e
    if not isinstance(model, nn.Module):
        raise ConfigError(f'model "{name}": gives {type(model).__name__}, not a torch.nn.Module')
    return model
