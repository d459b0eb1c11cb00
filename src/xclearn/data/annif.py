"""Annif's corpora: a TSV without a header, and a folder of full texts with their subjects in a file beside each.

Gives rows as the other readers do; knows nothing about vocabularies.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from xclearn.errors import DataError
from xclearn.files import COMPRESSIONS, numbered_lines

SUBJECT_SUFFIXES = (".tsv", ".key")  # beside a full text; where both are there, the first counts, as in Annif
FULL_TEXT = "full text"  # the suffix that stands for a folder of full texts

_URI = re.compile(r"<[^<>\s]+>|(?:[A-Za-z][\w+.-]*://|urn:)[^\s<>]+")
_SEARCHED = 1000  # lines from which on a file without subjects is no corpus


def is_uri(word: str) -> bool:
    """Whether a word is a URI, in angle brackets or without."""
    return _URI.fullmatch(word) is not None


def bare_uri(word: str) -> str:
    """The URI without its angle brackets."""
    return word[1:-1] if word.startswith("<") and word.endswith(">") else word


def begins_with_uri(path: Path) -> bool:
    """Whether the first field of a TSV is a URI: it is a vocabulary."""
    first = next((line for _, line in numbered_lines(path) if line.strip()), "")
    return is_uri(first.partition("\t")[0].strip())


def is_corpus(path: Path) -> bool:
    """Whether the lines of a TSV are `text<tab><uri> <uri>`; the first one with anything after the tab decides."""
    subjects = (line.partition("\t")[2].split() for _, line in islice(numbered_lines(path), _SEARCHED))
    return all(map(is_uri, next(filter(None, subjects), ["none"])))


def corpus_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The lines as rows of the columns that Annif's CSV files have; blank lines are left out."""
    for number, line in numbered_lines(path):
        text, tab, subjects = line.partition("\t")
        if not line.strip():
            continue
        if not tab or not all(map(is_uri, subjects.split())):
            todo = "Of a table with a header, name the columns with --text-column and --label-column."
            raise DataError("no line of an Annif corpus", where=f"{path}:{number}", got=line, allowed=_LINE, todo=todo)
        yield number, {"text": text, "subject_uris": subjects}


_LINE = "a text, a tab, and URIs with spaces between them"


def is_full_text_folder(folder: Path) -> bool:
    """Whether texts stand in it with a file of subjects beside them."""
    return folder.is_dir() and any(map(_subjects_of, filter(_is_text, folder.iterdir())))


def full_text_rows(folder: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Each text with its subjects: URIs where a line has one, or else labels."""
    for path in sorted(filter(_is_text, folder.iterdir())):
        subjects = _subjects_of(path)
        if subjects is None:
            allowed = " or ".join(f"{_name(path)}{suffix}" for suffix in SUBJECT_SUFFIXES)
            raise DataError("no file of subjects beside this text", where=str(path), allowed=allowed)
        text = "\n".join(line for _, line in numbered_lines(path))
        labels = [found for _, line in numbered_lines(subjects) if (found := _subject(line)) is not None]
        yield path, {"uid": _name(path), "text": text, "labels": list(dict.fromkeys(labels))}


def _is_text(path: Path) -> bool:
    return (path.with_suffix("") if path.suffix in COMPRESSIONS else path).suffix == ".txt" and path.is_file()


def _name(text: Path) -> str:
    return (text.with_suffix("") if text.suffix in COMPRESSIONS else text).stem


def _subjects_of(text: Path) -> Path | None:
    found = (text.with_name(_name(text) + suffix) for suffix in SUBJECT_SUFFIXES)
    return next((path for path in found if path.is_file()), None)


def _subject(line: str) -> str | None:
    """The URI of a line `<uri><tab>label`, or its label; None of an empty one."""
    fields = [field.strip() for field in line.split("\t") if field.strip()]
    uris = (bare_uri(field) for field in fields if field.startswith("<") and is_uri(field))
    return next(uris, fields[0] if fields else None)
