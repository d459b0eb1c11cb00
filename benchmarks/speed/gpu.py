"""Everything about speed and memory on one GPU, in one call that ends by itself.

    python -m benchmarks.speed.gpu --minutes 5 --parts check steps blocks batches profile small whole
    python -m benchmarks.speed.gpu --parts whole --shapes LF-AmazonTitles-1.3M --whole decaf:surrogate_epochs=2

Sets are synthetic with a planted truth (`planted.py`). `check` compares each step with plain float64 first and stops
the run if one is wrong. The other parts measure steps against the three matrix products that none can do without, in
the same run: by size, by block, by batch; where the kernels' time goes; epochs of a small set, which waits for
launches; and whole trainings with their time by stage beside the plan's, the peak and an accuracy. Rows go to gpu.csv
in $OUT, or in `results`; a table of all comes last, and what the minutes did not allow.
"""

from __future__ import annotations

import argparse
import math
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from benchmarks.record import RESULTS, record
from benchmarks.speed import gpu_cases, gpu_checks
from benchmarks.speed.gpu_cases import Case
from benchmarks.speed.planted import SHAPES, as_dataset, planted, relevant_share
from benchmarks.speed.timing import forget_peak, median_ms, peak_mib

from xclearn import algorithms, config
from xclearn.parts import losses

Row = dict[str, Any]
_STEPS = ("wordnet-related", "AmazonTitles-670K", "LF-AmazonTitles-1.3M")
_PARTS = ("check", "steps", "blocks", "batches", "profile", "small", "whole")
_SMALL = ["decaf:surrogate_epochs=3:ranker_epochs=2", "one_vs_all:epochs=3"]
_SHOWN = ("part", "shape", "what", "batch", "setting", "ms", "floor_ms", "ratio", "seconds", "P@1", "mib")


def main() -> None:
    """Run the parts in turn until the minutes are over."""
    arguments = _arguments()
    torch.set_float32_matmul_precision("high")  # as `Run.fast_products`
    rows: list[Row] = []
    budget = _Budget(arguments.minutes)
    for part in arguments.parts:
        for row in PARTS[part](arguments, budget):
            row = {"part": part, **row}
            rows.append(row)
            record("gpu", row, Path(arguments.folder))
            print(" ".join(f"{key}={value}" for key, value in row.items()), flush=True)
            if row.get("wrong"):
                raise SystemExit(f"{row['what']} is not what plain float64 gives")
    print(_table(rows))
    print(f"{budget.used:.0f} s used; left out for want of time: {', '.join(budget.left_out) or 'nothing'}", flush=True)


class _Budget:
    """Minutes that may be used."""

    def __init__(self, minutes: float) -> None:
        self.started, self.seconds = time.perf_counter(), 60 * minutes
        self.left_out: list[str] = []

    @property
    def used(self) -> float:
        return time.perf_counter() - self.started

    def allows(self, name: str, seconds: float) -> bool:
        """Whether something of about `seconds` still fits; if not, it is noted as left out."""
        fits = self.used + seconds <= self.seconds
        if not fits:
            self.left_out.append(name)
        return fits


def _check(arguments: argparse.Namespace, budget: _Budget) -> Iterator[Row]:  # noqa: ARG001
    checks = list(gpu_checks.CHECKS)
    if arguments.device == "cuda":
        from benchmarks.speed import triton_checks

        checks += triton_checks.CHECKS
    for check in checks:
        error, allowed = check(arguments.device)
        yield {"what": check.__name__, "error": f"{error:.2e}", "allowed": allowed, "wrong": not error <= allowed}


def _steps(arguments: argparse.Namespace, budget: _Budget) -> Iterator[Row]:
    for shape in arguments.shapes or _STEPS:
        if budget.allows(f"steps of {shape}", 15):
            case = Case(shape, arguments.device)
            yield from (_measured(case, what, 1024) for what in gpu_cases.STEPS)


def _blocks(arguments: argparse.Namespace, budget: _Budget) -> Iterator[Row]:
    """Scores at once: a block in the cache costs launches, a large one goes through memory."""
    usual = losses.SCORES_AT_ONCE[arguments.device]
    for shape in (arguments.shapes or _STEPS)[:2]:
        case = Case(shape, arguments.device)
        for power in (23, 24, 25, 26, 27, 28):
            losses.SCORES_AT_ONCE[arguments.device] = 1 << power
            names = ("one_vs_all", "decaf") if budget.allows(f"blocks 2^{power} of {shape}", 4) else ()
            for what in names:
                yield {**_measured(case, what, 1024), "setting": f"2^{power} scores"}
        losses.SCORES_AT_ONCE[arguments.device] = usual


def _batches(arguments: argparse.Namespace, budget: _Budget) -> Iterator[Row]:
    for shape in (arguments.shapes or _STEPS)[-1:]:
        case = Case(shape, arguments.device)
        for batch in arguments.batches:
            if budget.allows(f"batch {batch} of {shape}", 8):
                yield from (_measured(case, what, batch) for what in ("one_vs_all", "decaf"))


def _measured(case: Case, what: str, batch: int) -> Row:
    """One step of an algorithm against the products of its size."""
    forget_peak()
    floor = median_ms(case.floor(batch))
    step = median_ms(case.step(what, batch))
    milliseconds = {"ms": round(step, 3), "floor_ms": round(floor, 3), "ratio": round(step / floor, 2)}
    per_thousand = {"ms_per_1024": round(step * 1024 / batch, 3), "mib": peak_mib()}
    return {
        "shape": case.name,
        "labels": case.shape.labels,
        "what": what,
        "batch": batch,
        **milliseconds,
        **per_thousand,
    }


def _profile(arguments: argparse.Namespace, budget: _Budget) -> Iterator[Row]:
    """Which kernels a step's time goes to; the whole list is written beside the rows."""
    for shape in (arguments.shapes or _STEPS)[:2]:
        for what in arguments.profiled if budget.allows(f"profile of {shape}", 12) else ():
            step = Case(shape, arguments.device).step(what, 1024)
            median_ms(step, rounds=1)
            with torch.profiler.profile(activities=list(torch.profiler.supported_activities())) as profile:
                median_ms(step, rounds=1, inner=5, warm_up=0)
            table = profile.key_averages().table(
                sort_by="self_device_time_total", row_limit=40, max_name_column_width=90
            )
            name = f"profile-{what}-{shape}.txt"
            (Path(arguments.folder) / name).write_text(table)
            print("\n".join(line[:200] for line in table.splitlines()[:30]), flush=True)
            yield {"shape": shape, "what": what, "setting": name}


def _small(arguments: argparse.Namespace, budget: _Budget) -> Iterator[Row]:
    """Epochs of a set whose steps are too short to fill the device, as `fit` trains them."""
    data = as_dataset("small", planted(SHAPES["small"], arguments.device))
    for wanted in arguments.small:
        if budget.allows(f"small {wanted}", 15):
            yield _trained(wanted, data, arguments.device)


def _whole(arguments: argparse.Namespace, budget: _Budget) -> Iterator[Row]:
    for shape in arguments.shapes or ("wordnet-related",):
        data = None
        for wanted in arguments.whole:
            if not budget.allows(f"whole {wanted} of {shape}", arguments.whole_seconds):
                continue
            data = data or as_dataset(shape, planted(SHAPES[shape], arguments.device))
            yield _trained(wanted, data, arguments.device)


def _trained(wanted: str, data: Any, device: str) -> Row:
    """`name:setting=value:…` fitted on a set: seconds of each stage beside those planned, peak, and accuracy."""
    name, *assignments = wanted.split(":")
    algorithm = config.build(algorithms.find(name), config.merge({}, assignments), name)
    stages: dict[str, list[float]] = {}
    planned: Row = {}

    def note(event: Any) -> None:
        if event["event"] == "epoch":
            stages.setdefault(event["stage"], []).append(event["seconds"])
        elif event["event"] == "plan":
            planned.update(event)

    forget_peak()
    started = time.perf_counter()
    algorithm.fit(data, device=device, callback=note)
    seconds = time.perf_counter() - started
    ids = algorithm.predict(data.test.documents, 5).ids
    return {
        "shape": data.name,
        "labels": data.n_labels,
        "what": name,
        "setting": " ".join(assignments),
        "seconds": round(seconds, 2),
        "stages": " ".join(f"{stage}={sum(times):.2f}/{len(times)}" for stage, times in stages.items()),
        "planned": " ".join(f"{each['stage']}={each['seconds_per_epoch']}" for each in planned["stages"]),
        "planned_mib": planned["peak_mib"],
        "mib": peak_mib(),
        "P@1": round(relevant_share(ids[:, :1], data.test.relevance), 2),
        "P@5": round(relevant_share(ids, data.test.relevance), 2),
    }


PARTS: dict[str, Callable[[argparse.Namespace, _Budget], Iterator[Row]]] = {
    "check": _check,
    "steps": _steps,
    "blocks": _blocks,
    "batches": _batches,
    "profile": _profile,
    "small": _small,
    "whole": _whole,
}


def _table(rows: list[Row]) -> str:
    lines = [_SHOWN, *([str(row.get(name, "")) for name in _SHOWN] for row in rows if row["part"] != "profile")]
    widths = [max(len(line[i]) for line in lines) for i in range(len(_SHOWN))]
    return "\n".join("  ".join(f"{cell:{width}}" for cell, width in zip(line, widths, strict=True)) for line in lines)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=math.inf)
    parser.add_argument("--parts", nargs="+", default=_PARTS, choices=_PARTS)
    parser.add_argument("--shapes", nargs="+", choices=list(SHAPES), help="instead of those of each part")
    parser.add_argument("--batches", nargs="+", type=int, default=[2048, 4096, 8192])
    parser.add_argument("--profiled", nargs="+", default=["decaf"], help="steps to profile")
    parser.add_argument(
        "--small", nargs="+", default=["decaf:surrogate_epochs=3:ranker_epochs=2", "one_vs_all:epochs=3"]
    )
    parser.add_argument("--whole", nargs="+", default=["one_vs_all", "decaf"], metavar="NAME:SETTING=VALUE")
    parser.add_argument("--whole-seconds", type=float, default=60, help="what a whole training may take, for --minutes")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--folder", default=os.environ.get("OUT", str(RESULTS)))
    return parser.parse_args()


if __name__ == "__main__":
    main()
