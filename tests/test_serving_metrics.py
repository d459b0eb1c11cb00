"""Prometheus' text, read back line by line."""

import re

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from xclearn.serving.metrics import BATCH, IN_FLIGHT, N_VALUES, REQUESTS, SECONDS, Metrics

PREDICT, FINE = 'path="/predict"', 'path="/predict",status="200"'
SAMPLE = re.compile(r'(?P<series>[a-z_]+(\{[a-z]+="[^"{}]*"(,[a-z]+="[^"{}]*")*\})?) (?P<value>[0-9.e+-]+)')


def workers(n: int) -> list[Metrics]:
    values = np.zeros((n, N_VALUES))
    return [Metrics(values, worker) for worker in range(n)]


def read(metrics: Metrics) -> dict[str, float]:
    """Every sample; every line must be one, or a comment that names its metric before it."""
    found: dict[str, float] = {}
    known = ""
    for line in metrics.text().splitlines():
        if line.startswith("# TYPE "):
            known = line.split()[2]
        elif not line.startswith("# HELP "):
            match = SAMPLE.fullmatch(line)
            assert match, line
            assert line.startswith(known)
            assert match["series"] not in found
            found[match["series"]] = float(match["value"])
    return found


def test_counts_of_all_workers_are_summed_by_any_of_them() -> None:
    first, second = workers(2)
    first.add(REQUESTS, series=FINE)
    second.add(REQUESTS, 4, series=FINE)
    first.add(IN_FLIGHT)
    assert read(first) == read(second)
    assert read(first)[f"xclearn_requests_total{{{FINE}}}"] == 5
    assert read(first)["xclearn_requests_in_flight"] == 1


def test_a_worker_that_takes_a_dead_one_s_place_forgets_only_what_that_had_in_hand() -> None:
    dead, other = workers(2)
    dead.add(IN_FLIGHT, 3)
    dead.add(REQUESTS, 7, series=FINE)
    other.add(IN_FLIGHT)
    dead.set(IN_FLIGHT, 0)
    assert read(other)["xclearn_requests_in_flight"] == 1
    assert read(other)[f"xclearn_requests_total{{{FINE}}}"] == 7


def test_large_counts_keep_every_digit() -> None:
    (metrics,) = workers(1)
    metrics.add(REQUESTS, 123_456_789, series=FINE)
    assert f"xclearn_requests_total{{{FINE}}} 123456789\n" in metrics.text()


@given(st.lists(st.floats(0, 100), max_size=30))
def test_a_histogram_counts_what_is_at_or_below_each_edge(values) -> None:
    (metrics,) = workers(1)
    for value in values:
        metrics.observe(SECONDS, value, PREDICT)
    found = read(metrics)
    if not values:
        assert not any(name.startswith("xclearn_request_seconds") for name in found)
        return
    for edge in SECONDS.buckets:
        expected = sum(value <= edge for value in values)
        assert found[f'xclearn_request_seconds_bucket{{{PREDICT},le="{edge}"}}'] == expected
    assert found[f'xclearn_request_seconds_bucket{{{PREDICT},le="+Inf"}}'] == len(values)
    assert found[f"xclearn_request_seconds_count{{{PREDICT}}}"] == len(values)
    assert np.isclose(found[f"xclearn_request_seconds_sum{{{PREDICT}}}"], sum(values))


def test_a_series_without_labels_has_no_braces() -> None:
    (metrics,) = workers(1)
    metrics.observe(BATCH, 3)
    assert {"xclearn_batch_texts_sum", "xclearn_batch_texts_count"} < read(metrics).keys()
    assert read(metrics)['xclearn_batch_texts_bucket{le="4"}'] == 1
