"""Sparse parts of a servable: trees against a search written out, classifiers against dense products."""

import dataclasses

import numpy as np
import pytest
import scipy.sparse as sp

from xclearn.data import LabelSet
from xclearn.errors import ModelError
from xclearn.inference import Model, load_model, save_model
from xclearn.inference.components import AllLabels
from xclearn.inference.servable import Servable
from xclearn.inference.sparse import (
    LabelTrees,
    SparseClassifier,
    SparseFeatures,
    TextMix,
    Tree,
    TreeLevel,
    log_probability,
    unit_rows,
)
from xclearn.text import Words, vectoriser_for

N_FEATURES, N_LABELS = 12, 10
TEXTS = ["red car", "green tree", "red tree car", "blue"]


def random_rows(n, seed, density=0.4):
    rng = np.random.default_rng(seed)
    rows = sp.random(n, N_FEATURES, density, "csr", dtype=np.float32, random_state=rng)
    rows.data = rng.standard_normal(rows.nnz).astype(np.float32)
    return rows


def random_tree(seed, n_features=N_FEATURES):
    """Root → 3 nodes → 5 nodes → 10 labels; also the dense weights and biases of each level."""
    rng = np.random.default_rng(seed)
    levels, dense = [], []
    for children in ([0, 3], [0, 2, 3, 5], [0, 3, 4, 8, 9, 10]):
        weights = sp.random(children[-1], n_features, 0.5, "csr", dtype=np.float32, random_state=rng)
        bias = rng.standard_normal(children[-1]).astype(np.float32)
        levels.append(TreeLevel.of(np.array(children), weights, bias))
        dense.append((children, weights.toarray(), bias))
    return Tree(levels, rng.permutation(N_LABELS)), dense


def search_by_hand(dense, labels, document, loss, beam):
    """{label: log-probability}, one node after the other."""
    reached = [(0, 0.0)]
    for children, weights, bias in dense:
        reached = sorted(reached, key=lambda entry: -entry[1])[:beam]
        reached = [
            (child, score + float(log_probability(weights[child] @ document + bias[child], loss)))
            for node, score in reached
            for child in range(children[node], children[node + 1])
        ]
    return {int(labels[node]): score for node, score in reached}


@pytest.mark.parametrize("loss", ["squared_hinge", "logistic"])
@pytest.mark.parametrize("beam", [1, 2, 3, 100])
def test_a_tree_is_searched_as_by_hand(loss, beam):
    tree, dense = random_tree(seed=1)
    documents = random_rows(20, seed=2)
    logits = LabelTrees("features", [tree], loss, beam).score_all(documents)
    assert logits.shape == (20, N_LABELS)
    for row, document in zip(logits, documents.toarray(), strict=True):
        expected = np.full(N_LABELS, -np.inf)
        for label, score in search_by_hand(dense, tree.labels, document, loss, beam).items():
            expected[label] = score
        np.testing.assert_allclose(row, expected, rtol=1e-4, atol=1e-5)
        assert np.isfinite(row).any()


def test_a_wide_beam_reaches_every_label_and_a_narrow_one_does_not():
    trees = [random_tree(seed=1)[0]]
    documents = random_rows(20, seed=2)
    assert np.isfinite(LabelTrees("features", trees, "logistic", 100).score_all(documents)).all()
    assert np.isneginf(LabelTrees("features", trees, "logistic", 1).score_all(documents)).any(axis=1).all()


def test_trees_are_averaged_and_a_label_that_one_misses_counts_as_zero():
    trees, documents = [random_tree(seed)[0] for seed in (1, 2)], random_rows(20, seed=3)
    alone = [np.exp(LabelTrees("features", [tree], "logistic", 1).score_all(documents)) for tree in trees]
    together = np.exp(LabelTrees("features", trees, "logistic", 1).score_all(documents))
    assert ((alone[0] == 0) != (alone[1] == 0)).any()
    np.testing.assert_allclose(together, (alone[0] + alone[1]) / 2, rtol=1e-5)


def test_a_document_without_features_is_scored_by_the_biases():
    tree, dense = random_tree(seed=1)
    (row,) = LabelTrees("features", [tree], "logistic", 100).score_all(sp.csr_matrix((1, N_FEATURES)))
    expected = search_by_hand(dense, tree.labels, np.zeros(N_FEATURES), "logistic", 100)
    np.testing.assert_allclose(row, [expected[label] for label in range(N_LABELS)], rtol=1e-5)


@pytest.mark.parametrize("scorer", ["classifier", "trees"])
def test_chosen_labels_get_the_scores_of_all(scorer):
    if scorer == "trees":
        part = LabelTrees("features", [random_tree(seed=1)[0]], "logistic", 100)
    else:
        part = SparseClassifier.of("features", random_rows(N_LABELS, seed=4), np.zeros(N_LABELS))
    documents, ids = random_rows(3, seed=5), np.array([[1, 7], [0, 0], [9, 3]])
    assert (part.score(documents, ids) == np.take_along_axis(part.score_all(documents), ids, axis=1)).all()


def test_a_classifier_is_a_dense_product():
    weights, bias = random_rows(N_LABELS, seed=6), np.arange(N_LABELS, dtype=np.float32)
    documents = random_rows(5, seed=7)
    scores = SparseClassifier.of("features", weights, bias).score_all(documents)
    np.testing.assert_allclose(scores, documents.toarray() @ weights.toarray().T + bias, rtol=1e-5, atol=1e-6)


def test_unit_rows_have_length_one_and_zero_rows_stay():
    rows = sp.csr_matrix(np.array([[3, 0, 4], [0, 0, 0]], dtype=np.float32))
    np.testing.assert_allclose(unit_rows(rows).toarray(), [[0.6, 0, 0.8], [0, 0, 0]], rtol=1e-6)
    assert rows[0, 2] == 4


@pytest.mark.parametrize("unit", [False, True])
def test_dense_features_become_sparse_rows(unit):
    encoded = SparseFeatures(2, unit).encode(np.array([[3.0, 4.0], [0.0, 0.0]], dtype=np.float32))
    np.testing.assert_allclose(encoded.toarray(), [[0.6, 0.8] if unit else [3, 4], [0, 0]], rtol=1e-6)


def test_probabilities_by_hand():
    logits = np.array([-1.0, 0.0, 0.5, 1.0, 7.0])
    np.testing.assert_allclose(np.exp(log_probability(logits, "squared_hinge")), np.exp([-4, -1, -0.25, 0, 0]))
    np.testing.assert_allclose(np.exp(log_probability(logits, "logistic")), 1 / (1 + np.exp(-logits)))
    assert (log_probability(logits, "log") == logits).all()
    assert np.isfinite(log_probability(np.array([-1e4, 1e4]), "logistic")).all()


def test_the_mix_by_hand():
    mix = TextMix("log", 0.5)
    probabilities, cosines = np.log([[0.6, 0.3]]), np.array([[0.3, -0.2]])
    np.testing.assert_allclose(mix(None, [probabilities, cosines]), [[(0.6 + 0.15) / 1.5, 0.3 / 1.5]])
    np.testing.assert_allclose(mix(None, [np.array([[-np.inf]]), np.array([[0.3]])]), [[0.1]])
    np.testing.assert_allclose(mix(None, [probabilities]), [[0.6, 0.3]])


# In a servable and a folder


@pytest.fixture
def servable():
    vectoriser = vectoriser_for(TEXTS, Words(min_count=1))
    width = vectoriser.n_features
    tree, _ = random_tree(seed=1, n_features=width)
    texts = unit_rows(sp.csr_matrix(np.abs(random_rows(N_LABELS, seed=3))[:, :width]))
    return Servable(
        vectoriser,
        {"features": SparseFeatures(width, False), "unit": SparseFeatures(width, True)},
        AllLabels(),
        [
            LabelTrees("features", [tree], "logistic", 2),
            SparseClassifier.of("unit", texts, np.zeros(N_LABELS, dtype=np.float32)),
        ],
        TextMix("log", 0.2),
    )


def test_a_servable_ranks_by_tree_and_text(servable):
    ids, scores = servable.predict(TEXTS, N_LABELS)
    features = servable.vectoriser.transform(TEXTS)
    tree, text = (scorer.score_all(features) for scorer in servable.scorers)
    expected = (np.exp(tree) + 0.2 * text) / 1.2
    np.testing.assert_allclose(scores, np.take_along_axis(expected, ids, axis=1), rtol=1e-5)
    np.testing.assert_allclose(scores, -np.sort(-expected, axis=1), rtol=1e-5)


def test_labels_out_of_the_beams_reach_are_missing_without_text(servable):
    alone = dataclasses.replace(servable, scorers=servable.scorers[:1])
    ids, scores = alone.predict(TEXTS, N_LABELS)
    reached = np.isfinite(servable.scorers[0].score_all(servable.vectoriser.transform(TEXTS))).sum(axis=1)
    assert ((ids >= 0).sum(axis=1) == reached).all()
    assert np.isneginf(scores[ids < 0]).all()


def test_a_folder_gives_the_servable_back(servable, tmp_path):
    save_model(Model(servable, LabelSet([f"label {i}" for i in range(N_LABELS)]), {}), tmp_path / "model")
    before, after = servable.predict(TEXTS, 5), load_model(tmp_path / "model").servable.predict(TEXTS, 5)
    assert (before.ids == after.ids).all()
    assert before.scores.tobytes() == after.scores.tobytes()


def with_level(servable, depth, **changes):
    """The servable with other arrays in a level of its tree."""
    trees = servable.scorers[0]
    levels = list(trees.trees[0].levels)
    levels[depth] = dataclasses.replace(levels[depth], **changes)
    tree = dataclasses.replace(trees.trees[0], levels=levels)
    return dataclasses.replace(servable, scorers=[dataclasses.replace(trees, trees=[tree]), servable.scorers[1]])


def with_scorer(servable, number, **changes):
    scorers = list(servable.scorers)
    scorers[number] = dataclasses.replace(scorers[number], **changes)
    return dataclasses.replace(servable, scorers=scorers)


def damaged(array, place, value):
    array = array.copy()
    array[place] = value
    return array


DAMAGES = {
    "children beyond the next level": lambda s: with_level(s, 1, children=np.array([0, 2, 3, 6])),
    "children that fall": lambda s: with_level(s, 1, children=np.array([0, 5, 2, 5])),
    "a parent without children": lambda s: with_level(s, 0, children=np.array([0, 0])),
    "starts of another width": lambda s: with_level(s, 0, starts=np.array([0, 1, 2])),
    "a feature beyond the vocabulary": lambda s: with_level(s, 0, features=damaged(s_level(s, 0).features, -1, 99)),
    "features out of order": lambda s: with_level(s, 0, features=s_level(s, 0).features[::-1].copy()),
    "a child of another parent": lambda s: with_level(s, 2, nodes=damaged(s_level(s, 2).nodes, 0, 9)),
    "a negative child": lambda s: with_level(s, 2, nodes=damaged(s_level(s, 2).nodes, 0, -1)),
    "weights of another type": lambda s: with_level(s, 2, weights=s_level(s, 2).weights.astype(np.float64)),
    "a bias with two dimensions": lambda s: with_level(s, 2, bias=s_level(s, 2).bias[:, None]),
    "a label twice": lambda s: with_scorer(
        s, 0, trees=[dataclasses.replace(s.scorers[0].trees[0], labels=np.zeros(N_LABELS, np.int64))]
    ),
    "no tree": lambda s: dataclasses.replace(s, scorers=[s.scorers[1], dataclasses.replace(s.scorers[0], trees=[])]),
    "no beam": lambda s: with_scorer(s, 0, beam=0),
    "an unknown loss": lambda s: with_scorer(s, 0, loss="absolute"),
    "an unknown loss of the mix": lambda s: dataclasses.replace(
        s, fusion=dataclasses.replace(s.fusion, loss="absolute")
    ),
    "a label beyond the labels": lambda s: with_scorer(s, 1, labels=damaged(s.scorers[1].labels, 0, N_LABELS)),
    "starts that do not end": lambda s: with_scorer(s, 1, starts=damaged(s.scorers[1].starts, -1, 3)),
    "no features": lambda s: dataclasses.replace(s, encoders={**s.encoders, "unit": SparseFeatures(0, True)}),
}


def s_level(servable, depth):
    return servable.scorers[0].trees[0].levels[depth]


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_parts_that_do_not_fit_are_refused(servable, damage):
    servable.check()
    with pytest.raises(ModelError):
        damage(servable).check()
