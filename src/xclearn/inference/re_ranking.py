"""Re-ranks the best labels of any model with sparse classifiers, and calibrates scores with a tree.

From ELIAS++ (Gupta et al., NeurIPS 2022). Knows nothing about how classifiers and tree are learnt.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, final

import numpy as np
import scipy.sparse as sp

from xclearn.config import Count, Number, Share
from xclearn.errors import ModelError
from xclearn.inference.arrays import unit
from xclearn.inference.components import Step, component
from xclearn.inference.declared import Part, Scope, Tensor, Vector, ids, offsets, shares
from xclearn.inference.forms import Core, NoNativeForm, as_kind, native_form_of
from xclearn.inference.sparse import SparseFeatures
from xclearn.kernels.linear import SparseWeights, listed_logits
from xclearn.text.vectorisers import SPARSE_ROWS


@final
@component("sparse_ranker.v1")
@dataclass(frozen=True)
class SparseRanker(Part):
    """The factor for a label's score: exp(−max(0, 1 − z)³), z = w_l · [bag ; vector] + b_l.

    Bag and vector have unit length; the vector is optional.
    """

    bag: Annotated[str, Vector("bag", (SPARSE_ROWS,))]  # the encoder of sparse unit rows
    vector: Annotated[str, Vector(optional=True)]  # the encoder whose vector follows the bag; empty: none
    starts: Annotated[np.ndarray, offsets("labels", to="entries")]  # start of each label's weights
    features: Annotated[
        np.ndarray, ids("entries", below="bag+dim", empty=True)
    ]  # columns of the bag, then of the vector
    weights: Annotated[np.ndarray, Tensor("entries", ("float32",), empty=True)]
    bias: Annotated[np.ndarray, Tensor("labels", ("float32",))]

    @classmethod
    def of(cls, bag: str, vector: str, weights: sp.csr_matrix, bias: np.ndarray) -> SparseRanker:
        """From weights (L, V + D)."""
        starts = weights.indptr.astype(np.int64)
        features = weights.indices.astype(np.int32)
        return cls(bag, vector, starts, features, weights.data.astype(np.float32), bias.astype(np.float32))

    def __call__(self, vectors: Mapping[str, np.ndarray], ids: np.ndarray) -> np.ndarray:
        """The factor (n, m) of each label; missing ids are −1."""
        documents = ranker_features(vectors[self.bag], vectors.get(self.vector))  # (n, V + D)
        weights = SparseWeights(self.starts, self.features, self.weights)
        logits = listed_logits(documents, weights, ids) + self.bias[np.maximum(ids, 0)]
        return np.exp(-(np.maximum(1 - logits, 0) ** 3))


def ranker_features(bag: sp.csr_matrix, vectors: np.ndarray | None) -> sp.csr_matrix:
    """[bag ; vector] of each document (n, V + D)."""
    return bag if vectors is None else sp.hstack([bag, sp.csr_matrix(unit(vectors))], format="csr")


@final
@component("calibration_tree.v1")
@dataclass(frozen=True)
class CalibrationTree(Part):
    """A decision tree from score, score before the ranker and label frequency to the probability of being correct."""

    columns: Annotated[
        np.ndarray, Tensor("nodes", ("int64",), least=0, most=2)
    ]  # which of the three features a node tests
    thresholds: Annotated[np.ndarray, Tensor("nodes")]  # values up to this go left
    left: Annotated[np.ndarray, ids("nodes", below="nodes", kind="int64")]  # a leaf's own number
    right: Annotated[np.ndarray, ids("nodes", below="nodes", kind="int64")]  # a leaf's own number
    chances: Annotated[np.ndarray, Tensor("nodes")]
    label_counts: Annotated[np.ndarray, Tensor("labels")]
    depth: Number  # tests from the root to the deepest leaf
    weight: Share  # weight of the tree's probability against the score

    def __call__(self, ids: np.ndarray, now: np.ndarray, before: np.ndarray) -> np.ndarray:
        """Calibrated scores (n, m)."""
        values = calibration_features(ids, now, before, self.label_counts)  # (n, m, 3)
        node = np.zeros(ids.shape, dtype=np.int64)
        for _ in range(self.depth):
            asked = np.take_along_axis(values, self.columns[node][..., None], axis=2)[..., 0]
            node = np.where(asked <= self.thresholds[node], self.left[node], self.right[node])
        return self.weight * self.chances[node] + (1 - self.weight) * now

    def fits(self, _: Scope, /) -> None:
        if self.depth > len(self.columns):
            raise ModelError("calibration_tree.v1 is deeper than it has nodes", got=self.depth)


def calibration_features(ids: np.ndarray, now: np.ndarray, before: np.ndarray, label_counts: np.ndarray) -> np.ndarray:
    """The input of the tree (n, m, 3), float32."""
    return np.stack([now, before, label_counts[np.maximum(ids, 0)]], axis=2).astype(np.float32)


@final
@component("re_ranking.v1")
@dataclass(frozen=True)
class ReRanking(Step):
    """Re-ranks the best labels by score · factor, then calibrates; both are optional."""

    depth: Count  # labels that are re-ranked
    ranker: Annotated[SparseRanker | None, shares("labels", empty=True)]
    calibration: Annotated[CalibrationTree | None, shares("labels", empty=True)]

    @property
    def reads(self) -> frozenset[str]:
        return frozenset() if self.ranker is None else frozenset((self.ranker.bag, self.ranker.vector)) - {""}

    def __call__(
        self, vectors: Mapping[str, np.ndarray], ids: np.ndarray, scores: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        before = np.where(ids < 0, 0, scores)
        now = before if self.ranker is None else before * self.ranker(vectors, ids)
        if self.calibration is not None:
            now = self.calibration(ids, now, before)
        return ids, np.where(ids < 0, -np.inf, now).astype(np.float32)


@native_form_of(ReRanking)
def _(step: ReRanking, core: Core) -> None:
    if core.servable.steps[-1] is not step:
        raise NoNativeForm
    core.native.set_re_ranking(step.depth)
    if (ranker := step.ranker) is not None:
        bag = core.servable.encoders[ranker.bag]
        if not isinstance(bag, SparseFeatures):
            raise NoNativeForm
        parts = ranker.starts, ranker.features, ranker.weights, ranker.bias
        place = core.place_of(ranker.vector) if ranker.vector else -1
        core.native.set_ranker(parts, bag.dim, bag.unit, place)
    if (tree := step.calibration) is not None:
        numbers = tree.columns, as_kind(tree.thresholds, np.float64), tree.left, tree.right
        values = as_kind(tree.chances, np.float32), as_kind(tree.label_counts, np.float32)
        core.native.set_calibration((*numbers, *values), tree.depth, tree.weight)
