"""Rows of a sparse matrix nearest to others, and what the labels of such rows say: native, else by SciPy.

The matrix stands by feature, as an inverted index: what a row asks for are the runs of its own features. Knows nothing
about texts, models or folders.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple, final

import numpy as np
import scipy.sparse as sp

from xclearn import kernels
from xclearn.errors import ConfigError, DataError


@final
class Votes(NamedTuple):
    """What the nearest documents of n rows say, row after row, labels ascending."""

    starts: np.ndarray  # (n + 1,) int64
    labels: np.ndarray  # (m,) int32
    shares: np.ndarray  # (m,) float64 of the documents' weights
    nearest: np.ndarray  # (m,) float64 the largest similarity of a document with the label


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
        """The k rows with the largest products above 0 with each query (n, V): ids int64 and products float32 (n, k).

        Best first, then by id; −1 and −∞ where there are fewer.
        """
        threads = kernels._threads(n_threads)
        if k < 1:
            raise ConfigError("k must be positive", got=k, allowed="1 or more")
        if queries.shape[1] != self.by_column.shape[0]:
            raise DataError("queries and index differ in features", got=(queries.shape[1], self.by_column.shape[0]))
        if kernels.BACKEND != "native":
            return self.nearest_numpy(queries, k)
        return self._native.nearest(*_arrays(queries), k, threads)

    def nearest_numpy(self, queries: sp.csr_matrix, k: int) -> tuple[np.ndarray, np.ndarray]:
        """The oracle of `nearest`."""
        found = sp.csr_matrix(queries.astype(np.float32) @ self.by_column)  # (n, N)
        found.data[~(found.data > 0)] = 0
        found.eliminate_zeros()
        return kernels.topk_csr(found.indptr, found.indices, found.data, k)

    @cached_property
    def _native(self) -> Any:
        from xclearn.kernels import _native

        return _native.RowIndex(*_arrays(self.by_column), self.by_column.shape[1])


@final
class DocumentLabels:
    """The labels (N, L) of documents."""

    def __init__(self, relevance: sp.csr_matrix) -> None:
        self.relevance = relevance

    def votes(
        self, ids: np.ndarray, similarities: np.ndarray, power: float = 1.0, n_threads: int | None = None
    ) -> Votes:
        """What the documents `ids` (n, k), −1 after the last, say with weights similarity^power."""
        threads = kernels._threads(n_threads)
        if kernels.BACKEND != "native":
            return self.votes_numpy(ids, similarities, power)
        wanted = np.ascontiguousarray(ids, dtype=np.int64), np.ascontiguousarray(similarities, dtype=np.float32)
        return Votes(*self._native.votes(*wanted, float(power), threads))

    def votes_numpy(self, ids: np.ndarray, similarities: np.ndarray, power: float = 1.0) -> Votes:
        """The oracle of `votes`."""
        n, n_labels = len(ids), self.relevance.shape[1]
        near = np.where(ids < 0, 0, similarities.astype(np.float64))
        weights = np.where(ids < 0, 0, near**power)
        weights /= np.maximum(weights.sum(axis=1, keepdims=True), 1e-12)
        row, place = np.nonzero(ids >= 0)
        chosen = sp.csr_matrix(self.relevance[ids[row, place]])
        owner = np.repeat(np.arange(len(row)), np.diff(chosen.indptr))
        pairs, pair = np.unique(row[owner] * n_labels + chosen.indices, return_inverse=True)
        shares, nearest = np.bincount(pair, weights[row, place][owner], len(pairs)), np.zeros(len(pairs))
        np.maximum.at(nearest, pair, near[row, place][owner])
        starts = np.searchsorted(pairs, np.arange(n + 1) * n_labels)
        return Votes(starts, (pairs % max(1, n_labels)).astype(np.int32), shares, nearest)

    @cached_property
    def _native(self) -> Any:
        from xclearn.kernels import _native

        return _native.DocumentLabels(*_arrays(self.relevance)[:2], self.relevance.shape[1])


def _arrays(matrix: sp.csr_matrix) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Starts, columns and values in the types the kernels take."""
    return (
        np.ascontiguousarray(matrix.indptr, dtype=np.int64),
        np.ascontiguousarray(matrix.indices, dtype=np.int32),
        np.ascontiguousarray(matrix.data, dtype=np.float32),
    )
