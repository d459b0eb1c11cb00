"""`xc labels add` and `xc labels remove`: change the labels of a trained model. No mathematics here."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from xclearn.errors import DataError
from xclearn.files import numbered_lines

if TYPE_CHECKING:
    from xclearn.inference import Model

labels_app = typer.Typer(help="Add labels to a model, or remove them, without training.", no_args_is_help=True)

ModelFolder = Annotated[Path, typer.Argument(metavar="MODEL", help="A model folder written by `xc train`.")]
Out = Annotated[
    Path | None, typer.Option("--out", "-o", metavar="NEW", help="Write here; by default MODEL is replaced.")
]


@labels_app.command()
def add(
    model: ModelFolder,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="JSON lines with label, text and optional examples.")],
    out: Out = None,
) -> None:
    """Add labels to a model, from their texts and examples."""
    from xclearn.inference.label_editing import NewLabel, with_labels

    added = [NewLabel.of(_record(line, f"{file}:{number}"), f"{file}:{number}") for number, line in _lines(file)]
    _edit(model, out, lambda loaded: with_labels(loaded, added))


@labels_app.command()
def remove(
    model: ModelFolder,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="One label name per line, or JSON lines with label.")],
    out: Out = None,
) -> None:
    """Remove labels from a model."""
    from xclearn.inference.label_editing import without_labels

    names = [_name(line, f"{file}:{number}") for number, line in _lines(file)]
    _edit(model, out, lambda loaded: without_labels(loaded, names))


def _edit(folder: Path, out: Path | None, change: Callable[[Model], Model]) -> None:
    from xclearn.inference import load_model
    from xclearn.inference.folder import save_model

    before = load_model(folder)
    after = change(before)
    save_model(after, out or folder, replace=out is None)
    print(f"{out or folder}: {before.servable.n_labels:,} labels before, {after.servable.n_labels:,} now")


def _lines(file: Path) -> list[tuple[int, str]]:
    if not file.is_file():
        raise DataError("no such file", where=str(file))
    found = [(number, line.strip()) for number, line in numbered_lines(file) if line.strip()]
    if not found:
        raise DataError("the file lists no labels", where=str(file))
    return found


def _record(line: str, where: str) -> Any:
    try:
        return json.loads(line)
    except ValueError as error:
        raise DataError("not a JSON line", where=where, got=line[:60]) from error


def _name(line: str, where: str) -> str:
    """The label name of a line, which is JSON or the name itself."""
    if not line.startswith("{"):
        return line
    record = _record(line, where)
    if not isinstance(record.get("label"), str):
        raise DataError("the line has no label", where=where, got=line[:60], allowed='{"label": "…"}')
    return str(record["label"])
