"""A bag of tokens, and optionally of neighbouring pairs, for models that read token sequences.

Knows nothing about vocabularies: tokens are numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, ClassVar, final

import numpy as np
import scipy.sparse as sp

from xclearn.errors import ModelError
from xclearn.inference.components import Encoder, component
from xclearn.inference.declared import Scope, Tensor
from xclearn.inference.sparse import SparseFeatures, unit_rows
from xclearn.text import Vectoriser
from xclearn.text.vectorisers import SEQUENCES, SPARSE_ROWS

_FEWEST = 2  # texts that must contain a pair
_AT_ONCE = 8192  # texts per block
_NO_PAIRS = np.empty(0, dtype=np.int64)


@final
@component("token_bag.v2", "token_bag.v1")  # v1 had no pairs
@dataclass(frozen=True)
class TokenBag(Encoder):
    """Token ids (n, T), padded with −1 → bags of unit length, weighted by idf.

    Columns are V tokens followed by P neighbouring pairs; a pair's number is V · first + second.
    """

    reads: ClassVar[tuple[str, ...]] = (SEQUENCES,)
    gives: ClassVar[str] = SPARSE_ROWS
    idf: Annotated[np.ndarray, Tensor("columns", ("float32",))]  # the weight of each token and pair
    # (P,) numbers of the known pairs, ascending
    pairs: Annotated[np.ndarray, Tensor("pairs", ("int64",), least=0, empty=True)] = field(
        default_factory=lambda: _NO_PAIRS
    )

    @property
    def dim(self) -> int:  # type: ignore[override]
        return len(self.idf)

    @property
    def n_features(self) -> int:  # type: ignore[override]
        return len(self.idf) - len(self.pairs)

    def encode(self, features: sp.csr_matrix | np.ndarray) -> sp.csr_matrix:
        counts = _counts(np.asarray(features), self.n_features, self.pairs)
        return unit_rows(counts.multiply(self.idf).tocsr())

    def fits(self, scope: Scope, /) -> None:
        if self.n_features != scope.sizes["features"]:
            raise ModelError(
                "token_bag.v2 does not have a weight for each token and pair", got=(self.dim, len(self.pairs))
            )
        if (self.pairs[1:] <= self.pairs[:-1]).any() or (self.pairs >= self.n_features**2).any():
            allowed = f"ascending numbers below {self.n_features**2}"
            raise ModelError("token_bag.v2 has pairs of unknown tokens", got=self.pairs[:3], allowed=allowed)


def bag_encoder(vectoriser: Vectoriser, features: sp.csr_matrix | np.ndarray, *, pairs: bool = False) -> Encoder:
    """An encoder that makes sparse unit rows from a vectoriser's features, with idf weights learnt from them.

    With `pairs`, neighbouring pairs in at least two texts count too, if the vectoriser keeps token order.
    """
    if sp.issparse(features) or np.asarray(features).dtype.kind == "f":
        return SparseFeatures(vectoriser.n_features, True)
    ids = np.asarray(features)
    known = _common_pairs(ids, vectoriser.n_features) if pairs else _NO_PAIRS
    counts = _counts(ids, vectoriser.n_features, known)
    documents = np.bincount(counts.indices, minlength=counts.shape[1])
    return TokenBag(np.log((1 + len(ids)) / (1 + documents)).astype(np.float32) + 1, known)


def _counts(ids: np.ndarray, n_tokens: int, pairs: np.ndarray) -> sp.csr_matrix:
    """How often each token and pair occurs in each document (n, V + P)."""
    blocks = [_counted(ids[start : start + _AT_ONCE], n_tokens, pairs) for start in range(0, len(ids), _AT_ONCE)]
    return sp.vstack(blocks, format="csr") if blocks else sp.csr_matrix((0, n_tokens + len(pairs)), dtype=np.float32)


def _counted(ids: np.ndarray, n_tokens: int, pairs: np.ndarray) -> sp.csr_matrix:
    columns = ids
    if len(pairs):
        numbers = _pairs(ids, n_tokens)
        place = np.searchsorted(pairs, numbers)
        known = np.searchsorted(pairs, numbers, side="right") > place
        columns = np.concatenate([ids, np.where(known, n_tokens + place, -1)], axis=1)  # (n, T + T − 1)
    owner, there = np.nonzero(columns >= 0)
    ones = np.ones(len(owner), dtype=np.float32)
    return sp.csr_matrix((ones, (owner, columns[owner, there])), shape=(len(ids), n_tokens + len(pairs)))


def _pairs(ids: np.ndarray, n_tokens: int) -> np.ndarray:
    """The number of each neighbouring pair (n, T − 1), −1 if missing."""
    first = ids[:, :-1].astype(np.int64)
    second = ids[:, 1:].astype(np.int64)
    return np.where((first >= 0) & (second >= 0), first * n_tokens + second, -1)


def _common_pairs(ids: np.ndarray, n_tokens: int) -> np.ndarray:
    """The numbers of pairs that occur in enough texts, ascending (P,)."""
    blocks = (_pairs_of_texts(ids[start : start + _AT_ONCE], n_tokens) for start in range(0, len(ids), _AT_ONCE))
    found, texts = (np.concatenate(parts) for parts in zip((_NO_PAIRS, _NO_PAIRS), *blocks, strict=True))
    pairs, place = np.unique(found, return_inverse=True)
    return pairs[np.bincount(place, texts, minlength=len(pairs)) >= _FEWEST]


def _pairs_of_texts(ids: np.ndarray, n_tokens: int) -> tuple[np.ndarray, np.ndarray]:
    """The pairs of some texts, and the number of texts that contain each."""
    numbers = np.sort(_pairs(ids, n_tokens), axis=1)
    again = np.zeros(numbers.shape, dtype=bool)
    again[:, 1:] = numbers[:, 1:] == numbers[:, :-1]
    return np.unique(numbers[(numbers >= 0) & ~again], return_counts=True)
