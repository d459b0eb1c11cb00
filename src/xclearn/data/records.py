"""Reads text records one at a time: JSON lines, CSV, TSV, Parquet, fastText lines.

Every format yields rows as dictionaries; `read_records` and `read_label_rows` interpret the fields. Knows
nothing about label ids, splits or folders.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from xclearn.data.annif import FULL_TEXT, bare_uri, full_text_rows
from xclearn.data.columns import (
    UID_NAMES,
    USUAL,
    Columns,
    Reading,
    columns_of,
    how_to_name,
    split_labels,
    usual_separator,
)
from xclearn.data.folder import DataFile
from xclearn.data.tables import HEADED, NumberedRows, Row, rows_of
from xclearn.errors import DataError
from xclearn.files import numbered_lines

FASTTEXT_PREFIX = "__label__"

_TABLES = ("csv", "tsv", "parquet")  # formats with all labels in one field
_LABEL_FIELDS = frozenset(("label", "uid", "text", "title", "content"))  # fields of a label file


class Record(NamedTuple):
    """A document with its labels: names, or row numbers of the label file if integers."""

    where: str  # file:line
    name: str | None
    text: str
    labels: list[str | int]


class LabelRow(NamedTuple):
    """A row of a label file or a vocabulary."""

    line: int
    name: str
    text: str | None
    others: tuple[str, ...] = ()  # alternative texts of the label


def read_records(file: DataFile, reading: Reading = USUAL) -> Iterator[Record]:
    """The documents of a file; labels in one field of a table are split at `;`, URIs at spaces."""
    if file.suffix == FULL_TEXT:
        yield from (
            Record(str(path), row["uid"], row["text"], row["labels"]) for path, row in full_text_rows(file.path)
        )
        return
    rows = (
        _fasttext_rows(file.path) if file.suffix == "txt" else rows_of(file, reading, partial(_needed, file, reading))
    )
    first: Columns | None = None
    for line, row in rows:
        where = f"{file.path}:{line}"
        columns = columns_of(row, reading, where, header=file.suffix in HEADED)
        first = first or columns  # objects of a file may have different keys, but the same columns
        text = joined_text(row, columns.texts, where) if columns.texts[:1] == first.texts[:1] else None
        labels = row[columns.labels] if columns.labels is not None and columns.labels == first.labels else None
        if text is None or labels is None:
            raise _incomplete(file, row, first, where, text is None, labels is None)
        separator = reading.label_separator or (usual_separator(columns.labels) if file.suffix in _TABLES else None)
        name = _string(row, columns.uid or UID_NAMES[0], where)
        yield Record(where, name, text, _label_list(labels, where, separator))


_HOW = "A label file has the columns label and text; a vocabulary for --vocab has uri and label_en, label_fi, …"


def read_label_rows(file: DataFile) -> Iterator[LabelRow]:
    """The labels of a label file: `label` (or `uid`) and optionally `text`; a .txt file has one name per line."""
    rows = _label_name_rows(file) if file.suffix == "txt" else rows_of(file, USUAL, _LABEL_FIELDS.intersection)
    for line, row in rows:
        where = f"{file.path}:{line}"
        name = _string(row, "label" if "label" in row else "uid", where)
        if not name:
            raise DataError(
                "no 'label' here, or an empty one", where=where, got=", ".join(row), allowed="label, text", todo=_HOW
            )
        texts = ("text",) if "text" in row else ("title", "content") if "title" in row else ()
        yield LabelRow(line, name, joined_text(row, texts, where))


def _needed(file: DataFile, reading: Reading, names: list[str]) -> list[str]:
    """The columns of a Parquet file to read; none if it is incomplete, so that the error lists all."""
    columns = columns_of(names, reading, str(file.path), header=file.suffix in HEADED)
    if not columns.texts or columns.labels is None:
        return []
    return [name for name in (*columns.texts, columns.labels, columns.uid) if name is not None]


def _incomplete(file: DataFile, row: Row, first: Columns, where: str, no_text: bool, no_labels: bool) -> DataError:
    """The error for missing columns, or for missing values if both columns exist."""
    if not first.texts or first.labels is None:
        no_text, no_labels = not first.texts, first.labels is None
    missing, flags = [], []
    if no_text:
        missing.append(f"'{first.texts[0] if first.texts else 'text'}'")
        flags.append("--text-column")
    if no_labels:
        missing.append(f"'{first.labels or 'labels'}'")
        flags.append("--label-column")
    no_column = not first.texts or first.labels is None
    todo = how_to_name(flags, row, header=file.suffix in HEADED and no_column)
    what = f"no {' and '.join(missing)} here"
    return DataError(what, where=where, got=", ".join(row), allowed="text, labels, uid", todo=todo)


def _fasttext_rows(path: Path) -> NumberedRows:
    for number, line in numbered_lines(path):
        words = line.split()
        labels = [word.removeprefix(FASTTEXT_PREFIX) for word in words if word.startswith(FASTTEXT_PREFIX)]
        if number == 1 and not labels:
            allowed = "a header 'documents features labels', or lines with __label__name"
            todo = "Rename a table with columns to .csv or .tsv." if "\t" in line else None
            what = "neither an XC nor a fastText file"
            raise DataError(what, where=f"{path}:1", got=line, allowed=allowed, todo=todo)
        if words:
            text = " ".join(word for word in words if not word.startswith(FASTTEXT_PREFIX))
            yield number, {"text": text, "labels": labels}


def _label_name_rows(file: DataFile) -> NumberedRows:
    """One name per line. `Y.txt` of the XC repository may be Latin-1, and repeated lines get their row number."""
    descriptive = file.stem == "Y"
    seen: set[str] = set()
    for number, line in numbered_lines(file.path, fallback="latin-1" if descriptive else None):
        name = f"{line} #{number - 1}".strip() if descriptive and (not line or line in seen) else line
        seen.add(line)
        yield number, {"label": name}


def joined_text(row: Row, columns: Sequence[str], where: str) -> str | None:
    """The text of these columns, skipping empty ones; None if the first is missing."""
    parts = [_string(row, column, where) for column in columns]
    if len(parts) < 2:
        return parts[0] if parts else None
    return " ".join(part for part in parts if part)


def _string(row: Row, key: str, where: str) -> str | None:
    value = row.get(key)
    if value is not None and not isinstance(value, str):
        raise DataError(f"'{key}' must be a text", where=where, got=value)
    return value


def _label_list(labels: Any, where: str, separator: str | None) -> list[str | int]:
    if separator is not None and isinstance(labels, str):
        return list(split_labels(labels, separator, where))
    if isinstance(labels, list) and labels and all(isinstance(label, dict) for label in labels):
        return [_subject(label, where) for label in labels]
    if not isinstance(labels, list) or not {str, int}.issuperset(map(type, labels)) or "" in labels:
        allowed = "a list of label names (texts) or of row numbers of the label file (integers)"
        todo = "Give the separator of labels with --label-separator." if isinstance(labels, str) else None
        raise DataError("'labels' cannot be read", where=where, got=labels, allowed=allowed, todo=todo)
    return labels


def _subject(subject: Row, where: str) -> str:
    """A label in Annif's JSON: `{"uri": …}` or `{"label": …}`."""
    name = _string(subject, "uri" if "uri" in subject else "label", where)
    if not name:
        raise DataError("a subject has neither 'uri' nor 'label'", where=where, got=subject)
    return bare_uri(name)
