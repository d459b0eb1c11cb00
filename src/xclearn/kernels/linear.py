"""Many sparse linear classifiers at once, by dual coordinate descent: native where the extension is, else in NumPy.

Each minimises ½|w|² + cost · Σ loss(y (w · x + b)) over its examples. Also what they say of rows, each asked about
a few of them. Knows nothing about trees, labels or documents.
The NumPy form walks through the same examples in the same order, all problems of a group together; it is the native
one's oracle.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, final

import numpy as np
import scipy.sparse as sp

from xclearn import kernels
from xclearn.errors import DataError
from xclearn.kernels.reference import _splitmix64

_NEWTON_STEPS = 20
_VALUES_AT_ONCE = 1 << 20  # values of documents held dense at a time: 4 MB, and many times that of products
_LEAST_LOGIT = float(np.log(1e-8))  # where a dual variable of the logistic loss starts


@final
class Linear(NamedTuple):
    """What a classifier minimises, and how closely."""

    loss: Literal["squared_hinge", "logistic"]
    cost: float  # of the loss against the length of the weights
    bias: float | None  # fixed at this, or None: learnt as the weight of a feature of one
    tolerance: float  # largest gradient of the dual that ends the descent
    max_passes: int  # over the examples
    threshold: float  # weights up to this are dropped


@final
class Problems(NamedTuple):
    """Problems over rows of one matrix. Those of a group stand together and share its rows as examples."""

    features: sp.csr_matrix  # (N, V) float32
    groups: sp.csr_matrix  # (G, N) the rows of each group
    problems: np.ndarray  # (G + 1,) where the problems of each group start
    positives: sp.csr_matrix  # (P, N) the positive rows of each problem; those outside of its group do not count


def train_linear(
    problems: Problems, settings: Linear, seed: int, n_threads: int | None = None
) -> tuple[sp.csr_matrix, np.ndarray]:
    """The weights (P, V) and biases (P,), float32. They depend on the problems and the seed, not on the threads."""
    _check(problems)
    threads = kernels._threads(n_threads)
    solve = _native if kernels.BACKEND == "native" else train_linear_numpy
    return solve(problems, settings, seed, threads)


@final
class SparseWeights(NamedTuple):
    """Of P classifiers, one after the other. Plain arrays: a scipy matrix copies the starts whenever it is made."""

    starts: np.ndarray  # (P + 1,) int64
    columns: np.ndarray  # (E,) int32, each a column of the rows that are asked about
    values: np.ndarray  # (E,) float32


def listed_logits(
    documents: sp.csr_matrix, weights: SparseWeights, ids: np.ndarray, n_threads: int | None = None
) -> np.ndarray:
    """w_l · x of each row (n, V) with its own classifiers `ids` (n, m) of these weights; 0 where an id is −1."""
    if len(ids) != documents.shape[0]:
        raise DataError("rows and ids do not fit", got=(documents.shape, ids.shape))
    if ids.size and not -1 <= ids.min() <= ids.max() < len(weights.starts) - 1:
        raise DataError("ids point outside of the weights", got=(int(ids.min()), int(ids.max())))
    threads = kernels._threads(n_threads)
    if kernels.BACKEND != "native":
        return listed_logits_numpy(documents, weights, ids)
    from xclearn.kernels import _native

    rows = _int64(documents.indptr), _int32(documents.indices), np.ascontiguousarray(documents.data, dtype=np.float32)
    return _native.listed_logits(*rows, documents.shape[1], *weights, _int64(ids), threads)


def listed_logits_numpy(documents: sp.csr_matrix, weights: SparseWeights, ids: np.ndarray) -> np.ndarray:
    """The oracle of `listed_logits`: some documents at a time, as each is held dense."""
    logits, size = np.zeros(ids.shape), max(1, _VALUES_AT_ONCE // max(1, documents.shape[1]))
    shape = len(weights.starts) - 1, documents.shape[1]
    matrix = sp.csr_matrix((weights.values, weights.columns, weights.starts), shape=shape)
    for start in range(0, len(ids), size):
        listed = ids[start : start + size]
        dense, chosen = documents[start : start + size].toarray(), matrix[np.maximum(listed, 0).ravel()]
        pair = np.repeat(np.arange(listed.size), np.diff(chosen.indptr))
        products = chosen.data * dense[pair // max(1, listed.shape[1]), chosen.indices].astype(np.float64)
        logits[start : start + size] = np.bincount(pair, products, listed.size).reshape(listed.shape)
    return np.where(ids < 0, 0.0, logits)


def _check(problems: Problems) -> None:
    features, groups, starts, positives = problems
    if {groups.shape[1], positives.shape[1]} != {features.shape[0]}:
        got = (features.shape[0], groups.shape[1], positives.shape[1])
        raise DataError("features, groups and positives differ in rows", got=got)
    walks = len(starts) == groups.shape[0] + 1 and starts[0] == 0 and starts[-1] == positives.shape[0]
    if not walks or (starts[1:] < starts[:-1]).any():
        raise DataError("problems do not walk through the groups", got=starts, allowed=f"0 … {positives.shape[0]}")
    if not np.isfinite(features.data).all():
        raise DataError("features must be finite", got="NaN or infinity")


def _native(problems: Problems, settings: Linear, seed: int, n_threads: int) -> tuple[sp.csr_matrix, np.ndarray]:
    from xclearn.kernels._native import train_linear as solve

    features = sp.csr_matrix(problems.features, dtype=np.float32)
    indptr, indices, weights, bias = solve(
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
        n_threads,
    )
    shape = (problems.positives.shape[0], features.shape[1])
    return sp.csr_matrix((weights, indices, indptr), shape=shape), bias


def _int64(values: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(values, dtype=np.int64)


def _int32(values: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(values, dtype=np.int32)


def train_linear_numpy(
    problems: Problems,
    settings: Linear,
    seed: int,
    n_threads: int,  # noqa: ARG001
) -> tuple[sp.csr_matrix, np.ndarray]:
    """`train_linear` without the extension."""
    n_features = problems.features.shape[1]
    biases, weights = [np.empty(0, np.float32)], [sp.csr_matrix((0, n_features), dtype=np.float32)]
    for group in range(problems.groups.shape[0]):
        random = _splitmix64(_splitmix64(np.array([seed], dtype=np.uint64)) ^ np.uint64(group))
        rows = _shuffled(problems.groups[group].indices, random)
        own = slice(problems.problems[group], problems.problems[group + 1])
        solver = _Solver(problems.features[rows].astype(np.float64), problems.positives[own][:, rows], settings)
        solver.solve(random)
        kept = np.where(np.abs(solver.weights) > settings.threshold, solver.weights, 0)
        weights.append(sp.csr_matrix(kept.astype(np.float32)))
        biases.append(solver.bias.astype(np.float32))
    return sp.vstack(weights, format="csr"), np.concatenate(biases)


def _shuffled(numbers: np.ndarray, random: np.ndarray) -> np.ndarray:
    """In the order of a hash of each; without another order in each pass it converges many times slower."""
    wide = numbers.astype(np.uint64)
    high = _splitmix64(random ^ wide) >> np.uint64(32) << np.uint64(32)
    return numbers[np.argsort(high | wide)]


@final
class _Solver:
    """All problems of one group."""

    def __init__(self, rows: sp.csr_matrix, positives: sp.csr_matrix, settings: Linear) -> None:
        self.rows, self.settings = rows, settings  # (n, V)
        self.sign = np.where(positives.toarray() > 0, 1.0, -1.0)  # (P, n)
        n_problems = len(self.sign)
        self.weights = np.zeros((n_problems, rows.shape[1]))
        self.bias = np.full(n_problems, settings.bias or 0.0)
        self.learnt = float(settings.bias is None)
        self.norm = np.asarray(rows.multiply(rows).sum(axis=1)).ravel() + self.learnt  # (n,)

    def solve(self, random: np.ndarray) -> None:
        if self.settings.loss == "logistic":
            self._logistic(random)
        else:
            self._squared_hinge(random)

    def _margin(self, i: int) -> np.ndarray:
        columns, values = self._row(i)
        return self.sign[:, i] * (self.weights[:, columns] @ values + self.bias)  # (P,)

    def _add(self, i: int, step: np.ndarray) -> None:
        columns, values = self._row(i)
        self.weights[:, columns] += (step * self.sign[:, i])[:, None] * values
        self.bias += step * self.sign[:, i] * self.learnt

    def _row(self, i: int) -> tuple[np.ndarray, np.ndarray]:
        place = slice(self.rows.indptr[i], self.rows.indptr[i + 1])
        return self.rows.indices[place], self.rows.data[place]

    def _squared_hinge(self, random: np.ndarray) -> None:
        n_problems, n = self.sign.shape
        dual, active = np.zeros((n_problems, n)), np.ones((n_problems, n), dtype=bool)
        going, whole = np.ones(n_problems, dtype=bool), np.ones(n_problems, dtype=bool)
        for number in range(self.settings.max_passes):
            active[whole] = True
            largest = np.zeros(n_problems)
            shuffled = _shuffled(np.arange(n), _splitmix64(random ^ np.uint64(number)))
            for order, here in ((np.arange(n), going & whole), (shuffled, going & ~whole)):
                for i in order.tolist() if here.any() else ():
                    self._hinge_step(i, here, dual, active, largest)
            converged = largest <= self.settings.tolerance
            going &= ~(converged & whole)
            whole = converged
            if not going.any():
                return

    def _hinge_step(self, i: int, here: np.ndarray, dual: np.ndarray, active: np.ndarray, largest: np.ndarray) -> None:
        own, diagonal = dual[:, i].copy(), 0.5 / self.settings.cost
        gradient = self._margin(i) - 1 + own * diagonal
        moving = here & active[:, i] & ((own > 0) | (gradient < 0))
        active[here, i] = moving[here]
        largest[:] = np.where(moving, np.maximum(largest, np.abs(gradient)), largest)
        moved = np.maximum(own - gradient / (self.norm[i] + diagonal), 0)
        dual[:, i] = np.where(moving, moved, own)
        self._add(i, dual[:, i] - own)

    def _logistic(self, random: np.ndarray) -> None:
        n_problems, n = self.sign.shape
        cost, logits = self.settings.cost, np.full((n_problems, n), _LEAST_LOGIT)
        going = np.ones(n_problems, dtype=bool)
        for i in range(n):
            self._add(i, np.full(n_problems, cost * _sigmoid(_LEAST_LOGIT)))
        for number in range(self.settings.max_passes):
            largest = np.zeros(n_problems)
            for i in _shuffled(np.arange(n), _splitmix64(random ^ np.uint64(number))):
                before, margin = cost * _sigmoid(logits[:, i]), self._margin(i)
                largest = np.maximum(largest, np.abs(margin + logits[:, i]))
                found = _root(margin, before, self.norm[i], cost, logits[:, i])
                logits[:, i] = np.where(going, found, logits[:, i])
                self._add(i, cost * _sigmoid(logits[:, i]) - before)
            going &= largest > self.settings.tolerance
            if not going.any():
                return


def _root(margin: np.ndarray, before: np.ndarray, norm: float, cost: float, start: np.ndarray) -> np.ndarray:
    """u with norm · (cost σ(u) − before) + margin + u = 0, by Newton inside a shrinking bracket."""
    low, high = -margin - norm * (cost - before), -margin + norm * before
    u = np.clip(start, low, high)
    for _ in range(_NEWTON_STEPS):
        share = _sigmoid(u)
        value = norm * (cost * share - before) + margin + u
        going = np.abs(value) >= 1e-9
        low, high = np.where(value > 0, low, u), np.where(value > 0, u, high)
        newton = u - value / (1 + norm * cost * share * (1 - share))
        outside = (newton <= low) | (newton >= high)
        u = np.where(going, np.where(outside, (low + high) / 2, newton), u)
    return u


def _sigmoid(u: np.ndarray | float) -> np.ndarray:
    return 1 / (1 + np.exp(-np.asarray(u)))
