"""Models by name: the four forms, and what is said when a name is wrong."""

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from hires.errors import ConfigError
from hires.models import UNet, build

NET = '''
import dataclasses
import torch

@dataclasses.dataclass
class Shape:            # a dataclass looks its own module up in sys.modules
    width: int = 3

def build(width: int = Shape().width):
    return torch.nn.Conv2d(3, width, 1)

def number():
    return 7

def broken():
    return len(5)

limit = 4
'''


def test_torchvision_without_download(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("must not download")
    monkeypatch.setattr(torch.hub, "load_state_dict_from_url", refuse)
    monkeypatch.setattr("torchvision.models._api.load_state_dict_from_url", refuse)
    net = build("torchvision:resnet18", num_classes=7)
    assert net(torch.zeros(1, 3, 33, 35)).shape == (1, 7)
    # Its own default asks for a trained backbone.
    assert isinstance(build("torchvision:lraspp_mobilenet_v3_large", num_classes=3), nn.Module)


def test_own() -> None:
    net = build("hires:unet", in_channels=1, classes=4, width=4)
    assert isinstance(net, UNet)


def test_module() -> None:
    net = build("torch.nn:Conv2d", in_channels=1, out_channels=2, kernel_size=3)
    assert isinstance(net, nn.Conv2d)


def test_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "net.py").write_text(NET)
    (tmp_path / "net.py").write_text(NET.replace("width: int = 3", "width: int = 9"))
    monkeypatch.chdir(tmp_path)
    first, second = build("a/net.py:build"), build("net.py:build")
    assert (first.out_channels, second.out_channels) == (3, 9)
    assert build(f"{tmp_path}/net.py:build", width=5).out_channels == 5
    assert "net" not in sys.modules


def test_a_file_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text("1 / 0")
    before = set(sys.modules)
    with pytest.raises(ZeroDivisionError):
        build(f"{tmp_path}/net.py:build")
    assert not {m for m in set(sys.modules) - before if m.startswith("hires_file_")}


@pytest.mark.parametrize(("name", "args", "said"), [
    ("resnet18", {}, "expected a name such as torchvision:resnet18"),
    (":unet", {}, "expected a name such as"),
    ("hires:", {}, "expected a name such as"),
    ("torchvision:resnet19", {}, "did you mean resnet18"),
    ("hires:Unet", {}, "did you mean unet"),
    ("hires:unet", {"in_channels": 3}, "missing a required argument: 'classes'"),
    ("hires:unet", {"in_channels": 3, "classes": 2, "wdth": 3}, "did you mean width"),
    ("torchvision:resnet18", {"num_clases": 3}, "unexpected keyword argument 'num_clases'"),
    ("no_such_package.nets:build", {}, "no module no_such_package on Python's path"),
    ("torch.nm:Conv2d", {}, "no module torch.nm"),
    ("torch.nn:Conv2", {}, "did you mean .*Conv2d"),
    ("FILE:bild", {}, "has no bild; did you mean build"),
    ("FILE:limit", {}, "limit in .* is int, not a function"),
    ("FILE:number", {}, "gives int, not a torch.nn.Module"),
    ("nowhere/net.py:build", {}, "no Python file nowhere/net.py"),
    ("nowhere/net:build", {}, "no Python file nowhere/net"),
])
def test_wrong_names(name: str, args: dict[str, object], said: str, tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(NET)
    with pytest.raises(ConfigError, match=said):
        build(name.replace("FILE", f"{tmp_path}/net.py"), **args)


def test_a_fault_inside_the_model_is_not_called_a_wrong_argument(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(NET)
    with pytest.raises(TypeError, match="has no len"):
        build(f"{tmp_path}/net.py:broken")


def test_what_the_module_itself_lacks_is_shown_as_it_is(tmp_path: Path,
                                                        monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "wants_more_3f1.py").write_text("import no_such_thing_3f1")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="no_such_thing_3f1"):
        build("wants_more_3f1:build")
