"""Nearest rows and the votes of their labels: native code against SciPy, and both against a search written out."""

import numpy as np
import pytest
import scipy.sparse as sp
from tests.oracles import memory as oracle

from xclearn.errors import ConfigError, DataError
from xclearn.kernels.memory import DocumentLabels, RowIndex

V, L = 30, 12


def random_rows(seed, n, density=0.15, width=V):
    """Some rows empty, one column in every third row, some values negative."""
    rng = np.random.default_rng(seed)
    rows = sp.random(n, width, density, "lil", np.float32, rng)
    rows[::3, 0] = 0.5
    rows[:: max(2, n // 5)] = 0
    rows = sp.csr_matrix(rows)
    rows.data[::6] *= -1
    return rows


def by_hand(rows, query, k):
    products = [(-float(product), i) for i, product in enumerate(rows.toarray() @ query) if product > 0]
    return [(i, -product) for product, i in sorted(products)[:k]]


@pytest.mark.parametrize("n", [1, 50, 9000])
@pytest.mark.parametrize("k", [1, 7, 10_000])
def test_nearest_rows_are_those_of_a_search_by_hand(n, k):
    rows, queries = random_rows(1, n), random_rows(2, 6)
    ids, products = RowIndex.of(rows).nearest(queries, k)
    assert ids.shape == products.shape == (6, k)
    for query, own, found in zip(queries.toarray(), ids, products, strict=True):
        expected = by_hand(rows, query, k)
        assert (own[len(expected) :] == -1).all()
        assert np.isneginf(found[len(expected) :]).all()
        # rows whose products differ in the last bit may change places
        np.testing.assert_allclose(found[: len(expected)], [product for _, product in expected], rtol=1e-5)
        assert len({*own.tolist()} & {i for i, _ in expected}) >= 0.99 * len(expected)


@pytest.mark.parametrize("n", [1, 50, 9000])
def test_both_forms_give_the_same_bits_at_any_number_of_threads(n):
    index, queries = RowIndex.of(random_rows(3, n)), random_rows(4, 40)
    expected = oracle.nearest(index, queries, 20)
    for n_threads in (1, 2, 5):
        for found, own in zip(index.nearest(queries, 20, n_threads), expected, strict=True):
            np.testing.assert_array_equal(found, own)
    alone = [index.nearest(queries[row], 20, 1) for row in range(40)]
    np.testing.assert_array_equal(np.concatenate([ids for ids, _ in alone]), expected[0])


def test_equal_rows_come_in_their_order():
    rows = sp.csr_matrix(np.ones((5, V), np.float32))
    ids, _ = RowIndex.of(rows).nearest(rows[:1], 3)
    assert ids.tolist() == [[0, 1, 2]]


def test_votes_by_hand():
    relevance = sp.csr_matrix(np.array([[1, 1, 0], [0, 1, 0], [0, 0, 0]], np.float32))
    ids, near = np.array([[1, 0, -1], [2, -1, -1], [-1, -1, -1]]), np.array([[0.6, 0.2, -np.inf], [1, 0, 0], [0, 0, 0]])
    starts, labels, shares, nearest = DocumentLabels(relevance).votes(ids, near, 2.0)
    assert starts.tolist() == [0, 2, 2, 2]
    assert labels.tolist() == [0, 1]
    np.testing.assert_allclose(shares, [0.1, 1.0], rtol=1e-6)  # of 0.36 + 0.04
    np.testing.assert_allclose(nearest, [0.2, 0.6], rtol=1e-6)


@pytest.mark.parametrize("power", [0.5, 1.0, 3.0])
def test_votes_are_as_in_numpy(power):
    relevance = abs(random_rows(5, 200, width=L))
    labels = DocumentLabels(relevance)
    ids, near = RowIndex.of(random_rows(6, 200)).nearest(random_rows(7, 50), 15)
    expected = oracle.votes(relevance, ids, near, power)
    assert len(expected.labels) > 100
    for n_threads in (1, 3):
        for found, own in zip(labels.votes(ids, near, power, n_threads), expected, strict=True):
            np.testing.assert_allclose(found, own, rtol=1e-12)


def test_what_does_not_fit_is_refused():
    index = RowIndex.of(random_rows(8, 5))
    with pytest.raises(ConfigError, match="k must be positive"):
        index.nearest(random_rows(9, 2), 0)
    with pytest.raises(DataError, match="differ in features"):
        index.nearest(sp.csr_matrix((1, V + 1), dtype=np.float32), 1)


def test_arrays_that_point_outside_are_refused():
    from xclearn.kernels import _native

    one = np.ones(1, np.float32)
    for starts, rows in (([0, 2], [0]), ([0, 1], [3]), ([0, 1], [-1]), ([1, 1], [0]), ([], [0])):
        with pytest.raises(ValueError, match=r"postings|fit"):
            _native.RowIndex(np.array(starts, np.int64), np.array(rows, np.int32), one, 3)
    index = _native.RowIndex(np.array([0, 1]), np.array([2], np.int32), one, 3)
    for indptr, columns in (([0, 2], [0]), ([0, 1], [1]), ([0, 1], [-1]), ([1, 1], [0]), ([], [0])):
        with pytest.raises(ValueError, match=r"postings|matrix"):
            index.nearest(np.array(indptr, np.int64), np.array(columns, np.int32), one, 1, 1)
    with pytest.raises(ValueError, match="postings"):
        _native.DocumentLabels(np.array([0, 1]), np.array([3], np.int32), 3)
    labels = _native.DocumentLabels(np.array([0, 1]), np.array([2], np.int32), 3)
    for wanted in ([[1]], [[-2]], [[0, 0]]):
        with pytest.raises(ValueError, match="no such documents"):
            labels.votes(np.array(wanted), np.ones((1, 1), np.float32), 1.0, 1)
