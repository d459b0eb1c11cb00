"""The sum of boosted trees in NumPy: all rows go down one tree together."""

import numpy as np

from xclearn.kernels.boosted import BoostedTrees


def boosted_sum(trees: BoostedTrees, rows: np.ndarray) -> np.ndarray:
    """Sum (m,) float64 of the leaf values reached by each row (m, F); a NaN is a missing value."""
    total, row = np.full(len(rows), float(trees.base)), np.arange(len(rows))
    for root in trees.roots.tolist():
        node = np.full(len(rows), root)
        while len(rows) and (trees.left[node] != node).any():
            own = rows[row, trees.columns[node]]
            goes_left = np.where(np.isnan(own), trees.missing_left[node], own <= trees.thresholds[node])
            node = np.where(goes_left, trees.left[node], trees.right[node])
        total += trees.values[node]
    return total
