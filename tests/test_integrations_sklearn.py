"""The scikit-learn wrapper used as scikit-learn uses estimators: clone, pipelines, cross-validation, grid search."""

import copy
import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn import config_context
from sklearn.base import clone, is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.metrics import accuracy_score, f1_score, label_ranking_average_precision_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import Pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

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


NOT_MET = {
    "check_classifiers_multilabel_output_format_predict_proba": (
        "asks for probabilities below 1: ours are float32, in which the logistic of a logit above 17 is 1"
    )
}


@parametrize_with_checks([XCClassifier("sparse_one_vs_all")], expected_failed_checks=lambda _: NOT_MET)
def test_it_keeps_the_contract_of_scikit_learn(estimator, check):
    check(estimator)


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
    deep = copy.copy(fitted).set_params(k=100)
    assert set(np.diff(deep.predict_proba(features).indptr)) == {N_LABELS}


def test_every_form_of_the_same_labels_and_features_gives_the_same_model(planted, features, fitted):
    """Dense and boolean Y, CSC and sparse-array X, texts in an array: the same bits as the first form."""
    expected = fitted.predict_proba(features).toarray()
    Y = planted[1]
    for labels, documents in ((Y.toarray(), features), (Y.astype(bool), features.tocsc()), (Y, sp.csr_array(features))):
        again = clone(fitted).fit(documents, labels)
        np.testing.assert_array_equal(sp.csr_matrix(again.predict_proba(features)).toarray(), expected)
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


def test_predictions_have_the_form_of_what_was_learnt_from(planted, features, fitted):
    Y = planted[1]
    dense = clone(fitted).fit(features, Y.toarray())
    assert isinstance(dense.predict(features), np.ndarray)
    np.testing.assert_array_equal(dense.predict(features), fitted.predict(features).toarray())
    np.testing.assert_array_equal(dense.predict_proba(features), fitted.predict_proba(features).toarray())
    np.testing.assert_array_equal(fitted.classes_, range(N_LABELS))
    assert dense.score(features, Y.toarray()) == fitted.score(features, Y)
    assert fitted.score(features, Y) == accuracy_score(Y, fitted.predict(features))
    assert label_ranking_average_precision_score(Y.toarray(), dense.predict_proba(features)) > 0.95


def test_a_class_for_each_document():
    """Texts that name their class, which comes as a text, and is predicted as such."""
    texts = [f"{word} number{i % 3}" for i, word in enumerate(["cat", "dog", "horse", "cow"] * 10)]
    named = np.array([f"the {text.split()[0]}" for text in texts])
    model = XCClassifier("sparse_one_vs_all").fit(texts, named)
    assert list(model.classes_) == ["the cat", "the cow", "the dog", "the horse"]
    np.testing.assert_array_equal(model.predict(texts), named)
    assert model.score(texts, named) == 1
    chances = model.predict_proba([*texts[:3], ""])
    np.testing.assert_allclose(chances.sum(axis=1), 1, rtol=1e-6)
    assert is_classifier(model)
    assert cross_val_score(model, texts, named, cv=2).min() == 1


def test_single_settings_are_set_and_searched_by_their_path(planted, features):
    settings = {"epochs": 3, "vectoriser": {"kind": "words", "longest": 1}}
    model = XCClassifier("one_vs_all", settings=settings)
    model.set_params(settings__vectoriser__longest=2, settings__batch_size=8, k=2)
    assert model.settings == {"epochs": 3, "vectoriser": {"kind": "words", "longest": 2}, "batch_size": 8}
    assert settings == {"epochs": 3, "vectoriser": {"kind": "words", "longest": 1}}
    assert model.get_params()["settings__vectoriser__longest"] == 2
    assert XCClassifier().set_params(settings__epochs=4).settings == {"epochs": 4}
    with pytest.raises(ValueError, match="Invalid parameter 'epochs'"):
        model.set_params(epochs=1)
    grid = {"settings__epochs": [1, 15], "settings__label_lr": [1e-9]}
    search = GridSearchCV(XCClassifier("one_vs_all", settings=QUICK), grid, scoring=precision_at_k(1), cv=2)
    search.fit(features, planted[1])
    best = search.best_params_["settings__epochs"]
    assert search.best_estimator_.settings == QUICK | {"epochs": best, "label_lr": 1e-9}
    assert search.best_estimator_.algorithm_.epochs == best


def test_errors_are_also_those_that_scikit_learn_knows(planted, features):
    with pytest.raises(NotFittedError):
        XCClassifier().predict(features)
    with pytest.raises(ValueError, match="not binary"):
        XCClassifier().fit(features, planted[1] * 2)


def test_clone_and_parameters(fitted):
    again = clone(fitted)
    assert again.get_params() == fitted.get_params()
    given = {"algorithm": "one_vs_all", "settings": QUICK, "k": 3, "device": "auto", "seed": 0}
    assert again.get_params(deep=False) == given
    assert again.get_params() == given | {f"settings__{name}": value for name, value in QUICK.items()}
    assert not hasattr(again, "algorithm_")
    assert again.set_params(k=1, seed=4).get_params()["seed"] == 4
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
        (["a", "b"], None, "requires y to be passed"),
        (["a", "b"], [["x"], ["y", "z"]], "MultiLabelBinarizer"),
        (["a", "b"], [0.5, 1.5], "Unknown label type"),
        (["a", "b"], ["x"], "differ in rows"),
        (["a", "b"], [[1, 2], [0, 1]], "not binary; got 2.0"),
        (["a", "b"], [[1, np.nan], [0, 1]], "not binary; got nan"),
        (["a", "b"], [[1], [0, 1]], "not a relevance matrix"),
        (["a", "b"], [["x", "y"], ["y", "z"]], "not a relevance matrix"),
        (["a", "b"], [[0, 0], [0, 0]], "has a label"),
        ("a", [[1]], "one text"),
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
