"""Random walks with restart between labels and documents.

A step goes from a label to one of its documents, and from there to one of that document's labels; before each step the
walk restarts with a given probability. Every draw is a function of (seed, label, step), so results do not depend on the
number of threads. Knows nothing about what the graph is for.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from xclearn.kernels import _native, _threads


def random_walks(
    relevance: sp.csr_matrix, steps: int, restart: float, top: int, seed: int, n_threads: int | None = None
) -> sp.csr_matrix:
    """How often the walk from each label visits every label, (L, L) float32, given relevance (N, L).

    Each row keeps the `top` other labels visited most (ties by smaller id), and the label itself with at least one
    visit.
    """
    by_document = sp.csr_matrix(relevance)
    by_label = sp.csr_matrix(relevance.T)
    indptr, indices, counts = _native.random_walks(
        *_arrays(by_document), *_arrays(by_label), steps, restart, top, seed, _threads(n_threads)
    )
    return sp.csr_matrix((counts, indices, indptr), shape=(by_label.shape[0],) * 2)


def _arrays(matrix: sp.csr_matrix) -> tuple[np.ndarray, np.ndarray]:
    return matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32, copy=False)
