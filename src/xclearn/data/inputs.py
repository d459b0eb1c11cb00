"""What is asked of a model: the texts of a table with their other columns, or a text a line. Read one at a time."""

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

TABLES = ("jsonl", "json", "csv", "tsv", "parquet")  # the suffixes of files that have columns


def _silent(_: str) -> None:
    """Nobody is told."""


class Input(NamedTuple):
    """A text, and all columns of its row; of a line only the text."""

    text: str
    row: Row


def read_inputs(source: Lines, reading: Reading = USUAL, warn: Callable[[str], None] = _silent) -> Iterator[Input]:
    """The rows of a table by its suffix; of any other file and of a stream a text a line, or JSON objects.

    Of those the first line that is not empty decides, unless `reading` names a delimiter: then it is the header of a
    table. As plain text an empty line is an empty document; between JSON objects it is nothing. `warn` is told of a
    first text that looks like a header.
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
        todo = (
            f"A table is known by its suffix ({', '.join(TABLES)}); of other files and streams --delimiter makes one."
        )
        raise ConfigError("lines of text have no columns", where=where, got=" ".join(reading.flags()), todo=todo)


def _warn_of_header(line: str, where: str, warn: Callable[[str], None]) -> None:
    delimiter = delimiter_of_header(line)
    if delimiter is not None:
        warn(f"{where} looks like the header of a table and is read as a text; --delimiter {delimiter} reads columns")


def _is_json_object(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False
