"""U-Net for images of any size.

Ronneberger, Fischer, Brox 2015, https://arxiv.org/abs/1505.04597, with padded convolutions (the output has
the size of the input) and a norm after each.
"""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hires.errors import ConfigError

NORMS = ("batch", "group", "instance", "none")
UPS = ("transpose", "nearest", "bilinear")


class UNet(nn.Module):
    """Per-pixel scores from an image.

    `forward(x)` takes (N, in_channels, H, W), any H, W ≥ 1, and gives raw scores (N, classes, H, W) of the
    same dtype. Level i has ``width · 2**i`` channels and the size ⌈H / 2**i⌉ × ⌈W / 2**i⌉: pooling keeps the
    last odd row and column, and going up, the doubled map is cropped to its skip. So cell (y, x) of a level
    stands over cells 2y, 2y + 1 and 2x, 2x + 1 of the one above, whatever the size of the image.

    Training with ``norm="instance"``, or with "batch" and one image at a time, PyTorch refuses a level of one
    cell: the image must be larger than 2**depth along one axis.

    Args:
        in_channels: channels of the input, ≥ 1.
        classes: channels of the output, ≥ 1.
        width: channels at full resolution, ≥ 1.
        depth: how often the size is halved, ≥ 0.
        norm: "batch", "group" (groups of 8 channels, or one group where that doesn't divide), "instance" or
            "none".
        up: "transpose" (2×2 transposed convolution), or "nearest" or "bilinear" doubling after a 1×1
            convolution.

    Raises:
        ConfigError: an argument outside of what is listed.
    """

    def __init__(self, in_channels: int, classes: int, width: int = 16, depth: int = 4,
                 norm: Literal["batch", "group", "instance", "none"] = "batch",
                 up: Literal["transpose", "nearest", "bilinear"] = "transpose") -> None:
        super().__init__()
        for name, value, least in (("in_channels", in_channels, 1), ("classes", classes, 1),
                                   ("width", width, 1), ("depth", depth, 0)):
            if value < least:
                raise ConfigError(f"UNet: `{name}` must be at least {least}, not {value}")
        for name, word, known in (("norm", norm, NORMS), ("up", up, UPS)):
            if word not in known:
                raise ConfigError(f"UNet: `{name}` must be one of {', '.join(known)}, not {word!r}")
        widths = [width * 2**i for i in range(depth + 1)]
        self.down = nn.ModuleList(
            [_block(a, b, norm) for a, b in zip([in_channels, *widths[:-1]], widths, strict=True)])
        self.up = nn.ModuleList([_Up(2 * w, w, up) for w in reversed(widths[:-1])])
        self.merge = nn.ModuleList([_block(2 * w, w, norm) for w in reversed(widths[:-1])])
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        skips: list[Tensor] = []
        for i, block in enumerate(self.down):
            if i:
                # ceil_mode, or the last row of an odd size would be dropped and a size of 1 would become 0.
                x = F.max_pool2d(x, 2, ceil_mode=True)
            x = block(x)
            skips.append(x)
        skips.pop()
        for up, merge in zip(self.up, self.merge, strict=True):
            skip = skips.pop()
            x = up(x)[:, :, :skip.shape[2], :skip.shape[3]]
            x = merge(torch.cat([skip, x], 1))
        return self.head(x)


class _Up(nn.Module):
    """(N, a, h, w) -> (N, b, 2h, 2w)."""

    def __init__(self, a: int, b: int, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.conv: nn.Module = nn.ConvTranspose2d(a, b, 2, 2) if kind == "transpose" else nn.Conv2d(a, b, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x)
        # Double, never "to the skip's size": with an odd size that is a factor just below 2, which shifts
        # everything a little, and float32 can't even tell whose cell it is in a row of 10,000.
        if self.kind == "nearest":
            return F.interpolate(x, scale_factor=2.0, mode="nearest")
        if self.kind == "bilinear":
            return F.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=False)
        return x


def _block(a: int, b: int, norm: str) -> nn.Sequential:
    layers: list[nn.Module] = []
    for i, o in ((a, b), (b, b)):
        # A norm takes the mean away, so a bias before it would never learn.
        layers += [nn.Conv2d(i, o, 3, padding=1, bias=norm == "none"), *_norm(norm, o), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers)


def _norm(kind: str, channels: int) -> list[nn.Module]:
    if kind == "batch":
        return [nn.BatchNorm2d(channels)]
    if kind == "group":
        return [nn.GroupNorm(channels // 8 if channels % 8 == 0 else 1, channels)]
    if kind == "instance":
        return [nn.InstanceNorm2d(channels, affine=True)]
    return []
