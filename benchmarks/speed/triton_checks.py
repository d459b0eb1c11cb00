"""Triton's kernels of the label side against plain torch: `gpu.py` checks them so before it measures.

    TRITON_INTERPRET=1 python -m benchmarks.speed.triton_checks cpu

Each check gives the largest error, relative to the largest value, and what is allowed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch

from xclearn.parts import triton_rows, triton_text
from xclearn.parts.fused_text import Back, Mixture, Own
from xclearn.parts.losses import aligned
from xclearn.parts.row_update import AdamMoments, AdamRates, RowAdam
from xclearn.parts.rows import SparseRows
from xclearn.parts.sparse_products import PlainProduct

_ROWS, _DIM, _WORDS = 201, 40, 30
_EXACT = 1e-5


def relative(found: torch.Tensor, wanted: torch.Tensor) -> float:
    wanted = wanted.double().cpu()
    return float((found.double().cpu() - wanted).abs().max() / wanted.abs().max())


def texts(device: str) -> SparseRows:
    """Rows of different lengths, one empty; the first word is in nearly all, so that its column has several pieces."""
    generator = torch.Generator().manual_seed(0)
    marks = torch.rand(_ROWS, _WORDS, generator=generator) < 0.3
    marks[:, 0] = True
    marks[7] = False
    owner, columns = marks.nonzero(as_tuple=True)
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), marks.sum(dim=1).cumsum(0)])
    values = torch.rand(len(owner), generator=generator)
    return SparseRows(indptr.to(device), columns.int().to(device), values.to(device), _WORDS)


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def sums_of_rows(device: str) -> tuple[float, float]:
    rows, table = texts(device), random(_WORDS, _DIM).to(device)
    return relative(triton_text.weighted_sums(rows, table), PlainProduct(texts("cpu")).of(table.cpu())), _EXACT


def sums_of_pieces(device: str) -> tuple[float, float]:
    columns = texts(device).transposed()
    gradient = random(_ROWS, _DIM).to(device)
    cut = triton_text.pieces(columns)
    assert len(cut[0]) > _WORDS, "some rows have several pieces"
    return relative(
        triton_text.summed_pieces(columns, cut, gradient), PlainProduct(texts("cpu")).back(gradient.cpu())
    ), _EXACT


def _shared() -> Mixture:
    return Mixture(random(_DIM, _DIM, seed=1), *(random(_DIM, seed=seed) for seed in (2, 3, 4)))


def _own() -> Own:
    return Own(random(_ROWS, _DIM, seed=5), random(_ROWS, _DIM, seed=6), random(_ROWS, seed=7))


def _on(device: str, parts: Mixture | Own) -> list[torch.Tensor]:
    return [part.to(device, copy=True) for part in parts if part is not None]


def classifiers(device: str) -> tuple[float, float]:
    shared, own, inner = _shared(), _own(), random(_ROWS, _DIM, seed=8)
    assert own.refinement is not None
    assert shared.gate is not None
    wanted = torch.zeros(_ROWS, aligned(_DIM + 1))
    wanted[:, :_DIM] = inner @ shared.matrix.T + shared.shift + shared.skip * own.text + shared.gate * own.refinement
    wanted[:, _DIM] = own.bias
    found = torch.full_like(wanted, 7.0).to(device)
    there = Own(*_on(device, own)), Mixture(*_on(device, shared))
    triton_text.combine((inner @ shared.matrix.T).to(device), *there, found)
    return relative(found, wanted), _EXACT


def dropout_of_the_hash(device: str) -> tuple[float, float]:
    """The share that is kept, the scale of what is kept, and that blocks of rows are parts of the whole."""
    text = random(4_000, 64).to(device)
    seed = torch.tensor(12_345, device=device)
    whole = triton_text.opened(text, 0.25, seed, 0, torch.float32)
    part = triton_text.opened(text[1_000:], 0.25, seed, 1_000, torch.float32)
    assert torch.equal(part, whole[1_000:])
    kept, relu = whole > 0, text.clamp(min=0)
    assert torch.allclose(whole[kept], relu[kept] / 0.75)
    assert not torch.equal(whole, triton_text.opened(text, 0.25, seed + 1, 0, torch.float32))
    by_column = (kept.sum(dim=0) / (relu > 0).sum(dim=0) - 0.75).abs().max()  # 2,000 draws a column: ± 0.0097
    by_both = float(((kept[1:] & kept[:-1]).sum() / ((relu[1:] > 0) & (relu[:-1] > 0)).sum() - 0.75**2).abs())
    assert by_both < 0.01, "neighbours are independent"
    return float(by_column), 0.05


def _closed(*, moves: bool, refined: bool, device: str) -> tuple[float, float]:
    shared, own, wide = _shared(), _own(), random(_ROWS, _DIM + 8, seed=9)
    of_weight = wide[:, :_DIM]
    of_inner = random(_ROWS, _DIM, seed=10)
    inner = random(_ROWS, _DIM, seed=11).relu()
    assert own.refinement is not None
    assert shared.gate is not None
    of_text = of_weight * shared.skip + of_inner * (inner > 0) / 0.75
    of_refinement = of_weight * shared.gate
    sums = torch.stack([of_weight.sum(0), (of_weight * own.text).sum(0), (of_weight * own.refinement).sum(0)])
    text, refinement, bias = _on(device, own)
    there = Own(text, refinement if refined else None, bias)
    mine = wide.to(device)[:, :_DIM], of_inner.to(device), torch.empty_like(text)
    back = Back(*mine, None if moves else torch.empty_like(text), 0.5)
    mixture = Mixture(*_on(device, shared))
    found = triton_text.close(back, inner.to(device), there, mixture, 0.25)
    errors = [relative(back.of_text, of_text), relative(found[:2], sums[:2])]
    if refined:
        errors.append(relative(found[2], sums[2]))
        moved = own.refinement - 0.5 * of_refinement if moves else of_refinement
        errors.append(relative(refinement if back.of_refinement is None else back.of_refinement, moved))
    return max(errors), _EXACT


def gradients_of_refined(device: str) -> tuple[float, float]:
    return _closed(moves=False, refined=True, device=device)


def gradients_of_text_alone(device: str) -> tuple[float, float]:
    return _closed(moves=False, refined=False, device=device)


def refinements_that_move(device: str) -> tuple[float, float]:
    return _closed(moves=True, refined=True, device=device)


def adam_in_one_pass(device: str) -> tuple[float, float]:
    """Five steps of a block of rows, against the plain update."""
    plain, mine, there = RowAdam(_ROWS, _DIM, 0.1), RowAdam(_ROWS, _DIM, 0.1).to(device), slice(10, 90)
    wanted = random(_ROWS, _DIM)
    found, copy = wanted.to(device, copy=True), wanted.to(device, torch.bfloat16)
    for seed in range(5):
        gradient = random(80, _DIM, seed=seed)
        moments = AdamMoments(mine.first[there], mine.second[there], mine.steps[there].add_(1))
        rates = AdamRates(0.1, *mine.betas, mine.epsilon)
        triton_rows.adam(found[there], copy[there], gradient.to(device), moments, rates, 3)
        gradient[:, 3] = 0
        plain.apply_(wanted, there, gradient)
    assert torch.allclose(copy[there].float(), found[there], rtol=2**-7)
    errors = [relative(found, wanted), relative(mine.first, plain.first), relative(mine.second, plain.second)]
    return max(errors), 1e-4


CHECKS: list[Callable[[str], tuple[float, float]]] = [
    sums_of_rows,
    sums_of_pieces,
    classifiers,
    dropout_of_the_hash,
    gradients_of_refined,
    gradients_of_text_alone,
    refinements_that_move,
    adam_in_one_pass,
]


def main(device: str) -> None:
    """Run all checks."""
    for check in CHECKS:
        error, allowed = check(device)
        print(check.__name__, error, allowed, flush=True)
        if not error <= allowed:
            raise SystemExit(f"{check.__name__}: {error} > {allowed}")


if __name__ == "__main__":
    main(sys.argv[1])
