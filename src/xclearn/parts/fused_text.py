"""Fuses several passes over the label side of a text network into one on a GPU.

The plain forms, which a CPU runs, are the oracles of the Triton kernels. Knows nothing about scores or losses.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch.nn import functional as F

from xclearn.parts.losses import aligned


class Mixture(NamedTuple):
    """The shared parameters of the classifiers w = M dropout(ReLU(v)) + c + s ⊙ v + g ⊙ r."""

    matrix: torch.Tensor  # (D, D) M
    shift: torch.Tensor  # (D,) c
    skip: torch.Tensor  # (D,) s
    gate: torch.Tensor | None  # (D,) g, if there are refinements


class Own(NamedTuple):
    """The per-output parameters of some outputs."""

    text: torch.Tensor  # (C, D) v
    refinement: torch.Tensor | None  # (C, D) r
    bias: torch.Tensor  # (C,)


class Back(NamedTuple):
    """Gradients for some outputs, and where to write them."""

    of_weight: torch.Tensor  # (C, D) gradient of the classifiers
    of_inner: torch.Tensor  # (C, D) gradient of dropout(ReLU(v))
    of_text: torch.Tensor  # (C, D) output
    of_refinement: torch.Tensor | None  # (C, D) output; None: refinements are updated directly
    descent: float  # learning rate of that update


def dropped(values: torch.Tensor, share: float, training: bool, around: tuple[int, int] = (0, 0)) -> torch.Tensor:
    """Dropout of values (C, D); what is kept does not depend on how many rows before and after are elsewhere."""
    if around == (0, 0):
        return F.dropout(values, share, training)
    before, after = around
    return F.dropout(F.pad(values, (0, 0, before, after)), share, training)[before : before + len(values)]


def opened(
    text: torch.Tensor,
    dropout: float,
    seed: torch.Tensor | None,
    first: int,
    compute: torch.dtype,
    around: tuple[int, int] = (0, 0),
) -> torch.Tensor:
    """dropout(ReLU(v)) (C, D); positive entries are those that were kept.

    With a `seed` (), dropout is a function of the seed and the row number, which starts at `first`; else of the number
    of rows of the block that other processes hold `around` these, before and after.
    """
    if seed is not None:
        from xclearn.parts import triton_text

        return triton_text.opened(text, dropout, seed, first, compute)
    return dropped(F.relu(text), dropout, True, around).to(compute)


def combined(inner: torch.Tensor, own: Own, mixture: Mixture) -> torch.Tensor:
    """Classifiers (C, width) in the precision of `inner`; column D is the bias, later columns are zero."""
    dim, matrix = inner.shape[1], mixture.matrix.to(inner.dtype)
    weight = inner.new_empty(len(inner), aligned(dim + 1))
    if inner.is_cuda:
        from xclearn.parts import triton_text

        triton_text.combine(inner @ matrix.T, own, mixture, weight)
        return weight
    vectors = weight[:, :dim]
    torch.addmm(mixture.shift.to(inner.dtype), inner, matrix.T, out=vectors)
    vectors.addcmul_(own.text, mixture.skip)
    if own.refinement is not None and mixture.gate is not None:
        vectors.addcmul_(own.refinement, mixture.gate)
    weight[:, dim], weight[:, dim + 1 :] = own.bias, 0
    return weight


def kept_scale(dropout: float) -> float:
    """What dropout multiplies the kept values by; 0 if it keeps none."""
    return 1 / (1 - dropout) if dropout < 1 else 0.0


def closed(back: Back, inner: torch.Tensor, own: Own, mixture: Mixture, dropout: float) -> torch.Tensor:
    """Write the gradients of v and r, or update r; returns the gradients of shift, skip and gate (3, D)."""
    if inner.is_cuda:
        from xclearn.parts import triton_text

        return triton_text.close(back, inner, own, mixture, dropout)
    of_weight = back.of_weight
    sums = [of_weight.sum(dim=0), (of_weight * own.text).sum(dim=0)]
    torch.mul(of_weight, mixture.skip, out=back.of_text)
    kept = torch.ops.aten.threshold_backward(back.of_inner, inner, 0)  # where neither ReLU nor dropout set zero
    back.of_text.add_(kept, alpha=kept_scale(dropout))
    if own.refinement is None or mixture.gate is None:
        return torch.stack([*sums, torch.zeros_like(mixture.skip)])
    sums.append((of_weight * own.refinement).sum(dim=0))
    if back.of_refinement is not None:
        torch.mul(of_weight, mixture.gate, out=back.of_refinement)
    else:
        own.refinement.addcmul_(of_weight, mixture.gate, value=-back.descent)
    return torch.stack(sums)
