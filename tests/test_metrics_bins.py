"""Bins of equal training volume: by hand, and the sums that must hold on any data."""

from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from xclearn.data.topk import TopK
from xclearn.errors import ConfigError, DataError
from xclearn.metrics import Report, evaluate_predictions, mean_by_bin, relevant_scores, volume_bins

COUNTS = np.array([8, 1, 5, 1, 3, 0, 2])  # 20 training pairs


def report_of(ids: list[list[int]], rows: list[set[int]], n_labels: int = 7) -> Report:
    array = np.array(ids, dtype=np.int64)
    columns = [label for row in rows for label in sorted(row)]
    starts = np.cumsum([0] + [len(row) for row in rows])
    relevance = sp.csr_matrix((np.ones(len(columns)), columns, starts), shape=(len(rows), n_labels))
    scores = np.broadcast_to(-np.arange(array.shape[1], dtype=np.float32), array.shape)
    return evaluate_predictions(TopK(array, scores), relevance, np.ones(n_labels), ks=(1, 2), recall_ks=(3,))


def test_two_bins_by_hand():
    # By count: 0 (8), 2 (5) | 4 (3), 6 (2), 1 (1), 3 (1), 5 (0): label 2 starts before the cut at 10.
    # Document 0: predicted 0, 4; true 0, 2, 4. Document 1: predicted 5, 2; true 5.
    report = report_of([[0, 4], [5, 2]], [{0, 2, 4}, {5}])
    head, tail = volume_bins(report, COUNTS, k=2, n_bins=2)
    # Head: hit 0 of the pairs (0, 0), (0, 2). Tail: hits (0, 4), (1, 5) of the same two pairs. k · n = 4.
    assert head == (2, 8, 5, 2, 25, 50)
    assert tail == (5, 3, 0, 2, 50, 100)
    assert report.values["P@2"] == head.contribution + tail.contribution == 75


def test_a_bin_inside_a_very_frequent_label_is_empty():
    # Cuts at 4, 8, 12, 16; labels start at 0 (label 0), 8 (2), 13 (4), 16 (6), 18 (1), 19 (3), 20 (5).
    bins = volume_bins(report_of([[0]], [{0}]), COUNTS, k=1, n_bins=5)
    assert [some.n_labels for some in bins] == [1, 0, 1, 1, 4]
    assert bins[1] == (0, 0, 0, 0, 0, 0)


def test_equally_frequent_labels_are_split_by_id():
    bins = volume_bins(report_of([[1, 2]], [{1, 2}]), np.full(7, 2), k=1, n_bins=7)
    assert [some.contribution for some in bins] == [0, 100, 0, 0, 0, 0, 0]


@given(st.data())
def test_bins_hold_every_label_once_and_add_up(data):
    counts = np.array(data.draw(st.lists(st.integers(0, 30), min_size=7, max_size=7).filter(any)))
    rows = data.draw(st.lists(st.sets(st.integers(0, 6)), min_size=1, max_size=5).filter(any))
    ids = [list(data.draw(st.permutations(range(7))))[:3] for _ in rows]
    n_bins, k = data.draw(st.integers(1, 10)), data.draw(st.integers(1, 2))
    report = report_of(ids, rows)
    bins = volume_bins(report, counts, k=k, n_bins=n_bins)
    assert len(bins) == n_bins
    assert sum(some.n_labels for some in bins) == 7
    assert sum(some.n_relevant for some in bins) == report.relevance.nnz
    assert sum(some.contribution for some in bins) == pytest.approx(report.values[f"P@{k}"], abs=1e-9)
    filled = [some for some in bins if some.n_labels]
    for frequent, rare in pairwise(filled):
        assert frequent.highest_count >= frequent.lowest_count >= rare.highest_count


def test_deciles_of_many_labels_have_equal_volume():
    random = np.random.default_rng(0)
    counts = random.zipf(1.6, 20_000).clip(max=500)
    report = report_of([[0]], [{0}], n_labels=20_000)
    bins = volume_bins(report, counts, k=1, n_bins=10)
    ends = np.cumsum([some.n_labels for some in bins])
    volumes = [part.sum() for part in np.split(np.sort(counts)[::-1], ends[:-1])]
    np.testing.assert_allclose(volumes, counts.sum() / 10, atol=500)  # at most one label over a cut


@pytest.mark.parametrize("settings", [{"k": 0}, {"k": 4}, {"n_bins": 0}])
def test_settings_out_of_range_are_refused(settings):
    with pytest.raises(ConfigError, match=r"bins out of range; .*k from 1 to 3"):
        volume_bins(report_of([[0]], [{0}]), COUNTS, **({"k": 1} | settings))


@pytest.mark.parametrize("counts", [np.ones(6), np.zeros(7)])
def test_counts_that_do_not_fit_are_refused(counts):
    with pytest.raises(DataError, match="label counts do not fit"):
        volume_bins(report_of([[0]], [{0}]), counts, k=1)


def test_means_by_bin_are_of_the_labels_of_equal_volume():
    counts = np.array([1, 4, 1, 1, 1])  # half of the volume is label 1's
    values = np.array([[1.0, 10], [7, 70], [2, 20], [3, 30], [4, 40]])
    assert mean_by_bin(values, counts, n_bins=2) == [[7, 70], [2.5, 25]]


def test_scores_of_relevant_labels_leave_out_labels_that_no_document_has():
    relevance = sp.csr_matrix(np.array([[1, 0, 0, 0, 1, 0, 0], [1, 0, 0, 1, 0, 0, 0]]))
    answers = TopK(np.array([[0, 4], [0, 2]]), np.array([[0.8, 0.4], [0.6, 0.2]], dtype=np.float32))
    report = evaluate_predictions(answers, relevance, np.ones(7), ks=(1, 2), recall_ks=(2,))
    # Bins 0, 2 | 4, 6, 1, 3, 5. Label 0: the mean of 0.8 and 0.6; 2 is nowhere relevant. Label 4: 0.4; 3: not found.
    assert relevant_scores(report, COUNTS, n_bins=2) == pytest.approx([0.7, 0.2])
    assert relevant_scores(report, COUNTS, n_bins=5)[1] == 0  # an empty bin
