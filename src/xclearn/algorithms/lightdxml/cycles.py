"""Early stopping over cycles of stages: the best cycle on held-out documents, and when to stop.

Knows nothing about what the stages of a cycle are.
"""

from __future__ import annotations

from typing import final

import torch
from torch import nn


@final
class BestCycle:
    """The weights of the best cycle so far; training stops after `patience` epochs in cycles without improvement."""

    def __init__(self, module: nn.Module, patience: int) -> None:
        self.module, self.patience = module, patience
        self.score, self.since_best = -1.0, 0
        self.weights: dict[str, torch.Tensor] = {}

    def finished(self, score: float, epochs: int) -> bool:
        """Record a cycle of `epochs` epochs and its score; returns whether to stop."""
        if score > self.score:
            self.score, self.since_best = score, 0
            self.weights = {name: value.clone() for name, value in self.module.state_dict().items()}
        else:
            self.since_best += epochs
        return self.since_best >= self.patience

    def restore(self) -> None:
        """Restore the weights of the best cycle, if any was recorded."""
        if self.weights:
            self.module.load_state_dict(self.weights)
