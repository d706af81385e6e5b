"""From a checked run file to the things that train: data, model, loss, all checked against each other."""

import copy
import inspect
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import nn

from hires import checkpoint, folder
from hires.classes import IGNORE, ClassMap, balanced
from hires.config import Config
from hires.data import Dataset, Header, Sample, summary
from hires.errors import ConfigError, DataError
from hires.manifest import collect
from hires.metrics import wrong_channels
from hires.models import build as build_model
from hires.models import losses
from hires.optimize import state_bytes
from hires.pictures import first_tensor
from hires.stream import stream


@dataclass(frozen=True)
class Parts:
    """What a run is made of. `unused`: rows of the manifest that are for neither training nor validation."""

    train: Dataset
    val: Dataset
    train_headers: list[Header]
    val_headers: list[Header]
    unused: int
    classes: ClassMap
    model: nn.Module
    criterion: nn.Module
    class_weights: list[float] | None
    device: torch.device
    dtype: torch.dtype

    @property
    def largest(self) -> Sample:
        """The training image with the most pixels."""
        sizes = [prod(h.size) for h in self.train_headers]
        return self.train.sample(sizes.index(max(sizes)), None)


def prepare(config: Config, cache: Path | None, say: Callable[[str], None]) -> Parts:
    """Find and check everything. `cache`: folder for counted classes; None counts anew and keeps nothing.

    Raises ConfigError or DataError for the first thing that doesn't fit.
    """
    data = config.data
    state_bytes(config.optim, [])       # an optimizer that can't be made shouldn't wait for the data
    device, dtype = device_of(config.train.device), getattr(torch, config.train.precision)
    rows = collect(data, config.train.seed)
    twice = {r.image for r in rows.train} & {r.image for r in rows.val}
    if twice:
        say(f"warning: {len(twice)} images are in both training and validation, such as {sorted(twice)[0]}")
    labels = [r.target for r in [*rows.train, *rows.val]] if data.task == "classification" else []
    classes = ClassMap(data, labels)
    train = Dataset(rows.train, data, classes, config.train.seed, dtype)
    val = Dataset(rows.val, data, classes, config.train.seed, dtype)
    train_headers, val_headers = train.check(), val.check()
    if val_headers and (val_headers[0].channels, val_headers[0].axes) != (train_headers[0].channels,
                                                                          train_headers[0].axes):
        raise DataError(f"{rows.val[0].image} has other channels or axes than {rows.train[0].image}")

    torch.manual_seed(config.train.seed)
    model = _model(config, device, dtype)
    channels = _check_output(config, model, train_headers[0], classes)
    weights = _class_weights(config, train, cache, say)
    criterion = _loss(config, weights, channels, classes).to(device)
    return Parts(train, val, train_headers, val_headers, rows.unused, classes, model, criterion, weights,
                 device, dtype)


def device_of(name: str) -> torch.device:
    """The device of [train] device; ConfigError if this machine has none such."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ConfigError(f'[train] device: "{name}" is no device; use auto, cpu, cuda or cuda:1') from None
    if device.type not in ("cpu", "cuda"):
        raise ConfigError(f'[train] device: "{name}": only cpu and cuda are known to give exact results')
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ConfigError(f'[train] device: "{name}": this machine has {torch.cuda.device_count()} CUDA '
                          "devices")
    return device


def _model(config: Config, device: torch.device, dtype: torch.dtype) -> nn.Module:
    try:
        model = build_model(config.model.name, **config.model.args)
    except ConfigError as e:
        raise ConfigError(f"[model] {e}") from None
    if not any(p.requires_grad for p in model.parameters()):
        raise ConfigError(f"[model] name: {config.model.name} has no parameters to train")
    if config.model.weights is not None:
        checkpoint.load_weights(model, _weights(Path(config.model.weights)), config.model.weights)
    return model.to(device, dtype)


def _weights(path: Path) -> dict[str, Any]:
    """A state_dict: that of a checkpoint of hires, or one saved by itself."""
    state = checkpoint.read(path)
    inner = state.get("model", state)
    if not isinstance(inner, dict) or not all(isinstance(v, torch.Tensor) for v in inner.values()):
        raise ConfigError(f"[model] weights: {path} holds no state_dict (names and tensors)")
    return inner


def _check_output(config: Config, model: nn.Module, header: Header, classes: ClassMap) -> int:
    """Run the model without memory or arithmetic (on "meta") to see that input, output and classes fit.

    Returns the number of output channels.
    """
    dry = copy.deepcopy(model).to("meta").eval()
    shape = (1, header.channels, *header.size)
    parameter = next(dry.parameters())
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")     # said again, and for the real model, by the real run
            output = first_tensor(dry(torch.empty(shape, dtype=parameter.dtype, device="meta")))
    except (RuntimeError, ValueError) as e:
        raise ConfigError(f"[model] {config.model.name} doesn't take images of shape {shape} "
                          f"(N, C, *spatial): {str(e).splitlines()[0]}") from e
    channels, count = output.shape[1], len(classes.names)
    single = channels == 1 and count == 2 and config.loss.name != "CrossEntropy"
    if channels != count and not single:
        raise ConfigError(wrong_channels(channels, classes.names))
    if config.data.task == "segmentation" and tuple(output.shape[2:]) != header.size:
        raise ConfigError(f"[model] {config.model.name} gives {tuple(output.shape[2:])} for an image of "
                          f"{header.size}; segmentation needs an output of the image's size")
    if config.data.task == "classification" and output.dim() != 2:
        raise ConfigError(f"[model] {config.model.name} gives an output of shape {tuple(output.shape)}; "
                          "classification needs (N, classes)")
    return channels


def _class_weights(config: Config, train: Dataset, cache: Path | None,
                   say: Callable[[str], None]) -> list[float] | None:
    wanted, names = config.data.class_weights, train.classes.names
    if wanted is None:
        return None
    if isinstance(wanted, list):
        if len(wanted) != len(names) or any(not w >= 0 for w in wanted) or not any(wanted):
            raise ConfigError(f"[data] class_weights: needs one number >= 0 for each of the {len(names)} "
                              f"classes, and one above 0, not {wanted}")
        return wanted
    counts = train.counts(cache)
    if not counts.any():
        raise DataError("[data] class_weights: no pixel of the training masks has a class")
    for name, count in zip(names, counts, strict=True):
        if not count:
            say(f'warning: class "{name}" doesn\'t occur in the training images; its weight is 0')
    return balanced(counts)


def _loss(config: Config, weights: list[float] | None, channels: int, classes: ClassMap) -> nn.Module:
    args = dict(config.loss.args)
    kind = losses.LOSSES.get(config.loss.name)
    known = inspect.signature(kind).parameters if kind is not None else {}
    if args.setdefault("reduction", "mean") == "none":
        raise ConfigError('[loss.args] reduction: "none" gives a number for each pixel; use "mean" or "sum"')
    if "ignore_index" in args:
        raise ConfigError("[loss.args] ignore_index: [data] ignore says which values of the masks to ignore")
    args["ignore_index"] = IGNORE
    if weights is not None:
        args |= _weight_args(config, weights, channels, classes, dict(known))
    try:
        return losses.build(config.loss.name, **args)
    except ConfigError as e:
        raise ConfigError(f"[loss] {e}") from None


def _weight_args(config: Config, weights: list[float], channels: int, classes: ClassMap,
                 known: dict[str, Any]) -> dict[str, Any]:
    """How this loss takes class weights."""
    key = next((k for k in ("weight", "alpha", "pos_weight") if k in known), None)
    if key is None or (key == "pos_weight" and (channels != 1 or not weights[0])):
        raise ConfigError(f"[data] class_weights: the loss {config.loss.name} takes none; leave them out, or "
                          "use CrossEntropy or Focal")
    if key in config.loss.args:
        raise ConfigError(f"[loss.args] {key}: [data] class_weights sets it too; give one of the two")
    # A single logit is weighed by how much more class 1 counts than class 0.
    return {key: weights[1] / weights[0] if key == "pos_weight" else weights}


def streamed(config: Config, parts: Parts, observers: list[Any]) -> Any:
    """Model and loss as one streamed step."""
    trained = [p for p in parts.model.parameters() if p.requires_grad]
    tile = config.memory.tile
    return stream(parts.model, loss=parts.criterion, budget=config.memory.budget,
                  tile=tuple(tile) if isinstance(tile, list) else tile, store=config.memory.store,
                  seed=config.train.seed, reserve=state_bytes(config.optim, trained), observers=observers)


def steps_per_epoch(config: Config, images: int) -> int:
    """Optimizer steps in an epoch of so many images; the last one may be of fewer images."""
    return -(-images // (config.train.batch * config.train.accumulate))


def total_steps(config: Config, images: int) -> int:
    """Optimizer steps of the whole run."""
    limits = [config.train.max_steps]
    if config.train.epochs is not None:
        limits.append(config.train.epochs * steps_per_epoch(config, images))
    return min(n for n in limits if n is not None)


def preview(config: Config) -> str:
    """What `config` would do: data, model, steps, and the plan for its largest image. Nothing is written."""
    train = config.train
    folder.check(Path(train.output), resume=True, overwrite=False)
    notes: list[str] = []
    parts = prepare(config, Path(config.data.cache) if config.data.cache else None, notes.append)
    largest, names = parts.largest, parts.classes.names
    target = largest.target.to(parts.device) if isinstance(largest.target, torch.Tensor) else largest.target
    plan = streamed(config, parts, []).plan(largest.image, target)
    parameters = sum(p.numel() for p in parts.model.parameters())
    images, val = len(parts.train), summary(parts.val_headers) if len(parts.val) else "none"
    return "\n".join([
        config.to_toml(),
        *notes,
        f"training    {summary(parts.train_headers)}",
        f"validation  {val}" + (f"; {parts.unused} rows for neither" if parts.unused else ""),
        f"classes     {len(names)}: {', '.join(names[:20])}" + (", …" if len(names) > 20 else ""),
        *([f"weights     {', '.join(f'{w:.4g}' for w in parts.class_weights[:20])}"]
          if parts.class_weights else []),
        f"model       {config.model.name}, {parameters:,} parameters, {train.precision} on {parts.device}",
        f"steps       {total_steps(config, images)} ({steps_per_epoch(config, images)} an epoch, "
        f"{train.batch * train.accumulate} images each)",
        f"output      {train.output}",
        f"plan for the largest image, {largest.row.image}:",
        str(plan),
    ])
