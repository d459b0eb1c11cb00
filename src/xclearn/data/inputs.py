"""What is asked of a model: the texts of a table with their other columns, or a text a line. Read one at a time."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from itertools import repeat
from pathlib import Path
from typing import NamedTuple

from xclearn.data.columns import USUAL, Reading, columns_of
from xclearn.data.folder import data_file
from xclearn.data.records import joined_text
from xclearn.data.tables import Row, json_object, rows_of
from xclearn.errors import ConfigError, DataError
from xclearn.files import Lines, name_of, numbered_lines

TABLES = ("jsonl", "json", "csv", "tsv", "parquet")  # the suffixes of files that have columns


class Input(NamedTuple):
    """A text, and all columns of its row; of a line only the text."""

    text: str
    row: Row


def read_inputs(source: Lines, reading: Reading = USUAL) -> Iterator[Input]:
    """The rows of a table by its suffix; of any other file and of a stream a text a line, or JSON objects.

    Of those the first line that is not empty decides. As plain text an empty line is an empty document; between JSON
    objects it is nothing.
    """
    if isinstance(source, str | os.PathLike):
        file = data_file(Path(source))
        if file.suffix in TABLES:
            for line, row in rows_of(file, reading, list):
                yield _input(row, reading, f"{file.path}:{line}")
            return
    yield from _from_lines(source, reading)


def read_documents(source: Lines, reading: Reading = USUAL) -> Iterator[str]:
    """Only the texts of `read_inputs`."""
    return (given.text for given in read_inputs(source, reading))


def _from_lines(source: Lines, reading: Reading) -> Iterator[Input]:
    blank_lines, as_json = 0, None
    for number, line in numbered_lines(source):
        if as_json is None:
            if not line.strip():
                blank_lines += 1
                continue
            as_json = _is_json_object(line)
            if not as_json:
                _refuse_flags(reading, name_of(source))
                yield from map(_line, repeat("", blank_lines))
        if not as_json:
            yield _line(line)
        elif line.strip():
            where = f"{name_of(source)}:{number}"
            yield _input(json_object(line, where), reading, where)
    if as_json is None:
        yield from map(_line, repeat("", blank_lines))


def _line(text: str) -> Input:
    return Input(text, {"text": text})


def _input(row: Row, reading: Reading, where: str) -> Input:
    columns = columns_of(row, reading, where)
    text = joined_text(row, columns.texts, where)
    if text is None:
        todo = "Name the column with --text-column."
        raise DataError("no 'text' here", where=where, got=", ".join(row), allowed="text", todo=todo)
    return Input(text, row)


def _refuse_flags(reading: Reading, where: str) -> None:
    if reading.flags():
        todo = f"A table is known by its suffix: {', '.join(TABLES)}."
        raise ConfigError("lines of text have no columns", where=where, got=" ".join(reading.flags()), todo=todo)


def _is_json_object(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False
