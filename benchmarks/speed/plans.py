"""What plans say of seconds and of memory beside what is measured, for every algorithm, on one set of a planted shape.

    OMP_NUM_THREADS=1 python -m benchmarks.speed.plans --documents 8000
    python -m benchmarks.speed.plans --device cuda --documents 100000 --labels 100000

Each algorithm is fitted in a process of its own, each of its stages for two epochs. On a CPU seconds are of the
processor, so that what runs beside it does not count. Measured are the stages, or all of `fit` where a solver has none.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.record import RESULTS, record
from benchmarks.speed.planted import Shape, as_dataset, planted

from xclearn import algorithms, config

_WITHOUT = ("blend", "xml_cnn")  # its plan is its members'; it reads texts, and the set has features
_EPOCHS = 2


def main() -> None:
    """One row for each algorithm."""
    arguments = _arguments()
    if arguments.alone:
        print(json.dumps(_measure(arguments.alone, arguments)))
        return
    for name in arguments.algorithms or [name for name in algorithms.algorithm_names() if name not in _WITHOUT]:
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.speed.plans", "--alone", name, *sys.argv[1:]],
            capture_output=True,
            text=True,
            check=False,
        )
        row = json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else {"error": done.stderr[-200:]}
        row = {"algorithm": name, **row}
        print(" ".join(f"{key}={value}" for key, value in row.items()), flush=True)
        if "error" not in row:
            record("plans", row, Path(arguments.folder))


def _measure(name: str, arguments: argparse.Namespace) -> dict[str, Any]:
    import psutil

    from xclearn.training.plan import measured_speed
    from xclearn.training.run import pick_device

    measured_speed(pick_device(arguments.device), repeats=40)  # what runs beside it shall not count
    shape = Shape(arguments.documents, arguments.labels, 20_000, 10, 3)
    data = as_dataset("planted", planted(shape, "cpu"))
    algorithm = config.build(algorithms.find(name), _one_epoch(name), name)
    planned: dict[str, Any] = {}
    epochs: dict[str, float] = {}
    clock = time.process_time if arguments.device == "cpu" else time.perf_counter
    last = [clock()]

    def note(event: Any) -> None:
        if event["event"] == "plan":
            planned.update(event)
        if event["event"] == "epoch":
            epochs[event["stage"]] = epochs.get(event["stage"], 0.0) + clock() - last[0]
        if event["event"] in ("stage", "epoch"):
            last[0] = clock()

    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # the peak of making the set is not that of training
    before = psutil.Process().memory_info().rss
    started = clock()
    algorithm.fit(data, device=arguments.device, callback=note)
    whole = clock() - started
    measured = sum(epochs.values()) or whole  # a solver has no stages
    expected = sum(stage["epochs"] * stage["seconds_per_epoch"] for stage in planned["stages"])
    peak = _peak_mib(arguments.device, before)
    return {
        "device": arguments.device,
        "documents": shape.documents,
        "labels": shape.labels,
        "planned_s": round(expected, 2),
        "measured_s": round(measured, 2),
        "fit_s": round(whole, 2),
        "ratio_s": round(expected / measured, 2),
        "stages_s": " ".join(f"{stage}={taken:.2f}" for stage, taken in epochs.items()),
        "planned_mib": planned["peak_mib"],
        "measured_mib": peak,
        "ratio_mib": round(planned["peak_mib"] / peak, 2),
    }


def _one_epoch(name: str) -> dict[str, Any]:
    """Every stage for one epoch; solvers as they are."""
    if name in ("label_tree", "sparse_one_vs_all", "slice"):
        return {}
    fields = [each.name for each in config.describe(algorithms.find(name)) if "." not in each.name]
    return {field: _EPOCHS for field in fields if field.endswith("epochs") and field != "shortlister_epochs"}


def _peak_mib(device: str, before: int) -> int:
    if device == "cuda":
        import torch

        return torch.cuda.max_memory_allocated() >> 20
    lines = Path("/proc/self/status").read_text().splitlines()
    high = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))
    return (high - before) >> 20


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=8_000)
    parser.add_argument("--labels", type=int, default=40_000)
    parser.add_argument("--algorithms", nargs="+", default=[])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--folder", default=os.environ.get("OUT", str(RESULTS)))
    parser.add_argument("--alone", default="", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
