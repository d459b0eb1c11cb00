"""Random walks with restart in NumPy: all walks of a block of labels together."""

import numpy as np
import scipy.sparse as sp
from tests.oracles.random import splitmix64

_LABELS_AT_ONCE = 4096  # walks held at a time


def random_walks(
    relevance: sp.csr_matrix,
    steps: int,
    restart: float,
    top: int,
    seed: int,
    n_threads: int = 1,  # noqa: ARG001
) -> sp.csr_matrix:
    """Visits (L, L) of the walk from each label: the `top` others visited most, and the label itself."""
    by_document = sp.csr_matrix(relevance)
    by_label = sp.csr_matrix(relevance.T)
    n_labels = by_label.shape[0]
    blocks = [np.arange(start, min(start + _LABELS_AT_ONCE, n_labels)) for start in range(0, n_labels, _LABELS_AT_ONCE)]
    parts = [
        _count(_walk(by_document, by_label, block, steps, restart, seed), block, n_labels, top) for block in blocks
    ]
    return sp.csr_matrix(sp.vstack(parts, dtype=np.float32)) if parts else sp.csr_matrix((0, 0), dtype=np.float32)


def _walk(
    by_document: sp.csr_matrix, by_label: sp.csr_matrix, labels: np.ndarray, steps: int, restart: float, seed: int
) -> np.ndarray:
    """The labels visited by the walk from each of `labels` (n, steps), −1 from those without documents."""
    visited = np.full((len(labels), steps), -1, dtype=np.int64)
    there = np.flatnonzero(np.diff(by_label.indptr)[labels])
    start = labels[there]
    random = splitmix64(splitmix64(np.array([seed], dtype=np.uint64)) ^ start.astype(np.uint64))
    at = start
    for step in range(steps):
        draw = random + np.uint64(3 * step)
        back = (splitmix64(draw) >> np.uint64(11)) * 2.0**-53 < restart
        documents = _pick(by_label, np.where(back, start, at), splitmix64(draw + np.uint64(1)))
        at = _pick(by_document, documents, splitmix64(draw + np.uint64(2)))
        visited[there, step] = at
    return visited


def _pick(matrix: sp.csr_matrix, rows: np.ndarray, random: np.ndarray) -> np.ndarray:
    """One of the entries of each row."""
    lengths = (matrix.indptr[rows + 1] - matrix.indptr[rows]).astype(np.uint64)
    chosen = ((random >> np.uint64(32)) * lengths) >> np.uint64(32)
    return matrix.indices[matrix.indptr[rows] + chosen.astype(np.int64)].astype(np.int64)


def _count(visited: np.ndarray, labels: np.ndarray, n_labels: int, top: int) -> sp.csr_matrix:
    """Visits of the `top` others of each row and of the label itself (n, L)."""
    owner = np.broadcast_to(np.arange(len(labels))[:, None], visited.shape)[visited >= 0]
    keys, counts = np.unique(owner * n_labels + visited[visited >= 0], return_counts=True)
    row, column = keys // n_labels, keys % n_labels
    own = labels[row] == column
    self_count = np.ones(len(labels), dtype=np.int64)
    self_count[row[own]] = counts[own]
    row, column, counts = row[~own], column[~own], counts[~own]
    order = np.lexsort((column, -counts, row))
    rank = np.arange(len(order)) - np.searchsorted(row, row)
    kept = order[rank < top]
    rows = np.concatenate([np.arange(len(labels)), row[kept]])
    columns = np.concatenate([labels, column[kept]])
    values = np.concatenate([self_count, counts[kept]]).astype(np.float32)
    found = sp.csr_matrix((values, (rows, columns)), shape=(len(labels), n_labels))
    found.sort_indices()
    return found
