"""DECAF's variants, each trained end to end on the planted set, and what its servable forms promise."""

import dataclasses

import numpy as np
import pytest
from planted import planted, relevant_first

from xclearn.algorithms.decaf import Decaf
from xclearn.data import LabelSet
from xclearn.errors import ConfigError, ModelError
from xclearn.inference.components import AllLabels, ClusterBeam
from xclearn.inference.servable import Ensemble, Servable
from xclearn.inference.shortlists import CentroidSearch
from xclearn.text.word_vectors import read_word_vectors

CLUSTERS = {"ranker": "shortlist", "n_clusters": 16, "shortlister_epochs": 25}
SHORT = {"surrogate_epochs": 25, "ranker_epochs": 15, "embedding_dim": 32, "batch_size": 32}
VARIANTS = {
    "exact": {"ranker": "exact"},
    "sampled": {"ranker": "sampled", "n_negatives": 20},
    "shortlist": CLUSTERS,
    "shortlist, clusters by the blocks of their labels": CLUSTERS | {"meta_text": "sum_of_blocks"},
    "shortlist, only what it found": CLUSTERS | {"add_positives": False, "beam": 4},
    "lite": {"ranker": "sampled", "freeze_tokens": True},
    "no-init": {"ranker": "exact", "refinement": "random"},
    "text only": {"ranker": "exact", "refinement": "none"},
    "refinement only": {"ranker": "exact", "label_text": False},
    "nearest labels": {"ranker": "shortlist", "shortlist": "nearest", "list_size": 20},
    "nearest labels, by a graph": {"ranker": "shortlist", "shortlist": "nearest", "search": "hnsw", "list_size": 20},
    "labels of a tree": {"ranker": "shortlist", "shortlist": "tree", "list_size": 20},
    "blocks started again": {"ranker": "exact", "restart_blocks": True, "spectral": False},
}


@pytest.fixture(scope="module")
def data():
    return planted()


@pytest.mark.parametrize("settings", VARIANTS.values(), ids=VARIANTS)
def test_every_variant_finds_the_planted_labels(data, settings):
    fitted = Decaf(**SHORT | settings).fit(data, device="cpu")
    found = relevant_first(data, fitted.predict(data.split("test").documents, 3).ids)
    print(f"right first label: {found:.2f}")
    assert found > 0.8
    kind = ClusterBeam if "n_clusters" in settings else CentroidSearch if "shortlist" in settings else AllLabels
    assert isinstance(fitted.model.servable.candidates, kind)


def test_a_network_without_label_text_takes_no_new_labels(data):
    fitted = Decaf(**SHORT | VARIANTS["refinement only"]).fit(data, device="cpu")
    with pytest.raises(ModelError, match="cannot make a row") as refused:
        fitted.add_labels([{"label": "new", "text": "words of a label"}])
    print(refused.value)


def test_the_card_says_what_the_theorem_supposes(data):
    """s is the share of relevant pairs; without a shortlist none is missed."""
    once, clusters = SHORT | {"surrogate_epochs": 1, "ranker_epochs": 1}, CLUSTERS | {"shortlister_epochs": 1}
    relevance = data.train.relevance
    for settings, recall in (({"ranker": "exact"}, 1.0), (clusters | {"beam": 16}, 1.0)):
        training = Decaf(**once | settings).fit(data, device="cpu").model.about["training"]
        assert float(training["label_sparsity"]) == pytest.approx(relevance.nnz / np.prod(relevance.shape), rel=1e-2)
        assert training["shortlist_recall"] == recall
    narrow = Decaf(**once | clusters, beam=1).fit(data, device="cpu").model.about["training"]
    assert 0 < narrow["shortlist_recall"] < 1


def write_vectors(path, tokens, dim, scale):
    rng = np.random.default_rng(0)
    rows = [f"{token} " + " ".join(f"{x:.4f}" for x in scale * rng.standard_normal(dim)) for token in tokens]
    path.write_text("\n".join([f"{len(tokens)} {dim}", *rows, "unheard " + " ".join(["1"] * dim)]) + "\n")


@pytest.mark.parametrize("frozen", [True, False])
def test_word_vectors_from_a_file_are_where_the_token_table_starts(data, tmp_path, frozen):
    """Frozen, the table of the model is that of the file (DECAF-FFT)."""
    words = Decaf(**SHORT).vectoriser.learn(data.train.documents, data.labels.texts)
    tokens = words.tokens(range(words.n_features))
    write_vectors(tmp_path / "a.vec", tokens, SHORT["embedding_dim"], 0.1)
    settings = SHORT | {"ranker": "exact", "word_vectors": str(tmp_path / "a.vec"), "freeze_tokens": frozen}
    fitted = Decaf(**settings).fit(data, device="cpu")
    expected = read_word_vectors(tmp_path / "a.vec", tokens).values
    table = fitted.model.servable.encoders["label"].token_embeddings
    assert np.array_equal(table, expected) == frozen
    assert fitted.model.about["training"]["tokens_with_word_vectors"] == f"{len(tokens):,} of {len(tokens):,}"
    found = relevant_first(data, fitted.predict(data.split("test").documents, 3).ids)
    assert found > (0.2 if frozen else 0.8)  # by chance 0.02; random vectors that stay so are hard to tell apart


def test_word_vectors_of_another_length_are_refused_with_theirs(data, tmp_path):
    words = Decaf(**SHORT).vectoriser.learn(data.train.documents, data.labels.texts)
    write_vectors(tmp_path / "a.vec", words.tokens(range(5)), 7, 0.1)
    with pytest.raises(ConfigError, match=r"the wrong length; got 32. Set embedding_dim = 7\."):
        Decaf(embedding_dim=32, word_vectors=str(tmp_path / "a.vec")).fit(data, device="cpu")


def test_module_one_may_have_a_dropout_of_its_own(data):
    once = SHORT | {"surrogate_epochs": 1, "ranker_epochs": 1, "ranker": "exact", "dropout": 0.2}
    weights = [
        Decaf(**once, surrogate_dropout=dropout).fit(data, device="cpu").model.servable.scorers[0].weight
        for dropout in (None, 0.2, 0.6)
    ]
    assert np.array_equal(weights[0], weights[1])
    assert not np.array_equal(weights[0], weights[2])


def test_an_ensemble_scores_by_the_mean_of_its_members(data):
    once = SHORT | {"surrogate_epochs": 2, "ranker_epochs": 1}
    fitted = Decaf(**once, ranker="exact", n_members=2).fit(data, device="cpu")
    ensemble, documents = fitted.model.servable, data.split("test").documents[:20]
    assert isinstance(ensemble, Ensemble)
    ids, scores = ensemble.predict(documents, 3)
    expected = np.zeros((20, data.n_labels))
    for member in ensemble.members:
        assert isinstance(member, Servable)
        part = member.predict(documents, data.n_labels)
        np.put_along_axis(expected, part.ids, np.take_along_axis(expected, part.ids, 1) + part.scores / 2, 1)
    assert np.allclose(scores, np.take_along_axis(expected, ids, 1), atol=1e-6)
    assert np.allclose(scores, -np.sort(-expected, axis=1)[:, :3], atol=1e-6)


def test_frozen_tokens_are_those_of_the_first_module(data):
    """With one member the label encoder of DECAF-lite has the very table that Module I ended with."""
    once = SHORT | CLUSTERS | {"surrogate_epochs": 1, "shortlister_epochs": 1, "ranker_epochs": 1}
    lite = Decaf(**once, freeze_tokens=True).fit(data, device="cpu")
    free = Decaf(**once).fit(data, device="cpu")
    for fitted, same in ((lite, True), (free, False)):
        encoders = fitted.model.servable.encoders
        tables = encoders["cluster"].token_embeddings, encoders["label"].token_embeddings
        assert np.array_equal(*tables) is same


def test_labels_may_be_only_names(data):
    named = dataclasses.replace(data, labels=LabelSet(data.labels.names))
    fitted = Decaf(**SHORT | {"ranker": "exact", "ranker_epochs": 60}).fit(named, device="cpu")
    assert relevant_first(named, fitted.predict(named.split("test").documents, 1).ids) > 0.8


def test_the_log_says_which_beam_was_chosen_and_what_it_reaches(data):
    events = []
    settings = SHORT | CLUSTERS | {"target_recall": 0.5, "ranker_epochs": 1}
    Decaf(**settings).fit(data, device="cpu", callback=events.append)
    (chosen,) = [event for event in events if event["event"] == "shortlist"]
    assert chosen["recall"] >= 0.5
    assert 1 <= chosen["beam"] < 16


# The paper's variants


def test_refinements_of_z2_start_without_the_text(data):
    """At E z the classifier would know the label's words before Module IV; the paper learns it from scratch."""

    def start(**settings):  # rates so small that nothing moves but for its start
        slow = {"surrogate_epochs": 0, "ranker_epochs": 1, "later_lr": 1e-9, "refinement_lr": 0.0, "bias_lr": 0.0}
        fitted = Decaf(**slow, embedding_dim=32, ranker="exact", **settings).fit(data, device="cpu")
        table = fitted.model.servable.encoders["label"].token_embeddings
        words = fitted.model.servable.vectoriser.transform(data.labels.texts) @ table
        rows = fitted.model.servable.scorers[0].weight
        cosines = (words * rows).sum(axis=1) / np.linalg.norm(words, axis=1) / np.linalg.norm(rows, axis=1)
        return float(np.median(cosines)), fitted.resolved_.get("refinement")

    (from_scratch, chosen), (from_text, _) = start(label_text=False), start(label_text=False, refinement="text")
    print(from_scratch, from_text)
    assert chosen == "random"
    assert abs(from_scratch) < 0.2
    assert from_text > 0.99
