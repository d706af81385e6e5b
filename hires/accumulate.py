"""Several images, one gradient: k images one after another count as k images in one batch.

A mean loss is S/W: S the sum over what counts, W its weight (number of valid pixels, or the sum of their
class weights). A batch of k images has the loss ΣS/ΣW, not the mean of the S/W. So each image's gradient g
(of S/W) is added up as W·g, and the sum is divided by ΣW before the optimizer steps. W is known after the
forward pass, from the number of cells of each class that the pass has seen: whole numbers, so no tiling
changes it. W is taken relative to the first image's: a single image's gradient is then exactly the plain one.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from hires.errors import ConfigError

_BY_CLASS = {"CrossEntropy", "CrossEntropyLoss", "NLLLoss"}
_BY_PIXEL = {"BCEWithLogits", "BCEWithLogitsLoss", "Focal", "MSELoss", "L1Loss", "SmoothL1Loss"}


class Weigher:
    """Counts the cells of each class during a forward pass, and says what the pass weighs."""

    def __init__(self, criterion: nn.Module, rule: str, classes: int, ignore: int) -> None:
        """`rule`: auto, pixels, images or sum, as [loss] weigh. ConfigError where auto can't tell."""
        self.rule = _rule(criterion, rule)
        self._ignore = ignore
        weight = getattr(criterion, "weight", None) if self.rule == "classes" else None
        self._weight = weight.detach().double().cpu() if weight is not None else None
        self.counts = torch.zeros(classes, dtype=torch.int64)
        self.images = 0

    def start(self, images: int) -> None:
        """Begin a forward pass of so many images."""
        self.counts.zero_()
        self.images = images

    def update(self, target: Tensor) -> None:
        """Add a tile of the target, (N, *spatial) or (N,) class numbers."""
        cells = target[target != self._ignore].reshape(-1).long()
        self.counts += torch.bincount(cells, minlength=len(self.counts)).cpu()

    @property
    def weight(self) -> float:
        """W of the pass; 0 where nothing counts."""
        if self.rule == "images":
            return float(self.images)
        if self.rule == "sum":
            return float(self.counts.sum() > 0)
        if self._weight is not None:
            return float((self.counts * self._weight).sum())
        return float(self.counts.sum())


def _rule(criterion: nn.Module, rule: str) -> str:
    """classes, pixels, images or sum."""
    name, reduction = type(criterion).__name__, getattr(criterion, "reduction", "mean")
    if reduction == "sum":
        return "sum"
    if rule != "auto":
        return rule
    if reduction == "mean" and name in _BY_CLASS:
        return "classes"
    if reduction == "mean" and name in _BY_PIXEL:
        return "pixels"
    raise ConfigError(
        f"[loss] weigh: how images accumulated with {name} are to be weighed isn't known; say "
        '"pixels" (a mean over valid pixels), "images" (a mean over images) or "sum"')


@dataclass
class Group:
    """The forwards since the last optimizer step. All of it is part of a checkpoint."""

    passes: int = 0
    reference: float = 0.0      # weight of the first pass that has one
    weight: float = 0.0         # ΣW, relative to the reference
    loss: float = 0.0           # ΣW·loss, relative to the reference
    empty: int = 0              # passes in which nothing counted
    rows: list[int] = field(default_factory=list)

    def add(self, loss: Tensor, weight: float, rows: Iterable[int]) -> float:
        """Back-propagate one pass; returns its loss. A pass in which nothing counts adds nothing."""
        self.passes += 1
        self.rows += rows
        if not weight:
            self.empty += 1
            return 0.0      # mean over nothing: 0/0, and no gradient
        self.reference = self.reference or weight
        relative = weight / self.reference
        (loss if relative == 1 else loss * relative).backward()
        value = float(loss.detach())
        self.weight += relative
        self.loss += relative * value
        return value

    def finish(self, parameters: Iterable[nn.Parameter], mean: bool) -> float:
        """Turn the summed gradients into those of one batch; returns the batch's loss.

        `mean` False (a loss that is a sum): nothing is divided. Parameters without a gradient get zeros if
        the whole group counted for nothing, as a batch of such images would give them.
        """
        total = self.weight if mean else 1.0
        for p in parameters:
            if not self.weight and p.requires_grad and p.grad is None:
                p.grad = torch.zeros_like(p)
            elif p.grad is not None and total != 1:
                p.grad.div_(total)
        return self.loss / total if self.weight else 0.0
