"""TF-IDF over whole words and over character n-grams inside words, hashed into a table of fixed size.

The parts of a word help where the word itself is not in train: names of packages, compounds, misspellings. Knows
nothing about labels, models or files.
"""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Self, final

import numpy as np
import scipy.sparse as sp

from xclearn.config import AUTO, Auto, Count, Range, Weight
from xclearn.errors import ConfigError, ModelError
from xclearn.text.documents import TEXTS, Documents, check_texts, require
from xclearn.text.preparation import PLAIN, Language, Preparation
from xclearn.text.settings import TextSettings, Words, preparation_of, training_texts
from xclearn.text.tokenisers import LONGEST_WORD, WordTokeniser
from xclearn.text.vectorisers import (
    MOST_FEATURES,
    PREPARED,
    SPARSE_ROWS,
    VECTORISERS,
    State,
    Vectoriser,
    _check_count,
    _check_tokens,
    _fields,
)
from xclearn.text.weighting import Weighting, inverse_document_frequency, rows_of, unit_rows

_USUAL_WORD = 8  # characters, both ends included
_REMEMBERED = 1 << 16  # words whose hashed parts are cached


@final
@dataclass(frozen=True, kw_only=True)
class Subwords(TextSettings):
    """TF-IDF over whole words and over hashed character n-grams inside them."""

    longest: Count = 1  # maximum words per token: 2 also counts pairs of neighbouring words
    max_features: Count | None = None  # keep only this many words, the most frequent
    min_count: Auto[Count] = AUTO  # texts that must contain a word; auto: 2, or 1 below 1,000 texts
    sublinear: bool = True  # weigh a token by 1 + ln(count) instead of its count
    shortest_part: Count = 3  # minimum characters of a part; each end of a word counts as a character
    longest_part: Count = 4  # maximum characters of a part
    table_size: Annotated[int, Range(16)] = 1 << 16  # features that parts are hashed into
    part_weight: Weight = 1.0  # weight of the parts relative to the words
    unicode: bool = True  # NFKC; marks belong to words; scripts without spaces give runs of one and two characters
    language: Language = "none"  # take endings off the words of this language: en, fi, … (needs `xclearn[languages]`)

    def learn(self, documents: Documents, label_texts: Documents | None = None) -> Vectoriser:
        texts = training_texts(self, documents, label_texts)
        if self.longest_part < self.shortest_part:
            allowed = f"{self.shortest_part} or more, as shortest_part"
            raise ConfigError("longest_part is below shortest_part", got=self.longest_part, allowed=allowed)
        kept = Words(
            longest=self.longest,
            max_features=self.max_features,
            min_count=self.min_count,
            unicode=self.unicode,
            language=self.language,
        )
        preparation = preparation_of(self.unicode, self.language)
        vocabulary = kept.learn(texts).to_state()["tokens"]
        assert isinstance(vocabulary, list)
        parts = Parts(self.shortest_part, self.longest_part, self.table_size)
        n_features = len(vocabulary) + self.table_size
        weighting = (self.sublinear, float(self.part_weight), preparation)
        fresh = SubwordVectoriser(vocabulary, parts, np.ones(n_features), *weighting)
        present = np.bincount(fresh.counts(texts).indices, minlength=n_features)
        idf = inverse_document_frequency(present, len(texts))
        return SubwordVectoriser(vocabulary, parts, idf, *weighting)

    @property
    def tokens_per_word(self) -> float:
        parts = (max(1, _USUAL_WORD - length + 1) for length in range(self.shortest_part, self.longest_part + 1))
        return 1.0 + sum(parts)

    @property
    def n_hashed(self) -> int:
        return self.table_size


@final
class Parts:
    """Hashes the runs of `shortest` to `longest` characters of a word into features below `size`."""

    def __init__(self, shortest: int, longest: int, size: int) -> None:
        self.shortest, self.longest, self.size = shortest, longest, size
        self.of = lru_cache(_REMEMBERED)(self._of)

    def _of(self, word: str) -> array[int]:
        """The parts of one word, in order; none for an extremely long word."""
        if len(word) > LONGEST_WORD:
            return array("i")
        marked = f"<{word}>"
        runs = (
            marked[start : start + length]
            for length in range(self.shortest, self.longest + 1)
            for start in range(max(1, len(marked) - length + 1))
        )
        return array("i", [zlib.crc32(run.encode("utf-8", "surrogatepass")) % self.size for run in runs])


@final
class SubwordVectoriser(Vectoriser):
    """Bags of whole words and of hashed parts; features of parts follow those of words."""

    kind = "subwords.v2"
    reads, gives = TEXTS, SPARSE_ROWS

    def __init__(
        self,
        vocabulary: list[str],
        parts: Parts,
        idf: np.ndarray,
        sublinear: bool,
        part_weight: float,
        preparation: Preparation = PLAIN,
    ) -> None:
        self._words, self._parts = WordTokeniser(vocabulary), parts
        self._weighting = Weighting(idf, sublinear, False)
        self._part_weight = part_weight
        self.preparation = preparation

    @property
    def n_features(self) -> int:
        return self.n_words + self._parts.size

    @property
    def n_words(self) -> int:
        """The number of features that are words; those of parts follow."""
        return len(self._words.tokens)

    def transform(self, documents: Documents) -> sp.csr_matrix:
        bags = self.counts(require(documents, TEXTS))
        weights = self._weigh(bags.indices, bags.data, rows_of(bags.indptr))
        return sp.csr_matrix((weights, bags.indices, bags.indptr), shape=bags.shape)

    def transform_one(self, text: str) -> tuple[np.ndarray, np.ndarray]:
        check_texts([text])
        ids, counts = np.unique(np.asarray(self._encode(text), dtype=np.int32), return_counts=True)
        return ids, self._weigh(ids, counts.astype(np.int32), np.zeros(ids.size, dtype=np.int64))

    def counts(self, texts: Sequence[str]) -> sp.csr_matrix:
        """How often each word and part occurs in each text (n, V), ids ascending and unique in a row."""
        ids, ends = array("i"), array("q", [0])
        for text in texts:
            ids.extend(self._encode(text))
            ends.append(len(ids))
        ones = np.ones(len(ids), dtype=np.int32)
        found = sp.csr_matrix((ones, np.asarray(ids), np.asarray(ends)), shape=(len(texts), self.n_features))
        found.sum_duplicates()
        return found

    def tokens(self, ids: Sequence[int] | np.ndarray) -> list[str]:
        """A part has no text of its own, as several share an id."""
        known, n_words = self._words.tokens, self.n_words
        return [known[i] if i < n_words else f"part {i - n_words}" for i in ids]

    def to_state(self) -> State:
        return {
            "tokens": self._words.tokens,
            "idf": self._weighting.idf,
            "sublinear": self._weighting.sublinear,
            "shortest_part": self._parts.shortest,
            "longest_part": self._parts.longest,
            "table_size": self._parts.size,
            "part_weight": self._part_weight,
            "unicode": self.preparation.unicode,
            "language": self.preparation.language,
        }

    @classmethod
    def from_state(cls, state: Mapping[str, object]) -> Self:
        kinds = {"tokens": list, "idf": np.ndarray, "sublinear": bool, "part_weight": float}
        counted = ("shortest_part", "longest_part", "table_size")
        fields = _fields(cls.kind, state, **kinds, **dict.fromkeys(counted, int), **PREPARED)
        tokens, idf, sublinear, weight, shortest, longest, size, unicode, language = fields
        preparation = Preparation(unicode, language)
        preparation.check(cls.kind)
        limits = (LONGEST_WORD, LONGEST_WORD, MOST_FEATURES)
        for name, value, most in zip(counted, (shortest, longest, size), limits, strict=True):
            _check_count(cls.kind, name, value, most)
        if idf.dtype != np.float64 or idf.shape != (len(tokens) + size,) or not ((idf > 0) & (idf < 100)).all():
            allowed = f"({len(tokens) + size},) float64, above 0 and below 100"
            raise ModelError("idf does not fit the tokens", where=cls.kind, got=idf, allowed=allowed)
        if not 0 <= weight < np.inf or not shortest <= longest <= LONGEST_WORD:
            got = (weight, shortest, longest)
            allowed = f"a weight, and up to {LONGEST_WORD} characters"
            raise ModelError("parts of words are out of range", where=cls.kind, got=got, allowed=allowed)
        _check_tokens(cls.kind, tokens)
        return cls(tokens, Parts(shortest, longest, size), idf, sublinear, weight, preparation)

    def _encode(self, text: str) -> list[int]:
        found, n_words = self.preparation.words(text), self.n_words
        ids = self._words.encode_words(found)
        for word in found:
            ids += [n_words + part for part in self._parts.of(word)]
        return ids

    def _weigh(self, ids: np.ndarray, counts: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Normalise words and parts of each row separately, scale parts by `part_weight`, and normalise the row."""
        part = ids >= self.n_words
        weights = unit_rows(self._weighting.weigh(ids, counts, rows).astype(np.float64), 2 * rows + part)
        return unit_rows(np.where(part, self._part_weight, 1.0) * weights, rows).astype(np.float32)


VECTORISERS[SubwordVectoriser.kind] = SubwordVectoriser
