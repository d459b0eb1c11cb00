"""Reads pretrained word vectors for the tokens of a vocabulary.

Text files have a token and its numbers on each line, as written by word2vec, fastText and GloVe, with or without the
header `count dimension`; a .npy file has a row for each feature. Text files have no vectors for runs of words. Knows
nothing about what the vectors are used for.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, final

import numpy as np

from xclearn.errors import DataError
from xclearn.files import numbered_lines


@final
class WordVectors(NamedTuple):
    """One row per token; rows of unknown tokens are zero."""

    values: np.ndarray  # (V, D) float32
    known: np.ndarray  # (V,) bool


def read_word_vectors(path: str | Path, tokens: Sequence[str]) -> WordVectors:
    """The vectors of `tokens`, in order; if a token occurs twice, the first counts."""
    path = Path(path)
    if not path.is_file():
        raise DataError("no such file of word vectors", where=str(path))
    found = _from_matrix(path, len(tokens)) if path.suffix == ".npy" else _from_lines(path, tokens)
    if not found.known.any():
        got = f"{len(tokens):,} tokens"
        raise DataError("the file contains none of the vocabulary's tokens", where=str(path), got=got)
    return found


def _from_matrix(path: Path, n_tokens: int) -> WordVectors:
    try:
        values = np.load(path, mmap_mode="r", allow_pickle=False)  # memory-mapped: checks the size in the header
    except Exception as error:  # a damaged header can raise nearly any exception in NumPy
        raise DataError(f"the file is not a NumPy array ({error})", where=str(path)) from error
    if values.ndim != 2 or values.shape[0] != n_tokens or values.shape[1] == 0 or values.dtype.kind != "f":
        got = f"{values.shape} {values.dtype}"
        allowed = f"({n_tokens}, D) floats, a row for each feature"
        raise DataError("the array does not fit the vocabulary", where=str(path), got=got, allowed=allowed)
    if not np.isfinite(values).all():
        raise DataError("the array holds a value that is not finite", where=str(path))
    return WordVectors(values.astype(np.float32), np.ones(n_tokens, dtype=bool))


def _from_lines(path: Path, tokens: Sequence[str]) -> WordVectors:
    row_of = {token: row for row, token in enumerate(tokens)}
    values: np.ndarray | None = None
    known = np.zeros(len(tokens), dtype=bool)
    for number, line in numbered_lines(path):
        token, *numbers = line.rstrip(" ").split(" ")
        if number == 1 and len(numbers) == 1:
            continue  # the header
        if values is None:
            values = _empty(len(tokens), len(numbers), f"{path}:{number}")
        if len(numbers) != values.shape[1] or not numbers:
            allowed = f"a token and {values.shape[1] or 'its'} numbers"
            raise DataError("the line is not a word vector", where=f"{path}:{number}", got=line[:60], allowed=allowed)
        row = row_of.get(token)
        if row is not None and not known[row]:
            values[row] = _numbers(numbers, f"{path}:{number}")
            known[row] = True
    if values is None:
        raise DataError("the file has no word vectors", where=str(path))
    return WordVectors(values, known)


def _empty(n_tokens: int, width: int, where: str) -> np.ndarray:
    try:
        return np.zeros((n_tokens, width), dtype=np.float32)
    except (MemoryError, ValueError) as error:
        what = f"vectors of {width} numbers for {n_tokens} tokens do not fit into memory"
        raise DataError(what, where=where) from error


def _numbers(texts: list[str], where: str) -> np.ndarray:
    try:
        numbers = np.array(texts, dtype=np.float32)
    except ValueError as error:
        raise DataError("the line is not a word vector", where=where, got=str(error)) from error
    if not np.isfinite(numbers).all():
        raise DataError("the vector holds a value that is not finite", where=where)
    return numbers
