"""Maps a data set to the labels of a model: labels are matched by name, and unknown ones follow the model's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import scipy.sparse as sp

from xclearn.data.dataset import Dataset, LabelSet, RowNumbers, Split
from xclearn.errors import DataError


def over_labels(data: Dataset, names: Sequence[str]) -> Dataset:
    """The same documents with these labels first, in this order; unchanged if they already are."""
    own = data.labels.names
    if len(own) >= len(names) and list(own[: len(names)]) == list(names):
        return data
    if isinstance(own, RowNumbers):
        what = "the model and the data have different labels, but the data has no label names"
        raise DataError(what, where=data.name, got=(len(names), len(own)), todo="Add a label file.")
    id_of = {name: label for label, name in enumerate(names)}
    new_ids = np.array([id_of.setdefault(name, len(id_of)) for name in own], dtype=np.int64)  # (L,)
    train, test, dev = (
        None if split is None else _renumbered(split, new_ids, len(id_of))
        for split in (data.train, data.test, data.dev)
    )
    assert train is not None
    return replace(data, labels=LabelSet(list(id_of)), train=train, test=test, dev=dev)


def unknown_labels(data: Dataset, split: str, n_known: int) -> dict[str, int]:
    """The labels from `n_known` on with their number of documents in the split, most frequent first."""
    counts = data.split(split).relevance.getnnz(axis=0)[n_known:]
    order = [label for label in np.argsort(-counts, kind="stable").tolist() if counts[label]]
    return {data.labels.names[n_known + label]: int(counts[label]) for label in order}


def _renumbered(split: Split, new_ids: np.ndarray, n_labels: int) -> Split:
    old = split.relevance
    relevance = sp.csr_matrix((old.data, new_ids[old.indices], old.indptr), shape=(len(split), n_labels))
    relevance.sort_indices()
    pairs = split.filter_pairs.copy()
    pairs[:, 1] = new_ids[pairs[:, 1]]
    return replace(split, relevance=relevance, filter_pairs=pairs)
