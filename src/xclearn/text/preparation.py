"""Splits text into words in many languages: Unicode normalisation, marks, scripts without spaces, stemming.

With everything off, words are those of `tokenisers.words`. Knows nothing about vocabularies.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import pairwise
from typing import Literal, final, get_args

from xclearn.errors import ModelError
from xclearn.extras import require
from xclearn.text.tokenisers import words

# fmt: off
Language = Literal[
    "none", "ar", "ca", "da", "de", "el", "en", "es", "eu", "fi", "fr", "ga", "hi", "hu", "hy", "id", "it", "lt", "ne",
    "nl", "no", "pt", "ro", "ru", "sr", "sv", "ta", "tr", "yi",
]
_STEMMERS = {  # Snowball's names
    "ar": "arabic", "ca": "catalan", "da": "danish", "de": "german", "el": "greek", "en": "english", "es": "spanish",
    "eu": "basque", "fi": "finnish", "fr": "french", "ga": "irish", "hi": "hindi", "hu": "hungarian", "hy": "armenian",
    "id": "indonesian", "it": "italian", "lt": "lithuanian", "ne": "nepali", "nl": "dutch", "no": "norwegian",
    "pt": "portuguese", "ro": "romanian", "ru": "russian", "sr": "serbian", "sv": "swedish", "ta": "tamil",
    "tr": "turkish", "yi": "yiddish",
}
# fmt: on
LANGUAGES: tuple[str, ...] = get_args(Language)

_REMEMBERED = 1 << 18  # cached stems
# Han, Hiragana, Katakana, Thai, Lao, Myanmar, Khmer: scripts written without spaces between words
_HAN = "\u3005\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af"
_KANA = "\u3041-\u30ff\u31f0-\u31ff"
SPACELESS = _HAN + _KANA + "\u0e01-\u0e4e\u0e80-\u0ece\u1000-\u103f\u1780-\u17d3"
_LAST_MARKS = 0xAC00  # combining marks of living scripts have smaller code points


@final
@dataclass(frozen=True)
class Preparation:
    """How a text is split into words, both when a vocabulary is learnt and when it is used."""

    unicode: bool = False  # NFKC; marks belong to words; scripts without spaces are split
    language: str = "none"  # language of the stemmer

    def check(self, where: str) -> None:
        """Raise if a language has no stemmer or the stemmer's package is missing."""
        if self.language not in LANGUAGES:
            raise ModelError("unknown language", where=where, got=self.language, allowed=", ".join(LANGUAGES))
        if self.language != "none":
            require("snowballstemmer", f"the language '{self.language}'", otherwise="set vectoriser.language=none")

    @property
    def is_plain(self) -> bool:
        """Whether words are only lower-cased."""
        return not self.unicode and self.language == "none"

    def words(self, text: str) -> list[str]:
        """The words of a text, in order."""
        found = _unicode_words(text) if self.unicode and not text.isascii() else words(text)
        return found if self.language == "none" else list(map(_stemmer(self.language), found))

    def __call__(self, text: str) -> str:
        """The words joined by spaces; a text whose plain words are the same is returned unchanged."""
        if self.language == "none" and (not self.unicode or text.isascii()):
            return text
        return " ".join(self.words(text))

    def all(self, texts: Sequence[str]) -> list[str]:
        """Prepare many texts."""
        return list(texts) if self.is_plain else list(map(self, texts))


PLAIN = Preparation()


def _unicode_words(text: str) -> list[str]:
    """検索 gives the runs 検, 検索, 索: without spaces there are no words to find, but runs carry nearly as much."""
    text = unicodedata.normalize("NFKC", text).lower().replace("i\u0307", "i")  # lower-cased İ
    whole, spaceless, parts, units = _patterns()
    if not spaceless.search(text):
        return whole.findall(text)
    found: list[str] = []
    for word in whole.findall(text):
        for part in parts.findall(word):
            found += _runs(units.findall(part)) if spaceless.match(part) else [part]
    return found


def _runs(units: list[str]) -> list[str]:
    """Runs of one and two units, in order."""
    return [run for one, two in pairwise(units) for run in (one, one + two)] + units[-1:]


@cache
def _patterns() -> tuple[re.Pattern[str], re.Pattern[str], re.Pattern[str], re.Pattern[str]]:
    """Patterns: a word with marks; a spaceless character; a spaceless or other stretch; a character with marks."""
    marks = "".join(chr(code) for code in range(0x300, _LAST_MARKS) if unicodedata.category(chr(code)) in ("Mn", "Mc"))
    return (
        re.compile(rf"\w[\w{marks}]*"),
        re.compile(rf"[{SPACELESS}]"),
        re.compile(rf"[{SPACELESS}][{SPACELESS}{marks}]*|[^{SPACELESS}]+"),
        re.compile(rf".[{marks}]*"),
    )


@cache
def _stemmer(language: str) -> Callable[[str], str]:
    from snowballstemmer import stemmer

    return lru_cache(_REMEMBERED)(stemmer(_STEMMERS[language]).stemWord)
