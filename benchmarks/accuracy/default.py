"""The default algorithm without a setting, on test, beside the best peer where it was measured on the same texts.

python -m benchmarks.accuracy.default SET ...    a bundled name or a folder each; rows go to results/default.csv
"""

from __future__ import annotations

import argparse
import csv
import time

from benchmarks.accuracy.believed import believed
from benchmarks.accuracy.shapes import say
from benchmarks.record import RESULTS, record, resolved

from xclearn import algorithms, config
from xclearn.cli.training import DEFAULT
from xclearn.data import load_dataset
from xclearn.inference import evaluate

_PEER = "omikuji Bonsai x3"


def main() -> None:
    """Train, measure and record each set; print the peer's row below."""
    arguments = _arguments()
    for source in arguments.data:
        data = load_dataset(source)
        started, cpu = time.perf_counter(), time.process_time()
        wanted = config.build(algorithms.find(DEFAULT), config.merge({}, arguments.set), DEFAULT)
        algorithm = wanted.fit(data, device=arguments.device, seed=arguments.seed, callback=say)
        seconds = {"train_s": round(time.perf_counter() - started, 1), "cpu_s": round(time.process_time() - cpu, 1)}
        report = evaluate(algorithm, data, device="auto")
        found = {name: round(value, 3) for name, value in report.values.items()}
        training = algorithm.model.about["training"]
        said = {"stacker": training.get("stacker"), "ece_5_hold_out": training.get("ece_5")}
        said |= believed(algorithm.model.servable, report)
        members = " + ".join(algorithm.resolved_.get("members", []))
        facts = {"data": data.name, "split": "test", "algorithm": DEFAULT, "members": members, "seed": arguments.seed}
        facts["resolved"] = resolved(algorithm)
        record("default", facts | found | seconds | said, RESULTS)
        print(data.name, DEFAULT, found, seconds, said, flush=True)
        print(data.name, _PEER, _peer(data.name), flush=True)


def _peer(data: str) -> dict[str, str]:
    """Its figures on this set, empty where it was not measured."""
    with (RESULTS / "peers.csv").open(encoding="utf-8") as stream:
        rows = [row for row in csv.DictReader(stream) if (row.get("data"), row.get("system")) == (data, _PEER)]
    return rows[0] if rows else {}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", nargs="+")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--set", action="append", default=[], help="a setting, such as time_budget=5")
    return parser.parse_args()


if __name__ == "__main__":
    main()
