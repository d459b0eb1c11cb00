"""Turns token counts into TF-IDF weights, with the same arithmetic for one text and for many.

Every step works value by value or row by row on flat arrays, so that a row's weights do not depend, even in the last
bit, on other rows. Knows nothing about tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

# 1 + ln(count) by table lookup: a vectorised logarithm may round differently depending on a value's position.
DAMPED = np.concatenate([[0.0], 1.0 + np.log(np.arange(1, 1 << 16))])


@final
@dataclass(frozen=True)
class Weighting:
    """Weight of a token in a text: count (damped or not) times idf; rows have unit length if `normalise`."""

    idf: np.ndarray  # (V,) float64
    sublinear: bool  # 1 + ln(count) instead of the count; counts are capped at 65,535
    normalise: bool

    def weigh(self, ids: np.ndarray, counts: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Weights (m,) float32 of m ids, given their counts and rows."""
        damped = DAMPED[np.minimum(counts, DAMPED.size - 1)] if self.sublinear else counts
        weights = damped * self.idf[ids]  # (m,) float64
        return (unit_rows(weights, rows) if self.normalise else weights).astype(np.float32)


def inverse_document_frequency(texts_with_token: np.ndarray, n_texts: int) -> np.ndarray:
    """ln((1 + n) / (1 + df)) + 1: as if one more text contained every token, so that no weight is zero."""
    return np.log((1.0 + n_texts) / (1.0 + texts_with_token)) + 1.0


def unit_rows(values: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """`values` (m,) float64 with each nonzero row scaled to unit length."""
    norms = np.sqrt(np.bincount(rows, weights=values * values))  # sums in order, not in blocks
    norms[norms == 0] = 1
    return values / norms[rows]


def rows_of(indptr: np.ndarray) -> np.ndarray:
    """The row (m,) of each stored value of a CSR matrix."""
    return np.repeat(np.arange(indptr.size - 1), np.diff(indptr))
