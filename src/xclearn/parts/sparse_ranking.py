"""Sparse linear classifiers that re-rank the best labels of a model: settings, and one problem for each label.

A label's examples are the documents whose shortlist holds it, and its own. Knows nothing about which model made the
shortlists, nor how what is learnt is kept.
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

_AT_ONCE = 4096  # labels trained between two checkpoints


@final
@dataclass(frozen=True, kw_only=True)
class SparseRanking:
    """Sparse classifiers over the bag of a document, and the model's vector of it if asked for.

    The vector was fitted to the documents that they learn from, so it looks more useful in training than it is.
    """

    depth: Count = 100  # best labels of a document that are ranked
    pairs: bool = True  # whether pairs of neighbouring tokens count too, if they come in order
    vector: bool = False  # whether they read the model's vector too, as those of the authors
    cost: Rate = 1.0  # of the loss against short weights
    passes: Count = 20  # of the solver over its examples at most
    threshold: Weight = 0.1  # weights up to this are dropped


def ranking_problems(shortlist: np.ndarray, relevance: sp.csr_matrix) -> Iterator[LevelProblems]:
    """The problems of all labels, some at a time; `shortlist` (N, depth) holds label ids, −1 where there are fewer."""
    listed = padded_matrix(shortlist, relevance.shape[1])
    positives = sp.csr_matrix(relevance.T, dtype=np.float32)  # (L, N)
    examples = sp.csr_matrix(listed.T) + positives
    for start in range(0, len(positives.indptr) - 1, _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        own = positives[part]
        yield LevelProblems(np.arange(own.shape[0] + 1), examples[part], own)
