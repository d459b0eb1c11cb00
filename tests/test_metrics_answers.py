"""What is read off a report beside its figures, by hand and against plain Python."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from xclearn.data.topk import TopK
from xclearn.errors import ConfigError
from xclearn.metrics import (
    Report,
    disagreement,
    evaluate_predictions,
    label_figures,
    reliability,
    surest_mistakes,
)

RELEVANT = [[0, 1], [2], [0], [3]]


def report_of(ids: list[list[int]], scores: list[list[float]]) -> Report:
    rows = np.repeat(np.arange(len(RELEVANT)), [len(labels) for labels in RELEVANT])
    relevance = sp.csr_matrix(
        (np.ones(len(rows), np.float32), (rows, np.concatenate(RELEVANT))), shape=(len(RELEVANT), 5)
    )
    return evaluate_predictions(TopK(np.array(ids), np.array(scores)), relevance, np.ones(5))


FIRST = report_of([[0, 1], [0, 2], [4, -1], [1, 3]], [[0.9, 0.8], [0.7, 0.6], [0.95, -np.inf], [0.2, 0.1]])
SECOND = report_of([[0, 2], [2, 0], [0, 4], [1, 2]], [[0.9, 0.8], [0.7, 0.6], [0.9, 0.1], [0.2, 0.1]])


def test_reliability_by_hand() -> None:
    """Two groups. Above a half: .9 .8 .7 .6 .95, of which .9, .8 and .6 are right; below: .2, .1, of which .1 is."""
    found = reliability(FIRST, k=2, n_groups=2)
    assert found.score == pytest.approx([0.15, 0.79])
    assert found.right == pytest.approx([0.5, 0.6])
    assert found.n_given.tolist() == [2, 5]
    assert found.error == pytest.approx(100 * (2 * 0.35 + 5 * 0.19) / 7)


def test_labels_by_hand() -> None:
    found = label_figures(FIRST, k=2)
    assert found.n_relevant.tolist() == [2, 1, 1, 1, 0]
    assert found.n_given.tolist() == [2, 2, 1, 1, 1]
    assert found.n_right.tolist() == [1, 1, 1, 1, 0]


def test_the_surest_mistake_of_a_document_comes_once_and_the_surest_first() -> None:
    assert surest_mistakes(FIRST, 9) == [(2, 0), (1, 0), (3, 0)]
    assert surest_mistakes(FIRST, 1) == [(2, 0)]


def test_where_two_models_differ() -> None:
    found = disagreement(FIRST, SECOND, k=2)
    assert (found.both, found.first_only, found.second_only, found.neither) == (1, 0, 2, 1)
    assert found.first_better.tolist() == [0, 3]
    assert found.second_better.tolist() == [2]


@given(st.lists(st.lists(st.floats(0, 1), min_size=3, max_size=3), min_size=4, max_size=4), st.integers(1, 7))
def test_reliability_is_what_a_walk_over_all_labels_gives(scores: list[list[float]], n_groups: int) -> None:
    report = report_of([[0, 1, 2]] * 4, scores)
    given_, error = 0, 0.0
    for group in range(n_groups):
        inside = [
            (score, label in RELEVANT[row])
            for row, own in enumerate(scores)
            for label, score in enumerate(own)
            if min(int(score * n_groups), n_groups - 1) == group
        ]
        given_ += len(inside)
        if inside:
            error += abs(sum(score for score, _ in inside) - sum(right for _, right in inside))
    found = reliability(report, k=3, n_groups=n_groups)
    assert found.n_given.sum() == given_
    assert found.error == pytest.approx(100 * error / given_, abs=1e-6)


def test_a_depth_that_is_not_there_is_refused() -> None:
    with pytest.raises(ConfigError, match="k: out of range"):
        reliability(FIRST, k=0)
