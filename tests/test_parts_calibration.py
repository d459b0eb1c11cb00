"""The tree that is served against scikit-learn's own answers."""

import numpy as np
import pytest
from handmade import expect_fits
from sklearn.tree import DecisionTreeClassifier

from xclearn.errors import DataError
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
    counts = 1 + np.arange(L) % 5
    tree = calibration_tree(Calibration(depth=depth, weight=1.0), ids, now, before, right, counts)
    expect_fits(tree, labels=L)
    there = ids >= 0
    values = calibration_features(ids, now, before, counts.astype(np.float32))[there]
    oracle = DecisionTreeClassifier(max_depth=depth, random_state=0).fit(values, right[there])
    np.testing.assert_allclose(tree(ids, now, before)[there], oracle.predict_proba(values)[:, 1], rtol=1e-6)
    assert tree.depth == depth


@pytest.mark.parametrize("all_right", [False, True])
def test_answers_that_are_all_right_or_all_wrong_make_a_leaf(answers, all_right):
    ids, now, before, _ = answers
    right = np.full(ids.shape, all_right)
    tree = calibration_tree(Calibration(weight=1.0), ids, now, before, right, np.ones(L))
    expect_fits(tree, labels=L)
    assert (tree(ids, now, before) == float(all_right)).all()


@pytest.mark.parametrize(("useful", "weights"), [(True, (0.1, 0.3, 0.6, 1.0)), (False, (0.0,))])
def test_the_weight_is_what_ranks_other_documents_better(useful, weights):
    """Labels of one kind are right more often than their scores say; or the scores are right, and a tree is coarser."""
    random = np.random.default_rng(0)
    ids, now = np.stack([random.permutation(L)[:M] for _ in range(N)]), random.random((N, M))
    right = random.random((N, M)) < np.where(ids % 2 == 0, 0.9, 0.1) if useful else now > np.sort(now, axis=1)[:, -3:-2]
    tree = calibration_tree(Calibration(depth=1), ids, now, now, right, 1 + np.arange(L) % 2)
    assert tree.weight in weights


def test_a_weight_that_is_ahead_by_chance_is_not_taken():
    """Where scores and counts say nothing, a tree ranks other documents better by luck, about as often as not."""
    random = np.random.default_rng(0)
    taken = 0
    for _ in range(40):
        ids, now = np.stack([random.permutation(L)[:M] for _ in range(N)]), random.random((N, M))
        right = random.random((N, M)) < 0.2
        taken += calibration_tree(Calibration(depth=2), ids, now, now, right, np.arange(L)).weight > 0
    print(f"taken {taken} times of 40")
    assert taken <= 8


def test_missing_labels_do_not_disturb_the_choice(answers):
    ids, now, before, right = answers
    missing = tuple(np.where(ids < 0, -np.inf, scores) for scores in (now, before))
    trees = [calibration_tree(Calibration(), ids, *scores, right, np.ones(L)) for scores in ((now, before), missing)]
    assert trees[0].weight == trees[1].weight
    assert (trees[0].chances == trees[1].chances).all()


def test_a_label_that_was_not_trained_teaches_nothing():
    """That such labels are always right is due to the documents asked about."""
    random = np.random.default_rng(0)
    counts = np.repeat([0, 1, 9], [10, 20, 20])
    ids = np.array([random.permutation(50)[:20] for _ in range(200)])
    scores = random.random(ids.shape).astype(np.float32)
    right = (counts[ids] == 0) | (random.random(ids.shape) < 0.1)
    tree = calibration_tree(Calibration(weight=1.0), ids, scores, scores, right, counts)
    untrained, rare = (tree(np.full((1, 9), label), *[np.linspace(0, 1, 9)[None]] * 2) for label in (0, 10))
    print(untrained, rare)
    assert (untrained == rare).all()
    assert rare.mean() < 0.3
    assert calibration_tree(Calibration(), ids, scores, scores, right, counts).weight == 0


def test_labels_of_which_none_was_trained_are_refused(answers):
    with pytest.raises(DataError, match=r"no label predicted .* got 'none with a training document'\. Leave"):
        calibration_tree(Calibration(), *answers, np.zeros(L))


def test_few_documents_get_the_usual_weight(answers):
    few = tuple(part[:1] for part in answers)
    assert calibration_tree(Calibration(), *few, np.ones(L)).weight == 0.3
