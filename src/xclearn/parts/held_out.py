"""Evidence about held-out documents and the correct labels: a stacker is trained and evaluated on it.

Knows nothing about how a stacker is learnt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import final

import numpy as np
import scipy.sparse as sp

from xclearn.data.dataset import Split
from xclearn.data.near_copies import resembling
from xclearn.inference.blend import COLUMNS, ROWS_AT_ONCE, Evidence, Sources, blocks_of
from xclearn.inference.runner import answered_on
from xclearn.inference.sparse import unit_rows

_MOST_PAIRS = 400_000  # to train a stacker on; beyond, wrong pairs are sampled and weighted up
_DEPTHS = (1, 5, 10)  # rankings are measured by precision at 1, nDCG at 5, recall at 10
_NAMED, _COUNT = -3, -2  # columns with the number of lists that contain a label, and its training documents
_EMPTY = Evidence(np.empty(0, np.int64), np.empty(0, np.int64), np.empty((0, 0), np.float32))


@final
@dataclass(frozen=True)
class HeldOut:
    """Evidence about held-out documents, and the correct labels."""

    rows: np.ndarray  # (m,) int64 document of each pair, ascending
    labels: np.ndarray  # (m,) int64
    values: np.ndarray  # (m, F) float32
    right: np.ndarray  # (m,) bool
    n_right: np.ndarray  # (n,) correct labels of each document that have training documents, found or not
    n_true: np.ndarray  # (n,) all correct labels of each document
    groups: np.ndarray  # (n,) group of near-duplicates of each document
    seed: int

    @cached_property
    def half(self) -> np.ndarray:
        """The half of each document, (n,) bool; near-duplicates share a half."""
        chosen = np.random.default_rng(self.seed).permutation(self.groups.max(initial=0) + 1) % 2 == 0
        return chosen[self.groups]

    @cached_property
    def seen(self) -> np.ndarray:
        """Pairs of labels with a training document, (m,) bool.

        Others teach a stacker nothing: if labels are collected from train, a label without training documents is always
        correct.
        """
        return self.values[:, _COUNT] > 0

    @cached_property
    def documents(self) -> np.ndarray:
        """Approximate training documents of each pair's label, (m,): evidence stores them as half powers of two."""
        return np.round(2 ** (self.values[:, _COUNT].astype(np.float64) / 2) - 1)

    @cached_property
    def kept(self) -> np.ndarray:
        """The pairs to learn on, (m,) bool: every correct one, and a sample of the others."""
        kept = self.seen & self.right
        wrong = np.flatnonzero(self.seen & ~self.right)
        room = max(_MOST_PAIRS - int(kept.sum()), 1)
        kept[wrong if len(wrong) <= room else np.random.default_rng(self.seed).choice(wrong, room, replace=False)] = (
            True
        )
        return kept

    @cached_property
    def weights(self) -> np.ndarray:
        """Weights that compensate for the wrong pairs left out, (m,)."""
        drawn = int((self.kept & ~self.right).sum())
        return np.where(self.right, 1.0, (self.seen & ~self.right).sum() / max(drawn, 1))

    def without(self, place: int) -> HeldOut:
        """A copy without the list at this place: without its columns, and without labels that only it found."""
        own = slice(COLUMNS * place, COLUMNS * (place + 1))
        values = self.values.copy()
        values[:, _NAMED] -= values[:, own.stop - 1] > 0
        kept = values[:, _NAMED] > 0
        values = np.delete(values[kept], own, axis=1)
        return replace(self, rows=self.rows[kept], labels=self.labels[kept], values=values, right=self.right[kept])

    def gains(self, logits: np.ndarray) -> np.ndarray:
        """The quality of a ranking for each document, (n,), from 0 to 1: the mean of P@1, nDCG@5 and R@10."""
        rows, labels = self.rows[self.seen], self.labels[self.seen]
        order = np.lexsort((labels, -logits[self.seen], rows))
        starts = np.searchsorted(rows, np.arange(len(self.n_right)))
        place = np.arange(len(order)) - starts[rows[order]]
        right, document = self.right[self.seen][order], rows[order]

        def total(worth: np.ndarray) -> np.ndarray:
            return np.bincount(document, weights=worth * right, minlength=len(self.n_right))

        first, second, third = _DEPTHS
        ideal = np.concatenate([[0.0], np.cumsum(1 / np.log2(np.arange(2, second + 2)))])
        attainable = np.maximum(self.n_right, 1)
        precision = total(place < first)
        gain = total((place < second) / np.log2(place + 2)) / ideal[np.minimum(attainable, second)]
        recall = total(place < third) / np.minimum(attainable, third)
        result: np.ndarray = (precision + gain + recall) / 3
        return result


def judged(sources: Sources, held: Split, device: str = "cpu") -> HeldOut:
    """The evidence about held-out documents, including those whose labels no training document has."""
    parts, sources = [_EMPTY], answered_on(sources, device)
    for start, (documents, exclude) in enumerate(blocks_of(held.documents, held.filter_pairs)):
        evidence = sources.evidence(documents, exclude)
        parts.append(evidence._replace(rows=evidence.rows + ROWS_AT_ONCE * start))
    rows, labels = (np.concatenate([part[i] for part in parts]) for i in range(2))
    values = np.concatenate(
        [part.values for part in parts[1:]] or [np.empty((0, len(sources.value_names)), np.float32)]
    )
    relevant, column = held.relevance.nonzero()
    void = held.filter_pairs[:, 0] * sources.n_labels + held.filter_pairs[:, 1]
    truth = np.setdiff1d(relevant.astype(np.int64) * sources.n_labels + column, void)
    right = np.isin(rows * sources.n_labels + labels, truth)
    document = truth // sources.n_labels
    known = sources.counts[truth % sources.n_labels] > 0
    n_right, n_true = (np.bincount(document[kind], minlength=len(held)) for kind in (known, slice(None)))
    return HeldOut(rows, labels, values, right, n_right, n_true, _groups(sources, held), 0)


def _groups(sources: Sources, held: Split) -> np.ndarray:
    """Groups of near-duplicate documents, (n,)."""
    features = sources.vectoriser.transform(held.documents)
    return resembling(unit_rows(features)) if sp.issparse(features) else np.arange(len(held))


def together(folds: Sequence[HeldOut], seed: int) -> HeldOut:
    """Concatenate the documents of all folds."""
    starts = np.cumsum([0, *(len(fold.n_right) for fold in folds)])
    rows = np.concatenate([fold.rows + start for fold, start in zip(folds, starts, strict=False)])
    names = ("labels", "values", "right", "n_right", "n_true")
    joined = {name: np.concatenate([getattr(fold, name) for fold in folds]) for name in names}
    sizes = np.cumsum([0, *(fold.groups.max(initial=-1) + 1 for fold in folds)])
    groups = np.concatenate([fold.groups + start for fold, start in zip(folds, sizes, strict=False)])
    return HeldOut(rows=rows, **joined, groups=groups, seed=seed)
