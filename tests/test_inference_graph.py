"""Scores over a graph against dense matrices."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from handmade import BIAS, LABELS, WEIGHT, servable

from xclearn.data import LabelSet
from xclearn.errors import ModelError
from xclearn.inference import Model, Predictor, load_model, save_model
from xclearn.inference.arrays import sigmoid
from xclearn.inference.components import Classifier, ClusterBeam, Product
from xclearn.inference.graph import Game, GameBeam, GameLabels, GameScorer, Graph
from xclearn.inference.labels import predict_among

# Label 0 passes half of its score to label 2, label 1 nothing, label 3 everything to itself.
EDGES = np.array([[0.5, 0, 0.5, 0], [0, 0, 0, 0], [0.2, 0, 0.8, 0], [0, 0, 0, 1]], dtype=np.float32)
GRAPH = Graph.of(sp.csr_matrix(EDGES))
CLUSTERS = ClusterBeam(
    "document", np.eye(3, dtype=np.float32), np.zeros(3, np.float32), np.array([3, 0, 1, 2]), np.array([0, 1, 2, 4]), 1
)
CLUSTER_EDGES = np.array([[1, 0, 0.5], [0, 1, 0], [0, 0, 1]], dtype=np.float32)
BEAM = GameBeam(CLUSTERS, Game(Graph.of(sp.csr_matrix(CLUSTER_EDGES)), 0.5, 2))


def test_half_and_half_by_hand():
    found, chances = Game(GRAPH, 0.5, 2)(np.array([[0, 1]]), np.array([[0.8, 0.6]]))
    assert found.tolist() == [[0, 1, 2, -1]]  # 0: 0.4 + 0.2, 1: 0.3, 2: 0.2
    np.testing.assert_allclose(chances[0, :3], [0.6, 0.3, 0.2], rtol=1e-6)


def test_only_what_is_passed_on():
    found, chances = Game(GRAPH, 1.0, 1)(np.array([[0, 1, -1]]), np.array([[0.8, 0.6, -np.inf]]))
    assert found[0, 0] == 0
    assert (found[0, 1:] == -1).all()
    np.testing.assert_allclose(chances[0, 0], 0.4, rtol=1e-6)


@pytest.mark.parametrize("share", [0.3, 1.0])
def test_against_dense_matrices(share):
    rng = np.random.default_rng(0)
    edges = sp.random(30, 30, 0.2, "csr", np.float32, rng)
    ids = np.array([rng.choice(30, 6, replace=False) for _ in range(20)])
    ids[:, 4:][rng.random((20, 2)) < 0.5] = -1
    chances = rng.random(ids.shape)
    dense = np.zeros((20, 30))
    for row in range(20):
        dense[row, ids[row][ids[row] >= 0]] = chances[row][ids[row] >= 0]
    passed = dense @ edges.toarray()
    passed[passed < -np.sort(-passed, axis=1)[:, 3:4]] = 0  # four are kept
    expected = np.minimum((1 - share) * dense + share * passed, 1)
    found, scores = Game(Graph.of(edges), share, 4)(ids, chances)
    again = np.zeros((20, 30))
    for row in range(20):
        again[row, found[row][found[row] >= 0]] = scores[row][found[row] >= 0]
    np.testing.assert_allclose(again, expected, atol=1e-6)


def test_clusters_bring_others_in():
    """blue: cluster 0 is kept with σ(1) and passes half of half of it on to cluster 2."""
    ids, logits = BEAM.find({"document": np.array([[1, 0, 0]], np.float32)})
    chance = {0: sigmoid(np.array(1.0)), 2: 0.25 * sigmoid(np.array(1.0))}
    found = {
        label: score for label, score in zip(ids[0].tolist(), sigmoid(logits)[0].tolist(), strict=True) if label >= 0
    }
    assert found == pytest.approx({3: chance[0], 1: chance[2], 2: chance[2]}, rel=1e-5)


def test_labels_bring_others_in_after_fusion():
    step = GameLabels(Game(GRAPH, 0.5, 4), depth=2)
    made = servable(steps=[step])
    made.check()
    ids, scores = made.predict(["blue"], 4)
    first, second = sigmoid(np.array([3.0, 0.0]))  # sky, leaf
    assert ids.tolist() == [[0, 1, 2, -1]]
    np.testing.assert_allclose(scores[0, :3], [0.75 * first, 0.5 * second, 0.25 * first], rtol=1e-6)
    assert np.isneginf(scores[0, 3])


def test_an_excluded_label_still_passes_its_score_on():
    made = servable(steps=[GameLabels(Game(GRAPH, 0.5, 4), depth=2)])
    ids, scores = made.predict(["blue"], 2, np.array([[0, 0]]))
    assert ids.tolist() == [[1, 2]]
    np.testing.assert_allclose(scores[0, 1], 0.25 * sigmoid(np.array(3.0)), rtol=1e-6)


def test_an_answer_does_not_hang_on_k():
    made = servable(steps=[GameLabels(Game(GRAPH, 0.5, 4), depth=2)])
    texts = ["blue", "green red", ""]
    assert made.predict(texts, 4).ids[:, :1].tolist() == made.predict(texts, 1).ids.tolist()


def test_a_depth_beyond_the_labels_is_all_of_them():
    made = servable(steps=[GameLabels(Game(GRAPH, 0.5, 1 << 60), depth=1 << 60)])
    all_labels = servable(steps=[GameLabels(Game(GRAPH, 0.5, 4), depth=4)])
    assert made.predict(["blue"], 4).ids.tolist() == all_labels.predict(["blue"], 4).ids.tolist()


def test_the_paper_passes_chances_on_before_the_product():
    scorer = GameScorer(Classifier("document", WEIGHT, BIAS), GRAPH, 1.0)
    vectors = np.array([[1, 0, 0], [0, 0.5, 1]], np.float32)
    chances = sigmoid(vectors @ WEIGHT.T + BIAS)
    np.testing.assert_allclose(sigmoid(scorer.score_all(vectors)), np.minimum(chances @ EDGES, 1), rtol=1e-5)
    ids = np.array([[2, 0, -1], [3, 1, 2]])
    found = sigmoid(scorer.score(vectors, ids))
    among = np.minimum(np.array([[1, 0, 1, 0], [0, 1, 1, 1]]) * chances @ EDGES, 1)
    np.testing.assert_allclose(found[0, :2], among[0, [2, 0]], rtol=1e-5)
    np.testing.assert_allclose(found[1], among[1, [3, 1, 2]], rtol=1e-5)


def test_chances_of_no_candidates_are_none():
    """Found by the folder fuzzer: a shortlist may find nothing for any text."""
    scorer = GameScorer(Classifier("document", WEIGHT, BIAS), GRAPH, 1.0)
    assert scorer.score(np.ones((2, 3), np.float32), np.empty((2, 0), np.int64)).shape == (2, 0)


@pytest.mark.parametrize(
    "parts",
    [
        {"candidates": BEAM, "fusion": Product()},
        {"steps": [GameLabels(Game(GRAPH, 0.5, 4), 3)]},
        {"scorers": [GameScorer(Classifier("document", WEIGHT, BIAS), GRAPH, 0.5)]},
    ],
)
def test_saved_loaded_and_restricted_to_chosen_labels(parts, tmp_path):
    made = servable(**parts)
    save_model(Model(made, LabelSet(LABELS), {}), tmp_path / "m")
    predictor = Predictor(load_model(tmp_path / "m"))
    ids, scores = predictor.predict(["blue red"], 4)
    np.testing.assert_allclose(scores, made.predict(["blue red"], 4).scores, rtol=1e-5)
    wanted = np.array([1, 2])
    restricted = predict_among(predictor, ["blue red"], wanted, 2)
    kept = np.isin(ids[0], wanted)
    assert restricted.ids[0].tolist() == ids[0][kept].tolist()
    np.testing.assert_allclose(restricted.scores[0], scores[0][kept], rtol=1e-5)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"offsets": GRAPH.offsets[:-1]}, "wrong shape"),
        ({"offsets": GRAPH.offsets[::-1].copy()}, "do not cover"),
        ({"targets": GRAPH.targets + 3}, "targets: a value is out of range"),
        ({"targets": GRAPH.targets.astype(np.int64)}, "wrong shape or type"),
        ({"weights": GRAPH.weights * np.float32("inf")}, "weights: a value is out of range"),
        ({"weights": -GRAPH.weights}, "weights: a value is out of range"),
    ],
)
def test_a_damaged_graph_is_refused(parts, message):
    damaged = Game(replace(GRAPH, **parts), 0.5, 4)
    with pytest.raises(ModelError, match=message):
        servable(steps=[GameLabels(damaged, 2)]).check()


@pytest.mark.parametrize(("share", "kept", "depth"), [(0.0, 4, 2), (1.5, 4, 2), (0.5, 0, 2), (0.5, 4, 0)])
def test_a_step_that_does_nothing_is_refused(share, kept, depth):
    with pytest.raises(ModelError, match="game"):
        servable(steps=[GameLabels(Game(GRAPH, share, kept), depth)]).check()
