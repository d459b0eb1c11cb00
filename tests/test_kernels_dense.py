"""Top-k of dense rows against a full stable sort."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xclearn.kernels.dense import topk_dense


def by_sorting(scores: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Score descending; the stable sort leaves equal scores in the order of their columns."""
    ids = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return ids, np.take_along_axis(scores, ids, axis=1)


@given(
    n=st.integers(1, 4),
    n_columns=st.integers(1, 400),  # below, at and beyond several groups of 64
    k=st.integers(1, 400),
    levels=st.sampled_from([1, 2, 5, 1000]),  # few levels: many ties
    seed=st.integers(0, 2**32 - 1),
)
def test_equals_a_full_sort_with_ties_by_column(n, n_columns, k, levels, seed):
    scores = np.random.default_rng(seed).integers(levels, size=(n, n_columns)).astype(np.float32)
    scores[0, :: max(1, seed % 7)] = -np.inf  # as excluded labels are
    ids, best = topk_dense(scores, min(k, n_columns))
    expected = by_sorting(scores, min(k, n_columns))
    assert (ids == expected[0]).all()
    assert (best == expected[1]).all()


@pytest.mark.parametrize("n_columns", [63, 64, 65, 128, 640, 6401])
@pytest.mark.parametrize("k", [1, 5, 63])
def test_group_borders(n_columns, k):
    scores = np.random.default_rng(n_columns).standard_normal((3, n_columns)).astype(np.float32)
    scores[:, -1] = 9  # the best is in the last column, within or after the last whole group
    ids, best = topk_dense(scores, k)
    expected = by_sorting(scores, k)
    assert (ids == expected[0]).all()
    assert (best == expected[1]).all()
    assert (ids[:, 0] == n_columns - 1).all()


def test_all_the_best_in_one_group():
    """More than k entries of one group beat the maxima of all others."""
    scores = np.zeros((1, 6400), dtype=np.float32)
    scores[0, 128:140] = np.arange(12, 0, -1)
    assert topk_dense(scores, 10)[0].tolist() == [list(range(128, 138))]


def test_no_rows():
    ids, best = topk_dense(np.empty((0, 100), dtype=np.float32), 3)
    assert ids.shape == best.shape == (0, 3)


def test_leaves_the_scores():
    scores = np.random.default_rng(0).random((2, 500))
    before = scores.copy()
    topk_dense(scores, 7)
    assert (scores == before).all()
