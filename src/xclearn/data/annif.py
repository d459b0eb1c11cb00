"""Annif's corpora: a TSV without a header, and a folder of full texts, each with a file of subjects beside it.

Yields rows like the other readers. Knows nothing about vocabularies.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from xclearn.errors import DataError
from xclearn.files import COMPRESSIONS, numbered_lines

SUBJECT_SUFFIXES = (".tsv", ".key")  # beside a full text; if both exist, the first counts, as in Annif
FULL_TEXT = "full text"  # pseudo suffix of a folder of full texts

_URI = re.compile(r"<[^<>\s]+>|(?:[A-Za-z][\w+.-]*://|urn:)[^\s<>]+")
_SEARCHED = 1000  # a file without subjects in this many lines is not a corpus


def is_uri(word: str) -> bool:
    """Whether a word is a URI, with or without angle brackets."""
    return _URI.fullmatch(word) is not None


def bare_uri(word: str) -> str:
    """The URI without its angle brackets."""
    return word[1:-1] if word.startswith("<") and word.endswith(">") else word


def begins_with_uri(path: Path) -> bool:
    """Whether the first field of a TSV is a URI, as in a vocabulary."""
    first = next((line for _, line in numbered_lines(path) if line.strip()), "")
    return is_uri(first.partition("\t")[0].strip())


def is_corpus(path: Path) -> bool:
    """Whether the lines of a TSV are `text<tab><uri> <uri>`; the first line with anything after the tab decides."""
    subjects = (line.partition("\t")[2].split() for _, line in islice(numbered_lines(path), _SEARCHED))
    return all(map(is_uri, next(filter(None, subjects), ["none"])))


def corpus_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The lines as rows with the columns of Annif's CSV files, without blank lines."""
    for number, line in numbered_lines(path):
        text, tab, subjects = line.partition("\t")
        if not line.strip():
            continue
        if not tab or not all(map(is_uri, subjects.split())):
            todo = "If the table has a header, give the columns with --text-column and --label-column."
            raise DataError(
                "not a line of an Annif corpus", where=f"{path}:{number}", got=line, allowed=_LINE, todo=todo
            )
        yield number, {"text": text, "subject_uris": subjects}


_LINE = "a text, a tab, and URIs separated by spaces"


def is_full_text_folder(folder: Path) -> bool:
    """Whether a folder has texts with files of subjects beside them."""
    return folder.is_dir() and any(map(_subjects_of, filter(_is_text, folder.iterdir())))


def full_text_rows(folder: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Each text with its subjects: the URI of a line if it has one, else the label."""
    for path in sorted(filter(_is_text, folder.iterdir())):
        subjects = _subjects_of(path)
        if subjects is None:
            allowed = " or ".join(f"{_name(path)}{suffix}" for suffix in SUBJECT_SUFFIXES)
            raise DataError("there is no file of subjects beside this text", where=str(path), allowed=allowed)
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
    """The URI of a line `<uri><tab>label`, or its label; None for an empty line."""
    fields = [field.strip() for field in line.split("\t") if field.strip()]
    uris = (bare_uri(field) for field in fields if field.startswith("<") and is_uri(field))
    return next(uris, fields[0] if fields else None)
