"""Documents trained on their own labels.

A pair is a document and a row of a table; pairs stand row after row. `train_pairs` is a whole training step: scores,
loss, the gradient of the documents, and the rows' update in place; a gradient of all rows never exists. `pair_scores`
and `pair_products` are its halves for rows that are themselves computed. Knows nothing about labels or networks.
"""

from __future__ import annotations

from typing import NamedTuple, final

import numpy as np

from xclearn.errors import DataError
from xclearn.kernels import _native, _threads


@final
class RowPairs(NamedTuple):
    """Which documents meet which rows."""

    owner: np.ndarray  # (m,) int64 documents
    row: np.ndarray  # (m,) int64 rows, ascending


@final
class RowRule(NamedTuple):
    """How a row follows its gradient: SGD, or Adam where moments are given; they change in place."""

    rate: float
    moments: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None  # first, second (R, W); steps (R, 1)
    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-8


@final
class PairLoss(NamedTuple):
    """What is minimised: scale · Σ over pairs of the binary cross-entropy or of the squared hinge."""

    hinge: bool = False
    scale: float = 1.0


def train_pairs(
    x: np.ndarray,
    table: np.ndarray,
    pairs: RowPairs,
    targets: np.ndarray,
    rule: RowRule,
    loss: PairLoss,
    fixed: int | None = None,
    n_threads: int | None = None,
) -> tuple[float, np.ndarray]:
    """Train rows of `table` (R, W) in place; returns the loss, and its gradient (n, W) in `x` (n, W) before the update.

    `targets` (m,) are 0 or 1. The column `fixed` of the rows stays. The answer does not depend on the threads.
    """
    _check(x, table, pairs)
    threads = _threads(n_threads)
    first, second, steps = rule.moments or (None, None, None)
    settings = (*rule.betas, rule.epsilon, loss.hinge, loss.scale, -1 if fixed is None else fixed)
    return _native.train_pairs(
        x, pairs.owner, pairs.row, targets, table, rule.rate, first, second, steps, *settings, threads
    )


def pair_scores(x: np.ndarray, weight: np.ndarray, pairs: RowPairs, n_threads: int | None = None) -> np.ndarray:
    """x[owner] · weight[row] of each pair (m,)."""
    _check(x, weight, pairs)
    threads = _threads(n_threads)
    return _native.pair_scores(x, weight, *pairs, threads)


def pair_products(
    x: np.ndarray, weight: np.ndarray, pairs: RowPairs, outer: np.ndarray, n_threads: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """The gradients of `pair_scores` in `x` (n, W) and `weight` (R, W), where `outer` (m,) is that of the scores."""
    _check(x, weight, pairs)
    threads = _threads(n_threads)
    return _native.pair_products(x, weight, *pairs, outer, threads)


def _check(x: np.ndarray, table: np.ndarray, pairs: RowPairs) -> None:
    """Refuse pairs that point outside: the native core trusts them."""
    owner, row = pairs
    if x.ndim != 2 or table.ndim != 2 or x.shape[1] != table.shape[1] or owner.shape != row.shape:
        raise DataError("documents, rows and pairs do not fit", got=(x.shape, table.shape, owner.shape, row.shape))
    if not len(row):
        return
    if owner.min() < 0 or owner.max() >= len(x) or row[0] < 0 or row[-1] >= len(table) or (row[1:] < row[:-1]).any():
        raise DataError("pairs point outside of the rows, or do not stand row after row")
