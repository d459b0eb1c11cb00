"""Candidate stages that give labels a similarity or path probability, and the fusion that mixes it with a logit.

Knows nothing about how centroids, clusters or edges were learnt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, final

import numpy as np

from xclearn.config import Count, Rate, Share
from xclearn.errors import ModelError
from xclearn.inference import arrays
from xclearn.inference.arrays import Array
from xclearn.inference.components import Candidates, Fusion, component
from xclearn.inference.declared import Scope, Tensor, Vector, ids
from xclearn.inference.forms import Core, NoNativeForm, exact_rows, native_form_of


@final
@component("centroid_search.v1")
@dataclass(frozen=True)
class CentroidSearch(Candidates):
    """The labels whose centroids are nearest to the vector; their logit is the cosine with the nearest centroid.

    A label may have several centroids, or none, in which case it is never found.
    """

    on_device, own_logits = True, True
    vector: Annotated[str, Vector()]  # the encoder whose vector is compared
    centres: Annotated[np.ndarray, Tensor("centres dim", ("float32",))]  # of length one
    labels: Annotated[np.ndarray, ids("centres", below="labels")]  # label of each centroid, ascending
    size: Count  # labels found

    @property
    def width(self) -> int:  # type: ignore[override]
        return len(self.labels)

    @cached_property
    def _with_centres(self) -> tuple[Array, Array]:
        """The labels that have centroids, and the index of each centroid's label (M,) among them."""
        xp = arrays.module(self.labels)
        labels, numbers = xp.unique(self.labels, return_inverse=True)
        return xp.asarray(labels, dtype=xp.int64), numbers

    def find(self, vectors: Mapping[str, Array]) -> tuple[Array, Array]:
        cosines = arrays.unit(vectors[self.vector]) @ self.centres.T  # (n, M)
        labels, numbers = self._with_centres
        nearest = arrays.largest_of_groups(cosines, numbers, len(labels))  # (n, labels with centres)
        places, best = arrays.top(nearest, min(self.size, len(labels)))
        return labels[places], best

    def fits(self, _: Scope, /) -> None:
        if (self.labels[1:] < self.labels[:-1]).any():
            raise ModelError("centroid_search.v1: labels must ascend")


@native_form_of(CentroidSearch)
def _(stage: CentroidSearch, core: Core) -> None:
    rows = exact_rows(stage.centres, np.zeros(len(stage.labels), np.float32))
    core.native.set_centres(core.place_of(stage.vector), rows, stage.labels, stage.size, 1)


@final
@component("learned_edges.v1")
@dataclass(frozen=True)
class LearnedEdges(Candidates):
    """The labels on the best paths: the cluster's probability min(1, scale · softmax) times the edge's.

    A label takes its best path. The candidate logit is the log-odds of the path's probability.
    """

    on_device, own_logits = True, True
    vector: Annotated[str, Vector()]  # the encoder whose vector the clusters read
    weight: Annotated[np.ndarray, Tensor("clusters dim", ("float32",))]
    bias: Annotated[np.ndarray, Tensor("clusters", ("float32",))]
    scale: Rate  # softmax scale before clamping at 1
    beam: Count  # clusters kept
    labels: Annotated[np.ndarray, ids("clusters slots", below="labels", least=-1)]  # label of each edge; −1: none
    edges: Annotated[np.ndarray, Tensor("clusters slots", ("float32",), least=0, most=1)]  # probabilities
    size: Count  # labels kept

    @property
    def width(self) -> int:  # type: ignore[override]
        return 12 * self.beam * self.labels.shape[1]  # paths and labels, their sorted copies, and the sort orders

    @property
    def beam_width(self) -> int:
        return self.beam

    def with_beam(self, beam: int) -> LearnedEdges:
        return replace(self, beam=beam)

    def find(self, vectors: Mapping[str, Array]) -> tuple[Array, Array]:
        xp = arrays.module(self.edges)
        logits = vectors[self.vector] @ self.weight.T + self.bias  # (n, C)
        clusters, best = arrays.top(logits, min(self.beam, len(self.bias)))  # (n, beam)
        total = xp.exp(logits - best[:, :1]).sum(axis=1, keepdims=True)
        chance = (self.scale * xp.exp(best - best[:, :1]) / total).clip(max=1)
        paths = (chance[:, :, None] * self.edges[clusters]).reshape(len(logits), -1)  # (n, beam · E)
        labels = xp.asarray(self.labels[clusters].reshape(len(logits), -1), dtype=xp.int64)
        ids, paths = best_paths(labels, paths)
        return ids[:, : self.size], log_odds(paths[:, : self.size])


@native_form_of(LearnedEdges)
def _(stage: LearnedEdges, core: Core) -> None:
    rows = exact_rows(stage.weight, stage.bias)
    place = core.place_of(stage.vector)
    core.native.set_edges(place, rows, stage.scale, stage.beam, stage.labels, stage.edges, stage.size)


def best_paths(ids: Array, scores: Array) -> tuple[Array, Array]:
    """(n, m) → each distinct id of a row with its highest score, best first, ties by id; padded with −1 and 0."""
    xp = arrays.module(ids)
    order = arrays.lexsort((-scores, ids))
    ids = arrays.take_along(ids, order)
    scores = arrays.take_along(scores, order)
    gone = ids < 0
    gone[:, 1:] |= ids[:, 1:] == ids[:, :-1]
    ids, scores = xp.where(gone, -1, ids), xp.where(gone, 0, scores)
    order = arrays.lexsort((ids, -scores, ids < 0))
    return arrays.take_along(ids, order), arrays.take_along(scores, order)


@final
@component("mix.v1")
@dataclass(frozen=True)
class Mix(Fusion):
    """weight · σ(scorers) + (1 − weight) · σ(candidate), where the logits of scorers are summed with weights.

    With `by_row`, each of the two terms is divided by its row's maximum, as in Astec's published code.
    """

    on_device = True
    scorer_weights: list[float]  # one for each scorer
    weight: Share  # weight of the scorers against the candidates
    by_row: bool

    def __call__(self, candidate: Array | None, logits: Sequence[Array]) -> Array:
        assert candidate is not None  # ensured by `check`
        xp, there = arrays.module(candidate), candidate != -np.inf
        added = sum(weight * xp.where(there, own, 0) for weight, own in zip(self.scorer_weights, logits, strict=True))
        scored, similar = (xp.where(there, arrays.sigmoid(part), 0) for part in (added, candidate))
        if self.by_row:
            scored, similar = _by_largest(scored), _by_largest(similar)
        return self.weight * scored + (1 - self.weight) * similar

    def fits(self, scope: Scope, /) -> None:
        if not scope.sizes["searched"] or scope.sizes["scorers"] != len(self.scorer_weights):
            got = (len(self.scorer_weights), scope.sizes["scorers"])
            raise ModelError("mix.v1 has no candidates or the wrong number of scorers", got=got)


@native_form_of(Mix)
def _(fusion: Mix, core: Core) -> None:
    if not core.servable.candidates.own_logits:
        raise NoNativeForm
    core.native.set_mix(fusion.scorer_weights, fusion.weight, fusion.by_row)


@final
@component("two_level_mix.v1")
@dataclass(frozen=True)
class TwoLevelMix(Fusion):
    """β · σ(re-ranker) + (1 − β) · (α · σ(classifier) + (1 − α) · σ(candidate)): every score a chance of its own.

    The mix of Astec's paper, α being `weight` and β `reranker_weight`. (It prints ỹ twice in the outer mix; the inner
    score ŷ is meant.)
    """

    on_device = True
    weight: Share  # of the classifier beside the candidates
    reranker_weight: Share  # of the re-ranker beside both

    def __call__(self, candidate: Array | None, logits: Sequence[Array]) -> Array:
        assert candidate is not None  # `check` has seen to it
        xp, there = arrays.module(candidate), candidate != -np.inf
        similar, first, again = (xp.where(there, arrays.sigmoid(part), 0) for part in (candidate, *logits))
        return self.reranker_weight * again + (1 - self.reranker_weight) * (
            self.weight * first + (1 - self.weight) * similar
        )

    def fits(self, scope: Scope, /) -> None:
        if not scope.sizes["searched"] or scope.sizes["scorers"] != 2:
            raise ModelError("two_level_mix.v1 has no candidates, or not two scorers", got=scope.sizes["scorers"])


def log_odds(chance: Array) -> Array:
    """log p / (1 − p), the inverse of σ; ±∞ at 1 and 0."""
    xp = arrays.module(chance)
    with np.errstate(divide="ignore"):
        return xp.log(chance) - xp.log1p(-chance)


def _by_largest(scores: Array) -> Array:
    if not scores.shape[1]:
        return scores
    xp = arrays.module(scores)
    largest = xp.amax(scores, axis=1, keepdims=True)
    return scores / xp.where(largest > 0, largest, 1)
