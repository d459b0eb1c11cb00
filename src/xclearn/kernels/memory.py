"""Nearest rows of a sparse matrix, and the votes of their labels.

The matrix is stored by feature, as an inverted index, so that a query reads only the lists of its own features. Knows
nothing about texts, models or folders.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple, final

import numpy as np
import scipy.sparse as sp

from xclearn.errors import ConfigError, DataError
from xclearn.kernels import _native, _threads


@final
class Votes(NamedTuple):
    """Votes of the nearest documents of n queries, in CSR form with labels ascending."""

    starts: np.ndarray  # (n + 1,) int64
    labels: np.ndarray  # (m,) int32
    shares: np.ndarray  # (m,) float64 share of the documents' weights
    nearest: np.ndarray  # (m,) float64 largest similarity of a document with the label


@final
class RowIndex:
    """An inverted index over the rows (N, V) of a matrix, given by column."""

    def __init__(self, by_column: sp.csr_matrix) -> None:
        """From the transposed matrix (V, N)."""
        self.by_column = by_column

    @classmethod
    def of(cls, rows: sp.csr_matrix) -> RowIndex:
        """From the matrix (N, V) itself."""
        return cls(sp.csr_matrix(rows.T, dtype=np.float32))

    def nearest(self, queries: sp.csr_matrix, k: int, n_threads: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """The k rows with the largest positive product with each query (n, V): ids int64, products float32 (n, k).

        Best first, ties by smaller id; padded with −1 and −∞.
        """
        threads = _threads(n_threads)
        if k < 1:
            raise ConfigError("k must be positive", got=k, allowed="1 or more")
        if queries.shape[1] != self.by_column.shape[0]:
            raise DataError("queries and index differ in features", got=(queries.shape[1], self.by_column.shape[0]))
        return self._core.nearest(*_arrays(queries), k, threads)

    @cached_property
    def _core(self) -> Any:
        return _native.RowIndex(*_arrays(self.by_column), self.by_column.shape[1])


@final
class DocumentLabels:
    """The labels (N, L) of documents."""

    def __init__(self, relevance: sp.csr_matrix) -> None:
        self.relevance = relevance

    def votes(
        self, ids: np.ndarray, similarities: np.ndarray, power: float = 1.0, n_threads: int | None = None
    ) -> Votes:
        """Votes of the documents `ids` (n, k), padded with −1, weighted by similarity^power."""
        threads = _threads(n_threads)
        wanted = np.ascontiguousarray(ids, dtype=np.int64), np.ascontiguousarray(similarities, dtype=np.float32)
        return Votes(*self._core.votes(*wanted, float(power), threads))

    @cached_property
    def _core(self) -> Any:
        return _native.DocumentLabels(*_arrays(self.relevance)[:2], self.relevance.shape[1])


def _arrays(matrix: sp.csr_matrix) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Starts, columns and values, cast to the types the kernels take."""
    return (
        np.ascontiguousarray(matrix.indptr, dtype=np.int64),
        np.ascontiguousarray(matrix.indices, dtype=np.int32),
        np.ascontiguousarray(matrix.data, dtype=np.float32),
    )
