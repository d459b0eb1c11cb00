"""Reads texts to predict, one at a time: a table with its other columns, or one text per line."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from itertools import repeat
from pathlib import Path
from typing import NamedTuple

from xclearn.data.columns import USUAL, Reading, columns_of, delimiter_of_header, how_to_name
from xclearn.data.folder import data_file
from xclearn.data.records import joined_text
from xclearn.data.tables import HEADED, Row, csv_rows, json_object, rows_of
from xclearn.errors import ConfigError, DataError
from xclearn.files import Lines, name_of, numbered_lines

TABLES = ("jsonl", "json", "csv", "tsv", "parquet")  # suffixes of files with columns


def _silent(_: str) -> None:
    """Ignore a warning."""


class Input(NamedTuple):
    """A text and all columns of its row; for a line, only the text."""

    text: str
    row: Row


def read_inputs(source: Lines, reading: Reading = USUAL, warn: Callable[[str], None] = _silent) -> Iterator[Input]:
    """The rows of a table, recognised by its suffix; from other files and streams, one text or JSON object per line.

    For the latter the first non-empty line decides, unless `reading` gives a delimiter: then it is the header of a
    table. In plain text an empty line is an empty document; between JSON objects it is ignored. `warn` is called if the
    first text looks like a header.
    """
    if isinstance(source, str | os.PathLike):
        file = data_file(Path(source))
        if file.suffix in TABLES:
            for line, row in rows_of(file, reading, list):
                yield _input(row, reading, f"{file.path}:{line}", header=file.suffix in HEADED)
            return
    if reading.delimiter_character is None:
        yield from _from_lines(source, reading, warn)
        return
    for line, row in csv_rows(source, reading.delimiter_character):
        yield _input(row, reading, f"{name_of(source)}:{line}", header=True)


def read_documents(source: Lines, reading: Reading = USUAL) -> Iterator[str]:
    """Only the texts of `read_inputs`."""
    return (given.text for given in read_inputs(source, reading))


def _from_lines(source: Lines, reading: Reading, warn: Callable[[str], None]) -> Iterator[Input]:
    blank_lines, as_json = 0, None
    for number, line in numbered_lines(source):
        if as_json is None:
            if not line.strip():
                blank_lines += 1
                continue
            as_json = _is_json_object(line)
            if not as_json:
                _refuse_flags(reading, name_of(source))
                _warn_of_header(line, f"{name_of(source)}:{number}", warn)
                yield from map(_line, repeat("", blank_lines))
        if not as_json:
            yield _line(line)
        elif line.strip():
            where = f"{name_of(source)}:{number}"
            yield _input(json_object(line, where), reading, where, header=False)
    if as_json is None:
        yield from map(_line, repeat("", blank_lines))


def _line(text: str) -> Input:
    return Input(text, {"text": text})


def _input(row: Row, reading: Reading, where: str, *, header: bool) -> Input:
    columns = columns_of(row, reading, where, header=header)
    text = joined_text(row, columns.texts, where)
    if text is None:
        todo = how_to_name(("--text-column",), row, header=header and not columns.texts)
        raise DataError("no 'text' here", where=where, got=", ".join(row), allowed="text", todo=todo)
    return Input(text, row)


def _refuse_flags(reading: Reading, where: str) -> None:
    if reading.flags():
        todo = f"Tables are recognised by their suffix ({', '.join(TABLES)}); --delimiter makes other input a table."
        raise ConfigError("lines of text have no columns", where=where, got=" ".join(reading.flags()), todo=todo)


def _warn_of_header(line: str, where: str, warn: Callable[[str], None]) -> None:
    delimiter = delimiter_of_header(line)
    if delimiter is not None:
        warn(f"{where} looks like the header of a table but is read as text; --delimiter {delimiter} reads columns")


def _is_json_object(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False
