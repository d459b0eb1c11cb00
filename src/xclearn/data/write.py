"""`write_dataset` writes a `Dataset` to a folder that `load_dataset` reads back as the same data set.

The folder is written atomically. It is an error if the format cannot hold everything in the data set.
"""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from xclearn.data.dataset import Dataset, LabelSet, Split, kind_of
from xclearn.data.folder import LABEL_SEPARATOR
from xclearn.errors import ConfigError, DataError, nearest
from xclearn.writing import atomic_folder

Row = dict[str, Any]

_SEPARATORS = (LABEL_SEPARATOR, "|", "\t", "\x1f")
_BATCH = 10_000  # rows of a Parquet row group


class _Format(NamedTuple):
    documents: tuple[str, ...]  # supported kinds of documents
    label_texts: tuple[str, ...]


_FORMATS = {
    "jsonl": _Format(("texts",), ("texts",)),
    "csv": _Format(("texts",), ("texts",)),
    "parquet": _Format(("texts",), ("texts",)),
    "xc": _Format(("sparse features",), ("texts", "sparse features")),
    "npz": _Format(("sparse features", "dense features"), ("texts", "sparse features", "dense features")),
}
FORMATS = tuple(_FORMATS)


def write_dataset(dataset: Dataset, folder: str | os.PathLike[str], format: str = "jsonl") -> None:
    """Write a new folder in one of `FORMATS`: texts as jsonl, csv or parquet; features as xc (text) or npz."""
    if format not in _FORMATS:
        raise ConfigError("unknown format", got=format, allowed=", ".join(FORMATS), todo=nearest(format, FORMATS))
    _refuse_what_is_lost(dataset, format)
    about = {"name": dataset.name, "propensity": dataset.propensity}
    with atomic_folder(folder) as new:
        try:
            if format in _TABLES:
                about |= _write_texts(dataset, new, format)
            else:
                _write_matrices(dataset, new, format)
            _write_lines(new / "dataset.json", [json.dumps(about, ensure_ascii=False)])
        except UnicodeEncodeError as error:
            raise DataError("a text contains a lone surrogate", got=ascii(error.object)) from error


def _refuse_what_is_lost(dataset: Dataset, format: str) -> None:
    holds = _FORMATS[format]
    for role, split in dataset.splits.items():
        if not len(split):
            raise DataError(f"{role} has no documents to write")
        if kind_of(split.documents) not in holds.documents:
            raise _cannot_hold(format, kind_of(split.documents))
        if split.names is not None and "texts" not in holds.documents:
            raise DataError(f"format {format} cannot hold names of documents", where=role)
    if dataset.labels.texts is not None and kind_of(dataset.labels.texts) not in holds.label_texts:
        raise _cannot_hold(format, kind_of(dataset.labels.texts), "for labels")


def _cannot_hold(format: str, kind: str, what: str = "") -> DataError:
    able = [name for name, holds in _FORMATS.items() if kind in (holds.label_texts if what else holds.documents)]
    return DataError(f"format {format} cannot hold {kind} {what}".strip(), todo=f"Use {' or '.join(able)}.")


# Texts: one table of documents per split, one of labels.


def _write_texts(dataset: Dataset, folder: Path, format: str) -> Row:
    """Write the tables; returns the entries of `dataset.json` about them."""
    names = dataset.labels.names
    separator = _separator(names) if format == "csv" else None
    for role, split in dataset.splits.items():
        _TABLES[format](folder / f"{role}.{format}", _document_rows(split, names, separator))
        _write_filter(folder / f"filter_{role}.txt", split)
    _TABLES[format](folder / f"labels.{format}", _label_rows(dataset.labels))
    return {} if separator is None else {"label_separator": separator}


def _separator(names: Sequence[str]) -> str:
    """The first separator that no name contains; names must not start or end with spaces, which readers strip."""
    fitting = [mark for mark in _SEPARATORS if not any(mark in name for name in names)]
    margins = next((name for name in names if name != name.strip()), None)
    if not fitting or margins is not None:
        raise DataError("the label names do not fit into a CSV field", got=margins, todo="Use jsonl or parquet.")
    return fitting[0]


def _document_rows(split: Split, names: Sequence[str], separator: str | None) -> Iterator[Row]:
    starts, ids = split.relevance.indptr, split.relevance.indices
    for row, text in enumerate(split.documents):
        labels = [names[label] for label in ids[starts[row] : starts[row + 1]]]
        name = {} if split.names is None else {"uid": split.names[row]}
        yield name | {"text": text, "labels": labels if separator is None else separator.join(labels)}


def _label_rows(labels: LabelSet) -> Iterator[Row]:
    if isinstance(labels.texts, Sequence):
        return ({"label": name, "text": text} for name, text in zip(labels.names, labels.texts, strict=True))
    return ({"label": name} for name in labels.names)


def _write_jsonl(path: Path, rows: Iterator[Row]) -> None:
    _write_lines(path, (json.dumps(row, ensure_ascii=False) for row in rows))


def _write_csv(path: Path, rows: Iterator[Row]) -> None:
    first = next(rows)
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(first)
        writer.writerows(row.values() for row in chain([first], rows))


def _write_parquet(path: Path, rows: Iterator[Row]) -> None:
    import pyarrow as pa
    from pyarrow.parquet import ParquetWriter

    first = next(rows)
    types = {key: pa.list_(pa.string()) if key == "labels" else pa.string() for key in first}
    schema = pa.schema(list(types.items()))
    rows = chain([first], rows)
    with ParquetWriter(path, schema) as writer:
        while batch := list(islice(rows, _BATCH)):
            writer.write_table(pa.Table.from_pylist(batch, schema=schema))


_TABLES: dict[str, Callable[[Path, Iterator[Row]], None]] = {
    "jsonl": _write_jsonl,
    "csv": _write_csv,
    "parquet": _write_parquet,
}


# Features: matrices, and the label names beside them.


def _write_matrices(dataset: Dataset, folder: Path, format: str) -> None:
    xc = format == "xc"
    short = {"train": "trn", "dev": "dev", "test": "tst"}
    for role, split in dataset.splits.items():
        _write_matrix(folder / (f"{short[role]}_X_Xf.txt" if xc else f"{role}_X.npz"), split.documents)
        _write_matrix(folder / (f"{short[role]}_X_Y.txt" if xc else f"{role}_Y.npz"), split.relevance)
        _write_filter(folder / (f"filter_labels_{role}.txt" if xc else f"filter_{role}.txt"), split)
    names, texts = dataset.labels.names, dataset.labels.texts
    if texts is not None and not isinstance(texts, Sequence):
        _write_matrix(folder / ("lbl_X_Xf.txt" if xc else "labels_X.npz"), texts)
    if xc and not isinstance(texts, Sequence) and all(name and name.isprintable() for name in names):
        _write_lines(folder / "Y.txt", names)
    else:
        _write_jsonl(folder / "labels.jsonl", _label_rows(dataset.labels))


def _write_matrix(path: Path, matrix: sp.csr_matrix | np.ndarray) -> None:
    if isinstance(matrix, np.ndarray):
        np.save(path.with_suffix(".npy"), matrix, allow_pickle=False)
    elif path.suffix == ".npz":
        sp.save_npz(path, matrix)
    else:
        _write_lines(path, chain([f"{matrix.shape[0]} {matrix.shape[1]}"], _pair_lines(matrix)))


def _pair_lines(matrix: sp.csr_matrix) -> Iterator[str]:
    for start, end in pairwise(matrix.indptr):
        values = matrix.data[start:end].astype(np.float32).astype(str)  # the shortest decimal that reads back the same
        yield " ".join(f"{column}:{value}" for column, value in zip(matrix.indices[start:end], values, strict=True))


def _write_filter(path: Path, split: Split) -> None:
    if len(split.filter_pairs):
        _write_lines(path, (f"{row} {label}" for row, label in split.filter_pairs))


def _write_lines(path: Path, lines: Iterable[str]) -> None:
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        file.writelines(f"{line}\n" for line in lines)
