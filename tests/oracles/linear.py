"""Sparse linear classifiers by dual coordinate descent in NumPy.

Examples are visited in the order of the native kernel, all problems of a group together.
"""

from typing import final

import numpy as np
import scipy.sparse as sp
from tests.oracles.random import splitmix64

from xclearn.kernels.linear import Linear, Problems, SparseWeights

_NEWTON_STEPS = 20
_VALUES_AT_ONCE = 1 << 20  # values of documents held dense at a time: 4 MB, and many times that of products
_LEAST_LOGIT = float(np.log(1e-8))  # where a dual variable of the logistic loss starts


def listed_logits(documents: sp.csr_matrix, weights: SparseWeights, ids: np.ndarray) -> np.ndarray:
    """w_l · x of each listed pair (n, m), 0 where an id is −1; some documents at a time, as each is held dense."""
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


def train_linear(
    problems: Problems,
    settings: Linear,
    seed: int,
    n_threads: int = 1,  # noqa: ARG001
) -> tuple[sp.csr_matrix, np.ndarray]:
    """Weights (P, V) and biases (P,), float32, of all problems."""
    n_features = problems.features.shape[1]
    biases, weights = [np.empty(0, np.float32)], [sp.csr_matrix((0, n_features), dtype=np.float32)]
    for group in range(problems.groups.shape[0]):
        random = splitmix64(splitmix64(np.array([seed], dtype=np.uint64)) ^ np.uint64(group))
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
    high = splitmix64(random ^ wide) >> np.uint64(32) << np.uint64(32)
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
        entries = slice(self.rows.indptr[i], self.rows.indptr[i + 1])
        return self.rows.indices[entries], self.rows.data[entries]

    def _squared_hinge(self, random: np.ndarray) -> None:
        n_problems, n = self.sign.shape
        dual, active = np.zeros((n_problems, n)), np.ones((n_problems, n), dtype=bool)
        going, whole = np.ones(n_problems, dtype=bool), np.ones(n_problems, dtype=bool)
        for number in range(self.settings.max_passes):
            active[whole] = True
            largest = np.zeros(n_problems)
            shuffled = _shuffled(np.arange(n), splitmix64(random ^ np.uint64(number)))
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
            for i in _shuffled(np.arange(n), splitmix64(random ^ np.uint64(number))):
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
