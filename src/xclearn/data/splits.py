"""Cutting a hold-out from train, and the pairs that are void between two splits whose documents are labels.

A hold-out is what settings are chosen on; test data never is. Knows nothing about metrics or models.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import scipy.sparse as sp

from xclearn.data.dataset import Dataset, Documents, LabelSet, Split
from xclearn.errors import ConfigError

# At least this share of train must be labels for a set to count as item-to-item. Chance matches made .01 % of a
# subject-indexing set (where they are right answers), real items 66 to 89 % of item-to-item sets.
ITEM_SHARE = 0.05

_FEWEST = 20  # documents from which on there is a hold-out


def hold_out(dataset: Dataset, *, fraction: float = 0.05, most: int = 5_000, seed: int = 0) -> tuple[Split, Split]:
    """(train, held out): train cut by a hash of the text, so that equal texts stay on one side in any row order.

    At most `fraction` of the documents and at most `most` go; below 20 documents none. Where documents are labels,
    pairs that train gives away (an item and itself; A→B where B→A stays in train) leave the relevance of the hold-out
    and become filter pairs, and a text that has no label left to measure goes back to train.
    """
    if not 0 < fraction < 1 or most < 1:
        raise ConfigError("nothing sensible to hold out", got=(fraction, most), allowed="0 < fraction < 1, most >= 1")
    train = dataset.train
    hashes, group = np.unique(fingerprints(train.documents, seed), return_inverse=True)
    held = _smallest_hashes(np.bincount(group, minlength=len(hashes)), min(fraction * len(train), most))[group]
    items = _items(train, dataset.labels)
    labels_left = np.zeros(len(train), dtype=np.int64)
    labels_left[held] = _without(train.relevance[held], _void(train, items, held)).getnnz(axis=1)
    held &= (np.bincount(group, weights=labels_left, minlength=len(hashes)) > 0)[group]
    return train.take(np.flatnonzero(~held)), _voided(train.take(np.flatnonzero(held)), _void(train, items, held))


def void_pairs(train: Split, other: Split, labels: LabelSet) -> sp.csr_matrix:
    """(document, label) pairs of `other` that train gives away: an item and itself, A→B where train has B→A.

    All zero where documents are not labels (`ITEM_SHARE`).  # (n, L)
    """
    return _given_away(_items(other, labels), train.relevance, _items(train, labels))


def fingerprints(documents: Documents, seed: int = 0) -> np.ndarray:
    """A 64-bit hash of every document, salted by the seed: equal documents, equal hashes, on any machine.  # (n,)"""
    key = str(seed).encode()
    digests = (hashlib.blake2b(row, digest_size=8, key=key).digest() for row in _row_bytes(documents))
    return np.frombuffer(b"".join(digests), dtype="<u8")


def pairs_matrix(pairs: np.ndarray, shape: tuple[int, int]) -> sp.csr_matrix:
    """(row, label) pairs as a matrix, one where there is a pair."""
    matrix = sp.csr_matrix((np.ones(len(pairs), dtype=np.float32), (pairs[:, 0], pairs[:, 1])), shape=shape)
    matrix.data[:] = 1.0  # a pair given twice was summed
    return matrix


def _smallest_hashes(sizes: np.ndarray, target: float) -> np.ndarray:
    """Which texts are held out, given in order of their hash and standing for `sizes` documents each."""
    if sizes.sum() < _FEWEST or len(sizes) < 2:
        return np.zeros(len(sizes), dtype=bool)
    target = max(int(target), sizes.min())
    fits = sizes <= target
    return fits & (np.cumsum(sizes * fits) <= target)


def _void(train: Split, items: sp.csr_matrix, held: np.ndarray) -> sp.csr_matrix:
    return _given_away(items[held], train.relevance[~held], items[~held])


def _given_away(items: sp.csr_matrix, relevance: sp.csr_matrix, train_items: sp.csr_matrix) -> sp.csr_matrix:
    """Who I am as a label -> the train documents that have me -> who they are as labels; and myself."""
    if train_items.getnnz(axis=1).astype(bool).sum() < ITEM_SHARE * train_items.shape[0]:
        return sp.csr_matrix(items.shape, dtype=np.float32)
    void = (items @ relevance.T @ train_items + items).tocsr()
    void.data[:] = 1.0
    return void


def _voided(split: Split, void: sp.csr_matrix) -> Split:
    pairs = np.vstack([split.filter_pairs, np.column_stack(void.nonzero())])
    return replace(split, relevance=_without(split.relevance, void), filter_pairs=np.unique(pairs, axis=0))


def _without(relevance: sp.csr_matrix, void: sp.csr_matrix) -> sp.csr_matrix:
    left = (relevance - relevance.multiply(void)).tocsr()
    left.eliminate_zeros()
    left.sort_indices()  # a difference need not come out in order
    return left


def _items(split: Split, labels: LabelSet) -> sp.csr_matrix:
    """Which label a document is, by name or by text.  # (n, L)"""
    items = sp.csr_matrix((len(split), len(labels)), dtype=np.float32)
    if split.names is not None:
        items += _equal(split.names, labels.names)
    if isinstance(split.documents, Sequence) and isinstance(labels.texts, Sequence):
        items += _equal(split.documents, labels.texts)
    return items


def _equal(left: Sequence[str], right: Sequence[str]) -> sp.csr_matrix:
    """Where two lists of texts hold the same, empty ones apart.  # (len(left), len(right))"""
    place: dict[str, int] = {}
    right_places = np.array([place.setdefault(text, len(place)) for text in right], dtype=np.int64)
    left_places = np.array([place.get(text, -1) if text else -1 for text in left], dtype=np.int64)
    rows = np.flatnonzero(left_places >= 0)
    left_pairs = np.column_stack([rows, left_places[rows]])
    right_pairs = np.column_stack([right_places, np.arange(len(right))])
    return pairs_matrix(left_pairs, (len(left), len(place))) @ pairs_matrix(right_pairs, (len(place), len(right)))


def _row_bytes(documents: Documents) -> Iterator[bytes]:
    if isinstance(documents, Sequence):
        return (text.encode("utf-8", "surrogatepass") for text in documents)
    if isinstance(documents, np.ndarray):
        return (row.tobytes() for row in np.ascontiguousarray(documents, dtype="<f4"))
    matrix = documents.sorted_indices()
    columns, values, starts = matrix.indices.astype("<i8"), matrix.data.astype("<f4"), matrix.indptr
    return (columns[start:end].tobytes() + values[start:end].tobytes() for start, end in pairwise(starts))
