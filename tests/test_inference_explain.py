"""What each token adds: by hand, as a sum that must be the logit, and by leaving words out."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from served import NAMES, model_folder

from xclearn.data.dataset import LabelSet
from xclearn.inference import Model, Predictor
from xclearn.inference.components import AllLabels, Bag, Classifier, GatedBlock, Product, Relu, Residual, Sigmoid, Unit
from xclearn.inference.explain import MOST_WORDS, explain, unknown_words
from xclearn.inference.exported import PackedClassifier, PackedRows
from xclearn.inference.servable import Ensemble, Servable
from xclearn.text.vectorisers import WordVectoriser
from xclearn.text.weighting import Weighting

TOKENS = [f"word{i}" for i in range(12)]
DIM, N_LABELS = 6, 4
NO_ORDER = np.empty(0, np.int32)


def predictor_of(servable: Servable | Ensemble, names: list[str]) -> Predictor:
    servable.check()
    return Predictor(Model(servable, LabelSet(names), {}))


def by_hand() -> Servable:
    """Two tokens, two dimensions, weights of one."""
    vectoriser = WordVectoriser(["up", "down"], Weighting(np.ones(2), sublinear=False, normalise=False))
    table = np.array([[1.0, 2.0], [-3.0, 1.0]], np.float32)
    residual = Residual(np.array([[1.0, 0.0], [0.0, -1.0]], np.float32), np.array([0.5, 1.0], np.float32))
    rows = Classifier("document", np.array([[2.0, 1.0]], np.float32), np.array([0.25], np.float32))
    return Servable(vectoriser, {"document": Bag(table, [Relu(), residual])}, AllLabels(), [rows], Sigmoid())


def test_a_network_small_enough_to_do_by_hand() -> None:
    """up + up + down: the bag is (−1, 5), after ReLU (0, 5). Residual: W v + b = (0.5, −4), of which (0.5, 0) passes,
    so v = (0.5, 5) and the logit is 2 · 0.5 + 5 + 0.25 = 6.25. Of the tokens only the second dimension passed."""
    (found,) = explain(predictor_of(by_hand(), ["one"]), "up up down", np.array([0]))
    assert found.exact
    assert found.value == pytest.approx(6.25)
    assert dict(found.tokens) == pytest.approx({"up": 4.0, "down": 1.0})
    assert found.rest == pytest.approx(1.25)


def test_words_that_no_part_reads_are_named_once() -> None:
    assert unknown_words(by_hand(), "Up over down OVER under, up") == ["over", "under"]
    other = replace(by_hand(), vectoriser=WordVectoriser(["over", "x"], Weighting(np.ones(2), False, False)))
    assert unknown_words(Ensemble([by_hand(), other]), "Up over under") == ["under"]
    assert unknown_words(by_hand(), "") == []


def random_servable(seed: int) -> Servable:
    rng = np.random.default_rng(seed)
    array = lambda *shape: rng.normal(size=shape).astype(np.float32)  # noqa: E731
    gates = [rng.random(DIM).astype(np.float32) for _ in range(2)]
    layers = [GatedBlock(array(DIM, DIM), array(DIM), *gates), Relu(), Residual(array(DIM, DIM), array(DIM))]
    vectoriser = WordVectoriser(TOKENS, Weighting(1 + rng.random(len(TOKENS)), sublinear=True, normalise=True))
    encoder = Bag(array(len(TOKENS), DIM), [*layers, *layers[:1]])
    classifier = Classifier("document", array(N_LABELS, DIM), array(N_LABELS))
    return Servable(vectoriser, {"document": encoder}, AllLabels(), [classifier], Sigmoid())


def test_rows_that_stand_by_label_are_found() -> None:
    """As `xc export` writes them where there are no clusters: no order of their own."""
    servable = by_hand()
    rows = PackedClassifier(
        "document", PackedRows.of(servable.scorers[0].weight, servable.scorers[0].bias, "fp32"), NO_ORDER
    )
    (found,) = explain(predictor_of(replace(servable, scorers=[rows]), ["one"]), "up up down", np.array([0]))
    assert found.value == pytest.approx(6.25)


def logits(servable: Servable, text: str) -> np.ndarray:
    vectors = servable.encoders["document"].encode(servable.vectoriser.transform([text]))
    return servable.scorers[0].score_all(vectors)[0]  # (L,)


def with_unit_vectors(servable: Servable) -> Servable:
    """The same, but its vectors are scaled to length one before the classifier."""
    bag = servable.encoders["document"]
    return replace(servable, encoders={"document": replace(bag, layers=[*bag.layers, Unit()])})


@given(st.integers(0, 1000), st.lists(st.sampled_from([*TOKENS, "unknown"]), max_size=12), st.booleans())
def test_tokens_and_biases_sum_to_the_logit(seed, words, scaled) -> None:
    servable, text = random_servable(seed), " ".join(words)
    servable = with_unit_vectors(servable) if scaled else servable
    labels = np.array([2, 0, 3])
    for found, logit in zip(
        explain(predictor_of(servable, list("abcd")), text, labels), logits(servable, text)[labels], strict=True
    ):
        assert found.exact
        assert found.value == pytest.approx(float(logit), rel=1e-4, abs=1e-4)
        assert sum(part for _, part in found.tokens) + found.rest == pytest.approx(found.value, abs=1e-9)
        assert {token for token, _ in found.tokens} == set(words) - {"unknown"}


@given(st.integers(0, 1000))
def test_a_small_change_of_an_embedding_moves_the_logit_as_the_part_says(seed) -> None:
    """While no ReLU turns over, a token whose embedding grows by a share adds that share of its part more."""
    servable, text, share = random_servable(seed), " ".join(TOKENS[:5]), 1e-4
    encoder = servable.encoders["document"]
    table = encoder.token_embeddings.astype(np.float64)
    exact = replace(servable, encoders={"document": replace(encoder, token_embeddings=table)})
    (found,) = explain(predictor_of(exact, list("abcd")), text, np.array([1]))
    grown = table.copy()
    grown[3] *= 1 + share
    more = replace(servable, encoders={"document": replace(encoder, token_embeddings=grown)})
    (moved,) = explain(predictor_of(more, list("abcd")), text, np.array([1]))
    assert moved.value - found.value == pytest.approx(share * dict(found.tokens)["word3"], rel=0.05, abs=1e-6)


def test_exported_rows_are_explained_exactly_too() -> None:
    servable, text = random_servable(0), " ".join(TOKENS[2:7])
    own = servable.scorers[0]
    assert isinstance(own, Classifier)
    order = np.array([3, 1, 0, 2], np.int32)
    rows = PackedRows.of(own.weight[order], own.bias[order], "int8")
    exported = replace(servable, scorers=[PackedClassifier("document", rows, order)])
    expected = logits(exported, text)
    for found in explain(predictor_of(exported, list("abcd")), text, np.arange(N_LABELS)):
        assert found.exact
        assert found.value == pytest.approx(float(expected[found.label]), abs=1e-4)


def approximate_servables() -> list[Servable | Ensemble]:
    servable = Predictor.load(model_folder()).model.servable
    assert isinstance(servable, Servable)
    return [replace(servable, fusion=Product(), scorers=[*servable.scorers, *servable.scorers]), Ensemble([servable])]


@pytest.mark.parametrize("servable", approximate_servables(), ids=["two scorers", "ensemble"])
def test_any_other_model_is_asked_again_without_each_word(servable) -> None:
    def score(text: str, label: int) -> float:
        ids, scores = servable.predict([text], len(NAMES))
        return float(scores[0][ids[0] == label][0])

    text, labels = "A dog, a DOG and a river", np.array([6, 0])
    without = {"a": "  dog,  DOG and  river", "dog": "A , a  and a river", "and": "A dog, a DOG  a river"}
    without["river"] = "A dog, a DOG and a "
    for label, found in zip(labels, explain(predictor_of(servable, NAMES), text, labels), strict=True):
        assert (found.label, found.exact, found.unread) == (label, False, 0)
        assert found.value == pytest.approx(score(text, label), rel=1e-5)
        assert found.rest == pytest.approx(score("", label), rel=1e-5)
        expected = {word: found.value - score(rest, label) for word, rest in without.items()}
        assert dict(found.tokens) == pytest.approx(expected, abs=1e-6)


def test_words_beyond_the_limit_are_counted_not_hidden() -> None:
    text = " ".join(f"w{i}" for i in range(MOST_WORDS + 7))
    (found,) = explain(predictor_of(approximate_servables()[1], NAMES), text, np.array([0]))
    assert (len(found.tokens), found.unread) == (MOST_WORDS, 7)


def test_an_empty_text_is_all_bias() -> None:
    (found,) = explain(predictor_of(random_servable(0), list("abcd")), "", np.array([1]))
    assert found.tokens == []
    assert found.value == found.rest == pytest.approx(float(logits(random_servable(0), "")[1]), abs=1e-5)
