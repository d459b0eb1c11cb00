"""A synthetic data set whose right answer is known: every label has a word that only its own documents have."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from xclearn.data import Dataset, LabelSet, Split
from xclearn.data.dataset import Documents

N_LABELS, N_NOISE = 60, 200


def planted(kind: str = "texts", *, n_labels: int = N_LABELS, train: int = 10, test: int = 2, seed: int = 0) -> Dataset:
    """`train` and `test` documents a label; every third document has a second label, and its word too.

    `kind`: texts, sparse or dense. Label texts hold the label's own word.
    """
    rng = np.random.default_rng(seed)
    splits = [_split(rng, kind, n_labels, count) for count in (train, test)]
    own = sp.csr_matrix(np.eye(n_labels, n_labels + N_NOISE, dtype=np.float32))
    labels = LabelSet([f"label {label}" for label in range(n_labels)], _documents(own, kind, n_labels))
    return Dataset("planted", splits[0], labels, splits[1])


def relevant_first(data: Dataset, ids: np.ndarray) -> float:
    """The share of test documents whose first label is right."""
    relevance = data.split("test").relevance
    return float(np.asarray(relevance[np.arange(len(ids)), ids[:, 0]]).mean())


def _split(rng: np.random.Generator, kind: str, n_labels: int, count: int) -> Split:
    first = rng.permutation(np.repeat(np.arange(n_labels), count))
    second = np.where(np.arange(len(first)) % 3 == 0, rng.integers(n_labels, size=len(first)), first)
    noise = n_labels + rng.integers(N_NOISE, size=(len(first), 4))
    rows = np.arange(len(first))[:, None]
    relevance = _matrix(rows, np.column_stack([first, second]), n_labels)
    words = _matrix(rows, np.column_stack([first, second, noise]), n_labels + N_NOISE)
    return Split(_documents(words, kind, n_labels), relevance)


def _matrix(rows: np.ndarray, columns: np.ndarray, width: int) -> sp.csr_matrix:
    rows = np.broadcast_to(rows, columns.shape).ravel()
    matrix = sp.csr_matrix((np.ones(columns.size, np.float32), (rows, columns.ravel())), shape=(rows.max() + 1, width))
    matrix.sum_duplicates()
    matrix.data[:] = 1
    return matrix


def _documents(words: sp.csr_matrix, kind: str, n_labels: int) -> Documents:
    if kind == "sparse":
        return words
    if kind == "dense":
        return words.toarray()
    names = [f"own{i}" if i < n_labels else f"noise{i - n_labels}" for i in range(words.shape[1])]
    return [
        " ".join(names[i] for i in words.indices[a:b]) for a, b in zip(words.indptr, words.indptr[1:], strict=False)
    ]
