"""The label tree and sparse one-vs-all: what their settings do. The contract suite holds the rest."""

import dataclasses

import numpy as np
import pytest
import scipy.sparse as sp
from planted import planted, relevant_first

from xclearn import config
from xclearn.algorithms.label_tree import LabelTree
from xclearn.algorithms.sparse_one_vs_all import SparseOneVsAll
from xclearn.config import AUTO
from xclearn.data import Dataset, LabelSet, Split
from xclearn.errors import ConfigError, DataError
from xclearn.training.stage import Stopping

N_LABELS = 60
BOTH = [LabelTree(max_leaf=8), SparseOneVsAll()]
ids_of_both = ["label_tree", "sparse_one_vs_all"]


def fitted(algorithm, data, **settings):
    return dataclasses.replace(algorithm, **settings).fit(data, device="cpu", seed=1)


def tensors(algorithm, folder):
    algorithm.save(folder)
    return (folder / "tensors.safetensors").read_bytes()


@pytest.mark.parametrize("loss", ["squared_hinge", "logistic"])
@pytest.mark.parametrize("branching", [2, 4, 2048])
def test_the_planted_answer_is_found_without_label_text(planted_texts, loss, branching):
    """A logistic classifier with few documents wants a higher cost."""
    algorithm = LabelTree(branching=branching, max_leaf=8, loss=loss, cost=10.0, label_text_weight=0.0)
    algorithm.fit(planted_texts, device="cpu")
    assert relevant_first(planted_texts, algorithm.predict(planted_texts.test.documents).ids) > 0.9


def test_the_tree_has_the_levels_asked_for(planted_texts):
    trees = fitted(LabelTree(max_leaf=8, branching=4, n_trees=2), planted_texts).model.servable.scorers[0].trees
    assert len(trees) == 2
    assert [len(level.bias) for level in trees[0].levels] == [4, 8, N_LABELS]
    assert trees[0].labels.tolist() != trees[1].labels.tolist()


def test_a_wider_beam_finds_more(planted_texts):
    found = []
    for beam in (1, 8):
        model = fitted(LabelTree(max_leaf=8, n_trees=1, label_text_weight=0.0), planted_texts, beam=beam)
        ids = model.predict(planted_texts.test.documents, N_LABELS).ids
        found.append((ids >= 0).sum(axis=1))
    assert (found[0] <= 8).all()
    assert (found[1] == N_LABELS).all()


# Label text


def with_unseen_label(data: Dataset) -> Dataset:
    """Label 0 keeps its text and loses all its documents' marks."""
    relevance = data.train.relevance.tolil()
    relevance[:, 0] = 0
    return dataclasses.replace(data, train=dataclasses.replace(data.train, relevance=sp.csr_matrix(relevance)))


@pytest.mark.parametrize("algorithm", BOTH, ids=ids_of_both)
def test_a_label_without_documents_is_found_by_its_text_alone(planted_texts, algorithm):
    data = with_unseen_label(planted_texts)
    with_text = fitted(algorithm, data, label_text_weight=0.5).predict(["own0 noise3"], 1).ids
    without = fitted(algorithm, data, label_text_weight=0.0).predict(["own0 noise3"], 1).ids
    assert with_text.tolist() == [[0]]
    assert without.tolist() != [[0]]


@pytest.mark.parametrize("algorithm", BOTH, ids=ids_of_both)
def test_the_weight_is_automatic_and_recorded(planted_texts, algorithm):
    per_label = planted_texts.train.relevance.nnz / planted_texts.n_labels
    expected = {"cost": 1.0, "label_text_weight": pytest.approx(0.15 * 6 / per_label)}
    assert fitted(algorithm, planted_texts).resolved_ == expected
    nameless = dataclasses.replace(planted_texts, labels=LabelSet(planted_texts.labels.names))
    assert fitted(algorithm, nameless).resolved_ == {"cost": 1.0, "label_text_weight": 0.0}
    with pytest.raises(DataError, match="label_text_weight needs label texts"):
        fitted(algorithm, nameless, label_text_weight=0.1)


def told_by_text_only() -> Dataset:
    """Every document has the one label whose text it shares, and no label has more than one document."""
    names = [f"label {i}" for i in range(400)]
    texts = [f"own{i}" for i in range(400)]
    rng = np.random.default_rng(0)
    documents = [f"own{i} noise{rng.integers(20)}" for i in range(400)]
    return Dataset("text only", Split(documents, sp.identity(400, np.float32, "csr")), LabelSet(names, texts))


@pytest.mark.parametrize("algorithm", BOTH, ids=ids_of_both)
def test_a_hold_out_chooses_the_weight(algorithm):
    data = told_by_text_only()
    chosen = fitted(algorithm, data, stopping=Stopping(metric="P@1", hold_out=0.2))
    assert chosen.label_text_weight is AUTO  # fit changes no setting
    assert chosen.resolved_["label_text_weight"] > 0
    given = fitted(algorithm, data, stopping=Stopping(metric="P@1", hold_out=0.2), label_text_weight=0.0)
    assert given.resolved_ == {"cost": 1.0}


@pytest.mark.parametrize("algorithm", BOTH, ids=ids_of_both)
def test_the_logistic_loss_is_not_left_too_small_to_learn_from_two_documents(algorithm):
    """Its gradient is bounded by the cost: at 1 a label of two documents never reaches a chance of one half."""
    first = told_by_text_only()
    twice = Split([*first.train.documents] * 2, sp.csr_matrix(sp.vstack([first.train.relevance] * 2)))
    data = Dataset("twice", twice, LabelSet(first.labels.names))
    usual, small = fitted(algorithm, data, loss="logistic"), fitted(algorithm, data, loss="logistic", cost=1.0)
    assert usual.resolved_["cost"] == 30.0
    best = [each.predict(first.train.documents[:50], 1).scores[:, 0].mean() for each in (usual, small)]
    print(f"mean score of the first label: {best[0]:.2f}, at a cost of 1 {best[1]:.2f}")
    assert best[0] > 0.5 > best[1]


# Resuming


class Interruption(Exception):
    """What ends a training after its first part."""


@pytest.mark.parametrize("algorithm", BOTH, ids=ids_of_both)
def test_interrupted_and_resumed_is_the_same_as_uninterrupted(planted_texts, algorithm, tmp_path, monkeypatch):
    monkeypatch.setattr("xclearn.algorithms.sparse_one_vs_all._AT_ONCE", 25)
    whole = tensors(fitted(algorithm, planted_texts), tmp_path / "whole")
    steps = []

    def interrupt(event):
        if event["event"] == "step":
            steps.append(event)
            if len(steps) == 2:
                raise Interruption

    folder, again = tmp_path / "checkpoint", dataclasses.replace(algorithm)
    with pytest.raises(Interruption):
        again.fit(planted_texts, device="cpu", seed=1, checkpoint=folder, callback=interrupt)
    kept = {path: path.stat().st_mtime_ns for path in folder.glob("keep-*")}
    assert len(kept) >= 2
    again.fit(planted_texts, device="cpu", seed=1, checkpoint=folder, resume=True)
    assert all(path.stat().st_mtime_ns == before for path, before in kept.items())  # read, not made anew
    assert tensors(again, tmp_path / "resumed") == whole


# One-vs-all


def test_one_vs_all_ranks_as_scikit_learns():
    """Few labels: the bias is learnt, and the classifiers are those of LinearSVC up to the solver's tolerance."""
    from sklearn.svm import LinearSVC

    data = planted(n_labels=8, train=20)
    model = SparseOneVsAll(threshold=0.0, label_text_weight=0.0, epochs=1000).fit(data, device="cpu").model.servable
    features = model.vectoriser.transform(data.train.documents)
    logits = model.scorers[0].score_all(features)
    for label, column in enumerate(data.train.relevance.T.toarray()):
        other = LinearSVC(C=1.0).fit(features, column).decision_function(features)
        assert np.corrcoef(logits[:, label], other)[0, 1] > 0.995
        np.testing.assert_allclose(logits[:, label], other, atol=0.25)


def test_small_weights_are_dropped(planted_texts):
    sizes = [
        len(fitted(SparseOneVsAll(), planted_texts, threshold=threshold).model.servable.scorers[0].weights)
        for threshold in (0.0, 0.05, 0.5)
    ]
    assert sizes[0] > sizes[1] > sizes[2] >= N_LABELS


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"branching": 1}, "branching: out of range"), ({"max_leaf": 0}, "max_leaf"), ({"loss": "hinge"}, "logistic")],
)
def test_wrong_settings_are_named(settings, message):
    with pytest.raises(ConfigError, match=message):
        config.build(LabelTree, settings, "label_tree")
