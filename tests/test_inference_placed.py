"""Prediction in torch against the servable in NumPy: the same labels, ties too, and the same scores up to rounding."""

import json
from dataclasses import replace

import handmade
import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_transformer import write_transformer

from xclearn.data.dataset import NO_PAIRS
from xclearn.errors import ConfigError, ModelError
from xclearn.inference.components import (
    AllLabels,
    Bag,
    Classifier,
    ClusterBeam,
    GatedBlock,
    Product,
    Relu,
    Residual,
    Sigmoid,
    Unit,
)
from xclearn.inference.graph import Game, GameLabels, Graph
from xclearn.inference.hashed import Affine
from xclearn.inference.layered import Layered
from xclearn.inference.placed import device_predictor, on_device
from xclearn.inference.re_ranking import ReRanking, SparseRanker
from xclearn.inference.sequences import Convolution, Filters, Transformer
from xclearn.inference.servable import Ensemble, Servable
from xclearn.inference.shortlists import CentroidSearch, LearnedEdges, Mix
from xclearn.inference.sparse import SparseFeatures
from xclearn.text.vectorisers import DenseVectoriser, SequenceVectoriser, WordVectoriser
from xclearn.text.weighting import Weighting

N_TOKENS, DIM, N_LABELS = 30, 12, 70
TOKENS = [f"t{i}" for i in range(N_TOKENS)]
LAYERS = {
    "none": lambda _: [],
    "relu": lambda _: [Relu()],
    "residual": lambda make: [Relu(), Residual(make(DIM, DIM), make(DIM))],
    "gated": lambda make: [GatedBlock(make(DIM, DIM), make(DIM), np.abs(make(DIM)), np.abs(make(DIM)))],
    "unit": lambda make: [Relu(), Residual(make(DIM, DIM), make(DIM)), Unit()],
    "affine": lambda make: [Affine(make(DIM, DIM), make(DIM)), Relu()],
}


def normal(seed):
    rng = np.random.default_rng(seed)
    return lambda *shape: (rng.standard_normal(shape) / 2).astype(np.float32)


def whole(seed):
    """Small whole numbers: sums and products are exact in 32 bits, and equal ones abound."""
    rng = np.random.default_rng(seed)
    return lambda *shape: rng.integers(-1, 2, shape).astype(np.float32)


def made(make, layers="none", candidates=None, fusion=None, n_scorers=1):
    vectoriser = WordVectoriser(TOKENS, Weighting(np.linspace(1, 3, N_TOKENS), True, True))
    scorers = [Classifier("document", make(N_LABELS, DIM), make(N_LABELS)) for _ in range(n_scorers)]
    fusion = fusion or (Sigmoid() if n_scorers == 1 else Product())
    bag = Bag(make(N_TOKENS, DIM), LAYERS[layers](make))
    servable = Servable(vectoriser, {"document": bag}, candidates or AllLabels(), scorers, fusion)
    servable.check()
    return servable


def clusters(make, beam=3):
    offsets = np.array([0, 10, 10, 35, 41, 60, N_LABELS])  # one is empty
    labels = np.random.default_rng(0).permutation(N_LABELS)
    return ClusterBeam("document", make(6, DIM), make(6), labels, offsets, beam)


def centres(make):
    rows = make(90, DIM)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    labels = np.sort(np.random.default_rng(0).integers(0, N_LABELS, 90)).astype(np.int32)  # several or none
    return CentroidSearch("document", rows, labels, 25)


def edges(make, size=25, certain=False):
    """Two edges in five lead nowhere, and some labels are reached by no path or by several."""
    rng = np.random.default_rng(0)
    labels = np.where(rng.random((9, 15)) < 0.4, -1, rng.permuted(np.tile(np.arange(N_LABELS), (9, 1)), axis=1)[:, :15])
    chances = np.ones((9, 15), np.float32) if certain else rng.random((9, 15)).astype(np.float32)
    return LearnedEdges("document", make(9, DIM), make(9), 2.5, 4, labels.astype(np.int32), chances, size)


def texts(n=40, seed=0):
    rng = np.random.default_rng(seed)
    return [
        "",
        "nothing known",
        *(" ".join(f"t{i}" for i in rng.integers(0, 40, rng.integers(0, 9))) for _ in range(n)),
    ]


def pairs(n, seed=0, amount=400):
    rng = np.random.default_rng(seed)
    return np.column_stack([rng.integers(0, n, amount), rng.integers(0, N_LABELS, amount)])


def assert_same(servable, documents, k=10, exclude=NO_PAIRS, **settings):
    found = device_predictor(servable, "cpu", **settings).predict(documents, k, exclude)
    expected = servable.predict(documents, k, exclude)
    there = expected.ids >= 0
    apart = np.abs(found.scores[there] - expected.scores[there]).max(initial=0)
    print(f"largest difference of scores {apart:.1e}")
    np.testing.assert_array_equal(found.ids, expected.ids)
    np.testing.assert_allclose(found.scores, expected.scores, rtol=0, atol=1e-5)
    assert (found.ids.dtype, found.scores.dtype) == (np.int64, np.float32)


def assert_same_in_all_cases(servable, **settings):
    documents = texts()
    assert_same(servable, documents, **settings)
    assert_same(servable, documents, exclude=pairs(len(documents)), **settings)
    assert_same(servable, documents, k=1000, exclude=pairs(len(documents)), **settings)
    assert_same(servable, ["", ""], k=3, **settings)
    assert_same(servable, [], **settings)


@pytest.mark.parametrize("layers", LAYERS)
def test_every_layer_over_all_labels(layers):
    assert_same_in_all_cases(made(normal(1), layers))


def test_several_scorers_over_all_labels():
    assert_same_in_all_cases(made(normal(2), n_scorers=2))


@pytest.mark.parametrize("stage", [clusters, centres, edges])
@pytest.mark.parametrize(("fusion", "n_scorers"), [(Sigmoid(), 1), (Product(), 2), (Mix([0.7], 0.4, True), 1)])
def test_shortlists(stage, fusion, n_scorers):
    if stage is clusters and isinstance(fusion, Mix):
        fusion = replace(fusion, by_row=False)
    assert_same_in_all_cases(made(normal(3), "gated", stage(normal(4)), fusion, n_scorers))


@pytest.mark.parametrize("at_once", [1, 64, 1000])
@pytest.mark.parametrize("stage", [None, clusters, centres, edges])
def test_blocks_of_labels_and_documents_change_nothing(at_once, stage):
    servable = made(normal(5), candidates=stage and stage(normal(6)))
    assert_same_in_all_cases(servable, scores_at_once=at_once)


@settings(max_examples=150, deadline=None)
@given(
    st.integers(0, 10**6),
    st.sampled_from(sorted({*LAYERS} - {"unit"})),
    st.integers(1, 80),
    st.sampled_from([7, 90, 1 << 20]),
)
def test_ties_are_broken_as_in_numpy(seed, layers, k, at_once):
    """Exact arithmetic, so the ids must be the same to the last one."""
    servable, rng = made(whole(seed), layers), np.random.default_rng(seed)
    features = sp.random(6, N_TOKENS, 0.05, "csr", np.float32, rng, lambda n: rng.integers(1, 3, n))
    exclude = pairs(6, seed, 60)
    found = device_predictor(servable, "cpu", scores_at_once=at_once).rank(features, k, exclude)
    expected = servable.rank(features, k, exclude)
    np.testing.assert_array_equal(found.ids, expected.ids)
    np.testing.assert_allclose(found.scores, expected.scores, rtol=0, atol=1e-6)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 6))
def test_ties_between_clusters(seed, beam):
    servable, rng = made(whole(seed), candidates=clusters(whole(seed + 1), beam)), np.random.default_rng(seed)
    features = sp.random(6, N_TOKENS, 0.05, "csr", np.float32, rng, lambda n: rng.integers(1, 3, n))
    found, expected = device_predictor(servable, "cpu").rank(features, 60), servable.rank(features, 60)
    np.testing.assert_array_equal(np.sort(found.ids, axis=1), np.sort(expected.ids, axis=1))  # the same clusters
    np.testing.assert_allclose(found.scores, expected.scores, rtol=0, atol=1e-6)


@pytest.mark.parametrize("k", [1, 5, 60, 1000])
def test_an_ensemble(k):
    first, second = made(normal(7), "gated", clusters(normal(8))), made(normal(9), "relu")
    ensemble = Ensemble([first, second, made(normal(10), candidates=clusters(normal(11), 1))])
    assert_same(ensemble, texts(), k)
    assert_same(ensemble, texts(), k, pairs(42))


def test_dense_features():
    make = normal(12)
    rows = make(9, N_TOKENS)
    assert_same(replace(made(make, "residual"), vectoriser=DenseVectoriser(N_TOKENS)), rows)


def test_an_encoder_of_its_own_for_the_clusters():
    make = normal(13)
    servable = made(make, "gated", fusion=Product())
    encoders = {**servable.encoders, "cluster": Bag(make(N_TOKENS, DIM), [])}
    assert_same_in_all_cases(replace(servable, encoders=encoders, candidates=replace(clusters(make), vector="cluster")))


def test_a_transformer_with_layers(tmp_path):
    library = pytest.importorskip("transformers")
    write_transformer(tmp_path, TOKENS, dim=DIM)
    model = library.AutoModel.from_pretrained(tmp_path)
    weights = {name: value.numpy() for name, value in model.state_dict().items()}
    encoder = Transformer(json.dumps(model.config.to_dict()), weights, model.config.vocab_size, "mean")
    make, vectoriser = normal(14), SequenceVectoriser("words", TOKENS, 8)
    layers = [Residual(make(DIM, DIM), make(DIM))]
    assert_same(replace(made(make), vectoriser=vectoriser, encoders={"document": Layered(encoder, layers)}), texts())


@pytest.mark.parametrize("certain", [False, True])
def test_fewer_labels_may_be_found_than_are_asked_for(certain):
    stage = edges(normal(6), size=45, certain=certain)
    servable = made(normal(5), candidates=stage)
    found, _ = stage.find({"document": servable.encoders["document"].encode(servable.vectoriser.transform(texts()))})
    assert (found < 0).any()
    assert_same_in_all_cases(servable)


def test_steps_after_fusion_follow_on_the_cpu():
    """One that passes scores on over a graph, and one that reads a vector which nothing on the device does."""
    make, tokens = normal(15), SparseFeatures(N_TOKENS, True)
    links = sp.random(N_LABELS, N_LABELS, 0.05, format="csr", random_state=0, dtype=np.float32)
    graph = GameLabels(Game(Graph.of(links), 0.5, 2), 12)
    weights = sp.random(N_LABELS, N_TOKENS + DIM, 0.3, format="csr", random_state=1, dtype=np.float32)
    ranking = ReRanking(20, SparseRanker.of("bag", "document", weights, make(N_LABELS)), None)
    for candidates in (None, edges(normal(16))):
        servable = made(make, "gated", candidates)
        encoders = {**servable.encoders, "bag": tokens}
        whole = replace(servable, encoders=encoders, steps=[graph, ranking])
        whole.check()
        assert_same_in_all_cases(whole)
        assert_same_in_all_cases(Ensemble([whole, servable]))


def test_what_has_no_form_there_is_named():
    servable = handmade.servable()
    filters = Filters(np.zeros((2, 3, 1), np.float32), np.zeros(2, np.float32))
    convolution = Convolution(np.zeros((3, 3), np.float32), [filters], 1, np.zeros((3, 2)), np.zeros(3))
    for refused, kind in (
        (replace(servable, encoders={"document": convolution}), "convolution.v1"),
        (Ensemble([servable, replace(servable, encoders={"document": Layered(convolution, [])})]), "convolution.v1"),
    ):
        with pytest.raises(ModelError, match=rf"{kind}.*Use the device cpu"):
            device_predictor(refused, "cpu")
        assert on_device(refused, "auto") is None


def test_a_device_or_a_number_of_labels_that_is_none():
    servable = handmade.servable()
    for name in ("gpu", "cuda:99", "meta", ""):
        with pytest.raises(ConfigError, match="device"):
            device_predictor(servable, name)
    with pytest.raises(ConfigError, match="k must be at least 1"):
        device_predictor(servable, "cpu").predict(["red"], 0)
    assert on_device(servable, "cpu") is None
    assert (on_device(servable, "auto") is not None) == torch.cuda.is_available()
