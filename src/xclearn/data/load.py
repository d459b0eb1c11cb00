"""`load_dataset` turns a bundled name, a folder or a file into a `Dataset`.

Combines the output of readers: label names become ids, files become splits. Knows no file format itself.
"""

from __future__ import annotations

import itertools
import os
from array import array
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np
import scipy.sparse as sp

from xclearn.data.annif import FULL_TEXT, is_full_text_folder
from xclearn.data.columns import USUAL, Reading, columns_of
from xclearn.data.dataset import NO_PAIRS, Dataset, Documents, LabelSet, RowNumbers, Split
from xclearn.data.folder import SPLITS, About, DataFile, data_file, find_files, read_about
from xclearn.data.matrices import (
    as_relevance,
    is_xc_file,
    read_features,
    read_filter_pairs,
    read_relevance,
    read_xc,
)
from xclearn.data.propensity import propensity_of
from xclearn.data.records import Record, read_records
from xclearn.data.tables import HEADED, delimiter_of, is_annif, parquet_schema, rows_of
from xclearn.data.vocabulary import read_vocabulary
from xclearn.errors import ConfigError, DataError, nearest
from xclearn.files import numbered_lines
from xclearn.limits import limits, too_much

Parts = Mapping[str, DataFile]

_BUNDLED = Path(__file__).parent / "bundled"


def bundled_datasets() -> list[str]:
    """The names of the bundled data sets."""
    return sorted(path.name for path in _BUNDLED.iterdir() if path.is_dir())


def describe_bundled(name: str) -> str:
    """One line on a bundled data set."""
    return read_about(_BUNDLED / name / "dataset.json").description


def load_dataset(
    source: str | os.PathLike[str],
    *,
    name: str | None = None,
    label_separator: str | None = None,
    vocab: str | os.PathLike[str] | None = None,
    language: str | None = None,
    reading: Reading = USUAL,
) -> Dataset:
    """The data set of a bundled name, a folder, or a single file (which becomes train).

    `name` replaces the source's own name. `reading` gives the columns, the delimiter and the label separator of tables
    if they cannot be detected, and a vocabulary with its language. `label_separator`, `vocab` and `language` are
    shorthand for these fields of `reading`.
    """
    path = _path(source)
    folder = path.is_dir()
    files: dict[str, Parts] = dict(find_files(path)) if folder else {"train": {"records": data_file(path)}}
    about = read_about(path / "dataset.json") if folder else About()
    name = name or about.name or (path.resolve().name if folder else data_file(path).stem)
    reading = replace(
        reading,
        label_separator=label_separator or reading.label_separator or about.label_separator,
        vocab=os.fspath(vocab) if vocab is not None else reading.vocab,
        language=language or reading.language,
    )
    splits, labels, left_out = _read(_with_vocabulary(files, reading.vocab), reading)
    return Dataset(
        name=name,
        train=splits["train"],
        labels=labels,
        test=splits.get("test"),
        dev=splits.get("dev"),
        propensity=about.propensity or propensity_of(name),
        left_out=left_out,
    )


def is_one_split(source: str | os.PathLike[str]) -> bool:
    """Whether the source is a single file or folder of full texts, without a role such as train or test."""
    path = Path(source)
    return path.is_file() or (is_full_text_folder(path) and "train" in find_files(path))


def describe_reading(source: str | os.PathLike[str], reading: Reading = USUAL) -> list[str]:
    """A line about how each table of the source is read, if its columns or delimiter are unusual."""
    path = _path(source)
    parts = find_files(path) if path.is_dir() else {"train": {"records": data_file(path)}}
    files = [parts[role]["records"] for role in SPLITS if "records" in parts.get(role, {})]
    return [line for file in files if (line := _described(file, reading)) is not None]


def _described(file: DataFile, reading: Reading) -> str | None:
    if file.suffix == FULL_TEXT:
        return f"{file.path.name}: full texts, with labels from the .tsv or .key file beside each"
    if file.suffix not in ("csv", "tsv", "parquet"):
        return None
    if is_annif(file, reading):
        return f"{file.path.name}: no header, a text and URIs per line"
    if file.suffix == "parquet":
        names, cut = parquet_schema(file.path).names, ""
    else:
        delimiter = delimiter_of(file, reading)
        names = list(next((row for _, row in rows_of(file, reading, list)), {}))
        cut = "" if delimiter == {"csv": ",", "tsv": "\t"}[file.suffix] else f"delimiter {delimiter!r}, "
    columns = columns_of(names, reading, f"{file.path}:1", header=file.suffix in HEADED)
    usual = not cut and columns.texts == ("text",) and columns.labels == "labels"
    if usual or not columns.texts or columns.labels is None:  # a missing column raises when the table is read
        return None
    texts = " and ".join(f"'{name}'" for name in columns.texts)
    return f"{file.path.name}: {cut}text from {texts}, labels from '{columns.labels}'"


def _path(source: str | os.PathLike[str]) -> Path:
    if source in bundled_datasets():
        return _BUNDLED / source
    path = Path(source)
    if not path.exists():
        todo = nearest(path.name, bundled_datasets())
        raise DataError("no such file, folder or bundled data set", got=os.fspath(source), todo=todo)
    return path


def _with_vocabulary(files: Mapping[str, Parts], vocab: str | None) -> Mapping[str, Parts]:
    if vocab is None:
        return files
    if not Path(vocab).is_file():
        todo = "Give a vocabulary: TSV, CSV or SKOS."
        raise DataError("no such file", where="--vocab", got=vocab, todo=todo)
    if "labels" in files:
        where, todo = _paths(files["labels"]), "Keep one of them."
        raise ConfigError("the folder already has a label file", where=where, got=f"--vocab {vocab}", todo=todo)
    return {**files, "labels": {"records": data_file(Path(vocab))}}


def _read(files: Mapping[str, Parts], reading: Reading) -> tuple[dict[str, Split], LabelSet, Mapping[str, int]]:
    roles = {role: files[role] for role in SPLITS if role in files}
    label_parts = files.get("labels", {})
    with_features = {role: "features" in parts or is_xc_file(parts["records"]) for role, parts in roles.items()}
    if len(set(with_features.values())) > 1:
        raise DataError("some splits have texts, others features", where=_paths(*roles.values()))
    if reading.language is not None and not label_parts:
        todo = "Give the vocabulary with --vocab. To stem words, use --set vectoriser.language=CODE."
        raise ConfigError(
            "only a vocabulary can have several languages", where="--language", got=reading.language, todo=todo
        )
    left_out: Mapping[str, int] = {}
    if with_features["train"]:
        _refuse_columns(reading, _paths(roles["train"]))
        splits, labels = _read_matrices(roles, label_parts, reading.language)
    else:
        splits, labels, left_out = _read_texts(roles, label_parts, reading)
    if not splits["train"].relevance.nnz:
        where = _paths(roles["train"])
        if left_out:
            what = "none of the documents' labels is in the vocabulary (--vocab)"
            allowed = f"such as {labels.names[0]}"
            raise DataError(what, where=where, got=next(iter(left_out)), allowed=allowed)
        raise DataError("no document has a label", where=where)
    return splits, labels, left_out


def _refuse_columns(reading: Reading, where: str) -> None:
    # dataset.json may give the separator
    flags = replace(reading.of_tables, label_separator=None).flags()
    if flags:
        raise ConfigError("features have no text columns", where=where, got=" ".join(flags), todo="Leave it out.")


def _paths(*groups: Parts) -> str:
    return " and ".join(str(file.path) for parts in groups for file in parts.values())


def _split(parts: Parts, documents: Documents, relevance: sp.csr_matrix, names: list[str] | None = None) -> Split:
    pairs = read_filter_pairs(parts["filter"].path, relevance.shape) if "filter" in parts else NO_PAIRS
    return Split(documents, relevance, pairs, names)


# Data sets of features: the matrices give the number of labels.


def _read_matrices(
    roles: Mapping[str, Parts], label_parts: Parts, language: str | None
) -> tuple[dict[str, Split], LabelSet]:
    matrices = {role: _documents_and_relevance(parts) for role, parts in roles.items()}
    widths = {role: (documents.shape[1], relevance.shape[1]) for role, (documents, relevance) in matrices.items()}
    if len(set(widths.values())) > 1:
        what = "the splits differ in their numbers of (features, labels)"
        raise DataError(what, where=_paths(*roles.values()), got=widths)
    n_labels = widths["train"][1]
    if n_labels > limits().labels:
        what = "more labels than the library supports"
        raise too_much("labels", what, where=_paths(roles["train"]), got=n_labels)
    splits = {role: _split(parts, *matrices[role]) for role, parts in roles.items()}
    return splits, _numbered_labels(label_parts, n_labels, language)


def _documents_and_relevance(parts: Parts) -> tuple[sp.csr_matrix | np.ndarray, sp.csr_matrix]:
    if "records" in parts:
        return read_xc(parts["records"].path)
    documents = read_features(parts["features"])
    relevance = read_relevance(parts["relevance"])
    if documents.shape[0] != relevance.shape[0]:
        got = (documents.shape[0], relevance.shape[0])
        raise DataError("documents and their labels differ in rows", where=_paths(parts), got=got)
    return documents, relevance


def _numbered_labels(parts: Parts, n_labels: int, language: str | None) -> LabelSet:
    named = _named_labels(parts["records"], language) if "records" in parts else None
    labels = LabelSet(RowNumbers(n_labels)) if named is None else named.labels
    features = read_features(parts["features"]) if "features" in parts else None
    if features is not None and labels.texts is not None:
        raise DataError("the labels have both texts and features", where=_paths(parts), todo="Keep one of them.")
    for rows in (len(labels), n_labels if features is None else features.shape[0]):
        if rows != n_labels:
            raise DataError(f"train has {n_labels} labels, but the label file does not", where=_paths(parts), got=rows)
    return LabelSet(labels.names, labels.texts if features is None else features)


# Data sets of texts: labels come from the label file, or else from the names that occur.


def _read_texts(
    roles: Mapping[str, Parts], label_parts: Parts, reading: Reading
) -> tuple[dict[str, Split], LabelSet, Mapping[str, int]]:
    if "features" in label_parts:
        raise DataError("documents are texts, labels are features", where=_paths(label_parts))
    given = _named_labels(label_parts["records"], reading.language) if label_parts else None
    ids = _LabelIds(given, is_vocabulary=reading.vocab is not None)
    tables = {role: _read_table(parts["records"], reading, ids) for role, parts in roles.items()}  # train comes first
    if given is None:
        named, label_of_id = ids.sorted_labels(n_train=1 + max(tables["train"].ids, default=-1))
    else:
        named, label_of_id = given.labels, np.arange(len(given.labels))
    splits = {
        role: _split(parts, tables[role].texts, tables[role].relevance(label_of_id), tables[role].names)
        for role, parts in roles.items()
    }
    return splits, named, ids.left_out


class _Named(NamedTuple):
    labels: LabelSet
    called: list[str | None]  # first text of each label


def _named_labels(file: DataFile, language: str | None) -> _Named:
    lines: dict[str, int] = {}  # line of each name
    texts: list[str | None] = []
    called: list[str | None] = []
    for row in read_vocabulary(file, language):
        line = lines.setdefault(row.name, row.line)
        if line != row.line:
            where = f"{file.path}:{line} and {file.path}:{row.line}"
            raise DataError("a label occurs twice in the file", where=where, got=row.name)
        called.append(row.text)
        texts.append("; ".join((row.text or "", *row.others)) if row.others else row.text)
    if not lines:
        raise DataError("the file is empty", where=str(file.path))
    has_text = any(text is not None for text in texts)
    return _Named(LabelSet(list(lines), [text or "" for text in texts] if has_text else None), called)


@final
class _LabelIds:
    """Maps label names or row numbers to ids. Without a label file, names get ids in order of appearance.

    With a vocabulary, labels may also be given by their texts, and unknown labels are left out and counted.
    """

    def __init__(self, given: _Named | None, *, is_vocabulary: bool) -> None:
        self.closed, self.is_vocabulary = given is not None, is_vocabulary
        known = {name: row for row, name in enumerate(given.labels.names if given else ())}
        self.ids = known if self.closed else defaultdict(itertools.count().__next__)  # counts on where a name is new
        self.left_out: Counter[str] = Counter()
        self._rows_of_text: dict[str, list[int]] = {}
        for row, text in enumerate(given.called if given and is_vocabulary else ()):
            self._rows_of_text.setdefault(text or "", []).append(row)

    def of(self, record: Record) -> list[int]:
        known = self._at_once(record.labels)
        if known is not None:
            return known
        found = [
            self._of_name(label, record.where) if isinstance(label, str) else self._of_row(label, record.where)
            for label in record.labels
        ]
        return [label for label in found if label is not None]

    def _at_once(self, labels: list[Any]) -> list[int] | None:
        """Ids of labels that are all names or all rows, and known; sets of millions of documents have little else."""
        types = set(map(type, labels))
        if types == {str} and (not self.closed or self.ids.keys() >= set(labels)):
            return list(map(self.ids.__getitem__, labels))
        if types == {int} and self.closed and min(labels) >= 0 and max(labels) < len(self.ids):
            return labels
        return None

    def _of_name(self, name: str, where: str) -> int | None:
        if not self.closed:
            return self.ids[name]
        if name in self.ids:
            return self.ids[name]
        if not self.is_vocabulary:
            raise DataError("this label is not in the label file", where=where, got=name)
        rows = self._rows_of_text.get(name, [])
        if len(rows) > 1:
            what = f"{len(rows)} labels of the vocabulary have this text"
            todo = "Give the label by its URI."
            raise DataError(what, where=where, got=name, todo=todo)
        self.left_out.update([] if rows else [name])
        return rows[0] if rows else None

    def _of_row(self, row: int, where: str) -> int:
        if not self.closed:
            what = "an integer is a row of the label file"
            todo = "Write label names as strings, or add a label file."
            raise DataError(f"{what}, but there is none", where=where, got=row, todo=todo)
        if not 0 <= row < len(self.ids):
            allowed = f"0 to {len(self.ids) - 1}"
            raise DataError("no such row in the label file", where=where, got=row, allowed=allowed)
        return row

    def sorted_labels(self, n_train: int) -> tuple[LabelSet, np.ndarray]:
        """Sorted names of train, then those only in other splits; and the new position of each id."""
        names = list(self.ids)
        ordered = sorted(names[:n_train]) + sorted(names[n_train:])
        label_of_name = {name: label for label, name in enumerate(ordered)}
        return LabelSet(ordered), np.array([label_of_name[name] for name in names], dtype=np.int64)


class _Table(NamedTuple):
    texts: list[str]
    names: list[str] | None
    starts: array[int]  # start of each record's ids, and the end
    ids: array[int]

    def relevance(self, label_of_id: np.ndarray) -> sp.csr_matrix:
        labels = label_of_id[np.array(self.ids, dtype=np.int64)]
        parts = (np.ones(len(labels), dtype=np.float32), labels, np.array(self.starts))
        return as_relevance(sp.csr_matrix(parts, shape=(len(self.texts), len(label_of_id))))


def _read_table(file: DataFile, reading: Reading, label_ids: _LabelIds) -> _Table:
    texts: list[str] = []
    names: list[str] = []
    starts, ids = array("q", [0]), array("q")
    for record in read_records(file, reading):
        texts.append(record.text)
        ids.extend(label_ids.of(record))
        starts.append(len(ids))
        if record.name is not None:
            names.append(record.name)
        if len(names) not in (0, len(texts)):
            raise DataError("some documents have a 'uid', others do not", where=record.where)
    if not texts:
        headed = file.suffix in HEADED and next(numbered_lines(file.path), None) is not None
        raise DataError("the file has a header and no rows" if headed else "the file is empty", where=str(file.path))
    return _Table(texts, names or None, starts, ids)
