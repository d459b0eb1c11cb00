"""Synthetic sets of the shape of published ones, made on the device they are for, with a truth that can be learnt.

Labels come in groups; half of a label's words are its group's. A document belongs to a group: its labels are the
group's, and its words are words of theirs but for a quarter. So a model that reads words finds the labels, and an
accuracy on held-out documents means something. Words have the long tail of real texts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
import scipy.sparse as sp
import torch

from xclearn.data import Dataset, LabelSet, Split
from xclearn.data.dataset import RowNumbers
from xclearn.parts.rows import SparseRows

_NOISE, _SHARED, _TAIL = 0.25, 0.5, 3.0
_HELD_OUT = 2_000  # documents


@final
@dataclass(frozen=True)
class Shape:
    """The counts of a set."""

    documents: int
    labels: int
    words: int
    length: int  # words of a text
    relevant: int  # labels of a document


SHAPES = {
    "wordnet-related": Shape(93_000, 103_849, 46_000, 10, 3),
    "LF-AmazonTitles-131K": Shape(294_805, 131_073, 40_000, 8, 2),
    "AmazonTitles-670K": Shape(485_176, 670_091, 66_666, 6, 5),
    "LF-AmazonTitles-1.3M": Shape(2_248_619, 1_305_265, 128_000, 8, 22),
    "AmazonTitles-3M": Shape(1_712_536, 2_812_281, 165_431, 8, 36),
    "ten-million": Shape(1_000_000, 10_000_000, 200_000, 8, 5),
    "small": Shape(10_200, 10_700, 6_000, 4, 20),
    "tiny": Shape(2_000, 3_000, 1_000, 6, 5),
}


@final
@dataclass(frozen=True)
class Planted:
    """Documents, their labels and the texts of labels, as rows on a device."""

    documents: SparseRows  # (N, V)
    relevance: SparseRows  # (N, L)
    texts: SparseRows  # (L, V)


def planted(shape: Shape, device: str, seed: int = 0) -> Planted:
    """A set of this shape; the same seed gives the same set on the same kind of device."""
    make = _Maker(shape, torch.Generator(device).manual_seed(seed))
    words = make.label_words()  # (L, length)
    labels = make.document_labels()  # (N, relevant)
    texts = make.document_words(words, labels)  # (N, length)
    weight = shape.length**-0.5
    return Planted(
        _rows(texts, shape.words, weight), _rows(labels, shape.labels, 1.0), _rows(words, shape.words, weight)
    )


def as_dataset(name: str, made: Planted) -> Dataset:
    """The same as a data set of features, its last documents held out as test."""
    held_out = min(_HELD_OUT, len(made.documents) // 10)
    documents, relevance, texts = (matrix(rows) for rows in (made.documents, made.relevance, made.texts))
    train, test = (Split(documents[part], relevance[part]) for part in (slice(0, -held_out), slice(-held_out, None)))
    return Dataset(name, train, LabelSet(RowNumbers(relevance.shape[1]), texts), test)


def matrix(rows: SparseRows) -> sp.csr_matrix:
    """Rows in the memory of the machine."""
    parts = (rows.values.cpu().numpy(), rows.columns.cpu().numpy(), rows.indptr.cpu().numpy())
    return sp.csr_matrix(parts, shape=(len(rows), rows.n_columns))


@final
class _Maker:
    """Draws the parts of a set one after another from one generator."""

    def __init__(self, shape: Shape, generator: torch.Generator) -> None:
        self.shape = shape
        self.generator = generator
        self.device = generator.device

    def label_words(self) -> torch.Tensor:
        """(L, length): place j of a text holds a word of the j-th part of the vocabulary, so that none comes twice."""
        n_groups = -(-self.shape.labels // self.shape.relevant)
        group = torch.arange(self.shape.labels, device=self.device) // self.shape.relevant  # (L,)
        shared = self._words(n_groups)[group]
        return torch.where(self._chance(shared.shape) < _SHARED, shared, self._words(self.shape.labels))

    def document_labels(self) -> torch.Tensor:
        """(N, relevant): the labels of a group; frequent groups have many documents."""
        n_groups = self.shape.labels // self.shape.relevant
        group = (n_groups * self._chance((self.shape.documents, 1)).square()).long()
        return group * self.shape.relevant + torch.arange(self.shape.relevant, device=self.device)

    def document_words(self, words: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """(N, length): each place from one of the document's labels, or any word."""
        n, length = self.shape.documents, self.shape.length
        of = (self._chance((n, length)) * labels.shape[1]).long()
        places = torch.arange(length, device=self.device)
        return torch.where(self._chance((n, length)) < _NOISE, self._words(n), words[labels.gather(1, of), places])

    def _words(self, n: int) -> torch.Tensor:
        part = self.shape.words // self.shape.length
        drawn = (part * self._chance((n, self.shape.length)).pow(_TAIL)).int()
        return drawn + part * torch.arange(self.shape.length, device=self.device, dtype=torch.int32)

    def _chance(self, shape: tuple[int, ...]) -> torch.Tensor:
        return torch.rand(shape, generator=self.generator, device=self.device)


def _rows(columns: torch.Tensor, n_columns: int, value: float) -> SparseRows:
    n, each = columns.shape
    indptr = torch.arange(n + 1, device=columns.device) * each
    values = torch.full((n * each,), value, device=columns.device)
    return SparseRows(indptr, columns.reshape(-1).int(), values, n_columns)


def relevant_share(ids: np.ndarray, relevance: sp.csr_matrix) -> float:
    """Precision of the k best ids (n, k) in percent."""
    rows = np.arange(len(ids))[:, None]
    return float(100 * relevance[rows, ids].mean())
