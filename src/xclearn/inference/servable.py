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
from xclearn.inference.components import AllLabels, Candidates, Encoder, Fusion, Scorer, Step, component
from xclearn.inference.declared import Encoded, Part, Scope, check, check_types
from xclearn.kernels.dense import topk_dense
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
        gives = self.vectoriser.gives
        scope = Scope({"features": self.vectoriser.n_features}, {}, values)
        check(encoder, scope)
        if gives not in encoder.reads:
            raise ModelError("an encoder reads other features", got=gives, allowed=" or ".join(encoder.reads))
        return Encoded(encoder.dim, encoder.gives)

    def predict(self, documents: Documents, k: int, exclude: np.ndarray = NO_PAIRS) -> TopK:
        """The `k` best labels of each document (fewer when there are fewer labels), best first.

        `exclude` (m, 2) holds (document row, label) pairs that are not to be predicted.
        """
        check_k(k)
        return self.rank(self.vectoriser.transform(documents), k, exclude)

    def rank(self, features: sp.csr_matrix | np.ndarray, k: int, exclude: np.ndarray = NO_PAIRS) -> TopK:
        """`predict` for documents that are features already."""
        at_once = max(1, _SCORES_AT_ONCE // self.n_labels)
        return in_blocks(self._predict_block, features, min(k, self.n_labels), exclude, at_once)

    def _predict_block(self, features: sp.csr_matrix | np.ndarray, k: int, exclude: np.ndarray) -> TopK:
        vectors = {name: encoder.encode(features) for name, encoder in self.encoders.items()}
        if not self.steps:
            return self._fused(vectors, k, exclude)
        return self.after_steps(vectors, self._fused(vectors, self.fused_depth, NO_PAIRS), k, exclude)

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

    def _fused(self, vectors: Mapping[str, np.ndarray], k: int, exclude: np.ndarray) -> TopK:
        found = self.candidates.find(vectors)
        if found is None:
            logits = [scorer.score_all(vectors[scorer.vector]) for scorer in self.scorers]  # each (n, L)
            return self._best_of_all(logits, k, exclude)
        ids, candidate = found  # (n, m)
        logits = [scorer.score(vectors[scorer.vector], ids) for scorer in self.scorers]
        missing = ids < 0
        candidate, *logits = (np.where(missing, -np.inf, part) for part in (candidate, *logits))
        scores = np.where(missing, -np.inf, self.fusion(candidate, logits))
        return best_of_candidates(ids, self._without(exclude, ids, scores), k)

    def _without(self, exclude: np.ndarray, ids: np.ndarray, scores: np.ndarray) -> np.ndarray:
        """The scores (n, m), −∞ where the pair is excluded."""
        return np.where(_among(ids, exclude, self.n_labels), -np.inf, scores)

    def _best_of_all(self, logits: list[np.ndarray], k: int, exclude: np.ndarray) -> TopK:
        """With one scorer rank by its logit, as every fusion is monotone in it, and fuse k values instead of L."""
        ranked = logits[0] if len(logits) == 1 else self.fusion(None, logits)
        ranked[exclude[:, 0], exclude[:, 1]] = -np.inf
        ids, best = topk_dense(ranked, k)
        scores = self.fusion(None, [best]) if len(logits) == 1 else best
        missing = np.isneginf(best)
        return TopK(np.where(missing, -1, ids), np.where(missing, -np.inf, scores).astype(np.float32))


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
        depth = min(self.n_labels, max(_MEMBER_DEPTH, 2 * k))
        found = [member.rank(features, depth, exclude) for member in self.members]
        ids = np.concatenate([part.ids for part in found], axis=1)  # (n, members · depth)
        scores = np.concatenate([np.where(part.ids < 0, 0, part.scores) for part in found], axis=1) / len(found)
        return best_of_candidates(*_merged(ids, scores), min(k, self.n_labels))


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
    for rows in _blocks(total, at_once):
        here = exclude[(exclude[:, 0] >= rows.start) & (exclude[:, 0] < rows.stop)] - [rows.start, 0]
        block = best(features[rows], k, here)
        found.ids[rows], found.scores[rows] = block.ids, block.scores
    return found


def check_k(k: object) -> None:
    """Reject a k that is not a positive integer."""
    if not isinstance(k, int | np.integer) or k < 1:
        raise ConfigError("k must be at least 1", where="k", got=k)


def _merged(ids: np.ndarray, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Equal ids of a row become one, with their scores summed; the others of them become −1 with score −inf."""
    order = np.argsort(ids, axis=1, kind="stable")
    ids, scores = np.take_along_axis(ids, order, axis=1), np.take_along_axis(scores, order, axis=1)
    first = np.ones(ids.shape, dtype=bool)
    first[:, 1:] = ids[:, 1:] != ids[:, :-1]
    group = np.cumsum(first.ravel()) - 1
    summed = np.bincount(group, weights=scores.ravel())[group].reshape(ids.shape)
    kept = first & (ids >= 0)
    return np.where(kept, ids, -1), np.where(kept, summed, -np.inf)


def _among(ids: np.ndarray, pairs: np.ndarray, n_labels: int) -> np.ndarray:
    """Which entries (n, m) stand in `pairs` of (row, label)."""
    keys = np.arange(len(ids))[:, None] * n_labels + ids
    return np.isin(keys, pairs[:, 0] * n_labels + pairs[:, 1]) & (ids >= 0)


def best_of_candidates(ids: np.ndarray, scores: np.ndarray, k: int) -> TopK:
    """The k best of (n, m) candidates, score descending, then id ascending; −1 where there are fewer."""
    scores = np.where(np.isnan(scores), -np.inf, scores)  # of weights that overflow, or that nobody verified
    order = np.lexsort((ids, -scores), axis=1)[:, :k]
    best, chosen = np.take_along_axis(scores, order, axis=1), np.take_along_axis(ids, order, axis=1)
    chosen = np.where(np.isneginf(best), -1, chosen)
    short = ((0, 0), (0, k - order.shape[1]))
    return TopK(
        np.pad(chosen, short, constant_values=-1), np.pad(best, short, constant_values=-np.inf).astype(np.float32)
    )


def _blocks(total: int, size: int) -> Iterator[slice]:
    return (slice(start, min(start + size, total)) for start in range(0, total, size))
