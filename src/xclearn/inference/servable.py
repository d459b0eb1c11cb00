"""The form in which every algorithm predicts: vectoriser, named encoders, candidate stage, scorers, fusion, steps.

A servable predicts label ids from documents. It knows nothing about algorithms, label names or files.
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
_MEMBER_DEPTH = 100  # labels requested from each ensemble member


@final
@component("servable.v1")
@dataclass(frozen=True)
class Servable(Part):
    """Predicts the k best label ids and their scores."""

    vectoriser: Vectoriser
    encoders: Mapping[str, Encoder]
    candidates: Candidates
    scorers: Sequence[Scorer]
    fusion: Fusion
    steps: Sequence[Step] = field(default_factory=list)  # applied in order after fusion

    @property
    def n_labels(self) -> int:
        return self.scorers[0].n_labels

    def check(self, *, values: bool = True) -> None:
        """Raise unless all parts are as declared and fit each other: a model folder is untrusted input.

        `values` also reads every float; otherwise only indices, offsets, shapes and settings are checked, which
        prevents reads outside the tensors.
        """
        check_types(self)
        vectors = {name: self._encoded(encoder, values) for name, encoder in self.encoders.items()}
        scope = Scope({}, vectors, values)
        scope.sizes.update(scorers=len(self.scorers), searched=not isinstance(self.candidates, AllLabels))
        if not self.scorers:
            raise ModelError("the model has no scorers")
        for part in (*self.scorers, self.candidates, self.fusion, *self.steps):
            sizes = scope.inner({name: name for name in ("labels", "scorers", "searched")})
            check(part, sizes)
            scope.sizes["labels"] = sizes.sizes["labels"]

    def _encoded(self, encoder: Encoder, values: bool) -> Encoded:
        """The output of an encoder, after checking it."""
        check(encoder, Scope({"features": self.vectoriser.n_features}, {}, values))
        self.require_readable(encoder)
        return Encoded(encoder.dim, encoder.gives)

    def require_readable(self, encoder: Encoder) -> None:
        """Raise unless the encoder can read the vectoriser's features."""
        gives = self.vectoriser.gives
        if gives not in encoder.reads:
            raise ModelError("an encoder cannot read the features", got=gives, allowed=" or ".join(encoder.reads))

    def predict(self, documents: Documents, k: int, exclude: np.ndarray = NO_PAIRS) -> TopK:
        """The `k` best labels of each document (fewer when there are fewer labels), best first.

        `exclude` (m, 2) holds (document row, label) pairs that must not be predicted.
        """
        check_k(k)
        return self.rank(self.vectoriser.transform(documents), k, exclude)

    def rank(self, features: sp.csr_matrix | np.ndarray, k: int, exclude: np.ndarray = NO_PAIRS) -> TopK:
        """`predict` for documents given as features."""
        at_once = max(1, _SCORES_AT_ONCE // self.n_labels)
        return in_blocks(self.best, features, min(k, self.n_labels), exclude, at_once)

    def best(
        self, features: sp.csr_matrix | np.ndarray, k: int, exclude: np.ndarray, labels_at_once: int | None = None
    ) -> TopK:
        """Like `rank`, for documents that fit into memory together; results are on the device of the parts.

        If every label is scored, labels are scored in blocks of `labels_at_once`; by default all at once.
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
        """The encoders whose vectors the steps read."""
        read = {name for step in self.steps for name in step.reads}
        return {name: encoder for name, encoder in self.encoders.items() if name in read}

    @property
    def fused_depth(self) -> int:
        """How many labels the first step reads; independent of k, so that k does not change the results."""
        return min(self.steps[0].depth, self.n_labels)

    def after_steps(self, vectors: Mapping[str, np.ndarray], fused: TopK, k: int, exclude: np.ndarray) -> TopK:
        """Apply the steps to the best labels by fusion."""
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
        """The scores (n, m), −∞ for excluded pairs."""
        return arrays.module(ids).where(_among(ids, exclude, self.n_labels), -np.inf, scores)

    def _best_of_all(self, vectors: Mapping[str, Array], k: int, exclude: np.ndarray, at_once: int) -> TopK:
        """Rank a single scorer by its logit, as every fusion is monotone in it, and fuse only k values instead of L."""
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
        """The best labels of a block, and their ranking keys."""
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
    """Several servables over the same labels and vectoriser; scores are averaged, with 0 for missing labels."""

    members: Sequence[Servable]

    @property
    def n_labels(self) -> int:
        return self.members[0].n_labels

    @property
    def vectoriser(self) -> Vectoriser:
        return self.members[0].vectoriser

    def check(self, *, values: bool = True) -> None:
        """Raise unless the members fit each other."""
        check_types(self)
        if not self.members:
            raise ModelError("the ensemble has no members")
        for member in self.members:
            member.check(values=values)
            if member.n_labels != self.n_labels:
                raise ModelError("ensemble members differ in labels", got=(self.n_labels, member.n_labels))
            if not same_vectoriser(member.vectoriser, self.vectoriser):
                raise ModelError("ensemble members differ in their vocabulary or features")

    def predict(self, documents: Documents, k: int, exclude: np.ndarray = NO_PAIRS) -> TopK:
        """Like `Servable.predict`; each member predicts more than k labels, as they may disagree."""
        check_k(k)
        return self.rank(self.vectoriser.transform(documents), k, exclude)

    def rank(self, features: sp.csr_matrix | np.ndarray, k: int, exclude: np.ndarray = NO_PAIRS) -> TopK:
        """`predict` for documents given as features."""
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
    """The results of `best` for features (n, V), in blocks of `at_once` documents."""
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
    """How many labels each ensemble member predicts."""
    return min(n_labels, max(_MEMBER_DEPTH, 2 * k))


def mean_of(found: Sequence[TopK], k: int) -> TopK:
    """The k best labels by the mean score of the ensemble members, with 0 for labels that a member did not find."""
    xp = arrays.module(found[0].ids)
    ids = xp.concatenate([part.ids for part in found], axis=1)  # (n, members · depth)
    scores = xp.concatenate([xp.where(part.ids < 0, 0, part.scores) for part in found], axis=1) / len(found)
    return best_of_candidates(*_merged(ids, scores), k)


def _merged(ids: Array, scores: Array) -> tuple[Array, Array]:
    """Merge equal ids of a row, summing their scores; duplicates become −1 with score −inf."""
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
    """Which entries (n, m) are in `pairs` of (row, label)."""
    keys = arrays.numbers(len(ids), ids)[:, None] * n_labels + ids
    return arrays.module(ids).isin(keys, arrays.like(ids, pairs[:, 0] * n_labels + pairs[:, 1])) & (ids >= 0)


def best_of_candidates(ids: Array, scores: Array, k: int) -> TopK:
    """The k best of (n, m) candidates by score descending, then id ascending; padded with −1."""
    xp = arrays.module(ids)
    scores = xp.where(xp.isnan(scores), -np.inf, scores)  # from overflow or unverified weights
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
