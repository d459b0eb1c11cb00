"""The only training loop: every stage of every algorithm runs here, with log, checkpoints and early stopping.

Random numbers depend only on (seed, stage, epoch): an interrupted epoch starts again with the same draws, so a resumed
run gives bit-equal results. Knows nothing about what a stage trains.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any, final

import numpy as np
import torch

from xclearn.errors import ModelError
from xclearn.parts.ranks import here
from xclearn.parts.row_update import RowUpdate
from xclearn.training.run import Run
from xclearn.training.sharding import add_up, kept_rows, make_equal
from xclearn.training.stage import Batch, Stage


def train(stage: Stage, run: Run) -> None:
    """Train a stage, or load its weights from the checkpoint if finished; leaves it in evaluation mode."""
    stage.module.to(run.device)
    done = run.checkpoint.load(f"done-{stage.name}", kept_rows(stage.module))
    if done is None:
        _train(stage, run)
    else:
        with _fitting(stage):
            _load_module(stage, done[0])
        run.log("stage_restored", stage=stage.name)
    stage.module.eval()


def _train(stage: Stage, run: Run) -> None:
    progress = _Progress(stage, run)
    with _fitting(stage):
        progress.restore()
    run.log("stage", stage=stage.name, epochs=stage.epochs, first_epoch=progress.epoch, items=stage.n_items)
    while progress.epoch < stage.epochs and not progress.finished:
        _epoch(stage, run, progress)
    progress.close()


@final
class _Progress:
    """The progress of a stage, and the best epoch so far if there is a held-out score."""

    def __init__(self, stage: Stage, run: Run) -> None:
        self.stage, self.run = stage, run
        self.epoch, self.best_score, self.since_best = 0, -1.0, 0
        self.best: dict[str, torch.Tensor] = {}
        self.rows = kept_rows(stage.module)

    @property
    def finished(self) -> bool:
        return self.stage.patience is not None and self.since_best >= self.stage.patience

    def advance(self, score: float | None) -> None:
        self.epoch += 1
        if score is not None and score > self.best_score:
            self.best_score, self.since_best = score, 0
            self.best.clear()  # two copies at once would exceed the plan
            self.best = {name: value.clone() for name, value in self.stage.module.state_dict().items()}
        elif score is not None:
            self.since_best += 1
        self._save()

    def restore(self) -> None:
        found = self.run.checkpoint.load(f"current-{self.stage.name}", self.rows)
        if found is None:
            return
        tensors, facts = found
        self.epoch = facts["epoch"]
        self.best_score = facts["best_score"]
        self.since_best = facts["since_best"]
        _load_module(self.stage, tensors)
        best = {name.removeprefix("best."): value for name, value in tensors.items() if name.startswith("best.")}
        self.best = {name: torch.from_numpy(value).to(self.run.device) for name, value in best.items()}
        for i, optimiser in enumerate(self.stage.optimisers):
            _load_optimiser(optimiser, tensors, f"optimiser.{i}.")
        self.run.log("resumed", stage=self.stage.name, epoch=self.epoch)

    def close(self) -> None:
        if self.best:
            self.stage.module.load_state_dict(self.best)
        state = {f"module.{name}": value for name, value in self.stage.module.state_dict().items()}
        self.run.checkpoint.save(f"done-{self.stage.name}", state, {"epochs": self.epoch}, self.rows)
        self.run.checkpoint.forget(f"current-{self.stage.name}")

    def _save(self) -> None:
        tensors: dict[str, Any] = {f"module.{k}": value for k, value in self.stage.module.state_dict().items()}
        tensors |= {f"best.{name}": value for name, value in self.best.items()}
        for i, optimiser in enumerate(self.stage.optimisers):
            tensors |= _optimiser_tensors(optimiser, f"optimiser.{i}.")
        facts = {"epoch": self.epoch, "best_score": self.best_score, "since_best": self.since_best}
        self.run.checkpoint.save(f"current-{self.stage.name}", tensors, facts, self.rows)


def _epoch(stage: Stage, run: Run, progress: _Progress) -> None:
    started, losses = time.perf_counter(), []
    stage.module.train()
    with run.seeded(stage.name, progress.epoch, "dropout"):
        for batch in _batches(stage, run, progress.epoch):
            losses.append(step(stage, batch))
            run.log("step", stage=stage.name, step=batch.step + 1, steps=stage.epochs * _steps(stage))
    make_equal(run.ranks, stage.module, stage.optimisers)
    stage.module.eval()
    loss = float(torch.stack(losses).nanmean())
    score = stage.score() if stage.score else None
    progress.advance(score)
    seconds = time.perf_counter() - started
    facts = {"loss": round(loss, 6), "score": score, "seconds": round(seconds, 3)}
    run.log("epoch", stage=stage.name, epoch=progress.epoch, items_per_second=round(stage.n_items / seconds), **facts)


def step(stage: Stage, batch: Batch) -> torch.Tensor:
    """Compute the loss and gradients of one batch and update; the loss stays on the device."""
    done = (batch.step + 0.5) / (stage.epochs * _steps(stage))
    factor = stage.schedule(done)
    for module in stage.module.modules():
        if isinstance(module, RowUpdate):
            module.factor = factor
    loss = stage.loss(batch)
    loss.backward()
    add_up(here(), stage.partial)
    for optimiser in _due(stage, batch.step + 1):
        for group in optimiser.param_groups:
            group.setdefault("peak_lr", group["lr"])
            group["lr"] = group["peak_lr"] * factor
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
    return loss.detach()


def _due(stage: Stage, steps: int) -> list[torch.optim.Optimizer]:
    """The optimisers due after `steps` steps; all at the end of an epoch, as checkpoints store no gradients."""
    every = stage.accumulation or [1] * len(stage.optimisers)
    whole = steps % _steps(stage) == 0
    return [each for each, wait in zip(stage.optimisers, every, strict=True) if whole or steps % wait == 0]


def _batches(stage: Stage, run: Run, epoch: int) -> Iterator[Batch]:
    order = np.random.default_rng(run.seed_of(stage.name, epoch, "order")).permutation(stage.n_items)
    rows = torch.from_numpy(order).to(run.device)
    generator = run.generator(stage.name, epoch, "draws", device=run.device)
    for i in range(_steps(stage)):
        part = rows[i * stage.batch_size : (i + 1) * stage.batch_size]
        yield Batch(rows=part, step=epoch * _steps(stage) + i, generator=generator)


def _steps(stage: Stage) -> int:
    return -(-stage.n_items // stage.batch_size)


@contextlib.contextmanager
def _fitting(stage: Stage) -> Iterator[None]:
    """Turn errors from tensors that do not fit the stage into a `ModelError`: a checkpoint is untrusted input."""
    try:
        yield
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise ModelError("the checkpoint does not fit the stage", where=stage.name, got=str(error)) from error


def _load_module(stage: Stage, tensors: dict[str, np.ndarray]) -> None:
    state = {key.removeprefix("module."): value for key, value in tensors.items() if key.startswith("module.")}
    stage.module.load_state_dict({key: torch.from_numpy(value) for key, value in state.items()})


def _optimiser_tensors(optimiser: torch.optim.Optimizer, prefix: str) -> dict[str, Any]:
    state = optimiser.state_dict()["state"]
    return {f"{prefix}{index}.{key}": value for index, entry in state.items() for key, value in entry.items()}


def _load_optimiser(optimiser: torch.optim.Optimizer, tensors: dict[str, np.ndarray], prefix: str) -> None:
    state: dict[int, dict[str, Any]] = {}
    for name, value in tensors.items():
        if name.startswith(prefix):
            index, key = name.removeprefix(prefix).split(".", 1)
            state.setdefault(int(index), {})[key] = torch.from_numpy(value)
    optimiser.load_state_dict({**optimiser.state_dict(), "state": state})
