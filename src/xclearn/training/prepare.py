"""Turns a data set into the input of every algorithm: vectoriser, features, relevance, and a hold-out if needed.

Knows nothing about modules or devices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar, final

import numpy as np
import scipy.sparse as sp

from xclearn.data.dataset import Dataset, Documents, Split, kind_of
from xclearn.data.splits import hold_out
from xclearn.errors import ConfigError, DataError
from xclearn.text import PretrainedVectoriser, SequenceVectoriser, TextSettings, Vectoriser, vectoriser_for
from xclearn.text.documents import TEXTS, Features
from xclearn.text.encoder_folders import PUBLISHED, encoder_folder
from xclearn.text.word_vectors import WordVectors, read_word_vectors
from xclearn.training.stage import Stopping


@final
@dataclass(frozen=True)
class Size:
    """The counts from which plans and automatic settings are derived."""

    n_documents: int
    n_labels: int
    n_features: int
    n_feature_entries: int
    n_relevant: int
    n_label_entries: int = 0  # stored entries of label features
    n_processes: int = 1  # processes that share the label rows
    n_dev: int = 0  # documents of the dev split, if there is one
    of_texts: bool = False  # whether documents are texts

    @property
    def labels_per_document(self) -> float:
        return self.n_relevant / max(1, self.n_documents)

    def share(self, n_rows: int) -> int:
        """The largest share of label rows that a process holds."""
        return -(-n_rows // self.n_processes)

    def read_by(self, settings: TextSettings) -> Size:
        """About what texts counted in words come to when these settings read them."""
        if not self.of_texts:
            return self
        tokens = settings.tokens_per_word
        return replace(
            self,
            n_features=self.n_features + settings.n_hashed,
            n_feature_entries=round(tokens * self.n_feature_entries),
            n_label_entries=round(tokens * self.n_label_entries),
        )

    @property
    def tokens_per_label(self) -> float:
        return self.n_label_entries / max(1, self.n_labels)

    @property
    def dense(self) -> bool:
        """Whether every document has every feature."""
        return self.n_feature_entries == self.n_documents * self.n_features

    def sparse_tokens(self, batch: int, device: str) -> float | None:
        """Tokens per batch if the token table's gradient is sparse, that is, on a CPU with sparse features."""
        sparse = device == "cpu" and not self.dense
        return batch * self.n_feature_entries / self.n_documents if sparse else None

    @property
    def data_bytes(self) -> int:
        """Bytes of features and relevance on a device."""
        return (4 if self.dense else 8) * self.n_feature_entries + 8 * self.n_relevant + 16 * self.n_documents


T = TypeVar("T")


def required(value: T | None) -> T:
    """A part of the hold-out, or its setting, in a stage that only runs if there is one."""
    assert value is not None, "this stage needs a hold-out"
    return value


@final
@dataclass(frozen=True)
class Prepared:
    """A data set converted to numbers."""

    vectoriser: Vectoriser
    features: Features  # (N, V)
    relevance: sp.csr_matrix  # (N, L)
    label_features: Features | None  # (L, V)
    held_out: Split | None
    held_out_features: Features | None
    label_counts: np.ndarray  # (L,) over the whole train split, hold-out included
    n_train: int  # documents of the whole train split, hold-out included
    propensity: tuple[float, float]
    n_cut: int = 0  # documents truncated to the maximum length
    label_names: Sequence[str] = ()
    source: Dataset | None = None  # the original data set

    @property
    def size(self) -> Size:
        entries = self.features.size  # stored entries of a sparse matrix, all of a dense one
        of_labels = 0 if self.label_features is None else self.label_features.size
        n_documents, n_labels = self.relevance.shape
        return Size(
            n_documents,
            n_labels,
            self.vectoriser.n_features,
            int(entries),
            self.relevance.nnz,
            int(of_labels),
            n_dev=0 if self.source is None or self.source.dev is None else len(self.source.dev),
            of_texts=self.vectoriser.reads == TEXTS,
        )

    def word_vectors(self, path: str, dim: int) -> WordVectors:
        """Word vectors of its tokens from a file or from the transformer in a folder, `dim` numbers each."""
        folder = encoder_folder(path)
        if folder in PUBLISHED or Path(folder).is_dir():
            from xclearn.parts.distilled import distilled

            return distilled(folder, self.vectoriser, dim)
        found = read_word_vectors(path, self.vectoriser.tokens(range(self.vectoriser.n_features)))
        if found.values.shape[1] != dim:
            what = "the word vectors have the wrong length"
            todo = f"Set embedding_dim = {found.values.shape[1]}."
            raise ConfigError(what, where="embedding_dim", got=dim, todo=todo)
        return found


def prepare(data: Dataset, settings: TextSettings, stopping: Stopping | None, seed: int) -> Prepared:
    """Learn the vectoriser and turn documents, label texts and held-out documents into features."""
    if data.train.relevance.nnz == 0:
        raise DataError("no training document has a label", where=data.name, todo="See `xc data validate`.")
    train, held_out = (data.train, None) if stopping is None else _divide(data, stopping, seed)
    label_texts = usable_label_texts(data)
    vectoriser = vectoriser_for(train.documents, settings, label_texts)
    features, n_cut = _features(vectoriser, train.documents)
    return Prepared(
        vectoriser,
        features,
        train.relevance,
        None if label_texts is None else vectoriser.transform(label_texts),
        held_out,
        None if held_out is None else vectoriser.transform(held_out.documents),
        np.asarray(data.train.relevance.sum(axis=0)).ravel(),
        len(data.train),
        data.propensity,
        n_cut,
        data.labels.names,
        data,
    )


def _features(vectoriser: Vectoriser, documents: Documents) -> tuple[Features, int]:
    """Features, and how many documents were truncated."""
    if isinstance(vectoriser, SequenceVectoriser | PretrainedVectoriser):
        return vectoriser.transform_and_count_cuts(documents)
    return vectoriser.transform(documents), 0


def _divide(data: Dataset, stopping: Stopping, seed: int) -> tuple[Split, Split]:
    if data.dev is not None:
        return data.train, data.dev
    train, held_out = hold_out(data, fraction=stopping.hold_out, seed=seed)
    if held_out.relevance.nnz == 0:
        todo = "Leave `stopping` out, or give a dev split."
        raise DataError("too few documents to hold some out", where=data.name, got=len(train), todo=todo)
    return train, held_out


def usable_label_texts(data: Dataset) -> Documents | None:
    """Label texts, if they are of the same kind as the documents; texts and features cannot be mixed."""
    texts, documents = data.labels.texts, data.train.documents
    return texts if texts is not None and (kind_of(texts) == "texts") == (kind_of(documents) == "texts") else None
