"""Data sets from Python objects: lists, arrays, pandas, polars and Arrow tables, Hugging Face datasets.

Objects are recognised by their methods; no library is imported. Labels are read as from a table by `load_dataset`.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from xclearn.data.columns import USUAL, Reading, columns_of, split_labels, usual_separator
from xclearn.data.dataset import Dataset, Documents, LabelSet, RowNumbers, Split
from xclearn.data.folder import LABEL_SEPARATOR
from xclearn.data.matrices import as_relevance
from xclearn.errors import ConfigError, DataError

LabelTexts = Mapping[str, str] | Any  # name → text, or a data frame with the columns label and text

_ALLOWED = "a Dataset; texts and labels; a frame (pandas, polars, Arrow, Hugging Face) or dict of columns"


def dataset_of(data: Any, labels: Any = None) -> Dataset:
    """The data set for the arguments of `fit`: a `Dataset`, a data frame, or texts and their labels."""
    if isinstance(data, Dataset):
        if labels is not None:
            raise DataError("a Dataset already has labels", where="labels", todo="Leave the labels out.")
        return data
    if labels is not None:
        return from_lists(data, labels)
    if _names_of(data) is None:
        todo = "Call fit(dataset), fit(texts, labels) or fit(frame)."
        raise DataError("not training data", got=type(data).__name__, allowed=_ALLOWED, todo=todo)
    return from_frame(data)


def from_lists(
    texts: Any,
    labels: Any,
    *,
    label_texts: LabelTexts | None = None,
    label_separator: str = LABEL_SEPARATOR,
    name: str = "data",
) -> Dataset:
    """A data set from texts or features, and for each a list of labels, a text with separators, or a binary row."""
    documents = _documents(texts)
    split, names = _labelled(documents, labels, label_separator)
    if label_texts is None:
        return Dataset(name, split, LabelSet(names))
    says, known = _texts_of_labels(label_texts), set(names)
    more = [label for label in says if label not in known]
    width = (len(split), len(names) + len(more))
    wider = sp.csr_matrix((split.relevance.data, split.relevance.indices, split.relevance.indptr), shape=width)
    names = [*names, *more]
    return Dataset(name, Split(documents, wider), LabelSet(names, [says.get(label, "") for label in names]))


def from_frame(
    frame: Any, reading: Reading = USUAL, *, label_texts: LabelTexts | None = None, name: str = "data"
) -> Dataset:
    """A data set from the columns of a data frame, found by common names or given by `reading`."""
    names = _names_of(frame)
    if names is None:
        raise DataError("not a data frame", got=type(frame).__name__, allowed="something with named columns")
    if reading.vocab is not None:
        raise ConfigError(
            "a data frame cannot have a vocabulary", where="vocab", got=reading.vocab, todo="Give label_texts."
        )
    columns = columns_of(names, reading, name)
    if not columns.texts or columns.labels is None:
        todo = "Give them with Reading(text_column=…, label_column=…)."
        raise DataError("no columns of texts and labels", where=name, got=", ".join(names), todo=todo)
    parts = [_documents(frame[column]) for column in columns.texts]
    texts = parts[0] if len(parts) == 1 else [" ".join(filter(None, row)) for row in zip(*parts, strict=True)]
    separator = reading.label_separator or usual_separator(columns.labels)
    return from_lists(texts, frame[columns.labels], label_texts=label_texts, label_separator=separator, name=name)


def _names_of(frame: Any) -> list[str] | None:
    """The column names of a dict, a pandas or polars frame, an Arrow table or a Hugging Face dataset."""
    if isinstance(frame, Mapping):
        return list(map(str, frame))
    found = getattr(frame, "column_names", None)
    found = getattr(frame, "columns", None) if found is None else found
    if found is None or callable(found) or not hasattr(frame, "__getitem__"):
        return None
    return [column for column in found if isinstance(column, str)]


def _values(column: Any) -> list[Any]:
    """A column as a list of Python values."""
    for method in ("to_pylist", "to_list", "tolist"):  # Arrow; pandas and polars; NumPy
        if hasattr(column, method):
            return list(getattr(column, method)())
    if isinstance(column, str) or not isinstance(column, Iterable):
        raise DataError("not a list of values", got=type(column).__name__, allowed="a list, an array or a column")
    return list(column)


def _documents(texts: Any) -> Documents:
    if sp.issparse(texts):
        return sp.csr_matrix(texts)
    if isinstance(texts, np.ndarray) and texts.ndim == 2:
        return texts
    values = _values(texts)
    for row, text in enumerate(values):
        if not isinstance(text, str):
            raise DataError("a text must be a text", where=f"row {row}", got=text)
    return values


def _labelled(documents: Documents, labels: Any, separator: str) -> tuple[Split, Sequence[str]]:
    """The split, and the label names in order; a matrix numbers its columns."""
    if sp.issparse(labels) or (isinstance(labels, np.ndarray) and labels.ndim == 2):
        relevance = sp.csr_matrix(labels, dtype=np.float32, copy=True)
        relevance.eliminate_zeros()
        if (relevance.data != 1).any():
            raise DataError("the labels are not a binary matrix", where="labels", allowed="zeros and ones")
        return Split(documents, as_relevance(relevance)), RowNumbers(relevance.shape[1])
    ids: dict[Any, int] = {}
    starts, found = array("q", [0]), array("q")
    for row, cell in enumerate(_values(labels)):
        found.extend(ids.setdefault(label, len(ids)) for label in _cell_labels(cell, separator, f"row {row}"))
        starts.append(len(found))
    ordered = sorted(ids)
    new_ids = np.empty(len(ids), dtype=np.int64)
    new_ids[[ids[label] for label in ordered]] = np.arange(len(ids))
    parts = (np.ones(len(found), dtype=np.float32), new_ids[np.array(found, dtype=np.int64)], np.array(starts))
    relevance = as_relevance(sp.csr_matrix(parts, shape=(len(starts) - 1, len(ids))))
    return Split(documents, relevance), ordered


def _cell_labels(cell: Any, separator: str, where: str) -> list[str]:
    """The labels of one document; a missing cell has none, numbers are names."""
    if cell is None or (isinstance(cell, float) and np.isnan(cell)):
        return []
    if isinstance(cell, str):
        return split_labels(cell, separator, where)
    names = [cell] if isinstance(cell, int | np.integer) else _values(cell)
    for name in names:
        if isinstance(name, bool) or not isinstance(name, str | int | np.integer) or name == "":
            raise DataError("a label must be a text or a whole number", where=where, got=name)
    return list(map(str, names))


def _texts_of_labels(label_texts: LabelTexts) -> dict[str, str]:
    names = _names_of(label_texts)
    if isinstance(label_texts, Mapping) and all(isinstance(text, str) for text in label_texts.values()):
        return {str(label): text for label, text in label_texts.items()}
    if names is None or not {"label", "text"} <= set(names):
        allowed = "a dict of texts by label, or a frame with the columns label and text"
        raise DataError("label texts cannot be read", where="label_texts", got=names, allowed=allowed)
    labels = map(str, _values(label_texts["label"]))
    return dict(zip(labels, _documents(label_texts["text"]), strict=True))
