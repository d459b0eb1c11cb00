"""Writes predictions for people, programs or spreadsheets, to stdout or atomically to a file."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO, final

from xclearn.data.inputs import Input
from xclearn.data.tables import Row
from xclearn.errors import ConfigError, DataError, nearest
from xclearn.inference.predictor import Suggestion
from xclearn.integrations.arrow import PREDICTIONS, answer_type, plain

Block = Sequence[tuple[Input, list[Suggestion]]]
Write = Callable[[Block], None]

_DELIMITERS = {"csv": ",", "tsv": "\t"}
_FORMATS = ("table", "jsonl", "tsv", "csv", "parquet")


@final
@dataclass(frozen=True)
class Output:
    """The destination and format of predictions, from the command line."""

    path: Path | None = None  # None: stdout
    format: str = ""  # empty: by the file's suffix; a table on stdout
    overwrite: bool = False

    def chosen_format(self) -> str:
        """The format, checked together with the file."""
        suffix = "" if self.path is None else self.path.suffix.removeprefix(".").lower()
        found = self.format or suffix or "table"
        if found not in _FORMATS:
            where, todo = ("--format", None) if self.format else ("-o", "Or say which with --format.")
            todo = todo or nearest(found, _FORMATS)
            raise ConfigError("unknown format", where=where, got=found, allowed=", ".join(_FORMATS), todo=todo)
        if found == "parquet" and self.path is None:
            raise ConfigError("Parquet cannot be written to stdout", where="--format", todo="Give a file with -o.")
        if self.path is not None and self.path.exists() and not self.overwrite:
            todo = "Choose another -o, or give --overwrite to replace it."
            raise ConfigError("the file already exists", where="-o", got=str(self.path), todo=todo)
        return found


@contextlib.contextmanager
def writer(output: Output, k: int, with_texts: bool, schema: Any = None) -> Iterator[Write]:
    """A function that writes a block of predictions; `schema` is that of a Parquet input whose columns are kept."""
    from xclearn.writing import atomic_path

    chosen = output.chosen_format()
    if output.path is None:
        yield _on_stream(chosen, sys.stdout, k, with_texts)
        return
    with atomic_path(output.path) as path:
        if chosen == "parquet":
            with _ParquetAnswers(path, schema) as answers:
                yield answers.write
        else:
            with path.open("w", encoding="utf-8", newline="") as stream:
                yield _on_stream(chosen, stream, k, with_texts)


def _on_stream(chosen: str, stream: TextIO, k: int, with_texts: bool) -> Write:
    if chosen in _DELIMITERS:
        return _TableAnswers(stream, k, with_texts, _DELIMITERS[chosen]).write

    def write(block: Block) -> None:
        stream.writelines(WRITERS[chosen](given, found) for given, found in block)
        stream.flush()

    return write


def _jsonl(given: Input, found: list[Suggestion]) -> str:
    _refuse_taken(given.row, (PREDICTIONS,))
    return json.dumps(given.row | {PREDICTIONS: list(map(plain, found))}, ensure_ascii=False, default=str) + "\n"


def _table(given: Input, found: list[Suggestion]) -> str:
    rows = "".join(f"  {suggestion.score:6.3f}  {label_text(suggestion)}\n" for suggestion in found)
    return f"{cut(_one_line(given.text), 200)}\n{rows}"


WRITERS: dict[str, Callable[[Input, list[Suggestion]], str]] = {"table": _table, "jsonl": _jsonl}


@final
class _TableAnswers:
    """One row per text for spreadsheets: the input columns, then label and score of each rank."""

    def __init__(self, stream: TextIO, k: int, with_texts: bool, delimiter: str) -> None:
        self._stream, self._delimiter = stream, delimiter
        self._parts = ("label", "score", "label_text") if with_texts else ("label", "score")
        self._added = [f"{part}_{rank}" for rank in range(1, k + 1) for part in self._parts]
        self._columns: list[str] = []

    def write(self, block: Block) -> None:
        lines = io.StringIO(newline="")
        table = csv.writer(lines, delimiter=self._delimiter, lineterminator="\n")
        for given, found in block:
            if not self._columns:
                _refuse_taken(given.row, self._added)
                self._columns = list(given.row)
                table.writerow([*self._columns, *self._added])
            _refuse_other_keys(given.row, self._columns)
            cells = [_cell(value) for suggestion in found for value in self._values(suggestion)]
            missing = [""] * (len(self._added) - len(cells))
            table.writerow([*(_cell(given.row.get(column)) for column in self._columns), *cells, *missing])
        self._stream.write(lines.getvalue())
        self._stream.flush()

    def _values(self, suggestion: Suggestion) -> tuple[Any, ...]:
        return (suggestion.label, f"{suggestion.score:.6f}", suggestion.text)[: len(self._parts)]


@final
class _ParquetAnswers(contextlib.AbstractContextManager["_ParquetAnswers"]):
    """The input columns, and a list of label, score and text."""

    def __init__(self, path: Path, schema: Any) -> None:
        self._path, self._schema = path, schema  # None: inferred from the first block
        self._file: Any = None

    def write(self, block: Block) -> None:
        import pyarrow as pa

        rows = [given.row for given, _ in block]
        try:
            if self._file is None:
                self._open(rows)
            table = [row | {PREDICTIONS: list(map(plain, found))} for row, (_, found) in zip(rows, block, strict=True)]
            for row in rows:
                _refuse_other_keys(row, self._schema.names)
            self._file.write_table(pa.Table.from_pylist(table, schema=self._schema))
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
            what = f"a value does not fit into its Parquet column ({error})"
            todo = "Write JSON lines: -o FILE.jsonl."
            raise DataError(what, todo=todo) from error

    def _open(self, rows: list[Row]) -> None:
        import pyarrow as pa
        from pyarrow.parquet import ParquetWriter

        schema = pa.Table.from_pylist(rows).schema if self._schema is None else self._schema
        fields = [pa.field(field.name, pa.string()) if pa.types.is_null(field.type) else field for field in schema]
        _refuse_taken(dict.fromkeys(schema.names), (PREDICTIONS,))
        self._schema = pa.schema([*fields, pa.field(PREDICTIONS, answer_type())])
        self._file = ParquetWriter(self._path, self._schema)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._file is None and kind is None:
            self._open([])
        if self._file is not None:
            self._file.close()


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return json.dumps(value, ensure_ascii=False, default=str) if isinstance(value, list | dict) else str(value)


def _refuse_taken(row: Row, added: Sequence[str]) -> None:
    taken = [name for name in added if name in row]
    if taken:
        raise DataError("the input already has a column of this name", got=taken[0], todo="Rename it.")


def _refuse_other_keys(row: Row, columns: Sequence[str]) -> None:
    other = [key for key in row if key not in columns]
    if other:
        what = "a row has a key that is missing in the first rows"
        todo = "Write JSON lines: -o FILE.jsonl."
        raise DataError(what, got=other[0], todo=todo)


def _one_line(text: str) -> str:
    return " ".join(text.split())


def label_text(suggestion: Suggestion, width: int = 100) -> str:
    """A label for people: its name, and its text if that differs."""
    extra = "" if suggestion.text in (None, suggestion.label) else f"  {suggestion.text}"
    return cut(f"{suggestion.label}{extra}", width)


def cut(text: str, width: int) -> str:
    """The text truncated to `width` characters, with an ellipsis."""
    return text if len(text) <= width else f"{text[: width - 1]}…"
