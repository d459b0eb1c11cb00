"""Candidate stages with similarities and paths, and their fusion, against hand-made answers and loops."""

from dataclasses import replace

import numpy as np
import pytest
from handmade import BIAS, LABELS, WEIGHT, servable

from xclearn.data import LabelSet
from xclearn.errors import ModelError
from xclearn.inference import Model, load_model, save_model
from xclearn.inference.arrays import sigmoid
from xclearn.inference.components import AllLabels, Classifier, Product
from xclearn.inference.shortlists import CentroidSearch, LearnedEdges, Mix, TwoLevelMix, best_paths, log_odds

EYE = np.eye(3, dtype=np.float32)
CENTRES = np.array([[1, 0, 0], [0, 1, 0], [0.6, 0.8, 0], [0, 0, 1]], dtype=np.float32)
CENTROIDS = CentroidSearch("document", CENTRES, np.array([0, 1, 1, 3], np.int32), 2)  # label 2 has no centre
EDGES = LearnedEdges(
    "document",
    EYE,
    np.zeros(3, np.float32),
    scale=1.5,
    beam=2,
    labels=np.array([[0, 3, -1], [3, 1, 2], [2, 0, 1]], np.int32),
    edges=np.array([[1, 0.5, 0.9], [0.8, 1, 0.1], [1, 1, 1]], np.float32),
    size=3,
)


def test_the_nearest_centre_of_a_label_counts():
    vectors = np.array([[3, 4, 0], [0, 0, 0], [2, 0, 0]], np.float32)
    ids, cosines = CENTROIDS.find({"document": vectors})
    assert ids.tolist() == [[1, 0], [0, 1], [0, 1]]
    np.testing.assert_allclose(cosines, [[1, 0.6], [0, 0], [1, 0.6]], atol=1e-6)


def test_centroids_against_a_loop():
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((40, 6)).astype(np.float32)
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    labels = np.sort(rng.integers(0, 25, 40)).astype(np.int32)
    vectors = rng.standard_normal((9, 6)).astype(np.float32)
    ids, cosines = CentroidSearch("v", centres, labels, 5).find({"v": vectors})
    for vector, row, values in zip(vectors, ids, cosines, strict=True):
        best = {}
        for centre, label in zip(centres, labels.tolist(), strict=True):
            best[label] = max(best.get(label, -1), float(vector @ centre / np.linalg.norm(vector)))
        expected = sorted(best, key=lambda label: -best[label])[:5]
        assert row.tolist() == expected
        np.testing.assert_allclose(values, [best[label] for label in expected], rtol=1e-5)


def test_the_best_path_to_a_label_counts():
    """Clusters 0 and 1 are as likely, 2 is not in the beam: each has min(1, 1.5 · e² / (2 e² + 1))."""
    ids, logits = EDGES.find({"document": np.array([[2, 2, 0]], np.float32)})
    chance = 1.5 * np.e**2 / (2 * np.e**2 + 1)
    assert ids.tolist() == [[0, 1, 3]]
    np.testing.assert_allclose(sigmoid(logits), [[chance, chance, 0.8 * chance]], rtol=1e-5)


def test_no_cluster_is_more_than_certain():
    ids, logits = EDGES.find({"document": np.array([[9, 0, 0]], np.float32)})
    assert ids[0, 0] == 0
    assert np.isposinf(logits[0, 0])


def test_paths_against_a_loop():
    rng = np.random.default_rng(1)
    ids = rng.integers(-1, 8, (30, 20))
    scores = rng.random((30, 20)).round(1)
    found, best = best_paths(ids, scores)
    for row in range(30):
        expected = {i: max(scores[row][ids[row] == i]) for i in set(ids[row].tolist()) - {-1}}
        order = sorted(expected, key=lambda i: (-expected[i], i))
        assert [i for i in found[row].tolist() if i >= 0] == order
        assert best[row, : len(order)].tolist() == [expected[i] for i in order]
        assert not best[row, len(order) :].any()


def test_a_path_and_a_classifier_make_a_product():
    made = servable(candidates=EDGES, fusion=Product())
    made.check()
    ids, scores = made.predict(["blue"], 4)
    chances = np.exp([1, 0, 0]) / np.exp([1, 0, 0]).sum() * 1.5
    np.testing.assert_allclose(scores[0, 0], sigmoid(np.array(3.0)) * chances[0], rtol=1e-5)
    assert ids[0, -1] == -1  # three labels are kept


@pytest.mark.parametrize("by_row", [False, True])
def test_mix_by_hand(by_row):
    mix = Mix([1.0, -0.5], 0.25, by_row)
    candidate = np.array([[0.2, 0.9, -np.inf]])
    logits = [np.array([[1.0, 2.0, -np.inf]]), np.array([[4.0, 2.0, -np.inf]])]
    scored, similar = sigmoid(np.array([-1.0, 1.0])), sigmoid(np.array([0.2, 0.9]))
    if by_row:
        scored, similar = scored / scored[1], similar / similar[1]
    np.testing.assert_allclose(mix(candidate, logits)[0, :2], 0.25 * scored + 0.75 * similar, rtol=1e-6)


def test_a_mix_on_two_levels_by_hand():
    candidate = np.array([[0.2, -np.inf]])
    logits = [np.array([[1.0, -np.inf]]), np.array([[4.0, -np.inf]])]
    first, again, similar = (1 / (1 + np.exp(-logit)) for logit in (1.0, 4.0, 0.2))
    expected = 0.6 * again + 0.4 * (0.25 * first + 0.75 * similar)
    np.testing.assert_allclose(TwoLevelMix(0.25, 0.6)(candidate, logits), [[expected, 0]], rtol=1e-6)
    single_level = Mix([0.4, 0.6], 0.25, False)(candidate, logits)
    assert abs(single_level[0, 0] - expected) > 0.05


def test_missing_candidates_do_not_count_as_the_largest_of_a_row():
    """Label 1 has two centres, so the scorer is asked for row −1 nowhere; the clusters of another stage are uneven."""
    candidate, logits = np.array([[0.5, -np.inf]]), [np.array([[1.0, -np.inf]])]
    np.testing.assert_allclose(Mix([1.0], 0.5, True)(candidate, logits)[0, 0], 1)


def test_a_mixed_model_is_saved_and_loaded(tmp_path):
    scorers = [Classifier("document", WEIGHT, BIAS)] * 2
    made = servable(candidates=CENTROIDS, scorers=scorers, fusion=Mix([0.6, 0.4], 0.1, True))
    save_model(Model(made, LabelSet(LABELS), {}), tmp_path / "m")
    loaded = load_model(tmp_path / "m").servable
    expected, found = made.predict(["blue green", ""], 2), loaded.predict(["blue green", ""], 2)
    assert found.ids.tolist() == expected.ids.tolist()
    assert found.scores.tobytes() == expected.scores.tobytes()


def test_log_odds_are_undone_by_the_logistic():
    chances = np.array([0, 1e-6, 0.3, 1])
    np.testing.assert_allclose(sigmoid(log_odds(chances)), chances, rtol=1e-9)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"candidates": replace(CENTROIDS, vector="other")}, "a vector that no encoder makes"),
        ({"candidates": replace(CENTROIDS, centres=CENTRES[:, :2])}, "centroid_search.v1.centres"),
        ({"candidates": replace(CENTROIDS, centres=CENTRES.astype(float))}, "centroid_search.v1.centres"),
        ({"candidates": replace(CENTROIDS, labels=np.array([1, 0, 2, 3], np.int32))}, "must ascend"),
        ({"candidates": replace(CENTROIDS, labels=np.array([0, 1, 2, 4], np.int32))}, "out of range"),
        ({"candidates": replace(CENTROIDS, size=0)}, "size: a number is out of range"),
        ({"candidates": replace(CENTROIDS, centres=CENTRES[:0], labels=np.empty(0, np.int32))}, "wrong shape"),
        ({"candidates": replace(EDGES, labels=EDGES.labels[:2])}, "learned_edges.v1.labels"),
        ({"candidates": replace(EDGES, labels=EDGES.labels + 2)}, "labels: a value is out of range"),
        ({"candidates": replace(EDGES, edges=EDGES.edges * 2)}, "edges: a value is out of range"),
        ({"candidates": replace(EDGES, edges=EDGES.edges * np.float32("nan"))}, "edges: a value is out of range"),
        ({"candidates": replace(EDGES, scale=0.0)}, "scale: a number is out of range"),
        ({"candidates": replace(EDGES, bias=EDGES.bias[:2])}, "learned_edges"),
        ({"fusion": Mix([1.0], 0.5, True), "candidates": AllLabels()}, "mix.v1"),
        ({"fusion": Mix([1.0, 1.0], 0.5, True), "candidates": CENTROIDS}, "mix.v1"),
        ({"fusion": Mix([1.0], 1.5, True), "candidates": CENTROIDS}, "mix.v1"),
        ({"fusion": TwoLevelMix(0.5, 0.5), "candidates": CENTROIDS}, "two_level_mix.v1"),
    ],
)
def test_what_does_not_fit_is_refused(parts, message):
    with pytest.raises(ModelError, match=message):
        servable(**parts).check()
