"""Updates label rows as soon as their gradient is known, so that the gradient of all labels is never stored.

SGD keeps no state and is more accurate than Adam on long-tailed labels (benchmarks/LOG.md); the papers' code uses Adam.
The training loop sets `factor`, the schedule's value for the step. Knows nothing about losses.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple, final

import torch
from torch import nn

from xclearn.kernels.shortlist import RowRule
from xclearn.parts.fused import descend

Rows = slice | torch.Tensor  # a contiguous block of rows, or (S,) distinct row numbers


class AdamMoments(NamedTuple):
    """Adam's state of some rows."""

    first: torch.Tensor  # (n, width)
    second: torch.Tensor  # (n, width)
    steps: torch.Tensor  # (n, 1) including this one


class AdamRates(NamedTuple):
    """Adam's hyper-parameters."""

    rate: float
    beta_first: float
    beta_second: float
    epsilon: float


class RowUpdate(nn.Module, ABC):
    """Updates table rows in place, given their gradient summed over a batch."""

    lr: float
    factor: float = 1.0

    @abstractmethod
    def apply_(self, weight: torch.Tensor, rows: Rows, gradient: torch.Tensor) -> None: ...

    def descend(
        self, weight: torch.Tensor, copy: torch.Tensor | None, rows: slice, gradient: torch.Tensor, constant: int
    ) -> None:
        """`apply_` to a block of rows except their column `constant`; `copy` receives them in its own precision."""
        gradient[:, constant] = 0
        self.apply_(weight, rows, gradient)
        if copy is not None:
            copy[rows] = weight[rows].to(copy.dtype)

    @abstractmethod
    def rule(self) -> RowRule:
        """The same rule for a CPU kernel, which updates the state in place."""

    @staticmethod
    @abstractmethod
    def working_bytes_per_value() -> int:
        """Bytes that `apply_` needs per value of the updated rows, including their gradient."""


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

    def descend(
        self, weight: torch.Tensor, copy: torch.Tensor | None, rows: slice, gradient: torch.Tensor, constant: int
    ) -> None:
        """One fused pass, as there is no state."""
        descend(weight[rows], None if copy is None else copy[rows], gradient, self.lr * self.factor, constant)

    def rule(self) -> RowRule:
        return RowRule(self.lr * self.factor)

    @staticmethod
    def working_bytes_per_value() -> int:
        return 4


@final
class RowAdam(RowUpdate):
    """Lazy Adam, like torch's SparseAdam: moments and step counts change only for the updated rows."""

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

    def descend(
        self, weight: torch.Tensor, copy: torch.Tensor | None, rows: slice, gradient: torch.Tensor, constant: int
    ) -> None:
        """One fused pass on a GPU."""
        if copy is None or not weight.is_cuda:
            super().descend(weight, copy, rows, gradient, constant)
            return
        from xclearn.parts import triton_rows

        moments = AdamMoments(self.first[rows], self.second[rows], self.steps[rows].add_(1))
        rates = AdamRates(self.lr * self.factor, *self.betas, self.epsilon)
        triton_rows.adam(weight[rows], copy[rows], gradient.contiguous(), moments, rates, constant)

    def rule(self) -> RowRule:
        moments = self.first.numpy(), self.second.numpy(), self.steps.numpy()
        return RowRule(self.lr * self.factor, moments, self.betas, self.epsilon)

    @staticmethod
    def working_bytes_per_value() -> int:
        return 24  # gradient, both new moments, denominator, and two temporary arrays
