"""The tree that is served against scikit-learn's own answers."""

import numpy as np
import pytest
from sklearn.tree import DecisionTreeClassifier

from xclearn.inference.re_ranking import calibration_features
from xclearn.parts.calibration import Calibration, calibration_tree

N, M, L = 200, 10, 30


@pytest.fixture
def answers() -> tuple[np.ndarray, ...]:
    random = np.random.default_rng(0)
    ids = np.stack([random.permutation(L)[:M] for _ in range(N)])
    ids[:, -1] = -1
    now, before = random.random((2, N, M))
    return ids, now, before, random.random((N, M)) < now * (ids % 5 > 1)


@pytest.mark.parametrize("depth", [1, 5])
def test_the_tree_answers_as_scikit_learn(answers, depth):
    ids, now, before, right = answers
    counts = np.arange(L) % 5
    tree = calibration_tree(Calibration(depth=depth, weight=1.0), ids, now, before, right, counts)
    tree.check(L)
    there = ids >= 0
    values = calibration_features(ids, now, before, counts.astype(np.float32))[there]
    oracle = DecisionTreeClassifier(max_depth=depth, random_state=0).fit(values, right[there])
    np.testing.assert_allclose(tree(ids, now, before)[there], oracle.predict_proba(values)[:, 1], rtol=1e-6)
    assert tree.depth == depth


@pytest.mark.parametrize("all_right", [False, True])
def test_answers_that_are_all_right_or_all_wrong_make_a_leaf(answers, all_right):
    ids, now, before, _ = answers
    right = np.full(ids.shape, all_right)
    tree = calibration_tree(Calibration(weight=1.0), ids, now, before, right, np.zeros(L))
    tree.check(L)
    assert (tree(ids, now, before) == float(all_right)).all()
