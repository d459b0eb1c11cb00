"""Times and peaks on a GPU: steps are queued ahead of the device, as in training; medians of several rounds.

On a CPU, where tests run it, one round by the machine's clock, and no peaks.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch


def median_ms(run: Callable[[], object], rounds: int = 5, inner: int = 10, warm_up: int = 3) -> float:
    """Milliseconds of one call, `inner` calls at a time."""
    if not torch.cuda.is_available():
        rounds, inner, warm_up = 1, 2, 1
    for _ in range(warm_up):
        run()
    return statistics.median(_milliseconds(run, inner) / inner for _ in range(rounds))


def _milliseconds(run: Callable[[], object], n: int) -> float:
    if not torch.cuda.is_available():
        started = time.perf_counter()
        _repeat(run, n)
        return 1000 * (time.perf_counter() - started)
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    _repeat(run, n)
    end.record()
    end.synchronize()
    return start.elapsed_time(end)


def _repeat(run: Callable[[], object], n: int) -> None:
    for _ in range(n):
        run()


def forget_peak() -> None:
    """What was freed goes back, and `peak_mib` begins again."""
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def peak_mib() -> int:
    """The most memory held on the GPU."""
    return torch.cuda.max_memory_allocated() >> 20 if torch.cuda.is_available() else 0


def products(left: torch.Tensor, weight: torch.Tensor, ranges: list[tuple[int, int]]) -> None:
    """The floor of an exact step: scores, gradient of the documents, gradient of the rows, in these blocks."""
    for begin, end in ranges:
        scores = left @ weight[begin:end].T
        scores @ weight[begin:end]
        scores.T @ left
