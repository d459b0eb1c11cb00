"""The best labels of any model ranked anew: sparse classifiers over the bag, and a tree that calibrates.

From ELIAS++ (Gupta et al., NeurIPS 2022). Knows nothing about how classifiers and tree were learnt.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

import numpy as np
import scipy.sparse as sp

from xclearn.errors import ModelError
from xclearn.inference.checks import expect, expect_below, expect_starts
from xclearn.inference.components import Step, component, unit
from xclearn.kernels.linear import SparseWeights, listed_logits


@final
@component("sparse_ranker.v1")
@dataclass(frozen=True)
class SparseRanker:
    """How much of a label's score stays: exp(−max(0, 1 − z)³), z = w_l · [bag ; vector] + b_l.

    Both are of unit length; the vector may be left out.
    """

    bag: str  # the encoder of sparse unit rows
    vector: str  # the encoder whose vector stands after the bag; empty: none does
    starts: np.ndarray  # (L + 1,) int64 where each label's weights start
    features: np.ndarray  # (E,) int32 the column of each weight: of the bag, then of the vector
    weights: np.ndarray  # (E,) float32
    bias: np.ndarray  # (L,) float32

    @classmethod
    def of(cls, bag: str, vector: str, weights: sp.csr_matrix, bias: np.ndarray) -> SparseRanker:
        """From weights (L, V + D)."""
        starts, features = weights.indptr.astype(np.int64), weights.indices.astype(np.int32)
        return cls(bag, vector, starts, features, weights.data.astype(np.float32), bias.astype(np.float32))

    def __call__(self, vectors: Mapping[str, np.ndarray], ids: np.ndarray) -> np.ndarray:
        """The share (n, m) of each label, −1 where there is none."""
        documents = ranker_features(vectors[self.bag], vectors.get(self.vector))  # (n, V + D)
        weights = SparseWeights(self.starts, self.features, self.weights)
        logits = listed_logits(documents, weights, ids) + self.bias[np.maximum(ids, 0)]
        return np.exp(-(np.maximum(1 - logits, 0) ** 3))

    def check(self, dims: Mapping[str, int], n_labels: int) -> None:
        """Refuse tensors whose shapes do not fit."""
        if self.bag not in dims or self.vector not in ("", *dims):
            raise ModelError("the ranker reads a vector that no encoder makes", got=(self.bag, self.vector))
        size, width = len(self.weights), dims[self.bag] + dims.get(self.vector, 0)
        expect(self.bias, np.float32, n_labels, "sparse_ranker.bias")
        expect_starts(self.starts, n_labels, size, "sparse_ranker.starts")
        expect(self.weights, np.float32, size, "sparse_ranker.weights")
        expect_below(self.features, width, size, "sparse_ranker.features")


def ranker_features(bag: sp.csr_matrix, vectors: np.ndarray | None) -> sp.csr_matrix:
    """[bag ; vector] of each document (n, V + D)."""
    return bag if vectors is None else sp.hstack([bag, sp.csr_matrix(unit(vectors))], format="csr")


@final
@component("calibration_tree.v1")
@dataclass(frozen=True)
class CalibrationTree:
    """A decision tree over (score now, score before the ranker, documents of the label): the chance of being right."""

    columns: np.ndarray  # (nodes,) int64 which of the three a node asks
    thresholds: np.ndarray  # (nodes,) float64 up to which it goes left
    left: np.ndarray  # (nodes,) int64, a leaf's own number
    right: np.ndarray  # (nodes,) int64, a leaf's own number
    chances: np.ndarray  # (nodes,) float32
    label_counts: np.ndarray  # (L,) float32
    depth: int  # questions from the root to the deepest leaf
    weight: float  # of the tree's chance against the score

    def __call__(self, ids: np.ndarray, now: np.ndarray, before: np.ndarray) -> np.ndarray:
        """Scores (n, m)."""
        values = calibration_features(ids, now, before, self.label_counts)  # (n, m, 3)
        node = np.zeros(ids.shape, dtype=np.int64)
        for _ in range(self.depth):
            asked = np.take_along_axis(values, self.columns[node][..., None], axis=2)[..., 0]
            node = np.where(asked <= self.thresholds[node], self.left[node], self.right[node])
        return self.weight * self.chances[node] + (1 - self.weight) * now

    def check(self, n_labels: int) -> None:
        """Refuse tensors whose shapes do not fit."""
        n = len(self.columns)
        nodes = (self.columns, self.thresholds, self.left, self.right, self.chances)
        if not n or any(array.shape != (n,) for array in nodes) or self.label_counts.shape != (n_labels,):
            raise ModelError("calibration_tree's tensors have the wrong shape", got=[array.shape for array in nodes])
        inside = all(
            array.dtype == np.int64 and 0 <= array.min() <= array.max() < n for array in (self.left, self.right)
        )
        if not inside or self.columns.dtype != np.int64 or not 0 <= self.columns.min() <= self.columns.max() < 3:
            raise ModelError("calibration_tree's nodes lead nowhere", got=n)
        if not 0 <= self.weight <= 1 or not 0 <= self.depth <= n:
            raise ModelError("calibration_tree has another weight or depth", got=(self.weight, self.depth))


def calibration_features(ids: np.ndarray, now: np.ndarray, before: np.ndarray, label_counts: np.ndarray) -> np.ndarray:
    """What the tree is asked about (n, m, 3), float32."""
    return np.stack([now, before, label_counts[np.maximum(ids, 0)]], axis=2).astype(np.float32)


@final
@component("re_ranking.v1")
@dataclass(frozen=True)
class ReRanking(Step):
    """The best labels by score · share of the ranker, then calibrated; either may be left out."""

    depth: int  # labels ranked anew
    ranker: SparseRanker | None
    calibration: CalibrationTree | None

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

    def check(self, dims: Mapping[str, int], n_labels: int) -> None:
        if self.depth < 1:
            raise ModelError("re_ranking.v1 is given no label", got=self.depth)
        if self.ranker is not None:
            self.ranker.check(dims, n_labels)
        if self.calibration is not None:
            self.calibration.check(n_labels)
