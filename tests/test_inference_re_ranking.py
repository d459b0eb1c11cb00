"""Sparse rankers and calibration trees against plain computations, and what a hostile file gets."""

import dataclasses

import numpy as np
import pytest
import scipy.sparse as sp
from handmade import expect_fits

from xclearn.errors import ModelError
from xclearn.inference.re_ranking import CalibrationTree, ReRanking, SparseRanker

N, V, D, L = 7, 30, 4, 12
DIMS = {"bag": V, "vector": D}


@pytest.fixture
def vectors() -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    bag = sp.random(N, V, 0.3, format="csr", random_state=1, dtype=np.float32)
    return {"bag": bag, "vector": random.normal(size=(N, D)).astype(np.float32)}


@pytest.fixture
def weights() -> sp.csr_matrix:
    return sp.random(L, V + D, 0.4, format="csr", random_state=2, dtype=np.float32)


@pytest.fixture
def ids() -> np.ndarray:
    random = np.random.default_rng(3)
    ids = np.stack([random.permutation(L)[:5] for _ in range(N)])
    ids[2, 3:] = -1
    return ids


BIAS = np.linspace(-1, 1, L, dtype=np.float32)


@pytest.mark.parametrize("vector", ["vector", ""])
def test_a_ranker_keeps_the_share_of_its_cubic_hinge(vectors, weights, ids, vector):
    matrix = weights if vector else weights[:, :V]
    found = SparseRanker.of("bag", vector, matrix, BIAS)(vectors, ids)
    dense = vectors["bag"].toarray()
    if vector:
        dense = np.hstack([dense, vectors["vector"] / np.linalg.norm(vectors["vector"], axis=1, keepdims=True)])
    logits = dense @ matrix.toarray().T + BIAS
    expected = np.exp(-(np.maximum(1 - logits, 0) ** 3))
    for row, own in enumerate(ids):
        np.testing.assert_allclose(found[row][own >= 0], expected[row][own[own >= 0]], rtol=1e-5)


def test_no_documents_get_no_shares(vectors, weights, ids):
    none = {name: rows[:0] for name, rows in vectors.items()}
    assert SparseRanker.of("bag", "vector", weights, BIAS)(none, ids[:0]).shape == (0, 5)


def tree(weight: float = 1.0) -> CalibrationTree:
    """Labels of up to 5 documents are right once in ten, others by their score: above 0.5 nine times."""
    return CalibrationTree(
        columns=np.array([2, 0, 0, 0, 0]),
        thresholds=np.array([5, 0, 0.5, 0, 0]),
        left=np.array([1, 1, 3, 3, 4]),
        right=np.array([2, 1, 4, 3, 4]),
        chances=np.array([0, 0.1, 0, 0.2, 0.9], dtype=np.float32),
        label_counts=np.arange(L, dtype=np.float32),
        depth=2,
        weight=weight,
    )


def test_a_tree_by_hand():
    ids, now = np.array([[5, 6, 7, -1]]), np.array([[0.9, 0.9, 0.5, 0]])
    np.testing.assert_allclose(tree()(ids, now, now)[0, :3], [0.1, 0.9, 0.2])
    np.testing.assert_allclose(tree(0.25)(ids, now, now)[0, :3], 0.25 * np.array([0.1, 0.9, 0.2]) + 0.75 * now[0, :3])


def test_a_step_multiplies_then_calibrates_and_leaves_what_is_missing(vectors, weights, ids):
    ranker, scores = SparseRanker.of("bag", "vector", weights, BIAS), np.linspace(0.9, 0.1, 5) * np.ones((N, 1))
    scores = np.where(ids < 0, -np.inf, scores)
    share, there = ranker(vectors, ids), ids >= 0
    found, ranked = ReRanking(5, ranker, None)(vectors, ids, scores)
    assert (found == ids).all()
    np.testing.assert_allclose(ranked[there], (scores * share)[there], rtol=1e-6)
    _, calibrated = ReRanking(5, ranker, tree(0.3))(vectors, ids, scores)
    expected = tree(0.3)(ids, np.where(there, scores, 0) * share, np.where(there, scores, 0))
    np.testing.assert_allclose(calibrated[there], expected[there], rtol=1e-6)
    assert np.isneginf(ranked[~there]).all()
    assert np.isneginf(calibrated[~there]).all()


DAMAGES = {
    "another bag": lambda step: _ranker(step, bag="other"),
    "another vector": lambda step: _ranker(step, vector="other"),
    "too few labels": lambda step: _ranker(step, bias=BIAS[1:]),
    "features out of range": lambda step: _ranker(step, features=step.ranker.features + V),
    "other weights": lambda step: _ranker(step, weights=step.ranker.weights.astype(np.float64)),
    "starts that do not walk": lambda step: _ranker(step, starts=step.ranker.starts[::-1].copy()),
    "a node that leads out": lambda step: _tree(step, left=np.array([1, 1, 3, 3, 9])),
    "a column that is not there": lambda step: _tree(step, columns=np.array([3, 0, 0, 0, 0])),
    "nodes of another length": lambda step: _tree(step, chances=np.zeros(2, np.float32)),
    "counts of other labels": lambda step: _tree(step, label_counts=np.zeros(2, np.float32)),
    "a weight above one": lambda step: _tree(step, weight=1.5),
    "no depth": lambda step: dataclasses.replace(step, depth=0),
}


def _ranker(step: ReRanking, **changes: object) -> ReRanking:
    return dataclasses.replace(step, ranker=dataclasses.replace(step.ranker, **changes))


def _tree(step: ReRanking, **changes: object) -> ReRanking:
    return dataclasses.replace(step, calibration=dataclasses.replace(step.calibration, **changes))


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_tensors_that_do_not_fit_are_refused(weights, damage):
    step = ReRanking(5, SparseRanker.of("bag", "vector", weights, BIAS), tree())
    expect_fits(step, DIMS, "bag", labels=L)
    with pytest.raises(ModelError):
        expect_fits(damage(step), DIMS, "bag", labels=L)
