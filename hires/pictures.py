"""Small pictures for TensorBoard: input, target and prediction of one image."""

import colorsys
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from hires.classes import IGNORE
from hires.data import Sample
from hires.tiling.box import Box
from hires.tiling.image import Image
from hires.views import spatial_axes

_SIDE = {2: 512, 3: 48}     # pixels per axis of the piece shown, by number of spatial axes


def centre(image: Image) -> Box | None:
    """The middle piece of an image, over all its axes; None where there is no picture to show (1-D)."""
    side = _SIDE.get(len(spatial_axes(image)))
    if side is None:
        return None
    return tuple((0, n) if a == "c" else (max(0, (n - side) // 2), max(0, (n - side) // 2) + min(n, side))
                 for a, n in zip(image.axes, image.shape, strict=True))


def shown(values: NDArray, axes: str) -> NDArray[np.uint8]:
    """An input as (3, y, x): three channels or grey, stretched from the least value to the largest."""
    if "c" not in axes:
        values = values[None]
    values = values[:3] if values.shape[0] >= 3 else values[:1].repeat(3, 0)
    while values.ndim > 3:      # a volume: its middle slice
        values = values[:, values.shape[1] // 2]
    low, high = float(values.min()), float(values.max())
    return ((values.astype(np.float64) - low) / (high - low or 1) * 255).round().astype(np.uint8)


def coloured(numbers: NDArray, count: int) -> NDArray[np.uint8]:
    """Class numbers as (3, y, x): one colour a class, black where nothing counts."""
    while numbers.ndim > 2:
        numbers = numbers[numbers.shape[0] // 2]
    # Steps of the golden ratio around the colour wheel keep neighbours far apart for any number of classes.
    table = np.array([[round(255 * v) for v in colorsys.hsv_to_rgb(i * 0.618034 % 1, 0.65, 0.95)]
                      for i in range(count)] + [[0, 0, 0]], np.uint8)
    return np.moveaxis(table[np.where(numbers == IGNORE, count, numbers)], -1, 0)


@torch.no_grad()
def piece(sample: Sample, model: nn.Module, count: int) -> dict[str, NDArray[np.uint8]]:
    """Pictures of the middle piece: input and, for a mask, target and prediction.

    The prediction is that of the piece by itself, so near its edges it isn't the whole image's.
    """
    box = centre(sample.image)
    if box is None:
        return {}
    values = sample.image.read(box)
    pictures = {"input": shown(values, sample.image.axes)}
    if isinstance(sample.target, torch.Tensor):
        return pictures
    spatial = tuple(b for a, b in zip(sample.image.axes, box, strict=True) if a != "c")
    pictures["target"] = coloured(sample.target.read(spatial), count)
    parameter = next(model.parameters())
    batch = torch.from_numpy(np.ascontiguousarray(values)).to(parameter)
    batch = batch[None] if "c" in sample.image.axes else batch[None, None]
    training = model.training
    model.eval()
    try:
        output = first_tensor(model(batch))
    finally:
        model.train(training)
    predicted = (output[:, 0] > 0).long() if output.shape[1] == 1 else output.argmax(1)
    pictures["prediction"] = coloured(predicted[0].cpu().numpy(), count)
    return pictures


def first_tensor(output: Any) -> torch.Tensor:
    """The model's first output, also of those that give a dict or a tuple."""
    while not isinstance(output, torch.Tensor):
        output = next(iter(output.values() if isinstance(output, dict) else output))
    return output
