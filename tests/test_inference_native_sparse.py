"""Sparse classifiers, label trees and label texts in native code against the servable in NumPy."""

import dataclasses
import threading

import numpy as np
import pytest
import scipy.sparse as sp

from xclearn.data.dataset import NO_PAIRS
from xclearn.inference.components import AllLabels
from xclearn.inference.graph import Game, GameLabels, Graph
from xclearn.inference.native import NativePredictor, NativeThenSteps, native_predictor
from xclearn.inference.servable import Ensemble, Servable
from xclearn.inference.sparse import LabelTrees, SparseClassifier, SparseFeatures, TextMix, Tree, TreeLevel
from xclearn.text.vectorisers import SparseVectoriser, WordVectoriser
from xclearn.text.weighting import Weighting

N_WORDS = 60
LOSSES = ("squared_hinge", "logistic")


def random_weights(rng, n, density=0.2):
    """(n, V) with empty rows, words in every row, and words in none."""
    weights = sp.random(n, N_WORDS, density, "lil", dtype=np.float32, random_state=rng)
    weights[:, 0] = 1.0
    weights[:, 1] = 0.0
    weights[rng.integers(0, n, max(1, n // 8))] = 0.0
    weights = sp.csr_matrix(weights)
    weights.data = rng.standard_normal(weights.nnz).astype(np.float32)
    return weights


def random_tree(rng, widths):
    """A tree whose levels have so many nodes; those of a parent vary in number, some are alone."""
    levels, n_parents = [], 1
    for width in widths:
        cuts = np.sort(rng.choice(width - 1, n_parents - 1, replace=False)) + 1
        children = np.concatenate([[0], cuts, [width]])
        levels.append(TreeLevel.of(children, random_weights(rng, width), normal(rng, width)))
        n_parents = width
    return Tree(levels, rng.permutation(widths[-1]))


def normal(rng, n):
    return rng.standard_normal(n).astype(np.float32)


def servable_of(rng, first, loss, n_labels, text_weight=None):
    tokens = [f"t{i}" for i in range(N_WORDS)]
    vectoriser = WordVectoriser(tokens, Weighting(rng.uniform(1, 3, N_WORDS), True, True))
    encoders = {"features": SparseFeatures(N_WORDS, False), "unit": SparseFeatures(N_WORDS, True)}
    scorers = [first]
    if text_weight is not None:
        texts = abs(random_weights(rng, n_labels, 0.05))
        texts.data[::7] *= -1  # a cosine below nothing counts as nothing
        scorers.append(SparseClassifier.of("unit", texts, np.zeros(n_labels, np.float32)))
    servable = Servable(vectoriser, encoders, AllLabels(), scorers, TextMix(loss, text_weight or 0.0))
    servable.check()
    return servable


def trees_servable(seed, widths=(7, 40, 300), beam=3, loss="squared_hinge", text_weight=None, n_trees=3):
    rng = np.random.default_rng(seed)
    trees = [random_tree(rng, widths) for _ in range(n_trees)]
    return servable_of(rng, LabelTrees("features", trees, loss, beam), "log", widths[-1], text_weight)


def classifier_servable(seed, n_labels=300, loss="squared_hinge", text_weight=None):
    rng = np.random.default_rng(seed)
    first = SparseClassifier.of("features", random_weights(rng, n_labels), normal(rng, n_labels))
    return servable_of(rng, first, loss, n_labels, text_weight)


def random_texts(seed, n):
    """Known and unknown words, also none, repeated ones, and one word alone."""
    rng = np.random.default_rng(seed)
    return ["", "t1", *(" ".join(f"t{i}" for i in rng.integers(0, 80, rng.integers(0, 14))) for _ in range(n))]


def assert_same(servable, texts, k=10, exclude=NO_PAIRS):
    native = native_predictor(servable)
    assert isinstance(native, NativePredictor)
    found, expected = native.predict(texts, k, exclude), servable.predict(texts, k, exclude)
    np.testing.assert_array_equal(found.ids, expected.ids)
    np.testing.assert_allclose(found.scores, expected.scores, rtol=0, atol=1e-6)
    return found


@pytest.mark.parametrize("text_weight", [None, 0.0, 0.15, 3.0])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("beam", [1, 3, 1000])
def test_trees_answer_as_in_numpy(beam, loss, text_weight):
    servable = trees_servable(1, beam=beam, loss=loss, text_weight=text_weight)
    for k in (1, 10, 400):
        assert_same(servable, random_texts(2, 60), k)


@pytest.mark.parametrize("widths", [(300,), (2, 4, 8, 16, 32, 64, 128, 300), (64, 10_000)])
def test_trees_of_any_depth_and_of_more_labels_than_a_range(widths):
    for text_weight in (None, 0.2):
        assert_same(trees_servable(3, widths, text_weight=text_weight, n_trees=2), random_texts(4, 30), 20)


@pytest.mark.parametrize("text_weight", [None, 0.15, 3.0])
@pytest.mark.parametrize("loss", [*LOSSES, "log"])
@pytest.mark.parametrize("n_labels", [1, 300, 10_000])
def test_classifiers_answer_as_in_numpy(n_labels, loss, text_weight):
    servable = classifier_servable(5, n_labels, loss, text_weight)
    if loss == "log":  # logarithms of probabilities
        first = dataclasses.replace(servable.scorers[0], bias=-5 - abs(servable.scorers[0].bias))
        servable = dataclasses.replace(servable, scorers=[first, *servable.scorers[1:]])
    for k in (1, 10, 400):
        assert_same(servable, random_texts(6, 40), k)


@pytest.mark.parametrize("make", [trees_servable, classifier_servable])
def test_equal_scores_come_in_the_order_of_their_labels(make):
    servable = make(7, text_weight=0.3)
    flat = [dataclasses.replace(scorer, weights=np.round(scorer.weights * 2)) for scorer in servable.scorers[1:]]
    first = servable.scorers[0]
    if isinstance(first, SparseClassifier):
        first = dataclasses.replace(first, weights=np.round(first.weights), bias=np.round(first.bias))
    else:
        levels = [[_rounded(level) for level in tree.levels] for tree in first.trees]
        trees = [Tree(own, tree.labels) for own, tree in zip(levels, first.trees, strict=True)]
        first = dataclasses.replace(first, trees=trees)
    found = assert_same(dataclasses.replace(servable, scorers=[first, *flat]), random_texts(8, 50), 50)
    assert (np.diff(found.scores, axis=1) == 0).any()


def _rounded(level):
    return dataclasses.replace(level, weights=np.round(level.weights), bias=np.round(level.bias))


@pytest.mark.parametrize("make", [trees_servable, classifier_servable])
@pytest.mark.parametrize("text_weight", [None, 0.15])
def test_excluded_pairs_are_left_out(make, text_weight):
    servable, texts = make(9, text_weight=text_weight), random_texts(10, 20)
    best = assert_same(servable, texts, 5).ids
    exclude = np.array([(row, label) for row, own in enumerate(best) for label in own[:3] if label >= 0])
    again = assert_same(servable, texts, 5, exclude)
    assert not any(set(now) & set(before[:3]) - {-1} for now, before in zip(again.ids, best, strict=True))
    everything = np.stack([np.zeros(300, np.int64), np.arange(300)], axis=1)
    assert (assert_same(servable, ["t3 t4"], 5, everything).ids == -1).all()


def test_weights_of_a_word_need_not_ascend_by_label():
    servable = classifier_servable(11, text_weight=0.15)
    rng = np.random.default_rng(12)
    first = servable.scorers[0]
    order = np.concatenate(
        [rng.permutation(np.arange(*span)) for span in zip(first.starts[:-1], first.starts[1:], strict=True)]
    )
    mixed = dataclasses.replace(first, labels=first.labels[order], weights=first.weights[order])
    assert_same(dataclasses.replace(servable, scorers=[mixed, servable.scorers[1]]), random_texts(13, 30))


@pytest.mark.parametrize("make", [trees_servable, classifier_servable])
def test_threads_and_neighbours_in_a_batch_change_no_bit(make):
    servable, texts = make(14, text_weight=0.15), random_texts(15, 100)
    native = native_predictor(servable, 1)
    expected = native.predict(texts, 10)
    for n_threads in (2, 3, 8):
        again = native_predictor(servable, n_threads).predict(texts, 10)
        np.testing.assert_array_equal(again.ids, expected.ids)
        np.testing.assert_array_equal(again.scores, expected.scores)
    for row, text in enumerate(texts):
        alone = native.predict([text], 10)
        np.testing.assert_array_equal(alone.ids[0], expected.ids[row])
        np.testing.assert_array_equal(alone.scores[0], expected.scores[row])


def test_many_callers_at_once_get_what_each_gets_alone():
    servable, texts = trees_servable(16, text_weight=0.15), random_texts(17, 200)
    native = native_predictor(servable, 1)
    expected, wrong = native.predict(texts, 10), []

    def ask(first):
        for row in range(first, len(texts), 4):
            answer = native.predict([texts[row]], 10)
            if (answer.ids[0] != expected.ids[row]).any() or (answer.scores[0] != expected.scores[row]).any():
                wrong.append(row)

    callers = [threading.Thread(target=ask, args=(first,)) for first in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert not wrong


def test_rows_of_features_are_ranked_as_they_are():
    servable = dataclasses.replace(trees_servable(18, text_weight=0.15), vectoriser=SparseVectoriser(N_WORDS))
    rng = np.random.default_rng(19)
    rows = sp.random(40, N_WORDS, 0.1, "csr", dtype=np.float32, random_state=rng)
    found, expected = native_predictor(servable).predict(rows, 10), servable.predict(rows, 10)
    np.testing.assert_array_equal(found.ids, expected.ids)
    np.testing.assert_allclose(found.scores, expected.scores, rtol=0, atol=1e-6)


def test_a_graph_between_labels_follows_in_numpy_and_ensembles_are_averaged():
    rng = np.random.default_rng(20)
    graph = Graph.of(sp.random(300, 300, 4 / 300, "csr", np.float32, rng) / 4)
    servable = trees_servable(21, text_weight=0.15)
    spread = dataclasses.replace(servable, steps=[GameLabels(Game(graph, 0.5, 4), 40)])
    assert isinstance(native_predictor(spread), NativeThenSteps)
    texts = random_texts(22, 20)
    for each in (spread, Ensemble([servable, spread])):
        found, expected = native_predictor(each).predict(texts, 10), each.predict(texts, 10)
        np.testing.assert_array_equal(found.ids, expected.ids)
        np.testing.assert_allclose(found.scores, expected.scores, rtol=0, atol=1e-6)


def test_what_is_served_otherwise_stays_in_numpy():
    servable = trees_servable(23, text_weight=0.15)
    negative = dataclasses.replace(servable, fusion=TextMix("log", -0.5))
    assert native_predictor(negative) is None
    another = dataclasses.replace(servable, fusion=TextMix("logistic", 0.15))  # of a tree's logarithms
    assert native_predictor(another) is None


def core(n_features=4, n_labels=3):
    from xclearn.kernels import _native

    return _native.SparsePredictor(n_features, n_labels)


def arrays(*parts):
    kinds = (np.int64, np.int32, np.float32, np.float32)
    return tuple(np.array(part, dtype=kind) for part, kind in zip(parts, kinds, strict=True))


@pytest.mark.parametrize(
    "parts",
    [
        ([0, 1, 1, 1], [0], [1], [0, 0, 0]),  # too few starts
        ([0, 1, 1, 1, 2], [0], [1], [0, 0, 0]),  # beyond the entries
        ([0, 1, 0, 1, 1], [0], [1], [0, 0, 0]),  # descending
        ([-1, 1, 1, 1, 1], [0], [1], [0, 0, 0]),
        ([0, 1, 1, 1, 1], [3], [1], [0, 0, 0]),  # no such label
        ([0, 1, 1, 1, 1], [-1], [1], [0, 0, 0]),
        ([0, 1, 1, 1, 1], [0], [1, 2], [0, 0, 0]),  # lengths differ
        ([0, 1, 1, 1, 1], [0], [1], [0, 0]),
    ],
)
def test_a_classifier_that_points_outside_is_refused(parts):
    with pytest.raises(ValueError, match=r"postings|fit"):
        core().set_classifier(arrays(*parts), "logistic", False)


def level(children, starts, features, nodes, bias):
    kinds = (np.int64, np.int64, np.int32, np.int32, np.float32)
    parts = (children, starts, features, nodes, np.ones(len(nodes)))
    made = [np.array(part, dtype=kind) for part, kind in zip(parts, kinds, strict=True)]
    return (*made, np.array(bias, dtype=np.float32))


@pytest.mark.parametrize(
    ("levels", "labels"),
    [
        ([level([0, 2], [0, 1], [0], [0], [0, 0])], [0, 1, 2]),  # too few leaves
        ([level([0, 3], [0, 1], [4], [0], [0, 0, 0])], [0, 1, 2]),  # no such feature
        ([level([0, 3], [0, 1], [0], [3], [0, 0, 0])], [0, 1, 2]),  # no such node
        ([level([0, 3], [0, 1], [0], [-1], [0, 0, 0])], [0, 1, 2]),
        ([level([0, 4], [0, 1], [0], [0], [0, 0, 0])], [0, 1, 2]),  # children beyond the nodes
        ([level([0, 3], [0, 1], [0], [0], [0, 0, 0])], [0, 1, 1]),  # a label twice
        ([level([0, 3], [0, 1], [0], [0], [0, 0, 0])], [0, 1, 3]),
        ([level([0, 2], [0, 1], [0], [0], [0, 0]), level([0, 3, 3], [0, 1, 1], [0], [0], [0] * 3)], [0, 1, 2]),
        ([], [0, 1, 2]),
    ],
)
def test_a_tree_that_leads_outside_is_refused(levels, labels):
    made = core()
    made.set_trees("logistic", 10, False)
    with pytest.raises(ValueError, match=r"tree|postings"):
        made.add_tree(levels, np.array(labels))


def test_rows_with_features_out_of_range_are_refused():
    made = core()
    made.set_classifier(arrays([0, 1, 1, 1, 1], [0], [1], [0, 0, 0]), "logistic", False)
    none = np.empty(0, np.int64), np.empty(0, np.int32)
    out = np.empty((1, 2), np.int64), np.empty((1, 2), np.float32)
    ones = np.ones(1, np.float32)
    made.predict_rows(np.array([0, 1]), np.array([3], np.int32), ones, *none, 1, *out)
    for indptr, column in (([0, 1], 4), ([0, 1], -1), ([0, 2], 0), ([1, 1], 0)):
        with pytest.raises(ValueError, match=r"range|matrix"):
            made.predict_rows(np.array(indptr), np.array([column], np.int32), ones, *none, 1, *out)
    with pytest.raises(ValueError, match="reads no texts"):
        made.predict_texts(["a"], *none, 1, *out)
