"""Train an algorithm with several settings and seeds, measure each, and append the rows to a results file.

    python -m benchmarks.accuracy.run --data wordnet-related --algorithm one_vs_all --split hold_out \
        --grid "label_lr=0.1" --grid "label_lr=0.2 dropout=0.5" --seeds 0 1 2 --out one_vs_all

`--split hold_out` cuts a hold-out from train, on which settings are chosen; `--split test` is for the final figure.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import re
import resource
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmarks.record import RESULTS, record, resolved

from xclearn import algorithms, config
from xclearn.data import Dataset, LabelSet, Split, hold_out, load_dataset
from xclearn.data.dataset import take_documents
from xclearn.inference import evaluate
from xclearn.inference.evaluation import Fitted
from xclearn.training.algorithm import Algorithm
from xclearn.training.run import Callback

SHOWN = ("P@1", "P@3", "P@5", "PSP@1", "PSP@3", "PSP@5", "R@10", "R@100")


def main() -> None:
    arguments = _arguments()
    started = time.perf_counter()
    data = load_dataset(arguments.data)
    loading = time.perf_counter() - started
    if arguments.split == "hold_out":
        data = held_out(data)
    data = part_of(data, arguments.documents)
    print(f"{data.name}: loaded in {loading:.1f} s; {arguments.split}; {' '.join(SHOWN)}", flush=True)
    for grid in arguments.grid or [""]:
        for seed in arguments.seeds:
            row = {"data": data.name, "split": arguments.split, "algorithm": arguments.algorithm, "settings": grid}
            row |= {"seed": seed, "loading_s": round(loading, 2), **measure(data, arguments, grid, seed)}
            record(arguments.out, row, Path(arguments.folder))
            shown = " ".join(f"{row[name]:6.2f}" for name in SHOWN)
            print(f"{shown} | {row['train_s']:6.1f} s {row['peak_mib']:6} MiB | seed {seed} {grid}", flush=True)


def held_out(data: Dataset) -> Dataset:
    """The data set with its hold-out in the place of test."""
    train, held = hold_out(data)
    return dataclasses.replace(data, train=train, test=held, dev=None)


def part_of(data: Dataset, n: int) -> Dataset:
    """So many documents of train, drawn at random, with the labels that these have, and what test asks about those."""
    if not n:
        return data
    drawn = data.train.take(np.sort(np.random.default_rng(0).permutation(len(data.train))[:n]))
    kept = np.unique(drawn.relevance.indices)
    place = np.full(data.n_labels, -1, dtype=np.int64)
    place[kept] = np.arange(len(kept))

    def narrowed(split: Split) -> Split:
        pairs = np.column_stack([split.filter_pairs[:, 0], place[split.filter_pairs[:, 1]]])
        narrow = dataclasses.replace(split, relevance=split.relevance[:, kept], filter_pairs=pairs[pairs[:, 1] >= 0])
        return narrow.take(np.flatnonzero(np.diff(narrow.relevance.indptr)))

    texts = None if data.labels.texts is None else take_documents(data.labels.texts, kept)
    labels = LabelSet([data.labels.names[label] for label in kept], texts)
    name = f"{data.name}, {n:,} documents"
    return dataclasses.replace(
        data, name=name, train=narrowed(drawn), labels=labels, test=narrowed(data.split("test")), dev=None
    )


def measure(data: Dataset, arguments: argparse.Namespace, grid: str, seed: int) -> dict[str, Any]:
    """Train once and measure on test."""
    settings = config.merge({}, grid.split())
    algorithm = config.build(algorithms.find(arguments.algorithm), settings, arguments.algorithm)
    forget_peak()
    stages: dict[str, float] = {}

    def note(event: Any) -> None:
        if event["event"] == "epoch":
            stages[event["stage"]] = stages.get(event["stage"], 0.0) + event["seconds"]

    started = time.perf_counter()
    algorithm.fit(data, device=arguments.device, seed=seed, callback=note)
    train_seconds = time.perf_counter() - started
    settings_id = resolved(algorithm, Path(arguments.folder))
    started = time.perf_counter()
    report = evaluate(algorithm, data, device="auto")
    times: dict[str, Any] = {"train_s": round(train_seconds, 2), "evaluate_s": round(time.perf_counter() - started, 2)}
    times["stages_s"] = " ".join(f"{name}={seconds:.2f}" for name, seconds in stages.items())
    found = {name: round(value, 3) for name, value in report.values.items()}
    return found | times | {"peak_mib": peak_mib(), "resolved": settings_id}


def forget_peak() -> None:
    """Start `peak_mib` anew; where the system cannot, a process keeps the peak of what it ran before."""
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    else:
        with contextlib.suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")


def peak_mib() -> int:
    """Peak memory: of the GPU where one trains, else of the process."""
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated() >> 20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


def table_arguments(description: str | None, tables: list[str], rows: list[str]) -> argparse.ArgumentParser:
    """What the scripts that fill a paper's tables ask for, of these tables and rows."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="a data set's folder")
    names = list(dict.fromkeys(tables))
    parser.add_argument("--tables", nargs="*", default=[], choices=names, metavar="NAME", help="of " + ", ".join(names))
    parser.add_argument("--only", nargs="*", default=[], choices=rows, metavar="ROW", help="names of rows")
    parser.add_argument("--documents", type=int, default=0, help="of train, drawn at random; 0: all")
    parser.add_argument("--split", choices=("test", "hold_out"), default="test")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    said = "of every algorithm that has it; astec:NAME=VALUE is of astec only"
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help=said)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--folder", default=str(RESULTS), help="where the results are")
    return parser


def fitted(
    data: Dataset, arguments: argparse.Namespace, line: str, seed: int, callback: Callback | None = None
) -> tuple[Algorithm, dict[str, Any]]:
    """Train a table's "algorithm setting=value …" once; its settings, seed and seconds."""
    name, *settings = line.split()
    settings = [*settings_for(name, arguments), *settings]
    algorithm = config.build(algorithms.find(name), config.merge({}, settings), name)
    started = time.perf_counter()
    algorithm.fit(data, device=arguments.device, seed=seed, callback=callback)
    seconds = round(time.perf_counter() - started, 1)
    about = {"settings": " ".join([name, *settings]), "seed": seed, "train_s": seconds}
    return algorithm, about | {"resolved": resolved(algorithm, Path(arguments.folder))}


def asked_for(arguments: argparse.Namespace, table: str, row: str) -> bool:
    """Whether `--tables` and `--only` ask for a row."""
    return (not arguments.tables or table in arguments.tables) and (not arguments.only or row in arguments.only)


def settings_for(name: str, arguments: argparse.Namespace) -> list[str]:
    """What `--set` says of an algorithm: the settings that it has; `name:setting=value` is of that algorithm only."""
    known = {field.name for field in dataclasses.fields(algorithms.find(name))}
    said = [each.removeprefix(f"{name}:") for each in arguments.set]
    return [each for each in said if re.split(r"[.=]", each)[0] in known]


def figures(model: Fitted, data: Dataset) -> dict[str, float]:
    """All metrics on test."""
    return {name: round(value, 3) for name, value in evaluate(model, data, device="auto").values.items()}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="wordnet-related")
    parser.add_argument("--algorithm", required=True)
    parser.add_argument("--split", choices=("hold_out", "test"), default="hold_out")
    parser.add_argument("--documents", type=int, default=0, help="of train, drawn at random; 0: all")
    parser.add_argument("--grid", action="append", help="settings of one configuration, separated by spaces")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", required=True, help="name of the results file, without .csv")
    parser.add_argument("--folder", default=str(RESULTS), help="folder of the results file")
    return parser.parse_args()


if __name__ == "__main__":
    main()
