"""Sparse linear classifiers trained by a solver, for label trees and one-vs-all, and their served form.

Knows nothing about devices, stages or torch.
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

TOLERANCE = 0.3  # of the solver; 0.01 takes three times as long and changes no hold-out metric by 0.1
USUAL_COST: dict[Loss, float] = {"squared_hinge": 1.0, "logistic": 30.0}  # the cost bounds a logistic gradient
TEXT_WEIGHT = 0.15  # weight of the cosine with a label's text beside a probability
_WELL_KNOWN = 6  # documents per label above which label texts weigh less: classifiers have learnt what they say
_SPARSE, _PASSES = 50.0, 3  # dense operations per sparse one in time; passes over all examples
_LIGHT = 0.3  # words with less than this share of the heaviest word's weight are dropped
_FEW = 16  # with this many children or more, positives are rare


@final
class LevelProblems(NamedTuple):
    """The problems of one tree level: which documents of a parent have a label below each of its children."""

    children: np.ndarray  # (P + 1,) start of each parent's children
    groups: sp.csr_matrix  # (P, N) the documents of each parent
    positives: sp.csr_matrix  # (C, N) the documents of each child


@final
@dataclass(frozen=True)
class Solver:
    """How classifiers are trained."""

    loss: Loss
    cost: float
    epochs: int  # maximum passes over the examples
    threshold: float  # weights of at most this magnitude are dropped
    seed: int

    def train(self, features: sp.csr_matrix, level: LevelProblems) -> dict[str, np.ndarray]:
        """A classifier for each child, as the arrays of a sparse matrix (C, V) and biases (C,).

        If positives are rare, the squared hinge tends to a bias of −1. Fixing it there is as accurate as learning it
        and much faster: a document that shares no word with the positives is never visited again.
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
        """Dense operations that take as long as solving problems with `entries` entries in total."""
        return 2 * _SPARSE * _PASSES * entries


def require_label_text(label_features: sp.csr_matrix | np.ndarray | None, text_weight: float) -> None:
    """Raise if label text has a weight but there is no label text."""
    if text_weight is not AUTO and text_weight > 0 and label_features is None:
        todo = "Give label texts, or set label_text_weight = 0."
        raise DataError("label_text_weight needs label texts", got=text_weight, todo=todo)


def usual_text_weight(n_label_entries: int, documents_per_label: float, *, chosen_later: bool) -> float:
    """The default weight of label text: zero without text, AUTO if a hold-out will choose it."""
    if n_label_entries == 0:
        return 0.0
    return AUTO if chosen_later else TEXT_WEIGHT * min(1.0, _WELL_KNOWN / max(1.0, documents_per_label))


def matrix_of(arrays: dict[str, np.ndarray], n_features: int) -> sp.csr_matrix:
    """The weights (C, V) returned by `Solver.train`."""
    shape = (len(arrays["bias"]), n_features)
    return sp.csr_matrix((arrays["data"], arrays["indices"], arrays["indptr"]), shape=shape)


def level_widths(n_labels: int, branching: int, max_leaf: int) -> list[int]:
    """The number of nodes of each level above the labels: powers of two that grow by at most `branching`."""
    enough = 1 << max(-(-n_labels // max_leaf) - 1, 0).bit_length()
    n_clusters = min(enough, 1 << (n_labels.bit_length() - 1))  # no cluster is empty
    widths, step = [1], 1 << (branching.bit_length() - 1)
    while widths[-1] < n_clusters:
        widths.append(min(n_clusters, step * widths[-1]))
    return widths[1:]


def tree_levels(
    relevance: sp.csr_matrix, cluster_of_label: np.ndarray, widths: Sequence[int]
) -> Iterator[LevelProblems]:
    """The levels of a tree over balanced clusters, whose numbers halve towards the root; the last level is the labels.

    The children in the last level are the labels in the order of `leaf_order`.
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
    """The labels (L,) int64, sorted by cluster."""
    return np.argsort(cluster_of_label, kind="stable").astype(np.int64)


def linear_servable(
    vectoriser: Vectoriser,
    scorer: Scorer,
    loss: LossName,
    label_features: sp.csr_matrix | np.ndarray | None,
    weight: float,
) -> Servable:
    """The servable of a scorer of sparse features, which adds the cosine with the label's text to its probability."""
    encoders = {"features": SparseFeatures(vectoriser.n_features, False)}
    scorers = [scorer]
    if label_features is not None and weight > 0:
        texts = unit_rows(sp.csr_matrix(label_features, dtype=np.float32))
        texts = _heavy_words(texts) if sp.issparse(label_features) else texts
        encoders["unit"] = SparseFeatures(vectoriser.n_features, True)
        scorers.append(SparseClassifier.of("unit", texts, np.zeros(texts.shape[0], dtype=np.float32)))
    return Servable(vectoriser, encoders, AllLabels(), scorers, TextMix(loss, float(weight)))


def _heavy_words(texts: sp.csr_matrix) -> sp.csr_matrix:
    """Drop words that weigh little beside the text's heaviest: they occur in most texts and would cost most."""
    heaviest = np.repeat(np.abs(texts).max(axis=1).toarray().ravel(), np.diff(texts.indptr))
    kept = np.abs(texts.data) > _LIGHT * heaviest
    indptr = np.append(0, np.cumsum(kept))[texts.indptr]
    return sp.csr_matrix((texts.data[kept], texts.indices[kept], indptr), texts.shape)
