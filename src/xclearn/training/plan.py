"""Estimates memory and time before training, and which setting would fit into memory.

Sums what the parts of a stage declare; the machine's speed is measured briefly. Knows nothing about algorithms beyond
the costs they declare.
"""

from __future__ import annotations

import math
import operator
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, final

import numpy as np

from xclearn.errors import PlanError
from xclearn.extras import is_installed
from xclearn.parts.cost import Weights

if TYPE_CHECKING:
    import torch

GIB = 1 << 30
_PASSES = 3  # passes over the memory of a step: written, read, and read again
CALLS = 250  # library calls per step: forward, backward and optimisers
_RUNTIME = {"cpu": 96 << 20, "cuda": 96 << 20}  # code loaded at the first step, thread stacks, workspaces


@final
@dataclass(frozen=True)
class Speed:
    """The speed of a machine for training."""

    operations: float  # per second, in matrix products of a typical shape
    bytes: float  # per second, read or written
    call: float  # seconds per library call without work


# Assumed machines for planning without measuring: two cores, and one H200 (benchmarks/LOG.md).
REFERENCE = {"cpu": Speed(45e9, 8e9, 8e-6), "cuda": Speed(350e12, 3e12, 8e-6)}


@final
@dataclass(frozen=True, kw_only=True)
class StageCost:
    """Memory of a stage on its device in bytes, and the computation, memory traffic and calls of an epoch."""

    name: str
    parameters: int
    optimiser: int
    working: int  # peak of other memory: gradients and scores of a step, the best epoch, the served copy
    flops_per_epoch: float
    epochs: int
    path: str  # description of how it trains
    bytes_per_epoch: float = 0  # read and written
    calls_per_epoch: float = 0  # library calls

    def seconds_per_epoch(self, speed: Speed) -> float:
        """Products and memory traffic overlap; many small calls overlap with neither."""
        moved = max(self.flops_per_epoch / speed.operations, self.bytes_per_epoch / speed.bytes)
        return moved + self.calls_per_epoch * speed.call


@final
@dataclass(frozen=True, kw_only=True)
class Plan:
    """Costs of all stages on one device."""

    device: str
    data: int  # bytes of features and relevance on the device
    stages: tuple[StageCost, ...]

    @property
    def peak(self) -> int:
        """Peak bytes of the whole run."""
        largest = max(stage.parameters + stage.optimiser + stage.working for stage in self.stages)
        return self.data + largest + _RUNTIME[self.device]

    def seconds(self, speed: Speed) -> float:
        """Training time of all stages on a machine of this speed."""
        return sum(stage.epochs * stage.seconds_per_epoch(speed) for stage in self.stages)

    def facts(self, speed: Speed) -> dict[str, Any]:
        """The plan as plain values for the log and the screen."""
        stages = [
            {
                "stage": stage.name,
                "path": stage.path,
                "parameters_mib": stage.parameters >> 20,
                "optimiser_mib": stage.optimiser >> 20,
                "working_mib": stage.working >> 20,
                "epochs": stage.epochs,
                "seconds_per_epoch": round(stage.seconds_per_epoch(speed), 2),
            }
            for stage in self.stages
        ]
        return {"device": self.device, "data_mib": self.data >> 20, "peak_mib": self.peak >> 20, "stages": stages}


class Steps(NamedTuple):
    """The steps of one pass over the documents."""

    number: float
    held: float = 0  # bytes of gradients, scores and activations in one step


def stage_cost(
    name: str,
    trained: Sequence[Weights],
    *,
    epochs: int,
    products: float,
    path: str,
    steps: Steps,
    served: int = 0,
    best: bool = False,
) -> StageCost:
    """The cost of a stage that trains these weights with `products` multiplications in each pass over the documents.

    `served` is the size in bytes of the copy made once the optimisers are freed; `best` says whether a held-out score
    keeps the best epoch.
    """
    state = sum(weights.state for weights in trained)
    kept = sum(weights.best for weights in trained) if best else 0
    return StageCost(
        name=name,
        parameters=sum(weights.held for weights in trained),
        optimiser=state,
        working=math.ceil(max(steps.held + kept, served - state)),
        flops_per_epoch=6.0 * products,
        epochs=epochs,
        path=path,
        bytes_per_epoch=steps.number * (_PASSES * steps.held + sum(weights.moved for weights in trained)),
        calls_per_epoch=steps.number * CALLS,
    )


def beside(cost: StageCost, held: int) -> StageCost:
    """The cost of a stage while `held` bytes of other networks stay in memory."""
    return replace(cost, parameters=cost.parameters + held)


def of_members(costs: Sequence[StageCost], n: int, kept: int) -> tuple[StageCost, ...]:
    """The numbered stages of n members; each earlier member keeps `kept` bytes."""
    return tuple(
        replace(cost, name=f"{cost.name}-{member}", parameters=cost.parameters + member * kept)
        for member in range(n)
        for cost in costs
    )


def require_fit(plan: Plan, available: int, alternatives: Callable[[], list[tuple[str, Plan]]]) -> None:
    """Raise if a plan exceeds `available` bytes, naming the first alternative setting that would fit."""
    if plan.peak <= available:
        return
    fitting = next((setting for setting, other in alternatives() if other.peak <= available), None)
    todo = f"Set {fitting}." if fitting else "Use a machine with more memory."
    need = f"{plan.peak / GIB:.2f} GiB needed"
    have = f"{available / GIB:.2f} GiB on {plan.device}"
    raise PlanError("training would not fit into memory", got=need, allowed=have, todo=todo)


def available_memory(device: torch.device) -> int:
    """Free bytes on the device, according to the system and the container's limit."""
    if device.type == "cuda":
        import torch

        return torch.cuda.mem_get_info(device)[0]
    limits = [_meminfo_available(), _cgroup_available()]
    return min(limit for limit in limits if limit is not None)


def _meminfo_available() -> int:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):  # not Linux: total physical memory
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _cgroup_available() -> int | None:
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
        used = Path("/sys/fs/cgroup/memory.current").read_text().strip()
        return None if limit == "max" else int(limit) - int(used)
    except (OSError, ValueError):
        return None


_COPIED = 1 << 17  # rows of 128 values: larger than caches
_measured: dict[str, Speed] = {}  # by kind of device, once per process


def measured_speed(device: torch.device, repeats: int = 3) -> Speed:
    """Measure a typical matrix product, a pass over a large array, and calls without work."""
    if device.type not in _measured:
        _measured[device.type] = _measure(device, repeats)
    return _measured[device.type]


def _measure(device: torch.device, repeats: int) -> Speed:
    left, right = (_random_rows(size, device) for size in (512, 8192))
    large, small = (_random_rows(size, device) for size in (_COPIED, 1))
    product = _fastest(lambda: left @ right.T, repeats)
    copied = _fastest(lambda: operator.imul(large, 1), repeats)  # in place, so as not to measure memory allocation
    called = _fastest(lambda: [small + small for _ in range(CALLS)][-1], repeats) / CALLS
    return Speed(2 * 512 * 8192 * 128 / product, 2 * 128 * large.itemsize * _COPIED / copied, called)


def _fastest(compute: Callable[[], Any], repeats: int) -> float:
    """The time of the fastest call, in seconds."""
    best = float("inf")
    for _ in range(repeats):
        started = time.perf_counter()
        float(compute()[0, 0])  # waits for the device
        best = min(best, time.perf_counter() - started)
    return best


def _random_rows(n: int, device: torch.device) -> Any:
    """Rows (n, 128) in the type used for products; NumPy if torch is missing."""
    if not is_installed("torch"):
        return np.random.default_rng(0).standard_normal((n, 128), dtype=np.float32)
    import torch

    return torch.randn(n, 128, device=device).to(torch.bfloat16 if device.type == "cuda" else torch.float32)
