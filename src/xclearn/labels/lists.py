"""Converts between lists of ids, as rows (n, m) padded with −1, and sparse matrices.

Knows nothing about what the ids mean.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp


def padded_matrix(ids: np.ndarray, n_columns: int, values: np.ndarray | None = None) -> sp.csr_matrix:
    """Lists (n, m) as a sparse matrix (n, n_columns) of their values, or of ones; repeated ids are summed."""
    there = ids >= 0
    rows = np.repeat(np.arange(len(ids)), there.sum(axis=1))
    data = np.ones(len(rows), dtype=np.float32) if values is None else values[there]
    return sp.csr_matrix((data, (rows, ids[there])), shape=(len(ids), n_columns))


def padded_rows(matrix: sp.csr_matrix) -> np.ndarray:
    """The columns of each row's entries, padded with −1 to the longest row."""
    sizes = np.diff(matrix.indptr)
    rows = np.full((len(sizes), max(1, int(sizes.max()))), -1, dtype=np.int64)
    rows[np.arange(rows.shape[1]) < sizes[:, None]] = matrix.indices
    return rows
