"""Any algorithm with `calibrate`: the same ranking, and probabilities learnt on documents that it did not see."""

import dataclasses

import numpy as np
import pytest
from planted import planted

from xclearn import Blend, Threshold, algorithms
from xclearn.data import Dataset
from xclearn.errors import ConfigError, NotFitted
from xclearn.inference import Predictor
from xclearn.inference.blend import BlendServable
from xclearn.parts.held_out import judged
from xclearn.parts.probabilities import expected_error
from xclearn.training.algorithm import Algorithm
from xclearn.training.calibrating import cut_for_probabilities


def noisy(seed: int = 0) -> Dataset:
    """A third of all documents has labels that its words do not tell."""
    data = planted(train=40, test=40, seed=seed)
    rng = np.random.default_rng(seed)
    splits = []
    for split in (data.train, data.split("test")):
        rows = np.arange(len(split))
        wrong = rng.random(len(split)) < 1 / 3
        rows[wrong] = rng.permutation(rows[wrong])
        splits.append(dataclasses.replace(split, relevance=split.relevance[rows]))
    return dataclasses.replace(data, train=splits[0], test=splits[1])


@pytest.fixture(scope="module")
def fitted() -> Algorithm:
    return algorithms.find("label_tree")(calibrate=True).fit(noisy(), device="cpu")


def test_scores_are_probabilities_on_texts_that_nobody_saw(fitted):
    data = noisy()
    served = fitted.model.servable
    assert isinstance(served, BlendServable)
    found = fitted.predict(data.split("test").documents, 5)
    truth = np.asarray(data.split("test").relevance[np.arange(len(found.ids))[:, None], found.ids].todense()) > 0
    print(expected_error(found.scores.ravel().astype(float), truth.ravel()))
    assert expected_error(found.scores.ravel().astype(float), truth.ravel()) < 0.03
    plain = algorithms.find("label_tree")().fit(data, device="cpu").predict(data.split("test").documents, 5)
    truth = np.asarray(data.split("test").relevance[np.arange(len(plain.ids))[:, None], plain.ids].todense()) > 0
    assert expected_error(plain.scores.ravel().astype(float), truth.ravel()) > 0.06  # what there was to mend


def test_the_ranking_is_that_of_the_algorithm(fitted):
    served = fitted.model.servable
    (member,) = served.members
    texts = noisy().split("test").documents[:50]
    alone = member.predict(texts, 3)
    clear = (np.diff(alone.scores, axis=1) < -1e-6).all(axis=1)  # equal logits may come in another order
    assert clear.sum() > 20
    assert (fitted.predict(texts, 3).ids[clear] == alone.ids[clear]).all()


def test_it_has_thresholds_and_the_dial_and_a_card(fitted, tmp_path):
    fitted.save(tmp_path / "model")
    predictor = Predictor.load(tmp_path / "model")
    texts = noisy().split("test").documents[:20]
    assert predictor.tail == 0.0
    given = predictor.suggest(texts, threshold=Threshold(best_f1=True), tail=0.5)
    assert 0 < sum(map(len, given)) < 5 * len(texts)
    training = predictor.about["training"]
    assert {"ece_5", "best_f1", "reliability, 26 documents and more"} <= training.keys()
    assert "mean probability" in (tmp_path / "model" / "README.md").read_text()


def test_what_is_held_out_is_not_learnt_from(fitted):
    data = noisy()
    learnt_from, held = cut_for_probabilities(data, 0)
    assert held is not None
    assert len(learnt_from.train) + len(held) == len(data.train)
    assert len(held) == pytest.approx(min(len(data.train) / 5, 500), rel=0.1)
    assert fitted.model.servable.sources.counts.sum() == learnt_from.train.relevance.nnz
    with_dev = dataclasses.replace(data, dev=data.test)
    assert cut_for_probabilities(with_dev, 0) == (with_dev, data.test)
    assert judged(fitted.model.servable.sources, held).right.any()


def test_stopping_has_held_out_already():
    data = planted(train=20)
    settings = {"stopping": {"patience": 2}, "calibrate": True}
    from xclearn import config

    algorithm = config.build(algorithms.find("label_tree"), settings, "label_tree")
    learnt_from, held = algorithm._cut(data, 0)
    assert (learnt_from, held) == (data, None)
    assert isinstance(algorithm.fit(data, device="cpu").model.servable, BlendServable)


def test_too_few_documents_are_served_as_they_are_and_the_card_says_so():
    tiny = planted(n_labels=3, train=3)
    model = algorithms.find("label_tree")(calibrate=True).fit(tiny, device="cpu").model
    assert not isinstance(model.servable, BlendServable)
    assert "too few" in model.about["training"]["calibrate"]
    with pytest.raises(NotFitted):
        _ = algorithms.find("label_tree")(calibrate=True).model


def test_members_of_a_blend_have_no_probabilities_of_their_own():
    with pytest.raises(ConfigError, match="Leave calibrate out"):
        Blend(members=("label_tree calibrate=true",), folds=2).fit(planted(), device="cpu")
