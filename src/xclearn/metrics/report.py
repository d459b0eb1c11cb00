"""P, nDCG, PSP, PSnDCG, recall and coverage at k, with each document's contribution.

With y the relevant labels of a document, w the inverse propensities, and sums over the documents of a split:

    P@k       hits in the first k / k
    nDCG@k    sum of 1/log2(1 + rank) over hits, by the same sum for a perfect list of min(k, |y|) labels
    PSP@k     sum of w over hits / k, by that sum for the k heaviest labels of y: a ratio of sums, not a mean of ratios
    PSnDCG@k  w-weighted DCG, by that of the heaviest labels of y, each first divided by the unweighted ideal DCG
    R@k       hits in the first k / |y|
    C@k       distinct labels hit in the first k of some document, of the distinct labels relevant to some document

A document without labels counts as 0 in every mean; a list shorter than k is still divided by k.
Knows nothing about models, label names or how metrics are displayed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, final

import numpy as np
import scipy.sparse as sp

from xclearn.data.dataset import NO_PAIRS
from xclearn.data.topk import TopK
from xclearn.errors import ConfigError, DataError
from xclearn.metrics.ranking import apply_filter, hits, sort_predictions

KS = (1, 3, 5)
RECALL_KS = (10, 20, 100)


class Terms(NamedTuple):
    """Each document's contribution to a metric, whose value is Σ gained / Σ attainable."""

    gained: np.ndarray  # (n,)
    attainable: np.ndarray  # (n,); all ones where the metric is a plain mean


@final
@dataclass(frozen=True, eq=False)
class Report:
    """The metrics of one model on one split, in percent, and the filtered predictions they were computed from."""

    values: dict[str, float]  # "P@1": 31.4, …
    terms: dict[str, Terms]  # of every metric but coverage, which is not a sum over documents
    ids: np.ndarray  # (n, deepest k) int64 predicted labels
    scores: np.ndarray  # (n, deepest k) their scores, padded with −∞
    hit: np.ndarray  # (n, deepest k) bool
    relevance: sp.csr_matrix  # (n, L)
    unknown_labels: Mapping[str, int] = field(
        default_factory=dict
    )  # labels unknown to the model → documents that have them


def evaluate_predictions(
    predictions: TopK,
    relevance: sp.csr_matrix,
    inverse_propensity: np.ndarray,
    *,
    filter_pairs: np.ndarray = NO_PAIRS,
    filter_rule: str = "both",
    ks: Sequence[int] = KS,
    recall_ks: Sequence[int] = RECALL_KS,
) -> Report:
    """P, nDCG, PSP and PSnDCG at `ks`, recall and coverage at `recall_ks`.

    Ask the model for `max(recall_ks) + extra_for_filter(filter_pairs)` predictions. They are sorted here, by score
    descending, then id ascending.
    """
    deepest = _deepest((*ks, *recall_ks))
    _check_predictions(predictions, relevance)
    _check_truth(relevance, inverse_propensity)
    predictions, relevance = apply_filter(sort_predictions(predictions), relevance, filter_pairs, filter_rule)
    if relevance.nnz == 0:
        raise DataError("nothing to evaluate: no document has a relevant label", got=relevance.shape)
    ids = _of_width(predictions.ids, deepest, -1).astype(np.int64, copy=False)
    scores = _of_width(predictions.scores, deepest, -np.inf)
    hit = hits(ids, relevance)
    terms = _ranking_terms(ids, hit, relevance, inverse_propensity, ks) | _recall_terms(hit, relevance, recall_ks)
    values = {name: 100 * float(gained.sum() / attainable.sum()) for name, (gained, attainable) in terms.items()}
    return Report(values | _coverage(ids, hit, relevance, recall_ks), terms, ids, scores, hit, relevance)


def _ranking_terms(
    ids: np.ndarray, hit: np.ndarray, relevance: sp.csr_matrix, inverse_propensity: np.ndarray, ks: Sequence[int]
) -> dict[str, Terms]:
    deepest, one = max(ks, default=0), np.ones(len(ids))
    hit = hit[:, :deepest]
    weight = np.where(hit, inverse_propensity[ids[:, :deepest]], 0)  # (n, deepest)
    best = _heaviest(relevance, inverse_propensity, deepest)  # (n, deepest)
    discount = 1 / np.log2(np.arange(deepest) + 2)
    ideal = np.concatenate([[1], np.cumsum(discount)])  # of 0, 1, … labels; 1 for none keeps their 0/1 = 0
    ideal_at = {k: ideal[np.minimum(np.diff(relevance.indptr), k)] for k in ks}
    return (
        {f"P@{k}": Terms(hit[:, :k].sum(1) / k, one) for k in ks}
        | {f"nDCG@{k}": Terms(hit[:, :k] @ discount[:k] / ideal_at[k], one) for k in ks}
        | {f"PSP@{k}": Terms(weight[:, :k].sum(1) / k, best[:, :k].sum(1) / k) for k in ks}
        | {
            f"PSnDCG@{k}": Terms(weight[:, :k] @ discount[:k] / ideal_at[k], best[:, :k] @ discount[:k] / ideal_at[k])
            for k in ks
        }
    )


def _recall_terms(hit: np.ndarray, relevance: sp.csr_matrix, ks: Sequence[int]) -> dict[str, Terms]:
    n_relevant = np.maximum(np.diff(relevance.indptr), 1)
    one = np.ones(len(hit))
    return {f"R@{k}": Terms(hit[:, :k].sum(1) / n_relevant, one) for k in ks}


def _coverage(ids: np.ndarray, hit: np.ndarray, relevance: sp.csr_matrix, ks: Sequence[int]) -> dict[str, float]:
    n_relevant = len(np.unique(relevance.indices))
    return {f"C@{k}": 100 * len(np.unique(ids[:, :k][hit[:, :k]])) / n_relevant for k in ks}


def _heaviest(relevance: sp.csr_matrix, weights: np.ndarray, k: int) -> np.ndarray:
    """The k largest weights among each row's relevant labels, descending, 0 where there are fewer: (n, k)."""
    rows = np.repeat(np.arange(relevance.shape[0]), np.diff(relevance.indptr))  # (nnz,)
    weight = weights[relevance.indices]
    weight = weight[np.lexsort((-weight, rows))]
    rank = np.arange(relevance.nnz) - relevance.indptr[rows]
    heaviest = np.zeros((relevance.shape[0], k))
    heaviest[rows[rank < k], rank[rank < k]] = weight[rank < k]
    return heaviest


def _of_width(values: np.ndarray, width: int, missing: float) -> np.ndarray:
    wide = np.full((len(values), width), missing, dtype=np.result_type(values, missing))
    wide[:, : values.shape[1]] = values[:, :width]
    return wide


def _deepest(ks: tuple[int, ...]) -> int:
    if min(ks, default=0) < 1:
        raise ConfigError("k of a metric must be at least 1", got=ks)
    return max(ks)


def _check_predictions(predictions: TopK, relevance: sp.csr_matrix) -> None:
    ids, scores = predictions
    if ids.ndim != 2 or ids.shape != scores.shape or len(ids) != relevance.shape[0] or ids.dtype.kind != "i":
        allowed = f"integer ids and their scores, both ({relevance.shape[0]}, k)"
        got = (ids.dtype.name, ids.shape, scores.shape)
        raise DataError("predictions do not fit the truth", got=got, allowed=allowed)
    if np.isnan(scores).any():
        raise DataError("a predicted score is not a number", where=f"row {np.argwhere(np.isnan(scores))[0][0]}")
    ordered = np.sort(ids, axis=1)
    repeated = np.argwhere((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0))
    if len(repeated):
        row, column = repeated[0]
        label = int(ordered[row, column])
        raise DataError("a label is predicted twice for the same document", where=f"row {row}", got=label)


def _check_truth(relevance: sp.csr_matrix, inverse_propensity: np.ndarray) -> None:
    if not (relevance.has_canonical_format and relevance.data.all()):
        todo = "Call eliminate_zeros() and sum_duplicates() on it."
        raise DataError("relevance has unsorted, repeated or zero entries", todo=todo)
    if inverse_propensity.shape != relevance.shape[1:] or not (inverse_propensity > 0).all():
        allowed = f"one positive number for each of {relevance.shape[1]} labels"
        raise DataError("inverse propensities do not fit the labels", got=inverse_propensity.shape, allowed=allowed)
