"""The result type of every prediction: the k best labels of each document.

Knows nothing about models, label names or metrics.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class TopK(NamedTuple):
    """Sorted by score, higher is better (ties: smaller id first); a missing id is -1, its score -inf."""

    ids: np.ndarray  # (n, k) int64
    scores: np.ndarray  # (n, k) float32
