"""The scikit-learn wrapper used as scikit-learn uses estimators: clone, pipelines, cross-validation, grid search."""

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn import config_context
from sklearn.base import clone
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.metrics import f1_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import Pipeline

from xclearn.algorithms.one_vs_all import OneVsAll
from xclearn.errors import ConfigError, DataError, NotFitted
from xclearn.integrations.sklearn import XCClassifier, precision_at_k, psp_at_k

N_LABELS = 6
QUICK = {"epochs": 15, "batch_size": 8, "embedding_dim": 32}


@pytest.fixture(scope="module")
def planted() -> tuple[list[str], sp.csr_matrix]:
    """Each text names its two labels among noise words: the right answer is known."""
    rng = np.random.default_rng(0)
    texts, rows = [], np.zeros((240, N_LABELS), dtype=np.int64)
    for row in rows:
        chosen = rng.choice(N_LABELS, size=2, replace=False)
        row[chosen] = 1
        noise = [f"noise{word}" for word in rng.integers(20, size=1)]
        texts.append(" ".join(rng.permutation([*(f"topic{label}" for label in chosen), *noise])))
    return texts, sp.csr_matrix(rows)


@pytest.fixture(scope="module")
def features(planted) -> sp.csr_matrix:
    return TfidfVectorizer().fit_transform(planted[0])


@pytest.fixture(scope="module")
def fitted(planted, features) -> XCClassifier:
    return XCClassifier("one_vs_all", settings=QUICK, k=3).fit(features, planted[1])


class Always:
    """An estimator with the scores it is given."""

    def __init__(self, scores: list[list[float]]) -> None:
        self.scores = sp.csr_matrix(scores)

    def predict_proba(self, X: object) -> sp.csr_matrix:  # noqa: ARG002
        return self.scores


def test_it_learns_the_planted_labels_from_features_and_from_texts(planted, features, fitted):
    texts, Y = planted
    assert (fitted.predict(features) != Y).nnz <= 0.05 * Y.nnz
    from_texts = XCClassifier("one_vs_all", settings=QUICK).fit(texts, Y)
    assert f1_score(Y, from_texts.predict(texts), average="micro") > 0.95


def test_probabilities_are_the_top_k_of_the_algorithm(features, fitted):
    found = fitted.predict_proba(features)
    ids, scores = fitted.algorithm_.predict(features, 3)
    assert isinstance(found, sp.csr_matrix)
    assert found.shape == (240, N_LABELS)
    assert found.has_sorted_indices
    expected = np.zeros(found.shape, dtype=np.float32)
    np.put_along_axis(expected, ids, scores, axis=1)
    np.testing.assert_array_equal(found.toarray(), expected)
    assert set(np.diff(found.indptr)) == {3}


def test_predictions_are_the_probabilities_of_at_least_a_half(features, fitted):
    found = fitted.predict(features)
    np.testing.assert_array_equal(found.toarray(), fitted.predict_proba(features).toarray() >= 0.5)
    assert set(found.data) == {1}


def test_k_beyond_the_labels_is_clipped(features, fitted):
    deep = clone(fitted).set_params(k=100)
    deep.algorithm_ = fitted.algorithm_
    assert set(np.diff(deep.predict_proba(features).indptr)) == {N_LABELS}


def test_every_form_of_the_same_labels_and_features_gives_the_same_model(planted, features, fitted):
    """Dense and boolean Y, CSC and sparse-array X, texts in an array: the same bits as the first form."""
    expected = fitted.predict_proba(features).toarray()
    Y = planted[1]
    for labels, documents in ((Y.toarray(), features), (Y.astype(bool), features.tocsc()), (Y, sp.csr_array(features))):
        again = clone(fitted).fit(documents, labels)
        np.testing.assert_array_equal(again.predict_proba(features).toarray(), expected)
    texts = np.array(planted[0])
    by_list, by_array = (clone(fitted).fit(form, Y).predict_proba(form) for form in (planted[0], texts))
    np.testing.assert_array_equal(by_list.toarray(), by_array.toarray())


def test_fit_does_not_change_what_it_is_given(planted, features):
    Y = planted[1].astype(np.float32)  # what would be taken without a conversion
    Y.data[0] = 0  # a stored zero is no label
    before = Y.data.copy()
    fitted = XCClassifier("one_vs_all", settings=QUICK | {"epochs": 1}).fit(features, Y)
    np.testing.assert_array_equal(Y.data, before)
    assert fitted.settings == QUICK | {"epochs": 1}


def test_clone_and_parameters(fitted):
    copy = clone(fitted)
    assert copy.get_params() == fitted.get_params()
    assert copy.get_params() == {"algorithm": "one_vs_all", "settings": QUICK, "k": 3, "device": "auto", "seed": 0}
    assert not hasattr(copy, "algorithm_")
    assert copy.set_params(k=1, seed=4).get_params()["seed"] == 4
    assert isinstance(fitted.algorithm_, OneVsAll)


def test_the_seed_and_the_settings_reach_the_algorithm(planted, features):
    one, same, other = (
        XCClassifier("one_vs_all", settings=QUICK, seed=seed).fit(features, planted[1]) for seed in (0, 0, 1)
    )
    scores = [model.predict_proba(features).toarray() for model in (one, same, other)]
    assert np.array_equal(scores[0], scores[1])
    assert not np.array_equal(scores[0], scores[2])
    assert one.algorithm_.embedding_dim == 32


def test_a_pipeline_in_cross_validation(planted):
    texts, Y = planted
    pipeline = Pipeline([("words", TfidfVectorizer()), ("labels", XCClassifier("one_vs_all", settings=QUICK))])
    with config_context(skip_parameter_validation=True):  # cross_val_score would refuse any sparse Y
        scores = cross_val_score(pipeline, texts, Y, scoring=precision_at_k(1), cv=3)
    assert scores.shape == (3,)
    assert scores.min() > 0.9
    dense = cross_val_score(pipeline, texts, Y.toarray(), scoring=precision_at_k(1), cv=3)
    np.testing.assert_array_equal(dense, scores)


def test_propensity_scores_in_cross_validation(planted, features):
    Y = planted[1].toarray()
    scores = cross_val_score(XCClassifier("one_vs_all", settings=QUICK), features, Y, scoring=psp_at_k(2, Y), cv=2)
    assert 0.7 < scores.min() <= scores.max() <= 1


def test_grid_search_finds_the_setting_that_learns(planted, features):
    grid = {"settings": [QUICK | {"encoder_lr": 1e-9, "label_lr": 1e-9}, QUICK]}
    search = GridSearchCV(XCClassifier("one_vs_all"), grid, scoring=precision_at_k(1), cv=2).fit(features, planted[1])
    assert search.best_params_ == {"settings": QUICK}
    assert search.best_score_ > 0.9
    assert search.predict(features).shape == planted[1].shape


def test_precision_by_hand():
    estimator = Always([[0.9, 0.8, 0, 0], [0.7, 0, 0.6, 0]])
    Y = np.array([[0, 1, 0, 0], [1, 0, 1, 0]])
    assert precision_at_k(1)(estimator, None, Y) == 1 / 2
    assert precision_at_k(2)(estimator, None, Y) == 3 / 4


def test_propensity_scored_precision_by_hand():
    """20 documents have label 0 and one has label 1: w = 1 + (ln 20 − 1)(b + 1)^a (n + b)^−a."""
    known = np.array([[1, 1]] + [[1, 0]] * 19)
    weight = [1 + (np.log(20) - 1) * (2.5 / (count + 1.5)) ** 0.55 for count in (20, 1)]
    found = psp_at_k(1, known)(Always([[0.9, 0.1], [0.9, 0.1]]), None, np.array([[1, 0], [1, 1]]))
    assert found == pytest.approx(2 * weight[0] / (weight[0] + weight[1]))


def test_rows_with_fewer_stored_scores_are_not_filled_up():
    estimator = Always([[0.9, 0.8, 0.7], [0, 0, 0.5]])
    assert precision_at_k(3)(estimator, None, np.array([[1, 0, 0], [1, 0, 1]])) == pytest.approx(2 / 6)


def test_a_scorer_deeper_than_the_predictions_is_refused(planted, features, fitted):
    with pytest.raises(ConfigError, match="more labels than predict_proba gives; got 4; allowed: k up to 3"):
        precision_at_k(4)(fitted, features, planted[1])


def test_scorers_travel_to_other_processes():
    scorer = pickle.loads(pickle.dumps(psp_at_k(2, np.eye(3))))
    assert scorer.k == 2
    assert len(scorer.inverse_propensity) == 3


@pytest.mark.parametrize(
    ("X", "Y", "message"),
    [
        (["a", "b"], [[1, 0]], "differ in rows"),
        (["a", "b"], [1, 0], "1 dimensions"),
        (["a", "b"], [[1, 2], [0, 1]], "not binary; got 2.0"),
        (["a", "b"], [[1, np.nan], [0, 1]], "not binary; got nan"),
        (["a", "b"], [[1], [0, 1]], "not a relevance matrix"),
        (["a", "b"], [["x"], ["y"]], "not a relevance matrix"),
        (["a", "b"], [[0, 0], [0, 0]], "has a label"),
        ("a", [[1]], "not a list of texts"),
        (iter("ab"), [[1], [0]], "not documents"),
        (np.array([[np.nan], [1.0]]), [[1], [0]], "NaN"),
    ],
)
def test_what_cannot_be_learnt_from_is_refused(X, Y, message):
    with pytest.raises(DataError, match=message):
        XCClassifier("one_vs_all", settings=QUICK).fit(X, Y)


def test_wrong_parameters_are_refused_when_they_are_used(planted, features, fitted):
    with pytest.raises(ConfigError, match="Did you mean 'one_vs_all'"):
        XCClassifier(algorithm="one_vs_al").fit(features, planted[1])
    with pytest.raises(ConfigError, match="Did you mean 'epochs'"):
        XCClassifier("one_vs_all", settings={"epoch": 1}).fit(features, planted[1])
    with pytest.raises(ConfigError, match="at least 1; got 0"):
        fitted.__class__("one_vs_all", k=0, settings=QUICK).fit(features, planted[1]).predict(features)
    with pytest.raises(NotFitted, match="fit"):
        XCClassifier().predict(features)
