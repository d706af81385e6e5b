"""Validation: every image once, unturned, its loss and scores summed up tile by tile."""

import time
from typing import Any

import torch
from torch import Tensor

from hires import pictures
from hires.accumulate import Weigher
from hires.classes import IGNORE
from hires.data import Sample
from hires.errors import DataError
from hires.log import Board, Reporter
from hires.metrics import Scores
from hires.setup import Parts
from hires.signals import Stop


class Passes:
    """Forward passes of a streamed step, with what its observers see: the weight of the loss, and scores."""

    def __init__(self, parts: Parts, weigh: str) -> None:
        """`weigh` as [loss] weigh. The streamed step is set as `step` once it's made with `observe`."""
        self.parts = parts
        self.weigher = Weigher(parts.criterion, weigh, len(parts.classes.names), IGNORE)
        self.scores: Scores | None = None
        self.step: Any = None

    def observe(self, output: Tensor, target: Tensor) -> None:
        """Called by the engine with each tile of output and target, each cell once."""
        self.weigher.update(target)
        if self.scores is not None:
            self.scores.update(output, target)

    def forward(self, samples: list[Sample]) -> Tensor:
        """Loss of a batch of images, which must have one size (else DataError)."""
        first = samples[0]
        for other in samples[1:]:
            if other.image.shape != first.image.shape:
                raise DataError(
                    f"[train] batch: images of one batch must have one size, but {first.row.image} is "
                    f"{first.image.shape} and {other.row.image} is {other.image.shape} ({other.image.axes}, "
                    f"after crop and turns); batch = 1, accumulate = {len(samples)} give the same gradient")
        if isinstance(first.target, Tensor):
            target: Any = torch.cat([s.target for s in samples]).to(self.parts.device)
        else:
            target = first.target if len(samples) == 1 else [s.target for s in samples]
        self.weigher.start(len(samples))
        return self.step(first.image if len(samples) == 1 else [s.image for s in samples], target)


@torch.no_grad()
def validate(passes: Passes, stop: Stop, reporter: Reporter, what: str) -> dict[str, Any] | None:
    """Loss and scores over the validation images, and how many there were; None if a signal came."""
    data = passes.parts.val
    passes.scores = Scores(passes.parts.classes.names, IGNORE, passes.parts.device)
    total = weight = 0.0
    empty = 0
    passes.step.eval()
    try:
        for index in range(len(data)):
            if stop:
                return None
            began = time.monotonic()
            sample = data.sample(index, None)
            loss, heavy = passes.forward([sample]), passes.weigher.weight
            if heavy:       # where nothing counts a mean loss may be 0/0
                total += heavy * float(loss)
                weight += heavy
            empty += not heavy
            reporter.image(what, index + 1, len(data), None, time.monotonic() - began, sample.pixels, 1,
                           float(loss) if heavy else None)
        loss = total / weight if weight else None
        return {"loss": loss, "images": len(data), "empty": empty, **passes.scores.compute()}
    finally:
        passes.scores = None
        passes.step.train()


def show(passes: Passes, board: Board, count: int, step: int) -> None:
    """Pictures of the first `count` validation images for TensorBoard."""
    parts = passes.parts
    for index in range(min(count, len(parts.val))):
        shown = pictures.piece(parts.val.sample(index, None), parts.model, len(parts.classes.names))
        for name, picture in shown.items():
            board.image(f"validation_{index}/{name}", picture, step)
