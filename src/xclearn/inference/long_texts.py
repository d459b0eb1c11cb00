"""Predicts long texts in chunks and combines the scores of the chunks.

For models trained on short texts, or that read only the first tokens of a text. Combined scores are not calibrated.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, Protocol, final

import numpy as np
import scipy.sparse as sp

from xclearn.data.dataset import NO_PAIRS, LabelSet
from xclearn.data.topk import TopK
from xclearn.errors import ConfigError
from xclearn.inference.predictor import Suggestion, suggestions
from xclearn.kernels import topk_csr
from xclearn.text.documents import TEXTS, require
from xclearn.text.preparation import SPACELESS

_DEPTH = 100  # labels predicted for each chunk, at least; others count as zero
_AT_ONCE = 4096  # chunks
_WORDS = re.compile(rf"[{SPACELESS}]|[^\s{SPACELESS}]+")  # in scripts without spaces, each character counts as a word


class Answering(Protocol):
    """A predictor or a fitted algorithm."""

    @property
    def labels(self) -> LabelSet: ...
    def predict(self, documents: Any, k: int = 5) -> TopK: ...


@final
@dataclass(frozen=True)
class Chunks:
    """How long texts are split, and how the scores of their chunks are combined."""

    words: int = 32  # maximum words per chunk; the chunks of a text are of nearly the same length
    pool: str = "mean"  # or max

    def check(self) -> None:
        """Raise if a value is out of range; the names are those of the command line."""
        if self.words < 1:
            raise ConfigError(
                "the number of words is too small", where="--chunk-words", got=self.words, allowed="at least 1"
            )
        if self.pool not in ("mean", "max"):
            raise ConfigError("unknown way to combine scores", where="--pool", got=self.pool, allowed="mean, max")

    def of(self, text: str) -> list[str]:
        """The chunks of a text, at least one; together they are the text."""
        starts = [word.start() for word in _WORDS.finditer(text)]
        n = -(-len(starts) // self.words)
        if n < 2:
            return [text]
        cuts = [0, *(starts[len(starts) * i // n] for i in range(1, n)), len(text)]
        return [text[begin:end] for begin, end in pairwise(cuts)]

    def predict(self, model: Answering, texts: Sequence[str], k: int = 5, **options: Any) -> TopK:
        """The k best labels of each text: ids, scores (n, k); `options` are passed to the model's `predict`."""
        return self.ask(partial(model.predict, **options), len(model.labels), texts, k)

    def suggest(
        self, model: Answering, texts: Sequence[str], k: int = 5, min_score: float = 0.0
    ) -> list[list[Suggestion]]:
        """The same with label names: one list a text, best first."""
        return suggestions(model.labels, self.predict(model, texts, k), min_score)

    def ask(
        self,
        predict: Callable[..., TopK],  # of documents, k, exclude
        n_labels: int,
        texts: Sequence[str],
        k: int,
        exclude: np.ndarray = NO_PAIRS,
    ) -> TopK:
        """Like `predict`, for a function; without the (text, label) pairs in `exclude`."""
        self.check()
        k = min(k, n_labels)
        ids = np.full((len(texts), k), -1, dtype=np.int64)
        scores = np.full((len(texts), k), -np.inf, dtype=np.float32)
        for begin, chunks in self._blocks(require(texts, TEXTS)):
            rows = np.repeat(np.arange(len(chunks)), [len(of_text) for of_text in chunks])  # text of each chunk
            void = [_of_chunks(exclude, begin, rows)] if len(exclude) else []  # a fitted algorithm takes none
            found = predict([chunk for of_text in chunks for chunk in of_text], min(max(k, _DEPTH), n_labels), *void)
            pooled = self._pooled(found, rows, (len(chunks), n_labels))
            part = slice(begin, begin + len(chunks))
            ids[part], scores[part] = topk_csr(pooled.indptr, pooled.indices, pooled.data, k)
        return TopK(ids, scores)

    def _blocks(self, texts: Sequence[str]) -> Iterator[tuple[int, list[list[str]]]]:
        """Chunks of neighbouring texts, and the number of the first of these."""
        begin, block, size = 0, [], 0
        for row, text in enumerate(texts):
            block.append(self.of(text))
            size += len(block[-1])
            if size >= _AT_ONCE:
                yield begin, block
                begin, block, size = row + 1, [], 0
        if block:
            yield begin, block

    def _pooled(self, found: TopK, rows: np.ndarray, shape: tuple[int, int]) -> sp.csr_matrix:
        """The combined scores of the predicted labels, (texts, L)."""
        chunk, place = np.nonzero(found.ids >= 0)
        row, label, score = rows[chunk], found.ids[chunk, place], found.scores[chunk, place]
        order = np.lexsort((label, row))
        row, label, score = row[order], label[order], score[order]
        first = np.flatnonzero(np.r_[True, (np.diff(row) != 0) | (np.diff(label) != 0)]) if len(row) else row
        if self.pool == "max":
            values = np.maximum.reduceat(score, first) if len(first) else score
        else:
            sums = np.add.reduceat(score, first) if len(first) else score
            values = sums / np.bincount(rows, minlength=shape[0])[row[first]]
        starts = np.searchsorted(row[first], np.arange(shape[0] + 1))
        return sp.csr_matrix((values.astype(np.float32), label[first], starts), shape=shape)


def _of_chunks(exclude: np.ndarray, begin: int, rows: np.ndarray) -> np.ndarray:
    """(text, label) pairs as pairs of each chunk of the text."""
    here = exclude[(exclude[:, 0] >= begin) & (exclude[:, 0] <= begin + rows[-1])]
    first = np.searchsorted(rows, here[:, 0] - begin)
    n = np.searchsorted(rows, here[:, 0] - begin, side="right") - first  # (pairs,) chunks of each
    within = np.arange(n.sum()) - np.repeat(np.cumsum(n) - n, n)
    return np.stack([np.repeat(first, n) + within, np.repeat(here[:, 1], n)], axis=1)
