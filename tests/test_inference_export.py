"""Export: rows of few bits, indexes, the choice of a form by measuring, and `xc export` itself."""

import json
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from planted import planted, relevant_first
from typer.testing import CliRunner

from xclearn.algorithms.astec import Astec
from xclearn.algorithms.one_vs_all import OneVsAll
from xclearn.cli.main import app
from xclearn.data import Dataset, LabelSet, Split
from xclearn.data.write import write_dataset
from xclearn.errors import ConfigError, DataError, ModelError
from xclearn.inference import Model, Predictor, load_model, save_model
from xclearn.inference.components import AllLabels, Bag, Classifier, ClusterBeam, Product, Sigmoid
from xclearn.inference.export import Choice, Exporter, Form, HoldOut, Measured, held_out, refuse_loss
from xclearn.inference.exported import CentreIndex, ClusterIndex, PackedClassifier, PackedRows, TokenIndex
from xclearn.inference.graph import Game, GameBeam, GameScorer, Graph
from xclearn.inference.index import centre_index, centre_tree, levels_above, n_groups, token_index
from xclearn.inference.native import native_predictor
from xclearn.inference.servable import Ensemble, Servable
from xclearn.inference.shortlists import CentroidSearch, LearnedEdges, Mix
from xclearn.text import Words
from xclearn.text.vectorisers import DenseVectoriser

N_LABELS, DIM = 600, 130


@pytest.fixture(scope="module")
def data():
    return planted(n_labels=N_LABELS, train=4)


@pytest.fixture(scope="module")
def model(data):
    """Knows the word of each label."""
    return model_of(data)


@pytest.fixture(scope="module")
def clustered(model):
    """The same, with the labels in 300 clusters of two neighbours, scored by the mean of their rows."""
    rows = model.servable.scorers[0].weight
    means = (rows[0::2] + rows[1::2]) / 2
    labels, offsets = np.arange(N_LABELS), np.arange(0, N_LABELS + 1, 2)
    clusters = ClusterBeam("document", means, np.full(300, -3, np.float32), labels, offsets, 20)
    return replace(model, servable=replace(model.servable, candidates=clusters, fusion=Product()))


def model_of(data, seed=0):
    rng = np.random.default_rng(seed)
    vectoriser = Words().learn(list(data.train.documents))
    embeddings = rng.standard_normal((vectoriser.n_features, DIM)).astype(np.float32) / 3
    rows = vectoriser.transform(data.labels.texts) @ embeddings  # (L, D)
    scorer = Classifier("document", np.asarray(rows, np.float32), np.full(data.n_labels, -8, np.float32))
    servable = Servable(vectoriser, {"document": Bag(embeddings, [])}, AllLabels(), [scorer], Sigmoid())
    return Model(servable, data.labels, {"algorithm": "by hand"})


def test_rows_in_32_bits_are_the_rows():
    weight = np.random.default_rng(0).standard_normal((5, 33)).astype(np.float32)
    rows = PackedRows.of(weight, np.arange(5), "fp32")
    assert rows.values.shape == (5, 64)
    np.testing.assert_array_equal(rows.weight(slice(None), 33), weight)
    assert rows.bias.dtype == np.float32


def test_rows_in_16_bits_are_those_of_torch():
    weight = np.random.default_rng(1).standard_normal((50, 32)).astype(np.float32) ** 7
    weight[0, :3] = [1 + 2**-8, 1 + 3 * 2**-8, -0.0]  # two ties, one to even each way
    expected = torch.from_numpy(weight).to(torch.bfloat16).to(torch.float32).numpy()
    np.testing.assert_array_equal(PackedRows.of(weight, np.zeros(50), "bf16").weight(slice(None), 32), expected)


def test_rows_in_8_bits_are_off_by_half_a_step():
    weight = np.random.default_rng(2).standard_normal((50, 70)).astype(np.float32)
    weight[7] = 0
    rows = PackedRows.of(weight, np.zeros(50), "int8")
    steps = np.abs(weight).max(axis=1, keepdims=True) / 127
    assert rows.values.nbytes == 50 * 96
    assert (np.abs(rows.weight(slice(None), 70) - weight) <= steps / 2 + 1e-6).all()


def test_an_index_of_tokens_by_hand():
    features = sp.csr_matrix(np.array([[1, 2], [1, 0], [3, 0]], np.float32))
    wanted = sp.csr_matrix(np.array([[1, 0, 0], [0, 1, 0], [0, 1, 0]], np.float32))
    index = token_index(features, wanted, "tokens")
    assert index.offsets.tolist() == [0, 2, 3]
    assert index.labels.tolist() == [1, 0, 0]  # at token 0: label 1 has 1 + 3 of norm 4, label 0 has 1 of norm √5
    np.testing.assert_allclose(index.weights, [4 / 2, 1 / 5**0.25, 2 / 5**0.25], rtol=1e-6)
    assert index.always.tolist() == [1, 0, 2]


def test_levels_above_lead_to_the_clusters(clustered, data):
    """300 clusters get 19 nodes above, which tell the documents that have a label below them."""
    servable = clustered.servable
    vectors = servable.encoders["document"].encode(servable.vectoriser.transform(data.labels.texts))
    top, leaves = levels_above(servable.candidates, vectors, sp.identity(N_LABELS, np.float32, "csr"))
    assert top.offsets.tolist() == [*range(0, 300, 16), 300]
    assert leaves.weight is servable.candidates.weight
    best = (vectors @ top.weight.T + top.bias).argmax(axis=1)
    expected = np.arange(N_LABELS) // 32
    assert (best == expected).mean() > 0.5  # by chance 0.05; 130 dimensions cannot tell all of 600 words apart


def clustered_vectors(n, n_topics, seed, dim=32):
    """Of length one, around topics that are the same for every seed."""
    topics = np.random.default_rng(0).standard_normal((n_topics, dim))
    rng = np.random.default_rng(seed)
    vectors = topics[rng.integers(n_topics, size=n)] + 0.7 * rng.standard_normal((n, dim))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def test_nodes_are_the_means_of_what_stands_below_and_mostly_the_nearest_to_it():
    centres = clustered_vectors(40_000, 400, seed=1)
    levels, order = centre_tree(centres)
    below, (top, last) = centres[order], levels
    assert n_groups(40_000) == 2048
    assert len(last.bias) == top.offsets[-1]
    for nodes, children, share in ((last, below, 0.9), (top, last.weight, 0.7)):
        node = np.repeat(np.arange(len(nodes.bias)), np.diff(nodes.offsets))
        sums = np.array([children[node == i].sum(axis=0) for i in range(len(nodes.bias))])
        np.testing.assert_allclose(nodes.weight, sums / np.linalg.norm(sums, axis=1, keepdims=True), atol=1e-5)
        nearest = (children @ nodes.weight.T).argmax(axis=1)
        print(f"share below the nearest node: {(nearest == node).mean():.3f}")
        assert (nearest == node).mean() > share
        assert (nodes.bias == 0).all()


@pytest.mark.parametrize("n", [1, 2, 33, 700])
def test_a_tree_of_few_centres_leads_to_each(n):
    (top,), order = centre_tree(clustered_vectors(n, 5, seed=1))
    assert np.sort(order).tolist() == list(range(n))
    assert top.offsets[0] == 0
    assert top.offsets[-1] == n
    assert (np.diff(top.offsets) > 0).all()


def test_recall_of_a_tree_of_centres_rises_with_its_breadth_to_all():
    search = CentroidSearch("v", clustered_vectors(40_000, 300, seed=1), np.arange(40_000, dtype=np.int32), 50)
    tree, vectors = centre_tree(search.centres), {"v": clustered_vectors(30, 300, seed=2)}
    assert len(tree.levels) == 2
    exact, cosines = search.find(vectors)
    recalls = []
    for breadth in (1, 8, 32, 128, 4096):
        found, values = centre_index(search, tree, "fp32", breadth).find(vectors)
        recalls.append(np.mean([np.isin(*pair).mean() for pair in zip(exact, found, strict=True)]))
    print(f"recall@50 of breadths 1, 8, 32, 128, all: {np.round(recalls, 3)}")
    assert recalls == sorted(recalls)
    assert recalls[2] > 0.85
    assert recalls[3] > 0.95
    np.testing.assert_array_equal(found, exact)
    np.testing.assert_allclose(values, cosines, atol=1e-6)


@pytest.mark.parametrize("precision", ["fp32", "bf16", "int8"])
@pytest.mark.parametrize("breadth", [0, 125])
def test_an_exported_folder_answers_as_the_model(model, data, tmp_path, precision, breadth):
    exported = Exporter(model, data).export(Form(precision, breadth))
    save_model(exported, tmp_path / "out")
    loaded = Predictor.load(tmp_path / "out")
    texts = list(data.test.documents)[:200]
    found, expected = loaded.predict(texts, 10), model.servable.predict(texts, 10)
    assert list(loaded.labels.names) == list(data.labels.names)
    assert (found.ids[:, 0] == expected.ids[:, 0]).mean() > 0.99
    np.testing.assert_allclose(found.scores[:, 0], expected.scores[:, 0], atol=0.03)
    slow = loaded.model.servable.predict(texts, 10)
    np.testing.assert_allclose(slow.scores, found.scores, atol=1e-4)
    assert (slow.ids == found.ids).mean() > 0.99


def test_every_label_in_32_bits_changes_nothing(model, data):
    exported = Exporter(model, None).export(Form("fp32", 0))
    texts = list(data.test.documents)
    found, expected = Predictor(exported).predict(texts, 10), model.servable.predict(texts, 10)
    np.testing.assert_array_equal(found.ids, expected.ids)


def test_a_model_of_clusters_keeps_them(clustered, data):
    exported = Exporter(clustered, data).export(Form("fp32", 300))
    assert isinstance(exported.servable.candidates, ClusterIndex)
    texts = list(data.test.documents)[:100]
    found = Predictor(exported).predict(texts, 5)
    everything = replace(clustered.servable.candidates, beam=300)
    expected = replace(clustered.servable, candidates=everything).predict(texts, 5)
    np.testing.assert_array_equal(found.ids, expected.ids)
    np.testing.assert_allclose(found.scores, expected.scores, atol=1e-5)


def centred(model):
    """The same model, with its label rows as centres."""
    rows = model.servable.scorers[0].weight
    centres = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return CentroidSearch("document", centres, np.arange(N_LABELS, dtype=np.int32), 200)


def with_edges(clustered):
    stage = clustered.servable.candidates
    labels = stage.labels.reshape(300, 2).astype(np.int32)
    return LearnedEdges("document", stage.weight, stage.bias, 10.0, 20, labels, np.ones((300, 2), np.float32), 40)


@pytest.mark.parametrize("breadth", [0, 16])
def test_label_centres_are_found_through_a_tree(model, data, tmp_path, breadth):
    servable = replace(model.servable, candidates=centred(model), fusion=Mix([1.0], 0.5, False))
    assert Choice().forms(servable) == [Form("int8", 0), Form("int8", 16)]
    exported = Exporter(replace(model, servable=servable), None).export(Form("int8", breadth))
    assert type(exported.servable.candidates) is (CentreIndex if breadth else CentroidSearch)
    save_model(exported, tmp_path / "out")
    texts = list(data.test.documents)
    loaded = Predictor.load(tmp_path / "out")
    found, expected = loaded.predict(texts, 5), servable.predict(texts, 5)
    assert (found.ids[:, 0] == expected.ids[:, 0]).mean() > 0.95
    slow = loaded.model.servable.predict(texts, 5)
    np.testing.assert_allclose(slow.scores, found.scores, atol=1e-4)
    assert (slow.ids == found.ids).mean() > 0.99


def test_few_label_centres_are_all_compared(model):
    few = replace(centred(model), centres=centred(model).centres[:200], labels=np.arange(200, dtype=np.int32))
    servable = replace(model.servable, candidates=few)
    assert Choice().forms(servable) == [Form("int8", 0)]
    with pytest.raises(ConfigError, match="cannot be searched"):
        Choice(breadth=4).forms(servable)


def test_astec_is_exported_with_a_measured_breadth(tmp_path):
    data = planted(n_labels=300, train=5)
    sizes = {"batch_size": 64, "embedding_dim": 64, "head_centres": 3, "head_documents": 6}
    epochs = {"surrogate_epochs": 8, "extreme_epochs": 8, "reranker_epochs": 4}
    rates = {"surrogate_lr": 0.02, "extreme_lr": 0.05, "reranker_lr": 0.02}
    fitted = Astec(**sizes, **epochs, **rates).fit(data, device="cpu", seed=1)
    fitted.save(tmp_path / "model")
    write_dataset(data, tmp_path / "data")
    chosen = xc(tmp_path / "model", tmp_path / "chosen", "--data", tmp_path / "data")
    assert chosen.exit_code == 0, chosen.exception
    assert sum("int8" in line for line in chosen.stdout.splitlines()) >= 2  # all centres, and a breadth
    assert load_model(tmp_path / "chosen").about["export"]["lost"]["P@1"] <= 0.3
    forced = xc(tmp_path / "model", tmp_path / "out", "--data", tmp_path / "data", "--breadth", 16, "--force")
    assert forced.exit_code == 0, forced.exception
    loaded = load_model(tmp_path / "out")
    index, search = loaded.servable.candidates, fitted.model_.servable.candidates
    assert isinstance(index, CentreIndex)
    assert len(index.labels) == len(search.labels) > 300  # some labels have several centres
    assert index.size == search.size
    exact = relevant_first(data, fitted.predict(data.test.documents).ids)
    found = relevant_first(data, Predictor(loaded).predict(list(data.test.documents), 5).ids)
    print(f"P@1 {found:.3f}, exact {exact:.3f}")
    assert found > exact - 0.02 > 0.8


def test_the_order_of_words_tells_labels_apart_where_runs_are_tokens(tmp_path):
    words = ["red", "green", "blue", "grey"]
    pairs = [f"{first} {second}" for first in words for second in words if first != second]
    relevance = sp.csr_matrix(np.tile(np.eye(len(pairs), dtype=np.float32), (10, 1)))
    train = Split([f"n{i % 7} {pair} m{i % 5}" for i in range(10) for pair in pairs], relevance)
    data = Dataset("pairs", train, LabelSet(pairs), Split([f"x {pair} y" for pair in pairs], relevance[: len(pairs)]))
    fitted = OneVsAll(vectoriser=Words(longest=2), epochs=40, embedding_dim=32).fit(data, device="cpu", seed=0)
    best = fitted.predict(data.test.documents, 1).ids[:, 0]
    np.testing.assert_array_equal(best, np.arange(len(pairs)))
    fitted.save(tmp_path / "model")
    write_dataset(data, tmp_path / "data")
    assert xc(tmp_path / "model", tmp_path / "out", "--data", tmp_path / "data", "--int8").exit_code == 0
    for folder in ("model", "out"):
        loaded = load_model(tmp_path / folder)
        for predictor in (loaded.servable, native_predictor(loaded.servable)):
            if predictor is not None:  # the extension may be absent
                np.testing.assert_array_equal(predictor.predict(data.test.documents, 1).ids[:, 0], best)


@pytest.mark.parametrize("kind", ["edges", "game"])
def test_other_ways_to_find_labels_keep_their_way_with_another_breadth(clustered, data, tmp_path, kind):
    graph = Graph.of(sp.identity(300, np.float32, "csr"))
    game = GameBeam(clustered.servable.candidates, Game(graph, 0.5, 10))
    stage = with_edges(clustered) if kind == "edges" else game
    made = replace(clustered, servable=replace(clustered.servable, candidates=stage))
    made.servable.check()
    forms = Choice(precision="int8").forms(made.servable)
    assert [form.breadth for form in forms] == [8, 16, 20, 32, 64, 128]
    exported = Exporter(made, data).export(forms[2])
    assert type(exported.servable.candidates) is type(stage)
    save_model(exported, tmp_path / "out")
    texts = list(data.split("test").documents)
    found, expected = Predictor.load(tmp_path / "out").predict(texts, 5), Predictor(made).predict(texts, 5)
    assert (found.ids == expected.ids).mean() > 0.95
    np.testing.assert_allclose(found.scores, expected.scores, atol=0.02)


def test_an_ensemble_is_exported_member_by_member(model, data):
    second = model_of(data, seed=1).servable
    ensemble = replace(model, servable=Ensemble([model.servable, second]))
    exported = Exporter(ensemble, data).export(Form("int8", 125))
    assert [type(member.scorers[0]) for member in exported.servable.members] == [PackedClassifier, PackedClassifier]
    texts = list(data.test.documents)[:100]
    found, expected = Predictor(exported).predict(texts, 1), ensemble.servable.predict(texts, 1)
    assert (found.ids == expected.ids).mean() > 0.98


def test_the_test_split_is_not_looked_at(model, data):
    poisoned = replace(data, test=replace(data.test, documents=["poison"] * len(data.test)))
    without = replace(data, test=None)
    for other in (poisoned, without):
        index = Exporter(model, other).export(Form("fp32", 125)).servable.candidates
        own = Exporter(model, data).export(Form("fp32", 125)).servable.candidates
        np.testing.assert_array_equal(index.labels, own.labels)
        np.testing.assert_array_equal(index.weights, own.weights)
        assert list(held_out(other).documents) == list(held_out(data).documents)


def test_a_hold_out_of_train_has_half_of_the_words_and_a_dev_split_all(data):
    held = held_out(data)
    whole = {" ".join(text.split()[::2]) for text in data.train.documents}
    assert 0 < len(held) < len(data.train)
    assert set(held.documents) <= whole
    dev = replace(data, dev=data.train.take(np.arange(7)))
    assert list(held_out(dev).documents) == list(data.train.documents[:7])
    assert held_out(planted("sparse", n_labels=60)).documents.nnz > 0


def test_what_a_form_loses_is_measured(model, data):
    hold_out = HoldOut.of(model, data)
    same = hold_out.measure(Form("fp32", 0), model)
    assert same.lost == {"P@1": 0, "P@5": 0, "PSP@5": 0}
    assert same.overlap == 100
    assert 0 < same.p50_us <= same.p99_us
    scorer = model.servable.scorers[0]
    broken = replace(model.servable, scorers=[replace(scorer, weight=scorer.weight[::-1])])
    worse = hold_out.measure(Form("fp32", 0), replace(model, servable=broken))
    assert worse.lost["P@1"] == pytest.approx(hold_out.values["P@1"], abs=2)
    assert worse.overlap < 20
    other = replace(data, labels=replace(data.labels, names=[f"x{i}" for i in range(N_LABELS)]))
    with pytest.raises(DataError, match="labels of the model and the data differ"):
        HoldOut.of(model, other)


def test_forms(model, clustered):
    assert Choice().forms(model.servable) == [Form("int8", 0), Form("int8", 125)]
    assert len(Choice(max_loss=1).forms(model.servable)) == 6
    assert Choice("bf16", 50).forms(model.servable) == [Form("bf16", 50)]
    assert {form.breadth for form in Choice().forms(clustered.servable)} == {8, 16, 20, 32, 64, 128}
    dense = replace(model.servable, vectoriser=DenseVectoriser(9))
    assert Choice().forms(dense) == Choice(breadth=0).forms(dense) == [Form("int8", 0)]


@pytest.mark.parametrize(
    ("choice", "message"),
    [(Choice("int4"), "unknown precision"), (Choice(breadth=-1), "cannot be searched"), (Choice(breadth=0), None)],
)
def test_forms_that_there_are_not(clustered, choice, message):
    with pytest.raises(ConfigError, match=message or "cannot be searched"):
        choice.forms(clustered.servable)


def test_an_exported_model_is_not_exported_again(model, data):
    exported = Exporter(model, data).export(Form("int8", 0))
    with pytest.raises(ConfigError, match="is already exported"):
        Choice().forms(exported.servable)


def test_other_classifiers_are_served_as_they_are(model):
    graph = Graph.of(sp.identity(N_LABELS, np.float32, "csr"))
    scorer = GameScorer(model.servable.scorers[0], graph, 0.5)
    with pytest.raises(ConfigError, match="needs no export; got 'GameScorer'"):
        Choice().forms(replace(model.servable, scorers=[scorer]))


def point(precision="int8", breadth=0, *, p_at_1=50.0, lost=0.0, psp=0.0, p50=100.0, overlap=90.0):
    losses = {"P@1": lost, "P@5": lost, "PSP@5": psp}
    return Measured(Form(precision, breadth), {"P@1": p_at_1}, losses, overlap, p50, 2 * p50)


def test_a_label_that_no_document_has_is_found_by_its_text(data, model):
    """Of train without the documents of label 7: its text alone makes it a candidate."""
    text = data.labels.texts[7]
    kept = np.flatnonzero(data.train.relevance[:, [7]].toarray().ravel() == 0)
    bare = replace(data, train=data.train.take(kept))
    for labels, there in ((bare.labels, True), (replace(bare.labels, texts=None), False)):
        index = Exporter(model, replace(bare, labels=labels)).export(Form("fp32", 125)).servable.candidates
        found = index.find({index.vector: model.servable.vectoriser.transform([text])})[0]
        assert (7 in found) == there


def test_choices():
    exact = point(p50=900)
    middle = point(breadth=500, lost=0.05, p_at_1=49.95, p50=60)
    fast = point(breadth=125, lost=0.2, p_at_1=49.8, p50=30)
    tail = point(breadth=64, lost=0.0, psp=0.6, p50=10)
    other = point(breadth=250, overlap=70.0, p50=40)
    points = [exact, middle, fast, tail, other]
    assert Choice().pick(points) is middle  # a tenth of a point at most, and three quarters of the best ten
    assert Choice(max_loss=0.1).pick(points) is other
    assert Choice(max_loss=0.25).pick(points) is fast  # not `tail`, whose PSP@5 is refused
    assert Choice(max_loss=0.25).pick([tail]) is tail
    lossy = point(breadth=512, lost=0.5, p50=70)
    assert Choice().pick([point(lost=0.5, p50=900), lossy, point(breadth=32, lost=2)]) is lossy  # of equals the fastest
    assert Choice(target_p99_us=70).pick([middle, fast]) is fast
    assert Choice(target_p99_us=2000).pick([exact, middle, fast]) is exact
    with pytest.raises(ConfigError, match="20 µs or more"):
        Choice(target_p99_us=5).pick(points)


def test_a_loss_beyond_the_limits_is_refused():
    refuse_loss(point(lost=0.3, psp=0.5))
    with pytest.raises(ModelError, match=r"loses 0.31 points of P@1"):
        refuse_loss(point(lost=0.31))
    with pytest.raises(ModelError, match=r"loses 0.51 points of PSP@5"):
        refuse_loss(point(psp=0.51))


def damaged(field, value):
    def damage(servable):
        part = getattr(servable.candidates, field)
        return replace(servable, candidates=replace(servable.candidates, **{field: value(part)}))

    return damage


@pytest.mark.parametrize(
    "damage",
    [
        damaged("labels", lambda labels: np.where(labels == 3, N_LABELS, labels)),
        damaged("labels", lambda labels: labels.astype(np.int64)),
        damaged("always", lambda labels: labels - 1000),
        damaged("offsets", lambda offsets: offsets[::-1].copy()),
        damaged("offsets", lambda offsets: offsets[:-1]),
        damaged("weights", lambda weights: weights[1:]),
        damaged("shortlist", lambda _: 0),
        damaged("vector", lambda _: "nothing"),
    ],
)
def test_a_damaged_index_is_refused(model, data, damage):
    servable = Exporter(model, data).export(Form("int8", 125)).servable
    assert isinstance(servable.candidates, TokenIndex)
    servable.check()
    with pytest.raises(ModelError):
        damage(servable).check()


def test_damaged_rows_and_levels_are_refused(clustered, data):
    servable = Exporter(clustered, data).export(Form("int8", 8)).servable
    servable.check()
    rows, index = servable.scorers[0].rows, servable.candidates
    for broken in (
        replace(rows, values=rows.values[:, 1:]),
        replace(rows, values=rows.values.astype(np.float64)),
        replace(rows, scale=rows.scale[1:]),
    ):
        with pytest.raises(ModelError, match=r"rows\.v1"):
            replace(servable, scorers=[replace(servable.scorers[0], rows=broken)]).check()
    for level in (replace(index.levels[0], beam=0), replace(index.levels[0], offsets=index.levels[0].offsets * 2)):
        with pytest.raises(ModelError):
            replace(servable, candidates=replace(index, levels=[level, index.levels[1]])).check()


@pytest.mark.parametrize(
    "damage",
    [
        damaged("labels", lambda labels: labels + 1),
        damaged("labels", lambda labels: labels[1:]),
        damaged("centres", lambda centres: centres.take(np.arange(9))),
        damaged("levels", lambda _: []),
        damaged("size", lambda _: 0),
        damaged("vector", lambda _: "nothing"),
    ],
)
def test_a_damaged_index_of_centres_is_refused(model, damage):
    servable = replace(model.servable, candidates=centred(model))
    exported = Exporter(replace(model, servable=servable), None).export(Form("int8", 8)).servable
    exported.check()
    with pytest.raises(ModelError):
        damage(exported).check()


@pytest.fixture(scope="module")
def folders(model, data, tmp_path_factory):
    root = tmp_path_factory.mktemp("export")
    save_model(model, root / "model")
    write_dataset(data, root / "data")
    return root


def xc(*arguments):
    return CliRunner().invoke(app, ["export", *map(str, arguments)])


def test_the_command_measures_chooses_and_writes(folders):
    result = xc(folders / "model", folders / "out", "--data", folders / "data", "--max-loss", 0.3)
    assert result.exit_code == 0, result.exception
    assert sum("int8" in line or "fp32" in line for line in result.stdout.splitlines()) >= 4
    about = load_model(folders / "out").about
    assert about["export"]["precision"] in ("fp32", "bf16", "int8")
    assert about["export"]["lost"]["P@1"] <= 0.3
    assert json.loads((folders / "out" / "model.json").read_text())["about"] == about


def test_the_command_refuses_without_data_or_with_a_great_loss(folders):
    result = xc(folders / "model", folders / "none", "--int8")
    assert isinstance(result.exception, ConfigError)
    result = xc(folders / "model", folders / "none", "--data", folders / "data", "--breadth", 1)
    assert isinstance(result.exception, ModelError)
    assert not (folders / "none").exists()
    assert xc(folders / "model", folders / "none", "--int8", "--breadth", 0, "--force").exit_code == 0
    forced = xc(folders / "model", folders / "forced", "--data", folders / "data", "--breadth", 1, "--force")
    assert forced.exit_code == 0
    assert load_model(folders / "forced").servable.candidates.shortlist == 1
