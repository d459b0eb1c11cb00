"""`load_dataset`: a bundled name, a folder or a file becomes a `Dataset`.

Puts together what the readers give: label names become ids, files become splits. Knows no file format itself.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, final

import numpy as np
import scipy.sparse as sp

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
from xclearn.data.records import Record, read_label_rows, read_records
from xclearn.data.tables import delimiter_of, parquet_schema, rows_of
from xclearn.errors import ConfigError, DataError, nearest
from xclearn.limits import limits, too_much

Parts = Mapping[str, DataFile]

_BUNDLED = Path(__file__).parent / "bundled"


def bundled_datasets() -> list[str]:
    """The names of the data sets that come with the package."""
    return sorted(path.name for path in _BUNDLED.iterdir() if path.is_dir())


def describe_bundled(name: str) -> str:
    """One line on a bundled data set."""
    return read_about(_BUNDLED / name / "dataset.json").description


def load_dataset(
    source: str | os.PathLike[str],
    *,
    name: str | None = None,
    label_separator: str | None = None,
    reading: Reading = USUAL,
) -> Dataset:
    """The data set of a bundled name, a folder, or a single file (which is then all train).

    `name` replaces the name that the source gives itself; `reading` names columns, the delimiter, and what stands
    between the labels of a CSV or TSV field (`label_separator` for short), where they are not the usual ones.
    """
    path = _path(source)
    folder = path.is_dir()
    files = find_files(path) if folder else {"train": {"records": data_file(path)}}
    about = read_about(path / "dataset.json") if folder else About()
    name = name or about.name or (path.resolve().name if folder else data_file(path).stem)
    separator = label_separator or reading.label_separator or about.label_separator
    splits, labels = _read(files, replace(reading, label_separator=separator))
    return Dataset(
        name=name,
        train=splits["train"],
        labels=labels,
        test=splits.get("test"),
        dev=splits.get("dev"),
        propensity=about.propensity or propensity_of(name),
    )


def describe_reading(source: str | os.PathLike[str], reading: Reading = USUAL) -> list[str]:
    """A line for each table of the source whose columns or delimiter are not the usual ones: how it is read."""
    path = _path(source)
    parts = find_files(path) if path.is_dir() else {"train": {"records": data_file(path)}}
    files = [parts[role]["records"] for role in SPLITS if "records" in parts.get(role, {})]
    return [line for file in files if (line := _described(file, reading)) is not None]


def _described(file: DataFile, reading: Reading) -> str | None:
    if file.suffix not in ("csv", "tsv", "parquet"):
        return None
    if file.suffix == "parquet":
        names, cut = parquet_schema(file.path).names, ""
    else:
        delimiter = delimiter_of(file, reading)
        names = list(next((row for _, row in rows_of(file, reading, list)), {}))
        cut = "" if delimiter == {"csv": ",", "tsv": "\t"}[file.suffix] else f"delimiter {delimiter!r}, "
    columns = columns_of(names, reading, f"{file.path}:1")
    usual = not cut and columns.texts == ("text",) and columns.labels == "labels"
    if usual or not columns.texts or columns.labels is None:  # what lacks a column is refused when it is read
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


def _read(files: Mapping[str, Parts], reading: Reading) -> tuple[dict[str, Split], LabelSet]:
    roles = {role: files[role] for role in SPLITS if role in files}
    label_parts = files.get("labels", {})
    with_features = {role: "features" in parts or is_xc_file(parts["records"]) for role, parts in roles.items()}
    if len(set(with_features.values())) > 1:
        raise DataError("some splits hold texts, others features", where=_paths(*roles.values()))
    if with_features["train"]:
        _refuse_columns(reading, _paths(roles["train"]))
        splits, labels = _read_matrices(roles, label_parts)
    else:
        splits, labels = _read_texts(roles, label_parts, reading)
    if not splits["train"].relevance.nnz:
        raise DataError("no document has a label", where=_paths(roles["train"]))
    return splits, labels


def _refuse_columns(reading: Reading, where: str) -> None:
    flags = replace(reading, label_separator=None).flags()  # a folder may name the separator of its label file's kind
    if flags:
        raise ConfigError("features have no columns of texts", where=where, got=" ".join(flags), todo="Leave it out.")


def _paths(*groups: Parts) -> str:
    return " and ".join(str(file.path) for parts in groups for file in parts.values())


def _split(parts: Parts, documents: Documents, relevance: sp.csr_matrix, names: list[str] | None = None) -> Split:
    pairs = read_filter_pairs(parts["filter"].path, relevance.shape) if "filter" in parts else NO_PAIRS
    return Split(documents, relevance, pairs, names)


# Sets of features: the matrices say how many labels there are.


def _read_matrices(roles: Mapping[str, Parts], label_parts: Parts) -> tuple[dict[str, Split], LabelSet]:
    matrices = {role: _documents_and_relevance(parts) for role, parts in roles.items()}
    widths = {role: (documents.shape[1], relevance.shape[1]) for role, (documents, relevance) in matrices.items()}
    if len(set(widths.values())) > 1:
        what = "the splits differ in their numbers of (features, labels)"
        raise DataError(what, where=_paths(*roles.values()), got=widths)
    n_labels = widths["train"][1]
    if n_labels > limits().labels:
        what = "more labels than this library names"
        raise too_much("labels", what, where=_paths(roles["train"]), got=n_labels)
    splits = {role: _split(parts, *matrices[role]) for role, parts in roles.items()}
    return splits, _numbered_labels(label_parts, n_labels)


def _documents_and_relevance(parts: Parts) -> tuple[sp.csr_matrix | np.ndarray, sp.csr_matrix]:
    if "records" in parts:
        return read_xc(parts["records"].path)
    documents, relevance = read_features(parts["features"]), read_relevance(parts["relevance"])
    if documents.shape[0] != relevance.shape[0]:
        got = (documents.shape[0], relevance.shape[0])
        raise DataError("documents and their labels differ in rows", where=_paths(parts), got=got)
    return documents, relevance


def _numbered_labels(parts: Parts, n_labels: int) -> LabelSet:
    labels = _named_labels(parts["records"]) if "records" in parts else LabelSet(RowNumbers(n_labels))
    features = read_features(parts["features"]) if "features" in parts else None
    if features is not None and labels.texts is not None:
        raise DataError("the labels have both texts and features", where=_paths(parts), todo="Keep one of them.")
    for rows in (len(labels), n_labels if features is None else features.shape[0]):
        if rows != n_labels:
            raise DataError(f"train has {n_labels} labels, the label file has not", where=_paths(parts), got=rows)
    return LabelSet(labels.names, labels.texts if features is None else features)


# Sets of texts: the label file says what the labels are, or else the names that are found.


def _read_texts(roles: Mapping[str, Parts], label_parts: Parts, reading: Reading) -> tuple[dict[str, Split], LabelSet]:
    if "features" in label_parts:
        raise DataError("documents are texts, labels are features", where=_paths(label_parts))
    named = _named_labels(label_parts["records"]) if label_parts else None
    ids = _LabelIds(named)
    tables = {role: _read_table(parts["records"], reading, ids) for role, parts in roles.items()}  # train comes first
    if named is None:
        named, label_of_id = ids.sorted_labels(n_train=1 + max(tables["train"].ids, default=-1))
    else:
        label_of_id = np.arange(len(named))
    splits = {
        role: _split(parts, tables[role].texts, tables[role].relevance(label_of_id), tables[role].names)
        for role, parts in roles.items()
    }
    return splits, named


def _named_labels(file: DataFile) -> LabelSet:
    lines: dict[str, int] = {}  # of each name
    texts: list[str | None] = []
    for row in read_label_rows(file):
        line = lines.setdefault(row.name, row.line)
        if line != row.line:
            where = f"{file.path}:{line} and {file.path}:{row.line}"
            raise DataError("a label stands in the file twice", where=where, got=row.name)
        texts.append(row.text)
    if not lines:
        raise DataError("the file is empty", where=str(file.path))
    has_text = any(text is not None for text in texts)
    return LabelSet(list(lines), [text or "" for text in texts] if has_text else None)


@final
class _LabelIds:
    """Label name or row number -> id. Without a label file, names get ids as they come."""

    def __init__(self, labels: LabelSet | None) -> None:
        self.closed = labels is not None
        self.ids = {name: row for row, name in enumerate(labels.names if labels else ())}

    def of(self, record: Record) -> list[int]:
        return [
            self._of_name(label, record.where) if isinstance(label, str) else self._of_row(label, record.where)
            for label in record.labels
        ]

    def _of_name(self, name: str, where: str) -> int:
        if not self.closed:
            return self.ids.setdefault(name, len(self.ids))
        if name not in self.ids:
            raise DataError("this label is not in the label file", where=where, got=name)
        return self.ids[name]

    def _of_row(self, row: int, where: str) -> int:
        if not self.closed:
            what, todo = "a whole number means a row of the label file", "Write names as texts, or add a label file."
            raise DataError(f"{what}, and there is none", where=where, got=row, todo=todo)
        if not 0 <= row < len(self.ids):
            allowed = f"0 to {len(self.ids) - 1}"
            raise DataError("no such row in the label file", where=where, got=row, allowed=allowed)
        return row

    def sorted_labels(self, n_train: int) -> tuple[LabelSet, np.ndarray]:
        """Train's names in order, then those that only other splits have; and each id's place among them."""
        names = list(self.ids)
        ordered = sorted(names[:n_train]) + sorted(names[n_train:])
        label_of_name = {name: label for label, name in enumerate(ordered)}
        return LabelSet(ordered), np.array([label_of_name[name] for name in names], dtype=np.int64)


class _Table(NamedTuple):
    texts: list[str]
    names: list[str] | None
    starts: array[int]  # of each record's ids, and the end
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
            raise DataError("some documents have a 'uid', others have not", where=record.where)
    if not texts:
        raise DataError("the file is empty", where=str(file.path))
    return _Table(texts, names or None, starts, ids)
