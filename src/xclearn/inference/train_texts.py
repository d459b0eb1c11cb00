"""Texts of the training set that a model carries as evidence: those of a label that are nearest to what was asked.

Only the texts are stored. They are encoded by the model itself when they are asked for, few at a time. Knows nothing
about why a label was predicted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple, final

import numpy as np
import scipy.sparse as sp

from xclearn.inference.blend import AnyServable, BlendServable
from xclearn.inference.components import component
from xclearn.inference.declared import Part, SizeOf, ids, offsets
from xclearn.inference.servable import Ensemble
from xclearn.inference.sparse import unit_rows
from xclearn.inference.tensors import StringTable

PER_LABEL = 50  # texts kept of a label, its first


class Near(NamedTuple):
    """A text, and the cosine of its vector with that of the text asked for."""

    text: str
    cosine: float


@final
@component("train_texts.v1")
@dataclass(frozen=True)
class TrainTexts(Part):
    """Texts, and which of them have a label."""

    texts: Annotated[StringTable, SizeOf("texts")]
    offsets: Annotated[np.ndarray, offsets("labels", to="entries")]
    rows: Annotated[np.ndarray, ids("entries", below="texts", empty=True)]  # the texts of the labels

    @classmethod
    def of(cls, documents: Sequence[str], relevance: sp.csr_matrix) -> TrainTexts:
        """The first PER_LABEL texts of every label."""
        by_label = sp.csc_matrix(relevance)
        by_label.sort_indices()
        starts = np.repeat(by_label.indptr[:-1], np.diff(by_label.indptr))
        kept = by_label.indices[np.arange(by_label.nnz) - starts < PER_LABEL]
        sizes = np.minimum(np.diff(by_label.indptr), PER_LABEL)
        some, rows = np.unique(kept, return_inverse=True)
        offsets = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
        return cls(StringTable.of([documents[i] for i in some.tolist()]), offsets, rows.astype(np.int32))

    def nearest(self, servable: AnyServable, text: str, label: int, k: int) -> list[Near]:
        """The k texts of a label that are nearest to `text`, the nearest first."""
        texts = self.texts.at(self.rows[self.offsets[label] : self.offsets[label + 1]].astype(np.int64))
        if not texts:
            return []
        vectors = _unit_vectors(servable, [text, *texts])
        cosines = np.asarray(
            (vectors[1:] @ vectors[:1].T).todense() if sp.issparse(vectors) else vectors[1:] @ vectors[0]
        )
        order = np.argsort(-cosines.ravel(), kind="stable")[:k]
        return [Near(texts[i], float(cosines.ravel()[i])) for i in order.tolist()]


def _unit_vectors(servable: AnyServable, texts: list[str]) -> Any:
    """(n, D) of length one, by the encoder that the first scorer reads; sparse where that gives sparse rows."""
    if isinstance(servable, BlendServable):
        return unit_rows(sp.csr_matrix(servable.vectoriser.transform(texts)))
    first = servable.members[0] if isinstance(servable, Ensemble) else servable
    encoded: Any = first.encoders[first.scorers[0].vector].encode(first.vectoriser.transform(texts))
    squares = encoded.multiply(encoded) if sp.issparse(encoded) else encoded * encoded
    norms = np.sqrt(np.asarray(squares.sum(axis=1), dtype=np.float32)).reshape(-1, 1)
    scale = 1 / np.where(norms > 0, norms, 1)
    return encoded.multiply(scale).tocsr() if sp.issparse(encoded) else encoded * scale
