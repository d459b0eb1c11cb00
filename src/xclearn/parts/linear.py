"""Sparse linear classifiers by a solver, for trees of labels and for one-vs-all: the problems, and what serves them.

Knows nothing about devices, stages or torch: a solver needs neither.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, final

import numpy as np
import scipy.sparse as sp

from xclearn.config import AUTO
from xclearn.errors import DataError
from xclearn.inference.components import AllLabels, Scorer
from xclearn.inference.servable import Servable
from xclearn.inference.sparse import LossName, SparseClassifier, SparseFeatures, TextMix, unit_rows
from xclearn.kernels.linear import Linear, Problems, train_linear
from xclearn.text import Vectoriser

Loss = Literal["squared_hinge", "logistic"]

TOLERANCE = 0.3  # of the solver; 0.01 takes three times as long and moves no metric of a hold-out by 0.1
TEXT_WEIGHT = 0.15  # of the cosine with a label's text beside a probability
_SPARSE, _PASSES = 50.0, 3  # dense operations in the time of a sparse one; passes over all examples
_LIGHT = 0.3  # share of a label's heaviest word up to which its words are dropped
_FEW = 16  # children from which on a positive is rare


@final
class LevelProblems(NamedTuple):
    """The problems of one level of a tree: which documents of a parent have a label below each of its children."""

    children: np.ndarray  # (P + 1,) where each parent's children start
    groups: sp.csr_matrix  # (P, N) the documents of each parent
    positives: sp.csr_matrix  # (C, N) the documents of each child


@final
@dataclass(frozen=True)
class Solver:
    """How classifiers are trained."""

    loss: Loss
    cost: float
    epochs: int  # passes over the examples at most
    threshold: float  # weights up to this are dropped
    seed: int

    def train(self, features: sp.csr_matrix, level: LevelProblems) -> dict[str, np.ndarray]:
        """A classifier of each child, as the arrays of a sparse matrix (C, V) and biases (C,).

        Where positives are rare the squared hinge wants a bias of −1. Fixing it there is as accurate as learning it and
        much faster: a document that shares no word with the positives is never visited again.
        """
        rare = np.diff(level.children).max() >= _FEW
        bias = -1.0 if rare and self.loss == "squared_hinge" else None
        settings = Linear(self.loss, self.cost, bias, TOLERANCE, self.epochs, self.threshold)
        problems = Problems(features, level.groups, level.children, level.positives)
        weights, biases = train_linear(problems, settings, self.seed)
        indptr = weights.indptr.astype(np.int64)
        return {"indptr": indptr, "indices": weights.indices, "data": weights.data, "bias": biases}

    @staticmethod
    def operations(entries: float) -> float:
        """Dense operations that take as long as solving problems with `entries` entries in all."""
        return 2 * _SPARSE * _PASSES * entries


def require_label_text(label_features: sp.csr_matrix | np.ndarray | None, text_weight: float) -> None:
    """Raise if label text has a weight but there is none."""
    if text_weight is not AUTO and text_weight > 0 and label_features is None:
        todo = "Give label texts, or set label_text_weight = 0."
        raise DataError("label text is needed for label_text_weight", got=text_weight, todo=todo)


def usual_text_weight(n_label_entries: int, *, chosen_later: bool) -> float:
    """The weight of label text where none is set: zero without text, AUTO where a hold-out will choose."""
    if n_label_entries == 0:
        return 0.0
    return AUTO if chosen_later else TEXT_WEIGHT


def matrix_of(arrays: dict[str, np.ndarray], n_features: int) -> sp.csr_matrix:
    """The weights (C, V) that `Solver.train` gave."""
    shape = (len(arrays["bias"]), n_features)
    return sp.csr_matrix((arrays["data"], arrays["indices"], arrays["indptr"]), shape=shape)


def level_widths(n_labels: int, branching: int, max_leaf: int) -> list[int]:
    """How many nodes each level above the labels has: powers of two, `branching` times the one before at most."""
    enough = 1 << max(-(-n_labels // max_leaf) - 1, 0).bit_length()
    n_clusters = min(enough, 1 << (n_labels.bit_length() - 1))  # none is empty
    widths, step = [1], 1 << (branching.bit_length() - 1)
    while widths[-1] < n_clusters:
        widths.append(min(n_clusters, step * widths[-1]))
    return widths[1:]


def tree_levels(
    relevance: sp.csr_matrix, cluster_of_label: np.ndarray, widths: Sequence[int]
) -> Iterator[LevelProblems]:
    """Of a tree over balanced clusters, whose numbers halve from level to level; the last level is that of labels.

    The children of the last level are the labels in the order of `leaf_order`.
    """
    n, n_labels = relevance.shape
    groups, before = everything(n), 1
    for width in widths:
        node = cluster_of_label // (widths[-1] // width)
        below = sp.csr_matrix((np.ones(n_labels, np.float32), (np.arange(n_labels), node)), shape=(n_labels, width))
        positives = sp.csr_matrix((relevance @ below).T)
        yield LevelProblems(np.arange(before + 1) * (width // before), groups, positives)
        groups, before = positives, width
    sizes = np.bincount(cluster_of_label, minlength=before)
    children = np.concatenate([[0], np.cumsum(sizes)])
    yield LevelProblems(children, groups, sp.csr_matrix(relevance.T)[leaf_order(cluster_of_label)])


def everything(n_documents: int) -> sp.csr_matrix:
    """The documents of the root, (1, N)."""
    return sp.csr_matrix(np.ones((1, n_documents), dtype=np.float32))


def leaf_order(cluster_of_label: np.ndarray) -> np.ndarray:
    """The labels (L,) int64, cluster after cluster."""
    return np.argsort(cluster_of_label, kind="stable").astype(np.int64)


def linear_servable(
    vectoriser: Vectoriser,
    scorer: Scorer,
    loss: LossName,
    label_features: sp.csr_matrix | np.ndarray | None,
    weight: float,
) -> Servable:
    """What serves a scorer of sparse features, with the cosine of the label's own text added to its probability."""
    encoders = {"features": SparseFeatures(vectoriser.n_features, False)}
    scorers = [scorer]
    if label_features is not None and weight > 0:
        texts = unit_rows(sp.csr_matrix(label_features, dtype=np.float32))
        texts = _heavy_words(texts) if sp.issparse(label_features) else texts
        encoders["unit"] = SparseFeatures(vectoriser.n_features, True)
        scorers.append(SparseClassifier.of("unit", texts, np.zeros(texts.shape[0], dtype=np.float32)))
    return Servable(vectoriser, encoders, AllLabels(), scorers, TextMix(loss, float(weight)))


def _heavy_words(texts: sp.csr_matrix) -> sp.csr_matrix:
    """Without the words that weigh little beside the text's heaviest: they are in most texts and would cost most."""
    heaviest = np.repeat(np.abs(texts).max(axis=1).toarray().ravel(), np.diff(texts.indptr))
    kept = np.abs(texts.data) > _LIGHT * heaviest
    indptr = np.append(0, np.cumsum(kept))[texts.indptr]
    return sp.csr_matrix((texts.data[kept], texts.indices[kept], indptr), texts.shape)
