"""The one thing every algorithm ends as: a vectoriser, named encoders, one candidate stage, scorers, one fusion, steps.

The servable predicts label ids from documents. It knows neither the algorithm that made it, nor label names, nor files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import final

import numpy as np
import scipy.sparse as sp

from xclearn.data.dataset import NO_PAIRS, Documents
from xclearn.data.topk import TopK
from xclearn.errors import ConfigError, ModelError
from xclearn.inference import arrays
from xclearn.inference.arrays import Array
from xclearn.inference.components import AllLabels, Candidates, Encoder, Fusion, Scorer, Step, component
from xclearn.inference.declared import Encoded, Part, Scope, check, check_types
from xclearn.text import Vectoriser, same_vectoriser

_SCORES_AT_ONCE = 1 << 24  # scores held in memory at a time: 64 MB
_MEMBER_DEPTH = 100  # labels each ensemble member is asked for


@final
@component("servable.v1")
@dataclass(frozen=True)
class Servable(Part):
    """Documents in, the k best label ids and their scores out."""

    vectoriser: Vectoriser
    encoders: Mapping[str, Encoder]
    candidates: Candidates
    scorers: Sequence[Scorer]
    fusion: Fusion
    steps: Sequence[Step] = field(default_factory=list)  # after fusion, one after the other

    @property
    def n_labels(self) -> int:
        return self.scorers[0].n_labels

    def check(self, *, values: bool = True) -> None:
        """Refuse parts that are not as declared or do not fit each other: a model folder is untrusted input.

        `values` also reads every float; without, indices, offsets, shapes and settings are checked, so that nothing
        can be read from outside the tensors.
        """
        check_types(self)
        vectors = {name: self._encoded(encoder, values) for name, encoder in self.encoders.items()}
        scope = Scope({}, vectors, values)
        scope.sizes.update(scorers=len(self.scorers), searched=not isinstance(self.candidates, AllLabels))
        if not self.scorers:
            raise ModelError("the model has no scorer")
        for part in (*self.scorers, self.candidates, self.fusion, *self.steps):
            sizes = scope.inner({name: name for name in ("labels", "scorers", "searched")})
            check(part, sizes)
            scope.sizes["labels"] = sizes.sizes["labels"]

    def _encoded(self, encoder: Encoder, values: bool) -> Encoded:
        """The vector that an encoder makes, if it fits."""
        check(encoder, Scope({"features": self.vectoriser.n_features}, {}, values))
        self.require_readable(encoder)
        return Encoded(encoder.dim, encoder.gives)

    def require_readable(self, encoder: Encoder) -> None:
        """Refuse an encoder of other features than the vectoriser makes."""
        gives = self.vectoriser.gives
        if gives not in encoder.reads:
            raise ModelError("an encoder reads other features", got=gives, allowed=" or ".join(encoder.reads))

    def predict(self, documents: Documents, k: int, exclude: np.ndarray = NO_PAIRS) -> TopK:
        """The `k` best labels of each document (fewer when there are fewer labels), best first.

        `exclude` (m, 2) holds (document row, label) pairs that are not to be predicted.
        """
        check_k(k)
        return self.rank(self.vectoriser.transform(documents), k, exclude)

    def rank(self, features: sp.csr_matrix | np.ndarray, k: int, exclude: np.ndarray = NO_PAIRS) -> TopK:
        """`predict` for documents that are features already."""
        at_once = max(1, _SCORES_AT_ONCE // self.n_labels)
        return in_blocks(self.best, features, min(k, self.n_labels), exclude, at_once)

    def best(
        self, features: sp.csr_matrix | np.ndarray, k: int, exclude: np.ndarray, labels_at_once: int | None = None
    ) -> TopK:
        """As `rank`, of documents that fit into memory together; the arrays are where those of the parts are.

        Where every label is scored, `labels_at_once` are at a time; by default all.
        """
        vectors = {name: encoder.encode(features) for name, encoder in self.encoders.items()}
        if not self.steps:
            return self._fused(vectors, k, exclude, labels_at_once)
        ids, scores = self._fused(vectors, self.fused_depth, NO_PAIRS, labels_at_once)
        fused = TopK(arrays.to_numpy(ids), arrays.to_numpy(scores))
        here = {name: arrays.to_numpy(vector) for name, vector in vectors.items()}
        return TopK(*(arrays.like(ids, part) for part in self.after_steps(here, fused, k, exclude)))

    @property
    def step_encoders(self) -> dict[str, Encoder]:
        """Those whose vectors the steps read."""
        read = {name for step in self.steps for name in step.reads}
        return {name: encoder for name, encoder in self.encoders.items() if name in read}

    @property
    def fused_depth(self) -> int:
        """How many labels the first step reads; independent of k, so that k does not change the answer."""
        return min(self.steps[0].depth, self.n_labels)

    def after_steps(self, vectors: Mapping[str, np.ndarray], fused: TopK, k: int, exclude: np.ndarray) -> TopK:
        """What the steps make of the best labels by fusion."""
        ids, scores = fused
        for step in self.steps:
            ids, scores = step(vectors, *best_of_candidates(ids, scores, min(step.depth, self.n_labels)))
        return best_of_candidates(ids, self._without(exclude, ids, scores), k)

    def _fused(self, vectors: Mapping[str, Array], k: int, exclude: np.ndarray, labels_at_once: int | None) -> TopK:
        found = self.candidates.find(vectors)
        if found is None:
            return self._best_of_all(vectors, k, exclude, labels_at_once or self.n_labels)
        ids, candidate = found  # (n, m)
        logits = [scorer.score(vectors[scorer.vector], ids) for scorer in self.scorers]
        xp, missing = arrays.module(ids), ids < 0
        candidate, *logits = (xp.where(missing, -np.inf, part) for part in (candidate, *logits))
        scores = xp.where(missing, -np.inf, self.fusion(candidate, logits))
        return best_of_candidates(ids, self._without(exclude, ids, scores), k)

    def _without(self, exclude: np.ndarray, ids: Array, scores: Array) -> Array:
        """The scores (n, m), −∞ where the pair is excluded."""
        return arrays.module(ids).where(_among(ids, exclude, self.n_labels), -np.inf, scores)

    def _best_of_all(self, vectors: Mapping[str, Array], k: int, exclude: np.ndarray, at_once: int) -> TopK:
        """With one scorer rank by its logit, as every fusion is monotone in it, and fuse k values instead of L."""
        found = [self._best_of_block(vectors, k, exclude, own) for own in blocks(self.n_labels, at_once)]
        xp = arrays.module(found[0][0])
        ids, best = (xp.concatenate(parts, axis=1) for parts in zip(*found, strict=True)) if found[1:] else found[0]
        ids, best = best_of_candidates(ids, best, k) if found[1:] else (ids, best)
        scores = self.fusion(None, [best]) if len(self.scorers) == 1 else best
        missing = best == -np.inf
        scores = xp.asarray(xp.where(missing, -np.inf, scores), dtype=xp.float32)
        return TopK(xp.where(missing, -1, ids), scores)

    def _best_of_block(
        self, vectors: Mapping[str, Array], k: int, exclude: np.ndarray, own: slice
    ) -> tuple[Array, Array]:
        """The best labels of a block of them, and what each is ranked by."""
        scorers = self.scorers if own.stop - own.start == self.n_labels else [each.block(own) for each in self.scorers]
        logits = [scorer.score_all(vectors[scorer.vector]) for scorer in scorers]  # each (n, own)
        ranked = logits[0] if len(logits) == 1 else self.fusion(None, logits)
        here = exclude[(exclude[:, 1] >= own.start) & (exclude[:, 1] < own.stop)] - [0, own.start]
        ranked[arrays.like(ranked, here[:, 0]), arrays.like(ranked, here[:, 1])] = -np.inf
        ids, best = arrays.top(ranked, min(k, own.stop - own.start))
        return ids + own.start, best


@final
@component("ensemble.v1")
@dataclass(frozen=True)
class Ensemble(Part):
    """Several servables over the same labels and vectoriser; a label's score is the mean of theirs, 0 where missing."""

    members: Sequence[Servable]

    @property
    def n_labels(self) -> int:
        return self.members[0].n_labels

    @property
    def vectoriser(self) -> Vectoriser:
        return self.members[0].vectoriser

    def check(self, *, values: bool = True) -> None:
        """Refuse members that do not fit each other."""
        check_types(self)
        if not self.members:
            raise ModelError("the ensemble has no member")
        for member in self.members:
            member.check(values=values)
            if member.n_labels != self.n_labels:
                raise ModelError("ensemble members differ in labels", got=(self.n_labels, member.n_labels))
            if not same_vectoriser(member.vectoriser, self.vectoriser):
                raise ModelError("ensemble members differ in their vocabulary or features")

    def predict(self, documents: Documents, k: int, exclude: np.ndarray = NO_PAIRS) -> TopK:
        """As `Servable.predict`; each member is asked for more than k, as they need not agree."""
        check_k(k)
        return self.rank(self.vectoriser.transform(documents), k, exclude)

    def rank(self, features: sp.csr_matrix | np.ndarray, k: int, exclude: np.ndarray = NO_PAIRS) -> TopK:
        """`predict` for documents that are features already."""
        depth = member_depth(k, self.n_labels)
        found = [member.rank(features, depth, exclude) for member in self.members]
        return mean_of(found, min(k, self.n_labels))


def in_blocks(
    best: Callable[[sp.csr_matrix | np.ndarray, int, np.ndarray], TopK],
    features: sp.csr_matrix | np.ndarray,
    k: int,
    exclude: np.ndarray,
    at_once: int,
) -> TopK:
    """What `best` finds in the features (n, V), `at_once` documents at a time."""
    total = features.shape[0]
    found = TopK(np.empty((total, k), np.int64), np.empty((total, k), np.float32))
    for rows in blocks(total, at_once):
        here = exclude[(exclude[:, 0] >= rows.start) & (exclude[:, 0] < rows.stop)] - [rows.start, 0]
        block = best(features[rows], k, here)
        found.ids[rows], found.scores[rows] = block.ids, block.scores
    return found


def check_k(k: object) -> None:
    """Reject a k that is not a positive integer."""
    if not isinstance(k, int | np.integer) or k < 1:
        raise ConfigError("k must be at least 1", where="k", got=k)


def member_depth(k: int, n_labels: int) -> int:
    """How many labels each member of an ensemble is asked for."""
    return min(n_labels, max(_MEMBER_DEPTH, 2 * k))


def mean_of(found: Sequence[TopK], k: int) -> TopK:
    """The k best labels by the mean of what the members of an ensemble found; 0 where a member does not name one."""
    xp = arrays.module(found[0].ids)
    ids = xp.concatenate([part.ids for part in found], axis=1)  # (n, members · depth)
    scores = xp.concatenate([xp.where(part.ids < 0, 0, part.scores) for part in found], axis=1) / len(found)
    return best_of_candidates(*_merged(ids, scores), k)


def _merged(ids: Array, scores: Array) -> tuple[Array, Array]:
    """Equal ids of a row become one, with their scores summed; the others of them become −1 with score −inf."""
    xp = arrays.module(ids)
    order = xp.argsort(ids, axis=1, stable=True)
    ids = arrays.take_along(ids, order)
    scores = arrays.take_along(scores, order)
    first = xp.ones_like(ids, dtype=xp.bool)
    first[:, 1:] = ids[:, 1:] != ids[:, :-1]
    group = first.ravel().cumsum(0) - 1
    summed = xp.bincount(group, weights=xp.asarray(scores.ravel(), dtype=xp.float64))[group].reshape(ids.shape)
    kept = first & (ids >= 0)
    return xp.where(kept, ids, -1), xp.where(kept, summed, -np.inf)


def _among(ids: Array, pairs: np.ndarray, n_labels: int) -> Array:
    """Which entries (n, m) stand in `pairs` of (row, label)."""
    keys = arrays.numbers(len(ids), ids)[:, None] * n_labels + ids
    return arrays.module(ids).isin(keys, arrays.like(ids, pairs[:, 0] * n_labels + pairs[:, 1])) & (ids >= 0)


def best_of_candidates(ids: Array, scores: Array, k: int) -> TopK:
    """The k best of (n, m) candidates, score descending, then id ascending; −1 where there are fewer."""
    xp = arrays.module(ids)
    scores = xp.where(xp.isnan(scores), -np.inf, scores)  # of weights that overflow, or that nobody verified
    order = arrays.lexsort((ids, -scores))[:, :k]
    best = arrays.take_along(scores, order)
    chosen = arrays.take_along(ids, order)
    chosen = xp.where(best == -np.inf, -1, chosen)
    short = (len(ids), k - order.shape[1])
    chosen = xp.concatenate([chosen, arrays.filled(short, -1, chosen)], axis=1)
    best = xp.concatenate([best, arrays.filled(short, -np.inf, best)], axis=1)
    return TopK(chosen, xp.asarray(best, dtype=xp.float32))


def blocks(total: int, size: int) -> Iterator[slice]:
    return (slice(start, min(start + size, total)) for start in range(0, total, size))
