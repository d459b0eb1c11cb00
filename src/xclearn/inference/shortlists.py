"""Candidate stages that give each label a similarity or a path's chance, and the fusion that counts it beside a logit.

In NumPy. Knows nothing about how centres, clusters or edges were learnt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np

from xclearn.errors import ModelError
from xclearn.inference.checks import expect
from xclearn.inference.components import Candidates, Fusion, component, sigmoid, unit
from xclearn.kernels.dense import topk_dense


@final
@component("centroid_search.v1")
@dataclass(frozen=True)
class CentroidSearch(Candidates):
    """The labels whose centres are nearest to the vector. The cosine with a label's nearest centre stands as its logit.

    A label may have several centres, or none: then it is never found.
    """

    vector: str  # the encoder whose vector is compared
    centres: np.ndarray  # (M, D) float32, of length one
    labels: np.ndarray  # (M,) int32 the label of each centre, ascending
    size: int  # labels found

    @cached_property
    def _starts(self) -> np.ndarray:
        """Where the centres of each label that has one start."""
        return np.flatnonzero(np.diff(self.labels, prepend=-1))

    def find(self, vectors: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        cosines = unit(vectors[self.vector]) @ self.centres.T  # (n, M)
        nearest = np.maximum.reduceat(cosines, self._starts, axis=1)  # (n, labels with centres)
        places, best = topk_dense(nearest, min(self.size, nearest.shape[1]))
        return self.labels[self._starts][places].astype(np.int64), best

    def check(self, dims: Mapping[str, int], n_labels: int) -> None:
        shape = (len(self.labels), _dim(dims, self.vector, "centroid_search"))
        expect(self.centres, np.float32, shape, "centroid_search.centres")
        expect(self.labels, np.int32, shape[:1], "centroid_search.labels")
        ascending = len(self.labels) and (np.diff(self.labels) >= 0).all()
        if not ascending or self.labels[0] < 0 or self.labels[-1] >= n_labels or self.size < 1:
            raise ModelError("centroid_search.labels are not ascending label ids, or none is asked for", got=self.size)


@final
@component("learned_edges.v1")
@dataclass(frozen=True)
class LearnedEdges(Candidates):
    """The labels at the end of the best paths: a cluster's chance min(1, scale · softmax) times an edge's to the label.

    A label that several paths lead to has the best one. The candidate logit is the log-odds of the path's chance.
    """

    vector: str  # the encoder whose vector the clusters read
    weight: np.ndarray  # (C, D) float32
    bias: np.ndarray  # (C,) float32
    scale: float  # how many clusters may be certain at once
    beam: int  # clusters kept
    labels: np.ndarray  # (C, E) int32 where each cluster's edges lead; −1: there is none
    edges: np.ndarray  # (C, E) float32 the chance of each edge, 0…1
    size: int  # labels kept

    def find(self, vectors: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        logits = vectors[self.vector] @ self.weight.T + self.bias  # (n, C)
        clusters, best = topk_dense(logits, min(self.beam, len(self.bias)))  # (n, beam)
        shifted = logits - best[:, :1]
        total = np.exp(shifted).sum(axis=1, keepdims=True)
        chance = np.minimum(1, self.scale * np.exp(best - best[:, :1]) / total)
        paths = (chance[:, :, None] * self.edges[clusters]).reshape(len(logits), -1)  # (n, beam · E)
        ids, paths = best_paths(self.labels[clusters].reshape(len(logits), -1).astype(np.int64), paths)
        return ids[:, : self.size], log_odds(paths[:, : self.size])

    def check(self, dims: Mapping[str, int], n_labels: int) -> None:
        shape = (len(self.bias), _dim(dims, self.vector, "learned_edges"))
        expect(self.weight, np.float32, shape, "learned_edges.weight")
        expect(self.bias, np.float32, shape[:1], "learned_edges.bias")
        expect(self.labels, np.int32, (shape[0], *self.edges.shape[1:]), "learned_edges.labels")
        expect(self.edges, np.float32, self.labels.shape, "learned_edges.edges")
        if self.labels.ndim != 2 or not self.labels.size or self.labels.min() < -1 or self.labels.max() >= n_labels:
            raise ModelError("learned_edges.labels are not label ids", got=self.labels.shape)
        if not ((self.edges >= 0) & (self.edges <= 1)).all() or min(self.beam, self.size) < 1 or not self.scale > 0:
            got = (self.scale, self.beam, self.size)
            raise ModelError("learned_edges.edges are no chances, or scale, beam or size is not positive", got=got)


def best_paths(ids: np.ndarray, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(n, m) → each id of a row once with its highest score, best first, ties by id; −1 and 0 fill the row."""
    order = np.lexsort((-scores, ids), axis=1)
    ids, scores = np.take_along_axis(ids, order, axis=1), np.take_along_axis(scores, order, axis=1)
    again = np.zeros(ids.shape, dtype=bool)
    again[:, 1:] = ids[:, 1:] == ids[:, :-1]
    gone = again | (ids < 0)
    ids, scores = np.where(gone, -1, ids), np.where(gone, 0, scores)
    order = np.lexsort((ids, -scores, ids < 0), axis=1)
    return np.take_along_axis(ids, order, axis=1), np.take_along_axis(scores, order, axis=1)


@final
@component("mix.v1")
@dataclass(frozen=True)
class Mix(Fusion):
    """weight · σ(scorers) + (1 − weight) · σ(candidate); the logits of several scorers are added up with weights.

    With `by_row` each of the two is divided by the largest of its row, as the published code of Astec does.
    """

    scorer_weights: list[float]  # one for each scorer
    weight: float  # of the scorers against the candidates, 0…1
    by_row: bool

    def __call__(self, candidate: np.ndarray | None, logits: Sequence[np.ndarray]) -> np.ndarray:
        assert candidate is not None  # `check` has seen to it
        there = ~np.isneginf(candidate)
        added = sum(weight * np.where(there, own, 0) for weight, own in zip(self.scorer_weights, logits, strict=True))
        scored, similar = (np.where(there, sigmoid(np.asarray(part)), 0) for part in (added, candidate))
        if self.by_row:
            scored, similar = _by_largest(scored), _by_largest(similar)
        return self.weight * scored + (1 - self.weight) * similar

    def check(self, n_scorers: int, every_label: bool) -> None:
        if every_label or n_scorers != len(self.scorer_weights) or not 0 <= self.weight <= 1:
            got = (len(self.scorer_weights), n_scorers, self.weight)
            raise ModelError("mix.v1 has no candidates, other scorers, or a weight that is none", got=got)


def log_odds(chance: np.ndarray) -> np.ndarray:
    """log p / (1 − p): σ of it is the chance again; ±∞ at 1 and 0."""
    with np.errstate(divide="ignore"):
        return np.log(chance) - np.log1p(-chance)


def _by_largest(scores: np.ndarray) -> np.ndarray:
    largest = scores.max(axis=1, keepdims=True, initial=0)
    return scores / np.where(largest > 0, largest, 1)


def _dim(dims: Mapping[str, int], vector: str, name: str) -> int:
    if vector not in dims:
        raise ModelError(f"{name} reads a vector that no encoder makes", got=vector, allowed=", ".join(dims))
    return dims[vector]
