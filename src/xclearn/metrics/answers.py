"""Details of a report: calibration, single labels, mistakes, and where two models differ.

All of it is counted from the first k labels of each document. Knows nothing about label names or texts.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from xclearn.errors import ConfigError
from xclearn.metrics.report import Report


class Reliability(NamedTuple):
    """Predicted labels grouped by score, lowest first, without empty groups."""

    score: np.ndarray  # (m,) mean score of a group
    right: np.ndarray  # (m,) share of its labels that are correct
    n_given: np.ndarray  # (m,)
    error: float  # mean |score − right|, weighted by group size: ECE@k, in percent


class LabelFigures(NamedTuple):
    """Counts for each label, (L,)."""

    n_relevant: np.ndarray  # documents that have it
    n_given: np.ndarray  # documents it was predicted for
    n_right: np.ndarray  # both


class Disagreement(NamedTuple):
    """Two models on the same documents: how often the first label is correct, and the rows where they differ most."""

    both: int
    first_only: int
    second_only: int
    neither: int
    first_better: np.ndarray  # rows where the first model has more right labels in its first k, most of them first
    second_better: np.ndarray


def reliability(report: Report, *, k: int = 5, n_groups: int = 10) -> Reliability:
    """The first k labels of all documents, grouped by score in intervals of equal width from 0 to 1."""
    ids, scores, hit = (_first(values, k) for values in (report.ids, report.scores, report.hit))
    given = ids >= 0
    score, right = scores[given], hit[given]
    group = np.clip((score * n_groups).astype(np.int64), 0, n_groups - 1)
    n_given = np.bincount(group, minlength=n_groups)
    there = n_given > 0
    size = n_given[there]
    means = np.bincount(group, weights=score, minlength=n_groups)[there] / size
    shares = np.bincount(group, weights=right, minlength=n_groups)[there] / size
    error = 100 * float(np.abs(means - shares) @ size / max(size.sum(), 1))
    return Reliability(means, shares, size, error)


def label_figures(report: Report, *, k: int = 5) -> LabelFigures:
    """How often each label is relevant, predicted, and both."""
    n_labels = report.relevance.shape[1]
    ids, hit = _first(report.ids, k), _first(report.hit, k)
    n_relevant = np.bincount(report.relevance.indices, minlength=n_labels)
    n_given = np.bincount(ids[ids >= 0], minlength=n_labels)
    return LabelFigures(n_relevant, n_given, np.bincount(ids[hit], minlength=n_labels))


def surest_mistakes(report: Report, most: int) -> list[tuple[int, int]]:
    """(row, rank) of the wrong labels with the highest scores, at most one per document, highest first."""
    wrong = np.where((report.ids >= 0) & ~report.hit, report.scores, -np.inf)
    rank = wrong.argmax(axis=1)
    score = wrong[np.arange(len(wrong)), rank]
    order = np.argsort(-score, kind="stable")[:most]
    return [(row, int(rank[row])) for row in order.tolist() if np.isfinite(score[row])]


def disagreement(first: Report, second: Report, *, k: int = 5) -> Disagreement:
    """Where two reports of the same documents differ."""
    if len(first.hit) != len(second.hit):
        raise ConfigError("the two reports cover different documents", got=(len(first.hit), len(second.hit)))
    one, other = first.hit[:, 0], second.hit[:, 0]
    gain = _first(first.hit, k).sum(axis=1) - _first(second.hit, k).sum(axis=1)  # (n,)
    order = np.argsort(-np.abs(gain), kind="stable")
    return Disagreement(
        int((one & other).sum()),
        int((one & ~other).sum()),
        int((~one & other).sum()),
        int((~one & ~other).sum()),
        order[gain[order] > 0],
        order[gain[order] < 0],
    )


def _first(values: np.ndarray, k: int) -> np.ndarray:
    if not 1 <= k <= values.shape[1]:
        raise ConfigError("out of range", where="k", got=k, allowed=f"1 to {values.shape[1]}")
    return values[:, :k]
