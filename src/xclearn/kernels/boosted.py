"""Predicts with boosted regression trees. Knows nothing about how they are trained."""

from __future__ import annotations

from functools import cached_property
from typing import Any, final

import numpy as np

from xclearn.errors import DataError
from xclearn.kernels import _native, _threads


@final
class BoostedTrees:
    """Trees as arrays of nodes: a node goes left if value ≤ threshold; a leaf is its own child."""

    def __init__(
        self,
        roots: np.ndarray,
        columns: np.ndarray,
        thresholds: np.ndarray,
        children: tuple[np.ndarray, np.ndarray],
        missing_left: np.ndarray,
        values: np.ndarray,
        base: float,
    ) -> None:
        """Arrays (N,) over nodes, `roots` (T,): int32, thresholds and values float64, `missing_left` bool."""
        self.roots = roots
        self.columns = columns
        self.thresholds = thresholds
        self.left, self.right = children
        self.missing_left = missing_left
        self.values = values
        self.base = base

    def __call__(self, rows: np.ndarray, n_threads: int | None = None) -> np.ndarray:
        """Sum (m,) float64 of the leaf values that each row (m, F) float32 reaches; NaN is a missing value."""
        threads = _threads(n_threads)
        if rows.ndim != 2 or rows.dtype != np.float32:
            raise DataError("rows have the wrong dimensions or type", got=f"{rows.ndim} of {rows.dtype}")
        return self._trees.sum(np.ascontiguousarray(rows), float(self.base), threads)

    @cached_property
    def _trees(self) -> Any:
        numbers = [np.ascontiguousarray(part, np.int32) for part in (self.roots, self.columns, self.left, self.right)]
        roots, columns, left, right = numbers
        reals = np.ascontiguousarray(self.thresholds, np.float64), np.ascontiguousarray(self.values, np.float64)
        missing = np.ascontiguousarray(self.missing_left, np.bool_)
        return _native.BoostedTrees(roots, columns, reals[0], left, right, missing, reals[1])
