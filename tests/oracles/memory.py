"""Nearest rows and the votes of their labels, by SciPy."""

import numpy as np
import scipy.sparse as sp

from xclearn.kernels import topk_csr
from xclearn.kernels.memory import RowIndex, Votes


def nearest(index: RowIndex, queries: sp.csr_matrix, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The k rows with the largest positive products (n, k), by a product of sparse matrices."""
    found = sp.csr_matrix(queries.astype(np.float32) @ index.by_column)  # (n, N)
    found.data[~(found.data > 0)] = 0
    found.eliminate_zeros()
    return topk_csr(found.indptr, found.indices, found.data, k)


def votes(relevance: sp.csr_matrix, ids: np.ndarray, similarities: np.ndarray, power: float = 1.0) -> Votes:
    """The labels of each row's nearest documents, weighted by similarity^power."""
    n, n_labels = len(ids), relevance.shape[1]
    near = np.where(ids < 0, 0, similarities.astype(np.float64))
    weights = np.where(ids < 0, 0, near**power)
    weights /= np.maximum(weights.sum(axis=1, keepdims=True), 1e-12)
    row, column = np.nonzero(ids >= 0)
    chosen = sp.csr_matrix(relevance[ids[row, column]])
    owner = np.repeat(np.arange(len(row)), np.diff(chosen.indptr))
    pairs, pair = np.unique(row[owner] * n_labels + chosen.indices, return_inverse=True)
    shares, nearest = np.bincount(pair, weights[row, column][owner], len(pairs)), np.zeros(len(pairs))
    np.maximum.at(nearest, pair, near[row, column][owner])
    starts = np.searchsorted(pairs, np.arange(n + 1) * n_labels)
    return Votes(starts, (pairs % max(1, n_labels)).astype(np.int32), shares, nearest)
