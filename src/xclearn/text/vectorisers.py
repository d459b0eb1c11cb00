"""Vectorisers turn documents into numbers; they are saved in the model folder.

Vectorisers are immutable; `settings` has the code that learns them. `to_state` gives only arrays, numbers, texts and
lists of texts; `from_state` accepts nothing else and validates all of it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self, final

import numpy as np
import scipy.sparse as sp

from xclearn.errors import DataError, ModelError, nearest
from xclearn.kernels.texts import BagRules, text_bags
from xclearn.text.documents import (
    DENSE,
    SPARSE,
    TEXTS,
    Documents,
    as_float32,
    check_texts,
    require,
)
from xclearn.text.preparation import PLAIN, Preparation
from xclearn.text.tokenisers import TOKENISERS, Tokeniser, WordPieceTokeniser, WordTokeniser
from xclearn.text.weighting import DAMPED, Weighting, rows_of, unit_rows

State = dict[str, object]
SPARSE_ROWS = "sparse rows"
DENSE_ROWS = "dense rows"
SEQUENCES = "token ids in order"  # a form of features
_MANY = 1000  # texts that are worth the native core's table of tokens
LONGEST_TEXT = 1 << 16  # tokens of a sequence: every text is padded to this length
MOST_FEATURES = 1 << 26  # width of the feature space
PREPARED: dict[str, type] = {"unicode": bool, "language": str}  # state fields that describe how texts are prepared


class Vectoriser(ABC):
    """Turns documents into rows of numbers."""

    kind: ClassVar[str]  # name and version of the state's format
    reads: ClassVar[str]  # the kind of documents the model was trained on
    gives: ClassVar[str]  # the form of their features

    @property
    @abstractmethod
    def n_features(self) -> int:
        """Width V of the feature space; ids are below it."""

    @abstractmethod
    def transform(self, documents: Documents) -> sp.csr_matrix | np.ndarray:
        """One row per document: weights (n, V) float32, or token ids (n, T) int32 of sequences."""

    @abstractmethod
    def transform_one(self, text: str) -> tuple[np.ndarray, np.ndarray]:
        """Ids (m,) int32 ascending and weights (m,) float32, bit-equal to the text's row in `transform`."""

    @abstractmethod
    def tokens(self, ids: Sequence[int] | np.ndarray) -> list[str]:
        """Readable names of these ids."""

    @abstractmethod
    def to_state(self) -> State:
        """Everything that `from_state` needs."""

    @classmethod
    @abstractmethod
    def from_state(cls, state: Mapping[str, object]) -> Self:
        """The vectoriser with this state; an invalid state raises `ModelError`."""


class TfidfVectoriser(Vectoriser):
    """Abstract: texts as TF-IDF weighted bags of tokens."""

    reads, gives = TEXTS, SPARSE_ROWS
    _tokeniser_type: ClassVar[type[Tokeniser]]

    def __init__(self, tokens: list[str], weighting: Weighting, preparation: Preparation = PLAIN) -> None:
        self._tokeniser = self._tokeniser_type(tokens, preparation.words)
        self._weighting, self.preparation = weighting, preparation

    @property
    def n_features(self) -> int:
        return len(self._tokeniser.tokens)

    def transform(self, documents: Documents) -> sp.csr_matrix:
        texts = require(documents, TEXTS)
        if len(texts) >= _MANY:
            starts, ids, weights = text_bags(self._rules(), self.preparation.all(texts))
            return sp.csr_matrix((weights, ids, starts), shape=(len(texts), self.n_features))
        bags = token_counts(self._tokeniser, texts)
        weights = self._weighting.weigh(bags.indices, bags.data, rows_of(bags.indptr))
        return sp.csr_matrix((weights, bags.indices, bags.indptr), shape=bags.shape)

    def transform_one(self, text: str) -> tuple[np.ndarray, np.ndarray]:
        check_texts([text])
        count_of_id = Counter(self._tokeniser.encode_one(text))
        ordered = sorted(count_of_id)
        ids = np.array(ordered, dtype=np.int32)
        counts = np.array([count_of_id[i] for i in ordered], dtype=np.int32)
        return ids, self._weighting.weigh(ids, counts, np.zeros(ids.size, dtype=np.int64))

    def tokens(self, ids: Sequence[int] | np.ndarray) -> list[str]:
        return [self._tokeniser.tokens[i] for i in ids]

    def _rules(self) -> BagRules:
        """The same for the native core."""
        weighting, prepared = self._weighting, not self.preparation.is_plain
        damped = DAMPED if weighting.sublinear else np.empty(0)
        pieces = self._tokeniser_type is WordPieceTokeniser
        return BagRules(self._tokeniser.tokens, pieces, prepared, weighting.idf, damped, weighting.normalise)

    def to_state(self) -> State:
        weighting = self._weighting
        return {
            "tokens": self._tokeniser.tokens,
            "idf": weighting.idf,
            "sublinear": weighting.sublinear,
            "normalise": weighting.normalise,
            "unicode": self.preparation.unicode,
            "language": self.preparation.language,
        }

    @classmethod
    def from_state(cls, state: Mapping[str, object]) -> Self:
        kinds = {"tokens": list, "idf": np.ndarray, "sublinear": bool, "normalise": bool}
        tokens, idf, sublinear, normalise, unicode, language = _fields(cls.kind, state, **kinds, **PREPARED)
        preparation = Preparation(unicode, language)
        preparation.check(cls.kind)
        _check_tokens(cls.kind, tokens)
        if idf.dtype != np.float64 or idf.shape != (len(tokens),) or not ((idf > 0) & (idf < 100)).all():
            allowed = f"({len(tokens)},) float64, above 0 and below 100"
            raise ModelError("idf does not fit the tokens", where=cls.kind, got=idf, allowed=allowed)
        return cls(tokens, Weighting(idf, sublinear, normalise), preparation)


@final
class WordVectoriser(TfidfVectoriser):
    """Bags of whole words and runs of words."""

    kind = "words.v2"
    _tokeniser_type = WordTokeniser


@final
class WordPieceVectoriser(TfidfVectoriser):
    """Bags of word pieces."""

    kind = "wordpiece.v2"
    _tokeniser_type = WordPieceTokeniser


@final
class SequenceVectoriser(Vectoriser):
    """Token ids in text order, truncated at `max_length` and padded with −1."""

    kind = "sequences.v1"
    reads, gives = TEXTS, SEQUENCES

    def __init__(self, unit: str, tokens: list[str], max_length: int) -> None:
        self.max_length = max_length
        self._unit = unit
        self._tokeniser = TOKENISERS[unit](tokens)

    @property
    def n_features(self) -> int:
        return len(self._tokeniser.tokens)

    def transform(self, documents: Documents) -> np.ndarray:
        return self.transform_and_count_cuts(documents)[0]

    def transform_and_count_cuts(self, documents: Documents) -> tuple[np.ndarray, int]:
        """Ids (n, T) int32, and how many texts were truncated to T tokens."""
        encoded, ends = self._tokeniser.encode(require(documents, TEXTS))
        lengths = np.diff(ends)  # (n,)
        rows = rows_of(ends)
        columns = np.arange(encoded.size) - ends[rows]
        kept = columns < self.max_length
        ids = np.full((lengths.size, self.max_length), -1, dtype=np.int32)  # (n, T)
        ids[rows[kept], columns[kept]] = encoded[kept]
        return ids, int(np.count_nonzero(lengths > self.max_length))

    def transform_one(self, text: str) -> tuple[np.ndarray, np.ndarray]:
        """Ids (t,) int32 in text order, t at most T, and weights of one."""
        check_texts([text])
        ids = np.array(self._tokeniser.encode_one(text)[: self.max_length], dtype=np.int32)
        return ids, np.ones(ids.size, dtype=np.float32)

    def tokens(self, ids: Sequence[int] | np.ndarray) -> list[str]:
        return [self._tokeniser.tokens[i] for i in ids if i >= 0]

    def to_state(self) -> State:
        return {"unit": self._unit, "tokens": self._tokeniser.tokens, "max_length": self.max_length}

    @classmethod
    def from_state(cls, state: Mapping[str, object]) -> Self:
        unit, tokens, max_length = _fields(cls.kind, state, unit=str, tokens=list, max_length=int)
        _check_tokens(cls.kind, tokens)
        if unit not in TOKENISERS:
            raise ModelError("unknown unit", where=cls.kind, got=unit, allowed=", ".join(TOKENISERS))
        _check_count(cls.kind, "max_length", max_length, LONGEST_TEXT)
        return cls(unit, tokens, max_length)


class FeatureVectoriser(Vectoriser):
    """Abstract: documents given as features."""

    def __init__(self, n_features: int) -> None:
        self._n_features = n_features

    @property
    def n_features(self) -> int:
        return self._n_features

    def transform_one(self, text: str) -> tuple[np.ndarray, np.ndarray]:
        raise DataError("not the kind of documents the model is trained on", got=text, allowed=self.reads)

    def tokens(self, ids: Sequence[int] | np.ndarray) -> list[str]:
        return [f"feature {i}" for i in ids]

    def to_state(self) -> State:
        return {"n_features": self._n_features}

    @classmethod
    def from_state(cls, state: Mapping[str, object]) -> Self:
        (n_features,) = _fields(cls.kind, state, n_features=int)
        _check_count(cls.kind, "n_features", n_features, MOST_FEATURES)
        return cls(n_features)


@final
class SparseVectoriser(FeatureVectoriser):
    """Sparse features, each row scaled to Euclidean length one."""

    kind = "sparse.v1"
    reads, gives = SPARSE, SPARSE_ROWS

    def transform(self, documents: Documents) -> sp.csr_matrix:
        features = require(documents, SPARSE, self._n_features)
        rows = sp.csr_matrix(features, dtype=np.float64, copy=True)  # (n, V)
        rows.sum_duplicates()
        values = as_float32(rows.data).astype(np.float64)  # squares of 32-bit values cannot overflow in 64
        rows.data = unit_rows(values, rows_of(rows.indptr)).astype(np.float32)
        return rows


@final
class DenseVectoriser(FeatureVectoriser):
    """Dense features, passed through as float32."""

    kind = "dense.v1"
    reads, gives = DENSE, DENSE_ROWS

    def transform(self, documents: Documents) -> np.ndarray:
        return as_float32(require(documents, DENSE, self._n_features))  # (n, V)


def token_counts(tokeniser: Tokeniser, texts: Sequence[str]) -> sp.csr_matrix:
    """How often each token occurs in each text: (n, V), ids ascending and unique in a row."""
    ids, ends = tokeniser.encode(texts)
    counts = sp.csr_matrix((np.ones(ids.size, dtype=np.int32), ids, ends), shape=(len(texts), len(tokeniser.tokens)))
    counts.sum_duplicates()
    return counts


VECTORISERS: dict[str, type[Vectoriser]] = {
    vectoriser.kind: vectoriser
    for vectoriser in (WordVectoriser, WordPieceVectoriser, SequenceVectoriser, SparseVectoriser, DenseVectoriser)
}


def vectoriser_from_state(kind: str, state: Mapping[str, object]) -> Vectoriser:
    """The vectoriser of this kind and state, as read from a model folder."""
    if isinstance(kind, str) and kind in _BEFORE and isinstance(state, Mapping):
        kind, state = _BEFORE[kind], {**state, "unicode": False, "language": "none"}
    if not isinstance(kind, str) or kind not in VECTORISERS:
        raise ModelError("unknown kind of vectoriser", got=kind, todo=nearest(str(kind), VECTORISERS))
    return VECTORISERS[kind].from_state(state)


# Kinds in older folders, before text preparation → their current kinds
_BEFORE = {f"{name}.v1": f"{name}.v2" for name in ("words", "wordpiece", "subwords")}


def same_vectoriser(one: Vectoriser, other: Vectoriser) -> bool:
    """Whether two vectorisers give the same features."""
    if one is other:
        return True
    first, second = one.to_state(), other.to_state()
    return one.kind == other.kind and all(_same(value, second[name]) for name, value in first.items())


def _same(one: object, other: object) -> bool:
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return np.array_equal(one, other)
    return one == other


def _fields(where: str, state: Mapping[str, object], **types: type) -> tuple[Any, ...]:
    """The values of these fields; missing or extra fields and wrong types are errors."""
    if not isinstance(state, Mapping) or state.keys() != types.keys():
        raise ModelError("the vectoriser has unexpected fields", where=where, got=state, allowed=", ".join(types))
    for name, wanted in types.items():
        if type(state[name]) is not wanted:
            got = type(state[name]).__name__
            raise ModelError(f"{name} is of the wrong type", where=where, got=got, allowed=wanted.__name__)
    return tuple(state[name] for name in types)


def _check_tokens(where: str, tokens: list[Any]) -> None:
    if set(map(type, tokens)) != {str} or len(known := set(tokens)) != len(tokens):
        raise ModelError("the vocabulary is damaged", where=where, got=tokens[:5], allowed="texts, each once")
    for run in (token for token in tokens if " " in token):
        first, _, last = run.rpartition(" ")
        if first not in known or last not in known:
            allowed = "words, and runs whose words and shorter runs are known"
            raise ModelError("the vocabulary is damaged", where=where, got=run, allowed=allowed)


def _check_count(where: str, name: str, value: int, most: int) -> None:
    if not 1 <= value <= most:
        raise ModelError(f"{name} is out of range", where=where, got=value, allowed=f"1 to {most}")
