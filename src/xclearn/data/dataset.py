"""The training data of every algorithm: documents, labels and their relevance.

A `Dataset` knows nothing about file formats, how documents become numbers (text/ does that) or models.
Documents are texts, a sparse feature matrix, or a dense array; label texts are of any of these kinds, or absent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import eq
from typing import Any, final, overload

import numpy as np
import scipy.sparse as sp

from xclearn.data.columns import USUAL, Reading
from xclearn.data.shown import html_table
from xclearn.errors import DataError
from xclearn.text.documents import Documents

_SHOWN = 3  # label names in a repr

NO_PAIRS = np.empty((0, 2), dtype=np.int64)
NO_PAIRS.setflags(write=False)


@final
class RowNumbers(Sequence[str]):
    """The names `0`, `1`, … of unnamed labels, made on access, as a header can declare millions."""

    def __init__(self, count: int) -> None:
        self._rows = range(count)

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, row: int) -> str: ...
    @overload
    def __getitem__(self, row: slice) -> list[str]: ...
    def __getitem__(self, row: int | slice) -> str | list[str]:
        return list(map(str, self._rows[row])) if isinstance(row, slice) else str(self._rows[row])

    def __iter__(self) -> Iterator[str]:
        return map(str, self._rows)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, RowNumbers):
            return len(self) == len(other)
        return isinstance(other, Sequence) and len(self) == len(other) and all(map(eq, self, other))

    __hash__ = None  # type: ignore[assignment]  # as of a list


@dataclass(frozen=True)
class LabelSet:
    """The label names in order, with the labels' texts."""

    names: Sequence[str]
    texts: Documents | None = None  # one row per label: texts, sparse or dense features; None if labels are only names

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        shown = ", ".join(repr(self.names[label]) for label in range(min(_SHOWN, len(self))))
        return f"LabelSet({len(self):,} labels: {shown}{', …' if len(self) > _SHOWN else ''})"


@dataclass(frozen=True)
class Split:
    """Documents and their relevant labels."""

    documents: Documents  # n rows
    relevance: sp.csr_matrix  # (n, L) float32, all ones, indices sorted and unique
    filter_pairs: np.ndarray = field(
        default_factory=lambda: NO_PAIRS
    )  # (m, 2) int64 (row, label): ignored in evaluation
    names: Sequence[str] | None = None  # document names (uid), if the source has them

    def __post_init__(self) -> None:
        rows = n_documents(self.documents)
        if rows != self.relevance.shape[0]:
            raise DataError("documents and relevance differ in rows", got=(rows, self.relevance.shape[0]))

    def __len__(self) -> int:
        return self.relevance.shape[0]

    def __repr__(self) -> str:
        return f"Split({len(self):,} {kind_of(self.documents)}, {self.relevance.nnz:,} pairs)"

    def take(self, rows: np.ndarray) -> Split:
        """The split of these rows, in this order, with their filter pairs."""
        new_row = np.full(len(self), -1, dtype=np.int64)
        new_row[rows] = np.arange(len(rows))
        pairs = self.filter_pairs[new_row[self.filter_pairs[:, 0]] >= 0]
        pairs = np.column_stack([new_row[pairs[:, 0]], pairs[:, 1]])
        names = None if self.names is None else [self.names[row] for row in rows]
        return Split(take_documents(self.documents, rows), self.relevance[rows], pairs, names)


@dataclass(frozen=True)
class Dataset:
    """A named data set: train, optional dev and test, labels, and the propensity constants used for it."""

    name: str
    train: Split
    labels: LabelSet
    test: Split | None = None
    dev: Split | None = None
    propensity: tuple[float, float] = (0.55, 1.5)  # (A, B) of Jain et al. 2016
    left_out: Mapping[str, int] = field(default_factory=dict)  # labels missing in the vocabulary → number of documents

    @staticmethod
    def from_lists(texts: Any, labels: Any, **options: Any) -> Dataset:
        """Texts, or features, and the labels of each; see `xclearn.data.in_memory.from_lists` for the options."""
        from xclearn.data.in_memory import from_lists

        return from_lists(texts, labels, **options)

    @staticmethod
    def from_frame(frame: Any, reading: Reading = USUAL, **options: Any) -> Dataset:
        """A pandas, polars or Arrow table, a Hugging Face dataset or a dict of columns; columns as in a CSV file."""
        from xclearn.data.in_memory import from_frame

        return from_frame(frame, reading, **options)

    def __repr__(self) -> str:
        sizes = ", ".join(f"{len(split):,} {role}" for role, split in self.splits.items())
        return f"Dataset({self.name!r}, {self.n_labels:,} labels; {kind_of(self.train.documents)}: {sizes})"

    def _repr_html_(self) -> str:
        texts = self.labels.texts
        rows: list[tuple[str, object]] = [("labels", f"{self.n_labels:,}")]
        rows.append(("label texts", "none" if texts is None else kind_of(texts)))
        rows += [(role, f"{len(split):,} {kind_of(split.documents)}") for role, split in self.splits.items()]
        return html_table(self.name, rows)

    @property
    def n_labels(self) -> int:
        return len(self.labels)

    @property
    def splits(self) -> dict[str, Split]:
        """The existing splits by name, train first."""
        splits = {"train": self.train, "dev": self.dev, "test": self.test}
        return {name: split for name, split in splits.items() if split is not None}

    def split(self, name: str) -> Split:
        """`train`, `dev` or `test`."""
        if name not in self.splits:
            raise DataError(f"data set '{self.name}' has no such split", got=name, allowed=", ".join(self.splits))
        return self.splits[name]


def kind_of(documents: Documents) -> str:
    """`texts`, `sparse features` or `dense features`."""
    if isinstance(documents, Sequence):
        return "texts"
    return "dense features" if isinstance(documents, np.ndarray) else "sparse features"


def n_documents(documents: Documents) -> int:
    """The number of documents of any kind."""
    return len(documents) if isinstance(documents, Sequence) else documents.shape[0]


def take_documents(documents: Documents, rows: np.ndarray) -> Documents:
    """The documents of these rows, in this order."""
    return [documents[row] for row in rows] if isinstance(documents, Sequence) else documents[rows]
