"""Random walks with restart between labels and documents: native where the extension is, else in NumPy.

From a label the walk goes to one of its documents and from there to one of that document's labels; before each step it
goes back to where it began with a given probability. Every draw is a function of (seed, label, step), so that neither
threads nor the backend change an answer. Knows nothing about what the graph is for.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from xclearn import kernels
from xclearn.kernels.reference import _splitmix64

_LABELS_AT_ONCE = 4096  # walks of the NumPy form that are held at a time


def random_walks(
    relevance: sp.csr_matrix, steps: int, restart: float, top: int, seed: int, n_threads: int | None = None
) -> sp.csr_matrix:
    """How often the walk from each label visits the labels, (L, L) float32, from relevance (N, L).

    Of each label the `top` others visited most are kept (ties by smaller id) and the label itself, at least once.
    """
    by_document, by_label = sp.csr_matrix(relevance), sp.csr_matrix(relevance.T)
    walk = _native if kernels.BACKEND == "native" else random_walks_numpy
    return walk(by_document, by_label, steps, restart, top, seed, kernels._threads(n_threads))


def _native(
    by_document: sp.csr_matrix,
    by_label: sp.csr_matrix,
    steps: int,
    restart: float,
    top: int,
    seed: int,
    n_threads: int,
) -> sp.csr_matrix:
    from xclearn.kernels import _native as native

    indptr, indices, counts = native.random_walks(
        *_arrays(by_document), *_arrays(by_label), steps, restart, top, seed, n_threads
    )
    return sp.csr_matrix((counts, indices, indptr), shape=(by_label.shape[0],) * 2)


def _arrays(matrix: sp.csr_matrix) -> tuple[np.ndarray, np.ndarray]:
    return matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32, copy=False)


def random_walks_numpy(
    by_document: sp.csr_matrix,
    by_label: sp.csr_matrix,
    steps: int,
    restart: float,
    top: int,
    seed: int,
    n_threads: int,  # noqa: ARG001
) -> sp.csr_matrix:
    """The same answer, all walks of a block of labels together: the native one's oracle."""
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
    random = _splitmix64(_splitmix64(np.array([seed], dtype=np.uint64)) ^ start.astype(np.uint64))
    at = start
    for step in range(steps):
        draw = random + np.uint64(3 * step)
        back = (_splitmix64(draw) >> np.uint64(11)) * 2.0**-53 < restart
        documents = _pick(by_label, np.where(back, start, at), _splitmix64(draw + np.uint64(1)))
        at = _pick(by_document, documents, _splitmix64(draw + np.uint64(2)))
        visited[there, step] = at
    return visited


def _pick(matrix: sp.csr_matrix, rows: np.ndarray, random: np.ndarray) -> np.ndarray:
    """One of the entries of each row."""
    lengths = (matrix.indptr[rows + 1] - matrix.indptr[rows]).astype(np.uint64)
    place = ((random >> np.uint64(32)) * lengths) >> np.uint64(32)
    return matrix.indices[matrix.indptr[rows] + place.astype(np.int64)].astype(np.int64)


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
