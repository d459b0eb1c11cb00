"""Triton kernels for the label side of a text network. Imported only if there is a CUDA device.

They must equal `fused_text`, except that dropout is a hash of the position, so that its mask need not be stored.
"""

from __future__ import annotations

import torch
import triton
from triton import language as tl

from xclearn.parts.fused_text import Back, Mixture, Own, kept_scale
from xclearn.parts.rows import SparseRows

_BLOCK = 4096  # values per program
_ROWS = 64  # rows summed per program
_PIECE = 64  # row entries summed per program; frequent tokens have many pieces


def weighted_sums(rows: SparseRows, table: torch.Tensor) -> torch.Tensor:
    """The product of a sparse matrix with short rows (S, V) and a table (V, D), in the table's precision."""
    dim = table.shape[1]
    out = torch.empty(len(rows), dim, dtype=table.dtype, device=table.device)
    parts = (rows.indptr, rows.columns, rows.values, table, out, dim)
    _sum_rows[(len(rows),)](*parts, block=triton.next_power_of_2(dim), num_warps=1)
    return out


def pieces(rows: SparseRows) -> tuple[torch.Tensor, torch.Tensor]:
    """Split rows into pieces of equal work: the row of each piece (P,) and its first entry (P,)."""
    counts = (rows.indptr.diff() + _PIECE - 1) // _PIECE
    row = torch.repeat_interleave(counts)
    number = torch.arange(len(row), device=row.device) - (counts.cumsum(0) - counts)[row]
    return row, rows.indptr[row] + number * _PIECE


def summed_pieces(rows: SparseRows, cut: tuple[torch.Tensor, torch.Tensor], table: torch.Tensor) -> torch.Tensor:
    """Like `weighted_sums`, for rows of any length, in float32; `cut` are their `pieces`."""
    dim = table.shape[1]
    out = torch.zeros(len(rows), dim, device=table.device)
    parts = (*cut, rows.indptr, rows.columns, rows.values, table, out, dim)
    _sum_pieces[(len(cut[0]),)](*parts, piece=_PIECE, block=triton.next_power_of_2(dim), num_warps=1)
    return out


def opened(text: torch.Tensor, dropout: float, seed: torch.Tensor, first: int, compute: torch.dtype) -> torch.Tensor:
    """`fused_text.opened`, in one pass."""
    inner = torch.empty_like(text, dtype=compute)
    start = first * text.shape[1]
    grid = (triton.cdiv(text.numel(), _BLOCK),)
    _open[grid](text, inner, text.numel(), start, seed, dropout, kept_scale(dropout), block=_BLOCK)
    return inner


def combine(product: torch.Tensor, own: Own, mixture: Mixture, weight: torch.Tensor) -> None:
    """Everything in `fused_text.combined` except the product, in one pass."""
    dim, refined = product.shape[1], own.refinement is not None
    refinement, gate = (own.refinement, mixture.gate) if refined else (own.text, mixture.skip)
    parts = (product, own.text, refinement, own.bias, mixture.shift, mixture.skip, gate, weight)
    block = triton.next_power_of_2(weight.shape[1])
    _combine[(len(weight),)](*parts, dim, weight.shape[1], refined=refined, block=block, num_warps=2)


def close(back: Back, inner: torch.Tensor, own: Own, mixture: Mixture, dropout: float) -> torch.Tensor:
    """`fused_text.closed`, in one pass."""
    dim, refined = inner.shape[1], own.refinement is not None
    refinement, gate = (own.refinement, mixture.gate) if refined else (own.text, mixture.skip)
    written = refinement if back.of_refinement is None else back.of_refinement
    n_programs = triton.cdiv(len(inner), _ROWS)
    sums = torch.empty(n_programs, 3, dim, device=inner.device)
    read = (back.of_weight, back.of_inner, inner, own.text, refinement, mixture.skip, gate)
    numbers = (len(inner), dim, back.of_weight.stride(0), back.descent, kept_scale(dropout))
    forms = {"refined": refined, "moves": back.of_refinement is None, "rows": _ROWS}
    block = triton.next_power_of_2(dim)
    _close[(n_programs,)](*read, back.of_text, written, sums, *numbers, **forms, block=block, num_warps=4)
    return sums.sum(dim=0)


@triton.jit
def _weighted_sum(columns, values, table, begin, end, dim, block: tl.constexpr):  # type: ignore[no-untyped-def]
    """Σ value · table row over the entries begin … end − 1, with four rows in flight at a time."""
    across = tl.arange(0, block)
    inside = across < dim
    total = tl.zeros([block], dtype=tl.float32)
    for first in range(begin, end, 4):
        for place in tl.static_range(4):
            here = first + place < end
            column = tl.load(columns + first + place, mask=here, other=0).to(tl.int64)
            value = tl.load(values + first + place, mask=here, other=0.0)
            total += value * tl.load(table + column * dim + across, mask=inside, other=0.0).to(tl.float32)
    return total


@triton.jit
def _sum_rows(starts, columns, values, table, out, dim, block: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0).to(tl.int64)
    begin, end = tl.load(starts + row), tl.load(starts + row + 1)
    total = _weighted_sum(columns, values, table, begin, end, dim, block)
    across = tl.arange(0, block)
    tl.store(out + row * dim + across, total.to(out.dtype.element_ty), mask=across < dim)


@triton.jit
def _sum_pieces(  # type: ignore[no-untyped-def]
    row_of, begin_of, starts, columns, values, table, out, dim,
    piece: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    row = tl.load(row_of + tl.program_id(0))
    begin = tl.load(begin_of + tl.program_id(0))
    first, last = tl.load(starts + row), tl.load(starts + row + 1)
    total = _weighted_sum(columns, values, table, begin, tl.minimum(begin + piece, last), dim, block)
    across = tl.arange(0, block)
    if last - first <= piece:
        tl.store(out + row * dim + across, total, mask=across < dim)
    else:
        tl.atomic_add(out + row * dim + across, total, mask=across < dim)


@triton.jit
def _chance(places, seed):  # type: ignore[no-untyped-def]
    """Uniform in [0, 1): 24 bits of a hash of the position."""
    bits = places.to(tl.uint32) * 0x9E3779B9 + tl.load(seed).to(tl.uint32)
    bits = (bits ^ (bits >> 16)) * 0x7FEB352D
    bits = (bits ^ (bits >> 15)) * 0x846CA68B
    return ((bits ^ (bits >> 16)) >> 8).to(tl.float32) * (1.0 / 16777216.0)


@triton.jit
def _open(text, inner, size, start, seed, dropout, scale, block: tl.constexpr):  # type: ignore[no-untyped-def]
    places = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    inside = places < size
    value = tl.load(text + places, mask=inside, other=0.0).to(tl.float32)
    kept = (value > 0) & (_chance(places + start, seed) >= dropout)
    tl.store(inner + places, tl.where(kept, value * scale, 0.0).to(inner.dtype.element_ty), mask=inside)


@triton.jit
def _combine(  # type: ignore[no-untyped-def]
    product, text, refinement, bias, shift, skip, gate, weight, dim, width, refined: tl.constexpr, block: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, block)
    inside = columns < dim
    value = tl.load(product + row * dim + columns, mask=inside, other=0.0).to(tl.float32)
    value += tl.load(shift + columns, mask=inside, other=0.0)
    value += tl.load(skip + columns, mask=inside, other=0.0) * tl.load(
        text + row * dim + columns, mask=inside, other=0.0
    ).to(tl.float32)
    if refined:
        value += tl.load(gate + columns, mask=inside, other=0.0) * tl.load(
            refinement + row * dim + columns, mask=inside, other=0.0
        ).to(tl.float32)
    value = tl.where(columns == dim, tl.load(bias + row).to(tl.float32), value)
    tl.store(weight + row * width + columns, value.to(weight.dtype.element_ty), mask=columns < width)


@triton.jit
def _close(  # type: ignore[no-untyped-def]
    of_weight, of_inner, inner, text, refinement, skip, gate, of_text, written, sums,
    n_rows, dim, stride, descent, scale,
    refined: tl.constexpr, moves: tl.constexpr, rows: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, block)
    inside = columns < dim
    of_skip_row = tl.load(skip + columns, mask=inside, other=0.0)
    of_gate_row = tl.load(gate + columns, mask=inside, other=0.0)
    of_shift = tl.zeros([block], dtype=tl.float32)
    of_skip = tl.zeros([block], dtype=tl.float32)
    of_gate = tl.zeros([block], dtype=tl.float32)
    for row in range(program * rows, tl.minimum(program * rows + rows, n_rows)):
        at = row * dim + columns
        change = tl.load(of_weight + row * stride + columns, mask=inside, other=0.0).to(tl.float32)
        vector = tl.load(text + at, mask=inside, other=0.0).to(tl.float32)
        through = tl.load(of_inner + at, mask=inside, other=0.0).to(tl.float32)
        open_ = tl.load(inner + at, mask=inside, other=0.0).to(tl.float32) > 0
        of_shift += change
        of_skip += change * vector
        back = change * of_skip_row + tl.where(open_, through * scale, 0.0)
        tl.store(of_text + at, back.to(of_text.dtype.element_ty), mask=inside)
        if refined:
            value = tl.load(refinement + at, mask=inside, other=0.0).to(tl.float32)
            of_gate += change * value
            moved = change * of_gate_row
            if moves:
                moved = value - descent * moved
            tl.store(written + at, moved.to(written.dtype.element_ty), mask=inside)
    out = sums + program * 3 * dim + columns
    tl.store(out, of_shift, mask=inside)
    tl.store(out + dim, of_skip, mask=inside)
    tl.store(out + 2 * dim, of_gate, mask=inside)
