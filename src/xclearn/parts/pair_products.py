"""x[owner] · weight[column] for pairs of a document and an output, and the gradients of both sides.

On a CPU the native core computes them. A GPU computes all products in bfloat16 and selects the pairs, which is cheaper
than gathering two vectors per pair; if that needs too much memory, vectors are gathered for blocks of pairs. Knows
nothing about labels or losses.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from xclearn.kernels import shortlist
from xclearn.parts.losses import PAIRS_AT_ONCE, filled_up

_DENSE_SCORES = 1 << 30  # 2 GB in bfloat16


def pair_scores(x: torch.Tensor, weight: torch.Tensor, owner: torch.Tensor, column: torch.Tensor) -> torch.Tensor:
    """Scores (m,) of distinct pairs of rows of `x` (n, D) and `weight` (S, D); differentiable in both."""
    native = x.device.type == "cpu" and x.dtype == weight.dtype == torch.float32
    scores: torch.Tensor = (_NativeScores if native else _PairScores).apply(x, weight, owner, column)
    return scores


def products(
    x: torch.Tensor, weight: torch.Tensor, owner: torch.Tensor, column: torch.Tensor
) -> DensePairs | GatheredPairs:
    """The implementation that suits the device and the number of scores."""
    dense = x.device.type == "cuda" and len(x) * filled_up(len(weight)) <= _DENSE_SCORES
    return (DensePairs if dense else GatheredPairs)(x, weight, owner, column)


def dense_bytes(n: int, n_pairs: int, n_outputs: int) -> int:
    """Bytes that a GPU needs for the pairs of n documents, assuming distinct outputs where possible."""
    return 2 * min(n * filled_up(min(n_pairs, n_outputs)), _DENSE_SCORES)


class DensePairs:
    """All scores in bfloat16; outputs are padded, as an odd number of them halves the speed."""

    def __init__(self, x: torch.Tensor, weight: torch.Tensor, owner: torch.Tensor, column: torch.Tensor) -> None:
        self.x = x.bfloat16()
        self.n_outputs = len(weight)
        self.owner = owner
        self.column = column
        self.weight = F.pad(weight.bfloat16(), (0, 0, 0, filled_up(len(weight)) - len(weight)))

    def scores(self) -> torch.Tensor:
        return (self.x @ self.weight.T)[self.owner, self.column].float()  # (m,)

    def gradients(self, outer: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Of `x` (n, D) and `weight` (S, D), where `outer` (m,) is that of the scores."""
        each = self.x.new_zeros(len(self.x), len(self.weight))  # (n, S and padding)
        each[self.owner, self.column] = outer.to(each.dtype)
        return (each @ self.weight).float(), (each.T @ self.x)[: self.n_outputs].float()


class GatheredPairs:
    """Gathers the vectors of pairs, a block at a time."""

    def __init__(self, x: torch.Tensor, weight: torch.Tensor, owner: torch.Tensor, column: torch.Tensor) -> None:
        self.x = x
        self.weight = weight
        self.owner = owner
        self.column = column

    def scores(self) -> torch.Tensor:
        parts = zip(self.owner.split(PAIRS_AT_ONCE), self.column.split(PAIRS_AT_ONCE), strict=True)
        return torch.cat([(self.x[rows].float() * self.weight[outputs].float()).sum(dim=1) for rows, outputs in parts])

    def gradients(self, outer: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Of `x` (n, D) and `weight` (S, D), where `outer` (m,) is that of the scores."""
        of_x, of_weight = (torch.zeros(side.shape, device=side.device) for side in (self.x, self.weight))
        for rows, outputs, gradient in zip(
            *(part.split(PAIRS_AT_ONCE) for part in (self.owner, self.column, outer)), strict=True
        ):
            of_x.index_add_(0, rows, gradient[:, None] * self.weight[outputs])
            of_weight.index_add_(0, outputs, gradient[:, None] * self.x[rows])
        return of_x, of_weight


class _PairScores(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, weight: torch.Tensor, owner: torch.Tensor, column: torch.Tensor
    ) -> torch.Tensor:
        ctx.products = products(x, weight, owner, column)
        ctx.types = (x.dtype, weight.dtype)
        return ctx.products.scores().to(x.dtype)

    @staticmethod
    def backward(ctx: Any, *outer: Any) -> Any:
        of_x, of_weight = ctx.products.gradients(outer[0])
        return of_x.to(ctx.types[0]), of_weight.to(ctx.types[1]), None, None


class _NativeScores(torch.autograd.Function):
    """Scores by the native core, which needs pairs sorted by column."""

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, weight: torch.Tensor, owner: torch.Tensor, column: torch.Tensor
    ) -> torch.Tensor:
        ordered = bool((column[1:] >= column[:-1]).all())
        order = None if ordered else column.argsort(stable=True)
        if order is not None:
            owner, column = owner[order], column[order]
        ctx.save_for_backward(x, weight, owner, column, order)
        scores = torch.from_numpy(shortlist.pair_scores(*_arrays(x, weight, owner, column), torch.get_num_threads()))
        return scores if order is None else torch.empty_like(scores).index_copy_(0, order, scores)

    @staticmethod
    def backward(ctx: Any, *outer: Any) -> Any:
        x, weight, owner, column, order = ctx.saved_tensors
        gradient = outer[0].contiguous() if order is None else outer[0][order]
        arrays = _arrays(x, weight, owner, column)
        found = shortlist.pair_products(*arrays, gradient.numpy(), torch.get_num_threads())
        return *(torch.from_numpy(each) for each in found), None, None


def _arrays(*tensors: torch.Tensor) -> tuple[np.ndarray, np.ndarray, shortlist.RowPairs]:
    x, weight, owner, column = (tensor.detach().contiguous().numpy() for tensor in tensors)
    return x, weight, shortlist.RowPairs(owner, column)
