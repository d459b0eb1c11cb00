"""Reads rows of tables one at a time, as dictionaries: JSON lines, CSV, TSV and Parquet. Does not interpret fields."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, final

from xclearn.data.annif import begins_with_uri, corpus_rows, is_corpus
from xclearn.data.columns import DELIMITERS, USUAL, Reading, find_delimiter
from xclearn.data.folder import RDF_SUFFIXES, DataFile
from xclearn.errors import ConfigError, DataError
from xclearn.files import Lines, name_of, numbered_lines
from xclearn.limits import largest_contents, limits, too_much

_LARGEST_FIELD = 2**31 - 1  # of a CSV field; Python's default limit of 128 KiB is too small for long documents
_ROWS_AT_ONCE = 4096  # per batch of a Parquet file
_DELIMITERS = {"csv": tuple(DELIMITERS.values()), "tsv": ("\t",)}  # suffix → possible delimiters

_SPREADSHEETS = ("xlsx", "xls", "ods", "numbers")
HEADED = tuple(_DELIMITERS)  # suffixes of tables with a header line

Row = dict[str, Any]
NumberedRows = Iterator[tuple[int, Row]]
Choose = Callable[[list[str]], Iterable[str]]  # selects the columns of a Parquet file to read


def rows_of(file: DataFile, reading: Reading, choose: Choose) -> NumberedRows:
    """The rows of a file with the line or row where each begins; from a Parquet file, only the chosen columns."""
    if reading.delimiter is not None and file.suffix not in _DELIMITERS:
        got = f"a {file.suffix} file"
        raise ConfigError("only CSV and TSV have a delimiter", where=f"--delimiter for {file.path}", got=got)
    match file.suffix:
        case "jsonl" | "json":
            return _json_rows(file.path)
        case "tsv" if is_annif(file, reading):
            return corpus_rows(file.path)
        case "csv" | "tsv":
            return csv_rows(file.path, delimiter_of(file, reading))
        case "parquet":
            return _parquet_rows(file.path, choose)
    allowed = "jsonl, json, csv, tsv, parquet, txt (also with .gz, .xz, .bz2, .zst)"
    todo = "Give a SKOS vocabulary with --vocab." if file.suffix in RDF_SUFFIXES else None
    if file.suffix in _SPREADSHEETS:
        todo = "Save the sheet as CSV (UTF-8)."
    raise DataError("the suffix is not that of a text format", where=str(file.path), allowed=allowed, todo=todo)


def is_annif(file: DataFile, reading: Reading) -> bool:
    """Whether a .tsv has no header but a text and URIs per line; raises for a vocabulary."""
    if file.suffix != "tsv" or reading.of_tables != USUAL:
        return False
    found = is_corpus(file.path)
    if not found and begins_with_uri(file.path):
        todo = "Give a vocabulary with --vocab, and the documents as DATA."
        raise DataError("this is a vocabulary, not documents with labels", where=str(file.path), todo=todo)
    return found


def delimiter_of(file: DataFile, reading: Reading) -> str:
    """The given or detected delimiter; a .tsv has tabs."""
    given = reading.delimiter_character
    candidates = _DELIMITERS[file.suffix]
    if given is not None or len(candidates) == 1:
        return given or candidates[0]
    lines = numbered_lines(file.path)
    header = next((line for _, line in lines if line.strip()), "")
    return find_delimiter(header, reading, candidates)


def parquet_schema(path: Path) -> Any:
    """The names and types of a Parquet file's columns."""
    from pyarrow.parquet import read_schema

    try:
        return read_schema(path)
    except Exception as error:  # a damaged file fails in as many ways as Arrow has parts
        raise _no_parquet(path, 1, error) from error


def _json_rows(path: Path) -> NumberedRows:
    for number, line in numbered_lines(path):
        if line and not line.isspace():
            yield number, json_object(line, f"{path}:{number}")


def json_object(line: str, where: str) -> Row:
    """The object on a line of JSON."""
    try:
        row = json.loads(line)
        if "\\ud" in line or "\\uD" in line:  # a lone surrogate is valid JSON but not valid text
            json.dumps(row, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise DataError(f"not a JSON object on one line ({error})", where=where, got=line, todo=_how(line)) from error
    if not isinstance(row, dict):
        raise DataError("not a JSON object on one line", where=where, got=line, todo=_how(line))
    return row


def _how(line: str) -> str | None:
    """How to convert a JSON array of objects."""
    return "Write one object per line: jq -c '.[]' OLD.json > NEW.jsonl." if line.lstrip().startswith("[") else None


def csv_rows(source: Lines, delimiter: str) -> NumberedRows:
    """The rows of a table with a header, from a file or a stream, with the line where each begins."""
    csv.field_size_limit(min(limits().line, _LARGEST_FIELD))
    lines, path = _RowLines(source), name_of(source)
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    header: list[str] = []
    start = 1
    try:
        for fields in reader:
            if not header:
                header = [field.strip() for field in fields]
            elif fields:
                if len(fields) != len(header):
                    todo = f"Fields are separated by {delimiter!r}; --delimiter sets another."
                    what = f"{len(header)} fields expected"
                    raise DataError(what, where=f"{path}:{start}", got=len(fields), todo=todo)
                yield start, dict(zip(header, fields, strict=True))
            start = reader.line_num + 1
            lines.start_row(start)
    except csv.Error as error:
        raise DataError(f"not readable as a table ({error})", where=f"{path}:{start}") from error


@final
class _RowLines(Iterator[str]):
    """The lines of a table. A row may take several, together no longer than a line may be: a quote that is never
    closed makes one row of all that follows."""

    def __init__(self, source: Lines) -> None:
        self._path = name_of(source)
        self._lines = numbered_lines(source, keep_ends=True)
        self._longest = limits().line
        self.start_row(1)

    def start_row(self, line: int) -> None:
        self._start = line
        self._characters = 0

    def __next__(self) -> str:
        _, line = next(self._lines)
        self._characters += len(line)
        if self._characters > self._longest:
            what = "a row of the table is too long; is a quote not closed?"
            raise too_much("line", what, where=f"{self._path}:{self._start}")
        return line


def _parquet_rows(path: Path, choose: Choose) -> NumberedRows:
    """Rows of the columns chosen. Run lengths and dictionaries can make millions of long texts of a
    few bytes: repeated values stay one value, and what comes out is counted."""
    from pyarrow.parquet import ParquetFile, read_metadata

    number, seen = 0, 0
    try:
        metadata, most = read_metadata(path), largest_contents(path)
        names = list(metadata.schema.to_arrow_schema().names)
        columns = list(choose(names))
        leaves = _plausible_leaves(metadata, path, most, columns)
        with ParquetFile(path, metadata=metadata, read_dictionary=leaves) as file:
            if not columns and metadata.num_rows:
                yield 1, dict.fromkeys(names)  # the caller reports what they lack
                return
            _refuse_nested(file.schema_arrow, columns)
            for batch in _batches(file, columns):
                for values in zip(*map(_shared_values, batch.columns), strict=True):
                    number += 1
                    seen += sum(map(_characters, values))
                    if seen > most:
                        what = "the file unpacks to more text than is plausible for its size"
                        raise too_much("expansion", what, where=f"{path}:{number}", most=most)
                    yield number, dict(zip(columns, values, strict=True))
    except DataError:
        raise
    except Exception as error:  # a damaged file fails in as many ways as Arrow has parts
        raise _no_parquet(path, number + 1, error) from error


def _no_parquet(path: Path, row: int, error: Exception) -> DataError:
    if isinstance(error, FileNotFoundError):
        return DataError("no such file", where=str(path))
    return DataError(f"not readable as Parquet ({error})", where=f"{path}:{row}")


def _batches(file: Any, columns: list[str]) -> Iterator[Any]:
    """Batches of one row group at a time, as each has its own dictionaries and Arrow cannot merge those of lists."""
    for group in range(file.num_row_groups):
        yield from file.iter_batches(_ROWS_AT_ONCE, row_groups=[group], columns=columns, use_threads=False)


def _plausible_leaves(metadata: Any, path: Path, most: int, columns: list[str]) -> list[str]:
    """The paths of the columns to read, after checking that the file can plausibly hold their values and bytes."""
    leaves = set()
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        for column in map(group.column, range(group.num_columns)):
            if column.path_in_schema.split(".")[0] in columns:
                leaves.add(column.path_in_schema)
                claimed = max(metadata.num_rows, column.num_values, column.total_uncompressed_size)
                if claimed > most:
                    what = "the file declares more rows, values or bytes than is plausible for its size"
                    raise too_much("expansion", what, where=str(path), got=claimed, most=most)
    return sorted(leaves)


def _refuse_nested(schema: Any, columns: list[str]) -> None:
    from pyarrow import types

    for field in map(schema.field, columns):
        inner = field.type.value_type if types.is_list(field.type) or types.is_large_list(field.type) else field.type
        inner = inner.value_type if types.is_dictionary(inner) else inner
        if types.is_nested(inner) or types.is_dictionary(inner):
            raise ValueError(f"column '{field.name}' is of type {field.type}")


def _shared_values(column: Any) -> list[Any]:
    """The values of an Arrow array as Python objects, with equal texts shared."""
    from pyarrow import types

    if types.is_dictionary(column.type):
        rows = column.indices.to_pylist()
        words = {row: column.dictionary[row].as_py() for row in set(rows) - {None}}
        return [words.get(row) for row in rows]
    if types.is_list(column.type) or types.is_large_list(column.type):
        inner = _shared_values(column.values)
        spans = pairwise(column.offsets.to_pylist())
        present = column.is_valid().to_pylist()
        return [inner[start:end] if here else None for (start, end), here in zip(spans, present, strict=True)]
    return column.to_pylist()


def _characters(value: Any) -> int:
    """The minimum size of a value in an uncompressed file."""
    if isinstance(value, list):
        return 1 + sum(map(_characters, value))
    return 1 + len(value) if isinstance(value, str | bytes) else 1
