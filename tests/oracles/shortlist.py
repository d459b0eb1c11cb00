"""A training step on pairs of documents and rows, in NumPy."""

import numpy as np

from xclearn.kernels.shortlist import PairLoss, RowPairs, RowRule


def train_pairs(
    x: np.ndarray,
    table: np.ndarray,
    pairs: RowPairs,
    targets: np.ndarray,
    rule: RowRule,
    loss: PairLoss,
    fixed: int | None = None,
) -> tuple[float, np.ndarray]:
    """Loss and gradient (n, W) of the documents; rows of `table` are changed in place."""
    scores = pair_scores(x, table, pairs)
    if loss.hinge:
        sign = 2 * targets - 1
        slack = np.maximum(1 - sign * scores, 0)
        losses, errors = slack**2, -2 * sign * slack
    else:
        losses, errors = np.logaddexp(0, scores) - targets * scores, np.exp(-np.logaddexp(0, -scores)) - targets
    gradient, change = pair_products(x, table, pairs, errors * np.float32(loss.scale))
    if fixed is not None:
        change[:, fixed] = 0
    _move(table, np.unique(pairs.row), change, rule)
    return float(losses.sum(dtype=np.float64) * loss.scale), gradient


def pair_scores(x: np.ndarray, weight: np.ndarray, pairs: RowPairs) -> np.ndarray:
    """x[owner] · weight[row] of each pair (m,)."""
    return np.einsum("ij,ij->i", x[pairs.owner], weight[pairs.row])


def pair_products(
    x: np.ndarray, weight: np.ndarray, pairs: RowPairs, outer: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The gradients of `pair_scores` in `x` (n, W) and `weight` (R, W)."""
    x_gradient, weight_gradient = np.zeros_like(x), np.zeros_like(weight)
    np.add.at(x_gradient, pairs.owner, outer[:, None] * weight[pairs.row])
    np.add.at(weight_gradient, pairs.row, outer[:, None] * x[pairs.owner])
    return x_gradient, weight_gradient


def _move(table: np.ndarray, rows: np.ndarray, gradient: np.ndarray, rule: RowRule) -> None:
    change = gradient[rows]  # (S, W)
    if rule.moments is None:
        table[rows] -= np.float32(rule.rate) * change
        return
    first, second, steps = rule.moments
    steps[rows] += 1
    for moment, beta, value in ((first, rule.betas[0], change), (second, rule.betas[1], change * change)):
        moment[rows] = beta * moment[rows] + (1 - beta) * value
    upper = first[rows] / (1 - rule.betas[0] ** steps[rows])
    lower = np.sqrt(second[rows] / (1 - rule.betas[1] ** steps[rows])) + rule.epsilon
    table[rows] -= np.float32(rule.rate) * upper / lower
