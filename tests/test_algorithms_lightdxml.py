"""Every choice trains end to end; the cycle; what is served and how large it is; what bad input gets."""

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from planted import planted, relevant_first

from xclearn import config, load
from xclearn.algorithms.astec import Astec
from xclearn.algorithms.lightdxml import Lightdxml
from xclearn.config import AUTO
from xclearn.data import Dataset
from xclearn.errors import ConfigError, DataError, MissingExtra
from xclearn.training.prepare import Size

N_LABELS = 16
SHORT = {
    "model_epochs": 10,
    "label_epochs": 2,
    "batch_size": 16,
    "embedding_dim": 32,
    "shortlist_size": 8,
    "dropout": 0.3,
}
LISTED = {"negatives": "nearest", "refresh_every": 4}
CHOICES: dict[str, dict[str, Any]] = {
    "against all labels": {"negatives": "all"},
    "the cycle": {},
    "the authors' code": {
        "label_encoder_relu": False,
        "final_refresh": False,
        "label_optimiser": "adam",
        "fusion": "row_max",
    },
    "labels placed in every epoch": {"refresh_every": 1, "search": "exact"},
    "index": {"search": "hnsw"},
    "random labels too": {"n_random": 4},
    "narrow label encoder": {"label_encoder_dim": 8},
    "re-ranker": {"reranker_epochs": 6, "reranker_size": 6},
    "re-ranker, all labels": {"negatives": "all", "reranker_epochs": 6, "reranker_size": 6},
    "sparse ranker": {"sparse_ranker": {}},
    "stopping": {"stopping": {"patience": 3, "hold_out": 0.2}},
    "word pieces": {"vectoriser": "word_piece"},
}


def made(**settings: Any) -> Lightdxml:
    cycle = {} if settings.get("negatives") == "all" else LISTED
    return config.build(Lightdxml, {**SHORT, **cycle, **settings}, "lightdxml")


def stages_of(data: Dataset, **settings: Any) -> list[str]:
    stages: list[str] = []

    def note(event: Any) -> None:
        if event["event"] == "stage":
            stages.append(event["stage"])

    made(**settings).fit(data, device="cpu", callback=note)
    return stages


@pytest.fixture(scope="module")
def data() -> Dataset:
    return planted(n_labels=N_LABELS, train=10, test=5)


@pytest.mark.parametrize("choice", CHOICES.values(), ids=CHOICES)
def test_a_choice_trains_end_to_end(data, choice, tmp_path):
    fitted = made(**{"model_epochs": 16, **choice}).fit(data, device="cpu", seed=1)
    found = relevant_first(data, fitted.predict(data.test.documents).ids)
    print(f"P@1 {found:.3f}; chance {1.3 / N_LABELS:.3f}")
    assert found > 0.8
    fitted.save(tmp_path / "model")
    again = load(tmp_path / "model").predict(data.test.documents)
    assert (again.ids == fitted.predict(data.test.documents).ids).all()


# The cycle


def test_labels_are_placed_before_the_first_epoch_every_few_epochs_and_at_the_end(data):
    turns = ["labels-0", "model-0", "labels-4", "model-4", "labels-8", "model-8"]
    assert stages_of(data) == [*turns, "labels-last"]
    assert stages_of(data, final_refresh=False) == turns
    assert stages_of(data, refresh_every=10) == ["labels-0", "model-0", "labels-last"]


def test_against_all_labels_they_are_placed_once(data):
    assert stages_of(data, negatives="all") == ["model-0", "labels-last"]


def test_without_a_last_refresh_the_index_is_stale(data):
    """The encoder moved on, the labels did not."""
    indices = [
        made(final_refresh=refresh, refresh_every=10).fit(data, device="cpu").model.servable.candidates.centres
        for refresh in (True, False)
    ]
    assert np.abs(indices[0] - indices[1]).max() > 0.05


def test_training_ends_when_the_hold_out_no_longer_rises(data):
    """A learning rate that is next to nothing: no epoch is better than the first, whose score is that of no row."""
    still = {"model_lr": 1e-12, "label_lr": 1e-12, "refresh_every": 1, "model_epochs": 10}
    stages = stages_of(data, **still, stopping={"patience": 2, "hold_out": 0.2})
    assert stages == ["labels-0", "model-0", "labels-1", "model-1", "labels-2", "model-2", "labels-last"]


@pytest.mark.parametrize("negatives", ["all", "nearest"])
def test_a_finished_training_that_is_resumed_gives_the_same_model(data, negatives, tmp_path):
    """Every stage is restored, none is trained: what is computed between them must not depend on that."""
    settings = {"negatives": negatives, "reranker_epochs": 2, "stopping": {"patience": 2, "hold_out": 0.2}}
    tensors = []
    for resume in (False, True):
        fitted = made(**settings).fit(data, device="cpu", checkpoint=tmp_path / "checkpoint", resume=resume)
        fitted.save(tmp_path / f"{resume}")
        tensors.append((tmp_path / f"{resume}" / "tensors.safetensors").read_bytes())
    assert tensors[0] == tensors[1]


def test_the_plan_names_the_stages_and_counts_epochs_of_all_cycles(data):
    plan = made(reranker_epochs=3).plan(data, device="cpu")
    assert [(cost.name, cost.epochs) for cost in plan.stages] == [("labels", 2 * 4), ("model", 10), ("re-ranker", 3)]
    assert [cost.epochs for cost in made(negatives="all").plan(data, device="cpu").stages] == [2, 10]


# What is served


def test_a_served_model_scores_the_nearest_labels_with_one_network(data):
    servable = made(shortlist_size=5).fit(data, device="cpu").model.servable
    assert list(servable.encoders) == ["document"]
    ids, scores = servable.predict(data.test.documents, 16)
    assert ((ids >= 0).sum(axis=1) == 5).all()
    vectors = servable.encoders["document"].encode(servable.vectoriser.transform(data.test.documents))
    cosines = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)) @ servable.candidates.centres.T
    assert (np.sort(ids[:, :5], axis=1) == np.sort(np.argsort(-cosines, axis=1)[:, :5], axis=1)).all()
    assert ((scores[:, :5] >= 0) & (scores[:, :5] <= 1)).all()


@pytest.mark.parametrize(
    ("device", "n_labels", "settings", "expected"),
    [
        ("cpu", 50_000, {}, {"negatives": "nearest", "refresh_every": 7, "label_epochs": 2, "fusion_weight": 0.3}),
        ("cpu", 4_000, {}, {"negatives": "all", "model_epochs": 10, "label_epochs": 4, "label_lr": AUTO}),
        ("cuda", 4_000, {}, {"negatives": "all", "model_epochs": 15, "label_lr": 0.2, "batch_size": 512}),
        ("cuda", 4_000, {"label_optimiser": "adam"}, {"label_lr": AUTO}),  # whose rate is the encoder's
        ("cuda", 4_000, {"negatives": "nearest"}, {"label_lr": AUTO}),
        ("cuda", 50_000, {}, {"negatives": "all", "model_epochs": 20, "label_lr": AUTO, "batch_size": 1024}),
    ],
)
def test_what_is_left_open_follows_the_device_and_the_labels(device, n_labels, settings, expected):
    size = Size(n_documents=60_000, n_labels=n_labels, n_features=1_000, n_feature_entries=10, n_relevant=10)
    auto = Lightdxml(**settings)._auto(size, device)
    assert expected.items() <= auto.items()


def test_the_mix_is_chosen_on_the_hold_out(data):
    fitted = made(stopping={"hold_out": 0.2}).fit(data, device="cpu")
    assert fitted.fusion_weight is AUTO
    assert fitted.model.servable.fusion.weight == fitted.resolved_["fusion_weight"]


def test_the_model_is_at_most_0_65_of_astecs(tmp_path):
    """The folder's bytes, as many dimensions, Astec with its re-ranker; a vocabulary as large as the label set."""
    data, short = planted(n_labels=200, train=3), {"embedding_dim": 64, "batch_size": 64}
    ours = Lightdxml(model_epochs=1, label_epochs=1, **short).fit(data, device="cpu")
    theirs = Astec(surrogate_epochs=1, extreme_epochs=1, reranker_epochs=1, **short).fit(data, device="cpu")
    sizes = []
    for name, algorithm in (("ours", ours), ("theirs", theirs)):
        algorithm.save(tmp_path / name)
        sizes.append(sum(path.stat().st_size for path in (tmp_path / name).iterdir()))
    print(f"{sizes[0]:,} and {sizes[1]:,} bytes: {sizes[0] / sizes[1]:.3f}")
    assert sizes[0] <= 0.65 * sizes[1]


# Word vectors


def write_vectors(path: Path, vectors: dict[str, np.ndarray]) -> str:
    lines = [f"{word} {' '.join(f'{value:.6f}' for value in vector)}" for word, vector in vectors.items()]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


def test_training_starts_from_given_word_vectors(data, tmp_path):
    """With next to no learning rate the table is still that of the file, and random where the file has no word."""
    rng = np.random.default_rng(0)
    vectors = {f"own{label}": rng.normal(size=32) for label in range(N_LABELS - 1)}
    path = write_vectors(tmp_path / "vectors.txt", vectors)
    fitted = made(word_vectors=path, model_lr=1e-12, model_epochs=4).fit(data, device="cpu")
    servable = fitted.model.servable
    tokens = servable.vectoriser.tokens(range(servable.vectoriser.n_features))
    table = servable.encoders["document"].token_embeddings
    for word, vector in vectors.items():
        np.testing.assert_allclose(table[tokens.index(word)], vector, atol=1e-5)
    assert np.abs(table[tokens.index(f"own{N_LABELS - 1}")]).max() > 0.01


def test_word_vectors_of_another_length_or_none_are_refused(data, tmp_path):
    path = write_vectors(tmp_path / "vectors.txt", {"own1": np.ones(3)})
    with pytest.raises(
        ConfigError, match=r"embedding_dim: the word vectors have the wrong length; got 32. Set embedding_dim = 3\."
    ):
        made(word_vectors=path).fit(data, device="cpu")
    with pytest.raises(DataError, match="no such file of word vectors"):
        made(word_vectors=str(tmp_path / "nothing")).fit(data, device="cpu")


# What bad input gets


@pytest.mark.parametrize("negatives", ["all", "nearest"])
def test_a_label_without_documents_is_counted_and_a_long_shortlist_holds_all_labels(data, negatives, tmp_path):
    train = data.train
    width = train.relevance.shape[1] + 3
    relevance = sp.csr_matrix(
        (train.relevance.data, train.relevance.indices, train.relevance.indptr), (len(train), width)
    )
    emptied = dataclasses.replace(train, documents=["", *train.documents[1:]], relevance=relevance)
    labels = dataclasses.replace(data.labels, names=[*data.labels.names, "x", "y", "z"], texts=None)
    changed = dataclasses.replace(data, train=emptied, labels=labels, test=None)
    fitted = made(negatives=negatives, shortlist_size=500, model_epochs=4).fit(changed, device="cpu")
    fitted.save(tmp_path / "model")
    noted = json.loads((tmp_path / "model" / "model.json").read_text())["about"]["training"]
    assert noted["labels_without_documents"] == 3
    ids, scores = fitted.predict([*data.test.documents[:3], "", "unheard"], k=width)
    assert (np.sort(ids, axis=1)[:, 3:] == np.arange(N_LABELS)).all()
    assert np.isfinite(scores[ids >= 0]).all()


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            {"negatives": "nearest", "refresh_every": 11},
            r"refresh_every: a cycle is longer than training; got 11; allowed: up to model_epochs = 10",
        ),
        ({"fusion_weight": 1.5}, r"lightdxml.fusion_weight: out of range; got 1.5; allowed: a number from 0 to 1"),
        ({"fusion_weight": -0.1}, r"lightdxml.fusion_weight: out of range; got -0.1"),
        ({"refresh_every": 0}, r"lightdxml.refresh_every: out of range; got 0"),
        ({"shortlist_size": 0}, r"lightdxml.shortlist_size: out of range; got 0"),
    ],
)
def test_settings_that_do_not_fit_are_refused_by_name(data, settings, sentence):
    with pytest.raises(ConfigError, match=sentence):
        Lightdxml(**SHORT | settings).fit(data, device="cpu")
    with pytest.raises(ConfigError):
        Lightdxml(**SHORT | settings | {"negatives": "all"}).fit(data, device="cpu")  # or nothing reads it


def test_a_missing_index_is_named(data, monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(MissingExtra, match=r"xclearn\[ann\].*search = \"exact\""):
        made(search="hnsw").fit(data, device="cpu")
