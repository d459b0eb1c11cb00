"""Balanced clustering of labels, and the label vectors that it takes.

Knows nothing about models or training. The clustering itself is a kernel; which vectors a label has (its documents, its
text, smoothed over a graph) is the caller's choice.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from xclearn import kernels
from xclearn.errors import ConfigError, DataError


def cluster_labels(
    rows: sp.csr_matrix | np.ndarray, n_clusters: int, seed: int, n_threads: int | None = None
) -> np.ndarray:
    """The cluster of each label, (L,) int32, from one vector per label, by recursive balanced 2-means.

    `n_clusters` is rounded up to a power of two; no cluster is empty, and sizes differ by at most one.
    """
    rounded = _power_of_two(n_clusters, n_labels=rows.shape[0])
    if sp.issparse(rows):
        matrix = sp.csr_matrix(rows, dtype=np.float32)
        return kernels.balanced_clusters_csr(
            matrix.indptr, matrix.indices, matrix.data, matrix.shape[1], rounded, seed, n_threads
        )
    return kernels.balanced_clusters_dense(np.asarray(rows, dtype=np.float32), rounded, seed, n_threads)


def label_centroids(
    relevance: sp.csr_matrix,  # (n, L)
    features: sp.csr_matrix | np.ndarray,  # (n, V)
) -> sp.csr_matrix | np.ndarray:
    """The L2-normalised sum of the features of each label's documents, (L, V) float32, sparse if the features are.

    A label without documents has a zero row.
    """
    if relevance.shape[0] != features.shape[0]:
        raise DataError("relevance and features differ in rows", got=(relevance.shape[0], features.shape[0]))
    sums = relevance.T.tocsr() @ features  # (L, V)
    if not sp.issparse(sums):
        norms = np.linalg.norm(sums, axis=1, keepdims=True)
        return (sums / np.where(norms > 0, norms, 1)).astype(np.float32)
    norms = np.sqrt(np.asarray(sums.multiply(sums).sum(axis=1)).ravel())
    scale = 1 / np.where(norms > 0, norms, 1)
    return sp.csr_matrix(sums.multiply(scale[:, None]), dtype=np.float32)


def _power_of_two(n_clusters: int, n_labels: int) -> int:
    """`n_clusters` rounded up to a power of two; an error if there are fewer labels."""
    rounded = 1 << max(n_clusters - 1, 0).bit_length()
    if n_clusters < 1 or rounded > n_labels:
        most = 1 << (n_labels.bit_length() - 1) if n_labels else 0
        raise ConfigError(
            "setting 'n_clusters' does not suit the number of labels",
            got=n_clusters,
            allowed=f"1 to {most} for {n_labels} labels (it is rounded up to a power of two)",
        )
    return rounded
