"""Counts and durations in Prometheus' text format.

Every worker writes to its own row of shared memory, so no lock is needed and any worker can report for all by summing
the rows. The set of series is therefore fixed here. Knows nothing about HTTP or models.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, final

import numpy as np

PATHS = ("/", "/predict", "/explain", "/labels", "/model", "/metrics", "/healthz", "/readyz", "/openapi.json", "other")
STATUSES = ("200", "400", "401", "403", "404", "405", "408", "413", "421", "422", "499", "500", "503", "other")

_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_TEXTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


@final
@dataclass(frozen=True)
class Family:
    """A metric and its series: one for each set of labels, one value each or, with `buckets`, a histogram."""

    name: str
    kind: str
    help: str
    series: tuple[str, ...] = ("",)
    buckets: tuple[float, ...] = ()

    @property
    def width(self) -> int:
        """Values per series: one, or the bucket counts, the overflow count and the sum."""
        return len(self.buckets) + 2 if self.buckets else 1


REQUESTS = Family(
    "xclearn_requests_total",
    "counter",
    "Requests answered.",
    tuple(f'path="{path}",status="{status}"' for path in PATHS for status in STATUSES),
)
SECONDS = Family(
    "xclearn_request_seconds",
    "histogram",
    "From the first byte of a request to the last of its response.",
    tuple(f'path="{path}"' for path in PATHS),
    _SECONDS,
)
IN_FLIGHT = Family("xclearn_requests_in_flight", "gauge", "Requests in progress.")
BATCH = Family("xclearn_batch_texts", "histogram", "Texts predicted together.", buckets=_TEXTS)
PREDICTION = Family("xclearn_prediction_seconds", "histogram", "One call of the predictor.", buckets=_SECONDS)
RELOADS = Family("xclearn_reloads_total", "counter", "New models.", ('result="done"', 'result="refused"'))
CONNECTIONS = Family("xclearn_connections_open", "gauge", "Open client connections.")
ENDED = Family(
    "xclearn_connections_ended_total",
    "counter",
    "Connections closed early by the server: too many, too slow, or not HTTP.",
    tuple(f'reason="{reason}"' for reason in ("crowded", "late", "malformed")),
)
SHED = Family(
    "xclearn_requests_shed_total",
    "counter",
    "Requests rejected with 503 because of load.",
    tuple(f'reason="{reason}"' for reason in ("connections", "bodies", "queue", "late")),
)
STALE = Family("xclearn_model_stale", "gauge", "1 if the folder has changed since the model in service was read.")

_FAMILIES = (REQUESTS, SECONDS, IN_FLIGHT, BATCH, PREDICTION, RELOADS, CONNECTIONS, ENDED, SHED, STALE)


def _columns() -> Iterator[tuple[tuple[str, str], int]]:
    start = 0
    for family in _FAMILIES:
        for series in family.series:
            yield (family.name, series), start
            start += family.width


_COLUMN_OF = dict(_columns())
N_VALUES = sum(family.width * len(family.series) for family in _FAMILIES)


@final
class Metrics:
    """One worker's row of the shared values."""

    def __init__(self, values: np.ndarray, worker: int) -> None:
        self._all = values  # (workers, N_VALUES) float64
        self._own: Any = memoryview(values[worker])  # faster than an array for single values

    def add(self, family: Family, amount: float = 1, series: str = "") -> None:
        """Increase a counter."""
        self._own[_COLUMN_OF[family.name, series]] += amount

    def set(self, family: Family, value: float) -> None:
        """Set a gauge of this worker."""
        self._own[_COLUMN_OF[family.name, ""]] = value

    def total(self, family: Family) -> float:
        """The sum over all workers."""
        return float(self._all[:, _COLUMN_OF[family.name, ""]].sum())

    def observe(self, family: Family, value: float, series: str = "") -> None:
        """Count a value in its bucket."""
        start = _COLUMN_OF[family.name, series]
        self._own[start + bisect_left(family.buckets, value)] += 1
        self._own[start + family.width - 1] += value

    def text(self) -> str:
        """The values of all workers, without unused series."""
        totals = self._all.sum(axis=0)  # (N_VALUES,)
        lines = [line for family in _FAMILIES for line in _family_lines(family, totals)]
        return "\n".join(lines) + "\n"


def _family_lines(family: Family, totals: np.ndarray) -> Iterator[str]:
    yield f"# HELP {family.name} {family.help}"
    yield f"# TYPE {family.name} {family.kind}"
    for series in family.series:
        start = _COLUMN_OF[family.name, series]
        values = totals[start : start + family.width].tolist()
        if family.buckets and any(values):
            yield from _histogram_lines(family, series, values)
        elif not family.buckets and (values[0] or not series):
            yield f"{family.name}{'{' + series + '}' if series else ''} {values[0]:.0f}"


def _histogram_lines(family: Family, series: str, values: list[float]) -> Iterator[str]:
    *counts, total = values
    joined = f"{series}," if series else ""
    braces = f"{{{series}}}" if series else ""
    below = list(accumulate(counts))
    for edge, count in zip([*map(str, family.buckets), "+Inf"], below, strict=True):
        yield f'{family.name}_bucket{{{joined}le="{edge}"}} {count:.0f}'
    yield f"{family.name}_sum{braces} {total!r}"
    yield f"{family.name}_count{braces} {below[-1]:.0f}"
