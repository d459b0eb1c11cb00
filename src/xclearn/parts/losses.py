"""Losses over very many outputs, computed without storing all scores at once.

`all_outputs_loss` is the binary cross-entropy of every document with every output, summed over outputs and averaged
over documents. Scores are computed one block of outputs at a time, turned into the gradient σ(score) − y in place, and
multiplied into the gradients of both sides. Some callers may choose the squared hinge instead. Knows nothing about
where vectors and classifiers come from.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
from torch.nn import functional as F

SCORES_AT_ONCE = {"cpu": 1 << 22, "cuda": 1 << 27}  # entries of a score block: fits the CPU's cache; few GPU launches
OutputLoss = Literal["bce_sum", "bce_mean", "squared_hinge"]  # loss of a document: sum or mean over outputs
MEASURE_EVERY = 16  # with many scores, the loss is computed only at every such step
_FEW_SCORES = 1 << 20
_BLOCK_MULTIPLE = 64
PAIRS_AT_ONCE = 1 << 16
_ALIGNMENT = 8  # bf16 products need rows aligned to 16 bytes: an odd width halves the speed


def worth_measuring(step: int, n_scores: int) -> bool:
    """Whether to compute a step's loss: it costs a pass over all scores, and sampling it suffices for the log."""
    return n_scores <= _FEW_SCORES or step % MEASURE_EVERY == 0


def aligned(width: int) -> int:
    """The next width at which every matrix row is aligned."""
    return math.ceil(width / _ALIGNMENT) * _ALIGNMENT


def filled_up(n_outputs: int) -> int:
    """The number of outputs rounded up to whole blocks."""
    return math.ceil(n_outputs / _BLOCK_MULTIPLE) * _BLOCK_MULTIPLE


def blocks(n_outputs: int, n_documents: int, device: str) -> list[tuple[int, int]]:
    """Ranges (begin, end) of outputs scored together.

    Lengths are multiples of 64 with a short rest at the end: matrix products over an odd number of outputs run at less
    than half the speed.
    """
    whole = n_outputs // _BLOCK_MULTIPLE * _BLOCK_MULTIPLE
    size = max(_BLOCK_MULTIPLE, SCORES_AT_ONCE[device] // max(1, n_documents) // _BLOCK_MULTIPLE * _BLOCK_MULTIPLE)
    ranges = [(begin, min(begin + size, whole)) for begin in range(0, whole, size)]
    return [*ranges, (whole, n_outputs)] if whole < n_outputs else ranges


def block_gradient(
    x: torch.Tensor,
    weight: torch.Tensor,
    owner: torch.Tensor,
    columns: torch.Tensor,
    measure: bool,
    offset: torch.Tensor | None = None,
    n_outputs: int | None = None,
    hinge: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """σ(x wᵀ + offset) − y of one block (n, C), and the block's summed loss (NaN unless measured).

    With `hinge` the loss is max(0, 1 ∓ score)², minus for the outputs where y is 1.

    `owner` and `columns` (m,) are the entries where y is 1; columns outside 0 … C − 1 belong to another block. They are
    added with weight 0 rather than filtered out, which would synchronise with the device. Rows of `weight` after the
    first `n_outputs` are padding: their columns are meaningless and not part of the loss.
    """
    n_outputs = len(weight) if n_outputs is None else min(n_outputs, len(weight))
    inside = (columns >= 0) & (columns < n_outputs)
    columns = columns.clamp(0, n_outputs - 1)
    flat = weight.new_empty(len(x) * aligned(len(weight)))
    scores = flat.view(len(x), -1)[:, : len(weight)]  # (n, C), each row aligned
    torch.mm(x, weight.T, out=scores)
    if offset is not None:
        scores += offset.to(scores.dtype)
    if measure and n_outputs < len(weight):
        scores[:, n_outputs:] = -torch.inf
    position = owner * scores.stride(0) + columns  # (m,) in the flat block
    wide = torch.promote_types(scores.dtype, torch.float32)
    loss = torch.full((), math.nan, device=x.device)
    if hinge:
        positive = flat[position].to(wide)  # (m,)
        scores.add_(1).clamp_(min=0)
        right, wrong = F.relu(1 - positive), F.relu(1 + positive)
        if measure:
            loss = scores.square().sum(dtype=wide) + ((right.square() - wrong.square()) * inside).sum()
        flat.index_add_(0, position, (-(right + wrong) * inside).to(scores.dtype))
        return scores.mul_(2), loss
    if measure:
        loss = F.softplus(scores).sum(dtype=wide) - (flat[position].to(wide) * inside).sum()
    scores.sigmoid_()
    flat.index_add_(0, position, inside.to(scores.dtype), alpha=-1)
    return scores, loss


def pair_gradient(scores: torch.Tensor, targets: torch.Tensor, hinge: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Like `block_gradient`, for single scores (m,) with targets 0 or 1: the gradient (m,) and the summed loss."""
    if not hinge:
        loss = F.binary_cross_entropy_with_logits(scores, targets, reduction="sum")
        return scores.sigmoid() - targets, loss
    sign = 2 * targets - 1
    slack = F.relu(1 - sign * scores)
    return -2 * sign * slack, slack.square().sum()


def all_outputs_loss(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    owner: torch.Tensor,
    columns: torch.Tensor,
    *,
    compute: torch.dtype,
    measure: bool,
) -> torch.Tensor:
    """Mean over documents of the summed loss; differentiable in `x` (n, D), `weight` (C, D) and `bias` (C,)."""
    loss: torch.Tensor = _AllOutputs.apply(x, weight, bias, owner, columns, compute, measure)
    return loss


class _AllOutputs(torch.autograd.Function):
    """Gradients are computed in the forward pass, where the scores are; backward only scales them."""

    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor,
        owner: torch.Tensor,
        columns: torch.Tensor,
        compute: torch.dtype,
        measure: bool,
    ) -> torch.Tensor:
        inputs, rows = x.to(compute), weight.to(compute)
        x_gradient = torch.zeros_like(x, dtype=torch.float32)
        weight_gradient = torch.empty_like(weight)
        bias_gradient = torch.empty_like(bias)
        loss = torch.zeros((), device=x.device)
        for begin, end in blocks(len(rows), len(x), x.device.type):
            part = slice(begin, end)
            scores, block = block_gradient(inputs, rows[part], owner, columns - begin, measure, bias[part])
            x_gradient += scores @ rows[part]
            weight_gradient[part] = scores.T @ inputs
            bias_gradient[part] = scores.sum(dim=0, dtype=torch.float32)
            loss = loss + block
        ctx.save_for_backward(x_gradient, weight_gradient, bias_gradient)
        ctx.n_documents = len(x)
        return loss / len(x)

    @staticmethod
    def backward(ctx: Any, *outer: Any) -> Any:
        scale = outer[0] / ctx.n_documents
        return *(scale * gradient for gradient in ctx.saved_tensors), None, None, None, None
