"""Fuses several passes over label rows into one, because a step on a GPU is bound by memory bandwidth.

The plain form is the oracle of the Triton kernel; every CUDA build of PyTorch includes Triton. Knows nothing about
losses or training.
"""

from __future__ import annotations

import torch


def descend(table: torch.Tensor, copy: torch.Tensor | None, gradient: torch.Tensor, lr: float, constant: int) -> None:
    """table ← table − lr · gradient, except its column `constant`; `copy` receives the result in its own precision.

    All are (n, width); `gradient` may have any precision.
    """
    parts = [tensor for tensor in (table, copy, gradient) if tensor is not None]
    if copy is not None and table.is_cuda and all(tensor.is_contiguous() for tensor in parts):
        from xclearn.parts import triton_rows

        triton_rows.descend(table, copy, gradient, lr, constant)
        return
    gradient[:, constant] = 0
    table.add_(gradient, alpha=-lr)
    if copy is not None:
        copy.copy_(table)
