"""Trains label rows on shortlists: each document is scored against its own labels only.

A pair is a document and a row of a table; pairs are sorted by row. `train_pairs` is a whole training step: scores,
loss, the gradient of the documents, and the update of the rows in place, without ever storing the gradient of all rows.
`pair_scores` and `pair_products` are its forward and backward halves, for rows that are themselves computed. Knows
nothing about labels or networks.
"""

from __future__ import annotations

from typing import NamedTuple, final

import numpy as np

from xclearn.errors import DataError
from xclearn.kernels import _native, _threads


@final
class RowPairs(NamedTuple):
    """Pairs of documents and rows."""

    owner: np.ndarray  # (m,) int64 documents
    row: np.ndarray  # (m,) int64 rows, ascending


@final
class RowRule(NamedTuple):
    """How a row is updated: by Adam if moments are given (they change in place), else by SGD."""

    rate: float
    moments: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None  # first, second (R, W); steps (R, 1)
    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-8


@final
class PairLoss(NamedTuple):
    """The loss: scale · Σ over pairs of the binary cross-entropy or of the squared hinge."""

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
    """Train rows of `table` (R, W) in place; returns the loss and its gradient (n, W) in `x` (n, W) before the update.

    `targets` (m,) are 0 or 1. Column `fixed` of the rows is not changed. Results do not depend on the number of
    threads.
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
    """The gradients of `pair_scores` in `x` (n, W) and `weight` (R, W), given that of the scores, `outer` (m,)."""
    _check(x, weight, pairs)
    threads = _threads(n_threads)
    return _native.pair_products(x, weight, *pairs, outer, threads)


def _check(x: np.ndarray, table: np.ndarray, pairs: RowPairs) -> None:
    """Reject pairs out of range: the native core does not check them."""
    owner, row = pairs
    if x.ndim != 2 or table.ndim != 2 or x.shape[1] != table.shape[1] or owner.shape != row.shape:
        raise DataError("documents, rows and pairs do not fit", got=(x.shape, table.shape, owner.shape, row.shape))
    if not len(row):
        return
    if owner.min() < 0 or owner.max() >= len(x) or row[0] < 0 or row[-1] >= len(table) or (row[1:] < row[:-1]).any():
        raise DataError("pairs are out of range or not sorted by row")
