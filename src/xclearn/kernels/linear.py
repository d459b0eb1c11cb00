"""Many sparse linear classifiers at once, by dual coordinate descent, and their logits for chosen rows.

Each minimises ½|w|² + cost · Σ loss(y (w · x + b)) over its examples. Knows nothing about trees, labels or documents.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, final

import numpy as np
import scipy.sparse as sp

from xclearn.errors import DataError
from xclearn.kernels import _native, _threads


@final
class Linear(NamedTuple):
    """The objective of a classifier, and when to stop."""

    loss: Literal["squared_hinge", "logistic"]
    cost: float  # weight of the loss against the norm of the weights
    bias: float | None  # fixed at this value, or None: learnt as the weight of a constant feature
    tolerance: float  # stop once the dual's largest gradient is below this
    max_passes: int  # over the examples
    threshold: float  # weights of at most this magnitude are dropped


@final
class Problems(NamedTuple):
    """Problems over rows of one matrix; the problems of a group are contiguous and share its rows as examples."""

    features: sp.csr_matrix  # (N, V) float32
    groups: sp.csr_matrix  # (G, N) rows of each group
    problems: np.ndarray  # (G + 1,) start of each group's problems
    positives: sp.csr_matrix  # (P, N) positive rows of each problem; rows outside its group are ignored


def train_linear(
    problems: Problems, settings: Linear, seed: int, n_threads: int | None = None
) -> tuple[sp.csr_matrix, np.ndarray]:
    """The weights (P, V) and biases (P,), float32; independent of the number of threads."""
    _check(problems)
    threads = _threads(n_threads)
    features = sp.csr_matrix(problems.features, dtype=np.float32)
    indptr, indices, weights, bias = _native.train_linear(
        _int64(features.indptr),
        _int32(features.indices),
        features.data,
        features.shape[1],
        _int64(problems.groups.indptr),
        _int32(problems.groups.indices),
        _int64(problems.problems),
        _int64(problems.positives.indptr),
        _int32(problems.positives.indices),
        settings.loss == "logistic",
        settings.cost,
        settings.tolerance,
        settings.max_passes,
        settings.threshold,
        settings.bias or 0.0,
        settings.bias is None,
        seed,
        threads,
    )
    shape = (problems.positives.shape[0], features.shape[1])
    return sp.csr_matrix((weights, indices, indptr), shape=shape), bias


@final
class SparseWeights(NamedTuple):
    """Weights of P classifiers in CSR form. Plain arrays: constructing a scipy matrix copies the starts."""

    starts: np.ndarray  # (P + 1,) int64
    columns: np.ndarray  # (E,) int32 columns of the documents' features
    values: np.ndarray  # (E,) float32


def listed_logits(
    documents: sp.csr_matrix, weights: SparseWeights, ids: np.ndarray, n_threads: int | None = None
) -> np.ndarray:
    """w_l · x of each document (n, V) with its own classifiers `ids` (n, m); 0 where an id is −1."""
    if len(ids) != documents.shape[0]:
        raise DataError("rows and ids do not fit", got=(documents.shape, ids.shape))
    if ids.size and not -1 <= ids.min() <= ids.max() < len(weights.starts) - 1:
        raise DataError("classifier ids are out of range", got=(int(ids.min()), int(ids.max())))
    threads = _threads(n_threads)
    rows = _int64(documents.indptr), _int32(documents.indices), np.ascontiguousarray(documents.data, dtype=np.float32)
    return _native.listed_logits(*rows, documents.shape[1], *weights, _int64(ids), threads)


def _check(problems: Problems) -> None:
    features, groups, starts, positives = problems
    if {groups.shape[1], positives.shape[1]} != {features.shape[0]}:
        got = (features.shape[0], groups.shape[1], positives.shape[1])
        raise DataError("features, groups and positives differ in rows", got=got)
    walks = len(starts) == groups.shape[0] + 1 and starts[0] == 0 and starts[-1] == positives.shape[0]
    if not walks or (starts[1:] < starts[:-1]).any():
        raise DataError(
            "the starts of groups do not cover the problems", got=starts, allowed=f"0 … {positives.shape[0]}"
        )
    if not np.isfinite(features.data).all():
        raise DataError("features must be finite", got="NaN or infinity")


def _int64(values: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(values, dtype=np.int64)


def _int32(values: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(values, dtype=np.int32)
