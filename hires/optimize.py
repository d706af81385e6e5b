"""Optimizers and schedulers of torch, by name, with errors that name the key."""

import inspect
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer, lr_scheduler

from hires.config import Optim, Schedule, nearest
from hires.errors import ConfigError

_NEEDS_CLOSURE = {"LBFGS"}      # evaluates the loss several times a step
_NEEDS_CODE = {"LambdaLR", "MultiplicativeLR", "SequentialLR", "ChainedScheduler"}   # functions or objects


def optimizer(config: Optim, parameters: list[nn.Parameter]) -> Optimizer:
    """The optimizer of ``[optim]``. ConfigError names the key that torch doesn't take."""
    kinds = _subclasses(torch.optim, Optimizer)
    if config.name not in kinds:
        raise ConfigError(f"[optim] name: torch.optim has no {config.name}{nearest(config.name, kinds)}")
    if config.name in _NEEDS_CLOSURE:
        raise ConfigError(f"[optim] name: {config.name} evaluates the loss several times a step, which "
                          "training image by image doesn't do; use another, such as AdamW")
    args = dict(config.args)
    if config.lr is not None:
        if "lr" in args:
            raise ConfigError("[optim] lr: is in [optim.args] too; give one of the two")
        args["lr"] = config.lr
    return _build(kinds[config.name], parameters, args, "optim", {"params"})


def scheduler(config: Schedule | None, optim: Optimizer, monitor: str, steps: int) -> Any:
    """The scheduler of ``[schedule]``, or None.

    `monitor`: what ReduceLROnPlateau watches; `steps`: how often the schedule will be stepped.
    ConfigError names the key that torch doesn't take.
    """
    if config is None:
        return None
    kinds = _subclasses(lr_scheduler, lr_scheduler.LRScheduler)
    if config.name not in kinds:
        raise ConfigError(f"[schedule] name: torch.optim.lr_scheduler has no {config.name}"
                          f"{nearest(config.name, set(kinds) - _NEEDS_CODE)}")
    if config.name in _NEEDS_CODE:
        raise ConfigError(f"[schedule] name: {config.name} takes functions or other schedulers, which a run "
                          "file can't hold; use another, such as CosineAnnealingLR")
    if config.name == "ReduceLROnPlateau" and config.every != "epoch":
        raise ConfigError('[schedule] every: ReduceLROnPlateau looks at validation, so it needs "epoch"')
    args = dict(config.args)
    if config.name == "ReduceLROnPlateau":
        args.setdefault("mode", "min" if monitor == "loss" else "max")
    built = _build(kinds[config.name], optim, args, "schedule", {"optimizer", "last_epoch"})
    total = config.args.get("total_steps")
    if config.name == "OneCycleLR" and total is not None and total < steps:
        raise ConfigError(f"[schedule.args] total_steps: {total}, but this run steps it {steps} times")
    return built


def _subclasses(module: Any, base: type) -> dict[str, type]:
    return {name: kind for name, kind in vars(module).items()
            if inspect.isclass(kind) and issubclass(kind, base) and kind is not base and name[0] != "_"}


def _build(kind: type, first: Any, args: dict[str, Any], section: str, hidden: set[str]) -> Any:
    known = [p for p in inspect.signature(kind).parameters if p not in hidden]
    for key in args:
        if key not in known:
            raise ConfigError(f"[{section}.args] {key}: {kind.__name__} has no such argument"
                              f"{nearest(key, known)}")
    args = {k: tuple(v) if isinstance(v, list) and k == "betas" else v for k, v in args.items()}
    try:
        return kind(first, **args)
    except (TypeError, ValueError, AttributeError) as e:
        given = ", ".join(f"{k} = {v!r}" for k, v in args.items()) or "nothing"
        raise ConfigError(f"[{section}] {kind.__name__}: {e} (given: {given})") from None


def state_bytes(config: Optim, parameters: list[nn.Parameter]) -> int:
    """Bytes the optimizer will keep beside the parameters, found by one step of it on eight numbers."""
    probe = nn.Parameter(torch.zeros(2, 4))
    built = optimizer(config, [probe])
    probe.grad = torch.ones_like(probe)
    built.step()
    copies = sum(v.numel() for v in built.state[probe].values() if torch.is_tensor(v) and v.numel() > 1) / 8
    return int(copies * sum(p.numel() * p.element_size() for p in parameters))
