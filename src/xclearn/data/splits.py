"""Splits a hold-out off train, and finds void pairs between splits of item-to-item sets.

Settings are chosen on a hold-out, never on test data. Knows nothing about metrics or models.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import scipy.sparse as sp

from xclearn.data.dataset import Dataset, Documents, LabelSet, Split
from xclearn.data.near_copies import comparable_rows, resembling
from xclearn.errors import ConfigError, DataError

# At least this share of train must be labels for a set to count as item-to-item. Chance matches made .01 % of a
# subject-indexing set (where they are right answers), real items 66 to 89 % of item-to-item sets.
ITEM_SHARE = 0.05

FEWEST = 20  # minimum documents for a hold-out


def hold_out(dataset: Dataset, *, fraction: float = 0.05, most: int = 5_000, seed: int = 0) -> tuple[Split, Split]:
    """(train, held out): train split by a hash of the text, so that equal texts stay together in any row order.

    Holds out at most `fraction` of the documents and at most `most`; none below 20 documents. If documents are labels,
    pairs that train gives away (an item and itself; A→B if B→A is in train) are removed from the hold-out's relevance
    and become filter pairs, and texts without remaining labels go back to train.
    """
    if not 0 < fraction < 1 or most < 1:
        raise ConfigError(
            "hold-out settings are out of range", got=(fraction, most), allowed="0 < fraction < 1, most >= 1"
        )
    train = dataset.train
    hashes, group = np.unique(fingerprints(train.documents, seed), return_inverse=True)
    held = _smallest_hashes(np.bincount(group, minlength=len(hashes)), min(fraction * len(train), most))[group]
    return _cut(train, _items(train, dataset.labels), held, group)


def parted(dataset: Dataset, fraction: float, *, most: int | None = None, seed: int = 0) -> tuple[Split, Split]:
    """(train, held out), about this fraction of train and about `most` documents; near-duplicates stay together.

    Slower than `hold_out`, which keeps only equal texts together. Of dense features, only equal rows stay together.
    Below 20 documents there is no hold-out.
    """
    train = dataset.train
    wanted = int(fraction * len(train)) if most is None else min(int(fraction * len(train)), most)
    cuts = hold_outs(dataset, comparable_rows(train.documents), folds=1, most=max(wanted, 1), seed=seed)
    return cuts[0] if cuts else (train, train.take(np.arange(0)))


def with_test(dataset: Dataset, share: float, seed: int = 0) -> Dataset:
    """The data set with this share of train as its test split; near-duplicates stay together."""
    if not 0 < share < 1:
        raise ConfigError("out of range", where="--test-share", got=share, allowed="more than 0, less than 1")
    if dataset.test is not None:
        raise ConfigError(
            "the data already has a test split", where="--test-share", got=len(dataset.test), todo="Leave it out."
        )
    train, test = parted(dataset, share, seed=seed)
    if not len(test) or not len(train):
        todo = f"At least {FEWEST} documents with different texts are needed."
        raise DataError("too few documents to hold some out (--test-share)", got=len(dataset.train), todo=todo)
    return replace(dataset, train=train, test=test)


def as_test(dataset: Dataset) -> Dataset:
    """Use train as the test split, without training documents, to evaluate a trained model on a file."""
    return replace(dataset, train=dataset.train.take(np.arange(0)), test=dataset.train)


def hold_outs(
    dataset: Dataset, rows: sp.csr_matrix | None, *, folds: int, most: int, seed: int = 0
) -> list[tuple[Split, Split]]:
    """(train, held out) of each fold, with `most` documents held out in total; near-duplicates stay together.

    `rows` (N, V) are compared as in `resembling`, because future texts have no near-duplicates in train; None compares
    only hashes of documents. Groups of more than a fiftieth of a fold stay in train, as they would dominate it, unless
    most documents are in such groups, which are then split by hash. Void pairs are treated as in `hold_out`.
    """
    train = dataset.train
    if len(train) < max(FEWEST, 2 * folds) or most < folds:
        return []
    _, same = np.unique(fingerprints(train.documents, seed), return_inverse=True)  # rank of each document's hash
    looked_at = np.argsort(same, kind="stable")[: 2 * most]
    crowd = max(5, most // (50 * folds))
    group = same if rows is None else resembling(rows, looked_at, same, crowd)
    crowded = (np.bincount(group) > crowd)[group]
    if (~crowded[looked_at]).sum() < most // 2:
        group = np.unique(np.where(crowded, group.max() + 1 + same, group), return_inverse=True)[1]
        crowded = np.zeros(len(same), dtype=bool)
    before = _places(group, same, np.bincount(group, weights=~crowded).astype(np.int64))
    fold = np.where(~crowded & (before < most), before * folds // most, -1)  # (N,)
    items = _items(train, dataset.labels)
    return [_cut(train, items, fold == number, same) for number in range(folds)]


def void_pairs(train: Split, other: Split, labels: LabelSet) -> sp.csr_matrix:
    """(document, label) pairs (n, L) of `other` that train gives away: an item and itself, A→B if train has B→A.

    All zero if documents are not labels (`ITEM_SHARE`).
    """
    return _given_away(_items(other, labels), train.relevance, _items(train, labels))


def fingerprints(documents: Documents, seed: int = 0) -> np.ndarray:
    """A 64-bit hash (n,) of every document, salted by the seed and the same on any machine."""
    key = str(seed).encode()
    digests = (hashlib.blake2b(row, digest_size=8, key=key).digest() for row in _row_bytes(documents))
    return np.frombuffer(b"".join(digests), dtype="<u8")


def pairs_matrix(pairs: np.ndarray, shape: tuple[int, int]) -> sp.csr_matrix:
    """(row, label) pairs as a binary matrix."""
    matrix = sp.csr_matrix((np.ones(len(pairs), dtype=np.float32), (pairs[:, 0], pairs[:, 1])), shape=shape)
    matrix.data[:] = 1.0  # repeated pairs were summed
    return matrix


def _smallest_hashes(sizes: np.ndarray, target: float) -> np.ndarray:
    """Which texts are held out, given in order of their hash, with `sizes` documents each."""
    if sizes.sum() < FEWEST or len(sizes) < 2:
        return np.zeros(len(sizes), dtype=bool)
    target = max(int(target), sizes.min())
    fits = sizes <= target
    return fits & (np.cumsum(sizes * fits) <= target)


def _cut(train: Split, items: sp.csr_matrix, held: np.ndarray, group: np.ndarray) -> tuple[Split, Split]:
    """Train without the held documents (N,), and only these; texts without remaining labels go back."""
    labels_left = np.zeros(len(train), dtype=np.int64)
    labels_left[held] = _without(train.relevance[held], _void(train, items, held)).getnnz(axis=1)
    held = held & (np.bincount(group, weights=labels_left, minlength=group.max() + 1) > 0)[group]
    return train.take(np.flatnonzero(~held)), _voided(train.take(np.flatnonzero(held)), _void(train, items, held))


def _places(group: np.ndarray, same: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """How many documents (N,) precede each document's group, with groups ordered by their first hash."""
    first = np.full(len(sizes), len(same))
    np.minimum.at(first, group, same)
    order = np.argsort(first, kind="stable")
    before = np.empty(len(order), dtype=np.int64)
    before[order] = np.cumsum(sizes[order]) - sizes[order]
    return before[group]


def _void(train: Split, items: sp.csr_matrix, held: np.ndarray) -> sp.csr_matrix:
    return _given_away(items[held], train.relevance[~held], items[~held])


def _given_away(items: sp.csr_matrix, relevance: sp.csr_matrix, train_items: sp.csr_matrix) -> sp.csr_matrix:
    """The item as a label → the training documents that have it → these documents as labels; and the item itself."""
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
    left.sort_indices()  # a difference may be unsorted
    return left


def _items(split: Split, labels: LabelSet) -> sp.csr_matrix:
    """Which label (n, L) a document is, by name or by text."""
    items = sp.csr_matrix((len(split), len(labels)), dtype=np.float32)
    if split.names is not None:
        items += _equal(split.names, labels.names)
    if isinstance(split.documents, Sequence) and isinstance(labels.texts, Sequence):
        items += _equal(split.documents, labels.texts)
    return items


def _equal(left: Sequence[str], right: Sequence[str]) -> sp.csr_matrix:
    """Where two lists of texts are equal and not empty, (len(left), len(right))."""
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
    columns = matrix.indices.astype("<i8")
    values = matrix.data.astype("<f4")
    starts = matrix.indptr
    return (columns[start:end].tobytes() + values[start:end].tobytes() for start, end in pairwise(starts))
