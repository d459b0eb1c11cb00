"""Settings for turning texts into numbers, and how a vectoriser is learnt from them.

The vocabulary and idf are learnt once, from documents and label texts together, and do not depend on their order. Knows
nothing about labels, models or files.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, final

import numpy as np
import scipy.sparse as sp

from xclearn.config import AUTO, Auto, Count, Range, check, kind_of
from xclearn.errors import DataError
from xclearn.text.documents import SPARSE, TEXTS, Documents, documents_kind, require
from xclearn.text.preparation import Language, Preparation
from xclearn.text.tokenisers import CONTINUES, LONGEST_WORD, WordPieceTokeniser, words
from xclearn.text.vectorisers import (
    LONGEST_TEXT,
    MOST_FEATURES,
    DenseVectoriser,
    SequenceVectoriser,
    SparseVectoriser,
    Vectoriser,
    WordPieceVectoriser,
    WordVectoriser,
    token_counts,
)
from xclearn.text.weighting import Weighting, inverse_document_frequency, rows_of

PieceCount = Annotated[int, Range(100)]  # fewer could not hold an alphabet

Find = Callable[[str], list[str]]  # the words of a text

_UNKNOWN = "[UNK]"  # never a word: brackets are not word characters


class TextSettings(ABC):
    """How to learn a vectoriser from texts."""

    @abstractmethod
    def learn(self, documents: Documents, label_texts: Documents | None = None) -> Vectoriser:
        """One vocabulary shared by documents and label texts."""

    @property
    def tokens_per_word(self) -> float:
        """About how many tokens a word becomes, for plans that are made before texts are read."""
        return 1.0

    @property
    def n_hashed(self) -> int:
        """Features that do not depend on the texts."""
        return 0


@final
@dataclass(frozen=True, kw_only=True)
class Words(TextSettings):
    """TF-IDF over whole words and runs of neighbouring words."""

    longest: Count = 1  # maximum words per token: 2 also counts pairs of neighbouring words
    max_features: Count | None = None  # keep only this many tokens, the most frequent
    min_count: Auto[Count] = AUTO  # texts that must contain a token; auto: 2, or 1 below 1,000 texts
    sublinear: bool = True  # weigh a token by 1 + ln(count) instead of its count
    normalise: bool = True  # scale each text's weights to Euclidean length one
    unicode: bool = True  # NFKC; marks belong to words; scripts without spaces give runs of one and two characters
    language: Language = "none"  # take endings off the words of this language: en, fi, … (needs `xclearn[languages]`)

    def learn(self, documents: Documents, label_texts: Documents | None = None) -> Vectoriser:
        texts = training_texts(self, documents, label_texts)
        preparation = preparation_of(self.unicode, self.language)
        counts = _texts_with_word(texts, preparation.words)
        min_count = _usual_min_count(texts) if self.min_count is AUTO else self.min_count
        tokens = _most_common(counts, min_count, self.max_features)
        if self.longest > 1:
            counts.update(_texts_with_run(texts, tokens, self.longest, min_count, preparation.words))
            tokens = _most_common(counts, min_count, self.max_features)
        idf = inverse_document_frequency(np.array([counts[token] for token in tokens]), len(texts))
        return WordVectoriser(tokens, Weighting(idf, self.sublinear, self.normalise), preparation)


@final
@dataclass(frozen=True, kw_only=True)
class WordPiece(TextSettings):
    """TF-IDF over word pieces learnt from the texts, so that unseen words still count."""

    vocabulary_size: PieceCount = 40_000  # maximum pieces; frequent words become single pieces
    sublinear: bool = True  # weigh a piece by 1 + ln(count) instead of its count
    normalise: bool = True  # scale each text's weights to Euclidean length one
    unicode: bool = True  # NFKC; marks belong to words; scripts without spaces give runs of one and two characters
    language: Language = "none"  # take endings off the words of this language: en, fi, … (needs `xclearn[languages]`)

    def learn(self, documents: Documents, label_texts: Documents | None = None) -> Vectoriser:
        texts = training_texts(self, documents, label_texts)
        preparation = preparation_of(self.unicode, self.language)
        tokens = _learn_pieces(texts, self.vocabulary_size, preparation.words)
        present = token_counts(WordPieceTokeniser(tokens, preparation.words), texts).indices
        idf = inverse_document_frequency(np.bincount(present, minlength=len(tokens)), len(texts))
        return WordPieceVectoriser(tokens, Weighting(idf, self.sublinear, self.normalise), preparation)


@final
@dataclass(frozen=True, kw_only=True)
class Sequences(TextSettings):
    """Token ids in text order, for sequence encoders."""

    unit: Literal["wordpiece", "words"] = "wordpiece"  # what a token is
    vocabulary_size: PieceCount = 40_000  # maximum tokens, the most frequent
    max_length: Annotated[int, Range(1, LONGEST_TEXT)] = 32  # maximum tokens of a text; nearly all titles fit into 32

    def learn(self, documents: Documents, label_texts: Documents | None = None) -> Vectoriser:
        texts = training_texts(self, documents, label_texts)
        if self.unit == "words":
            tokens = _most_common(_texts_with_word(texts, words), _usual_min_count(texts), self.vocabulary_size)
        else:
            tokens = _learn_pieces(texts, self.vocabulary_size, words)
        return SequenceVectoriser(self.unit, tokens, self.max_length)


def vectoriser_for(documents: Documents, settings: TextSettings, label_texts: Documents | None = None) -> Vectoriser:
    """A vectoriser learnt from texts by `settings`; features pass through. Label texts must be of the same kind."""
    kind = documents_kind(documents)
    given = require(documents, kind)
    if kind == TEXTS:
        return settings.learn(given, label_texts)
    width = given.shape[1]
    if width > MOST_FEATURES:
        raise DataError("the documents have too many features", got=width, allowed=f"at most {MOST_FEATURES}")
    if label_texts is not None:
        require(label_texts, kind, width, where="label texts")
    return SparseVectoriser(width) if kind == SPARSE else DenseVectoriser(width)


def preparation_of(unicode: bool, language: str) -> Preparation:
    """How texts are prepared; raises if the language's stemmer is not installed."""
    preparation = Preparation(unicode, language)
    preparation.check("vectoriser")
    return preparation


def training_texts(settings: TextSettings, documents: Documents, label_texts: Documents | None) -> list[str]:
    """Documents, then label texts, after checking both and the settings."""
    check(settings, where=kind_of(type(settings)))
    labels = [] if label_texts is None else require(label_texts, TEXTS, where="label texts")
    return [*require(documents, TEXTS), *labels]


def _usual_min_count(texts: Sequence[str]) -> int:
    """2, because a word seen once teaches nothing; 1 if there are too few texts to spare any."""
    return 1 if len(texts) < 1000 else 2


def _texts_with_word(texts: Sequence[str], find: Find) -> Counter[str]:
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(set(find(text)))
    return counts


def _texts_with_run(texts: Sequence[str], known: list[str], longest: int, min_count: int, find: Find) -> dict[str, int]:
    """The number of texts that contain each run of 2 to `longest` known words, if at least `min_count`.

    Runs are counted as numbers: most occur in a single text, and as strings they would take most of the memory.
    """
    word_at, text_at = _word_ids(texts, known, find)
    run_at, tokens = word_at, known
    counts: dict[str, int] = {}
    for length in range(2, longest + 1):
        first, last = run_at[:-1], word_at[length - 1 :]
        at = np.flatnonzero((first >= 0) & (last >= 0))
        pairs, pair_at = np.unique(first[at] * len(known) + last[at], return_inverse=True)
        present = sp.csr_matrix((np.ones(at.size, bool), (text_at[at], pair_at)), (len(texts), len(pairs)))
        n_texts = present.getnnz(axis=0)  # a run repeated in a text is one entry
        kept = n_texts >= min_count
        tokens = [f"{tokens[pair // len(known)]} {known[pair % len(known)]}" for pair in pairs[kept].tolist()]
        if not tokens:
            break
        counts.update(zip(tokens, n_texts[kept].tolist(), strict=True))
        run_at = np.full(len(first), -1)
        run_at[at] = np.where(kept, np.cumsum(kept) - 1, -1)[pair_at]
    return counts


def _word_ids(texts: Sequence[str], known: list[str], find: Find) -> tuple[np.ndarray, np.ndarray]:
    """Word ids of all texts in one row, with −1 for unknown words and after each text; and the text of each."""
    id_of_word = {word: i for i, word in enumerate(known)}
    ids, ends = array("q"), array("q", [0])
    for text in texts:
        ids.extend([id_of_word.get(word, -1) for word in find(text)])
        ids.append(-1)
        ends.append(len(ids))
    return np.asarray(ids), rows_of(np.asarray(ends))


def _most_common(counts: Counter[str], min_count: int, size: int | None) -> list[str]:
    """Most common first, ties by length and name: a run's parts precede it, so truncation never separates them."""
    enough = [token for token, count in counts.items() if count >= min_count]
    kept = sorted(enough, key=lambda token: (-counts[token], token.count(" "), token))
    if not kept:
        raise DataError(f"no word occurs in at least {min_count} texts", todo="Give more texts.")
    return kept[:size]


def _learn_pieces(texts: Sequence[str], size: int, find: Find) -> list[str]:
    """At most `size` pieces, independent of the order of texts."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordPiece as Model
    from tokenizers.pre_tokenizers import WhitespaceSplit
    from tokenizers.trainers import WordPieceTrainer

    # Each character takes two pieces, so a quarter of `size` leaves half of the pieces for longer ones.
    alphabet = _alphabet(texts, size // 4, find)
    # The trainer breaks ties by token id, and numbers characters in the order of a randomly seeded hash map. Naming all
    # of them as special tokens fixes that order; they lose this meaning here, as only the list of pieces is kept.
    fixed = [_UNKNOWN, *alphabet, *(CONTINUES + character for character in alphabet)]
    trainer = WordPieceTrainer(
        vocab_size=size + 1,
        min_frequency=2,
        special_tokens=fixed,
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),
        continuing_subword_prefix=CONTINUES,
        show_progress=False,
    )
    tokenizer = Tokenizer(Model(unk_token=_UNKNOWN))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    tokenizer.train_from_iterator((" ".join(text_words) for text_words in _short_words(texts, find)), trainer)
    id_of_piece = tokenizer.get_vocab()
    return sorted(id_of_piece.keys() - {_UNKNOWN}, key=lambda piece: id_of_piece[piece])


def _alphabet(texts: Sequence[str], size: int, find: Find) -> list[str]:
    """The most common characters in words."""
    counts: Counter[str] = Counter()
    for text_words in _short_words(texts, find):
        counts.update("".join(text_words))
    return _most_common(counts, 1, size)


def _short_words(texts: Sequence[str], find: Find) -> Iterator[list[str]]:
    return ([word for word in find(text) if len(word) <= LONGEST_WORD] for text in texts)
