"""The linear solver: both backends against other libraries, against each other, and against brute force."""

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from tests.oracles import linear as oracle

from xclearn.errors import DataError
from xclearn.kernels.linear import (
    Linear,
    Problems,
    SparseWeights,
    listed_logits,
    train_linear,
)

FORMS = [oracle.train_linear, train_linear]
EXACT = Linear("squared_hinge", cost=2.0, bias=None, tolerance=1e-5, max_passes=2000, threshold=0.0)


def random_problems(n=40, n_features=15, n_problems=3, n_groups=1, seed=0):
    """Groups of random rows; problems with random positives, dealt out among the groups."""
    rng = np.random.default_rng(seed)
    features = sp.random(n, n_features, 0.2, "csr", dtype=np.float32, random_state=rng)
    members = rng.random((n_groups, n)) < (1 if n_groups == 1 else 0.5)
    positives = rng.random((n_problems, n)) < 0.25
    problems = np.sort(np.append(rng.integers(0, n_problems + 1, n_groups - 1), [0, n_problems]))
    return Problems(features, sp.csr_matrix(members), problems, sp.csr_matrix(positives))


def objective(weights, bias, features, sign, cost):
    """The primal of the squared hinge with a fixed bias."""
    return 0.5 * weights @ weights + cost * (np.maximum(1 - sign * (features @ weights + bias), 0) ** 2).sum()


def same_bits(one, other):
    return all((a == b).all() for a, b in zip(arrays(one), arrays(other), strict=True))


def arrays(trained):
    weights, bias = trained
    return weights.indptr, weights.indices, weights.data, bias


# Against other libraries


@pytest.mark.parametrize("train", FORMS)
@pytest.mark.parametrize("loss", ["squared_hinge", "logistic"])
def test_the_optimum_is_scikit_learns(train, loss):
    from sklearn.linear_model import LogisticRegression
    from sklearn.svm import LinearSVC

    problems = random_problems()
    weights, bias = train(problems, EXACT._replace(loss=loss), 0, 2)
    for problem, row in enumerate(problems.positives.toarray()):
        if loss == "logistic":
            other = LogisticRegression(C=2.0, solver="liblinear", tol=1e-8, max_iter=10_000)
        else:
            other = LinearSVC(C=2.0, tol=1e-8, max_iter=100_000)
        other.fit(problems.features, row)
        np.testing.assert_allclose(weights[problem].toarray(), other.coef_, atol=1e-5)
        np.testing.assert_allclose(bias[problem], other.intercept_[0], atol=1e-5)


@pytest.mark.parametrize("train", FORMS)
def test_with_a_fixed_bias_the_optimum_is_that_of_a_general_minimiser(train):
    problems = random_problems()
    weights, bias = train(problems, EXACT._replace(bias=-1.0), 0, 1)
    assert bias.tolist() == [-1, -1, -1]
    for problem, row in enumerate(problems.positives.toarray()):
        arguments = (-1.0, problems.features.astype(np.float64), np.where(row, 1, -1), 2.0)
        found = scipy.optimize.minimize(objective, np.zeros(15), arguments, method="L-BFGS-B", options={"ftol": 1e-14})
        ours = objective(weights[problem].toarray().ravel().astype(np.float64), *arguments)
        assert ours <= found.fun + 1e-6


# The backends against each other


@given(
    seed=st.integers(0, 1000),
    loss=st.sampled_from(["squared_hinge", "logistic"]),
    bias=st.sampled_from([None, -1.0]),
    max_passes=st.integers(1, 5),
    n_groups=st.integers(1, 4),
)
def test_native_agrees_with_numpy_after_any_number_of_passes(seed, loss, bias, max_passes, n_groups):
    problems = random_problems(25, 8, 5, n_groups, seed)
    settings = Linear(loss, 1.0, bias, 0.1, max_passes, 0.0)
    native, numpy = train_linear(problems, settings, seed, 2), oracle.train_linear(problems, settings, seed, 1)
    np.testing.assert_allclose(native[0].toarray(), numpy[0].toarray(), atol=1e-5)
    np.testing.assert_allclose(native[1], numpy[1], atol=1e-5)


def test_threads_change_nothing():
    problems = random_problems(n_problems=300, n_groups=3)
    settings = EXACT._replace(tolerance=0.3)
    assert same_bits(train_linear(problems, settings, 0, 1), train_linear(problems, settings, 0, 3))


# What the arguments mean


def test_the_seed_changes_the_way_but_not_the_end():
    problems = random_problems()
    loose, tight = EXACT._replace(max_passes=2), EXACT
    assert not same_bits(train_linear(problems, loose, 0), train_linear(problems, loose, 1))
    one, other = train_linear(problems, tight, 0)[0], train_linear(problems, tight, 1)[0]
    assert abs(one - other).max() < 1e-5


def test_weights_up_to_the_threshold_are_dropped():
    problems = random_problems()
    whole, bias = train_linear(problems, EXACT, 0)
    pruned, same_bias = train_linear(problems, EXACT._replace(threshold=0.5), 0)
    expected = np.where(np.abs(whole.toarray()) > 0.5, whole.toarray(), 0)
    assert 0 < pruned.nnz < whole.nnz
    assert (pruned.toarray() == expected).all()
    assert (bias == same_bias).all()


def test_a_group_sees_its_own_rows_only():
    """The same as a matrix of these rows alone, up to the order of examples; positives elsewhere do not count."""
    problems = random_problems(n_groups=2)
    for group in range(2):
        rows = problems.groups[group].indices
        own = slice(problems.problems[group], problems.problems[group + 1])
        alone = Problems(
            problems.features[rows],
            sp.csr_matrix(np.ones((1, len(rows)))),
            np.array([0, own.stop - own.start]),
            problems.positives[own][:, rows],
        )
        difference = train_linear(problems, EXACT, 0)[0][own] - train_linear(alone, EXACT, 0)[0]
        assert abs(difference).sum() < 1e-3


@pytest.mark.parametrize("train", FORMS)
def test_without_positives_or_rows_nothing_is_learnt(train):
    features = sp.csr_matrix(np.eye(3, dtype=np.float32))
    groups = sp.csr_matrix(np.array([[1, 1, 1], [0, 0, 0]]))
    problems = Problems(features, groups, np.array([0, 1, 2]), sp.csr_matrix(np.array([[0, 0, 0], [1, 1, 0]])))
    weights, bias = train(problems, EXACT._replace(bias=-1.0), 0, 1)
    assert weights.nnz == 0
    assert bias.tolist() == [-1, -1]


def test_one_positive_by_hand():
    """One example x = 1 with bias −1 and cost 1: ½w² + (1 − (w − 1))² is least at w = 4 / 3."""
    ones = sp.csr_matrix(np.ones((1, 1), dtype=np.float32))
    weights, _ = train_linear(Problems(ones, ones, np.array([0, 1]), ones), EXACT._replace(cost=1.0, bias=-1.0), 0)
    np.testing.assert_allclose(weights.toarray(), [[4 / 3]], rtol=1e-5)


# What is refused


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"groups": sp.csr_matrix((1, 7))}, r"differ in rows; got \(40, 7, 40\)"),
        ({"positives": sp.csr_matrix((3, 7))}, r"differ in rows; got \(40, 40, 7\)"),
        ({"problems": np.array([0, 2])}, "do not cover the problems"),
        ({"problems": np.array([0, 1, 3])}, "do not cover the problems"),
        ({"features": sp.csr_matrix(np.full((40, 1), np.nan, dtype=np.float32))}, "must be finite"),
    ],
)
def test_problems_that_do_not_fit_are_named(change, message):
    with pytest.raises(DataError, match=message):
        train_linear(random_problems()._replace(**change), EXACT, 0)


def plain(weights):
    return SparseWeights(weights.indptr.astype(np.int64), weights.indices, weights.data)


@given(st.integers(0, 12), st.integers(0, 6), st.integers(0, 1000))
def test_listed_logits_are_those_of_the_dense_product(n, m, seed):
    rng = np.random.default_rng(seed)
    documents = sp.random(n, 20, 0.3, "csr", dtype=np.float32, random_state=rng)
    weights = sp.random(9, 20, 0.3, "csr", dtype=np.float32, random_state=rng)
    ids = rng.integers(-1, 9, (n, m))
    dense = documents.toarray().astype(np.float64) @ weights.toarray().T
    expected = np.where(ids < 0, 0, np.take_along_axis(dense, np.maximum(ids, 0), axis=1))
    parts = documents, plain(weights), ids
    for found in (listed_logits(*parts, n_threads=2), oracle.listed_logits(*parts)):
        np.testing.assert_allclose(found, expected, atol=1e-6)


def test_a_column_given_twice_counts_twice():
    documents = sp.csr_matrix((np.ones(2, np.float32), np.array([3, 3]), np.array([0, 2])), shape=(1, 5))
    parts = documents, plain(sp.csr_matrix(np.eye(5, dtype=np.float32))), np.array([[3, 2]])
    for found in (listed_logits(*parts), oracle.listed_logits(*parts)):
        assert found.tolist() == [[2, 0]]


def test_listed_logits_in_parts(monkeypatch):
    rng = np.random.default_rng(0)
    documents, weights = (sp.random(n, 20, 0.3, "csr", dtype=np.float32, random_state=rng) for n in (8, 9))
    ids = rng.integers(-1, 9, (8, 4))
    whole = oracle.listed_logits(documents, plain(weights), ids)
    monkeypatch.setattr("tests.oracles.linear._VALUES_AT_ONCE", 3 * 20)
    assert (oracle.listed_logits(documents, plain(weights), ids) == whole).all()


@pytest.mark.parametrize(
    ("ids", "said"),
    [
        (np.full((3, 2), 9), r"classifier ids are out of range; got \(9, 9\)"),
        (np.full((3, 2), -2), r"classifier ids are out of range; got \(-2, -2\)"),
        (np.zeros((4, 2), dtype=int), "rows and ids do not fit"),
    ],
)
def test_listed_logits_refuses_what_does_not_fit(ids, said):
    weights = plain(sp.csr_matrix((9, 20), dtype=np.float32))
    with pytest.raises(DataError, match=said):
        listed_logits(sp.csr_matrix((3, 20), dtype=np.float32), weights, ids)
