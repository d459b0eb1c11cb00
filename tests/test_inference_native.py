"""The native predictor against the servable in NumPy: the same tokens to the bit, the same labels, in any form."""

import threading
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from xclearn.data.dataset import NO_PAIRS, LabelSet
from xclearn.errors import ConfigError, DataError, ModelError
from xclearn.inference import Model, Predictor
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
from xclearn.inference.exported import ClusterIndex, Level, PackedClassifier, PackedRows, TokenFeatures, TokenIndex
from xclearn.inference.graph import Game, GameBeam, GameLabels, GameScorer, Graph
from xclearn.inference.index import centre_index, centre_tree
from xclearn.inference.native import NativePredictor, NativeThenSteps, native_predictor, strings_at
from xclearn.inference.re_ranking import CalibrationTree, ReRanking, SparseRanker
from xclearn.inference.servable import Ensemble, Servable
from xclearn.inference.shortlists import CentroidSearch, LearnedEdges, Mix
from xclearn.inference.sparse import SparseFeatures
from xclearn.inference.tensors import StringTable
from xclearn.text import Subwords, WordPiece, Words
from xclearn.text.vectorisers import DenseVectoriser, SparseVectoriser, WordVectoriser
from xclearn.text.weighting import Weighting

CORPUS = [
    "The quick brown fox jumps over the lazy dog_1",
    "İstanbul'da ΣΊΣΥΦΟΣ straße ﬁne Ǆ café cafe\u0301",
    "東京 is 42 km² from nowhere, x\u0000y \U0001d54f\U00010400",
    "unbelievable unbelievably believable ##able able",
] * 2
VOCABULARIES = {
    "words": Words().learn(CORPUS),
    "counts": Words(sublinear=False, normalise=False).learn(CORPUS),
    "pieces": WordPiece(vocabulary_size=200).learn(CORPUS),
    "pairs": Words(longest=2).learn(CORPUS),
    "runs": Words(longest=3, sublinear=False).learn(CORPUS),
    "cut runs": Words(longest=4, max_features=60).learn(CORPUS),
    "subwords": Subwords(table_size=256).learn(CORPUS),
}
WORDS = st.sampled_from([word for text in CORPUS for word in text.split()])
CASED = WORDS | WORDS.map(str.upper) | WORDS.map(str.title)
ANY_TEXT = st.text(st.characters()) | st.text(st.characters(max_codepoint=127)) | CASED
TEXTS = st.lists(ANY_TEXT, max_size=12).map(" ".join) | st.lists(CASED, max_size=6).map("".join)


def reading(vectoriser):
    """The least servable that reads texts with this vectoriser."""
    bag = Bag(np.zeros((vectoriser.n_features, 4), np.float32), [])
    scorer = Classifier("document", np.zeros((2, 4), np.float32), np.zeros(2, np.float32))
    return Servable(vectoriser, {"document": bag}, AllLabels(), [scorer], Sigmoid())


NATIVE = {name: native_predictor(reading(vectoriser)) for name, vectoriser in VOCABULARIES.items()}


def random_servable(rng, *, dim=48, n_labels=300, candidates="all", fusion=None, layers=("relu",), n_scorers=1):
    n_tokens = 50
    tokens = [f"t{i}" for i in range(n_tokens)]
    vectoriser = WordVectoriser(tokens, Weighting(rng.uniform(1, 3, n_tokens), True, True))
    make = {
        "relu": lambda: Relu(),
        "residual": lambda: Residual(normal(rng, dim, dim) / 7, normal(rng, dim)),
        "gated": lambda: GatedBlock(normal(rng, dim, dim) / 7, normal(rng, dim), *rng.random((2, dim), np.float32)),
        "unit": lambda: Unit(),
    }
    encoders = {"document": Bag(normal(rng, n_tokens, dim), [make[name]() for name in layers])}
    if candidates == "tokens":
        encoders["tokens"] = TokenFeatures(n_tokens)
    scorers = [Classifier("document", normal(rng, n_labels, dim) / 4, normal(rng, n_labels)) for _ in range(n_scorers)]
    fusion = fusion or (Sigmoid() if n_scorers == 1 else Product())
    return Servable(vectoriser, encoders, stage(rng, candidates, dim, n_labels), scorers, fusion)


def normal(rng, *shape):
    return rng.standard_normal(shape).astype(np.float32)


def stage(rng, name, dim, n_labels):
    if name == "all":
        return AllLabels()
    if name == "tokens":
        return random_token_index(rng, n_labels)
    if name == "centres":
        centres = normal(rng, 2 * n_labels, dim)
        centres /= np.linalg.norm(centres, axis=1, keepdims=True)
        labels = np.sort(rng.integers(0, n_labels, 2 * n_labels)).astype(np.int32)  # some labels have none
        return CentroidSearch("document", centres, labels, 40)
    if name == "centre index":
        search = stage(rng, "centres", dim, n_labels)
        return centre_index(search, centre_tree(search.centres), "fp32", 5)  # of 32 groups
    if name == "edges":
        labels = rng.integers(-1, n_labels, (10, 60)).astype(np.int32)
        parts = normal(rng, 10, dim) / 4, normal(rng, 10)
        return LearnedEdges("document", *parts, 3.0, 4, labels, rng.random((10, 60), np.float32), 50)
    if name == "game":
        return GameBeam(stage(rng, "beam", dim, n_labels), Game(random_graph(rng, 10), 0.5, 4))
    offsets = np.array([0, *np.sort(rng.choice(n_labels, 9)), n_labels])  # some clusters may be empty
    labels = rng.permutation(n_labels)
    weight, bias = normal(rng, 10, dim) / 4, normal(rng, 10)
    if name == "beam":
        return ClusterBeam("document", weight, bias, labels, offsets, 3)
    top = Level(PackedRows.of(normal(rng, 4, dim) / 4, normal(rng, 4), "fp32"), np.array([0, 2, 3, 7, 10]), 2)
    return ClusterIndex(
        "document", [top, Level(PackedRows.of(weight, bias, "fp32"), offsets, 3)], labels.astype(np.int32)
    )


def random_graph(rng, n):
    return Graph.of(sp.random(n, n, 4 / n, "csr", np.float32, rng) / 4)


def random_token_index(rng, n_labels, n_tokens=50):
    sizes = rng.integers(0, 40, n_tokens)
    labels = np.concatenate([rng.choice(n_labels, size, replace=False) for size in sizes])
    weights = np.concatenate([-np.sort(-rng.random(size, np.float32)) for size in sizes])
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    always = rng.choice(n_labels, 5, replace=False).astype(np.int32)
    return TokenIndex("tokens", offsets, labels.astype(np.int32), weights, always, tokens=6, postings=25, shortlist=40)


def random_texts(rng, n):
    return [" ".join(f"t{i}" for i in rng.integers(0, 60, rng.integers(0, 12))) for _ in range(n)]


def assert_same(servable, documents, k=10, exclude=NO_PAIRS):
    native = native_predictor(servable)
    assert native is not None
    found, expected = native.predict(documents, k, exclude), servable.predict(documents, k, exclude)
    np.testing.assert_array_equal(np.sort(found.ids, axis=1), np.sort(expected.ids, axis=1))
    assert (found.ids != expected.ids).mean() < 1e-3  # neighbours whose scores differ in the last bit may change places
    np.testing.assert_allclose(found.scores, expected.scores, atol=1e-5)
    return found


def calibration_tree(rng, n_labels, weight):
    """Asks for the score now, then for the score before or for the label's documents."""
    return CalibrationTree(
        columns=np.array([0, 1, 2, 0, 0, 0, 0]),
        thresholds=np.array([0.1, 0.3, 20, 0, 0, 0, 0]),
        left=np.array([1, 3, 5, 3, 4, 5, 6]),
        right=np.array([2, 4, 6, 3, 4, 5, 6]),
        chances=np.array([0, 0, 0, 0.1, 0.3, 0.5, 0.9], dtype=np.float32),
        label_counts=rng.integers(0, 40, n_labels).astype(np.float32),
        depth=2,
        weight=weight,
    )


def re_ranked(rng, servable, vector, weight, *, ranked=True):
    """With the graph between labels, a ranker, and a calibration tree of this weight; None: without the tree."""
    n_tokens, n_labels = servable.vectoriser.n_features, servable.n_labels
    width = n_tokens + (servable.encoders["document"].dim if vector else 0)
    weights = sp.random(n_labels, width, 0.3, "csr", np.float32, rng)
    ranker = SparseRanker.of("bag", vector, weights, normal(rng, n_labels)) if ranked else None
    tree = None if weight is None else calibration_tree(rng, n_labels, weight)
    encoders = {**servable.encoders, "bag": SparseFeatures(n_tokens, True)}
    steps = [GameLabels(Game(random_graph(rng, n_labels), 0.5, 4), 40), ReRanking(30, ranker, tree)]
    whole = replace(servable, encoders=encoders, steps=steps)
    whole.check()
    return whole


@pytest.mark.parametrize("weight", [None, 0.3, 1.0])
@pytest.mark.parametrize("vector", ["", "document"])
@pytest.mark.parametrize("name", ["all", "edges", "game"])
def test_a_re_ranking_is_as_in_numpy(name, vector, weight):
    rng = np.random.default_rng(5)
    servable = random_servable(rng, candidates=name)
    whole = re_ranked(rng, servable, vector, weight)
    assert isinstance(native_predictor(whole), NativePredictor)
    alone = replace(whole, steps=whole.steps[1:])
    calibrated = re_ranked(rng, servable, "", 0.3, ranked=False)
    texts, exclude = random_texts(rng, 20), np.array([[0, 3], [9, 5], [19, 7]])
    for each in (whole, alone, calibrated, Ensemble([whole, servable])):
        assert_same(each, texts)
        assert_same(each, texts[:1])
        assert_same(each, texts, 400, exclude)


def test_steps_in_another_order_follow_in_numpy(monkeypatch):
    rng = np.random.default_rng(6)
    whole = re_ranked(rng, random_servable(rng), "document", None)
    turned = replace(whole, steps=whole.steps[::-1])
    monkeypatch.setattr("xclearn.inference.native._AT_ONCE", 7)
    assert isinstance(native_predictor(turned), NativeThenSteps)
    assert_same(turned, random_texts(rng, 20))
    with pytest.raises(ConfigError, match="k must be at least 1"):
        native_predictor(turned).predict(["t1"], 0)


def test_a_ranker_or_a_calibration_that_leads_outside_is_refused():
    rng = np.random.default_rng(7)
    whole = re_ranked(rng, random_servable(rng, n_labels=5), "document", 0.5)
    ranker, tree = whole.steps[1].ranker, whole.steps[1].calibration
    damaged = [
        replace(whole.steps[1], ranker=replace(ranker, features=ranker.features + 90)),
        replace(whole.steps[1], ranker=replace(ranker, features=-1 - ranker.features)),
        replace(whole.steps[1], ranker=replace(ranker, starts=ranker.starts + 1)),
        replace(whole.steps[1], ranker=replace(ranker, starts=ranker.starts[:-1])),
        replace(whole.steps[1], ranker=replace(ranker, bias=ranker.bias[:-1])),
        replace(whole.steps[1], calibration=replace(tree, left=tree.left + 1)),
        replace(whole.steps[1], calibration=replace(tree, columns=tree.columns + 1)),
        replace(whole.steps[1], calibration=replace(tree, label_counts=tree.label_counts[:-1])),
    ]
    for step in damaged:
        with pytest.raises(ValueError, match=r"fit|walk|range|nowhere"):
            native_predictor(replace(whole, steps=[step]))


@settings(max_examples=300, deadline=None)
@given(TEXTS, st.sampled_from(sorted(VOCABULARIES)))
def test_tokens_and_weights_are_those_of_the_vectoriser_to_the_bit(text, name):
    vectoriser, native = VOCABULARIES[name], NATIVE[name]
    (ids, weights), (expected_ids, expected_weights) = native.transform_one(text), vectoriser.transform_one(text)
    np.testing.assert_array_equal(ids, expected_ids)
    np.testing.assert_array_equal(weights.view(np.int32), expected_weights.view(np.int32))


FEW_WORDS = st.lists(st.sampled_from(["a", "b", "ab", "é", "?"]), max_size=10).map(" ".join)


@given(st.lists(FEW_WORDS, min_size=1), FEW_WORDS, st.integers(2, 4), st.integers(1, 40), st.randoms())
def test_runs_are_those_of_the_vectoriser_to_the_bit(corpus, text, longest, size, random):
    learnt = Words(longest=longest, max_features=size).learn([*corpus, "a b"]).to_state()
    random.shuffle(learnt["tokens"])  # ids need not ascend from words to runs
    vectoriser = WordVectoriser.from_state(learnt)
    native = native_predictor(reading(vectoriser))
    for each in (text, " unknown ".join([text, "a b", text]), *corpus):
        ids, weights = native.transform_one(each)
        expected_ids, expected_weights = vectoriser.transform_one(each)
        assert ids.tolist() == expected_ids.tolist()
        np.testing.assert_array_equal(weights.view(np.int32), expected_weights.view(np.int32))


def test_long_words_and_many_repeats():
    vectoriser = VOCABULARIES["pieces"]
    native = native_predictor(reading(vectoriser))
    for text in ("able" * 25, "able" * 26, "é" * 100, "é" * 101, "the " * 70_000):
        ids, weights = native.transform_one(text)
        expected_ids, expected_weights = vectoriser.transform_one(text)
        np.testing.assert_array_equal(ids, expected_ids)
        np.testing.assert_array_equal(weights, expected_weights)


@pytest.mark.parametrize("candidates", ["all", "beam", "index", "tokens", "centres", "centre index", "edges", "game"])
@pytest.mark.parametrize(("fusion", "n_scorers"), [(Sigmoid(), 1), (Product(), 1), (Product(), 2)])
@pytest.mark.parametrize("dim", [3, 32, 126])
def test_predictions_are_those_of_the_servable(candidates, fusion, n_scorers, dim):
    rng = np.random.default_rng(dim)
    layers = ("relu", "residual") if dim > 3 else ("gated", "relu", "residual", "unit")
    servable = random_servable(rng, dim=dim, candidates=candidates, fusion=fusion, layers=layers, n_scorers=n_scorers)
    texts = ["", "nothing known", *random_texts(rng, 40)]
    pairs = np.column_stack([rng.integers(0, len(texts), 400), rng.integers(0, 300, 400)])
    assert_same(servable, texts)
    assert_same(servable, texts, exclude=pairs)
    assert_same(servable, texts, k=1000)


@pytest.mark.parametrize("candidates", ["centres", "centre index", "edges"])
@pytest.mark.parametrize("by_row", [False, True])
def test_mixed_scores(candidates, by_row):
    rng = np.random.default_rng(20)
    fusion = Mix([0.7, 0.3], 0.4, by_row)
    servable = random_servable(rng, candidates=candidates, fusion=fusion, layers=(), n_scorers=2)
    servable.check()
    texts = ["", *random_texts(rng, 30)]
    assert_same(servable, texts)
    pairs = np.column_stack([rng.integers(0, len(texts), 400), rng.integers(0, 300, 400)])
    assert_same(servable, texts, exclude=pairs)


@pytest.fixture(scope="module")
def many_centres():
    """A servable that searches 40,000 centres, and the tree of these, which has two levels."""
    rng = np.random.default_rng(30)
    servable = random_servable(rng, n_labels=20_000, candidates="centres", fusion=Mix([1.0], 0.5, False), layers=())
    return servable, centre_tree(servable.candidates.centres)


@pytest.mark.parametrize("precision", ["fp32", "bf16", "int8"])
@pytest.mark.parametrize("breadth", [1, 2, 20, 300])
def test_centres_below_the_best_nodes(many_centres, breadth, precision):
    servable, tree = many_centres
    assert len(tree.levels) == 2
    servable = replace(servable, candidates=centre_index(servable.candidates, tree, precision, breadth))
    servable.check()
    texts = ["", *random_texts(np.random.default_rng(31), 40)]
    if precision == "fp32":
        assert_same(servable, texts)
        return
    found, expected = native_predictor(servable).predict(texts, 10), servable.predict(texts, 10)
    np.testing.assert_allclose(found.scores, expected.scores, atol=1e-4)  # the vector is rounded to 16 bits
    assert (found.ids == expected.ids).mean() > 0.98


def test_centres_below_all_nodes_are_all_centres(many_centres):
    servable, tree = many_centres
    index = replace(servable, candidates=centre_index(servable.candidates, tree, "fp32", len(tree.order)))
    texts = random_texts(np.random.default_rng(32), 40)
    expected = servable.predict(texts, 10)
    for found in (index.predict(texts, 10), native_predictor(index).predict(texts, 10)):
        np.testing.assert_array_equal(np.sort(found.ids, axis=1), np.sort(expected.ids, axis=1))
        np.testing.assert_allclose(found.scores, expected.scores, atol=1e-5)


@pytest.mark.parametrize("candidates", ["all", "tokens", "centres", "game"])
@pytest.mark.parametrize("share", [0.5, 1.0])
def test_a_graph_between_labels(candidates, share):
    rng = np.random.default_rng(21)
    step = GameLabels(Game(random_graph(rng, 300), share, 7), depth=12)
    servable = replace(random_servable(rng, candidates=candidates, fusion=Product()), steps=[step])
    servable.check()
    texts = ["", *random_texts(rng, 30)]
    found = assert_same(servable, texts, k=30)
    assert (found.ids[:, -1] == -1).all()  # 12 and 7 at most
    pairs = np.column_stack([np.arange(31), found.ids[:, 0]])
    without = assert_same(servable, texts, k=30, exclude=pairs[pairs[:, 1] >= 0])
    np.testing.assert_array_equal(without.ids[:, :5], found.ids[:, 1:6])


def test_a_cluster_that_is_not_a_number_leads_nowhere():
    servable = random_servable(np.random.default_rng(22), candidates="edges", fusion=Product())
    servable.candidates.weight[:] = np.nan
    assert (native_predictor(servable).predict(["t1 t2"], 5).ids == -1).all()


def test_two_encoders():
    rng = np.random.default_rng(5)
    servable = random_servable(rng, candidates="beam", n_scorers=2)
    encoders = {**servable.encoders, "other": Bag(normal(rng, 50, 20), [])}
    other = Classifier("other", normal(rng, 300, 20), normal(rng, 300))
    assert_same(replace(servable, encoders=encoders, scorers=[servable.scorers[0], other]), random_texts(rng, 20))


def test_a_text_of_one_token_in_few_postings_gets_fewer_labels():
    rng = np.random.default_rng(4)
    servable = random_servable(rng, candidates="tokens")
    found = assert_same(servable, ["", "t1", "unknown"], k=60)
    assert (found.ids[0] >= 0).sum() == 5  # those that are candidates of every text
    assert (found.ids == -1).any(axis=1).all()


def test_negative_features_in_an_index_of_tokens():
    rng = np.random.default_rng(3)
    servable = replace(random_servable(rng, candidates="tokens"), vectoriser=SparseVectoriser(50))
    rows = sp.random(30, 50, 0.2, "csr", random_state=1, dtype=np.float32)
    rows.data = rows.data - np.float32(0.5)
    assert_same(servable, rows)


def test_an_ensemble_of_natives_is_the_ensemble():
    rng = np.random.default_rng(2)
    first = random_servable(rng, candidates="beam")
    second = replace(random_servable(rng), vectoriser=first.vectoriser)
    ensemble, texts = Ensemble([first, second]), random_texts(rng, 20)
    found, expected = native_predictor(ensemble).predict(texts, 10), ensemble.predict(texts, 10)
    np.testing.assert_array_equal(found.ids, expected.ids)
    np.testing.assert_allclose(found.scores, expected.scores, atol=1e-5)
    unknown = replace(second, vectoriser=DenseVectoriser(50))
    assert native_predictor(Ensemble([first, unknown])) is None


def test_sparse_features():
    rng = np.random.default_rng(6)
    servable = replace(random_servable(rng), vectoriser=SparseVectoriser(50))
    rows = sp.random(30, 50, 0.2, "csr", random_state=1, dtype=np.float32)
    assert_same(servable, rows)


@pytest.mark.parametrize("precision", ["fp32", "bf16", "int8"])
@pytest.mark.parametrize("candidates", ["all", "index"])
def test_rows_of_few_bits_score_as_their_numpy_form(precision, candidates):
    rng = np.random.default_rng(7)
    servable = random_servable(rng, dim=100, candidates=candidates)
    scorer, order = servable.scorers[0], rng.permutation(300).astype(np.int32)
    if candidates == "index":
        order = servable.candidates.labels
    rows = PackedClassifier("document", PackedRows.of(scorer.weight[order], scorer.bias[order], precision), order)
    servable = replace(servable, scorers=[rows])
    texts = random_texts(rng, 50)
    found, expected = native_predictor(servable).predict(texts, 10), servable.predict(texts, 10)
    np.testing.assert_allclose(found.scores, expected.scores, atol=1e-4)  # the vector is rounded to 16 bits
    assert (found.ids == expected.ids).mean() > 0.99


def test_rows_in_another_order_than_the_clusters():
    rng = np.random.default_rng(8)
    servable = random_servable(rng, candidates="index")
    scorer, order = servable.scorers[0], rng.permutation(300).astype(np.int32)
    rows = PackedClassifier("document", PackedRows.of(scorer.weight[order], scorer.bias[order], "fp32"), order)
    assert_same(replace(servable, scorers=[rows]), random_texts(rng, 30))


def test_equal_scores_are_ordered_by_label():
    rng = np.random.default_rng(9)
    servable = random_servable(rng, candidates="index")
    scorer = servable.scorers[0]
    same = Classifier("document", np.repeat(scorer.weight[:3], 100, axis=0), np.repeat(scorer.bias[:3], 100))
    found = assert_same(replace(servable, candidates=AllLabels(), scorers=[same]), random_texts(rng, 5), k=50)
    assert (np.diff(found.ids, axis=1) == 1).all()
    assert_same(replace(servable, scorers=[same]), random_texts(rng, 5), k=20)


def test_a_row_that_is_not_a_number_is_never_an_answer():
    servable = random_servable(np.random.default_rng(10))
    servable.scorers[0].weight[7] = np.nan
    found = native_predictor(servable).predict(["t1 t2", ""], 300)
    assert 7 not in found.ids
    assert (found.ids[:, -1] == -1).all()


def test_all_labels_excluded():
    servable = random_servable(np.random.default_rng(11), n_labels=4)
    everything = np.array(list(product([0], range(4))))
    found = native_predictor(servable).predict(["t1", "t1"], 3, everything)
    assert found.ids[0].tolist() == [-1, -1, -1]
    assert np.isneginf(found.scores[0]).all()
    assert (found.ids[1] >= 0).all()


def test_one_text_is_its_row_in_a_batch_with_any_threads():
    rng = np.random.default_rng(12)
    texts = random_texts(rng, 37)
    for candidates in ("all", "index", "tokens", "centres", "centre index", "edges", "game"):
        servable = random_servable(rng, candidates=candidates)
        native = native_predictor(servable, 1)
        whole = native.predict(texts, 5)
        for n_threads in (2, 5):
            again = native_predictor(servable, n_threads).predict(texts, 5)
            assert again.scores.tobytes() == whole.scores.tobytes()
        ones = [native.predict([text], 5) for text in texts]
        assert np.vstack([one.scores for one in ones]).tobytes() == whole.scores.tobytes()
        assert np.vstack([one.ids for one in ones]).tobytes() == whole.ids.tobytes()


def test_threads_ask_at_once_while_the_lock_is_free():
    rng = np.random.default_rng(13)
    native = native_predictor(random_servable(rng, dim=256, n_labels=20_000), 1)
    texts = random_texts(rng, 200)
    answers, turns = [], 0
    threads = [threading.Thread(target=lambda: answers.append(native.predict(texts, 5))) for _ in range(2)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        turns += 1
        threads[0].join(0.001)
    assert turns > 20  # each of them would otherwise hold the lock to its end
    assert answers[0].scores.tobytes() == answers[1].scores.tobytes()


def test_bad_questions():
    native = native_predictor(random_servable(np.random.default_rng(14)))
    with pytest.raises(ConfigError, match="k must be at least 1"):
        native.predict(["t1"], 0)
    with pytest.raises(DataError, match="not a list of texts"):
        native.predict("t1", 5)
    with pytest.raises(DataError, match="not a text"):
        native.predict(["t1", None], 5)
    assert native.predict([], 5).ids.shape == (0, 5)


def test_what_it_does_not_know_is_left_to_the_servable():
    rng = np.random.default_rng(15)
    servable = random_servable(rng)
    dense = replace(servable, vectoriser=DenseVectoriser(50))
    assert native_predictor(dense) is None
    assert (
        native_predictor(replace(servable, scorers=[GameScorer(servable.scorers[0], random_graph(rng, 300), 1.0)]))
        is None
    )
    rows = normal(rng, 6, 50)
    model = Model(dense, LabelSet([f"l{i}" for i in range(300)]), {})
    np.testing.assert_array_equal(Predictor(model).predict(rows).ids, dense.predict(rows, 5).ids)


def test_suggestions_have_names_and_texts():
    servable = random_servable(np.random.default_rng(16), n_labels=4)
    names, texts = ["ä", "", "\ud800", "日本"], ["a", "b", "c", "d"]
    model = Model(servable, LabelSet(StringTable.of(names), StringTable.of(texts)), {})
    (fast,) = Predictor(model).suggest(["t1 t2"], 9)
    assert sorted(suggestion.label for suggestion in fast) == sorted(names)
    assert {suggestion.label: suggestion.text for suggestion in fast} == dict(zip(names, texts, strict=True))
    slow = servable.predict(["t1 t2"], 9)
    assert [a.label for a in fast] == [names[i] for i in slow.ids[0]]
    assert [a.score for a in fast] == pytest.approx(slow.scores[0].tolist(), abs=1e-5)


def test_a_damaged_name_is_a_damaged_model():
    table = StringTable(np.frombuffer(b"ab\xff", np.uint8), np.array([0, 2, 3]))
    assert strings_at(table, np.array([0])) == ["ab"]
    with pytest.raises(ModelError, match="not UTF-8"):
        strings_at(table, np.array([1]))
