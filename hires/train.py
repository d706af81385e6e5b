"""``hires train``: image by image, tile by tile; stopped and resumed at any moment to the very same weights.

Everything that decides the weights is either in the checkpoint (weights, optimizer, schedule, position in the
epoch, the half-summed gradient) or a pure function of (seed, epoch, index); no random state is kept.
"""

import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from hires import checkpoint, draw, folder, optimize
from hires.accumulate import Group
from hires.config import Config
from hires.data import summary
from hires.errors import HiresError
from hires.log import Board, JsonLines, Reporter, memory, plot
from hires.metrics import SCORES
from hires.setup import Parts, device_of, prepare, steps_per_epoch, streamed, total_steps
from hires.signals import Stop
from hires.validate import Passes, show, validate


class RunFailed(RuntimeError):
    """Training that can't go on though the input was right: a loss or gradient that isn't finite."""


@dataclass
class Position:
    """Where the run is. All of it is part of a checkpoint."""

    epoch: int = 0              # epochs done
    index: int = 0              # images of this epoch that are done
    step: int = 0               # optimizer steps done
    passes: int = 0             # training forwards done
    best: float | None = None   # of [train] monitor
    epoch_loss: float = 0.0     # sums over this epoch's steps
    epoch_steps: int = 0


def run(config: Config, *, resume: bool = False, overwrite: bool = False, quiet: bool = False) -> int:
    """Train as `config` says. Returns the exit code: 0, or 130, 143, 75 after a signal, all saved.

    Raises HiresError for bad input, RunFailed for a loss that isn't finite.
    """
    path = Path(config.train.output)
    reporter = Reporter(device_of(config.train.device), config.log.every_seconds, quiet)
    try:
        with folder.opened(path, resume, overwrite):
            cache = Path(config.data.cache) if config.data.cache else path
            return Trainer(config, prepare(config, cache, reporter.note), reporter).fit(resume)
    finally:
        reporter.close()


class Trainer:
    """One run: the loop, its position, and what it writes."""

    def __init__(self, config: Config, parts: Parts, reporter: Reporter) -> None:
        self.config, self.parts, self.reporter = config, parts, reporter
        self.path = Path(config.train.output)
        self.images = len(parts.train)
        self.trained = [p for p in parts.model.parameters() if p.requires_grad]
        self.optimizer = optimize.optimizer(config.optim, self.trained)
        self.by_step = config.schedule is not None and config.schedule.every == "step"
        steps = total_steps(config, self.images)
        if not self.by_step:
            steps //= steps_per_epoch(config, self.images)
        self.scheduler = optimize.scheduler(config.schedule, self.optimizer, config.train.monitor, steps)
        self.passes = Passes(parts, config.loss.weigh)
        self.passes.step = streamed(config, parts, [self.passes.observe])
        self.at, self.group = Position(), Group()
        self._saved_at, self._saved_step = time.monotonic(), 0
        self._told_plots = False

    # ---- the loop

    def fit(self, resume: bool) -> int:
        """Train to the end, or to a signal; returns the exit code."""
        if self.parts.device.type == "cuda":
            # Atomic adds in cuDNN's backward would make every run a little different.
            torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = True, False
        lines = self._resume() if resume else 0
        folder.save_config(self.path, self.config.to_toml())
        self.log = JsonLines(self.path / folder.LOG, lines)
        self.board = Board(self.path / folder.BOARD, self.config.log.tensorboard, self.at.step)
        self.reporter.say(f"training    {summary(self.parts.train_headers)}")
        if len(self.parts.val):
            self.reporter.say(f"validation  {summary(self.parts.val_headers)}")
        try:
            with Stop(self._how_to_resume) as self.stop:
                return self._epochs()
        except HiresError:
            self.reporter.note(f"stopped by an error. {self._how_to_resume()}")
            raise
        finally:
            self.log.close()
            self.board.close()

    def _epochs(self) -> int:
        if self._done():
            self.reporter.say(f"nothing to do: the run has finished at step {self.at.step}; raise [train] "
                              "epochs or max_steps to go on")
            return 0
        while not self._done():
            if not self._rest_of_epoch() or (self.at.index == self.images and not self._end_epoch()):
                return self._leave()
        if self.at.index and len(self.parts.val):       # max_steps came within an epoch
            scores = self._validate()
            if scores is None:
                return self._leave()
            self._save(self._is_best(scores))
        elif self.at.index:
            self._save(False)
        self._plots()
        best = f", best {self.config.train.monitor} {self.at.best:.6g}" if self.at.best is not None else ""
        print(f"done: {self.at.step} steps, {self.at.epoch} epochs{best}; {self.path / folder.CHECKPOINTS}")
        return 0

    def _done(self) -> bool:
        """True at the end of the run; an epoch whose last image is done must first be ended."""
        train, at = self.config.train, self.at
        if at.index == self.images:
            return False
        return (train.epochs is not None and at.epoch >= train.epochs
                or train.max_steps is not None and at.step >= train.max_steps)

    def _rest_of_epoch(self) -> bool:
        """Train to the end of the epoch or of the run; False if a signal came."""
        train, at = self.config.train, self.at
        order = draw.order(train.seed, at.epoch, self.images)
        self.passes.step.train()
        while at.index < self.images and not self._done():
            if self.stop:
                return False
            self._one_pass(order[at.index:at.index + train.batch])
            if self.group.passes == train.accumulate or at.index == self.images:
                self._update()
                if train.checkpoint_steps and at.step % train.checkpoint_steps == 0:
                    self._save(False)
            if time.monotonic() - self._saved_at > train.checkpoint_minutes * 60:
                self._save(False)
        return not self.stop

    def _one_pass(self, indices: list[int]) -> None:
        """Forward and backward of one batch; its gradient is added to the group's."""
        at, began, train = self.at, time.monotonic(), self.config.train
        samples = [self.parts.train.sample(i, at.epoch) for i in indices]
        self.passes.step.step_index = at.passes
        torch.manual_seed(draw.word(train.seed, at.passes))     # for modules that draw from torch itself
        loss = self.passes.forward(samples)
        weight = self.passes.weigher.weight
        if weight and not bool(torch.isfinite(loss.detach())):
            raise RunFailed(f"the loss is {loss.item()} at step {at.step + 1}, epoch {at.epoch + 1}, image "
                            f" {samples[0].row.image}: a smaller [optim] lr, [train] clip_norm or "
                            f"normalised inputs ([data] unit, mean, std) may help. {self._how_to_resume()}")
        value = self.group.add(loss, weight, indices)
        at.passes += 1
        at.index += len(indices)
        what = f"epoch {at.epoch + 1}" + (f"/{train.epochs}" if train.epochs else "")
        self.reporter.image(what, at.index, self.images, self._left(), time.monotonic() - began,
                            sum(s.pixels for s in samples), len(samples), value)

    def _left(self) -> int:
        """Images still to be trained on in this run."""
        train, at = self.config.train, self.at
        whole = []
        if train.max_steps is not None:
            whole.append((train.max_steps - at.step - 1) * train.batch * train.accumulate
                         + (train.accumulate - self.group.passes) * train.batch)
        if train.epochs is not None:
            whole.append((train.epochs - at.epoch) * self.images - at.index)
        return max(0, min(whole))

    def _update(self) -> None:
        """One optimizer step with the gradient of the group."""
        at, train, group = self.at, self.config.train, self.group
        loss = group.finish(self.trained, mean=self.passes.weigher.rule != "sum")
        norm = nn.utils.get_total_norm([p.grad for p in self.trained if p.grad is not None])
        if not bool(torch.isfinite(norm)):
            shown = ", ".join(self.parts.train.rows[i].image for i in group.rows)
            raise RunFailed(f"the gradient isn't finite at step {at.step + 1}, epoch {at.epoch + 1} "
                            f"({shown}). {self._how_to_resume()}")
        if train.clip_norm is not None:
            nn.utils.clip_grads_with_norm_(self.trained, train.clip_norm, norm)
        if train.clip_value is not None:
            nn.utils.clip_grad_value_(self.trained, train.clip_value)
        rate = float(self.optimizer.param_groups[0]["lr"])
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        at.step += 1
        at.epoch_loss += loss
        at.epoch_steps += 1
        if self.by_step:
            self.scheduler.step()
        now, peak = memory(self.parts.device)
        each, mega = self.reporter.speed
        facts = {"loss": loss, "lr": rate, "grad_norm": float(norm), "images_per_s": each, "mpx_per_s": mega,
                 "memory": now, "memory_peak": peak}
        self.log.write(kind="step", epoch=at.epoch + 1, step=at.step, rows=group.rows, empty=group.empty,
                       **facts)
        self.board.scalars("train", facts, at.step)
        self.group = Group()

    def _end_epoch(self) -> bool:
        """Validate, step the schedule, save; False if a signal came (validation is then done again)."""
        at, train = self.at, self.config.train
        mean_loss = at.epoch_loss / max(1, at.epoch_steps)
        scores: dict[str, Any] | None = {}
        last = train.epochs is not None and at.epoch + 1 >= train.epochs
        if len(self.parts.val) and ((at.epoch + 1) % train.validate_every == 0 or last):
            scores = self._validate()
            if scores is None:
                return False
        self._schedule(scores.get(train.monitor) if len(self.parts.val) else mean_loss)
        self.log.write(kind="epoch", epoch=at.epoch + 1, step=at.step, loss=mean_loss)
        self.board.scalars("epoch", {"loss": mean_loss}, at.step)
        best = self._is_best(scores)
        at.epoch, at.index, at.epoch_loss, at.epoch_steps = at.epoch + 1, 0, 0.0, 0
        self._save(best)
        self._plots()
        return True

    def _schedule(self, watched: float | None) -> None:
        """Step the schedule at the end of an epoch; one that watches validation only where there was one."""
        if self.scheduler is None or self.by_step:
            return
        if not isinstance(self.scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau):
            self.scheduler.step()
        elif watched is not None:
            self.scheduler.step(watched)

    def _validate(self) -> dict[str, Any] | None:
        """Scores of the validation images; None if a signal came."""
        at = self.at
        scores = validate(self.passes, self.stop, self.reporter, f"validation {at.epoch + 1}")
        if scores is None:
            return None
        self.log.write(kind="validation", epoch=at.epoch + 1, step=at.step, **scores)
        self.board.scalars("validation", scores, at.step)
        if self.config.log.tensorboard:
            show(self.passes, self.board, self.config.log.images, at.step)
        numbers = {k: scores.get(k) for k in ("loss", *SCORES)}
        shown = "  ".join(f"{k} {v:.4g}" for k, v in numbers.items() if v is not None)
        self.reporter.say(f"epoch {at.epoch + 1}, step {at.step}: validation {shown}")
        return scores

    def _is_best(self, scores: dict[str, Any]) -> bool:
        value, monitor, best = scores.get(self.config.train.monitor), self.config.train.monitor, self.at.best
        if value is None or (best is not None and not (value > best if monitor in SCORES else value < best)):
            return False
        self.at.best = value
        return True

    def _plots(self) -> None:
        said = plot(self.path / folder.LOG, self.path) if self.config.log.plots else None
        if said and not self._told_plots:
            self._told_plots = True
            self.reporter.note(said)

    # ---- stopping and going on

    def _save(self, best: bool) -> None:
        self.log.sync()
        self.board.flush()
        checkpoint.save(self.path / folder.CHECKPOINTS, {
            "config": self.config.to_dict(),
            "classes": self.parts.classes.names,
            "rows": self.parts.train.names_hash(),
            "step": self.at.step,
            "position": asdict(self.at),
            "group": asdict(self.group),
            "gradients": {n: p.grad for n, p in self.parts.model.named_parameters() if p.grad is not None},
            "log_lines": self.log.count,
            "model": self.parts.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.scheduler.state_dict() if self.scheduler is not None else None,
        }, best)
        self._saved_at, self._saved_step = time.monotonic(), self.at.step

    def _leave(self) -> int:
        """After a signal: save, and say how to go on."""
        self._save(False)
        self.reporter.note(f"stopped in epoch {self.at.epoch + 1}, after image {self.at.index} of "
                           f"{self.images}. {self._how_to_resume()}")
        return self.stop.code or 0

    def _how_to_resume(self) -> str:
        where = self.path / folder.CHECKPOINTS / checkpoint.LAST
        if not where.exists():
            return "Nothing is saved yet: --resume will start from the beginning."
        return (f"Saved up to step {self._saved_step} in {where}; the same command with --resume goes "
                "on from there.")

    def _resume(self) -> int:
        """Go back to the newest whole checkpoint; returns how many lines of the log belong to it."""
        where = self.path / folder.CHECKPOINTS
        state, said = checkpoint.latest(where)
        for line in said:
            self.reporter.note(f"warning: {line}")
        if state is None:
            self.reporter.note(f"{where}: no checkpoint yet; starting from the beginning")
            return 0
        for line in checkpoint.same_run(state["config"], self.config.to_dict(), str(where)):
            self.reporter.note(f"warning: {line}")
        if state["rows"] != self.parts.train.names_hash() or state["classes"] != self.parts.classes.names:
            raise checkpoint.CheckpointError(
                f"{where}: the checkpoint belongs to other training images or classes: the manifest or "
                "folder has changed since, so the order of the epoch can't be taken up again. Put it back, "
                "or start a new run with [model] weights")
        checkpoint.load_weights(self.parts.model, state["model"], str(where))
        self.optimizer.load_state_dict(state["optimizer"])
        if self.scheduler is not None:
            self.scheduler.load_state_dict(state["scheduler"])
        self.at, self.group = Position(**state["position"]), Group(**state["group"])
        for name, parameter in self.parts.model.named_parameters():
            if name in state["gradients"]:
                parameter.grad = state["gradients"][name].to(parameter)
        self._saved_step = self.at.step
        self.reporter.say(f"going on from step {self.at.step}, epoch {self.at.epoch + 1}, "
                          f"image {self.at.index} of {self.images}")
        return state["log_lines"]
