"""What one training stage is: a module, how a batch becomes a loss, and for how long.

Knows nothing about which algorithm yields it, nor how the loop saves, resumes or logs.
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
    """End a stage when a metric on held-out documents no longer rises, and keep the best epoch."""

    metric: Metric = "P@5"  # what must rise
    patience: Count = 2  # epochs without a rise before training ends
    hold_out: Share = 0.05  # documents held out of train when the data set has no dev split


@final
@dataclass(frozen=True, kw_only=True)
class Batch:
    """Rows of the training items for one step, on the run's device."""

    rows: torch.Tensor  # (n,) int64
    step: int  # counted over the whole stage
    generator: torch.Generator  # for draws made on the device


@final
@dataclass(frozen=True, kw_only=True)
class Stage:
    """One yield of an algorithm's `_stages`."""

    name: str  # unique within the algorithm
    module: nn.Module  # everything that is trained, saved and resumed
    loss: Callable[[Batch], torch.Tensor]  # mean loss of a batch; NaN where it was not measured
    n_items: int  # documents (or pairs) in one epoch
    batch_size: int
    epochs: int
    optimisers: Sequence[torch.optim.Optimizer]  # learning rates are their peaks
    accumulation: Sequence[int] = ()  # steps over which each optimiser accumulates gradients; empty: one
    schedule: Callable[[float], float]  # share of the stage done → factor on every learning rate
    score: Callable[[], float] | None = None  # the held-out metric after an epoch
    partial: Sequence[nn.Parameter] = ()  # those of whose gradient each process makes a part
    patience: int | None = None  # epochs without a rise of the score before the stage ends


def one_cycle(warm_up: float) -> Callable[[float], float]:
    """Linear rise over the first `warm_up` share of the stage, then linear fall to zero."""

    def factor(done: float) -> float:
        return done / warm_up if done < warm_up else (1 - done) / (1 - warm_up)

    return factor


def cosine_cycle(warm_up: float) -> Callable[[float], float]:
    """As `one_cycle`, but the fall is half a cosine wave: slow at both ends."""

    def factor(done: float) -> float:
        return done / warm_up if done < warm_up else (1 + math.cos(math.pi * (done - warm_up) / (1 - warm_up))) / 2

    return factor
