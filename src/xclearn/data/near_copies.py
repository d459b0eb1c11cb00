"""Finds near-duplicate documents exactly, by the cosine of their weighted words.

Knows nothing about splits, labels or models.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

from xclearn.data.dataset import Documents

ALIKE = 0.6  # documents with at least this cosine are near-duplicates

# The most frequent words cost most and matter least. They are left out of the first product as long as the norm of the
# omitted part of a row is at most this: it then adds no more than this to any cosine.
_LEFT_OUT = 0.4
_PRODUCTS = 4_000_000  # maximum entries of a product, and of the comparison after it
_ROUNDING = 1e-5


class NearPairs(NamedTuple):
    """Pairs of near-duplicates."""

    rows: np.ndarray  # (m,) int64
    others: np.ndarray  # (m,) int64


def comparable_rows(documents: Documents) -> sp.csr_matrix | None:
    """Documents as unit rows (N, V): weighted words of texts, or sparse features; None if dense."""
    if isinstance(documents, np.ndarray):
        return None
    if isinstance(documents, Sequence):
        from xclearn.text import Words

        return sp.csr_matrix(Words().learn(documents).transform(documents))
    rows = sp.csr_matrix(documents, dtype=np.float64)
    lengths = np.sqrt(np.asarray(rows.multiply(rows).sum(axis=1)).ravel())
    scaled = rows.data / np.repeat(np.maximum(lengths, np.finfo(np.float64).tiny), np.diff(rows.indptr))
    return sp.csr_matrix((scaled.astype(np.float32), rows.indices, rows.indptr), rows.shape)


def near_pairs(rows: sp.csr_matrix, others: sp.csr_matrix) -> Iterator[NearPairs]:
    """All pairs of unit rows with a cosine of at least `ALIKE`, a block of rows at a time."""
    frequency = others.getnnz(axis=0)  # (V,)
    rare, left_out = _rare_words(rows, frequency)
    columns = others.T.tocsr()
    ends = np.concatenate([[0], np.cumsum(frequency[rare.indices])])[rare.indptr]  # (n + 1,) entries of the products
    start = 0
    while start < len(ends) - 1:
        end = max(start + 1, int(np.searchsorted(ends, ends[start] + _PRODUCTS, side="right")) - 1)
        found = (rare[start:end] @ columns).tocoo()
        possible = found.data >= ALIKE - left_out[start + found.row] - _ROUNDING
        yield from _compared(rows, others, NearPairs(start + found.row[possible], found.col[possible]))
        start = end


def resembling(
    rows: sp.csr_matrix, looked_at: np.ndarray | None = None, same: np.ndarray | None = None, crowd: int = 0
) -> np.ndarray:
    """The group of every document: documents connected by a cosine of at least `ALIKE` or by equal texts (`same`).

    `rows` (N, V) have unit length. Only documents in `looked_at` are compared with all others, and then the members of
    their groups, unless a group has more than `crowd` documents.
    """
    n = rows.shape[0]
    looked_at = np.arange(n) if looked_at is None else looked_at
    group, compared = np.arange(n), np.zeros(n, dtype=bool)
    starts = [np.arange(n)]
    ends = [np.arange(n) if same is None else _first_of(same)]
    while len(looked_at):
        for found in near_pairs(rows[looked_at], rows):
            starts.append(looked_at[found.rows])
            ends.append(found.others)
        compared[looked_at] = True
        start, end = np.concatenate(starts), np.concatenate(ends)
        edges = sp.csr_matrix((np.ones(len(start), dtype=bool), (start, end)), shape=(n, n))
        group = connected_components(edges, directed=False)[1]
        closed = (np.bincount(group) <= crowd) & (np.bincount(group, weights=compared) > 0)
        looked_at = np.flatnonzero(closed[group] & ~compared)
    return group


def _rare_words(rows: sp.csr_matrix, frequency: np.ndarray) -> tuple[sp.csr_matrix, np.ndarray]:
    """The rows without the most frequent words, and the norm of the omitted part of each (n,)."""
    owner = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
    order = np.lexsort((-frequency[rows.indices], owner))  # most frequent words of a row first
    squares = rows.data[order].astype(np.float64) ** 2
    total = np.concatenate([[0.0], np.cumsum(squares)])
    so_far = total[1:] - total[rows.indptr[:-1]][owner]  # within the row
    kept = np.empty(len(order), dtype=bool)
    kept[order] = so_far > _LEFT_OUT**2
    indptr = np.concatenate([[0], np.cumsum(kept)])[rows.indptr]
    rare = sp.csr_matrix((rows.data[kept], rows.indices[kept], indptr), shape=rows.shape)
    lost = np.bincount(owner[~kept], weights=rows.data[~kept].astype(np.float64) ** 2, minlength=rows.shape[0])
    return rare, np.sqrt(lost)


def _compared(rows: sp.csr_matrix, others: sp.csr_matrix, possible: NearPairs) -> Iterator[NearPairs]:
    """The candidate pairs that are near-duplicates."""
    sizes = np.diff(rows.indptr)[possible.rows]
    parts = np.cumsum(sizes) // _PRODUCTS
    for part in np.unique(parts):
        mine = parts == part
        left, right = possible.rows[mine], possible.others[mine]
        near = np.asarray(rows[left].multiply(others[right]).sum(axis=1)).ravel() >= ALIKE
        yield NearPairs(left[near], right[near])


def _first_of(same: np.ndarray) -> np.ndarray:
    """The first document (N,) with the same hash."""
    return np.unique(same, return_index=True)[1][same]
