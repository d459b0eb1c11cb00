"""Parts of a servable whose weights are sparse: features as they are, linear classifiers, label trees, their fusion.

Everything here reads the document's features themselves, so there is nothing to encode. Knows nothing about how weights
were trained, and nothing about label names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np
import scipy.sparse as sp

from xclearn.errors import ModelError
from xclearn.inference.checks import expect, expect_below, expect_starts
from xclearn.inference.components import Encoder, Fusion, Scorer, component
from xclearn.kernels import topk_csr
from xclearn.text.weighting import rows_of
from xclearn.text.weighting import unit_rows as unit_values

LOSSES = ("squared_hinge", "logistic", "log")  # how a logit becomes a probability; log: it is one's logarithm


@final
@component("sparse_features.v1")
@dataclass(frozen=True)
class SparseFeatures(Encoder):
    """The features themselves, as sparse rows; scaled to Euclidean length one if `unit`."""

    n_features: int
    unit: bool

    @property
    def dim(self) -> int:  # type: ignore[override]
        return self.n_features

    def encode(self, features: sp.csr_matrix | np.ndarray) -> sp.csr_matrix:
        rows = sp.csr_matrix(features, dtype=np.float32)  # (n, V)
        return unit_rows(rows) if self.unit else rows

    def check(self) -> None:
        if self.n_features < 1:
            raise ModelError("sparse_features.n_features must be positive", got=self.n_features)


def unit_rows(rows: sp.csr_matrix) -> sp.csr_matrix:
    """Each row scaled to Euclidean length one; a zero row stays zero."""
    scaled = unit_values(rows.data.astype(np.float64), rows_of(rows.indptr)).astype(np.float32)
    return sp.csr_matrix((scaled, rows.indices, rows.indptr), rows.shape)


@final
@component("sparse_classifier.v1")
@dataclass(frozen=True)
class SparseClassifier(Scorer):
    """logit = w_l · x + b_l; the weights stand by feature, as a document asks for those of its own."""

    vector: str  # the encoder whose vector it reads
    starts: np.ndarray  # (V + 1,) int64 where each feature's weights start
    labels: np.ndarray  # (E,) int32 the label of each weight
    weights: np.ndarray  # (E,) float32
    bias: np.ndarray  # (L,) float32

    @classmethod
    def of(cls, vector: str, weights: sp.csr_matrix, bias: np.ndarray) -> SparseClassifier:
        """From weights (L, V)."""
        by_feature = sp.csr_matrix(weights.T, dtype=np.float32)
        by_feature.sort_indices()
        starts, labels = by_feature.indptr.astype(np.int64), by_feature.indices.astype(np.int32)
        return cls(vector, starts, labels, by_feature.data, np.asarray(bias, dtype=np.float32))

    @property
    def n_labels(self) -> int:  # type: ignore[override]
        return len(self.bias)

    @cached_property
    def _matrix(self) -> sp.csr_matrix:
        return sp.csr_matrix((self.weights, self.labels, self.starts), shape=(len(self.starts) - 1, self.n_labels))

    def score_all(self, vectors: sp.csr_matrix) -> np.ndarray:
        return (vectors @ self._matrix).toarray() + self.bias  # (n, L)

    def score(self, vectors: sp.csr_matrix, ids: np.ndarray) -> np.ndarray:
        return np.take_along_axis(self.score_all(vectors), ids, axis=1)

    def check(self, dim: int) -> None:
        expect(self.bias, np.float32, self.bias.size, "sparse_classifier.bias")
        expect_starts(self.starts, dim, len(self.weights), "sparse_classifier.starts")
        expect(self.weights, np.float32, self.weights.size, "sparse_classifier.weights")
        expect_below(self.labels, self.n_labels, len(self.weights), "sparse_classifier.labels")


@final
@component("tree_level.v1")
@dataclass(frozen=True)
class TreeLevel:
    """The classifiers of one level's nodes, by parent and feature: all children of a parent are scored together."""

    children: np.ndarray  # (P + 1,) int64 where each parent's children start
    starts: np.ndarray  # (P + 1,) int64 where each parent's weights start
    features: np.ndarray  # (E,) int32 the feature of each weight, ascending within a parent
    nodes: np.ndarray  # (E,) int32 the child of each weight
    weights: np.ndarray  # (E,) float32
    bias: np.ndarray  # (C,) float32 of each child

    @classmethod
    def of(cls, children: np.ndarray, weights: sp.csr_matrix, bias: np.ndarray) -> TreeLevel:
        """From the weights (C, V) of all children, one parent's after the other's."""
        parent_of_child = np.repeat(np.arange(len(children) - 1), np.diff(children))
        node = np.repeat(np.arange(weights.shape[0]), np.diff(weights.indptr))
        parent = parent_of_child[node]
        order = np.lexsort((node, weights.indices, parent))
        starts = np.searchsorted(parent[order], np.arange(len(children)))
        return cls(
            np.asarray(children, dtype=np.int64),
            starts.astype(np.int64),
            weights.indices[order].astype(np.int32),
            node[order].astype(np.int32),
            weights.data[order].astype(np.float32),
            np.asarray(bias, dtype=np.float32),
        )

    @cached_property
    def _keys(self) -> np.ndarray:
        """Parent and feature of each weight in one number, ascending, (E,)."""
        parent = np.repeat(np.arange(len(self.starts) - 1, dtype=np.int64), np.diff(self.starts))
        return (parent << 32) | self.features

    def score(self, documents: sp.csr_matrix, rows: np.ndarray, parents: np.ndarray) -> tuple[np.ndarray, ...]:
        """For m pairs of a document and a parent: pair, child and logit of every child of every pair."""
        pair, children = _ranges(self.children[parents], self.children[parents + 1])
        logits = self.bias[children].astype(np.float64)
        sizes = self.children[parents + 1] - self.children[parents]
        first = np.cumsum(sizes) - sizes  # (m,) where the logits of a pair start
        asking, entry = _ranges(documents.indptr[rows], documents.indptr[rows + 1])
        keys = (parents[asking] << 32) | documents.indices[entry]
        question, found = _ranges(np.searchsorted(self._keys, keys), np.searchsorted(self._keys, keys, "right"))
        asked = asking[question]
        place = first[asked] + self.nodes[found] - self.children[parents[asked]]
        products = documents.data[entry[question]] * self.weights[found]
        return pair, children, logits + np.bincount(place, weights=products, minlength=len(logits))

    def check(self, n_parents: int, n_features: int) -> None:
        """Refuse arrays that do not fit each other."""
        size = len(self.weights)
        expect(self.bias, np.float32, self.bias.size, "tree_level.bias")
        expect_starts(self.children, n_parents, len(self.bias), "tree_level.children")
        expect_starts(self.starts, n_parents, size, "tree_level.starts")
        expect(self.weights, np.float32, size, "tree_level.weights")
        expect_below(self.features, n_features, size, "tree_level.features")
        expect_below(self.nodes, len(self.bias), size, "tree_level.nodes")
        parent = np.repeat(np.arange(n_parents), np.diff(self.starts))
        own = (self.nodes >= self.children[parent]) & (self.nodes < self.children[parent + 1])
        if (np.diff(self._keys) < 0).any() or not own.all() or (np.diff(self.children) < 1).any():
            raise ModelError("tree_level.nodes do not stand with their parents, or a parent has none")


@final
@component("label_tree.v1")
@dataclass(frozen=True)
class Tree:
    """Levels from the root to the labels; the nodes of the last level are labels."""

    levels: list[TreeLevel]
    labels: np.ndarray  # (L,) int64 the label of each node of the last level

    def search(self, documents: sp.csr_matrix, loss: str, beam: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Document row, label and log-probability of every label below the best `beam` nodes of each level."""
        n = documents.shape[0]
        rows, nodes, scores = np.arange(n), np.zeros(n, dtype=np.int64), np.zeros(n)
        for depth, level in enumerate(self.levels):
            kept = _best(rows, scores, beam, n) if depth else np.arange(n)
            pair, nodes, logits = level.score(documents, rows[kept], nodes[kept])
            rows, scores = rows[kept][pair], scores[kept][pair] + log_probability(logits, loss)
        return rows, self.labels[nodes], scores

    def check(self, n_features: int, n_labels: int) -> None:
        """Refuse levels that do not fit each other."""
        n_nodes = 1
        for level in self.levels:
            level.check(n_nodes, n_features)
            n_nodes = len(level.bias)
        every = self.labels.dtype == np.int64 and self.labels.shape == (n_nodes,) == (n_labels,)
        if not every or (np.sort(self.labels) != np.arange(n_labels)).any():
            raise ModelError("label_tree.labels does not hold every label once")


@final
@component("label_trees.v1")
@dataclass(frozen=True)
class LabelTrees(Scorer):
    """The logarithm of a label's mean probability over trees; −∞ where no tree's search came to it."""

    vector: str
    trees: list[Tree]
    loss: str
    beam: int

    @property
    def n_labels(self) -> int:  # type: ignore[override]
        return len(self.trees[0].labels)

    def score_all(self, vectors: sp.csr_matrix) -> np.ndarray:
        logits = np.full((vectors.shape[0], self.n_labels), -np.inf, dtype=np.float32)
        rows_of = sp.csr_matrix(vectors)  # an encoder's vectors are dense
        for tree in self.trees:
            rows, labels, scores = tree.search(rows_of, self.loss, self.beam)
            logits[rows, labels] = np.logaddexp(logits[rows, labels], scores - np.log(len(self.trees)))
        return logits

    def score(self, vectors: sp.csr_matrix, ids: np.ndarray) -> np.ndarray:
        return np.take_along_axis(self.score_all(vectors), ids, axis=1)

    def check(self, dim: int) -> None:
        if not self.trees or self.beam < 1 or self.loss not in LOSSES:
            raise ModelError("label_trees has no trees, or another loss or beam", got=(self.loss, self.beam))
        for tree in self.trees:
            tree.check(dim, self.n_labels)


@final
@component("text_mix.v1")
@dataclass(frozen=True)
class TextMix(Fusion):
    """(p + weight · cosine) / (1 + weight): p from the first scorer's logit, the cosine is the second's value."""

    loss: str
    text_weight: float

    def __post_init__(self) -> None:
        if self.loss not in LOSSES:
            raise ModelError("text_mix has an unknown loss", got=self.loss, allowed=", ".join(LOSSES))

    def __call__(self, candidate: np.ndarray | None, logits: Sequence[np.ndarray]) -> np.ndarray:  # noqa: ARG002
        if len(logits) == 1:
            return _probability(logits[0], self.loss)
        scores = np.maximum(logits[1], 0) * np.float32(self.text_weight / (1 + self.text_weight))
        there = np.nonzero(logits[0] > -np.inf)  # a tree comes to few labels: an exponential of all would take longest
        scores[there] += _probability(logits[0][there], self.loss) / (1 + self.text_weight)
        return scores

    def check(self, n_scorers: int, every_label: bool) -> None:  # noqa: ARG002
        if n_scorers > 2:
            raise ModelError("text_mix.v1 reads one scorer, or two", got=n_scorers)


def log_probability(logits: np.ndarray, loss: str) -> np.ndarray:
    """Of a classifier trained with this loss: as in Parabel exp(−max(0, 1 − z)²) for the squared hinge, else σ(z)."""
    if loss == "log":
        return logits
    return -(np.maximum(1 - logits, 0) ** 2) if loss == "squared_hinge" else -np.logaddexp(0, -logits)


def _probability(logits: np.ndarray, loss: str) -> np.ndarray:
    """In double precision: a vectorised exponential of floats differs by some last bits from one machine to another."""
    return np.exp(log_probability(logits.astype(np.float64), loss))


def _best(rows: np.ndarray, scores: np.ndarray, k: int, n: int) -> np.ndarray:
    """Where the k best scores of each row stand, rows ascending in and out; the first of equals."""
    starts = np.searchsorted(rows, np.arange(n + 1))
    places = np.arange(len(rows)) - starts[rows]
    best, _ = topk_csr(starts, places, scores.astype(np.float32), k)  # (n, k)
    return (starts[:-1, None] + best)[best >= 0]


def _ranges(begins: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The numbers of m ranges, one after the other, and the range of each."""
    lengths = ends - begins
    owner = np.repeat(np.arange(len(begins)), lengths)
    return owner, np.arange(len(owner)) - (np.cumsum(lengths) - lengths - begins)[owner]
