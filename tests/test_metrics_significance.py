"""Intervals and the paired test: planted truths, SciPy as second library, and how often they are right."""

import time

import numpy as np
import pytest
import scipy.sparse as sp
from scipy import stats

from xclearn.data.topk import TopK
from xclearn.errors import ConfigError, DataError
from xclearn.metrics import Report, evaluate_predictions, intervals, paired_test


def one_label_each(
    right: np.ndarray, weight_of_label: np.ndarray | None = None, labels: np.ndarray | None = None
) -> Report:
    """A model that names the one right label of document i where `right[i]`, and nothing otherwise."""
    labels = np.zeros(len(right), dtype=np.int64) if labels is None else labels
    weights = np.ones(3) if weight_of_label is None else weight_of_label
    ids = np.where(right, labels, -1)[:, None]
    relevance = sp.csr_matrix(
        (np.ones(len(right)), labels, np.arange(len(right) + 1)), shape=(len(right), len(weights))
    )
    return evaluate_predictions(TopK(ids, np.ones(ids.shape, np.float32)), relevance, weights, ks=(1,), recall_ks=(10,))


def test_interval_of_a_share_is_the_binomial_one():
    report = one_label_each(np.arange(2000) % 10 < 3)  # P@1 = 30 %
    bounds = intervals(report, repeats=4000)
    half = 100 * 1.96 * np.sqrt(0.3 * 0.7 / 2000)  # 2.008
    assert bounds["P@1_low"] == pytest.approx(30 - half, abs=0.15)
    assert bounds["P@1_high"] == pytest.approx(30 + half, abs=0.15)


def test_every_metric_but_coverage_has_an_interval_around_its_value():
    random = np.random.default_rng(1)
    report = one_label_each(random.random(300) < 0.5, np.array([1.0, 5, 20]), random.integers(0, 3, 300))
    bounds = intervals(report)
    assert set(bounds) == {
        f"{name}_{end}" for name in ("P@1", "nDCG@1", "PSP@1", "PSnDCG@1", "R@10") for end in ("low", "high")
    }
    for name in report.terms:
        assert bounds[f"{name}_low"] < report.values[name] < bounds[f"{name}_high"]


def test_interval_of_a_ratio_is_that_of_scipy():
    random = np.random.default_rng(2)
    report = one_label_each(random.random(400) < 0.5, np.array([1.0, 5, 20]), random.integers(0, 3, 400))

    def ratio(gained, attainable, axis):
        return 100 * gained.sum(axis) / attainable.sum(axis)

    theirs = stats.bootstrap(
        tuple(report.terms["PSP@1"]),
        ratio,
        paired=True,
        n_resamples=5000,
        method="percentile",
        rng=0,
        confidence_level=0.9,
    ).confidence_interval
    ours = intervals(report, repeats=5000, level=0.9)
    width = theirs.high - theirs.low
    assert ours["PSP@1_low"] == pytest.approx(theirs.low, abs=0.06 * width)
    assert ours["PSP@1_high"] == pytest.approx(theirs.high, abs=0.06 * width)


def test_intervals_hold_the_true_ratio_about_as_often_as_they_claim():
    # Labels 0, 1, 2 with weights 1, 5, 20 are equally likely and found with 0.8, 0.5, 0.2:
    # true PSP@1 = (0.8·1 + 0.5·5 + 0.2·20) / (1 + 5 + 20) = 7.3 / 26.
    random, true, held = np.random.default_rng(3), 100 * 7.3 / 26, 0
    for _ in range(200):
        labels = random.integers(0, 3, 200)
        right = random.random(200) < np.array([0.8, 0.5, 0.2])[labels]
        bounds = intervals(one_label_each(right, np.array([1.0, 5, 20]), labels), repeats=300)
        held += bounds["PSP@1_low"] <= true <= bounds["PSP@1_high"]
    assert 178 <= held <= 199  # 95 % of 200 is 190, its standard deviation 3


def test_documents_without_labels_may_fill_a_resample():
    ids, relevance = np.array([[0], [0]]), sp.csr_matrix((np.ones(1), [0], [0, 1, 1]), shape=(2, 1))
    report = evaluate_predictions(TopK(ids, np.ones((2, 1), np.float32)), relevance, np.ones(1))
    bounds = intervals(report)
    assert (bounds["PSP@1_low"], bounds["PSP@1_high"]) == (0, 100)


def test_identical_models_do_not_differ():
    report = one_label_each(np.arange(100) % 3 == 0)
    assert paired_test(report, report, "P@1") == (0, 0, 0, 1)


def test_a_planted_difference_is_found_in_both_directions():
    random = np.random.default_rng(4)
    weak = random.random(1000) < 0.5
    strong = weak | (random.random(1000) < 0.1)  # right wherever weak is, and in about 5 % more
    planted = 100 * (strong.mean() - weak.mean())
    result = paired_test(one_label_each(strong), one_label_each(weak), "P@1")
    assert result.difference == pytest.approx(planted)
    assert 0 < result.low < planted < result.high
    assert result.p_value < 0.001
    mirrored = paired_test(one_label_each(weak), one_label_each(strong), "P@1")
    assert mirrored.difference == pytest.approx(-planted)
    assert mirrored.high < 0
    assert mirrored.p_value < 0.001


def test_p_value_by_hand():
    # Better in each of 3 documents: of the 8 ways to swap, 2 give a difference as large, +3 and −3.
    ours = paired_test(one_label_each(np.ones(3, bool)), one_label_each(np.zeros(3, bool)), "P@1").p_value
    assert ours == pytest.approx(2 / 8, abs=0.02)


def test_p_value_is_that_of_scipy():
    random = np.random.default_rng(5)
    first, second = random.random((2, 14)) < np.array([[0.8], [0.5]])
    theirs = stats.permutation_test(
        (first.astype(float), second.astype(float)),
        lambda a, b, axis: (a - b).mean(axis),
        permutation_type="samples",
        n_resamples=np.inf,
    ).pvalue
    assert 0.01 < theirs < 0.9
    assert paired_test(one_label_each(first), one_label_each(second), "P@1").p_value == pytest.approx(theirs, abs=0.02)


def test_equally_good_models_are_rarely_called_different():
    random, called = np.random.default_rng(6), 0
    for _ in range(200):
        first, second = random.random((2, 100)) < 0.5
        called += paired_test(one_label_each(first), one_label_each(second), "P@1", repeats=200).p_value < 0.05
    assert called <= 19  # 5 % of 200 is 10, its standard deviation 3


def test_the_seed_decides():
    random = np.random.default_rng(7)
    first, second = (one_label_each(random.random(200) < share) for share in (0.5, 0.45))
    assert intervals(first, seed=1) == intervals(first, seed=1) != intervals(first, seed=2)
    same = [paired_test(first, second, "P@1", seed=seed, repeats=500) for seed in (1, 1, 2)]
    assert same[0] == same[1] != same[2]


@pytest.mark.parametrize("metric", ["PSP@2", "C@10"])
def test_an_unknown_metric_is_named_with_what_there_is(metric):
    report = one_label_each(np.ones(3, bool))
    with pytest.raises(ConfigError, match=rf"no such metric to test; got '{metric}'. (Did you mean|Known)"):
        paired_test(report, report, metric)


@pytest.mark.parametrize("labels", [np.array([0, 1, 2]), np.array([0, 0])])
def test_reports_of_different_truths_are_not_compared(labels):
    other = one_label_each(np.ones(len(labels), bool), labels=labels)
    with pytest.raises(DataError, match="differ in documents"):
        paired_test(one_label_each(np.ones(3, bool)), other, "P@1")


@pytest.mark.parametrize("settings_", [{"repeats": 0}, {"level": 0.0}, {"level": 95}])
def test_settings_out_of_range_are_refused(settings_):
    with pytest.raises(ConfigError, match="interval settings"):
        intervals(one_label_each(np.ones(3, bool)), **settings_)


def test_intervals_of_ten_thousand_documents_take_less_than_two_seconds():
    report = one_label_each(np.arange(10_000) % 2 == 0)
    start = time.perf_counter()
    intervals(report)
    assert time.perf_counter() - start < 2
