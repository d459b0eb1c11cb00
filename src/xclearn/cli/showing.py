"""Tables on stdout: models, algorithms, settings."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from xclearn.cli.progress import say

_UNWRAPPED = 10_000  # columns: wider than any row


def print_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a plain table: fitted to a terminal, or unwrapped and without padding in a pipe."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(*header, box=None, header_style="bold", pad_edge=False)
    table.columns[0].no_wrap = True  # do not wrap names, so that they can be copied
    for row in rows:
        table.add_row(*map(Text, row))  # Text: [brackets] in documents are not markup
    if sys.stdout.isatty():
        Console().print(table)
        return
    console = Console(width=_UNWRAPPED)
    with console.capture() as captured:
        console.print(table)
    print("\n".join(line.rstrip() for line in captured.get().splitlines()))


def show_model(folder: Path, as_json: bool) -> None:
    """Show what a model folder says about itself."""
    from xclearn.inference import load_model

    model = load_model(folder)
    size = sum(path.stat().st_size for path in folder.iterdir() if path.is_file())
    facts = {
        **model.about,
        "n_labels": model.servable.n_labels,
        "n_features": model.servable.vectoriser.n_features,
        "bytes": size,
    }
    if as_json:
        sys.stdout.write(json.dumps(facts, ensure_ascii=False) + "\n")
        return
    print_table(("fact", "value"), _flatten(facts))


def show_label(folder: Path, name: str, as_json: bool, k: int = 10) -> None:
    """Show a label's text and its nearest labels, in the model's graph and by its classifiers."""
    from xclearn.inference import load_model
    from xclearn.inference.labels import LabelIndex
    from xclearn.inference.neighbours import label_graph, near_by_classifier, near_in_graph

    model = load_model(folder)
    label = int(LabelIndex(model.labels).ids([name], "--label")[0])
    graph, texts = label_graph(model.servable), model.labels.texts
    near = {
        "graph": None if graph is None else near_in_graph(graph, label, k),
        "classifier": near_by_classifier(model.servable, label, k),
    }
    names = model.labels.names
    found = {how: None if list_ is None else [(names[i], value) for i, value in list_] for how, list_ in near.items()}
    if as_json:
        facts = {"label": name, "text": texts[label] if isinstance(texts, Sequence) else None, **found}
        sys.stdout.write(json.dumps(facts, ensure_ascii=False) + "\n")
        return
    rows = [(how, other, f"{value:.4f}") for how, list_ in found.items() for other, value in list_ or ()]
    print_table(("near by", "label", "how near"), rows)
    if graph is None:
        say("The model has no label graph.")


def show_algorithms() -> None:
    """List the algorithms: what each is good for, what it costs, and what it is."""
    from xclearn.algorithms import advice, algorithm_names, summary

    header = ("algorithm", "good for", "cost", "what it is")
    print_table(header, [(name, *advice(name), summary(name)) for name in algorithm_names()])


def show_algorithm(name: str) -> None:
    """Show the settings of an algorithm with type, default and meaning."""
    from xclearn.algorithms import find
    from xclearn.config import describe

    rows = [(setting.name, setting.default, setting.help, setting.type) for setting in describe(find(name))]
    print_table(("setting", "default", "meaning", "type"), rows)
    say("\nxc train … --set NAME=VALUE; for part[kind].name: --set part=kind --set part.name=VALUE")


def _flatten(values: dict[str, Any], prefix: str = "") -> Iterable[tuple[str, str]]:
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _flatten(value, f"{prefix}{key}.")
        elif value is None:
            yield f"{prefix}{key}", "auto"
        else:
            yield f"{prefix}{key}", f"{value:.6g}" if isinstance(value, float) else str(value)
