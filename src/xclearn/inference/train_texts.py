"""Training texts stored in a model as evidence: the texts of a label that are nearest to a query.

Only the texts are stored; the model encodes them on request, a few at a time. Knows nothing about why a label was
predicted.
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

PER_LABEL = 50  # texts kept per label, the first ones


class Near(NamedTuple):
    """A text, and the cosine of its vector with the query's."""

    text: str
    cosine: float


@final
@component("train_texts.v1")
@dataclass(frozen=True)
class TrainTexts(Part):
    """Training texts, and the texts of each label."""

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
        """The k texts of a label that are nearest to `text`, nearest first."""
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
    """Unit vectors (n, D) from the encoder of the first scorer; sparse if the encoder's rows are sparse."""
    if isinstance(servable, BlendServable):
        return unit_rows(sp.csr_matrix(servable.vectoriser.transform(texts)))
    first = servable.members[0] if isinstance(servable, Ensemble) else servable
    encoded: Any = first.encoders[first.scorers[0].vector].encode(first.vectoriser.transform(texts))
    squares = encoded.multiply(encoded) if sp.issparse(encoded) else encoded * encoded
    norms = np.sqrt(np.asarray(squares.sum(axis=1), dtype=np.float32)).reshape(-1, 1)
    scale = 1 / np.where(norms > 0, norms, 1)
    return encoded.multiply(scale).tocsr() if sp.issparse(encoded) else encoded * scale
