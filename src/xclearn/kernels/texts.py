"""TF-IDF bags of many texts at once, by threads of the native core. `TfidfVectoriser.transform_one` is the oracle."""

from __future__ import annotations

from typing import NamedTuple, final

import numpy as np

from xclearn.kernels import _native, _threads


@final
class BagRules(NamedTuple):
    """How texts become bags."""

    tokens: list[str]
    pieces: bool  # split words into pieces of the vocabulary
    prepared: bool  # texts that are not ASCII come as words joined by spaces
    idf: np.ndarray  # (V,) float64
    damped: np.ndarray  # float64 weight of each count, looked up; empty: the count itself
    normalise: bool


def text_bags(
    rules: BagRules, texts: list[str], n_threads: int | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A CSR matrix: row starts (n + 1,) int64, token ids ascending in a row (m,) int32, weights (m,) float32."""
    found: tuple[np.ndarray, np.ndarray, np.ndarray] = _native.text_bags(*rules, texts, _threads(n_threads))
    return found
