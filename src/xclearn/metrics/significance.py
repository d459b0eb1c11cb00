"""Statistical significance: confidence intervals by resampling documents, and a paired test of two models.

Documents are the unit of resampling: a document's contribution is drawn as a whole, so a ratio of sums keeps numerator
and denominator together. Coverage is not a sum over documents and has neither interval nor test: a resample lacks some
labels, which would bias it downwards. Results are deterministic for a given seed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from xclearn.errors import ConfigError, DataError, nearest
from xclearn.metrics.report import Report, Terms


class PairedResult(NamedTuple):
    """The first model's metric minus the second's, in percentage points."""

    difference: float
    low: float
    high: float
    p_value: float  # two-sided


def intervals(report: Report, seed: int = 0, repeats: int = 1000, level: float = 0.95) -> dict[str, float]:
    """Bootstrap percentile interval of every metric but coverage, in percent: {"P@1_low": …, "P@1_high": …, …}."""
    names = list(report.terms)
    gained = np.column_stack([report.terms[name].gained for name in names])  # (n, metrics)
    attainable = np.column_stack([report.terms[name].attainable for name in names])
    low, high = _interval(Terms(gained, attainable), seed, repeats, level)  # (metrics,) each
    bounds: dict[str, float] = {}
    for index, name in enumerate(names):
        bounds |= {f"{name}_low": float(low[index]), f"{name}_high": float(high[index])}
    return bounds


def paired_test(
    first: Report, second: Report, metric: str, *, seed: int = 0, repeats: int = 10_000, level: float = 0.95
) -> PairedResult:
    """Compare two models on the same documents: bootstrap interval, and p-value of a paired randomisation test."""
    shared = first.terms.keys() & second.terms.keys()
    if metric not in shared:
        raise ConfigError("no such metric to test", got=metric, todo=nearest(metric, shared))
    if not _same_truth(first, second):
        raise DataError("the two reports differ in documents, labels or filter", got=metric)
    attainable = first.terms[metric].attainable
    gain = first.terms[metric].gained - second.terms[metric].gained  # (n,)
    low, high = _interval(Terms(gain[:, None], attainable[:, None]), seed, repeats, level)
    difference = 100 * float(gain.sum() / attainable.sum())
    return PairedResult(difference, float(low[0]), float(high[0]), _swap_p_value(gain, seed, repeats))


def _interval(terms: Terms, seed: int, repeats: int, level: float) -> tuple[np.ndarray, np.ndarray]:
    if not (repeats >= 1 and 0 < level < 1):
        allowed = "repeats >= 1 and 0 < level < 1"
        raise ConfigError("interval settings are out of range", got=(repeats, level), allowed=allowed)
    sums = _resampled_sums(np.hstack(terms), seed, repeats)
    gained, attainable = np.split(sums, 2, axis=1)  # (repeats, metrics) each
    # A resample of only unlabelled documents has nothing attainable and gains nothing.
    values = 100 * gained / np.where(attainable > 0, attainable, 1)
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return low, high


def _resampled_sums(columns: np.ndarray, seed: int, repeats: int) -> np.ndarray:
    """Column sums over n documents drawn with replacement, `repeats` times: (repeats, columns)."""
    random, n = np.random.default_rng(seed), len(columns)
    draws = (np.bincount(random.integers(0, n, n), minlength=n) for _ in range(repeats))
    return np.array([times_drawn @ columns for times_drawn in draws])


def _swap_p_value(gain: np.ndarray, seed: int, repeats: int) -> float:
    """How often swapping the two models at random in each document gives at least this difference."""
    random, gain = np.random.default_rng(seed), gain[gain != 0]
    swapped = np.array([random.integers(0, 2, len(gain), dtype=bool) @ gain for _ in range(repeats)])
    total = gain.sum()
    reached = np.abs(total - 2 * swapped) >= abs(total) * (1 - 1e-9)  # equal sums may differ by rounding
    return float((1 + reached.sum()) / (1 + repeats))


def _same_truth(first: Report, second: Report) -> bool:
    one, other = first.relevance, second.relevance
    same_entries = np.array_equal(one.indptr, other.indptr) and np.array_equal(one.indices, other.indices)
    return one.shape == other.shape and same_entries
