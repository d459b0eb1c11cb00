"""How likely a relevant label is to have been marked at all, from how often it was marked in training.

The model of Jain, Prabhu and Varma (KDD 2016). Knows label counts and the two constants of a data set, nothing about
predictions.
"""

from __future__ import annotations

import numpy as np

from xclearn.errors import ConfigError, DataError


def inverse_propensity(label_counts: np.ndarray, n_documents: int, a: float, b: float) -> np.ndarray:
    """The weight of each label, (L,) float64: 1 + (ln N − 1)(b + 1)^a (n_l + b)^−a.

    `label_counts` and `n_documents` are those of the whole training file, including held-out documents.
    """
    if not (a >= 0 and b > 0):
        raise ConfigError("propensity constants are out of range", got=(a, b), allowed="a >= 0 and b > 0")
    if n_documents < 1 or np.min(label_counts, initial=0) < 0:
        raise DataError("propensities need at least one training document and no negative label count", got=n_documents)
    # Below e documents the formula gives a propensity above one; such a set needs no correction.
    scale = max(np.log(n_documents) - 1, 0) * (b + 1) ** a
    return 1 + scale * (np.asarray(label_counts, dtype=np.float64) + b) ** -a  # (L,)
