"""Passes over the label side of a text network that PyTorch would make one after another, made once on a GPU.

The plain forms, which a CPU runs, are the oracles of the Triton kernels. Knows nothing about scores or losses.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch.nn import functional as F

from xclearn.parts.losses import aligned


class Mixture(NamedTuple):
    """What the classifiers w = M dropout(ReLU(v)) + c + s ⊙ v + g ⊙ r share."""

    matrix: torch.Tensor  # (D, D) M
    shift: torch.Tensor  # (D,) c
    skip: torch.Tensor  # (D,) s
    gate: torch.Tensor | None  # (D,) g, where there are refinements


class Own(NamedTuple):
    """What some outputs have of their own."""

    text: torch.Tensor  # (C, D) v
    refinement: torch.Tensor | None  # (C, D) r
    bias: torch.Tensor  # (C,)


class Back(NamedTuple):
    """What comes back to some outputs, and where it goes."""

    of_weight: torch.Tensor  # (C, D) the gradient of the classifiers
    of_inner: torch.Tensor  # (C, D) of dropout(ReLU(v))
    of_text: torch.Tensor  # (C, D) to be written
    of_refinement: torch.Tensor | None  # (C, D) to be written; none: refinements move at once
    descent: float  # by so much of their gradient


def opened(
    text: torch.Tensor, dropout: float, seed: torch.Tensor | None, first: int, compute: torch.dtype
) -> torch.Tensor:
    """dropout(ReLU(v)) (C, D), whose sign says later what was kept.

    With a `seed` () what is kept is a function of it and of the number of the row, of which `first` is the first.
    """
    if seed is not None:
        from xclearn.parts import triton_text

        return triton_text.opened(text, dropout, seed, first, compute)
    return F.dropout(F.relu(text), dropout).to(compute)


def combined(inner: torch.Tensor, own: Own, mixture: Mixture) -> torch.Tensor:
    """Classifiers (C, width) in the precision of `inner`; their bias is column D, what follows is zero."""
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


def closed(back: Back, inner: torch.Tensor, own: Own, mixture: Mixture, dropout: float) -> torch.Tensor:
    """Write the gradients of v and r, or move r; the gradients of shift, skip and gate (3, D)."""
    if inner.is_cuda:
        from xclearn.parts import triton_text

        return triton_text.close(back, inner, own, mixture, dropout)
    of_weight = back.of_weight
    sums = [of_weight.sum(dim=0), (of_weight * own.text).sum(dim=0)]
    torch.mul(of_weight, mixture.skip, out=back.of_text)
    kept = torch.ops.aten.threshold_backward(back.of_inner, inner, 0)  # where neither ReLU nor dropout had shut
    back.of_text.add_(kept, alpha=1 / (1 - dropout))
    if own.refinement is None or mixture.gate is None:
        return torch.stack([*sums, torch.zeros_like(mixture.skip)])
    sums.append((of_weight * own.refinement).sum(dim=0))
    if back.of_refinement is not None:
        torch.mul(of_weight, mixture.gate, out=back.of_refinement)
    else:
        own.refinement.addcmul_(of_weight, mixture.gate, value=-back.descent)
    return torch.stack(sums)
