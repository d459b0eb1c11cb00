"""Components with sparse weights: pass-through features, linear classifiers, label trees, and their fusion.

All of them read the document's features directly, so there is nothing to encode. Knows nothing about how weights were
trained or about label names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, final

import numpy as np
import scipy.sparse as sp

from xclearn.config import Count, Weight
from xclearn.errors import ModelError
from xclearn.inference.components import Encoder, Fusion, Scorer, component, ranges
from xclearn.inference.declared import Chain, Part, Scope, SizeOf, Tensor, Vector, ids, offsets, shares
from xclearn.inference.forms import native_form_of
from xclearn.kernels import topk_csr
from xclearn.text.vectorisers import DENSE_ROWS, SPARSE_ROWS
from xclearn.text.weighting import rows_of
from xclearn.text.weighting import unit_rows as unit_values

LossName = Literal[
    "squared_hinge", "logistic", "log"
]  # how a logit becomes a probability; log: it is a log-probability


@final
@component("sparse_features.v1")
@dataclass(frozen=True)
class SparseFeatures(Encoder):
    """The features as sparse rows, scaled to unit length if `unit`."""

    gives: ClassVar[str] = SPARSE_ROWS
    n_features: Annotated[int, SizeOf("features")]
    unit: bool

    @property
    def dim(self) -> int:  # type: ignore[override]
        return self.n_features

    def encode(self, features: sp.csr_matrix | np.ndarray) -> sp.csr_matrix:
        rows = sp.csr_matrix(features, dtype=np.float32)  # (n, V)
        return unit_rows(rows) if self.unit else rows


@native_form_of(SparseFeatures)
def _(_: SparseFeatures, core: Any) -> bool:  # noqa: ARG001
    return False


def unit_rows(rows: sp.csr_matrix) -> sp.csr_matrix:
    """Each row scaled to unit length; zero rows stay zero."""
    scaled = unit_values(rows.data.astype(np.float64), rows_of(rows.indptr)).astype(np.float32)
    return sp.csr_matrix((scaled, rows.indices, rows.indptr), rows.shape)


@final
@component("sparse_classifier.v1")
@dataclass(frozen=True)
class SparseClassifier(Scorer):
    """logit = w_l · x + b_l, with weights stored by feature, so that a document reads only those of its features."""

    vector: Annotated[str, Vector(forms=(SPARSE_ROWS,))]  # the encoder whose vector it reads
    starts: Annotated[np.ndarray, offsets("dim", to="entries")]  # start of each feature's weights
    labels: Annotated[np.ndarray, ids("entries", below="labels", empty=True)]
    weights: Annotated[np.ndarray, Tensor("entries", ("float32",), empty=True)]
    bias: Annotated[np.ndarray, Tensor("labels", ("float32",))]

    @classmethod
    def of(cls, vector: str, weights: sp.csr_matrix, bias: np.ndarray) -> SparseClassifier:
        """From weights (L, V)."""
        by_feature = sp.csr_matrix(weights.T, dtype=np.float32)
        by_feature.sort_indices()
        starts = by_feature.indptr.astype(np.int64)
        labels = by_feature.indices.astype(np.int32)
        return cls(vector, starts, labels, by_feature.data, np.asarray(bias, dtype=np.float32))

    @property
    def n_labels(self) -> int:  # type: ignore[override]
        return len(self.bias)

    @cached_property
    def matrix(self) -> sp.csr_matrix:
        return sp.csr_matrix((self.weights, self.labels, self.starts), shape=(len(self.starts) - 1, self.n_labels))

    def score_all(self, vectors: sp.csr_matrix) -> np.ndarray:
        return (vectors @ self.matrix).toarray() + self.bias  # (n, L)

    def score(self, vectors: sp.csr_matrix, ids: np.ndarray) -> np.ndarray:
        return np.take_along_axis(self.score_all(vectors), ids, axis=1)


@final
@component("tree_level.v1")
@dataclass(frozen=True)
class TreeLevel(Part):
    """The classifiers of one tree level, stored by parent and feature: children of a parent are scored together."""

    children: Annotated[np.ndarray, offsets("parents", to="children")]
    starts: Annotated[np.ndarray, offsets("parents", to="entries")]  # start of each parent's weights
    features: Annotated[np.ndarray, ids("entries", below="dim", empty=True)]  # ascending within a parent
    nodes: Annotated[np.ndarray, ids("entries", below="children", empty=True)]  # the child of each weight
    weights: Annotated[np.ndarray, Tensor("entries", ("float32",), empty=True)]
    bias: Annotated[np.ndarray, Tensor("children", ("float32",))]

    @classmethod
    def of(cls, children: np.ndarray, weights: sp.csr_matrix, bias: np.ndarray) -> TreeLevel:
        """From the weights (C, V) of all children, sorted by parent."""
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
        """Parent and feature of each weight as one ascending number, (E,)."""
        parent = np.repeat(np.arange(len(self.starts) - 1, dtype=np.int64), np.diff(self.starts))
        return (parent << 32) | self.features

    def score(self, documents: sp.csr_matrix, rows: np.ndarray, parents: np.ndarray) -> tuple[np.ndarray, ...]:
        """For m pairs of a document and a parent: the pair, child and logit of every child."""
        pair, children = ranges(self.children[parents], self.children[parents + 1])
        logits = self.bias[children].astype(np.float64)
        sizes = self.children[parents + 1] - self.children[parents]
        first = np.cumsum(sizes) - sizes  # (m,) start of each pair's logits
        asking, entry = ranges(documents.indptr[rows], documents.indptr[rows + 1])
        keys = (parents[asking] << 32) | documents.indices[entry]
        question, found = ranges(np.searchsorted(self._keys, keys), np.searchsorted(self._keys, keys, "right"))
        asked = asking[question]
        place = first[asked] + self.nodes[found] - self.children[parents[asked]]
        products = documents.data[entry[question]] * self.weights[found]
        return pair, children, logits + np.bincount(place, weights=products, minlength=len(logits))

    def fits(self, _: Scope, /) -> None:
        parent = np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))
        own = (self.nodes >= self.children[parent]) & (self.nodes < self.children[parent + 1])
        keys = self._keys
        if (keys[1:] < keys[:-1]).any() or not own.all() or (self.children[1:] <= self.children[:-1]).any():
            raise ModelError("tree_level.v1 has nodes outside their parent, or a parent without children")


@final
@component("label_tree.v1")
@dataclass(frozen=True)
class Tree(Part):
    """Levels from the root to the labels; the nodes of the last level are labels."""

    levels: Annotated[list[TreeLevel], Chain("parents", "children", end="labels", start=1)]
    labels: Annotated[np.ndarray, ids("labels", below="labels", kind="int64")]  # label of each node of the last level

    def search(self, documents: sp.csr_matrix, loss: str, beam: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Document row, label and log-probability of every label reached with a beam of `beam` nodes per level."""
        n = documents.shape[0]
        rows = np.arange(n)
        nodes = np.zeros(n, dtype=np.int64)
        scores = np.zeros(n)
        for depth, level in enumerate(self.levels):
            kept = _best(rows, scores, beam, n) if depth else np.arange(n)
            pair, nodes, logits = level.score(documents, rows[kept], nodes[kept])
            rows = rows[kept][pair]
            scores = scores[kept][pair] + log_probability(logits, loss)
        return rows, self.labels[nodes], scores

    def fits(self, _: Scope, /) -> None:
        if (np.bincount(self.labels) != 1).any():
            raise ModelError("label_tree.v1 does not contain every label exactly once")


@final
@component("label_trees.v1")
@dataclass(frozen=True)
class LabelTrees(Scorer):
    """The log of a label's mean probability over trees; −∞ if no tree reached it."""

    vector: Annotated[str, Vector(forms=(SPARSE_ROWS, DENSE_ROWS))]
    trees: Annotated[list[Tree], shares("labels", "dim")]
    loss: LossName
    beam: Count

    @property
    def n_labels(self) -> int:  # type: ignore[override]
        return len(self.trees[0].labels)

    def score_all(self, vectors: sp.csr_matrix) -> np.ndarray:
        logits = np.full((vectors.shape[0], self.n_labels), -np.inf, dtype=np.float32)
        rows_of = sp.csr_matrix(vectors)  # vectors of an encoder are dense
        for tree in self.trees:
            rows, labels, scores = tree.search(rows_of, self.loss, self.beam)
            logits[rows, labels] = np.logaddexp(logits[rows, labels], scores - np.log(len(self.trees)))
        return logits

    def score(self, vectors: sp.csr_matrix, ids: np.ndarray) -> np.ndarray:
        return np.take_along_axis(self.score_all(vectors), ids, axis=1)


@final
@component("text_mix.v1")
@dataclass(frozen=True)
class TextMix(Fusion):
    """(p + weight · cosine) / (1 + weight): p from the first scorer's logit, the cosine is the second's value."""

    loss: LossName
    text_weight: Weight

    def __call__(self, candidate: np.ndarray | None, logits: Sequence[np.ndarray]) -> np.ndarray:  # noqa: ARG002
        if len(logits) == 1:
            return _probability(logits[0], self.loss)
        scores = np.maximum(logits[1], 0) * np.float32(self.text_weight / (1 + self.text_weight))
        there = np.nonzero(
            logits[0] > -np.inf
        )  # a tree reaches few labels; exponentials of all would dominate the time
        scores[there] += _probability(logits[0][there], self.loss) / (1 + self.text_weight)
        return scores

    def fits(self, scope: Scope, /) -> None:
        if scope.sizes["scorers"] > 2:
            raise ModelError("text_mix.v1 needs one or two scorers", got=scope.sizes["scorers"])


def log_probability(logits: np.ndarray, loss: str) -> np.ndarray:
    """For a classifier trained with this loss: exp(−max(0, 1 − z)²) for the squared hinge, as in Parabel, else σ(z)."""
    if loss == "log":
        return logits
    return -(np.maximum(1 - logits, 0) ** 2) if loss == "squared_hinge" else -np.logaddexp(0, -logits)


def _probability(logits: np.ndarray, loss: str) -> np.ndarray:
    """In double precision, because vectorised float32 exponentials differ between machines in the last bits."""
    return np.exp(log_probability(logits.astype(np.float64), loss))


def _best(rows: np.ndarray, scores: np.ndarray, k: int, n: int) -> np.ndarray:
    """Positions of the k best scores of each row, ties by position; rows ascend."""
    starts = np.searchsorted(rows, np.arange(n + 1))
    places = np.arange(len(rows)) - starts[rows]
    best, _ = topk_csr(starts, places, scores.astype(np.float32), k)  # (n, k)
    return (starts[:-1, None] + best)[best >= 0]
