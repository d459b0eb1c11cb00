"""Metrics: by hand, against plain loops on random data, and against napkinxc."""

import subprocess
import sys
import time
import tracemalloc
from math import log2

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from napkinxc import metrics as napkinxc

from xclearn.data.topk import TopK
from xclearn.errors import ConfigError, DataError
from xclearn.metrics import evaluate_predictions, extra_for_filter

WEIGHTS = np.array([1.0, 2.0, 4.0, 3.0])


def truth(rows: list[set[int]], n_labels: int) -> sp.csr_matrix:
    columns = [label for row in rows for label in sorted(row)]
    starts = np.cumsum([0] + [len(row) for row in rows])
    return sp.csr_matrix((np.ones(len(columns), np.float32), columns, starts), shape=(len(rows), n_labels))


def top(ids: list[list[int]]) -> TopK:
    array = np.array(ids, dtype=np.int64)
    scores = np.broadcast_to(np.arange(array.shape[1], 0, -1, dtype=np.float32), array.shape)
    return TopK(array, scores)


def test_by_hand():
    # document   truth     predicted      hit       weights of labels 0..3: 1, 2, 4, 3
    # 0          {0, 2}    2, 1, 0        1 0 1     heaviest first: 4, 1
    # 1          {1}       0, 1, 3        0 1 0     2
    # 2          {}        3, 0, 1        0 0 0     –
    report = evaluate_predictions(
        top([[2, 1, 0], [0, 1, 3], [3, 0, 1]]), truth([{0, 2}, {1}, set()], 4), WEIGHTS, ks=(1, 3), recall_ks=(2, 3)
    )
    second = 1 / log2(3)  # discounts of ranks 1, 2, 3: 1, 0.63093, 0.5
    expected = {
        "P@1": 1 / 3,
        "P@3": (2 + 1 + 0) / 9,
        "nDCG@1": 1 / 3,
        "nDCG@3": ((1 + 0.5) / (1 + second) + second / 1 + 0) / 3,
        "PSP@1": (4 + 0) / (4 + 2),
        "PSP@3": (4 + 1 + 2) / (4 + 1 + 2),
        "PSnDCG@1": 4 / (4 + 2),
        "PSnDCG@3": ((4 + 1 * 0.5) / (1 + second) + 2 * second) / ((4 + 1 * second) / (1 + second) + 2),
        "R@2": (1 / 2 + 1 / 1 + 0) / 3,
        "R@3": (2 / 2 + 1 / 1 + 0) / 3,
        "C@2": 2 / 3,  # labels 2 and 1 of 0, 1, 2
        "C@3": 3 / 3,
    }
    assert list(report.values) == list(expected)
    assert report.values == pytest.approx({name: 100 * value for name, value in expected.items()}, abs=1e-9)
    np.testing.assert_allclose(report.terms["P@3"].gained, [2 / 3, 1 / 3, 0])
    np.testing.assert_allclose(report.terms["PSP@1"].attainable, [4, 2, 0])


def test_propensity_scores_are_a_ratio_of_means_not_a_mean_of_ratios():
    # Document 0 gains 4 of 4, document 1 gains 0 of 1: 4/5, where the mean of ratios would be 1/2.
    report = evaluate_predictions(top([[2], [3]]), truth([{2}, {0}], 4), WEIGHTS, ks=(1,), recall_ks=())
    assert report.values["PSP@1"] == pytest.approx(80)


# One document, truth {1, 2}, predictions 1, 0, 2, and the pair (0, 1) void.
# both: 0, 2 against {2}: P@1 0, P@2 1/2, R@2 1. predictions: 0, 2 against {1, 2}: P@1 0, P@2 1/2, R@2 1/2.
@pytest.mark.parametrize(("rule", "recall", "psp"), [("both", 100, 100), ("predictions", 50, 100 * 4 / 6)])
def test_filter_by_hand_under_each_rule(rule, recall, psp):
    report = evaluate_predictions(
        top([[1, 0, 2]]),
        truth([{1, 2}], 4),
        WEIGHTS,
        filter_pairs=np.array([[0, 1]]),
        filter_rule=rule,
        ks=(1, 2),
        recall_ks=(2,),
    )
    values = report.values
    assert (values["P@1"], values["P@2"]) == (0, 50)
    assert (values["R@2"], values["PSP@2"]) == (pytest.approx(recall), pytest.approx(psp))


def test_a_list_shorter_than_k_is_divided_by_k():
    report = evaluate_predictions(top([[0]]), truth([{0}], 4), WEIGHTS, ks=(5,), recall_ks=(10,))
    assert report.values["P@5"] == pytest.approx(20)
    assert report.values["R@10"] == 100
    assert report.hit.shape == (1, 10)


def test_no_predictions_at_all_score_nothing():
    empty = TopK(np.empty((2, 0), dtype=np.int64), np.empty((2, 0), dtype=np.float32))
    report = evaluate_predictions(empty, truth([{0}, {1}], 4), WEIGHTS)
    assert set(report.values.values()) == {0.0}


def test_the_order_is_by_score_then_id_whatever_order_comes():
    predictions = TopK(np.array([[3, 2, 1]]), np.array([[0.1, 0.5, 0.5]], dtype=np.float32))
    report = evaluate_predictions(predictions, truth([{1}], 4), WEIGHTS)
    assert report.ids[0, :4].tolist() == [1, 2, 3, -1]
    np.testing.assert_array_equal(report.scores[0, :4], np.float32([0.5, 0.5, 0.1, -np.inf]))
    assert report.scores.shape == report.ids.shape
    assert report.values["P@1"] == 100


def reference(lists, rows, weights, ks, recall_ks):
    """Every metric by loops over ranked lists and sets, as fractions."""

    def discounted(values):
        return sum(value / log2(rank + 2) for rank, value in enumerate(values))

    def mean(values):
        return sum(values) / len(rows)

    both = list(zip(lists, rows, strict=True))
    out = {}
    for k in ks:
        found = [[label in row for label in some[:k]] for some, row in both]
        weighted = [[weights[label] * (label in row) for label in some[:k]] for some, row in both]
        best = [sorted((weights[label] for label in row), reverse=True)[:k] for row in rows]
        ideal = [discounted([1] * min(k, len(row))) or 1 for row in rows]
        out[f"P@{k}"] = mean([sum(row) / k for row in found])
        out[f"nDCG@{k}"] = mean([discounted(row) / by for row, by in zip(found, ideal, strict=True)])
        out[f"PSP@{k}"] = mean([sum(row) / k for row in weighted]) / mean([sum(row) / k for row in best])
        out[f"PSnDCG@{k}"] = mean([discounted(row) / by for row, by in zip(weighted, ideal, strict=True)]) / mean(
            [discounted(row) / by for row, by in zip(best, ideal, strict=True)]
        )
    for k in recall_ks:
        out[f"R@{k}"] = mean([len(set(some[:k]) & row) / max(len(row), 1) for some, row in both])
        out[f"C@{k}"] = len({label for some, row in both for label in set(some[:k]) & row}) / len(set().union(*rows))
    return {name: 100 * value for name, value in out.items()}


@st.composite
def evaluations(draw):
    n_labels = draw(st.integers(1, 8))
    labels = st.integers(0, n_labels - 1)
    rows = draw(st.lists(st.sets(labels), min_size=1, max_size=6))
    width = draw(st.integers(0, n_labels))
    lists = [draw(st.lists(labels, max_size=width, unique=True)) for _ in rows]
    scores = [[draw(st.sampled_from([0.25, 0.5, 0.75])) for _ in some] for some in lists]
    pairs = draw(st.lists(st.tuples(st.integers(0, len(rows) - 1), labels), max_size=6))
    weights = draw(st.lists(st.floats(1, 50), min_size=n_labels, max_size=n_labels))
    return rows, lists, scores, width, pairs, weights


@settings(max_examples=300)
@given(evaluations(), st.sampled_from(["both", "predictions"]))
def test_same_as_plain_loops(evaluation, rule):
    rows, lists, scores, width, pairs, weights = evaluation
    ids = np.array([some + [-1] * (width - len(some)) for some in lists], dtype=np.int64)
    padded = np.array([some + [0.0] * (width - len(some)) for some in scores], dtype=np.float32)
    arguments = TopK(ids, padded), truth(rows, len(weights)), np.array(weights)
    settings_ = {"filter_pairs": np.array(pairs, dtype=np.int64).reshape(-1, 2), "filter_rule": rule}

    ranked = [[label for _, label in sorted((-s, i) for s, i in zip(score, some, strict=True))]
              for score, some in zip(scores, lists, strict=True)]  # fmt: skip
    ranked = [[label for label in some if (row, label) not in pairs] for row, some in enumerate(ranked)]
    if rule == "both":
        rows = [{label for label in some if (row, label) not in pairs} for row, some in enumerate(rows)]
    if not any(rows):
        with pytest.raises(DataError, match="no document has a relevant label"):
            evaluate_predictions(*arguments, **settings_)
        return
    report = evaluate_predictions(*arguments, **settings_, ks=(1, 3, 5), recall_ks=(2, 10))
    assert report.values == pytest.approx(reference(ranked, rows, weights, (1, 3, 5), (2, 10)), abs=1e-9)


def ranked_lists(n_documents: int, n_labels: int, seed: int) -> tuple[TopK, sp.csr_matrix]:
    """Random lists of up to 12 labels with −1 behind them, and a truth with label-free documents."""
    random = np.random.default_rng(seed)
    ids = random.random((n_documents, n_labels)).argsort(axis=1)[:, :12]
    ids[np.arange(12) >= random.integers(0, 13, n_documents)[:, None]] = -1
    relevance = sp.random(n_documents, n_labels, 0.1, format="csr", dtype=np.float32, rng=random)
    relevance.data[:] = 1
    relevance.sum_duplicates()
    return top(ids.tolist()), relevance


def test_same_as_napkinxc():
    # napkinxc agrees in every definition used here: k stays the divisor of a short list, documents without labels count
    # as 0 (its zero_division), PSP and PSnDCG are ratios of sums, coverage is by distinct true labels. It gives
    # fractions at 1..k, takes ranked lists instead of −1, and counts a label predicted twice twice: we refuse that.
    predictions, relevance = ranked_lists(300, 40, seed=3)
    weights = 1 + np.random.default_rng(4).random(40) * 20
    assert (np.diff(relevance.indptr) == 0).any()
    assert (predictions.ids[:, 0] == -1).any()
    lists = [[label for label in row if label >= 0] for row in predictions.ids.tolist()]
    values = evaluate_predictions(predictions, relevance, weights, ks=(1, 3, 5, 10), recall_ks=(1, 10)).values
    theirs = {
        "P": napkinxc.precision_at_k(relevance, lists, k=10),
        "nDCG": napkinxc.ndcg_at_k(relevance, lists, k=10),
        "PSP": napkinxc.psprecision_at_k(relevance, lists, weights, k=10),
        "PSnDCG": napkinxc.psndcg_at_k(relevance, lists, weights, k=10),
        "R": napkinxc.recall_at_k(relevance, lists, k=10),
        "C": napkinxc.coverage_at_k(relevance, lists, k=10),
    }
    assert len(values) == 4 * 4 + 2 * 2
    for name, value in values.items():
        metric, k = name.split("@")
        assert value == pytest.approx(100 * theirs[metric][int(k) - 1], abs=1e-9), name


@pytest.mark.parametrize(
    ("predictions", "message"),
    [
        (top([[0, 1, 0], [1, 2, 3]]), r"^row 0: a label is predicted twice for the same document; got 0"),
        (top([[0, 1], [2, 4]]), r"^row 1: a predicted label id is out of range; got 4"),
        (top([[0]]), r"predictions do not fit the truth; .*allowed: .*\(2, k\)"),
        (TopK(np.zeros((2, 1)), np.zeros((2, 1))), "integer ids"),
        (TopK(np.zeros((2, 1), int), np.zeros((2, 2))), "predictions do not fit the truth"),
        (TopK(np.zeros((2, 1), int), np.array([[0], [np.nan]])), r"^row 1: a predicted score is not a number"),
    ],
)
def test_wrong_predictions_are_named(predictions, message):
    with pytest.raises(DataError, match=message):
        evaluate_predictions(predictions, truth([{0}, {1}], 4), WEIGHTS)


def test_missing_ids_may_repeat():
    report = evaluate_predictions(top([[0, -1, -1]]), truth([{0}], 4), WEIGHTS)
    assert report.values["P@1"] == 100


@pytest.mark.parametrize("weights", [np.ones(3), np.array([1, 1, 1, 0.0]), np.array([1, 1, 1, np.nan])])
def test_wrong_propensities_are_named(weights):
    with pytest.raises(DataError, match="inverse propensities do not fit the labels"):
        evaluate_predictions(top([[0]]), truth([{0}], 4), weights)


@pytest.mark.parametrize("columns", [[2, 1], [1, 1]])
def test_unsorted_or_repeated_truth_is_refused(columns):
    relevance = sp.csr_matrix((np.ones(2, np.float32), columns, [0, 2]), shape=(1, 4))
    with pytest.raises(DataError, match="unsorted, repeated or zero entries"):
        evaluate_predictions(top([[0]]), relevance, WEIGHTS)


def test_explicit_zeros_in_the_truth_are_refused():
    relevance = sp.csr_matrix((np.zeros(1, np.float32), [1], [0, 1]), shape=(1, 4))
    with pytest.raises(DataError, match="zero entries"):
        evaluate_predictions(top([[1]]), relevance, WEIGHTS)


@pytest.mark.parametrize("settings_", [{"ks": (0, 1)}, {"recall_ks": (-1,)}, {"ks": (), "recall_ks": ()}])
def test_k_below_one_is_refused(settings_):
    with pytest.raises(ConfigError, match="at least 1"):
        evaluate_predictions(top([[0]]), truth([{0}], 4), WEIGHTS, **settings_)


def large(n_documents: int, n_labels: int) -> tuple[TopK, sp.csr_matrix, np.ndarray]:
    """100 different labels for each document, some of them true, and a few void pairs."""
    random = np.random.default_rng(0)
    start, step = random.integers(0, n_labels, (n_documents, 1)), random.integers(0, 37, (n_documents, 110))
    ids = (start + np.arange(110) * 37 + step) % n_labels
    true = np.sort(ids[:, random.choice(110, 5, replace=False)], axis=1)
    starts = np.arange(n_documents + 1) * 5
    relevance = sp.csr_matrix((np.ones(true.size, np.float32), true.ravel(), starts), shape=(n_documents, n_labels))
    pairs = np.column_stack([np.arange(n_documents), ids[:, 7]])
    return TopK(ids, -np.sort(random.random(ids.shape, dtype=np.float32))), relevance, pairs


def test_ten_thousand_documents_take_less_than_a_second():
    predictions, relevance, pairs = large(10_000, 100_000)
    assert extra_for_filter(pairs) <= 10
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        evaluate_predictions(predictions, relevance, np.ones(100_000), filter_pairs=pairs)
        seconds.append(time.perf_counter() - start)
    assert min(seconds) < 1, seconds


def test_memory_grows_with_predictions_not_with_documents_times_labels():
    # Dense in labels, 500 documents x 2,000,000 labels would be 1 GB even as bytes.
    predictions, relevance, pairs = large(500, 2_000_000)
    weights = np.ones(2_000_000)
    tracemalloc.start()
    evaluate_predictions(predictions, relevance, weights, filter_pairs=pairs)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 30e6, peak


def test_metrics_import_nothing_heavy():
    heavy = "{'torch', 'sklearn', 'pyarrow', 'tokenizers', 'rich', 'scipy.stats'}"
    code = f"import sys, xclearn.metrics; print(sorted(set(sys.modules) & {heavy}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
