"""Stackers: each against the formula it states, and against scikit-learn where that has the same."""

import dataclasses

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from tests.oracles.boosted import boosted_sum

from xclearn.errors import ModelError
from xclearn.inference.declared import Scope, check
from xclearn.inference.stackers import Isotonic, LinearStacker, MeanStacker, TreeStacker
from xclearn.parts.probabilities import calibrated
from xclearn.parts.stacking import _linear, _trees


def evidence(n: int = 3_000, missing: float = 0.2) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    values = rng.normal(size=(n, 4)).astype(np.float32)
    right = rng.random(n) < 1 / (1 + np.exp(-(values[:, 0] + values[:, 1] * values[:, 2] - 1)))
    values[rng.random(values.shape) < missing] = np.nan
    return values, right, np.ones(n)


def test_a_linear_stacker_by_hand():
    stacker = LinearStacker(np.array([2.0, 1.0]), np.array([-1.0, 0.5]), 0.25)
    found = stacker(np.array([[1, 2], [np.nan, 2], [-3, np.nan]], dtype=np.float32))
    assert found.tolist() == [2 + 2 + 0.25, -2 + 2 + 0.25, -2 + 0.5 + 0.25]


def test_trees_are_those_of_scikit_learn():
    values, right, weights = evidence()
    found = _trees(values, right, weights)
    assert isinstance(found, TreeStacker)
    settings = {"max_iter": 100, "learning_rate": 0.1, "max_leaf_nodes": 31, "min_samples_leaf": 40}
    model = HistGradientBoostingClassifier(**settings, l2_regularization=1.0, early_stopping=False, random_state=0).fit(
        values, right, sample_weight=weights
    )
    np.testing.assert_allclose(found(values), model.decision_function(values), atol=1e-5)
    check(found, Scope({"values": 4}))


def test_trees_in_numpy_are_the_native_ones():
    values, right, weights = evidence()
    found = _trees(values, right, weights)
    assert isinstance(found, TreeStacker)
    np.testing.assert_allclose(found(values), boosted_sum(found._trees, values), atol=1e-6)


def test_the_linear_stacker_is_a_logistic_regression():
    values, right, weights = evidence(missing=0.0)
    found = _linear(values, right, weights)
    scaled = (values - values.mean(axis=0)) / (values.std(axis=0) + 1e-6)
    model = LogisticRegression(max_iter=300).fit(scaled, right)
    np.testing.assert_allclose(found(values), model.decision_function(scaled), atol=1e-3)


def test_the_mean_of_two_stackers():
    values, right, weights = evidence()
    linear, trees = _linear(values, right, weights), _trees(values, right, weights)
    assert isinstance(linear, LinearStacker)
    assert isinstance(trees, TreeStacker)
    both = MeanStacker(linear, trees)
    np.testing.assert_allclose(both(values), (linear(values) + trees(values)) / 2)
    check(both, Scope({"values": 4}))


def test_calibrated_probabilities_are_the_shares_of_what_is_right():
    """The truth is planted: a logit z is right with probability σ(2z − 1)."""
    rng = np.random.default_rng(0)
    logits = rng.normal(size=40_000)
    truth = 1 / (1 + np.exp(-(2 * logits - 1)))
    line = calibrated(logits, rng.random(len(logits)) < truth)
    assert np.abs(line(logits) - truth).mean() < 0.02
    few = calibrated(logits[:600], rng.random(600) < truth[:600])
    assert np.abs(few(logits) - truth).mean() < 0.08
    for points in (line, few):
        check(points, Scope())


def test_what_nothing_can_be_learnt_from():
    values = np.zeros((3, 2), dtype=np.float32)
    assert calibrated(np.zeros(3), np.zeros(3, dtype=bool))(np.ones(2)).tolist() == [0, 0]
    assert (_linear(values, np.zeros(3, dtype=bool), np.ones(3))(values) < 0).all()


def test_a_source_that_says_nothing_takes_no_part():
    values, right, weights = evidence()
    silent = np.column_stack([values, np.full(len(values), np.nan, np.float32)])
    for fit in (_linear, _trees):
        np.testing.assert_allclose(fit(silent, right, weights)(silent), fit(values, right, weights)(values), atol=1e-6)


def test_damaged_stackers_are_refused():
    values, right, weights = evidence()
    trees = _trees(values, right, weights)
    assert isinstance(trees, TreeStacker)
    back = trees.left.copy()
    back[3] = 0
    with pytest.raises(ModelError, match="a child precedes its parent"):
        check(dataclasses.replace(trees, left=back), Scope({"values": 4}))
    with pytest.raises(ModelError, match="out of range"):
        check(trees, Scope({"values": 1}))
    with pytest.raises(ModelError, match="must not decrease"):
        check(Isotonic(np.array([0.0, 1.0]), np.array([0.5, 0.2])), Scope())
