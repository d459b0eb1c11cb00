"""The pieces of a servable against their formulas."""

import numpy as np
import pytest
import scipy.sparse as sp
from handmade import expect_fits

from xclearn.errors import ModelError
from xclearn.inference.components import COMPONENTS, Bag, Classifier, Relu, Residual, Sigmoid

RNG = np.random.default_rng(0)
VECTORS = RNG.standard_normal((4, 3)).astype(np.float32)
WEIGHT = RNG.standard_normal((3, 3)).astype(np.float32)
BIAS = RNG.standard_normal(3).astype(np.float32)


def test_every_piece_has_a_versioned_name_and_says_its_newest():
    assert len(COMPONENTS) >= 6
    for name, cls in COMPONENTS.items():
        stem, dot, version = name.rpartition(".v")
        assert stem
        assert dot
        assert version.isdigit()
        newest, _, last = cls.kind.rpartition(".v")
        assert COMPONENTS[cls.kind] is cls
        assert newest == stem
        assert int(version) <= int(last)


def test_relu():
    assert Relu()(np.array([[-1.0, 0.0, 2.0]])).tolist() == [[0, 0, 2]]


def test_residual():
    expected = [v + np.maximum(WEIGHT @ v + BIAS, 0) for v in VECTORS]
    np.testing.assert_allclose(Residual(WEIGHT, BIAS)(VECTORS), expected, rtol=1e-5)


@pytest.mark.parametrize("form", [sp.csr_matrix, np.asarray])
def test_bag_sums_weighted_rows_and_applies_layers_in_order(form):
    features = np.array([[1, 0, 2], [0, 0, 0]], dtype=np.float32)
    table = np.array([[1, -1], [9, 9], [0.5, -3]], dtype=np.float32)
    bag = Bag(table, [Relu(), Residual(np.eye(2, dtype=np.float32), np.array([0, 1], np.float32))])
    vectors = bag.encode(form(features))
    assert vectors.tolist() == [[4, 1], [0, 1]]  # (2, −7) → (2, 0) → (2, 0) + (2, 1)
    assert vectors.dtype == np.float32
    assert (bag.dim, bag.n_features) == (2, 3)


def test_classifier():
    scorer = Classifier("document", WEIGHT[:2], BIAS[:2])
    expected = VECTORS @ WEIGHT[:2].T + BIAS[:2]
    np.testing.assert_allclose(scorer.score_all(VECTORS), expected, rtol=1e-5)
    ids = np.array([[1, 0, 1]] * 4)
    np.testing.assert_allclose(scorer.score(VECTORS, ids), np.take_along_axis(expected, ids, axis=1), rtol=1e-5)
    assert scorer.n_labels == 2


def test_sigmoid_has_no_overflow_and_keeps_the_order():
    logits = np.array([[-1e4, -100, -5, 0, 5, 100, 1e4]], dtype=np.float32)
    scores = Sigmoid()(None, [logits])
    np.testing.assert_allclose(scores[0, 2:5], [1 / (1 + np.exp(5)), 0.5, 1 / (1 + np.exp(-5))], rtol=1e-6)
    assert scores[0, 0] == 0
    assert scores[0, -1] == 1
    assert (np.diff(scores) >= 0).all()


@pytest.mark.parametrize(
    ("check", "name"),
    [
        (lambda: expect_fits(Residual(WEIGHT[:2], BIAS), dim=3), "residual.v1.weight"),
        (lambda: expect_fits(Residual(WEIGHT, BIAS[:2]), dim=3), "residual.v1.bias"),
        (lambda: expect_fits(Classifier("document", WEIGHT, BIAS[:2]), {"document": 3}), "classifier.v1.bias"),
        (lambda: expect_fits(Classifier("document", WEIGHT, WEIGHT), {"document": 3}), "classifier.v1.bias"),
        (lambda: expect_fits(Classifier("document", WEIGHT, BIAS), {"document": 4}), "classifier.v1.weight"),
        (lambda: expect_fits(Bag(WEIGHT, [Residual(WEIGHT[:2], BIAS)])), "residual.v1.weight"),
        (lambda: expect_fits(Bag(BIAS, [])), "bag.v1.token_embeddings"),
    ],
)
def test_shapes_that_do_not_fit_are_named(check, name):
    with pytest.raises(ModelError, match=name):
        check()
