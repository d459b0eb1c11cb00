"""Sources of evidence besides the members: label texts, label centroids, and a memory of train.

Knows nothing about members or stackers.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from xclearn.data.dataset import Split
from xclearn.inference.blend import CsrRows, Memory
from xclearn.inference.sparse import unit_rows

_LIGHT = 0.2  # words below this share of the heaviest are dropped: they occur in most texts and cost most
_WORDS = 64  # heaviest words kept per row
_NEAREST, _POWER = 50, 3.0  # nearest documents that vote, and the exponent of their cosine


def label_text_rows(features: sp.csr_matrix) -> CsrRows:
    """The heaviest words of each label's text, unit rows (L, V)."""
    return CsrRows.of(heavy_rows(features))


def centroid_rows(documents: sp.csr_matrix, relevance: sp.csr_matrix) -> CsrRows:
    """The heaviest words of each label's centroid, unit rows (L, V)."""
    return CsrRows.of(heavy_rows(sp.csr_matrix(relevance.T @ documents)))


def memory_of(documents: sp.csr_matrix, train: Split) -> Memory:
    """A memory of the training documents (N, V) and their labels."""
    return Memory(CsrRows.of(documents), CsrRows.of(train.relevance), _NEAREST, _POWER)


def heavy_rows(features: sp.csr_matrix) -> sp.csr_matrix:
    """The heaviest words of each row, scaled to unit length."""
    rows = sp.csr_matrix(features, dtype=np.float32)
    sizes = np.diff(rows.indptr)
    owner = np.repeat(np.arange(rows.shape[0]), sizes)
    weight = np.abs(rows.data)
    heaviest = np.zeros(rows.shape[0], dtype=np.float32)
    np.maximum.at(heaviest, owner, weight)
    order = np.lexsort((-weight, owner))
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    kept = (weight > _LIGHT * heaviest[owner]) & (place < _WORDS)
    indptr = np.concatenate([[0], np.cumsum(kept)])[rows.indptr]
    return unit_rows(sp.csr_matrix((rows.data[kept], rows.indices[kept], indptr), shape=rows.shape))
