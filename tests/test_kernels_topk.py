"""Top-k of sparse rows: against sorting by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xclearn import kernels
from xclearn.errors import ConfigError, DataError

# Few distinct scores, so that ties are the rule.
ROWS = st.lists(st.dictionaries(st.integers(0, 40), st.sampled_from([-1.5, 0.0, 0.25, 3.0, -np.inf]), max_size=12))


def csr(rows):
    indptr = np.cumsum([0, *map(len, rows)])
    indices = np.array([column for row in rows for column in row], dtype=np.int32)
    data = np.array([score for row in rows for score in row.values()], dtype=np.float32)
    return indptr, indices, data


@given(rows=ROWS, k=st.integers(1, 15), n_threads=st.integers(1, 3))
def test_equals_sorting_each_row(rows, k, n_threads):
    ids, scores = kernels.topk_csr(*csr(rows), k, n_threads)
    assert (ids.dtype, scores.dtype) == (np.int64, np.float32)
    assert ids.shape == scores.shape == (len(rows), k)
    for row, row_ids, row_scores in zip(rows, ids, scores, strict=True):
        best = sorted(row.items(), key=lambda entry: (-entry[1], entry[0]))[:k]
        missing = k - len(best)
        assert row_ids.tolist() == [column for column, _ in best] + [-1] * missing
        assert row_scores.tolist() == [score for _, score in best] + [-np.inf] * missing


def test_more_rows_than_one_task():
    rng = np.random.default_rng(0)
    scores = rng.random((3000, 20), dtype=np.float32)
    indptr, indices = np.arange(3001) * 20, np.tile(np.arange(20, dtype=np.int32), 3000)
    ids, best = kernels.topk_csr(indptr, indices, scores.ravel(), k=3, n_threads=2)
    np.testing.assert_array_equal(ids, np.argsort(-scores, axis=1)[:, :3])
    np.testing.assert_array_equal(best, -np.sort(-scores, axis=1)[:, :3])


def test_k_must_be_positive():
    with pytest.raises(ConfigError, match="k must be positive; got 0"):
        kernels.topk_csr(*csr([{1: 0.5}]), k=0)


@pytest.mark.parametrize(
    ("indptr", "indices", "data", "message"),
    [
        ([0, 1], [0], np.array([np.nan], np.float32), "NaN"),
        ([0, 1], [0], np.array([1.0]), "data has the wrong dimensions or type; got '1 of float64'"),
        ([0, 1], [[0]], np.ones(1, np.float32), "indices has the wrong dimensions or type"),
        ([0.0, 1.0], [0], np.ones(1, np.float32), "indptr has the wrong dimensions or type"),
        ([0, 1], [0, 1], np.ones(1, np.float32), "differ in length"),
        ([0, 2], [0], np.ones(1, np.float32), "indptr must be non-decreasing"),
        ([1, 1], [0], np.ones(1, np.float32), "indptr must be non-decreasing"),
        ([0, 2, 1], [0], np.ones(1, np.float32), "indptr must be non-decreasing"),
        ([0, 1], [-1], np.ones(1, np.float32), "column out of range"),
    ],
)
def test_broken_matrix_is_named(indptr, indices, data, message):
    with pytest.raises(DataError, match=message):
        kernels.topk_csr(np.array(indptr), np.array(indices), data, k=1)
