"""Every choice of every module trains end to end; what bad settings get; what the parts promise together."""

import dataclasses
import sys
from typing import Any, get_args

import numpy as np
import pytest
import scipy.sparse as sp
from planted import planted, relevant_first

from xclearn import config, load
from xclearn.algorithms.astec import Astec
from xclearn.algorithms.astec.surrogates import UNTRAINED
from xclearn.config import AUTO
from xclearn.data import Dataset
from xclearn.errors import ConfigError, MissingExtra
from xclearn.inference import save_model
from xclearn.inference.export import Exporter, Form
from xclearn.inference.native import NativePredictor, native_predictor
from xclearn.inference.shortlists import CentroidSearch
from xclearn.inference.tensors import read_tensors
from xclearn.search.shortlists import ListSource
from xclearn.training.prepare import prepare

N_LABELS = 16
SHORT = {"surrogate_epochs": 12, "extreme_epochs": 12, "batch_size": 16, "embedding_dim": 48}
RATES = {"surrogate_lr": 0.02, "extreme_lr": 0.02, "reranker_lr": 0.02}
LISTS = {"shortlist_size": 8, "n_random": 4}
ADAM = {"label_optimiser": "adam"}
CHOICES: dict[str, dict[str, Any]] = {
    "as it comes": {},
    **{f"surrogate {kind}": {"surrogate": kind} for kind in ("correlated_clusters", "hashing", "projection")},
    "surrogate selection": {"surrogate": "selection", "n_clusters": 8},
    "surrogate word vectors": {"surrogate": "word_vectors"},
    "surrogate skip-gram": {"surrogate": "skip_gram", "embedding_dim": 128},  # words have no company here but noise
    "no surrogate: DeepXML-ANNS": {"surrogate": "none", "negatives": "both", "rebuild_every": 5},
    **{
        f"negatives {kind}": {"negatives": kind}
        for kind in ("centroids", "documents", "both", "cluster", "tree", "hash")
    },
    **{f"negatives {kind}": {"negatives": kind, "n_drawn": 8} for kind in ("uniform", "unigram")},
    "transfer capped": {"transfer": "capped", "transfer_limit": 0.5},
    **{f"transfer {kind}": {"transfer": kind} for kind in ("free", "fully_connected", "fine_tune")},
    **{f"classifier {kind}": {"classifier": kind} for kind in ("label_tree", "slice", "sparse_one_vs_all")},
    "mean of losses": {"surrogate_loss": "bce_mean", "loss": "bce_mean", **ADAM},
    "mean of losses on lists": {"loss": "bce_mean", "negatives": "both", **ADAM},
    "squared hinge": {"surrogate_loss": "squared_hinge", "loss": "squared_hinge"},
    "squared hinge on lists": {"loss": "squared_hinge", "negatives": "both"},
    "plain fusion": {"fusion": "plain", "fusion_weight": 0.5},
    "re-ranker": {"reranker_epochs": 12, "reranker_size": 6},
    "re-ranker, mixed on two levels": {"reranker_epochs": 12, "reranker_size": 6, "fusion": "two_levels"},
    "ensemble": {"n_members": 2},
    "encoder multilayer: MACH in DeepXML": {"encoder": {"kind": "multilayer", "dropout": 0.1}, "surrogate": "hashing"},
    "encoder convolution: XML-CNN in DeepXML": {
        "vectoriser": "sequences",
        "encoder": {"kind": "convolution", "token_dim": 32, "widths": [2, 3], "dropout": 0.1},
    },
    "several centres": {"head_centres": 3, "head_documents": 10, "negatives": "centroids"},
    "index": {"search": "ivf", "negatives": "both"},
}


def made(**settings: Any) -> Astec:
    """Short, with what of RATES and LISTS the choice has a use for."""
    given = {"reranker_epochs": 0, **SHORT, **settings}
    unused = {"surrogate_epochs", "surrogate_lr"} if given.get("surrogate") in UNTRAINED else set()
    unused |= {"extreme_epochs", "extreme_lr"} if given.get("classifier", "rows") != "rows" else set()
    unused |= set() if given["reranker_epochs"] else {"reranker_lr"}
    unused |= (
        set() if given.get("negatives") in get_args(ListSource) or given.get("surrogate") == "none" else {"n_random"}
    )
    usual = {key: value for key, value in (SHORT | RATES | LISTS).items() if key not in unused}
    return config.build(Astec, {"reranker_epochs": 0, **usual, **settings}, "astec")


@pytest.fixture(scope="module")
def data() -> Dataset:
    return planted(n_labels=N_LABELS, train=10, test=5)


@pytest.mark.parametrize("choice", CHOICES.values(), ids=CHOICES)
def test_a_choice_trains_end_to_end(data, choice, tmp_path):
    fitted = made(**choice).fit(data, device="cpu", seed=1)
    found = relevant_first(data, fitted.predict(data.test.documents).ids)
    print(f"P@1 {found:.3f}; chance {1.3 / N_LABELS:.3f}")
    assert found > 0.5
    fitted.save(tmp_path / "model")
    again = load(tmp_path / "model").predict(data.test.documents)
    assert (again.ids == fitted.predict(data.test.documents).ids).all()


@pytest.mark.parametrize("surrogate", ["word_vectors", "clusters"])
def test_tokens_start_from_a_file(data, tmp_path, surrogate):
    """Untrained they are what is served; a task that is trained next to not at all starts from them."""
    rng = np.random.default_rng(0)
    vectors = {f"own{label}": rng.normal(size=48) for label in range(N_LABELS)}
    lines = [f"{word} {' '.join(f'{value:.6f}' for value in vector)}" for word, vector in vectors.items()]
    (tmp_path / "a.vec").write_text("\n".join(lines) + "\n")
    slow = {"surrogate_lr": 1e-12} if surrogate == "clusters" else {}
    fitted = made(word_vectors=str(tmp_path / "a.vec"), surrogate=surrogate, **slow).fit(data, device="cpu")
    servable = fitted.model.servable
    tokens = servable.vectoriser.tokens(range(servable.vectoriser.n_features))
    for word, vector in vectors.items():
        found = servable.encoders["shortlist"].token_embeddings[tokens.index(word)]
        np.testing.assert_allclose(found, vector, atol=1e-5)
    assert fitted.model.about["training"]["tokens_with_word_vectors"].startswith(f"{N_LABELS} of ")


def test_chances_mixed_on_two_levels_are_another_score(data):
    """The same training; the paper's mix of three chances is not the mix of logits."""
    scores = []
    for fusion in ("plain", "two_levels"):
        fitted = made(reranker_epochs=4, reranker_size=6, fusion=fusion, fusion_weight=0.4).fit(data, device="cpu")
        scores.append(fitted.predict(data.test.documents[:8]).scores)
    assert np.abs(scores[0] - scores[1]).max() > 1e-3


# What bad input gets


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"n_clusters": 32}, r"n_clusters: .*got 32; allowed: a power of two up to the 16 labels"),
        ({"n_clusters": 3}, r"n_clusters: .*got 3; allowed: a power of two"),
        ({"surrogate": "selection", "n_clusters": 17}, r"n_clusters: .*got 17; allowed: up to the 16 labels"),
        (
            {"classifier": "slice", "reranker_epochs": 1},
            r"reranker_epochs: the setting has no effect .* got 1.* set classifier",
        ),
        (
            {"surrogate": "word_vectors", "vectoriser": "sequences"},
            r"surrogate: word vectors need an encoder that sums them; got 'word_vectors'",
        ),
        (
            {"word_vectors": "a.vec", "vectoriser": "sequences"},
            r"word_vectors: word vectors need an encoder that sums them; got 'a.vec'",
        ),
        ({"fusion": "two_levels"}, r"fusion: the setting has no effect .* got 'two_levels'.* set reranker_epochs"),
    ],
)
def test_settings_that_do_not_fit_the_data_are_refused_by_name(data, settings, sentence):
    with pytest.raises(ConfigError, match=sentence):
        made(**settings).fit(data, device="cpu")


@pytest.mark.parametrize("limit", [0, -0.5, 1.01])
def test_a_limit_outside_0_to_1_is_refused(data, limit):
    with pytest.raises(
        ConfigError, match=r"astec.transfer_limit: out of range; got .*; allowed: a number above 0 to 1"
    ):
        made(transfer_limit=limit)
    with pytest.raises(ConfigError, match="transfer_limit"):
        Astec(transfer_limit=limit).fit(data, device="cpu")


def test_a_missing_index_is_named_and_exact_search_needs_none(data, monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(MissingExtra, match=r"xclearn\[ann\].*search = \"exact\""):
        made(search="hnsw", negatives="both").fit(data, device="cpu")
    made(search="exact", negatives="both", surrogate_epochs=1, extreme_epochs=1).fit(data, device="cpu")


@pytest.mark.parametrize("negatives", ["all", "both", "cluster", "tree", "hash", "unigram"])
def test_labels_without_documents_and_documents_without_tokens_are_no_obstacle(data, negatives):
    """The lists are longer than there are labels, too."""
    train = data.train
    width = train.relevance.shape[1] + 3
    relevance = sp.csr_matrix(
        (train.relevance.data, train.relevance.indices, train.relevance.indptr), (len(train), width)
    )
    emptied = dataclasses.replace(train, documents=["", *train.documents[1:]], relevance=relevance)
    labels = dataclasses.replace(data.labels, names=[*data.labels.names, "x", "y", "z"], texts=None)
    changed = dataclasses.replace(data, train=emptied, labels=labels, test=None)
    fitted = made(negatives=negatives, shortlist_size=500, surrogate_epochs=1, extreme_epochs=1).fit(
        changed, device="cpu"
    )
    ids, scores = fitted.predict([*data.test.documents[:3], "", "unheard"])
    assert ids.min() >= 0
    assert np.isfinite(scores).all()


# What is chosen, and what is served


def test_the_fusion_weight_is_chosen_on_the_hold_out(data):
    fitted = made(stopping={"patience": 2, "hold_out": 0.2}).fit(data, device="cpu")
    assert fitted.fusion_weight is AUTO
    assert 0.1 <= fitted.resolved_["fusion_weight"] <= 1
    assert fitted.model.servable.fusion.weight == fitted.resolved_["fusion_weight"]


def test_a_served_model_scores_only_its_candidates(data):
    """As many as it was told to, with scores between 0 and 1, and the re-ranker's logit beside the classifier's."""
    fitted = made(served_labels=5, negatives="both", reranker_epochs=1, reranker_size=4, reranker_weight=0.6).fit(
        data, device="cpu"
    )
    servable = fitted.model.servable
    assert isinstance(servable.candidates, CentroidSearch)
    assert servable.fusion.scorer_weights == pytest.approx([0.4, 0.6])
    ids, scores = fitted.predict(data.test.documents, k=16)
    assert ((ids >= 0).sum(axis=1) == 5).all()
    assert ((scores[:, :5] >= 0) & (scores[:, :5] <= 1)).all()


def test_the_plan_names_every_stage(data):
    plan = made(n_members=2, reranker_epochs=3).plan(data, device="cpu")
    named = [f"{name}-{member}" for member in range(2) for name in ("surrogate", "extreme", "re-ranker")]
    assert [cost.name for cost in plan.stages] == named
    assert plan.peak > 0


def test_without_a_surrogate_it_is_anns_everywhere(data):
    """On a GPU and for few labels the default is to train against all; DeepXML-ANNS has lists, made anew."""
    size = prepare(data, Astec().vectoriser, None, 0).size
    for device in ("cpu", "cuda"):
        assert Astec()._resolve(size, device).negatives == "all"
        assert Astec(surrogate="none")._resolve(size, device).negatives == "both"
    stages: list[str] = []
    alone = {"surrogate": "none", "extreme_epochs": 12, "rebuild_every": 5, "batch_size": 16, "reranker_epochs": 0}
    Astec(**alone).fit(data, device="cpu", callback=lambda event: stages.append(str(event.get("stage"))))
    assert {"extreme-0-0", "extreme-0-5", "extreme-0-10"} <= set(stages)


def test_lists_are_made_anew_while_the_encoder_is_trained(data):
    stages = []
    made(surrogate="none", negatives="centroids", extreme_epochs=7, rebuild_every=3).fit(
        data, device="cpu", callback=lambda event: stages.append(event["stage"]) if event["event"] == "stage" else None
    )
    assert stages == ["extreme-0-0", "extreme-0-3", "extreme-0-6"]


def test_the_shared_token_table_is_not_moved_by_the_last_modules(data):
    """Unless it is fine-tuned, as in DeepXML's Module III, or there was no surrogate."""
    tables = {}
    for transfer in ("spectral", "fine_tune"):
        for epochs in (1, 4):
            fitted = made(transfer=transfer, extreme_epochs=epochs).fit(data, device="cpu")
            tables[transfer, epochs] = fitted.model.servable.encoders["shortlist"].token_embeddings
    assert (tables["spectral", 1] == tables["spectral", 4]).all()
    assert (tables["fine_tune", 1] != tables["fine_tune", 4]).any()


@pytest.mark.parametrize("choice", [{}, {"transfer": "fine_tune"}, {"classifier": "slice"}], ids=str)
def test_the_folder_holds_the_shared_token_table_once(data, choice, tmp_path):
    """Against the same model with a table for each encoder, also in native code and exported."""
    once = {"surrogate_epochs": 1, **({} if "classifier" in choice else {"extreme_epochs": 1})}
    fitted = made(**once, **choice).fit(data, device="cpu")
    fitted.save(tmp_path / "shared")
    servable = fitted.model.servable
    parted = {
        name: dataclasses.replace(encoder, token_embeddings=encoder.token_embeddings.copy())
        for name, encoder in servable.encoders.items()
    }
    twice = dataclasses.replace(servable, encoders=parted)
    save_model(dataclasses.replace(fitted.model, servable=twice), tmp_path / "twice")
    answers = []
    for name, tables in (("shared", 1), ("twice", 2)):
        stored, _ = read_tensors(tmp_path / name / "tensors.safetensors")
        assert sum(key.endswith("token_embeddings") for key in stored) == tables
        loaded = load(tmp_path / name)
        exported = Exporter(loaded.model, data).export(Form("int8", 0)).servable
        predictors = [loaded.model.servable, loaded, exported]
        predictors.append(native_predictor(exported))
        assert isinstance(native_predictor(loaded.model.servable), NativePredictor)
        found = [each.predict(data.test.documents, 5) for each in predictors]
        answers.append([(top.ids.tobytes(), top.scores.tobytes()) for top in found])
    assert answers[0] == answers[1]
    assert answers[0][1] == tuple(part.tobytes() for part in fitted.predict(data.test.documents, 5))
