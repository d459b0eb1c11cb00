"""`xc compare`: several models on one split, with paired tests, bins, and the documents on which they differ."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xclearn.cli.answers import cut
from xclearn.cli.measuring import measured_data
from xclearn.cli.progress import say
from xclearn.cli.showing import print_table
from xclearn.data import Reading
from xclearn.errors import ConfigError
from xclearn.inference.comparison import Comparison, compare
from xclearn.inference.evaluation import label_counts
from xclearn.inference.predictor import Predictor
from xclearn.metrics import Report, disagreement, paired_test, volume_bins

if TYPE_CHECKING:
    from xclearn.data import Dataset

_SHOWN = ("P@1", "P@3", "P@5", "nDCG@5", "PSP@1", "PSP@5", "R@10")
_WIDTH = 100  # characters of a text
_REPEATS = 2_000  # resamples per test: seven metrics take seconds


@dataclasses.dataclass(frozen=True)
class CompareRequest:
    """Options from the command line."""

    split: str
    as_json: bool
    examples: int
    device: str
    reading: Reading


def compare_models(folders: Sequence[str], source: str, asked: CompareRequest) -> None:
    """Print how each model differs from the first."""
    if len(folders) < 2:
        todo = "Give two or more model folders, then the data."
        raise ConfigError("there is nothing to compare", where="MODEL", got=len(folders), todo=todo)
    models = [Predictor.load(Path(folder)) for folder in folders]
    data = measured_data(source, asked.split, asked.reading, models[0].labels.names)
    found = compare(models, data, split=asked.split, device=asked.device)
    facts = _facts(folders, found, asked)
    if asked.as_json:
        sys.stdout.write(json.dumps(facts, ensure_ascii=False) + "\n")
        return
    _print_figures(folders, facts)
    _print_bins(folders, facts)
    for other in facts["against_first"]:
        _print_disagreement(folders[0], other, _texts_of(found.data))


def _facts(folders: Sequence[str], found: Comparison, asked: CompareRequest) -> dict[str, Any]:
    shown = [name for name in _SHOWN if all(name in report.values for report in found.reports)]
    first, *others = found.reports
    trained = len(found.data.train) > 0
    return {
        "models": list(folders),
        "values": [{name: report.values[name] for name in shown} for report in found.reports],
        "bins": [_bins(report, found.data) for report in found.reports] if trained else [],
        "against_first": [
            {
                "model": folder,
                "tests": {name: paired_test(other, first, name, repeats=_REPEATS)._asdict() for name in shown},
                **_difference(first, other, found.data, asked),
            }
            for folder, other in zip(folders[1:], others, strict=True)
        ],
    }


def _bins(report: Report, data: Dataset) -> list[dict[str, Any]]:
    return [part._asdict() for part in volume_bins(report, label_counts(data))]


def _difference(first: Report, other: Report, data: Dataset, asked: CompareRequest) -> dict[str, Any]:
    differing = disagreement(first, other)
    rows = {"first_better": differing.first_better, "second_better": differing.second_better}
    return {
        "first_label_right": {
            name: getattr(differing, name) for name in ("both", "first_only", "second_only", "neither")
        },
        "documents": {name: len(found) for name, found in rows.items()},
        "examples": {
            name: [_example(row, first, other, data, asked.split) for row in found[: asked.examples].tolist()]
            for name, found in rows.items()
        },
    }


def _example(row: int, first: Report, other: Report, data: Dataset, split: str, k: int = 5) -> dict[str, Any]:
    names, documents = data.labels.names, data.split(split).documents
    right = first.relevance[row].indices
    named = lambda ids: [names[label] for label in ids if label >= 0]  # noqa: E731
    return {
        "row": row,
        "text": documents[row] if isinstance(documents, Sequence) else None,
        "right": named(right),
        "first": named(first.ids[row, :k]),
        "second": named(other.ids[row, :k]),
    }


def _print_figures(folders: Sequence[str], facts: dict[str, Any]) -> None:
    for number, folder in enumerate(folders):
        say(f"{number + 1}: {folder}")
    header = ["metric", *(str(number + 1) for number in range(len(folders)))]
    for number in range(1, len(folders)):
        header += [f"{number + 1} − 1", "95 % interval", "p"]
    rows = []
    for name in facts["values"][0]:
        row = [name, *(f"{values[name]:.2f}" for values in facts["values"])]
        for other in facts["against_first"]:
            test = other["tests"][name]
            interval = f"{test['low']:+.2f} to {test['high']:+.2f}"
            row += [f"{test['difference']:+.2f}", interval, f"{test['p_value']:.4f}"]
        rows.append(row)
    print_table(header, rows)


def _print_bins(folders: Sequence[str], facts: dict[str, Any]) -> None:
    if not facts["bins"]:
        return
    header = ["train documents per label", "labels", *(f"R@5 of {number + 1}" for number in range(len(folders)))]
    rows = []
    for parts in zip(*facts["bins"], strict=True):
        part = parts[0]
        frequency = f"{part['highest_count']:g} to {part['lowest_count']:g}"
        rows.append([frequency, f"{part['n_labels']:,}", *(f"{one['recall']:.2f}" for one in parts)])
    print()
    print_table(header, rows)


def _texts_of(data: Dataset) -> dict[str, str]:
    """The text of each label by name, if labels have texts."""
    texts = data.labels.texts
    return dict(zip(data.labels.names, texts, strict=False)) if isinstance(texts, Sequence) else {}


def _print_disagreement(first: str, facts: dict[str, Any], texts: dict[str, str]) -> None:
    right = facts["first_label_right"]
    other = facts["model"]
    print(
        f"\nfirst label correct: both {right['both']:,}, only {first} {right['first_only']:,}, "
        f"only {other} {right['second_only']:,}, neither {right['neither']:,}"
    )
    for better, name in (("first_better", first), ("second_better", other)):
        print(f"\nmore correct labels in the first five of {name}: {facts['documents'][better]:,} documents")
        for example in facts["examples"][better]:
            title = f"row {example['row']}" if example["text"] is None else cut(example["text"], _WIDTH)
            print(f"  {title}")
            for what, labels in (("right", "right"), (first, "first"), (other, "second")):
                print(f"    {what}: {cut(', '.join(texts.get(name) or name for name in example[labels]), _WIDTH)}")
