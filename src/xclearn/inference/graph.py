"""Scores passed one step over a graph: of clusters before their labels are scored, of labels after or while they are.

This is the GAME step of ECLARE. In the paper the passed scores replace the first ones (`share` = 1); in its published
code half of the first ones stays (`share` = 0.5). Knows nothing about where a graph comes from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np
import scipy.sparse as sp

from xclearn.errors import ModelError
from xclearn.inference.components import Candidates, ClusterBeam, Scorer, Step, component, sigmoid
from xclearn.inference.shortlists import log_odds
from xclearn.kernels import topk_csr


@final
@component("graph.v1")
@dataclass(frozen=True)
class Graph:
    """Weighted edges between n nodes, standing by the node that passes its score on."""

    offsets: np.ndarray  # (n + 1,) int64 where the edges of each node start
    targets: np.ndarray  # (E,) int32 the node that each edge leads to
    weights: np.ndarray  # (E,) float32, 0 or more

    @classmethod
    def of(cls, edges: sp.csr_matrix) -> Graph:
        """From a matrix (n, n) in which a row passes on to its columns: for the paper's p = G p̃ that is Gᵀ."""
        rows = sp.csr_matrix(edges, dtype=np.float32, copy=True)
        rows.sort_indices()
        return cls(rows.indptr.astype(np.int64), rows.indices.astype(np.int32), rows.data)

    @property
    def n(self) -> int:
        return len(self.offsets) - 1

    @cached_property
    def matrix(self) -> sp.csr_matrix:
        """(n, n): the node that passes on is the row."""
        return sp.csr_matrix((self.weights, self.targets, self.offsets), shape=(self.n, self.n))

    def check(self, n: int) -> None:
        """Refuse edges between other nodes than these n."""
        size = len(self.targets)
        kinds = self.offsets.dtype == np.int64 and self.targets.dtype == np.int32 and self.weights.dtype == np.float32
        if not kinds or (self.offsets.shape, self.targets.shape, self.weights.shape) != ((n + 1,), (size,), (size,)):
            raise ModelError("the graph's tensors have the wrong shape or type", got=self.offsets.shape, allowed=f"{n}")
        if self.offsets[0] != 0 or self.offsets[-1] != size or (np.diff(self.offsets) < 0).any():
            raise ModelError("graph.offsets do not walk through the edges", got=size)
        if size and not (0 <= self.targets.min() <= self.targets.max() < n and np.isfinite(self.weights).all()):
            raise ModelError("graph.targets are not nodes, or a weight is not finite", allowed=f"0 … {n - 1}")
        if size and self.weights.min() < 0:
            raise ModelError("a weight of the graph is negative", got=float(self.weights.min()))


@final
@component("game.v1")
@dataclass(frozen=True)
class Game:
    """(1 − share) · p + share · (the best of what the graph passes on), both of few nodes a document."""

    graph: Graph
    share: float  # 1: only what is passed on counts
    kept: int  # nodes of what is passed on

    def __call__(self, ids: np.ndarray, chances: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Nodes (n, m), −1 where there are fewer, and their chances → at most m + kept nodes, best first, and theirs.

        A chance that the graph makes greater than 1 is 1.
        """
        first = _sparse(ids, chances, self.graph.n)  # (documents, nodes)
        passed = first @ self.graph.matrix
        kept = min(self.kept, self.graph.n)
        best = _sparse(*topk_csr(passed.indptr, passed.indices, passed.data, kept), self.graph.n)
        mixed = (1 - self.share) * first + self.share * best  # zeros are not stored
        found, scores = topk_csr(mixed.indptr, mixed.indices, mixed.data, ids.shape[1] + kept)
        return found, np.clip(scores, 0, 1)

    def check(self, n: int) -> None:
        """Refuse a graph of other nodes than these n."""
        self.graph.check(n)
        if not 0 < self.share <= 1 or self.kept < 1:
            raise ModelError(
                "game.v1 passes nothing on", got=(self.share, self.kept), allowed="0 < share ≤ 1, kept ≥ 1"
            )


@final
@component("game_beam.v1")
@dataclass(frozen=True)
class GameBeam(Candidates):
    """The labels of the best clusters and of those that the graph between clusters adds to them."""

    clusters: ClusterBeam
    game: Game  # over clusters

    def find(self, vectors: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        clusters, logits = self.clusters.best(vectors)
        found, chances = self.game(clusters, sigmoid(logits))
        return self.clusters.labels_of(found, log_odds(chances))

    def check(self, dims: Mapping[str, int], n_labels: int) -> None:
        self.clusters.check(dims, n_labels)
        self.game.check(len(self.clusters.bias))


@final
@component("game_labels.v1")
@dataclass(frozen=True)
class GameLabels(Step):
    """The best labels, and those that the graph between labels adds to them."""

    game: Game  # over labels
    depth: int  # best labels that pass their scores on

    def __call__(
        self,
        vectors: Mapping[str, np.ndarray],  # noqa: ARG002
        ids: np.ndarray,
        scores: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray]:
        found, chances = self.game(ids, scores)
        return found, np.where(found < 0, -np.inf, chances)

    def check(self, dims: Mapping[str, int], n_labels: int) -> None:  # noqa: ARG002
        self.game.check(n_labels)
        if self.depth < 1:
            raise ModelError("game_labels.v1 is given no label", got=self.depth)


@final
@component("game_scorer.v1")
@dataclass(frozen=True)
class GameScorer(Scorer):
    """A scorer's chances passed on among the candidates, before fusion and without new ones: the form of the paper."""

    scorer: Scorer
    graph: Graph  # over labels
    share: float  # 1: only what is passed on counts

    @property
    def vector(self) -> str:  # type: ignore[override]
        return self.scorer.vector

    @property
    def n_labels(self) -> int:  # type: ignore[override]
        return self.scorer.n_labels

    def score_all(self, vectors: np.ndarray) -> np.ndarray:
        chances = sigmoid(self.scorer.score_all(vectors))  # (n, L)
        return self._mixed(chances, chances @ self.graph.matrix)

    def score(self, vectors: np.ndarray, ids: np.ndarray) -> np.ndarray:
        chances = np.where(ids < 0, 0, sigmoid(self.scorer.score(vectors, ids)))  # (n, m)
        passed = _sparse(ids, chances, self.n_labels) @ self.graph.matrix
        rows = np.arange(len(ids)).repeat(ids.shape[1])
        return self._mixed(chances, np.asarray(passed[rows, np.maximum(ids, 0).ravel()]).reshape(ids.shape))

    def _mixed(self, chances: np.ndarray, passed: np.ndarray) -> np.ndarray:
        return log_odds(np.clip((1 - self.share) * chances + self.share * passed, 0, 1))

    def check(self, dim: int) -> None:
        self.scorer.check(dim)
        self.graph.check(self.n_labels)
        if not 0 < self.share <= 1:
            raise ModelError("game_scorer.v1 passes nothing on", got=self.share, allowed="0 < share ≤ 1")


def _sparse(ids: np.ndarray, values: np.ndarray, n: int) -> sp.csr_matrix:
    """Ids (documents, m), −1 where there are fewer, and a value for each → (documents, n)."""
    there = ids >= 0
    indptr = np.concatenate([[0], np.cumsum(there.sum(axis=1))])
    return sp.csr_matrix((values[there].astype(np.float32), ids[there], indptr), shape=(len(ids), n))
