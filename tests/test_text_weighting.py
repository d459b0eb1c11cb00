"""Weights against hand-computed values and dense NumPy."""

import itertools
import math

import numpy as np
import pytest

from xclearn.text.weighting import Weighting, inverse_document_frequency, rows_of, unit_rows

IDF = np.array([1.0, 2.0, 3.0])


def test_idf_by_hand():
    idf = inverse_document_frequency(np.array([4, 1]), 4)
    np.testing.assert_allclose(idf, [1.0, math.log(5 / 2) + 1], rtol=1e-15)


@pytest.mark.parametrize(("sublinear", "expected"), [(False, [10.0, 3.0]), (True, [2 * (1 + math.log(5)), 3.0])])
def test_weights_by_hand(sublinear, expected):
    weights = Weighting(IDF, sublinear, False).weigh(np.array([1, 2]), np.array([5, 1]), np.zeros(2, dtype=np.int64))
    np.testing.assert_array_equal(weights, np.array(expected, dtype=np.float32), strict=True)


def test_normalised_rows_by_hand_with_empty_rows_between():
    rows = rows_of(np.array([0, 0, 2, 2, 3, 3]))
    assert rows.tolist() == [1, 1, 3]
    np.testing.assert_array_equal(unit_rows(np.array([3.0, -4.0, 9.0]), rows), [0.6, -0.8, 1.0])


def test_a_row_of_zeros_stays_zero():
    np.testing.assert_array_equal(unit_rows(np.zeros(2), np.array([0, 0])), [0.0, 0.0])


def test_counts_beyond_the_table_weigh_as_its_last():
    weights = Weighting(IDF, True, False).weigh(np.zeros(3, int), np.array([65_534, 65_535, 10**6]), np.arange(3))
    assert weights[0] < weights[1] == weights[2] == np.float32(1 + math.log(65_535))


def test_a_rows_weights_do_not_depend_on_its_neighbours():
    rng = np.random.default_rng(0)
    lengths = rng.integers(0, 300, size=200)
    ends = np.concatenate([[0], lengths.cumsum()])
    idf = rng.uniform(1, 12, size=5000)
    ids, counts = rng.integers(0, 5000, size=ends[-1]), rng.integers(1, 9, size=ends[-1])
    weighting = Weighting(idf, True, True)
    together = weighting.weigh(ids, counts, rows_of(ends))
    for start, end in itertools.pairwise(ends):
        alone = weighting.weigh(ids[start:end], counts[start:end], np.zeros(end - start, dtype=np.int64))
        np.testing.assert_array_equal(alone, together[start:end], strict=True)
