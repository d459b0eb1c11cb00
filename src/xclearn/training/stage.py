"""A training stage: a module, its loss, and its duration.

Knows nothing about algorithms or how the loop saves, resumes or logs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, final

from xclearn.config import Count, Share

if TYPE_CHECKING:
    import torch
    from torch import nn

Metric = Literal["P@1", "P@3", "P@5", "PSP@1", "PSP@5", "nDCG@5", "R@10"]  # on held-out documents


@final
@dataclass(frozen=True, kw_only=True)
class Stopping:
    """Early stopping: end a stage when a held-out metric stops improving, and keep the best epoch."""

    metric: Metric = "P@5"  # metric to maximise
    patience: Count = 2  # epochs without improvement before training ends
    hold_out: Share = 0.05  # share of train to hold out if there is no dev split


@final
@dataclass(frozen=True, kw_only=True)
class Batch:
    """Rows of the training items for one step, on the run's device."""

    rows: torch.Tensor  # (n,) int64
    step: int  # number within the stage
    generator: torch.Generator  # for random draws on the device


@final
@dataclass(frozen=True, kw_only=True)
class Stage:
    """One stage yielded by an algorithm's `_stages`."""

    name: str  # unique within the algorithm
    module: nn.Module  # everything that is trained, saved and resumed
    loss: Callable[[Batch], torch.Tensor]  # mean loss of a batch; NaN if not measured
    n_items: int  # documents (or pairs) in one epoch
    batch_size: int
    epochs: int
    optimisers: Sequence[torch.optim.Optimizer]  # with peak learning rates
    accumulation: Sequence[int] = ()  # steps over which each optimiser accumulates gradients; empty: one
    schedule: Callable[[float], float]  # completed share of the stage → factor of learning rates
    score: Callable[[], float] | None = None  # held-out metric after an epoch
    partial: Sequence[nn.Parameter] = ()  # parameters of whose gradient each process has a part, to be summed
    patience: int | None = None  # epochs without improvement before the stage ends


def one_cycle(warm_up: float) -> Callable[[float], float]:
    """Linear rise over the first `warm_up` share of the stage, then linear fall to zero."""

    def factor(done: float) -> float:
        return done / warm_up if done < warm_up else (1 - done) / (1 - warm_up)

    return factor


def cosine_cycle(warm_up: float) -> Callable[[float], float]:
    """Like `one_cycle`, but with cosine decay."""

    def factor(done: float) -> float:
        return done / warm_up if done < warm_up else (1 + math.cos(math.pi * (done - warm_up) / (1 - warm_up))) / 2

    return factor
