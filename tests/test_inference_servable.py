"""Prediction worked out by hand, and by brute force in blocks."""

import numpy as np
import pytest
import scipy.sparse as sp
from handmade import BIAS, WEIGHT, servable

from xclearn.errors import ConfigError, DataError, ModelError
from xclearn.inference import servable as servables
from xclearn.inference.components import AllLabels, Bag, Classifier, Relu, Sigmoid
from xclearn.inference.servable import Servable
from xclearn.text.vectorisers import SparseVectoriser


def sigmoid(logits: list[float]) -> list[float]:
    return [1 / (1 + np.exp(-logit)) for logit in logits]


def test_by_hand():
    """blue: sky 3, leaf 0, berry 0, night 1 − 2. green: leaf 2, sky 0, berry 0, night −3. Ties by label id."""
    ids, scores = servable().predict(["blue", "green"], 4)
    assert ids.tolist() == [[0, 1, 2, 3], [1, 0, 2, 3]]
    np.testing.assert_allclose(scores, [sigmoid([3, 0, 0, -1]), sigmoid([2, 0, 0, -3])], rtol=1e-6)
    assert (ids.dtype, scores.dtype) == (np.int64, np.float32)


def test_two_words_share_the_length_of_one():
    ids, scores = servable().predict(["blue red"], 2)
    assert ids.tolist() == [[2, 0]]
    np.testing.assert_allclose(scores, [sigmoid([4 / 2**0.5, 3 / 2**0.5])], rtol=1e-6)


def test_an_empty_text_gets_the_biases():
    ids, scores = servable().predict([""], 4)
    assert ids.tolist() == [[0, 1, 2, 3]]
    np.testing.assert_allclose(scores, [sigmoid([0, 0, 0, -2])], rtol=1e-6)


def test_excluded_pairs_are_not_predicted():
    pairs = np.array([[1, 1], [0, 3], [1, 0]])
    ids, scores = servable().predict(["blue", "green"], 4, pairs)
    assert ids.tolist() == [[0, 1, 2, -1], [2, 3, -1, -1]]
    assert np.isneginf(scores[ids < 0]).all()
    np.testing.assert_allclose(scores[1, :2], sigmoid([0, -3]), rtol=1e-6)


def random_servable(n_labels: int = 300) -> tuple[Servable, sp.csr_matrix]:
    rng = np.random.default_rng(0)
    bag = Bag(rng.standard_normal((20, 8)).astype(np.float32), [Relu()])
    scorer = Classifier(
        "document", *(rng.standard_normal(shape).astype(np.float32) for shape in ((n_labels, 8), n_labels))
    )
    documents = sp.random(50, 20, density=0.3, format="csr", dtype=np.float32, rng=rng)
    return Servable(SparseVectoriser(20), {"document": bag}, AllLabels(), [scorer], Sigmoid()), documents


@pytest.mark.parametrize("at_once", [1, 700, 1 << 24], ids=["a row at a time", "two rows", "all"])
def test_blocks_of_documents_change_nothing(monkeypatch, at_once):
    made, documents = random_servable()
    exclude = np.array([[49, 7], [0, 1], [25, 3], [25, 4]])
    vectors = made.encoders["document"].encode(made.vectoriser.transform(documents))
    logits = made.scorers[0].score_all(vectors)
    logits[exclude[:, 0], exclude[:, 1]] = -np.inf
    expected = np.argsort(-logits, axis=1, kind="stable")[:, :5]
    monkeypatch.setattr(servables, "_SCORES_AT_ONCE", at_once)
    ids, scores = made.predict(documents, 5, exclude)
    assert (ids == expected).all()
    np.testing.assert_allclose(scores, 1 / (1 + np.exp(-np.take_along_axis(logits, expected, 1))), rtol=1e-5)


def test_k_is_clipped_and_checked():
    assert servable().predict(["blue"], 9).ids.shape == (1, 4)
    assert servable().predict(["blue"], np.int64(2)).ids.shape == (1, 2)
    for k in (0, -3, 1.0, "1"):
        with pytest.raises(ConfigError, match="k must be at least 1"):
            servable().predict(["blue"], k)


def test_other_documents_are_refused():
    with pytest.raises(DataError, match="got 'dense features'; allowed: texts"):
        servable().predict(np.zeros((1, 3)), 1)


def test_parts_that_fit_pass():
    servable().check()


NARROW = np.eye(2, dtype=np.float32)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"encoders": {"document": Bag(NARROW, [])}}, "bag.v1.token_embeddings"),
        ({"encoders": {"other": Bag(np.eye(3, dtype=np.float32), [])}}, "a vector that no encoder makes"),
        ({"scorers": []}, "no scorer"),
        ({"scorers": [Classifier("document", WEIGHT, BIAS)] * 2}, "sigmoid.v1 reads one scorer; got 2"),
        (
            {"scorers": [Classifier("document", WEIGHT[:, :2], BIAS)]},
            "classifier.v1.weight: the tensor",
        ),
        (
            {"scorers": [Classifier("document", WEIGHT, BIAS), Classifier("document", WEIGHT[:2], BIAS[:2])]},
            "labels = 4",
        ),
    ],
)
def test_parts_that_do_not_fit_each_other_are_refused(parts, message):
    with pytest.raises(ModelError) as caught:
        servable(**parts).check()
    assert message in str(caught.value)
