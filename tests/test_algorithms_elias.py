"""ELIAS's variants, each trained end to end on the planted set, and a set whose labels no partition serves."""

import numpy as np
import pytest
import scipy.sparse as sp
from planted import planted, relevant_first
from tiny_transformer import write_transformer

from xclearn import algorithms, config
from xclearn.algorithms.elias import Elias
from xclearn.data import Dataset, LabelSet, Split
from xclearn.errors import ConfigError
from xclearn.inference import evaluate, load
from xclearn.inference.sequences import Transformer
from xclearn.inference.servable import Ensemble
from xclearn.inference.shortlists import LearnedEdges

FAST = {"encoder_lr": 0.01, "cluster_lr": 0.01}
SHORT = {"first_epochs": 6, "second_epochs": 5, "embedding_dim": 32, "batch_size": 32, "n_clusters": 16, "beam": 4}
SHORT |= {"first": FAST, "second": FAST}
AVERAGED = FAST | {"batch_size": 16, "accumulation": 2, "average_from": 0.7, "average_every": 2}
ADAM = FAST | {"label_lr": 0.02, "shortlist_loss_weight": 0.05}
HELD_OUT = {"patience": 30, "hold_out": 0.1}
VARIANTS = {
    "two stages": {},
    "partition": {"training": "partition", "first_epochs": 10},
    "from nothing": {"training": "end_to_end", "second_epochs": 12},
    "as published": {
        "first_epochs": 10,
        "second_epochs": 8,
        "label_optimiser": "adam",
        "reduction": "mean",
        "weight_decay": 0.01,
        "edge_start": "random",
        "restart_labels": True,
        "most_clusters": 8,
        "first": ADAM,
        "second": ADAM,
    },
    "on paths": {"negatives": "shortlist"},
    "against all labels": {"negatives": "all"},
    "clustered again and averaged": {"recluster_after": 2, "second": AVERAGED},
    "re-ranked": {"sparse_ranker": {"depth": 20}},
    "calibrated": {"calibration": {"depth": 3}, "stopping": HELD_OUT},
    "re-ranked and calibrated": {"sparse_ranker": {"depth": 20}, "calibration": {}, "stopping": HELD_OUT},
    "ensemble": {"n_members": 2},
}


def elias(**settings: object) -> Elias:
    return config.build(Elias, SHORT | settings, "elias")


@pytest.fixture(scope="module")
def data():
    return planted()


@pytest.mark.parametrize("settings", VARIANTS.values(), ids=VARIANTS)
def test_every_variant_finds_the_planted_labels(data, settings, tmp_path):
    fitted = elias(**settings).fit(data, device="cpu")
    documents = data.split("test").documents
    answers = fitted.predict(documents, 3)
    found = relevant_first(data, answers.ids)
    print(f"right first label: {found:.2f}")
    assert found > 0.8
    fitted.save(tmp_path / "model")
    again = load(tmp_path / "model").predict(documents, 3)
    assert (again.ids == answers.ids).all()


def test_an_ensemble_has_members_with_clusters_of_their_own(data):
    servable = elias(n_members=2, first_epochs=1, second_epochs=1).fit(data, device="cpu").model.servable
    assert isinstance(servable, Ensemble)
    first, second = (member.candidates for member in servable.members)
    assert isinstance(first, LearnedEdges)
    assert (first.labels != second.labels).any()


def edge_labels(n: int = 4) -> Dataset:
    """Labels are the edges of the complete graph between n + n topics; a document of a topic has all of its labels.

    A pair of labels shares at most one topic. So whatever the partition into pairs, two of them hold on average at most
    three quarters of the labels of a topic with four.
    """
    random = np.random.default_rng(0)
    splits = []
    for count in (30, 10):
        topics = random.permutation(np.repeat(np.arange(2 * n), count))
        labels = np.where(
            topics[:, None] < n,
            topics[:, None] * n + np.arange(n),
            np.arange(n) * n + topics[:, None] - n,
        )  # (documents, n)
        indptr = np.arange(len(topics) + 1) * n
        relevance = sp.csr_matrix(
            (np.ones(labels.size, np.float32), labels.ravel(), indptr), shape=(len(topics), n * n)
        )
        words = random.integers(6, size=(len(topics), 3))
        splits.append(
            Split([" ".join(f"t{t}w{w}" for w in own) for t, own in zip(topics, words, strict=True)], relevance)
        )
    return Dataset("edges", splits[0], LabelSet([f"label {i}" for i in range(n * n)]), splits[1])


def test_learnt_edges_reach_what_no_partition_can():
    data = edge_labels()
    settings = {"n_clusters": 8, "beam": 2, "edges_per_cluster": 8, "first_epochs": 40, "second_epochs": 40}
    recalls = {}
    for training in ("partition", "two_stages"):
        fitted = elias(**settings, training=training).fit(data, device="cpu")
        recalls[training] = evaluate(fitted, data).values["R@10"]
    print(recalls)
    assert recalls["partition"] <= 75.1
    assert recalls["two_stages"] > 90


def test_averaging_changes_what_is_served(data):
    short = {"first_epochs": 1, "second_epochs": 2, "negatives": "shortlist"}
    plain, averaged = (
        elias(**short, second=second).fit(data, device="cpu").model.servable.scorers[0].weight
        for second in ({}, {"average_from": 0.5})
    )
    assert np.abs(plain - averaged).max() > 1e-5


# what bad input gets


@pytest.mark.parametrize("name", ["edges_per_cluster", "shortlist_size", "n_clusters"])
def test_more_than_there_are_labels_is_refused(data, name):
    with pytest.raises(
        ConfigError, match=rf"{name}: larger than there are; got 64; allowed: up to 60, the number of l"
    ):
        elias(**{"beam": None, name: 64}).fit(data, device="cpu")


def test_more_than_there_are_clusters_is_refused(data):
    with pytest.raises(ConfigError, match="beam: larger than there are; got 17; allowed: up to 16, the number of clus"):
        elias(beam=17).fit(data, device="cpu")


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("reduction", {"reduction": "mean"}),
        ("most_clusters", {"most_clusters": 3}),
        ("second.accumulation", {"second": {"accumulation": 2}}),
        ("first.average_from", {"first": {"average_from": 0.5}}),
    ],
)
def test_what_only_classifiers_on_paths_have_is_refused_beside_others(data, name, settings):
    with pytest.raises(
        ConfigError, match=rf'{name}: asks for .*; got \'negatives = drawn\'\. Set negatives = "shortlist"'
    ):
        elias(negatives="drawn", **settings).fit(data, device="cpu")
    assert (
        elias(**settings, first_epochs=1, second_epochs=1).fit(data, device="cpu").resolved_["negatives"] == "shortlist"
    )


def test_calibration_without_a_hold_out_is_refused(data):
    with pytest.raises(ConfigError, match=r"calibration needs held-out documents\. Set stopping too"):
        elias(calibration={}).fit(data, device="cpu")


def test_a_transformer_that_is_not_on_disk_is_refused_with_the_way_out(data, tmp_path):
    with pytest.raises(ConfigError, match="Point it to a folder"):
        elias(vectoriser={"kind": "pretrained", "folder": str(tmp_path)}).fit(data, device="cpu")


@pytest.mark.parametrize("name", ["elias", "one_vs_all"])
def test_a_transformer_takes_the_place_of_the_bag(name, tmp_path):
    """With it, one_vs_all is the paper's BERT-OvA."""
    pytest.importorskip("transformers")
    data = planted(n_labels=12)
    write_transformer(tmp_path / "t", [*(f"own{i}" for i in range(12)), *(f"noise{i}" for i in range(200))], dim=16)
    text = {"kind": "pretrained", "folder": str(tmp_path / "t"), "max_length": 12}
    own = {
        "elias": {"first_epochs": 15, "second_epochs": 8, "n_clusters": 4, "beam": 2, "first": FAST, "second": FAST},
        "one_vs_all": {"epochs": 40, "encoder_lr": 0.01, "label_lr": 0.3},
    }
    settings = own[name] | {"vectoriser": text, "batch_size": 16, "sparse_ranker": {"depth": 5}}
    fitted = config.build(algorithms.find(name), settings, name).fit(data, device="cpu")
    assert isinstance(fitted.model.servable.encoders["document"], Transformer)
    assert relevant_first(data, fitted.predict(data.split("test").documents, 1).ids) > 0.7


@pytest.mark.parametrize("cluster_text", [False, True])
def test_label_texts_count_in_the_clustering_if_asked_for(cluster_text):
    """No two labels share a word of their documents; their texts are of two kinds."""
    texts = [f"own{i // 4}" for i in range(64)]
    relevance = sp.csr_matrix(np.repeat(np.eye(16, dtype=np.float32), 4, axis=0))
    split = Split(texts, relevance)
    data = Dataset("two kinds", split, LabelSet(list("abcdefghijklmnop"), ["even", "odd"] * 8), split)
    settings = {"training": "partition", "first_epochs": 1, "n_clusters": 2, "beam": 2, "shortlist_size": 16}
    fitted = elias(**settings, cluster_text=cluster_text).fit(data, device="cpu")
    stage = fitted.model.servable.candidates
    assert isinstance(stage, LearnedEdges)
    kinds = [set(cluster[cluster >= 0] % 2) for cluster in stage.labels]
    assert all(len(kind) == 1 for kind in kinds) == cluster_text
