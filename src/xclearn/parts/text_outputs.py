"""The loss of a text network over many outputs, computed without storing all classifiers at once.

A classifier is w = M dropout(ReLU(v)) + c + s ⊙ v + g ⊙ r for the output's text vector v and refinement r: DECAF's
block and gates multiplied out. Classifiers are computed one block of outputs at a time, scored, and their gradients are
propagated to v, r and the shared parameters while the block is in the cache. Nothing is stored for a backward pass, as
it would be as large as all classifiers. Knows nothing about where v, r and the mixture come from; the oracle is plain
autograd over `TextNetwork.classifiers`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import torch

from xclearn.parts import fused_text
from xclearn.parts.fused_text import Back, Mixture, Own
from xclearn.parts.label_rows import LabelRows
from xclearn.parts.losses import aligned, block_gradient, blocks
from xclearn.parts.rows import Gathered


@final
@dataclass(frozen=True)
class BatchScoring:
    """Options for scoring a batch."""

    compute: torch.dtype  # precision of the large products
    dropout: float  # dropout after the ReLU
    measure: bool  # whether to compute the loss, else NaN
    seed: torch.Tensor | None = None  # () seed of dropout on a GPU
    rows: LabelRows | None = None  # which outputs of the step this process holds; None: all
    descent: float | None = None  # learning rate for updating refinements directly; None: return their gradient


def mixture_loss(x: torch.Tensor, mixture: Mixture, own: Own, positives: Gathered, step: BatchScoring) -> torch.Tensor:
    """Mean over documents of the loss summed over outputs; differentiable in `x` (n, D), `mixture` and `own`.

    `positives.columns` are indices of the outputs of all processes; the loss is over those of this process.
    """
    loss: torch.Tensor = _MixtureLoss.apply(x, *mixture, *own, positives.owner, positives.columns, step)
    return loss


class _MixtureLoss(torch.autograd.Function):
    """Gradients are computed in the forward pass, where the scores are; backward only scales them."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, *tensors: Any) -> torch.Tensor:
        *shared_and_own, owner, columns, step = tensors
        mixture = Mixture(*shared_and_own[:4])
        own = Own(*shared_and_own[4:])
        gradients = _Gradients(x, mixture, own, step)
        losses = [
            gradients.add_block(begin, end, owner, columns)
            for begin, end in blocks(gradients.rows.n_labels, len(x), x.device.type)
        ]
        ctx.save_for_backward(*gradients.of_inputs())
        return torch.stack(losses).sum() / len(x)

    @staticmethod
    def backward(ctx: Any, *outer: Any) -> Any:
        scaled = [None if gradient is None else gradient * outer[0] for gradient in ctx.saved_tensors]
        return *scaled, None, None, None


@final
class _Gradients:
    """Accumulates the gradients of the mean loss over blocks."""

    def __init__(self, x: torch.Tensor, mixture: Mixture, own: Own, step: BatchScoring) -> None:
        self.mixture = mixture
        self.own = own
        self.step = step
        self.rows = LabelRows(0, len(own.text)) if step.rows is None else step.rows
        self.dim = x.shape[1]
        # The bias is an extra column of every classifier, so the products include it.
        self.inputs = x.new_zeros(len(x), aligned(self.dim + 1), dtype=step.compute)
        self.inputs[:, : self.dim] = x
        self.inputs[:, self.dim] = 1
        self.shares = self.inputs / len(x)  # divided for the gradient of the mean
        self.matrix = mixture.matrix.to(step.compute)
        self.of_x = torch.zeros_like(self.inputs, dtype=x.dtype)
        self.of_matrix = torch.zeros_like(mixture.matrix)
        self.of_vectors = x.new_zeros(3, self.dim)  # gradients of shift, skip and gate
        self.of_text = torch.empty_like(own.text)
        self.of_bias = torch.empty_like(own.bias)
        kept = own.refinement if step.descent is None else None
        self.of_refinement = None if kept is None else torch.empty_like(kept)

    def add_block(self, begin: int, end: int, owner: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
        """Score the outputs of a block that this process holds; returns their summed loss."""
        step = self.step
        first, last = (min(max(limit, begin), end) for limit in (self.rows.start, self.rows.stop))
        rows = slice(first - self.rows.start, last - self.rows.start) if first < last else slice(0, 0)
        own = Own(*(None if part is None else part[rows] for part in self.own))  # type: ignore[arg-type]
        around = first - begin, end - last
        inner = fused_text.opened(own.text, step.dropout, step.seed, first, step.compute, around)  # (C, D)
        if first == last:
            return self.of_x.new_zeros(())
        weight = fused_text.combined(inner, own, self.mixture)  # (C, width)
        scores, loss = block_gradient(self.inputs, weight, owner, columns - first, step.measure)  # (n, C)
        self.of_x += scores @ weight
        change = scores.T @ self.shares  # (C, width)
        of_weight = change[:, : self.dim]
        self.of_bias[rows] = change[:, self.dim]
        self.of_matrix += of_weight.T @ inner
        of_refinement = None if self.of_refinement is None else self.of_refinement[rows]
        back = Back(of_weight, of_weight @ self.matrix, self.of_text[rows], of_refinement, step.descent or 0.0)
        self.of_vectors += fused_text.closed(back, inner, own, self.mixture, step.dropout)
        return loss

    def of_inputs(self) -> list[torch.Tensor | None]:
        """Gradients in the order of the function's arguments."""
        shift, skip, gate = self.of_vectors.unbind()
        of_gate = None if self.mixture.gate is None else gate
        of_x = self.of_x[:, : self.dim] / len(self.of_x)
        return [of_x, self.of_matrix, shift, skip, of_gate, self.of_text, self.of_refinement, self.of_bias]
