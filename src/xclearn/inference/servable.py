"""The one thing every algorithm ends as: a vectoriser, named encoders, one candidate stage, scorers, one fusion.

The servable predicts label ids from documents. It knows neither the algorithm that made it, nor label names, nor files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from xclearn.data.dataset import NO_PAIRS, Documents, n_documents
from xclearn.data.topk import TopK
from xclearn.errors import ConfigError, ModelError
from xclearn.inference.components import AllLabels, Encoder, Fusion, Scorer
from xclearn.kernels.dense import topk_dense
from xclearn.text import Vectoriser

_SCORES_AT_ONCE = 1 << 24  # scores held in memory at a time: 64 MB


@final
@dataclass(frozen=True)
class Servable:
    """Documents in, the k best label ids and their scores out."""

    vectoriser: Vectoriser
    encoders: Mapping[str, Encoder]
    candidates: AllLabels
    scorers: Sequence[Scorer]
    fusion: Fusion

    @property
    def n_labels(self) -> int:
        return self.scorers[0].n_labels

    def check(self) -> None:
        """Refuse parts that do not fit each other; a model file is untrusted input."""
        for name, encoder in self.encoders.items():
            encoder.check()
            if encoder.n_features != self.vectoriser.n_features:
                found = (encoder.n_features, self.vectoriser.n_features)
                raise ModelError("encoder and vectoriser differ in features", where=name, got=found)
        if not self.scorers:
            raise ModelError("the model has no scorer")
        for scorer in self.scorers:
            if scorer.vector not in self.encoders:
                raise ModelError("a scorer reads a vector that no encoder makes", got=scorer.vector)
            scorer.check(self.encoders[scorer.vector].dim)
            if scorer.n_labels != self.n_labels:
                raise ModelError("scorers differ in labels", got=(scorer.n_labels, self.n_labels))

    def predict(self, documents: Documents, k: int, exclude: np.ndarray = NO_PAIRS) -> TopK:
        """The `k` best labels of each document (fewer when there are fewer labels), best first.

        `exclude` (m, 2) holds (document row, label) pairs that are not to be predicted.
        """
        if k < 1:
            raise ConfigError("k must be at least 1", where="k", got=k)
        width, total = min(k, self.n_labels), n_documents(documents)
        found = TopK(np.empty((total, width), np.int64), np.empty((total, width), np.float32))
        features = self.vectoriser.transform(documents)
        for rows in _blocks(total, max(1, _SCORES_AT_ONCE // self.n_labels)):
            here = exclude[(exclude[:, 0] >= rows.start) & (exclude[:, 0] < rows.stop)] - [rows.start, 0]
            block = self._predict_block(features[rows], width, here)
            found.ids[rows], found.scores[rows] = block.ids, block.scores
        return found

    def _predict_block(self, features: np.ndarray, k: int, exclude: np.ndarray) -> TopK:
        vectors = {name: encoder.encode(features) for name, encoder in self.encoders.items()}
        logits = [scorer.score_all(vectors[scorer.vector]) for scorer in self.scorers]  # each (n, L)
        if len(logits) == 1:  # every fusion is monotone in a single logit: rank first, fuse k values instead of L
            best = _best(logits[0], k, exclude)
            return TopK(best.ids, np.where(best.ids < 0, -np.inf, self.fusion([best.scores])).astype(np.float32))
        return _best(self.fusion(logits), k, exclude)


def _best(scores: np.ndarray, k: int, exclude: np.ndarray) -> TopK:
    scores[exclude[:, 0], exclude[:, 1]] = -np.inf
    ids, best = topk_dense(scores, k)
    return TopK(np.where(np.isneginf(best), -1, ids), best)


def _blocks(total: int, size: int) -> Iterator[slice]:
    return (slice(start, min(start + size, total)) for start in range(0, total, size))
