"""Losses for segmentation and tagging, made of pointwise operators and sums, so that they stream exactly.

All take raw scores (N, C, *spatial) of a floating dtype and give one number, or with ``reduction="none"`` one
a pixel. *Valid* pixels are those whose target isn't `ignore_index`; others add neither to the loss nor to the
gradient. Where no pixel is valid the loss is 0 with zero gradients: PyTorch's mean of nothing is NaN, which
one empty image would carry into every weight.
"""

import inspect
from collections.abc import Sequence
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hires.errors import ConfigError
from hires.models.names import suggest

Reduction = Literal["mean", "sum", "none"]
Weights = Sequence[float] | Tensor


class CrossEntropy(nn.Module):
    """Softmax cross entropy; equal to `torch.nn.CrossEntropyLoss` where that isn't NaN.

    `forward(output, target)`: output (N, C, *spatial); target (N, *spatial), whole numbers 0 … C-1 or
    `ignore_index`.

    Args:
        weight: one factor a class; "mean" divides by the sum of the valid pixels' factors, as PyTorch does.
        ignore_index: the target value that counts for nothing.
        label_smoothing: 0 … 1, the share of the target that is spread over all classes.
        reduction: "mean", "sum" or "none".
    """

    weight: Tensor | None

    def __init__(self, weight: Weights | None = None, ignore_index: int = -100, label_smoothing: float = 0.0,
                 reduction: Reduction = "mean") -> None:
        super().__init__()
        _check("CrossEntropy", reduction)
        if not 0 <= label_smoothing <= 1:
            raise ConfigError(f"CrossEntropy: `label_smoothing` must be within 0 … 1, not {label_smoothing}")
        self.register_buffer("weight", _vector("CrossEntropy", "weight", weight), persistent=False)
        self.ignore_index, self.label_smoothing, self.reduction = ignore_index, label_smoothing, reduction

    def forward(self, output: Tensor, target: Tensor) -> Tensor:
        target = _ids("CrossEntropy", output, target)
        weight = None if self.weight is None else self.weight.to(output.dtype)
        each = F.cross_entropy(output, target, weight, ignore_index=self.ignore_index, reduction="none",
                               label_smoothing=self.label_smoothing)
        if self.reduction != "mean":
            return each if self.reduction == "none" else each.sum()
        valid = target != self.ignore_index
        if weight is None:
            return _ratio(each.sum(), valid.sum())
        share = F.embedding(torch.where(valid, target, 0), weight.unsqueeze(1)).squeeze(-1)
        return _ratio(each.sum(), torch.where(valid, share, 0).sum())


class BCEWithLogits(nn.Module):
    """Sigmoid cross entropy, each channel a yes or no of its own.

    `forward(output, target)`: output (N, C, *spatial) or (N, C); target the same shape, or (N, *spatial)
    where C is 1; values 0 … 1 of any dtype, or `ignore_index`.

    Args:
        pos_weight: factor of the positive part, one number or one a channel.
        ignore_index: the target value that counts for nothing; None: all count.
        reduction: "mean" (over valid pixels and channels), "sum" or "none".
    """

    pos_weight: Tensor | None

    def __init__(self, pos_weight: float | Weights | None = None, ignore_index: int | None = None,
                 reduction: Reduction = "mean") -> None:
        super().__init__()
        _check("BCEWithLogits", reduction)
        if isinstance(pos_weight, (int, float)):
            pos_weight = [float(pos_weight)]
        factors = _vector("BCEWithLogits", "pos_weight", pos_weight)
        self.register_buffer("pos_weight", factors, persistent=False)
        self.ignore_index, self.reduction = ignore_index, reduction

    def forward(self, output: Tensor, target: Tensor) -> Tensor:
        if output.dim() == target.dim() + 1 and output.shape[1] == 1:
            target = target.unsqueeze(1)
        if output.shape != target.shape:
            raise ConfigError(f"BCEWithLogits: the output has shape {tuple(output.shape)} but the target "
                              f"{tuple(target.shape)}: they must be equal")
        pos = None
        if self.pos_weight is not None:
            pos = self.pos_weight.to(output.dtype).view(-1, *[1] * (output.dim() - 2))
        if self.ignore_index is None:
            each = F.binary_cross_entropy_with_logits(output, target.to(output.dtype), pos_weight=pos,
                                                      reduction="none")
            return _reduce(each, None, self.reduction)
        valid = target != self.ignore_index
        each = F.binary_cross_entropy_with_logits(output, torch.where(valid, target, 0).to(output.dtype),
                                                  pos_weight=pos, reduction="none")
        return _reduce(each, valid, self.reduction)


class Focal(nn.Module):
    """Cross entropy times (1 - p)**gamma, p being the true class's probability: easy pixels count less.

    Lin, Goyal, Girshick, He, Dollár 2017, https://arxiv.org/abs/1708.02002. Softmax over the channels; where
    C is 1, sigmoid of the one channel, and the target says 0 or 1.

    `forward(output, target)`: output (N, C, *spatial); target (N, *spatial), whole numbers or `ignore_index`.

    Args:
        gamma: ≥ 0; 0 is cross entropy.
        alpha: one factor a class (two of them where C is 1); "mean" divides by the number of valid pixels,
            whatever alpha.
        ignore_index: the target value that counts for nothing.
        reduction: "mean", "sum" or "none".
    """

    alpha: Tensor | None

    def __init__(self, gamma: float = 2.0, alpha: Weights | None = None, ignore_index: int = -100,
                 reduction: Reduction = "mean") -> None:
        super().__init__()
        _check("Focal", reduction)
        if gamma < 0:
            raise ConfigError(f"Focal: `gamma` must be at least 0, not {gamma}")
        self.register_buffer("alpha", _vector("Focal", "alpha", alpha), persistent=False)
        self.gamma, self.ignore_index, self.reduction = gamma, ignore_index, reduction

    def forward(self, output: Tensor, target: Tensor) -> Tensor:
        target = _ids("Focal", output, target)
        valid = target != self.ignore_index
        if output.shape[1] == 1:
            truth = torch.where(valid, target, 0).to(output.dtype)
            each = F.binary_cross_entropy_with_logits(output.squeeze(1), truth, reduction="none")
        else:
            each = F.cross_entropy(output, target, ignore_index=self.ignore_index, reduction="none")
        # 1 - p, not cancelling where p is near 1; at 0 the slope of a power below 1 is infinite.
        miss = -torch.expm1(-each)
        loss = miss.clamp(min=torch.finfo(each.dtype).tiny).pow(self.gamma) * each
        if self.alpha is not None:
            factor = self.alpha.to(output.dtype).unsqueeze(1)
            loss = loss * F.embedding(torch.where(valid, target, 0), factor).squeeze(-1)
        return _reduce(loss, valid, self.reduction)


class Dice(nn.Module):
    """1 - the soft Dice score 2 Σ p·y / (Σ p + Σ y), the mean over images and classes.

    Milletari, Navab, Ahmadi 2016, https://arxiv.org/abs/1606.04797, without the squares. The sums run over
    the valid pixels of one image. Softmax over the channels; where C is 1, sigmoid of the one channel.

    `forward(output, target)`: output (N, C, *spatial); target (N, *spatial), whole numbers or `ignore_index`.

    Args:
        smooth: ≥ 0, added above and below (in pixels): a class that is neither there nor found scores 1,
            not 0/0.
        ignore_index: the target value that counts for nothing.
        background: whether class 0 counts; only for C > 1.
        reduction: "mean" or "sum" over images and classes, or "none": (N, classes counted).
    """

    def __init__(self, smooth: float = 1.0, ignore_index: int = -100, background: bool = True,
                 reduction: Reduction = "mean") -> None:
        super().__init__()
        _check("Dice", reduction)
        if smooth < 0:
            raise ConfigError(f"Dice: `smooth` must be at least 0, not {smooth}")
        self.smooth, self.ignore_index = smooth, ignore_index
        self.background, self.reduction = background, reduction

    def forward(self, output: Tensor, target: Tensor) -> Tensor:
        target = _ids("Dice", output, target).unsqueeze(1)
        valid = target != self.ignore_index
        classes = output.shape[1]
        first = 1 if classes == 1 else 0
        p = output.sigmoid() if classes == 1 else output.softmax(1)
        ids = torch.arange(first, first + classes, device=output.device)
        ids = ids.view(1, -1, *[1] * (output.dim() - 2))
        y = target == ids                                           # (N, C, *spatial)
        p = torch.where(valid, p, 0)
        space = list(range(2, output.dim()))
        both = torch.where(y, p, 0).sum(space)                      # (N, C)
        total = p.sum(space) + y.sum(space)
        below = total + self.smooth
        score = torch.where(below > 0, (2 * both + self.smooth) / torch.where(below > 0, below, 1), 1)
        if classes > 1 and not self.background:
            score = score[:, 1:]
        loss = 1 - score
        return {"mean": loss.mean, "sum": loss.sum, "none": lambda: loss}[self.reduction]()


LOSSES: dict[str, type[nn.Module]] = {k.__name__: k for k in (CrossEntropy, BCEWithLogits, Focal, Dice)}


def build(name: str, **args: Any) -> nn.Module:
    """The loss of that name (a class of this module), made with `args`.

    Raises:
        ConfigError: no such loss, or arguments that it doesn't take; names what is near.
    """
    if name not in LOSSES:
        raise ConfigError(f'loss "{name}": hires has no such loss{suggest(name, LOSSES)}')
    known = list(inspect.signature(LOSSES[name]).parameters)
    for key in args:
        if key not in known:
            raise ConfigError(f'loss "{name}": no argument {key}{suggest(key, known)}')
    return LOSSES[name](**args)


def _ratio(top: Tensor, bottom: Tensor) -> Tensor:
    """top / bottom, and 0 with zero gradient for 0 / 0 (top is then a sum of zeros)."""
    return top / torch.where(bottom == 0, 1, bottom).to(top.dtype)


def _reduce(each: Tensor, valid: Tensor | None, reduction: str) -> Tensor:
    if valid is not None:
        each = torch.where(valid, each, 0)
    if reduction == "none":
        return each
    if reduction == "sum":
        return each.sum()
    return each.mean() if valid is None else _ratio(each.sum(), valid.sum())


def _ids(loss: str, output: Tensor, target: Tensor) -> Tensor:
    """Class ids as int64, of the shape that the output wants."""
    if target.is_floating_point():
        raise ConfigError(f"{loss}: the target holds class ids, so it must be of a whole-number dtype, "
                          f"not {target.dtype}")
    want = (output.shape[0], *output.shape[2:])
    if tuple(target.shape) != want:
        raise ConfigError(f"{loss}: for an output of shape {tuple(output.shape)} the target must have shape "
                          f"{want}, not {tuple(target.shape)}")
    return target.long()


def _check(loss: str, reduction: str) -> None:
    if reduction not in ("mean", "sum", "none"):
        raise ConfigError(f'{loss}: `reduction` must be "mean", "sum" or "none", not {reduction!r}')


def _vector(loss: str, name: str, values: Weights | None) -> Tensor | None:
    if values is None:
        return None
    dtype = torch.float64 if isinstance(values, Sequence) else None
    vector = torch.as_tensor(values, dtype=dtype).detach().clone()
    if vector.dim() != 1 or not bool((vector >= 0).all()) or not bool(vector.isfinite().all()):
        raise ConfigError(f"{loss}: `{name}` must be a list of finite numbers ≥ 0, not {values}")
    return vector
