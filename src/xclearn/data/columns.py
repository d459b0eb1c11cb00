"""Finds the columns of texts and labels in a table, and its delimiter: as given, or by common names."""

from __future__ import annotations

import ast
import csv
from collections.abc import Iterable, Sequence, Sized
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple, final

from xclearn.data.annif import bare_uri
from xclearn.data.folder import LABEL_SEPARATOR
from xclearn.errors import ConfigError, DataError, nearest

TEXT_NAMES = ("text", "title", "document", "sentence", "content", "body", "description", "abstract", "question")
LABEL_NAMES = (
    *("labels", "target_ind", "label", "tags", "tag", "categories", "category", "subjects", "keywords"),
    *("topics", "topic", "classes", "class", "genres", "subject_uris"),
)
UID_NAMES = ("uid", "document_id")
AS_LIST = "list"  # the label separator for cells that hold a list, such as ['a', 'b']
AS_URIS = "uris"  # for cells that hold URIs separated by spaces, with or without angle brackets

_HEADER_WORDS = 2  # maximum words of a header field
_LONGEST_HEADER = 1_000  # characters; a longer line is text
DELIMITERS = {"comma": ",", "semicolon": ";", "tab": "\t", "pipe": "|"}  # names used by flags


@final
@dataclass(frozen=True)
class Reading:
    """How to read a table; None means detected."""

    text_column: str | None = None
    label_column: str | None = None
    label_separator: str | None = None  # separator of labels in a cell; `list` for cells such as ['a', 'b']
    delimiter: str | None = None  # separator of CSV or TSV fields: one character, or a name in DELIMITERS
    vocab: str | None = None  # a file with the labels and their texts
    language: str | None = None  # language of the labels in a multilingual vocabulary

    def __post_init__(self) -> None:
        if self.delimiter is not None and len(self.delimiter_character or "") != 1:
            allowed = f"one character, or {', '.join(DELIMITERS)}"
            raise ConfigError("not a delimiter", where="--delimiter", got=self.delimiter, allowed=allowed)

    @property
    def delimiter_character(self) -> str | None:
        """The delimiter as a character; `tab` and `\\t` are converted."""
        return self.delimiter and DELIMITERS.get(self.delimiter, self.delimiter.replace("\\t", "\t"))

    def flags(self) -> list[str]:
        """The given options, as command-line flags."""
        asked = {
            "--text-column": self.text_column,
            "--label-column": self.label_column,
            "--label-separator": self.label_separator,
            "--delimiter": self.delimiter,
            "--vocab": self.vocab,
            "--language": self.language,
        }
        return [word for flag, value in asked.items() if value is not None for word in (flag, value)]

    @property
    def of_tables(self) -> Reading:
        """Only the options about tables."""
        return replace(self, vocab=None, language=None)


USUAL = Reading()


@final
class Columns(NamedTuple):
    """The columns that are used."""

    texts: tuple[str, ...]  # joined by a space; empty if there is none
    labels: str | None
    uid: str | None


def columns_of(names: Iterable[str], reading: Reading, where: str, *, header: bool = False) -> Columns:
    """The columns among these names, of a `header` or of keys; raises if a requested one is missing."""
    names = tuple(names)
    for asked, flag in ((reading.text_column, "--text-column"), (reading.label_column, "--label-column")):
        if asked is not None and asked not in names:
            todo = how_to_name((flag,), names, header=True) if header and len(names) == 1 else nearest(asked, names)
            raise DataError(f"no column '{asked}' here ({flag})", where=where, todo=todo)
    return _columns(names, reading.text_column, reading.label_column)


def find_delimiter(header: str, reading: Reading, candidates: Sequence[str]) -> str:
    """The delimiter that splits this header into known columns, or else into the most fields; ties by order."""

    def worth(delimiter: str) -> tuple[bool, int]:
        names = [name.strip() for name in next(csv.reader([header], delimiter=delimiter), [])]
        columns = _columns(tuple(names), reading.text_column, reading.label_column)
        return bool(columns.texts) and columns.labels is not None, len(names)

    return max(candidates, key=worth)


def how_to_name(flags: Sequence[str], names: Sized, *, header: bool) -> str:
    """Advice for when these names, of a header or of keys, have no such column."""
    named = f"ame the column with {' and '.join(flags)}."
    if not header:
        return f"N{named}"
    if len(names) == 1:
        return f"Line 1 is read as the header and has only one field: give the separator with --delimiter, or n{named}"
    return f"Line 1 is read as the header: add one, or n{named}"


def delimiter_of_header(line: str) -> str | None:
    """The name of the delimiter that makes this line a header with a text column, or None."""
    for name, delimiter in DELIMITERS.items() if len(line) <= _LONGEST_HEADER else ():
        fields = [field.strip() for field in next(csv.reader([line], delimiter=delimiter), [])]
        short = all(0 < len(field.split()) <= _HEADER_WORDS for field in fields)
        if len(fields) > 1 and short and _columns(tuple(fields), None, None).texts:
            return name
    return None


def split_labels(cell: str, separator: str, where: str) -> list[str]:
    """The label names of a cell, without surrounding spaces."""
    if separator == AS_URIS:
        return list(map(bare_uri, cell.split()))
    names = _listed(cell, where) if separator == AS_LIST else cell.split(separator)
    return [name for name in map(str.strip, names) if name]


def usual_separator(label_column: str | None) -> str:
    """The default separator of labels in a cell; Annif's column holds URIs."""
    return AS_URIS if label_column is not None and _folded(label_column) == "subject_uris" else LABEL_SEPARATOR


def _listed(cell: str, where: str) -> list[str]:
    try:
        values = ast.literal_eval(cell.strip() or "[]")
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        values = None
    if not isinstance(values, list | tuple | set) or not all(isinstance(value, str | int) for value in values):
        allowed = "a list such as ['a', 'b']"
        todo = "Or give the separator of labels with --label-separator."
        raise DataError("the cell is not a list of labels", where=where, got=cell, allowed=allowed, todo=todo)
    return [str(value) for value in (sorted(values, key=str) if isinstance(values, set) else values)]


@lru_cache(maxsize=256)
def _columns(names: tuple[str, ...], text: str | None, labels: str | None) -> Columns:
    texts = (text,) if text is not None else _texts([name for name in names if name != labels])
    label = labels or _first(LABEL_NAMES, [name for name in names if name not in texts])
    return Columns(texts, label, _first(UID_NAMES, names))


def _texts(names: Sequence[str]) -> tuple[str, ...]:
    """The text columns; raw files of the XC repository have title and content."""
    found = _first(TEXT_NAMES, names)
    if found is None:
        return ()
    content = _first(("content",), names) if found.casefold() == "title" else None
    return (found,) if content is None else (found, content)


def _first(wanted: Sequence[str], names: Sequence[str]) -> str | None:
    """The first wanted name that exists, preferring an exact match over one that ignores case."""
    folded: dict[str, str] = {}
    for name in names:
        folded.setdefault(_folded(name), name)
    return next((name if name in names else folded[name] for name in wanted if name in folded), None)


def _folded(name: str) -> str:
    return name.strip().casefold()
