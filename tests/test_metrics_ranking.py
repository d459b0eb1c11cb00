"""Order, hits and the filter: by hand, and against loops over sets."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from xclearn.data.topk import TopK
from xclearn.errors import ConfigError, DataError
from xclearn.metrics import apply_filter, extra_for_filter, hits, sort_predictions


def truth(rows: list[set[int]], n_labels: int) -> sp.csr_matrix:
    columns = [label for row in rows for label in sorted(row)]
    starts = np.cumsum([0] + [len(row) for row in rows])
    return sp.csr_matrix((np.ones(len(columns), np.float32), columns, starts), shape=(len(rows), n_labels))


def top(ids: list[list[int]]) -> TopK:
    array = np.array(ids, dtype=np.int64)
    scores = np.broadcast_to(np.arange(array.shape[1], 0, -1, dtype=np.float32), array.shape)
    return TopK(array, np.where(array < 0, -np.inf, scores))


def test_equal_scores_go_by_id_and_missing_goes_last():
    ids = np.array([[7, 2, -1, 5, 3]])
    scores = np.array([[0.5, 0.9, 99.0, 0.5, -np.inf]], dtype=np.float32)
    ordered = sort_predictions(TopK(ids, scores))
    assert ordered.ids.tolist() == [[2, 5, 7, 3, -1]]
    assert ordered.scores.tolist() == [[np.float32(0.9), 0.5, 0.5, -np.inf, -np.inf]]
    assert ordered.scores.dtype == np.float32


@given(st.lists(st.tuples(st.sampled_from([0.0, 0.5, 1.0]), st.integers(0, 50)), unique_by=lambda pair: pair[1]))
def test_order_does_not_depend_on_the_order_that_came(pairs):
    def ordered(some):
        scores, ids = np.array(some).reshape(-1, 2).T
        return sort_predictions(TopK(ids.astype(np.int64)[None], scores[None])).ids.tolist()

    expected = [label for _, label in sorted(pairs, key=lambda pair: (-pair[0], pair[1]))]
    assert ordered(pairs) == ordered(pairs[::-1]) == [expected]


def test_hits_by_hand():
    relevance = truth([{0, 3}, set(), {3}], 4)
    ids = np.array([[3, 1, 0], [3, 0, -1], [-1, 3, 2]])
    assert hits(ids, relevance).tolist() == [[True, False, True], [False, False, False], [False, True, False]]


def test_a_missing_id_is_not_the_last_label_of_the_row_before():
    # row · L + (−1) is the key of the previous row's last label, and −1 itself in row 0.
    relevance = truth([{2}, {0}], 3)
    assert not hits(np.array([[-1], [-1]]), relevance).any()


rows_of_labels = st.lists(st.sets(st.integers(0, 6)), min_size=1, max_size=5)


@given(rows_of_labels, st.data())
def test_hits_are_set_membership(rows, data):
    ids = [data.draw(st.lists(st.integers(-1, 6), min_size=3, max_size=3)) for _ in rows]
    expected = [[label in row for label in some] for some, row in zip(ids, rows, strict=True)]
    assert hits(np.array(ids), truth(rows, 7)).tolist() == expected


def test_keys_do_not_overflow_32_bits():
    # 3 rows x 2^31 labels: the int32 indices of a sparse matrix would wrap.
    n_labels = 2**31 - 1
    relevance = sp.csr_matrix((np.ones(2, np.float32), [5, n_labels - 1], [0, 0, 1, 2]), shape=(3, n_labels))
    pairs = np.array([[2, n_labels - 1]], dtype=np.int32)
    ids = np.array([[5], [5], [n_labels - 1]])
    assert hits(ids, relevance).ravel().tolist() == [False, True, True]
    kept, kept_truth = apply_filter(top(ids.tolist()), relevance, pairs)
    assert kept.ids.ravel().tolist() == [5, 5, -1]
    assert kept_truth.indices.tolist() == [5]


@pytest.mark.parametrize("label", [4, -2])
def test_an_id_out_of_range_is_named(label):
    with pytest.raises(DataError, match=rf"^row 1: .*out of range; got {label}; allowed: 0 to 3"):
        hits(np.array([[0], [label]]), truth([{0}, {1}], 4))


# Row 0 predicts 4, 1, 2, 0; its truth is {1, 2}. The pairs (0, 4) and (0, 1) are void.
# both:        predictions 2, 0, –, –   truth {2}
# predictions: predictions 2, 0, –, –   truth {1, 2}: label 1 can now only be missed
# Row 1 has the void pair (1, 3), which is neither predicted nor true: nothing changes.
@pytest.mark.parametrize(("rule", "left"), [("both", [2, 0]), ("predictions", [1, 2, 0])])
def test_filter_by_hand_under_each_rule(rule, left):
    predictions, relevance = top([[4, 1, 2, 0], [0, 1, 2, -1]]), truth([{1, 2}, {0}], 5)
    kept, kept_truth = apply_filter(predictions, relevance, np.array([[0, 4], [1, 3], [0, 1]]), rule)
    assert kept.ids.tolist() == [[2, 0, -1, -1], [0, 1, 2, -1]]
    assert kept.scores.tolist() == [[2, 1, -np.inf, -np.inf], [4, 3, 2, -np.inf]]
    assert kept_truth.indices.tolist() == left
    assert kept_truth.has_canonical_format
    assert predictions.ids.tolist()[0] == [4, 1, 2, 0]  # what came is not changed
    assert relevance.nnz == 3


@given(rows_of_labels, st.data())
def test_filter_is_set_difference(rows, data):
    lists = [data.draw(st.permutations(range(7)))[:4] for _ in rows]
    pairs = data.draw(st.lists(st.tuples(st.integers(0, len(rows) - 1), st.integers(0, 6))))
    array = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    kept, kept_truth = apply_filter(top([list(row) for row in lists]), truth(rows, 7), array)
    void = set(pairs)
    for row, (listed, relevant) in enumerate(zip(lists, rows, strict=True)):
        left = [label for label in listed if (row, label) not in void]
        assert kept.ids[row].tolist() == left + [-1] * (4 - len(left))
        assert set(kept_truth[row].indices) == {label for label in relevant if (row, label) not in void}


def test_extra_predictions_are_the_most_pairs_of_one_row():
    assert extra_for_filter(np.array([[0, 1], [2, 1], [2, 5], [2, 7]])) == 3
    assert extra_for_filter(np.empty((0, 2), dtype=np.int64)) == 0


@pytest.mark.parametrize("pair", [[2, 0], [0, 5], [-1, 0], [0, -1]])
def test_a_filter_pair_out_of_range_is_named(pair):
    with pytest.raises(DataError, match=rf"filter pair is out of range; got \({pair[0]}, {pair[1]}\)"):
        apply_filter(top([[0], [1]]), truth([{0}, {1}], 5), np.array([[0, 0], pair]))


def test_an_unknown_filter_rule_is_named():
    with pytest.raises(ConfigError, match="got 'truth'; allowed: both, predictions"):
        apply_filter(top([[0]]), truth([{0}], 5), np.empty((0, 2), dtype=np.int64), rule="truth")
