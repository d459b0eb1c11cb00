"""The pieces that MACH serves, against the formulas label by label."""

import dataclasses
import math

import numpy as np
import pytest
import scipy.sparse as sp
from handmade import expect_fits

from xclearn.errors import ModelError
from xclearn.inference.arrays import sigmoid
from xclearn.inference.components import Bag, Relu
from xclearn.inference.hashed import Affine, BucketClassifier, Joined

N, D, R, B, LABELS, V = 4, 3, 2, 5, 9, 7
RNG = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


VECTORS = normal(N, R * D)


def classifier(*, geometric: bool = False) -> BucketClassifier:
    buckets = RNG.integers(B, size=(R, LABELS)).astype(np.int32)
    return BucketClassifier("v", normal(R, B, D), normal(R, B), buckets, geometric)


def chance(made: BucketClassifier, row: int, label: int) -> float:
    """By hand: the mean over repetitions of the probability of the label's bucket."""
    found = []
    for repetition in range(R):
        bucket = made.bucket_of_label[repetition, label]
        own = VECTORS[row, repetition * D : (repetition + 1) * D]
        logit = own @ made.weight[repetition, bucket] + made.bias[repetition, bucket]
        found.append(1 / (1 + math.exp(-logit)))
    return math.prod(found) ** (1 / R) if made.geometric else sum(found) / R


@pytest.mark.parametrize("geometric", [False, True], ids=["mean", "geometric"])
def test_a_label_has_the_mean_probability_of_its_buckets(geometric):
    made = classifier(geometric=geometric)
    expect_fits(made, {made.vector: R * D})
    every = made.score_all(VECTORS)
    expected = [[chance(made, row, label) for label in range(LABELS)] for row in range(N)]
    np.testing.assert_allclose(sigmoid(every), expected, rtol=1e-5)
    ids = RNG.integers(LABELS, size=(N, 6))
    np.testing.assert_allclose(made.score(VECTORS, ids), np.take_along_axis(every, ids, axis=1), rtol=1e-5)
    assert made.n_labels == LABELS


@pytest.mark.parametrize("geometric", [False, True], ids=["mean", "geometric"])
def test_extreme_logits_stay_finite(geometric):
    """An infinite logit would be taken for a label that is missing."""
    made = dataclasses.replace(classifier(geometric=geometric), bias=np.full((R, B), 0, np.float32))
    for size in (1e4, -1e4):
        scores = dataclasses.replace(made, bias=np.full((R, B), size, np.float32)).score_all(VECTORS)
        assert np.isfinite(scores).all()
        np.testing.assert_allclose(sigmoid(scores), float(size > 0), atol=1e-6)


def test_joined_encoders_stand_side_by_side():
    encoders = [Bag(normal(V, D), [Relu()]) for _ in range(R)]
    joined = Joined(list(encoders))
    expect_fits(joined, features=V)
    features = sp.csr_matrix(normal(N, V))
    expected = np.hstack([np.maximum(features @ each.token_embeddings, 0) for each in encoders])
    np.testing.assert_allclose(joined.encode(features), expected, atol=1e-6)
    assert (joined.dim, joined.n_features) == (R * D, V)
    for wrong in ([], [encoders[0], Bag(normal(V + 1, D), [])]):
        with pytest.raises(ModelError, match=r"joined\.v1|bag\.v1"):
            expect_fits(Joined(wrong), features=V)


def test_an_affine_layer():
    weight, bias, vectors = normal(D, D), normal(D), normal(N, D)
    np.testing.assert_allclose(Affine(weight, bias)(vectors), [weight @ v + bias for v in vectors], atol=1e-6)
    with pytest.raises(ModelError):
        expect_fits(Affine(weight, bias), dim=D + 1)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("weight", normal(R, B, D + 1)),
        ("weight", normal(B, D)),
        ("weight", normal(0, B, D)),
        ("bias", normal(R, B + 1)),
        ("bucket_of_label", np.full((R, LABELS), B, np.int32)),
        ("bucket_of_label", np.full((R, LABELS), -1, np.int32)),
        ("bucket_of_label", np.zeros((R, LABELS), np.int64)),
        ("bucket_of_label", np.zeros((R + 1, LABELS), np.int32)),
        ("bucket_of_label", np.zeros((R, 0), np.int32)),
    ],
)
def test_tensors_that_do_not_fit_are_refused(field, value):
    with pytest.raises(ModelError):
        expect_fits(dataclasses.replace(classifier(), **{field: value}), {classifier().vector: R * D})
