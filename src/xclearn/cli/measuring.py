"""`xc evaluate`: metrics with intervals as a table or as one flat JSON object."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from xclearn.cli.progress import say
from xclearn.cli.reading import read_data, warn
from xclearn.cli.showing import print_table
from xclearn.data import Dataset, Reading
from xclearn.data.checks import missed_separator
from xclearn.data.load import is_one_split
from xclearn.data.matching import over_labels
from xclearn.data.splits import as_test
from xclearn.errors import ConfigError
from xclearn.inference.evaluation import evaluate, label_counts
from xclearn.inference.long_texts import Chunks
from xclearn.inference.predictor import Predictor
from xclearn.metrics import Report, intervals, volume_bins


@dataclasses.dataclass(frozen=True)
class Measure:
    """Options from the command line."""

    split: str
    as_json: bool
    bins: bool
    filter_rule: str
    device: str
    reading: Reading
    chunks: Chunks | None = None


def measure(model: Path, source: str, asked: Measure) -> None:
    """Evaluate a model folder on a split of a data set."""
    predictor = Predictor.load(model)
    known = predictor.labels.names
    data = over_labels(_data_of(source, asked, known), known)
    how = {"split": asked.split, "filter_rule": asked.filter_rule, "device": asked.device}
    report = evaluate(predictor, data, **how, chunks=asked.chunks)
    bounds = intervals(report)
    _say_unknown(report)
    if asked.as_json:
        by_bin = _bin_values(report, data) if asked.bins else {}
        sys.stdout.write(json.dumps({**report.values, **bounds, **by_bin}) + "\n")
        return
    print_table(
        ("metric", "percent", "95 % interval"), [_row(name, value, bounds) for name, value in report.values.items()]
    )
    if asked.bins:
        _print_bins(report, data)


def measured_data(source: str, split: str, reading: Reading, known: Sequence[str]) -> Dataset:
    """The data to evaluate on; a single file or folder of full texts is the test split, unless train is requested.

    `known` are the model's labels; warns if other labels look like several of these joined.
    """
    data = read_data(source, reading)
    data = as_test(data) if split == "test" and is_one_split(source) else data
    if split in data.splits:
        warn(missed_separator(data, split, set(known)))
    return data


def _data_of(source: str, asked: Measure, known: Sequence[str]) -> Dataset:
    data = measured_data(source, asked.split, asked.reading, known)
    if asked.bins and not len(data.train):
        todo = "Leave it out, or give a folder with train and test."
        raise ConfigError("a single file has no label frequencies of train", where="--bins", todo=todo)
    return data


def _say_unknown(report: Report) -> None:
    """Warn about labels of the data that the model cannot predict."""
    unknown = report.unknown_labels
    if unknown:
        shown = ", ".join(f"{name} ({count:,})" for name, count in islice(unknown.items(), 5))
        pairs = f"{sum(unknown.values()):,} of {report.relevance.nnz:,} pairs"
        say(f"warning: {len(unknown):,} labels ({pairs}) are unknown to the model and count as misses: {shown}")


def _row(name: str, value: float, bounds: dict[str, float]) -> tuple[str, str, str]:
    low, high = bounds.get(f"{name}_low"), bounds.get(f"{name}_high")
    return name, f"{value:.2f}", "" if low is None or high is None else f"{low:.2f} to {high:.2f}"


def _bin_values(report: Report, data: Dataset) -> dict[str, float]:
    found = volume_bins(report, label_counts(data))
    return {f"bin{i}_P@5": part.contribution for i, part in enumerate(found, 1)}


def _print_bins(report: Report, data: Dataset) -> None:
    rows = [
        (
            f"{part.highest_count:g} to {part.lowest_count:g}",
            f"{part.n_labels:,}",
            f"{part.contribution:.2f}",
            f"{part.recall:.2f}",
        )
        for part in volume_bins(report, label_counts(data))
    ]
    print_table(("train documents per label", "labels", "adds to P@5", "R@5"), rows)
