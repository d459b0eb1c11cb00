"""Labels near a label, by hand: over the graph in either direction, and by the cosine of classifiers."""

import numpy as np
import scipy.sparse as sp
from planted import planted

from xclearn.algorithms.label_tree import LabelTree
from xclearn.inference.components import AllLabels, Bag, Classifier, Sigmoid
from xclearn.inference.graph import Game, GameLabels, GameScorer, Graph
from xclearn.inference.neighbours import label_graph, near_by_classifier, near_in_graph
from xclearn.inference.servable import Ensemble, Servable
from xclearn.text import Words, vectoriser_for

EDGES = Graph.of(sp.csr_matrix(np.array([[9, 2, 0], [0, 9, 0], [5, 0, 9]], dtype=np.float32)))
WEIGHTS = np.array([[1, 0], [2, 0.1], [-1, 0]], dtype=np.float32)


def servable(scorer=None, steps=()):
    vectoriser = vectoriser_for(["a b", "b c"], Words(), None)
    encoder = Bag(np.ones((vectoriser.n_features, 2), dtype=np.float32), [])
    scorer = scorer or Classifier("x", WEIGHTS, np.zeros(3, dtype=np.float32))
    return Servable(vectoriser, {"x": encoder}, AllLabels(), [scorer], Sigmoid(), list(steps))


def test_the_graph_is_found_wherever_scores_are_passed_over_it():
    step = GameLabels(Game(EDGES, 0.5, 3), 3)
    scorer = GameScorer(servable().scorers[0], EDGES, 1.0)
    for model in (servable(steps=[step]), servable(scorer), Ensemble([servable(steps=[step]), servable()])):
        assert label_graph(model) is EDGES
    assert label_graph(servable()) is None


def test_neighbours_pass_scores_to_or_from_the_label_and_exclude_it():
    assert near_in_graph(EDGES, 0, 5) == [(2, 5.0), (1, 2.0)]
    assert near_in_graph(EDGES, 0, 1) == [(2, 5.0)]
    assert near_in_graph(EDGES, 1, 5) == [(0, 2.0)]


def test_classifiers_are_near_by_their_cosine():
    for model in (servable(), servable(GameScorer(servable().scorers[0], EDGES, 1.0)), Ensemble([servable()])):
        ((label, cosine),) = near_by_classifier(model, 0, 5)  # the opposite one is not near
        assert label == 1
        np.testing.assert_allclose(cosine, 2 / np.hypot(2, 0.1), rtol=1e-6)


def test_labels_without_vectors_of_their_own_have_none():
    fitted = LabelTree(n_trees=1).fit(planted(n_labels=6), device="cpu")
    assert near_by_classifier(fitted.model.servable, 0, 5) is None
