"""`xc report`: a report of a model on a split, as one self-contained HTML page."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from xclearn.cli import html_page as html
from xclearn.cli.measuring import measured_data
from xclearn.cli.progress import say
from xclearn.data import Reading
from xclearn.data.matching import over_labels
from xclearn.errors import ConfigError, DataError
from xclearn.inference.evaluation import evaluate, label_counts
from xclearn.inference.operating_points import OperatingPoints
from xclearn.inference.predictor import Predictor
from xclearn.metrics import Report, intervals, label_figures, reliability, surest_mistakes, volume_bins
from xclearn.writing import atomic_path

if TYPE_CHECKING:
    from xclearn.data import Dataset

_K = 5  # labels per document for label counts and reliability
_MOST_LABELS = 2000  # maximum rows of the table of labels
_MOST_MISTAKES = 50
_LONGEST = 300  # characters of a text


@dataclasses.dataclass(frozen=True)
class ReportRequest:
    """Options from the command line."""

    out: Path
    overwrite: bool
    split: str
    log: Path | None
    device: str
    reading: Reading


def report_page(folder: Path, source: str, asked: ReportRequest) -> None:
    """Evaluate, and write the page atomically."""
    if asked.out.exists() and not asked.overwrite:
        todo = "Choose another -o, or give --overwrite."
        raise ConfigError("the file already exists", where="-o", got=str(asked.out), todo=todo)
    curves = [] if asked.log is None else list(_training_curves(asked.log))
    predictor = Predictor.load(folder)
    data = measured_data(source, asked.split, asked.reading, predictor.labels.names)
    data = over_labels(data, predictor.labels.names)
    report = evaluate(predictor, data, split=asked.split, device=asked.device)
    title = f"{predictor.about.get('algorithm', 'model')} on {data.name}"
    parts = [*_summary(predictor, data, asked.split), *_parts(report, data, asked.split), *curves]
    with atomic_path(asked.out) as temporary:
        temporary.write_text(html.page(title, parts), encoding="utf-8", errors="replace")
    say(f"report: {asked.out}")


def _summary(predictor: Predictor, data: Dataset, split: str) -> Iterator[str]:
    if purpose := predictor.about.get("purpose"):
        yield html.section("What the model is for", str(purpose))
    facts = {
        "model": predictor.model.summary,
        "measured on": f"{len(data.split(split)):,} documents of {data.name}, {split}",
        "trained for": f"{predictor.about.get('training', {}).get('seconds', '–')} s",
        "xclearn": predictor.about.get("xclearn", "–"),
    }
    yield html.table(("fact", "value"), facts.items())


def _parts(report: Report, data: Dataset, split: str) -> Iterator[str]:
    yield _metrics(report)
    if len(data.train):
        yield _by_frequency(report, data)
    yield _reliability(report)
    yield from _thresholds(report)
    yield _labels(report, data)
    yield _mistakes(report, data, split)


def _metrics(report: Report) -> str:
    bounds = intervals(report)
    rows = [
        (name, value, f"{bounds[f'{name}_low']:.2f} to {bounds[f'{name}_high']:.2f}" if f"{name}_low" in bounds else "")
        for name, value in report.values.items()
    ]
    note = (
        "In percent. P@k: share of the first k labels that are correct. nDCG@k: earlier ones count more. PSP, "
        "PSnDCG: rare labels count more. R@k: share of the correct labels among the first k. C@k: share of all labels "
        "correct for some document that are found for some document. Intervals come from resampled documents."
    )
    return html.section("Accuracy", note, html.table(("metric", "percent", "95 % interval"), rows))


def _by_frequency(report: Report, data: Dataset) -> str:
    bins = volume_bins(report, label_counts(data))
    names = [f"{part.highest_count}–{part.lowest_count}" for part in bins]
    note = (
        "Labels in groups of equal training volume, most frequent first. Below each bar: training documents per label."
    )
    rows = [(name, part.n_labels, part.recall, part.contribution) for name, part in zip(names, bins, strict=True)]
    header = ("train documents per label", "labels", "R@5", "adds to P@5")
    pictures = html.beside(
        html.bars("R@5, percent", names, [part.recall for part in bins]),
        html.bars("Share in P@5, points", names, [part.contribution for part in bins]),
    )
    return html.section("By label frequency", note, pictures, html.table(header, rows))


def _reliability(report: Report) -> str:
    found = reliability(report, k=_K)
    note = (
        f"The first {_K} labels of each document, grouped by score. On the dashed line, scores are the chance that "
        f"labels are correct. Mean distance from it: {found.error:.2f} percentage points (ECE@{_K})."
    )
    curve = (found.score.tolist(), found.right.tolist())
    rows = zip(found.score.tolist(), found.right.tolist(), found.n_given.tolist(), strict=True)
    return html.section(
        "Are scores reliable?",
        note,
        html.beside(html.lines("Share of correct labels by score", {"": curve}, across="mean score", diagonal=True)),
        html.table(("mean score", "share correct", "labels"), rows),
    )


def _thresholds(report: Report) -> Iterator[str]:
    given = report.ids >= 0
    rows = np.nonzero(given)[0]
    n_right = np.diff(report.relevance.indptr)
    scores = np.clip(report.scores[given], 0, 1)
    points = OperatingPoints.of(rows, scores, report.hit[given], n_right)
    if points is None:
        return
    x = points.thresholds.tolist()
    curves = {
        "precision": (x, points.precision.tolist()),
        "recall": (x, points.recall.tolist()),
        "documents with a label": (x, points.coverage.tolist()),
    }
    best = points.best_f1
    note = (
        "Results when labels with lower scores are left out, over all labels and documents. Precision and recall "
        f"are best together (F1) at {best.threshold:.2f}: precision {best.precision:.3f}, recall {best.recall:.3f}."
    )
    yield html.section(
        "Which threshold?", note, html.beside(html.lines("By threshold", curves, across="minimum score"))
    )


def _labels(report: Report, data: Dataset) -> str:
    figures, names = label_figures(report, k=_K), data.labels.names
    texts = data.labels.texts if isinstance(data.labels.texts, Sequence) else None
    seen = np.flatnonzero(figures.n_relevant + figures.n_given)
    order = seen[np.lexsort((seen, -figures.n_relevant[seen]))]
    counts = label_counts(data) if len(data.train) else np.zeros(data.n_labels)
    rows = [_label_row(label, figures, names, texts, counts) for label in order[:_MOST_LABELS].tolist()]
    left_out = f" The {_MOST_LABELS:,} most frequent of {len(order):,}." if len(order) > _MOST_LABELS else ""
    note = f"Counted from the first {_K} labels of each document.{left_out}"
    header = ("label", "text", "in train", "relevant", "given", "right", "precision %", "recall %")
    return html.section("Labels", note, html.table(header, rows, name="labels"))


def _label_row(label: int, figures: Any, names: Sequence[str], texts: Any, counts: np.ndarray) -> tuple[object, ...]:
    relevant, given, right = (int(values[label]) for values in figures)
    precision: object = 100 * right / given if given else "–"
    recall: object = 100 * right / relevant if relevant else "–"
    text = _short(texts[label]) if texts is not None and label < len(texts) else ""
    return names[label], text, int(counts[label]), relevant, given, right, precision, recall


def _mistakes(report: Report, data: Dataset, split: str) -> str:
    documents, names = data.split(split).documents, data.labels.names
    rows = []
    for row, rank in surest_mistakes(report, _MOST_MISTAKES):
        text = _short(documents[row]) if isinstance(documents, Sequence) else f"row {row}"
        right = ", ".join(names[label] for label in report.relevance[row].indices)
        rows.append((text, names[report.ids[row, rank]], float(report.scores[row, rank]), _short(right)))
    note = (
        "Wrong labels with the highest scores, at most one per document. Some are errors in the data: labels that fit "
        "but were not assigned."
    )
    return html.section("Surest mistakes", note, html.table(("text", "given", "score", "right labels"), rows))


def _training_curves(log: Path) -> Iterator[str]:
    """A section on the last run in a log of `xc train --log`."""
    epochs: dict[str, list[dict[str, Any]]] = {}
    number = 0
    try:
        for line in log.read_text(encoding="utf-8").splitlines():
            number += 1
            event = json.loads(line)
            if event["event"] == "plan":
                epochs = {}
            elif event["event"] == "epoch":
                epochs.setdefault(str(event["stage"]), []).append(event)
    except (ValueError, KeyError, TypeError) as error:
        todo = "Give a file that `xc train --log` wrote."
        raise DataError("not a training log", where=f"{log}, line {number}", got=str(error), todo=todo) from error
    if not epochs:
        raise DataError("the log has no epochs", where=str(log), todo="Linear models train without epochs.")
    losses = {stage: _curve(events, "loss") for stage, events in epochs.items()}
    pictures = [html.lines(f"Loss: {stage}", {stage: curve}, across="epoch") for stage, curve in losses.items()]
    scores = {
        stage: _curve([one for one in events if one["score"] is not None], "score") for stage, events in epochs.items()
    }
    scores = {stage: curve for stage, curve in scores.items() if curve[0]}
    if scores:
        pictures.append(html.lines("Score on the hold-out", scores, across="epoch"))
    yield html.section("Training", "", html.beside(*pictures))


def _curve(events: Sequence[dict[str, Any]], value: str) -> tuple[list[float], list[float]]:
    return [float(one["epoch"]) for one in events], [float(one[value]) for one in events]


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
