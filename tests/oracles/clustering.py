"""Balanced 2-means in NumPy: all clusters of a level at once.

The arithmetic is in fixed point. Sums of integers do not depend on their order, so this and the native kernel agree to
the bit on any data. `n_threads` is accepted and ignored.
"""

from __future__ import annotations

from typing import NamedTuple, final

import numpy as np
from tests.oracles.random import splitmix64

ROW_ONE = float(1 << 30)  # a row value of 1 in fixed point; |row| <= 1
DIRECTION_ONE = float(1 << 29)  # |direction| <= 2, so that |row · direction| <= 2^60
TOLERANCE = 1e-4  # least rise of the mean similarity that is worth another iteration
MAX_ITERATIONS = 20


def balanced_clusters_dense(rows: np.ndarray, n_clusters: int, seed: int, n_threads: int) -> np.ndarray:
    """The cluster of each dense row, (n,) int32: as the sparse kernel, every column an entry."""
    n, n_columns = rows.shape
    indptr = np.arange(n + 1, dtype=np.int64) * n_columns
    indices = np.tile(np.arange(n_columns, dtype=np.int32), n)
    return balanced_clusters_csr(indptr, indices, rows.ravel(), n_columns, n_clusters, seed, n_threads)


def balanced_clusters_csr(
    indptr: np.ndarray,
    indices: np.ndarray,
    data: np.ndarray,
    n_columns: int,
    n_clusters: int,
    seed: int,
    n_threads: int,  # noqa: ARG001
) -> np.ndarray:
    """The cluster of each row, (n,) int32: balanced 2-means, repeated until there are `n_clusters` (a power of two)."""
    values = _fixed_point(indptr, data)
    cluster_of_row = np.zeros(len(indptr) - 1, dtype=np.int64)
    for level in range(n_clusters.bit_length() - 1):
        entries = _Entries.of(indptr, indices, values, n_columns, cluster_of_row)
        is_right = _halve(entries, cluster_of_row, 1 << level, _random(seed, level, 1 << level))
        cluster_of_row = 2 * cluster_of_row + is_right
    return cluster_of_row.astype(np.int32)


@final
class _Entries(NamedTuple):
    """The entries of the matrix, and what a level sums them into: a slot for each (cluster, column) that occurs."""

    values: np.ndarray  # (nnz,) int64
    indptr: np.ndarray  # (n + 1,)
    row_of_entry: np.ndarray  # (nnz,)
    slot_of_entry: np.ndarray  # (nnz,)
    by_slot: np.ndarray  # (nnz,) entries ordered by slot
    slot_indptr: np.ndarray  # (n_slots + 1,) into by_slot
    cluster_of_slot: np.ndarray  # (n_slots,)

    @classmethod
    def of(
        cls, indptr: np.ndarray, indices: np.ndarray, values: np.ndarray, n_columns: int, cluster_of_row: np.ndarray
    ) -> _Entries:
        row_of_entry = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
        keys, slots, counts = np.unique(
            cluster_of_row[row_of_entry] * n_columns + indices, return_inverse=True, return_counts=True
        )
        slot_indptr = np.concatenate([[0], np.cumsum(counts)])
        by_slot = np.argsort(slots, kind="stable")
        return cls(values, indptr, row_of_entry, slots, by_slot, slot_indptr, keys // max(n_columns, 1))

    def sums(self, chosen: np.ndarray) -> np.ndarray:
        """Of the chosen rows' values, in each slot, (n_slots,) int64."""
        return _segment_sums((self.values * chosen[self.row_of_entry])[self.by_slot], self.slot_indptr)

    def similarities(self, direction: np.ndarray) -> np.ndarray:
        """Of each row with its cluster's direction, (n,) int64."""
        return _segment_sums(self.values * direction[self.slot_of_entry], self.indptr)


def _halve(entries: _Entries, cluster_of_row: np.ndarray, n_clusters: int, random: np.ndarray) -> np.ndarray:
    """Which rows of each cluster go right, (n,) bool."""
    size = np.bincount(cluster_of_row, minlength=n_clusters)
    first, second = _seed_rows(cluster_of_row, size, random)
    left, right = entries.sums(first), entries.sums(second)
    total = entries.sums(np.ones(len(cluster_of_row), dtype=bool))
    is_right = np.zeros(len(cluster_of_row), dtype=bool)
    objective = np.full(n_clusters, -np.inf)
    going = size > 1
    for _ in range(MAX_ITERATIONS):
        direction = _direction(left, right, entries.cluster_of_slot, n_clusters)
        right_now = _upper_half(entries.similarities(direction), cluster_of_row, size)
        is_right = np.where(going[cluster_of_row], right_now, is_right)
        right = entries.sums(is_right)
        left = total - right
        norms = _norms(left, entries.cluster_of_slot, n_clusters) + _norms(right, entries.cluster_of_slot, n_clusters)
        # The sum of unit rows, projected on its own direction, is its norm: this is the mean similarity.
        risen = norms / (ROW_ONE * np.maximum(size, 1))
        going &= risen - objective >= TOLERANCE
        objective = risen
        if not going.any():
            break
    return is_right


def _seed_rows(cluster_of_row: np.ndarray, size: np.ndarray, random: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Two distinct random rows of each cluster (of two rows or more), as two masks of rows."""
    by_cluster = np.argsort(cluster_of_row, kind="stable")
    start = (np.cumsum(size) - size)[size > 1]
    n, random = size[size > 1].astype(np.uint64), random[size > 1]
    first = splitmix64(random) % n
    second = splitmix64(random + np.uint64(1)) % (n - np.uint64(1))
    second += second >= first
    masks = np.zeros((2, len(cluster_of_row)), dtype=bool)
    for mask, chosen in zip(masks, (first, second), strict=True):
        mask[by_cluster[start + chosen.astype(np.int64)]] = True
    return masks[0], masks[1]


def _upper_half(similarity: np.ndarray, cluster_of_row: np.ndarray, size: np.ndarray) -> np.ndarray:
    """The rows above the middle of their cluster; ties by row, and the lower half is the larger."""
    order = np.lexsort((similarity, cluster_of_row))
    cluster = cluster_of_row[order]
    rank = np.arange(len(order)) - (np.cumsum(size) - size)[cluster]
    is_upper = np.empty(len(order), dtype=bool)
    is_upper[order] = rank >= (size - size // 2)[cluster]
    return is_upper


def _direction(left: np.ndarray, right: np.ndarray, cluster_of_slot: np.ndarray, n_clusters: int) -> np.ndarray:
    """Normalised right sum − normalised left sum, in fixed point; a zero sum stays zero."""
    scaled = []
    for sums in (right, left):
        norms = _norms(sums, cluster_of_slot, n_clusters)
        scale = np.divide(DIRECTION_ONE, norms, out=np.zeros(n_clusters), where=norms > 0)
        scaled.append(sums * scale[cluster_of_slot])
    return np.rint(scaled[0] - scaled[1]).astype(np.int64)


def _norms(sums: np.ndarray, cluster_of_slot: np.ndarray, n_clusters: int) -> np.ndarray:
    squares = sums.astype(np.float64) ** 2
    return np.sqrt(np.bincount(cluster_of_slot, weights=squares, minlength=n_clusters))


def _fixed_point(indptr: np.ndarray, data: np.ndarray) -> np.ndarray:
    """The L2-normalised rows, in fixed point; a zero row stays zero."""
    n = len(indptr) - 1
    row_of_entry = np.repeat(np.arange(n), np.diff(indptr))
    exact = data.astype(np.float64)
    squares = np.bincount(row_of_entry, weights=exact**2, minlength=n)
    norm = np.where(squares > 0, np.sqrt(squares), 1)
    return np.rint(exact / norm[row_of_entry] * ROW_ONE).astype(np.int64)


def _segment_sums(values: np.ndarray, indptr: np.ndarray) -> np.ndarray:
    """The sum of each segment of integers. The running sum may wrap around; its differences are exact all the same."""
    running = np.concatenate([[0], np.cumsum(values)])
    return running[indptr[1:]] - running[indptr[:-1]]


def _random(seed: int, level: int, n_clusters: int) -> np.ndarray:
    """One draw for each cluster of a level, (n_clusters,) uint64, that depends on nothing else."""
    level_seed = splitmix64(splitmix64(np.array([seed], dtype=np.uint64)) ^ np.uint64(level))
    return splitmix64(level_seed ^ np.arange(n_clusters, dtype=np.uint64))
