"""Compares predicted label lists with the truth: order, hits, and the pairs that evaluation ignores.

Everything works on (n, k) arrays and on the entries of the sparse truth, through one sorted key per (row, label):
nothing is ever dense in labels. Knows nothing about metrics, models or label names.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from xclearn.data.topk import TopK
from xclearn.errors import ConfigError, DataError

FILTER_RULES = ("both", "predictions")


def sort_predictions(predictions: TopK) -> TopK:
    """Each row by score descending, equal scores by id ascending, missing ids last with score −inf."""
    scores = np.where(predictions.ids < 0, -np.inf, predictions.scores)  # (n, k)
    order = np.lexsort((predictions.ids.astype(np.uint64), -scores), axis=1)  # unsigned: −1 comes after every id
    return TopK(np.take_along_axis(predictions.ids, order, 1), np.take_along_axis(scores, order, 1))


def hits(ids: np.ndarray, relevance: sp.csr_matrix) -> np.ndarray:
    """Which predicted `ids` (n, k) are relevant, as (n, k) bool; a missing id never is."""
    return _among(ids, relevance.shape[1], _truth_keys(relevance))


def extra_for_filter(pairs: np.ndarray) -> int:
    """How many extra predictions to request so that k remain in every row after filtering."""
    return int(np.bincount(pairs[:, 0]).max(initial=0))


def apply_filter(
    predictions: TopK, relevance: sp.csr_matrix, pairs: np.ndarray, rule: str = "both"
) -> tuple[TopK, sp.csr_matrix]:
    """Remove the (row, label) `pairs` from the predictions and, under the rule `both`, from the truth.

    Under `both` a pair neither helps nor hurts; under `predictions` it stays in the truth, where it can only be missed.
    """
    if rule not in FILTER_RULES:
        raise ConfigError("unknown filter rule", got=rule, allowed=", ".join(FILTER_RULES))
    void_keys = _pair_keys(pairs, relevance.shape)
    kept = _without(predictions, _among(predictions.ids, relevance.shape[1], void_keys))
    return kept, _without_pairs(relevance, void_keys) if rule == "both" else relevance


def _without(predictions: TopK, void: np.ndarray) -> TopK:
    order = np.argsort(void, axis=1, kind="stable")  # (n, k): kept predictions first, in their old order
    ids = np.where(void, -1, predictions.ids)
    scores = np.where(void, -np.inf, predictions.scores)
    return TopK(np.take_along_axis(ids, order, 1), np.take_along_axis(scores, order, 1))


def _without_pairs(relevance: sp.csr_matrix, void_keys: np.ndarray) -> sp.csr_matrix:
    kept = ~_contains(void_keys, _truth_keys(relevance))  # (nnz,)
    kept_before = np.concatenate([[0], np.cumsum(kept)])
    parts = relevance.data[kept], relevance.indices[kept], kept_before[relevance.indptr]
    return sp.csr_matrix(parts, shape=relevance.shape)


def _truth_keys(relevance: sp.csr_matrix) -> np.ndarray:
    """row · L + label for every entry, ascending because each row's indices are sorted."""
    row_starts = np.arange(relevance.shape[0], dtype=np.int64) * relevance.shape[1]
    return np.repeat(row_starts, np.diff(relevance.indptr)) + relevance.indices  # (nnz,)


def _among(ids: np.ndarray, n_labels: int, sorted_keys: np.ndarray) -> np.ndarray:
    """Which predictions are among the keys, (n, k) bool; a missing id has no key of its own and never is."""
    wrong = np.argwhere((ids < -1) | (ids >= n_labels))
    if len(wrong):
        row, column = wrong[0]
        label = int(ids[row, column])
        allowed = f"0 to {n_labels - 1}, or -1 for a missing prediction"
        raise DataError("a predicted label id is out of range", where=f"row {row}", got=label, allowed=allowed)
    keys = np.arange(len(ids), dtype=np.int64)[:, None] * n_labels + ids  # (n, k)
    return _contains(sorted_keys, keys) & (ids >= 0)


def _pair_keys(pairs: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    wrong = np.flatnonzero(((pairs < 0) | (pairs >= shape)).any(axis=1))
    if len(wrong):
        allowed = f"rows below {shape[0]}, labels below {shape[1]}"
        raise DataError("a filter pair is out of range", got=tuple(pairs[wrong[0]].tolist()), allowed=allowed)
    return np.unique(pairs[:, 0] * np.int64(shape[1]) + pairs[:, 1])


def _contains(sorted_keys: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """Which `keys` are among `sorted_keys`; the key after the last one is −1, which no valid pair has."""
    return np.append(sorted_keys, -1)[np.searchsorted(sorted_keys, keys)] == keys
