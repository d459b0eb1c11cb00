"""Text records, read one at a time: JSON lines, CSV, TSV, Parquet, fastText lines, plain lines.

Every format gives rows as dictionaries; `read_records` and `read_label_rows` give the fields their meaning. Knows
nothing about label ids, splits or folders.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from itertools import pairwise, repeat
from pathlib import Path
from typing import Any, NamedTuple, final

from xclearn.data.folder import DataFile
from xclearn.errors import DataError
from xclearn.files import Lines, name_of, numbered_lines
from xclearn.limits import largest_contents, limits, too_much

FASTTEXT_PREFIX = "__label__"

_FIELDS = ("uid", "label", "text", "title", "content", "labels", "target_ind")
_LARGEST_FIELD = 2**31 - 1  # of a CSV field; Python's own limit of 128 KiB is less than a long document
_ROWS_AT_ONCE = 4096  # of a Parquet file

Row = dict[str, Any]
NumberedRows = Iterator[tuple[int, Row]]


class Record(NamedTuple):
    """A document: its labels are names, or row numbers of the label file where they are integers."""

    where: str  # file:line
    name: str | None
    text: str
    labels: list[str | int]


class LabelRow(NamedTuple):
    """A row of a label file."""

    line: int
    name: str
    text: str | None


def read_records(file: DataFile, separator: str) -> Iterator[Record]:
    """The documents of a file; `separator` stands between the label names of a CSV, TSV or Parquet text field."""
    rows = _fasttext_rows(file.path) if file.suffix == "txt" else _rows(file)
    split_by = separator if file.suffix in ("csv", "tsv", "parquet") else None
    for line, row in rows:
        where = f"{file.path}:{line}"
        text, labels = _text(row, where), row.get("labels", row.get("target_ind"))
        if text is None or labels is None:
            missing = " and ".join(f"'{key}'" for key, value in (("text", text), ("labels", labels)) if value is None)
            raise DataError(f"no {missing} here", where=where, got=", ".join(row), allowed="text, labels, uid")
        yield Record(where, _string(row, "uid", where), text, _label_list(labels, where, split_by))


def read_label_rows(file: DataFile) -> Iterator[LabelRow]:
    """The labels of a label file: `label` (or `uid`) and, where there is one, `text`; a .txt has one name a line."""
    for line, row in _label_name_rows(file) if file.suffix == "txt" else _rows(file):
        where = f"{file.path}:{line}"
        name = _string(row, "label" if "label" in row else "uid", where)
        if not name:
            raise DataError("no 'label' here, or an empty one", where=where, got=", ".join(row), allowed="label, text")
        yield LabelRow(line, name, _text(row, where))


def read_documents(source: Lines) -> Iterator[str]:
    """The texts to predict for: a text a line, or the `text` of JSON objects; the first line that is not empty decides.

    As plain text an empty line is an empty document; between JSON objects it is nothing.
    """
    blank_lines, as_json = 0, None
    for number, line in numbered_lines(source):
        if as_json is None:
            if not line.strip():
                blank_lines += 1
                continue
            as_json = _is_json_object(line)
            if not as_json:
                yield from repeat("", blank_lines)
        if not as_json:
            yield line
        elif line.strip():
            yield _document_text(line, f"{name_of(source)}:{number}")
    if as_json is None:
        yield from repeat("", blank_lines)


def _document_text(line: str, where: str) -> str:
    row = _json_object(line, where)
    text = _text(row, where)
    if text is None:
        raise DataError("no 'text' here", where=where, got=", ".join(row), allowed="text")
    return text


def _is_json_object(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _rows(file: DataFile) -> NumberedRows:
    match file.suffix:
        case "jsonl" | "json":
            return _json_rows(file.path)
        case "csv":
            return _csv_rows(file.path, ",")
        case "tsv":
            return _csv_rows(file.path, "\t")
        case "parquet":
            return _parquet_rows(file.path)
    allowed = "jsonl, json, csv, tsv, parquet, txt (also with .gz, .xz, .bz2, .zst)"
    raise DataError("the suffix says no format that holds texts", where=str(file.path), allowed=allowed)


def _json_rows(path: Path) -> NumberedRows:
    for number, line in numbered_lines(path):
        if line and not line.isspace():
            yield number, _json_object(line, f"{path}:{number}")


def _json_object(line: str, where: str) -> Row:
    try:
        row = json.loads(line)
        if "\\ud" in line or "\\uD" in line:  # half of a surrogate pair is valid JSON and no text
            json.dumps(row, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise DataError(f"not a JSON object on one line ({error})", where=where, got=line) from error
    if not isinstance(row, dict):
        raise DataError("not a JSON object on one line", where=where, got=line)
    return row


def _csv_rows(path: Path, delimiter: str) -> NumberedRows:
    csv.field_size_limit(min(limits().line, _LARGEST_FIELD))
    lines = _RowLines(path)
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    header: list[str] = []
    start = 1
    try:
        for fields in reader:
            if not header:
                header = [field.strip() for field in fields]
            elif fields:
                if len(fields) != len(header):
                    raise DataError(f"{len(header)} fields expected", where=f"{path}:{start}", got=len(fields))
                yield start, dict(zip(header, fields, strict=True))
            start = reader.line_num + 1
            lines.start_row(start)
    except csv.Error as error:
        raise DataError(f"not readable as a table ({error})", where=f"{path}:{start}") from error


@final
class _RowLines(Iterator[str]):
    """The lines of a table. A row may take several, together no longer than a line may be: a quote that is never
    closed makes one row of all that follows."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lines = numbered_lines(path, keep_ends=True)
        self._longest = limits().line
        self.start_row(1)

    def start_row(self, line: int) -> None:
        self._start = line
        self._characters = 0

    def __next__(self) -> str:
        _, line = next(self._lines)
        self._characters += len(line)
        if self._characters > self._longest:
            what = "a row of the table is too long; is a quote left open?"
            raise too_much("line", what, where=f"{self._path}:{self._start}")
        return line


def _parquet_rows(path: Path) -> NumberedRows:
    """Rows of the columns that mean something here. Run lengths and dictionaries can make millions of long texts of a
    few bytes: repeated values stay one value, and what comes out is counted."""
    from pyarrow.parquet import ParquetFile, read_metadata

    number, seen = 0, 0
    try:
        metadata, most = read_metadata(path), largest_contents(path)
        leaves = _plausible_leaves(metadata, path, most)
        with ParquetFile(path, metadata=metadata, read_dictionary=leaves) as file:
            columns = _readable_columns(file.schema_arrow)
            if not columns and metadata.num_rows:
                yield 1, {}  # who asked for the rows says what they lack
                return
            for batch in _batches(file, columns):
                for values in zip(*map(_shared_values, batch.columns), strict=True):
                    number += 1
                    seen += sum(map(_characters, values))
                    if seen > most:
                        what = "the file unpacks to more text than its size makes plausible"
                        raise too_much("expansion", what, where=f"{path}:{number}", most=most)
                    yield number, dict(zip(columns, values, strict=True))
    except DataError:
        raise
    except Exception as error:  # a damaged file fails in as many ways as Arrow has parts
        raise DataError(f"not readable as Parquet ({error})", where=f"{path}:{number + 1}") from error


def _batches(file: Any, columns: list[str]) -> Iterator[Any]:
    """A row group at a time: each has dictionaries of its own, and Arrow cannot join those of lists."""
    for group in range(file.num_row_groups):
        yield from file.iter_batches(_ROWS_AT_ONCE, row_groups=[group], columns=columns, use_threads=False)


def _plausible_leaves(metadata: Any, path: Path, most: int) -> list[str]:
    """The paths of the columns to read, all of whose values and bytes the file can plausibly hold."""
    leaves = set()
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        for column in map(group.column, range(group.num_columns)):
            if column.path_in_schema.split(".")[0] in _FIELDS:
                leaves.add(column.path_in_schema)
                claimed = max(metadata.num_rows, column.num_values, column.total_uncompressed_size)
                if claimed > most:
                    what = "the file claims more rows, values or bytes than its size makes plausible"
                    raise too_much("expansion", what, where=str(path), got=claimed, most=most)
    return sorted(leaves)


def _readable_columns(schema: Any) -> list[str]:
    from pyarrow import types

    columns = [field for field in schema if field.name in _FIELDS]
    for field in columns:
        inner = field.type.value_type if types.is_list(field.type) or types.is_large_list(field.type) else field.type
        inner = inner.value_type if types.is_dictionary(inner) else inner
        if types.is_nested(inner) or types.is_dictionary(inner):
            raise ValueError(f"column '{field.name}' is of type {field.type}")
    return [field.name for field in columns]


def _shared_values(column: Any) -> list[Any]:
    """The values of an Arrow array as Python has them, equal texts being one object."""
    from pyarrow import types

    if types.is_dictionary(column.type):
        rows = column.indices.to_pylist()
        words = {row: column.dictionary[row].as_py() for row in set(rows) - {None}}
        return [words.get(row) for row in rows]
    if types.is_list(column.type) or types.is_large_list(column.type):
        inner, spans = _shared_values(column.values), pairwise(column.offsets.to_pylist())
        present = column.is_valid().to_pylist()
        return [inner[start:end] if here else None for (start, end), here in zip(spans, present, strict=True)]
    return column.to_pylist()


def _characters(value: Any) -> int:
    """How much of a file this value takes at least, were nothing packed."""
    if isinstance(value, list):
        return 1 + sum(map(_characters, value))
    return 1 + len(value) if isinstance(value, str | bytes) else 1


def _fasttext_rows(path: Path) -> NumberedRows:
    for number, line in numbered_lines(path):
        words = line.split()
        labels = [word.removeprefix(FASTTEXT_PREFIX) for word in words if word.startswith(FASTTEXT_PREFIX)]
        if number == 1 and not labels:
            allowed = "a header 'documents features labels', or lines with __label__name"
            raise DataError("neither an XC nor a fastText file", where=f"{path}:1", got=line, allowed=allowed)
        if words:
            text = " ".join(word for word in words if not word.startswith(FASTTEXT_PREFIX))
            yield number, {"text": text, "labels": labels}


def _label_name_rows(file: DataFile) -> NumberedRows:
    """One name a line. `Y.txt` of the XC repository describes: it may be Latin-1, and equal lines get their row."""
    descriptive = file.stem == "Y"
    seen: set[str] = set()
    for number, line in numbered_lines(file.path, fallback="latin-1" if descriptive else None):
        name = f"{line} #{number - 1}".strip() if descriptive and (not line or line in seen) else line
        seen.add(line)
        yield number, {"label": name}


def _text(row: Row, where: str) -> str | None:
    """`text`, or the title and content of the XC repository's raw files; None when the row has neither."""
    if "text" in row or "title" not in row:
        return _string(row, "text", where)
    parts = (_string(row, "title", where), _string(row, "content", where))
    return " ".join(part for part in parts if part)


def _string(row: Row, key: str, where: str) -> str | None:
    value = row.get(key)
    if value is not None and not isinstance(value, str):
        raise DataError(f"'{key}' must be a text", where=where, got=value)
    return value


def _label_list(labels: Any, where: str, separator: str | None) -> list[str | int]:
    if separator is not None and isinstance(labels, str):
        return [name for name in map(str.strip, labels.split(separator)) if name]
    if not isinstance(labels, list) or not {str, int}.issuperset(map(type, labels)) or "" in labels:
        allowed = "a list of label names (texts) or of row numbers of the label file (integers)"
        raise DataError("'labels' cannot be read", where=where, got=labels, allowed=allowed)
    return labels
