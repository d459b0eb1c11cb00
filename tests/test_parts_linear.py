"""The problems of trees by hand and by brute force, and what serves a linear scorer."""

import numpy as np
import pytest
import scipy.sparse as sp

from xclearn.config import AUTO
from xclearn.errors import DataError
from xclearn.inference.sparse import SparseClassifier
from xclearn.parts.linear import (
    LevelProblems,
    Solver,
    everything,
    leaf_order,
    level_widths,
    linear_servable,
    matrix_of,
    require_label_text,
    tree_levels,
    usual_text_weight,
)
from xclearn.text import Words, vectoriser_for

SOLVER = Solver("squared_hinge", cost=1.0, epochs=50, threshold=0.0, seed=0)


@pytest.mark.parametrize(
    ("n_labels", "branching", "max_leaf", "expected"),
    [
        (100, 2048, 100, []),
        (101, 2048, 100, [2]),
        (103_849, 2048, 100, [2048]),
        (103_849, 2, 100, [2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048]),
        (103_849, 100, 100, [64, 2048]),  # rounded down to a power of two
        (1_000_000, 128, 100, [128, 16384]),
        (60, 2, 1, [2, 4, 8, 16, 32]),  # 64 clusters would leave some empty
        (1, 2048, 100, []),
    ],
)
def test_level_widths(n_labels, branching, max_leaf, expected):
    assert level_widths(n_labels, branching, max_leaf) == expected


def test_levels_of_a_small_tree_by_hand():
    """Labels 0…3 in clusters 1, 0, 3, 2; documents have {0}, {1, 2}, {3}, {}."""
    relevance = sp.csr_matrix(np.array([[1, 0, 0, 0], [0, 1, 1, 0], [0, 0, 0, 1], [0, 0, 0, 0]], dtype=np.float32))
    top, middle, leaves = tree_levels(relevance, np.array([1, 0, 3, 2]), [2, 4])
    assert top.groups.toarray().tolist() == [[1, 1, 1, 1]]
    assert top.children.tolist() == [0, 2]
    assert top.positives.toarray().tolist() == [[1, 1, 0, 0], [0, 1, 1, 0]]
    assert (middle.groups != top.positives).nnz == 0
    assert middle.children.tolist() == [0, 2, 4]
    assert middle.positives.toarray().tolist() == [[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 1, 0], [0, 1, 0, 0]]
    assert leaves.children.tolist() == [0, 1, 2, 3, 4]
    assert leaf_order(np.array([1, 0, 3, 2])).tolist() == [1, 0, 3, 2]
    assert leaves.positives.toarray().tolist() == relevance.T.toarray()[[1, 0, 3, 2]].tolist()


def test_levels_of_a_random_tree_by_brute_force():
    rng = np.random.default_rng(0)
    relevance = sp.csr_matrix((rng.random((50, 40)) < 0.1).astype(np.float32))
    clusters = rng.permutation(np.repeat(np.arange(8), 5))
    widths, parents = [4, 8], [1, 4, 8]
    for depth, level in enumerate(tree_levels(relevance, clusters, widths)):
        node_of_label = clusters // (8 // widths[depth]) if depth < 2 else np.argsort(leaf_order(clusters))
        parent_of_label = clusters // (8 // parents[depth])
        for matrix, nodes in ((level.positives, node_of_label), (level.groups, parent_of_label)):
            if depth == 0 and matrix is level.groups:
                continue  # the root holds documents without labels too
            for node in range(matrix.shape[0]):
                expected = relevance.toarray()[:, nodes == node].any(axis=1)
                assert (matrix[node].toarray().ravel() > 0).tolist() == expected.tolist()
        assert level.children[-1] == level.positives.shape[0]
        assert len(level.children) == level.groups.shape[0] + 1


def planted_problem(n_problems):
    """Problem p has the documents with feature p."""
    features = sp.csr_matrix(np.tile(np.eye(n_problems, dtype=np.float32), (5, 1)))
    return features, LevelProblems(np.array([0, n_problems]), everything(features.shape[0]), sp.csr_matrix(features.T))


@pytest.mark.parametrize("loss", ["squared_hinge", "logistic"])
@pytest.mark.parametrize("n_problems", [4, 30])
def test_the_planted_feature_decides(loss, n_problems):
    arrays = Solver(loss, cost=10.0, epochs=50, threshold=0.1, seed=0).train(*planted_problem(n_problems))
    weights = matrix_of(arrays, n_problems).toarray()
    assert weights.shape == (n_problems, n_problems)
    assert (weights.argmax(axis=1) == np.arange(n_problems)).all()
    scores = weights + arrays["bias"][:, None]  # of problem p for a document with feature f
    assert (np.diag(scores) > 0).all()
    assert (scores[~np.eye(n_problems, dtype=bool)] < 0).all()


def test_the_bias_is_fixed_where_positives_are_rare():
    assert set(SOLVER.train(*planted_problem(30))["bias"].tolist()) == {-1.0}
    assert -1.0 not in SOLVER.train(*planted_problem(4))["bias"]
    logistic = Solver("logistic", 1.0, 50, 0.0, 0).train(*planted_problem(30))
    assert -1.0 not in logistic["bias"]


@pytest.mark.parametrize(("per_label", "weight"), [(0.0, 0.15), (2.8, 0.15), (6.0, 0.15), (18.0, 0.05)])
def test_texts_of_labels_with_many_documents_weigh_less(per_label, weight):
    assert usual_text_weight(100, per_label, chosen_later=False) == pytest.approx(weight)
    assert usual_text_weight(0, per_label, chosen_later=True) == 0
    assert usual_text_weight(100, per_label, chosen_later=True) is AUTO


def test_label_text_that_is_not_there_is_said():
    with pytest.raises(DataError, match=r"label_text_weight needs label texts.*got 0.2.*label_text_weight = 0"):
        require_label_text(None, 0.2)
    require_label_text(None, 0.0)
    require_label_text(sp.csr_matrix((1, 1)), 0.2)


# What is served


@pytest.fixture
def vectoriser():
    return vectoriser_for(["red car", "green tree", "the blue tree"], Words(min_count=1))


def classifier(vectoriser):
    """Label 0 is about the first word of the vocabulary; labels 1 and 2 about nothing."""
    weights = sp.csr_matrix(([2.0], ([0], [0])), shape=(3, vectoriser.n_features))
    return SparseClassifier.of("features", weights, np.full(3, -1.0))


def test_without_weight_or_text_the_classifier_is_served_alone(vectoriser):
    texts = vectoriser.transform(["car", "blue", "green"])
    alone = [
        linear_servable(vectoriser, classifier(vectoriser), "squared_hinge", features, weight)
        for features, weight in ((None, 0.2), (texts, 0.0))
    ]
    for servable in alone:
        servable.check()
        assert len(servable.scorers) == 1


def test_a_label_is_found_by_its_text(vectoriser):
    texts = vectoriser.transform(["car", "blue", "green"])
    servable = linear_servable(vectoriser, classifier(vectoriser), "squared_hinge", texts, 0.5)
    servable.check()
    ids, scores = servable.predict(["blue", "green"], 1)
    assert ids.tolist() == [[1], [2]]
    np.testing.assert_allclose(scores, (np.exp(-4) + 0.5) / 1.5, rtol=1e-5)  # the logit is −1, the cosine 1


def test_the_cosine_does_not_depend_on_the_length_of_the_features():
    """Dense features and word counts that are not normalised are scaled to length one."""
    vectoriser = vectoriser_for(np.ones((1, 2), dtype=np.float32), Words())
    scorer = SparseClassifier.of("features", sp.csr_matrix((2, 2), dtype=np.float32), np.full(2, -1.0))
    texts = np.array([[10, 0], [3, 4]], dtype=np.float32)
    servable = linear_servable(vectoriser, scorer, "squared_hinge", texts, 1.0)
    scores = servable.predict(np.array([[2.0, 0]], dtype=np.float32), 2).scores
    np.testing.assert_allclose(scores, [[(np.exp(-4) + 1) / 2, (np.exp(-4) + 0.6) / 2]], rtol=1e-5)


def test_words_that_weigh_little_beside_the_heaviest_are_left_out_of_label_texts():
    vectoriser = vectoriser_for(sp.csr_matrix((1, 3), dtype=np.float32), Words())
    scorer = SparseClassifier.of("features", sp.csr_matrix((2, 3), dtype=np.float32), np.zeros(2))
    texts = sp.csr_matrix(np.array([[1.0, 0.2, 0.5], [0, 0.01, 0]], dtype=np.float32))
    text_scorer = linear_servable(vectoriser, scorer, "squared_hinge", texts, 1.0).scorers[1]
    scores = text_scorer.score_all(sp.csr_matrix(np.eye(3, dtype=np.float32)))  # (3 words, 2 labels)
    assert (scores > 0).tolist() == [[True, False], [False, True], [True, False]]


def test_serving_leaves_the_label_features_as_they_were(vectoriser):
    texts = vectoriser.transform(["the red car", "the blue tree", "green"])
    before = texts.copy()
    for _ in range(2):
        linear_servable(vectoriser, classifier(vectoriser), "squared_hinge", texts, 0.5)
    assert all((getattr(texts, name) == getattr(before, name)).all() for name in ("indptr", "indices", "data"))
