"""Boosted trees: native code against NumPy, and both against scikit-learn's own."""

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor
from tests.oracles.boosted import boosted_sum

from xclearn.errors import DataError
from xclearn.kernels.boosted import BoostedTrees


def trees_of(model):
    """scikit-learn's trees, one after the other."""
    roots, parts, n = [], [], 0
    for (predictor,) in model._predictors:
        nodes = predictor.nodes
        own, leaf = n + np.arange(len(nodes)), nodes["is_leaf"].astype(bool)
        left, right = (np.where(leaf, own, n + nodes[side]) for side in ("left", "right"))
        parts.append((nodes["feature_idx"], nodes["num_threshold"], left, right, nodes["missing_go_to_left"]))
        parts[-1] += (nodes["value"],)
        roots.append(n)
        n += len(nodes)
    columns, thresholds, left, right, missing, values = (np.concatenate(part) for part in zip(*parts, strict=True))
    base = float(model._baseline_prediction.item())
    return BoostedTrees(np.array(roots), columns, thresholds, (left, right), missing.astype(bool), values, base)


@pytest.fixture(scope="module", params=[2, 20, 32, 33, 60])
def fitted(request):
    """Trees of a few leaves, of as many as a word has bits, and of more."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((800, 5)).astype(np.float32)
    rows[rng.random(rows.shape) < 0.2] = np.nan
    rows[:, 4] = np.round(rows[:, 4])  # values that are thresholds
    target = np.nan_to_num(rows[:, 0]) * np.isnan(rows[:, 1]) + np.sin(np.nan_to_num(rows[:, 4]))
    model = HistGradientBoostingRegressor(
        max_iter=40, max_leaf_nodes=request.param, min_samples_leaf=3, early_stopping=False
    ).fit(rows, target)
    return model, trees_of(model), rows


def test_the_sum_is_that_of_scikit_learn(fitted):
    model, trees, rows = fitted
    expected = model.predict(rows)
    np.testing.assert_allclose(trees(rows), expected, rtol=1e-12)
    np.testing.assert_allclose(boosted_sum(trees, rows), expected, rtol=1e-12)


@pytest.mark.parametrize("n", [0, 1, 31, 32, 33, 800])
def test_both_forms_give_the_same_bits_at_any_number_of_threads(fitted, n):
    _, trees, rows = fitted
    expected = boosted_sum(trees, rows[:n])
    for n_threads in (1, 2, 7):
        np.testing.assert_array_equal(trees(rows[:n], n_threads), expected)


def stump(threshold, value, *, missing_left=False):
    """−1 up to the threshold, 1 above it."""
    trees = BoostedTrees(
        np.array([0]),
        np.array([0, 0, 0]),
        np.array([threshold, 0, 0]),
        (np.array([1, 1, 2]), np.array([2, 1, 2])),
        np.array([missing_left, False, False]),
        np.array([0, -1.0, 1.0]),
        0.5,
    )
    return trees(np.array([[value]], np.float32)).item() - 0.5


def test_values_at_the_threshold_and_missing_ones():
    between = float(np.nextafter(np.float32(0.3), np.float32(1))) - 1e-9  # between two floats, nearer to the larger
    assert stump(between, 0.3) == -1
    assert stump(between, np.nextafter(np.float32(0.3), np.float32(1))) == 1
    assert stump(0.25, 0.25) == -1
    assert stump(np.inf, np.inf) == -1
    assert stump(0.0, np.nan) == 1
    assert stump(0.0, np.nan, missing_left=True) == -1


@pytest.mark.parametrize(
    ("left", "right", "columns", "roots"),
    [
        ([1, 1, 2], [3, 1, 2], [0, 0, 0], [0]),  # beyond the nodes
        ([-1, 1, 2], [2, 1, 2], [0, 0, 0], [0]),
        ([1, 0, 2], [2, 0, 2], [0, 0, 0], [0]),  # in a circle
        ([1, 1, 2], [2, 1, 2], [-1, 0, 0], [0]),
        ([0, 1, 2], [2, 1, 2], [0, 0, 0], [0]),  # half a leaf
        ([1, 1, 2], [2, 1, 2], [0, 0, 0], [3]),
        ([1, 1], [2, 1], [0, 0, 0], [0]),  # lengths differ
    ],
)
def test_trees_that_lead_outside_are_refused(left, right, columns, roots):
    parts = np.array(roots), np.array(columns), np.zeros(3), (np.array(left), np.array(right)), np.zeros(3, bool)
    with pytest.raises(ValueError, match=r"tree"):
        BoostedTrees(*parts, np.zeros(3), 0.0)(np.zeros((1, 1), np.float32))


def test_rows_that_do_not_fit_are_refused(fitted):
    _, trees, rows = fitted
    with pytest.raises(DataError, match="wrong dimensions or type"):
        trees(rows.astype(np.float64))
    with pytest.raises(ValueError, match="a column that the rows do not have"):
        trees(rows[:, :4])
