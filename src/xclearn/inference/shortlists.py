"""Candidate stages that give each label a similarity or a path's chance, and the fusion that counts it beside a logit.

In NumPy. Knows nothing about how centres, clusters or edges were learnt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, final

import numpy as np

from xclearn.config import Count, Rate, Share
from xclearn.errors import ModelError
from xclearn.inference.components import Candidates, Fusion, component, sigmoid, unit
from xclearn.inference.declared import Scope, Tensor, Vector, ids
from xclearn.kernels.dense import topk_dense


@final
@component("centroid_search.v1")
@dataclass(frozen=True)
class CentroidSearch(Candidates):
    """The labels whose centres are nearest to the vector. The cosine with a label's nearest centre stands as its logit.

    A label may have several centres, or none: then it is never found.
    """

    vector: Annotated[str, Vector()]  # the encoder whose vector is compared
    centres: Annotated[np.ndarray, Tensor("centres dim", ("float32",))]  # of length one
    labels: Annotated[np.ndarray, ids("centres", below="labels")]  # of each centre, ascending
    size: Count  # labels found

    @cached_property
    def _starts(self) -> np.ndarray:
        """Where the centres of each label that has one start."""
        return np.flatnonzero(np.diff(self.labels, prepend=-1))

    def find(self, vectors: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        cosines = unit(vectors[self.vector]) @ self.centres.T  # (n, M)
        nearest = np.maximum.reduceat(cosines, self._starts, axis=1)  # (n, labels with centres)
        places, best = topk_dense(nearest, min(self.size, nearest.shape[1]))
        return self.labels[self._starts][places].astype(np.int64), best

    def fits(self, _: Scope, /) -> None:
        if (self.labels[1:] < self.labels[:-1]).any():
            raise ModelError("centroid_search.v1 has labels that do not ascend")


@final
@component("learned_edges.v1")
@dataclass(frozen=True)
class LearnedEdges(Candidates):
    """The labels at the end of the best paths: a cluster's chance min(1, scale · softmax) times an edge's to the label.

    A label that several paths lead to has the best one. The candidate logit is the log-odds of the path's chance.
    """

    vector: Annotated[str, Vector()]  # the encoder whose vector the clusters read
    weight: Annotated[np.ndarray, Tensor("clusters dim", ("float32",))]
    bias: Annotated[np.ndarray, Tensor("clusters", ("float32",))]
    scale: Rate  # how many clusters may be certain at once
    beam: Count  # clusters kept
    labels: Annotated[np.ndarray, ids("clusters slots", below="labels", least=-1)]  # where edges lead; −1: nowhere
    edges: Annotated[np.ndarray, Tensor("clusters slots", ("float32",), least=0, most=1)]  # probabilities
    size: Count  # labels kept

    def find(self, vectors: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        logits = vectors[self.vector] @ self.weight.T + self.bias  # (n, C)
        clusters, best = topk_dense(logits, min(self.beam, len(self.bias)))  # (n, beam)
        shifted = logits - best[:, :1]
        total = np.exp(shifted).sum(axis=1, keepdims=True)
        chance = np.minimum(1, self.scale * np.exp(best - best[:, :1]) / total)
        paths = (chance[:, :, None] * self.edges[clusters]).reshape(len(logits), -1)  # (n, beam · E)
        ids, paths = best_paths(self.labels[clusters].reshape(len(logits), -1).astype(np.int64), paths)
        return ids[:, : self.size], log_odds(paths[:, : self.size])


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
    weight: Share  # of the scorers against the candidates
    by_row: bool

    def __call__(self, candidate: np.ndarray | None, logits: Sequence[np.ndarray]) -> np.ndarray:
        assert candidate is not None  # `check` has seen to it
        there = ~np.isneginf(candidate)
        added = sum(weight * np.where(there, own, 0) for weight, own in zip(self.scorer_weights, logits, strict=True))
        scored, similar = (np.where(there, sigmoid(np.asarray(part)), 0) for part in (added, candidate))
        if self.by_row:
            scored, similar = _by_largest(scored), _by_largest(similar)
        return self.weight * scored + (1 - self.weight) * similar

    def fits(self, scope: Scope, /) -> None:
        if not scope.sizes["searched"] or scope.sizes["scorers"] != len(self.scorer_weights):
            got = (len(self.scorer_weights), scope.sizes["scorers"])
            raise ModelError("mix.v1 has no candidates, or other scorers", got=got)


def log_odds(chance: np.ndarray) -> np.ndarray:
    """log p / (1 − p): σ of it is the chance again; ±∞ at 1 and 0."""
    with np.errstate(divide="ignore"):
        return np.log(chance) - np.log1p(-chance)


def _by_largest(scores: np.ndarray) -> np.ndarray:
    largest = scores.max(axis=1, keepdims=True, initial=0)
    return scores / np.where(largest > 0, largest, 1)
