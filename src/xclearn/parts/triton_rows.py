"""Triton kernels on label rows. Imported only where there is a CUDA device; `fused` holds what they must equal."""

from __future__ import annotations

import torch
import triton
from triton import language as tl

_BLOCK = 4096  # values a program changes


def descend(table: torch.Tensor, copy: torch.Tensor, gradient: torch.Tensor, lr: float, constant: int) -> None:
    """One pass: reads gradient and table, writes table and copy. All are contiguous, (n, width)."""
    size, width = table.numel(), table.shape[1]
    _descend[(triton.cdiv(size, _BLOCK),)](table, copy, gradient, lr, size, width, constant, block=_BLOCK)


@triton.jit
def _descend(table, copy, gradient, lr, size, width, constant, block: tl.constexpr):  # type: ignore[no-untyped-def]
    places = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    inside = places < size
    change = tl.load(gradient + places, mask=inside, other=0.0).to(tl.float32)
    change = tl.where(places % width == constant, 0.0, change)
    value = tl.load(table + places, mask=inside, other=0.0) - lr * change
    tl.store(table + places, value, mask=inside)
    tl.store(copy + places, value.to(copy.dtype.element_ty), mask=inside)
