"""The U-Net: sizes, exactness of its geometry, arguments."""

import pytest
import torch
from torch import nn

from hires.errors import ConfigError
from hires.models import UNet, build


@pytest.mark.parametrize("up", ["transpose", "nearest", "bilinear"])
@pytest.mark.parametrize("size", [(1, 1), (1, 37), (2, 3), (16, 16), (17, 31), (97, 45)])
def test_any_size_in_same_size_out(up: str, size: tuple[int, int]) -> None:
    net = UNet(3, 5, width=4, depth=4, norm="group", up=up)
    x = torch.randn(2, 3, *size, requires_grad=True)
    y = net(x)
    assert y.shape == (2, 5, *size)
    y.square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in net.parameters())
    # The last row and column are seen, not dropped by the pooling.
    assert x.grad is not None and x.grad[:, :, -1, -1].abs().sum() > 0


@pytest.mark.parametrize("norm", ["batch", "group", "instance", "none"])
def test_norms(norm: str) -> None:
    net = UNet(2, 3, width=4, depth=2, norm=norm)
    kinds = {type(m) for m in net.modules()}
    assert (nn.BatchNorm2d in kinds) == (norm == "batch")
    assert (nn.GroupNorm in kinds) == (norm == "group")
    assert (nn.InstanceNorm2d in kinds) == (norm == "instance")
    assert net(torch.randn(1, 2, 21, 18)).shape == (1, 3, 21, 18)


@pytest.mark.parametrize("up", ["transpose", "nearest", "bilinear"])
def test_an_odd_size_is_a_window_of_the_larger_one(up: str) -> None:
    """Cells of a level stay over the same cells of the image, whatever its size: far from the cut edge, the
    answer for the first 75 rows and 77 columns is that for the whole 128×128 image."""
    torch.manual_seed(0)
    net = UNet(1, 2, width=4, depth=2, norm="none", up=up).double()
    x = torch.randn(1, 1, 128, 128, dtype=torch.float64)
    part, whole = net(x[:, :, :75, :77]), net(x)
    assert (part - whole[:, :, :75, :77])[:, :, :40, :40].abs().max() < 1e-12
    assert (part - whole[:, :, :75, :77])[:, :, -1].abs().max() > 1e-6      # the edge does differ


def test_nearest_doubles_by_hand() -> None:
    net = UNet(1, 1, width=1, depth=1, norm="none", up="nearest")
    seen: list[torch.Tensor] = []
    net.merge[0].register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    low: list[torch.Tensor] = []
    net.down[1].register_forward_hook(lambda m, a, out: low.append(net.up[0].conv(out)))
    net(torch.randn(1, 1, 5, 4))
    rows, columns = torch.arange(5) // 2, torch.arange(4) // 2
    assert torch.equal(seen[0][:, 1:], low[0][:, :, rows][:, :, :, columns])


def test_depth_0_and_parameter_count() -> None:
    assert UNet(3, 2, width=4, depth=0)(torch.zeros(1, 3, 3, 5)).shape == (1, 2, 3, 5)
    # By hand, width 2, depth 1, one channel, no norm (3×3 with bias):
    # 20 + 38, 76 + 148, up 4·2·4 + 2 = 34, merge 74 + 38, head 2·2 + 2 = 6.
    assert sum(p.numel() for p in UNet(1, 2, width=2, depth=1, norm="none").parameters()) == 434


@pytest.mark.parametrize(("args", "said"), [
    ({"norm": "layer"}, "`norm` must be one of batch, group"),
    ({"up": "cubic"}, "`up` must be one of transpose"),
    ({"depth": -1}, "`depth` must be at least 0"),
    ({"width": 0}, "`width` must be at least 1"),
])
def test_wrong_arguments(args: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        build("hires:unet", in_channels=3, classes=2, **args)
