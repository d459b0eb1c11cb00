"""Where a model's precision comes from: labels in bins of equal training volume, from the head to the tail.

Knows training counts and a report, nothing about how bins are displayed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from xclearn.errors import ConfigError, DataError
from xclearn.metrics.report import Report


class Bin(NamedTuple):
    """Labels of similar training frequency."""

    n_labels: int
    highest_count: int  # training counts of its most and least frequent label; 0 if empty
    lowest_count: int
    n_relevant: int  # (document, label) pairs of the evaluated truth
    contribution: float  # to P@k, in percentage points: the bins add up to P@k
    recall: float  # percent of `n_relevant` found in the first k; 0 if there are none


def volume_bins(report: Report, label_counts: np.ndarray, *, k: int = 5, n_bins: int = 5) -> list[Bin]:
    """The labels, by training count descending, cut into `n_bins` of equal total count.

    A label that spans a cut belongs to the bin where it starts, so the bin after a very frequent label can be empty.
    """
    _check(report, label_counts, k, n_bins)
    bin_of_label = _bin_of_label(label_counts.astype(np.int64), n_bins)  # (L,)
    found = np.bincount(bin_of_label[report.ids[:, :k][report.hit[:, :k]]], minlength=n_bins)
    relevant = np.bincount(bin_of_label[report.relevance.indices], minlength=n_bins)
    return [
        _bin(label_counts[bin_of_label == index], int(found[index]), int(relevant[index]), k * len(report.ids))
        for index in range(n_bins)
    ]


def mean_by_bin(values: np.ndarray, label_counts: np.ndarray, *, n_bins: int = 5) -> list[list[float]]:
    """The mean of each column of `values` (L, m) over the labels of each bin of equal training volume, head first."""
    bin_of_label = _bin_of_label(label_counts.astype(np.int64), n_bins)
    size = np.maximum(np.bincount(bin_of_label, minlength=n_bins), 1)
    columns = [np.bincount(bin_of_label, weights=column, minlength=n_bins) / size for column in values.T]
    return np.column_stack(columns).tolist()


def relevant_scores(report: Report, label_counts: np.ndarray, *, n_bins: int = 5) -> list[float]:
    """The mean score of relevant labels in each bin; a relevant label that was not found counts as 0.

    Labels that no document has are left out; a bin without labels gets 0.
    """
    scores = np.zeros(len(label_counts))
    np.add.at(scores, report.ids[report.hit], report.scores[report.hit])
    relevant = np.asarray(report.relevance.sum(axis=0)).ravel()
    columns = np.column_stack([scores / np.maximum(relevant, 1), relevant > 0])
    return [score / asked if asked else 0.0 for score, asked in mean_by_bin(columns, label_counts, n_bins=n_bins)]


def _bin(counts: np.ndarray, found: int, relevant: int, predicted: int) -> Bin:
    highest, lowest = (int(counts.max()), int(counts.min())) if len(counts) else (0, 0)
    return Bin(len(counts), highest, lowest, relevant, 100 * found / predicted, 100 * found / max(relevant, 1))


def _bin_of_label(counts: np.ndarray, n_bins: int) -> np.ndarray:
    order = np.argsort(-counts, kind="stable")
    before = np.cumsum(counts[order]) - counts[order]  # training pairs of the more frequent labels
    bin_of_label = np.empty(len(counts), dtype=np.int64)
    bin_of_label[order] = np.minimum(before * n_bins // counts.sum(), n_bins - 1)  # untrained labels: the last bin
    return bin_of_label


def _check(report: Report, label_counts: np.ndarray, k: int, n_bins: int) -> None:
    deepest = report.ids.shape[1]
    if not (1 <= k <= deepest and n_bins >= 1):
        raise ConfigError("bins out of range", got=(k, n_bins), allowed=f"k from 1 to {deepest}, at least one bin")
    if label_counts.shape != report.relevance.shape[1:] or label_counts.sum() <= 0:
        allowed = f"the training count of each of {report.relevance.shape[1]} labels, not all zero"
        raise DataError("label counts do not fit the report", got=label_counts.shape, allowed=allowed)
