"""Propagates scores one step over a graph: of clusters before label scoring, or of labels during or after it.

This is the GAME step of ECLARE. In the paper propagated scores replace the original ones (`share` = 1); its published
code keeps half of the original scores (`share` = 0.5). Knows nothing about where a graph comes from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any, final

import numpy as np
import scipy.sparse as sp

from xclearn.config import Count, Range
from xclearn.inference.arrays import sigmoid
from xclearn.inference.components import Candidates, ClusterBeam, Scorer, Step, component
from xclearn.inference.declared import Part, Tensor, ids, offsets, shares
from xclearn.inference.forms import Core, NoNativeForm, native_form, native_form_of
from xclearn.inference.shortlists import log_odds
from xclearn.kernels import topk_csr

Passed = Annotated[float, Range(0, 1, open_low=True)]  # weight of propagated scores


@final
@component("graph.v1")
@dataclass(frozen=True)
class Graph(Part):
    """Weighted edges between n nodes, stored by source node."""

    offsets: Annotated[np.ndarray, offsets("nodes", to="edges")]
    targets: Annotated[np.ndarray, ids("edges", below="nodes", empty=True)]
    weights: Annotated[np.ndarray, Tensor("edges", ("float32",), least=0, empty=True)]

    @classmethod
    def of(cls, edges: sp.csr_matrix) -> Graph:
        """From a matrix (n, n) whose rows are source nodes: Gᵀ for the paper's p = G p̃."""
        rows = sp.csr_matrix(edges, dtype=np.float32, copy=True)
        rows.sort_indices()
        return cls(rows.indptr.astype(np.int64), rows.indices.astype(np.int32), rows.data)

    @property
    def n(self) -> int:
        return len(self.offsets) - 1

    @cached_property
    def matrix(self) -> sp.csr_matrix:
        """The matrix (n, n), with source nodes as rows."""
        return sp.csr_matrix((self.weights, self.targets, self.offsets), shape=(self.n, self.n))


@final
@component("game.v1")
@dataclass(frozen=True)
class Game(Part):
    """(1 − share) · p + share · (the best propagated scores), with few nodes per document."""

    graph: Annotated[Graph, shares("nodes")]
    share: Passed  # 1: only propagated scores count
    kept: Count  # best propagated nodes to keep

    @property
    def native(self) -> tuple[Any, ...]:
        """The form that the native core takes."""
        return self.graph.offsets, self.graph.targets, self.graph.weights, self.share, self.kept

    def __call__(self, ids: np.ndarray, chances: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """From nodes (n, m), padded with −1, and their probabilities: at most m + kept nodes, best first, and theirs.

        Probabilities are capped at 1.
        """
        first = _sparse(ids, chances, self.graph.n)  # (documents, nodes)
        passed = first @ self.graph.matrix
        kept = min(self.kept, self.graph.n)
        best = _sparse(*topk_csr(passed.indptr, passed.indices, passed.data, kept), self.graph.n)
        mixed = (1 - self.share) * first + self.share * best  # zeros are not stored
        found, scores = topk_csr(mixed.indptr, mixed.indices, mixed.data, ids.shape[1] + kept)
        return found, np.clip(scores, 0, 1)


@final
@component("game_beam.v1")
@dataclass(frozen=True)
class GameBeam(Candidates):
    """The labels of the best clusters and of clusters added by the cluster graph."""

    clusters: Annotated[ClusterBeam, shares("labels", "clusters")]
    game: Annotated[Game, shares(nodes="clusters")]

    @property
    def beam_width(self) -> int:
        return self.clusters.beam

    def with_beam(self, beam: int) -> GameBeam:
        return replace(self, clusters=self.clusters.with_beam(beam))

    def find(self, vectors: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        clusters, logits = self.clusters.best(vectors)
        found, chances = self.game(clusters, sigmoid(logits))
        return self.clusters.labels_of(found, log_odds(chances))


@native_form_of(GameBeam)
def _(stage: GameBeam, core: Core) -> Any:
    core.native.set_cluster_game(stage.game.native)
    return native_form(stage.clusters, core)


@final
@component("game_labels.v1")
@dataclass(frozen=True)
class GameLabels(Step):
    """The best labels, and those added by the label graph."""

    game: Annotated[Game, shares(nodes="labels")]
    depth: Count  # best labels that propagate their scores

    def __call__(
        self,
        vectors: Mapping[str, np.ndarray],  # noqa: ARG002
        ids: np.ndarray,
        scores: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray]:
        found, chances = self.game(ids, scores)
        return found, np.where(found < 0, -np.inf, chances)


@native_form_of(GameLabels)
def _(step: GameLabels, core: Core) -> None:
    if core.servable.steps[0] is not step:
        raise NoNativeForm
    core.native.set_label_game(step.game.native, step.depth)


@final
@component("game_scorer.v1")
@dataclass(frozen=True)
class GameScorer(Scorer):
    """Propagates a scorer's probabilities among the candidates before fusion, without new labels, as in the paper."""

    scorer: Annotated[Scorer, shares("labels")]
    graph: Annotated[Graph, shares(nodes="labels")]
    share: Passed  # 1: only propagated scores count

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
        if not ids.size:  # no candidates: SciPy's selection of nothing is no array
            return np.zeros(ids.shape, dtype=np.float32)
        chances = np.where(ids < 0, 0, sigmoid(self.scorer.score(vectors, ids)))  # (n, m)
        passed = _sparse(ids, chances, self.n_labels) @ self.graph.matrix
        rows = np.arange(len(ids)).repeat(ids.shape[1])
        return self._mixed(chances, np.asarray(passed[rows, np.maximum(ids, 0).ravel()]).reshape(ids.shape))

    def _mixed(self, chances: np.ndarray, passed: np.ndarray) -> np.ndarray:
        return log_odds(np.clip((1 - self.share) * chances + self.share * passed, 0, 1))


def _sparse(ids: np.ndarray, values: np.ndarray, n: int) -> sp.csr_matrix:
    """Ids (documents, m), padded with −1, and their values as a sparse matrix (documents, n)."""
    there = ids >= 0
    indptr = np.concatenate([[0], np.cumsum(there.sum(axis=1))])
    return sp.csr_matrix((values[there].astype(np.float32), ids[there], indptr), shape=(len(ids), n))
