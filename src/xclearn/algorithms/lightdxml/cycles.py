"""Training in cycles of stages: which cycle did best on held-out documents, and when to end.

Knows nothing about what the stages of a cycle are.
"""

from __future__ import annotations

from typing import final

import torch
from torch import nn


@final
class BestCycle:
    """The weights of the best cycle so far; training ends after `patience` epochs in cycles without a rise."""

    def __init__(self, module: nn.Module, patience: int) -> None:
        self.module, self.patience = module, patience
        self.score, self.since_best = -1.0, 0
        self.weights: dict[str, torch.Tensor] = {}

    def finished(self, score: float, epochs: int) -> bool:
        """Record a cycle of `epochs` epochs and its score; whether it was the last."""
        if score > self.score:
            self.score, self.since_best = score, 0
            self.weights = {name: value.clone() for name, value in self.module.state_dict().items()}
        else:
            self.since_best += epochs
        return self.since_best >= self.patience

    def restore(self) -> None:
        """Give the module the weights of the best cycle; without any cycle seen it keeps its own."""
        if self.weights:
            self.module.load_state_dict(self.weights)
