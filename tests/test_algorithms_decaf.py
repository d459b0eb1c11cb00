"""DECAF's variants, each trained end to end on the planted set, and what its servable forms promise."""

import dataclasses

import numpy as np
import pytest
from planted import planted, relevant_first

from xclearn.algorithms.decaf import Decaf
from xclearn.data import LabelSet
from xclearn.inference.components import AllLabels, ClusterBeam
from xclearn.inference.servable import Ensemble, Servable

SHORT = {"surrogate_epochs": 25, "shortlister_epochs": 25, "ranker_epochs": 15, "embedding_dim": 32, "batch_size": 32}
VARIANTS = {
    "exact": {"ranker": "exact"},
    "sampled": {"ranker": "sampled", "n_negatives": 20},
    "shortlist": {"ranker": "shortlist", "n_clusters": 16},
    "shortlist, only what it found": {"ranker": "shortlist", "n_clusters": 16, "add_positives": False, "beam": 4},
    "lite": {"ranker": "sampled", "freeze_tokens": True},
    "no-init": {"ranker": "exact", "refinement": "random"},
    "text only": {"ranker": "exact", "refinement": "none"},
    "refinement only": {"ranker": "exact", "label_text": False},
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
    shortlist = settings["ranker"] == "shortlist"
    assert isinstance(fitted.model.servable.candidates, ClusterBeam if shortlist else AllLabels)


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
    once = SHORT | {"surrogate_epochs": 1, "shortlister_epochs": 1, "ranker_epochs": 1}
    lite = Decaf(**once, ranker="shortlist", n_clusters=16, freeze_tokens=True).fit(data, device="cpu")
    free = Decaf(**once, ranker="shortlist", n_clusters=16).fit(data, device="cpu")
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
    settings = SHORT | {"ranker": "shortlist", "n_clusters": 16, "target_recall": 0.5, "ranker_epochs": 1}
    Decaf(**settings).fit(data, device="cpu", callback=events.append)
    (chosen,) = [event for event in events if event["event"] == "shortlist"]
    assert chosen["recall"] >= 0.5
    assert 1 <= chosen["beam"] < 16
