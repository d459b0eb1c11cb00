"""Texts as the tokens of a pretrained transformer, by its own tokeniser read from a folder; nothing is learnt.

A folder has what the transformers library saves: `tokenizer.json`, `config.json`, `model.safetensors`. Only files on
disk are read, never the network; `encoder_folders` says where they are. Knows nothing about the transformer itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Self, final

import numpy as np

from xclearn.config import Range, check, kind_of
from xclearn.errors import ConfigError, DataError, ModelError
from xclearn.text.documents import TEXTS, Documents, check_texts, require
from xclearn.text.encoder_folders import FILES, encoder_folder, how_to_get, places
from xclearn.text.settings import TextSettings
from xclearn.text.vectorisers import LONGEST_TEXT, SEQUENCES, VECTORISERS, State, Vectoriser, _check_count, _fields

if TYPE_CHECKING:
    from tokenizers import Tokenizer


@final
@dataclass(frozen=True, kw_only=True)
class Pretrained(TextSettings):
    """Tokens of a pretrained transformer in a folder."""

    folder: str = ""  # a folder of an encoder, minilm, mpnet, or a name on the hub; see `xc data encoder`
    max_length: Annotated[int, Range(3, LONGEST_TEXT)] = 32  # maximum tokens of a text, including special tokens

    def learn(self, documents: Documents, label_texts: Documents | None = None) -> Vectoriser:  # noqa: ARG002
        """The folder's tokeniser; the texts are ignored."""
        check(self, where=kind_of(type(self)))
        return PretrainedVectoriser(self.file("tokenizer.json").read_text(encoding="utf-8"), self.max_length)

    def file(self, name: str) -> Path:
        """The path of a required file in the folder."""
        path = Path(encoder_folder(self.folder)) / name
        if not self.folder or not path.is_file():
            searched = ", ".join(places(self.folder)) or "no folder is set"
            todo = how_to_get(self.folder) or "Give a folder with these files, minilm or mpnet: see `xc data encoder`."
            raise ConfigError(
                f"no {name} of the encoder (searched: {searched})",
                where="vectoriser.folder",
                got=self.folder,
                allowed=", ".join(FILES),
                todo=todo,
            )
        return path


@final
class PretrainedVectoriser(Vectoriser):
    """Token ids by a given tokeniser, truncated at `max_length` and padded with −1."""

    kind = "pretrained.v1"
    reads, gives = TEXTS, SEQUENCES

    def __init__(self, description: str, max_length: int) -> None:
        self.max_length = max_length
        self._description = description
        self._tokeniser = _tokeniser(description, max_length)

    @property
    def n_features(self) -> int:
        return int(self._tokeniser.get_vocab_size())

    def transform(self, documents: Documents) -> np.ndarray:
        return self.transform_and_count_cuts(documents)[0]

    def transform_and_count_cuts(self, documents: Documents) -> tuple[np.ndarray, int]:
        """Ids (n, T) int32, and how many texts were truncated to T tokens."""
        encoded = self._tokeniser.encode_batch([_printable(text) for text in require(documents, TEXTS)])
        ids = np.full((len(encoded), self.max_length), -1, dtype=np.int32)  # (n, T)
        for row, found in zip(ids, encoded, strict=True):
            row[: len(found.ids)] = found.ids
        return ids, sum(bool(found.overflowing) for found in encoded)

    def transform_one(self, text: str) -> tuple[np.ndarray, np.ndarray]:
        """Ids (t,) int32 in the text's order, t at most T, and weights of one."""
        check_texts([text])
        ids = np.array(self._tokeniser.encode(_printable(text)).ids, dtype=np.int32)
        return ids, np.ones(ids.size, dtype=np.float32)

    def tokens(self, ids: Sequence[int] | np.ndarray) -> list[str]:
        return [self._tokeniser.id_to_token(int(i)) or "" for i in ids if i >= 0]

    def to_state(self) -> State:
        return {"tokeniser": self._description, "max_length": self.max_length}

    @classmethod
    def from_state(cls, state: Mapping[str, object]) -> Self:
        description, max_length = _fields(cls.kind, state, tokeniser=str, max_length=int)
        _check_count(cls.kind, "max_length", max_length, LONGEST_TEXT)
        try:
            return cls(description, max_length)
        except DataError as error:
            raise ModelError("the tokeniser is damaged", where=cls.kind, got=str(error)) from error


def _tokeniser(description: str, max_length: int) -> Tokenizer:
    from tokenizers import Tokenizer

    try:
        tokeniser = Tokenizer.from_str(description)
        tokeniser.no_padding()
        tokeniser.enable_truncation(max_length)
    except Exception as error:  # the library raises no more specific error
        raise DataError("tokenizer.json cannot be used", got=str(error)) from error
    marks = tokeniser.num_special_tokens_to_add(False)
    if marks > max_length:  # it would not truncate then
        raise DataError(
            "the tokeniser adds more special tokens than max_length allows", got=marks, allowed=f"{max_length}"
        )
    return tokeniser


def _printable(text: str) -> str:
    """Replace lone surrogates, which UTF-8 cannot encode."""
    return text.encode("utf-8", "replace").decode("utf-8")


VECTORISERS[PretrainedVectoriser.kind] = PretrainedVectoriser
