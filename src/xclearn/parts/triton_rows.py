"""Triton kernels for label rows. Imported only if there is a CUDA device.

They must equal `fused.descend` and `RowAdam.apply_`.
"""

from __future__ import annotations

import torch
import triton
from triton import language as tl

from xclearn.parts.row_update import AdamMoments, AdamRates

_BLOCK = 4096  # values per program


def descend(table: torch.Tensor, copy: torch.Tensor, gradient: torch.Tensor, lr: float, constant: int) -> None:
    """Read gradient and table, write table and copy, in one pass. All are contiguous, (n, width)."""
    size, width = table.numel(), table.shape[1]
    _descend[(triton.cdiv(size, _BLOCK),)](table, copy, gradient, lr, size, width, constant, block=_BLOCK)


def adam(
    table: torch.Tensor,
    copy: torch.Tensor,
    gradient: torch.Tensor,
    moments: AdamMoments,
    rates: AdamRates,
    constant: int,
) -> None:
    """Update moments, table and copy in one pass. All are contiguous, (n, width)."""
    size, width = table.numel(), table.shape[1]
    grid = (triton.cdiv(size, _BLOCK),)
    _adam[grid](table, copy, gradient, *moments, *rates, size, width, constant, block=_BLOCK, num_warps=8)


@triton.jit
def _descend(table, copy, gradient, lr, size, width, constant, block: tl.constexpr):  # type: ignore[no-untyped-def]
    places = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    inside = places < size
    change = tl.load(gradient + places, mask=inside, other=0.0).to(tl.float32)
    change = tl.where(places % width == constant, 0.0, change)
    value = tl.load(table + places, mask=inside, other=0.0) - lr * change
    tl.store(table + places, value, mask=inside)
    tl.store(copy + places, value.to(copy.dtype.element_ty), mask=inside)


@triton.jit
def _adam(  # type: ignore[no-untyped-def]
    table, copy, gradient, first, second, steps,
    rate, beta_first, beta_second, epsilon, size, width, constant,
    block: tl.constexpr,
):  # fmt: skip
    places = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    inside = places < size
    step = tl.load(steps + places // width, mask=inside, other=1.0)
    change = tl.load(gradient + places, mask=inside, other=0.0).to(tl.float32)
    change = tl.where(places % width == constant, 0.0, change)
    mean = beta_first * tl.load(first + places, mask=inside, other=0.0) + (1 - beta_first) * change
    square = beta_second * tl.load(second + places, mask=inside, other=0.0) + (1 - beta_second) * change * change
    corrected = tl.sqrt(square / (1 - tl.exp2(step * tl.log2(beta_second)))) + epsilon
    moved = rate * (mean / (1 - tl.exp2(step * tl.log2(beta_first)))) / corrected
    value = tl.load(table + places, mask=inside, other=0.0) - moved
    tl.store(first + places, mean, mask=inside)
    tl.store(second + places, square, mask=inside)
    tl.store(table + places, value, mask=inside)
    tl.store(copy + places, value.to(copy.dtype.element_ty), mask=inside)
