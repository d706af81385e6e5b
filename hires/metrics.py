"""Scores of a pass over images, summed up from tiles: whole numbers only, so no tiling changes them."""

from typing import Any

import torch
from torch import Tensor
from torchmetrics import MetricCollection
from torchmetrics.classification import (
    MulticlassAccuracy,
    MulticlassConfusionMatrix,
    MulticlassF1Score,
    MulticlassJaccardIndex,
)

from hires.errors import ConfigError

# Where higher is better; "loss" is the other way round.
SCORES = ("accuracy", "macro_f1", "mean_iou")


class Scores:
    """Accuracy, macro F1, IoU per class and confusion matrix; cells whose target is `ignore` don't count.

    An output of one channel is a logit of class 1 against class 0. Macro F1 and mean IoU are means over the
    classes that occur in targets or predictions.
    """

    def __init__(self, names: list[str], ignore: int, device: torch.device) -> None:
        """`names`: the K classes in order."""
        self.names, self.ignore = names, ignore
        count = len(names)
        self._metrics = MetricCollection({
            "accuracy": MulticlassAccuracy(count, average="micro", validate_args=False),
            "macro_f1": MulticlassF1Score(count, average="macro", validate_args=False),
            "iou": MulticlassJaccardIndex(count, average="none", validate_args=False),
            "confusion": MulticlassConfusionMatrix(count, validate_args=False),
        }).to(device)
        self.cells = 0

    def update(self, output: Tensor, target: Tensor) -> None:
        """Add a tile: `output` (N, K or 1, *spatial) or (N, K) logits, `target` (N, *spatial) or (N,) int."""
        predicted, target = self._classes(output, target)
        valid = target != self.ignore
        predicted, target = predicted[valid], target[valid].long()
        if target.numel():      # the metrics refuse an update with nothing in it
            self._metrics.update(predicted, target)
            self.cells += target.numel()

    def _classes(self, output: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        channels = output.shape[1]
        if channels == 1 and len(self.names) == 2:
            predicted = (output[:, 0] > 0).long()
        elif channels == len(self.names):
            predicted = output.argmax(1)
        else:
            raise ConfigError(wrong_channels(channels, self.names))
        return predicted, target.reshape(predicted.shape)

    def compute(self) -> dict[str, Any]:
        """Plain numbers: accuracy, macro_f1, mean_iou, iou {class: value or None if absent}, confusion [[…]].

        Row of the confusion matrix: the true class; column: the predicted one. Empty where nothing counted.
        """
        if not self.cells:
            return {}
        values = self._metrics.compute()
        confusion = values["confusion"].long().cpu()
        present = (confusion.sum(0) + confusion.sum(1)) > 0
        iou = values["iou"].double().cpu()
        return {
            "accuracy": float(values["accuracy"]),
            "macro_f1": float(values["macro_f1"]),
            "mean_iou": float(iou[present].mean()),
            "iou": {name: float(v) if there else None
                    for name, v, there in zip(self.names, iou, present.tolist(), strict=True)},
            "confusion": confusion.tolist(),
        }


def wrong_channels(channels: int, names: list[str]) -> str:
    """What to say when the model's output doesn't fit the classes."""
    shown = ", ".join(names[:12]) + (", …" if len(names) > 12 else "")
    return (f"[model] gives {channels} output channels, but there are {len(names)} classes ({shown}): "
            f"set the number of classes in [model.args]")
