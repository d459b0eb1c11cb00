"""Turns text into token ids over a fixed vocabulary: whole words and runs of words, or WordPiece.

A word is a run of `\\w` characters of the lower-cased text, so NUL bytes and lone surrogates only separate words.
Unknown words give no id. Knows nothing about how a vocabulary is learnt or how tokens are weighted.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import final

import numpy as np

LONGEST_WORD = 100  # characters; longer words are unknown to WordPiece, which they would stall
CONTINUES = "##"  # prefix of a piece inside a word

_find_words = re.compile(r"\w+").findall


def words(text: str) -> list[str]:
    """The lower-cased words of a text, in order."""
    return _find_words(text.lower())


def runs(text_words: list[str], length: int) -> Iterator[str]:
    """Every run of `length` neighbouring words, joined by spaces."""
    return map(" ".join, zip(*(text_words[start:] for start in range(length)), strict=False))


class Tokeniser(ABC):
    """`tokens[i]` is the token with id i; `find` gives the words of a text."""

    def __init__(self, tokens: list[str], find: Callable[[str], list[str]] = words) -> None:
        self.tokens, self._find = tokens, find

    @cached_property
    def _id_of_token(self) -> dict[str, int]:
        """Built on first use, because the native core has its own table."""
        return {token: i for i, token in enumerate(self.tokens)}

    @abstractmethod
    def encode_one(self, text: str) -> list[int]:
        """Ids of the known tokens of a text, in text order."""

    def encode(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Ids of all texts in one row (int32), and the offsets of the texts (n + 1, int64)."""
        ids, ends = array("i"), array("q", [0])
        for text in texts:
            ids.extend(self.encode_one(text))
            ends.append(len(ids))
        return np.asarray(ids), np.asarray(ends)


@final
class WordTokeniser(Tokeniser):
    """Every known word and known run of neighbouring words is a token.

    If a run is known, so are the run without its last word and that word, so a lookup can go by their ids.
    """

    @cached_property
    def _longest(self) -> int:
        """The number of words in the longest run."""
        return 1 + max(token.count(" ") for token in self.tokens)

    def encode_one(self, text: str) -> list[int]:
        return self.encode_words(self._find(text))

    def encode_words(self, found: list[str]) -> list[int]:
        """Ids of the known words and runs among these words."""
        ids = [i for i in map(self._id_of_token.get, found) if i is not None]
        for length in range(2, min(self._longest, len(found)) + 1):
            ids += [i for i in map(self._id_of_token.get, runs(found, length)) if i is not None]
        return ids


@final
class WordPieceTokeniser(Tokeniser):
    """Greedy longest match from the left; a word that cannot be covered is unknown as a whole.

    Equals Hugging Face `tokenizers` with the same pieces, but is faster on short texts: nearly every word is one piece
    and costs one lookup.
    """

    @cached_property
    def _longest(self) -> int:
        return max(map(len, self.tokens))

    def encode_one(self, text: str) -> list[int]:
        ids: list[int] = []
        for word in self._find(text):
            whole = self._id_of_token.get(word)
            if whole is not None:
                ids.append(whole)
            elif len(word) <= LONGEST_WORD:
                ids += self._pieces(word)
        return ids

    def _pieces(self, word: str) -> list[int]:
        ids: list[int] = []
        start, mark = 0, ""
        while start < len(word):
            for end in range(min(len(word), start + self._longest), start, -1):
                piece = self._id_of_token.get(mark + word[start:end])
                if piece is not None:
                    break
            else:
                return []
            ids.append(piece)
            start, mark = end, CONTINUES
        return ids


TOKENISERS: dict[str, type[Tokeniser]] = {"words": WordTokeniser, "wordpiece": WordPieceTokeniser}
