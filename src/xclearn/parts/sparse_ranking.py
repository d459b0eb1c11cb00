"""Sparse linear classifiers that re-rank the best labels of a model: settings, and one training problem per label.

A label's examples are its own documents and those whose shortlist contains it. Knows nothing about the model that made
the shortlists, or how classifiers are stored.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

import numpy as np
import scipy.sparse as sp

from xclearn.config import Count, Rate, Weight
from xclearn.labels.lists import padded_matrix
from xclearn.parts.linear import LevelProblems

_AT_ONCE = 4096  # labels trained between checkpoints


@final
@dataclass(frozen=True, kw_only=True)
class SparseRanking:
    """Sparse classifiers over a document's bag of tokens and, optionally, the model's vector of it.

    The vector was fitted to the same training documents, so it looks more useful in training than it is.
    """

    depth: Count = 100  # best labels of a document to re-rank
    pairs: bool = True  # also use pairs of neighbouring tokens, if texts are token sequences
    vector: bool = False  # also use the model's vector, as the authors do
    cost: Rate = 1.0  # weight of the loss against regularisation
    passes: Count = 20  # maximum passes of the solver over its examples
    threshold: Weight = 0.1  # weights of at most this magnitude are dropped


def ranking_problems(shortlist: np.ndarray, relevance: sp.csr_matrix) -> Iterator[LevelProblems]:
    """The problems of all labels, in blocks; `shortlist` (N, depth) holds label ids, padded with −1."""
    listed = padded_matrix(shortlist, relevance.shape[1])
    positives = sp.csr_matrix(relevance.T, dtype=np.float32)  # (L, N)
    examples = sp.csr_matrix(listed.T) + positives
    for start in range(0, len(positives.indptr) - 1, _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        own = positives[part]
        yield LevelProblems(np.arange(own.shape[0] + 1), examples[part], own)
