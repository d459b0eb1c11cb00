"""Thresholds against what brute force counts, and against planted probabilities."""

import numpy as np
import pytest
from handmade import expect_fits

from xclearn.errors import ConfigError, ModelError
from xclearn.inference.operating_points import OperatingPoints


def pairs(n: int = 2_000, each: int = 5) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """A pair's probability is the one it is right with; a tenth of all right labels is no candidate."""
    rng = np.random.default_rng(0)
    rows = np.repeat(np.arange(n), each)
    probabilities = rng.random(len(rows)) ** 2
    right = rng.random(len(rows)) < probabilities
    n_right = np.bincount(rows, weights=right, minlength=n).astype(np.int64) + (np.arange(n) % 2 == 0)
    return rows, probabilities, right, n_right


def points() -> OperatingPoints:
    found = OperatingPoints.of(*pairs())
    assert found is not None
    return found


def test_each_point_is_what_brute_force_counts():
    rows, probabilities, right, n_right = pairs()
    found = points()
    expect_fits(found)
    for place in range(0, len(found.thresholds), 7):
        given = probabilities >= found.thresholds[place]
        assert found.precision[place] == pytest.approx(right[given].mean())
        assert found.recall[place] == pytest.approx(right[given].sum() / n_right.sum())
        assert found.coverage[place] == pytest.approx(len(np.unique(rows[given])) / len(n_right))


def test_a_target_is_met_on_other_pairs():
    point = points().for_precision(0.9)
    rng = np.random.default_rng(1)
    probabilities = rng.random(20_000) ** 2
    right = rng.random(len(probabilities)) < probabilities
    assert right[probabilities >= point.threshold].mean() > 0.88
    assert point.threshold == pytest.approx(0.8, abs=0.1)  # the mean of what lies above it is 0.9


def test_the_best_f1_is_that_of_all_thresholds():
    _rows, probabilities, right, n_right = pairs()
    counted = []
    for threshold in np.arange(101) / 100:
        given = probabilities >= threshold
        counted.append(2 * right[given].sum() / (given.sum() + n_right.sum()))
    assert points().best_f1.threshold == np.arange(101)[int(np.argmax(counted))] / 100


def test_what_cannot_be_reached_is_said_with_the_best_there_is():
    rows, probabilities, right, n_right = pairs()
    weak = OperatingPoints.of(rows, probabilities, right & (rows % 2 == 0), n_right)
    assert weak is not None
    with pytest.raises(ConfigError, match=r"the best is 0\.\d+; got 0\.9"):
        weak.for_precision(0.9)
    for wrong in (0.0, 1.5, -1.0):
        with pytest.raises(ConfigError, match="out of range"):
            weak.for_precision(wrong)


def test_too_few_pairs_have_no_points():
    rows, probabilities, right, n_right = pairs(3, 5)
    assert OperatingPoints.of(rows, probabilities, right, n_right) is None


def test_thresholds_that_fall_are_refused():
    found = points()
    with pytest.raises(ModelError, match="must ascend"):
        expect_fits(OperatingPoints(found.thresholds[::-1].copy(), found.precision, found.recall, found.coverage))
