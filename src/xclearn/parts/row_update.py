"""How label rows are updated at once with their gradient: the gradient of all labels never exists as a whole.

SGD keeps no state and measured better than Adam on long-tailed labels (benchmarks/LOG.md); Adam is what the papers'
code uses. The training loop sets `factor`, the schedule's value for the step. Knows nothing about losses.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import final

import torch
from torch import nn

from xclearn.kernels.shortlist import RowRule

Rows = slice | torch.Tensor  # a contiguous block of rows, or (S,) distinct row numbers


class RowUpdate(nn.Module, ABC):
    """Changes rows of a table in place, given the gradient summed over the documents of a batch."""

    lr: float
    factor: float = 1.0

    @abstractmethod
    def apply_(self, weight: torch.Tensor, rows: Rows, gradient: torch.Tensor) -> None: ...

    @abstractmethod
    def rule(self) -> RowRule:
        """The same for a kernel of the CPU, which moves the state in place."""

    @staticmethod
    @abstractmethod
    def working_bytes_per_value() -> int:
        """What `apply_` holds at once for each value of the rows it updates, their gradient included."""


@final
class RowSgd(RowUpdate):
    """w ← w − lr · g."""

    def __init__(self, n_rows: int, width: int, lr: float) -> None:  # noqa: ARG002 (the rows have no state)
        super().__init__()
        self.lr = lr

    def apply_(self, weight: torch.Tensor, rows: Rows, gradient: torch.Tensor) -> None:
        if isinstance(rows, slice):
            weight[rows].add_(gradient, alpha=-self.lr * self.factor)
        else:
            weight.index_add_(0, rows, gradient.to(weight.dtype), alpha=-self.lr * self.factor)

    def rule(self) -> RowRule:
        return RowRule(self.lr * self.factor)

    @staticmethod
    def working_bytes_per_value() -> int:
        return 4


@final
class RowAdam(RowUpdate):
    """Adam whose moments and step count move only for the rows that are updated (lazy, as torch's SparseAdam)."""

    first: torch.Tensor
    second: torch.Tensor
    steps: torch.Tensor

    def __init__(self, n_rows: int, width: int, lr: float) -> None:
        super().__init__()
        self.lr, self.betas, self.epsilon = lr, (0.9, 0.999), 1e-8
        self.register_buffer("first", torch.zeros(n_rows, width))
        self.register_buffer("second", torch.zeros(n_rows, width))
        self.register_buffer("steps", torch.zeros(n_rows, 1))

    def apply_(self, weight: torch.Tensor, rows: Rows, gradient: torch.Tensor) -> None:
        gradient = gradient.float()  # (S, width)
        steps = self.steps[rows] + 1  # (S, 1)
        first = torch.lerp(gradient, self.first[rows], self.betas[0])
        second = torch.lerp(gradient * gradient, self.second[rows], self.betas[1])
        corrected = (second / (1 - self.betas[1] ** steps)).sqrt_().add_(self.epsilon)
        weight[rows] -= self.lr * self.factor * (first / (1 - self.betas[0] ** steps)) / corrected
        self.steps[rows] = steps
        self.first[rows] = first
        self.second[rows] = second

    def rule(self) -> RowRule:
        moments = self.first.numpy(), self.second.numpy(), self.steps.numpy()
        return RowRule(self.lr * self.factor, moments, self.betas, self.epsilon)

    @staticmethod
    def working_bytes_per_value() -> int:
        return 24  # gradient, both new moments, denominator, and two arrays of the step
