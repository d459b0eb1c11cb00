"""Any algorithm's best labels ranked anew and calibrated."""

import json
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from planted import planted, relevant_first

from xclearn import algorithms, config
from xclearn.data import Dataset, LabelSet, Split
from xclearn.errors import ConfigError
from xclearn.inference import evaluate, load
from xclearn.training.algorithm import Algorithm
from xclearn.training.checkpoint import Checkpoint
from xclearn.training.prepare import prepare
from xclearn.training.ranker_training import _of_one_weight
from xclearn.training.run import Run

# Each so short that the model itself ranks badly.
SHORT = {
    "one_vs_all": {"epochs": 3},
    "decaf": {"surrogate_epochs": 1, "ranker_epochs": 1, "label_text": False},
    "astec": {"surrogate_epochs": 2, "extreme_epochs": 1, "reranker_epochs": 0},
    "elias": {"first_epochs": 2, "second_epochs": 1},
}
RANKED = {"sparse_ranker": {"depth": 60}}
HELD_OUT = {"patience": 3, "hold_out": 0.1}


@pytest.fixture(scope="module")
def data() -> Dataset:
    return planted()


def make(name: str, **settings: object) -> Algorithm:
    return config.build(algorithms.find(name), SHORT[name] | settings, name)


@pytest.mark.parametrize("name", SHORT)
def test_a_ranker_mends_what_short_training_left(name, data, tmp_path):
    documents = data.split("test").documents
    plain, ranked = (make(name, **more).fit(data, device="cpu") for more in ({}, RANKED))
    before, after = (relevant_first(data, fitted.predict(documents, 1).ids) for fitted in (plain, ranked))
    print(f"{name}: right first label {before:.2f}, ranked {after:.2f}")
    assert after > max(0.75, before)
    ranked.save(tmp_path / "model")
    answers = ranked.predict(documents, 5)
    again = load(tmp_path / "model").predict(documents, 5)
    assert (again.ids == answers.ids).all()


@pytest.mark.parametrize("vector", [False, True])
def test_a_ranker_reads_the_vector_if_asked_to(data, vector):
    ranked = make("elias", sparse_ranker={"depth": 60, "vector": vector}).fit(data, device="cpu").model.servable
    ranker = ranked.steps[0].ranker
    n_tokens = ranked.encoders["bag"].dim
    assert ranker.vector == ("document" if vector else "")
    assert (ranker.features.max() >= n_tokens) == vector


def test_a_tree_brings_scores_nearer_to_the_share_that_is_right(data):
    """Over the first labels of test: the mean score against how often they are right."""
    gaps = []
    for more in ({}, {"calibration": {"weight": 1.0}}):
        fitted = make("one_vs_all", epochs=6, stopping=HELD_OUT, **more).fit(data, device="cpu")
        answers = fitted.predict(data.split("test").documents, 1)
        gaps.append(abs(float(answers.scores.mean()) - relevant_first(data, answers.ids)))
    print(f"gaps {gaps}")
    assert gaps[1] < 0.15 < gaps[0]


def test_a_tree_is_told_of_no_document_that_it_learns_on(data):
    fitted = make("one_vs_all", stopping=HELD_OUT, calibration={}).fit(data, device="cpu", seed=3)
    learnt_on = prepare(data, fitted.vectoriser, fitted.stopping, 3)
    counts = fitted.model.servable.steps[-1].calibration.label_counts
    assert (counts == learnt_on.relevance.toarray().sum(axis=0)).all()
    assert counts.sum() + learnt_on.held_out.relevance.sum() == data.train.relevance.sum()


def test_members_of_an_ensemble_are_ranked_each(data):
    fitted = make("decaf", n_members=2, **RANKED).fit(data, device="cpu")
    first, second = (member.steps[0].ranker for member in fitted.model.servable.members)
    assert first.weights.tobytes() != second.weights.tobytes()
    assert evaluate(fitted, data).values["P@1"] > 70


def test_members_are_calibrated_with_the_least_weight_of_any(data):
    """Chances of one member beside the scores of another would be averaged."""
    fitted = make("elias", stopping=HELD_OUT, calibration={}).fit(data, device="cpu")
    (step,) = fitted.model.servable.steps
    steps = [replace(step, calibration=replace(step.calibration, weight=weight)) for weight in (0.6, 0.1, 0.3)]
    run = Run(torch.device("cpu"), 0, Checkpoint(None), lambda _: None)
    assert [found.calibration.weight for found in _of_one_weight(steps, run)] == [0.1] * 3
    assert run.noted == {"calibration_weight": 0.1}


def test_an_ensemble_has_one_bag_and_one_weight_of_its_calibrations(data, tmp_path):
    fitted = make("elias", n_members=2, stopping=HELD_OUT, calibration={}, **RANKED).fit(data, device="cpu")
    first, second = fitted.model.servable.members
    assert first.encoders["bag"] is second.encoders["bag"]
    weights = [member.steps[-1].calibration.weight for member in (first, second)]
    fitted.save(tmp_path / "model")
    noted = json.loads((tmp_path / "model" / "model.json").read_text())["about"]["training"]["calibration_weight"]
    assert weights == [noted, noted]


def test_pairs_of_tokens_tell_texts_of_the_same_words_apart():
    """A text is three words in one of two orders, and its label says in which: a bag of tokens cannot know."""
    texts = ["red fish eats"] * 20 + ["eats fish red"] * 20
    relevance = sp.csr_matrix(np.repeat(np.eye(2, dtype=np.float32), 20, axis=0))
    data = Dataset("orders", Split(texts, relevance), LabelSet(["forwards", "backwards"]))
    right = {}
    for pairs in (False, True):
        settings = {"vectoriser": {"kind": "sequences", "max_length": 4}, "n_clusters": 1}
        fitted = make("elias", **settings, sparse_ranker={"depth": 2, "pairs": pairs}).fit(data, device="cpu")
        served = fitted.model.servable
        bags = served.encoders["bag"].encode(served.vectoriser.transform([texts[0], texts[-1]]))
        shares = served.steps[0].ranker({"bag": bags}, np.array([[0, 1], [0, 1]]))  # (2, 2)
        right[pairs] = shares.diagonal().min() > np.fliplr(shares).diagonal().max()
    assert right == {False: False, True: True}


def test_a_resumed_run_ranks_the_same(data, tmp_path):
    whole = make("one_vs_all", **RANKED).fit(data, device="cpu", checkpoint=tmp_path / "c")
    assert len(list((tmp_path / "c").glob("keep-ranker-0-0-*"))) == 1
    resumed = make("one_vs_all", **RANKED).fit(data, device="cpu", checkpoint=tmp_path / "c", resume=True)
    rankers = [fitted.model.servable.steps[0].ranker for fitted in (whole, resumed)]
    assert rankers[0].weights.tobytes() == rankers[1].weights.tobytes()


@pytest.mark.parametrize("name", SHORT)
def test_a_calibration_without_a_hold_out_is_refused(name, data):
    with pytest.raises(ConfigError, match=r"calibration needs held-out documents\. Set stopping too"):
        make(name, calibration={}).fit(data, device="cpu")
