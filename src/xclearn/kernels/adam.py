"""Rows of a table that a batch touched, their summed gradients and Adam's step.

Gradients of the same row are summed and applied in one pass, so that neither the sum nor the intermediate steps exist
as arrays of their own. Knows nothing about optimisers or schedules.
"""

from __future__ import annotations

from typing import NamedTuple, final

import numpy as np

from xclearn.kernels import _native, _threads


@final
class AdamStep(NamedTuple):
    """The numbers of one step."""

    size: float  # the learning rate, corrected for the moments' start at zero
    first_share: float  # of the gradient in the first moment
    second_share: float  # of its square in the second
    epsilon: float


@final
class AdamTable(NamedTuple):
    """Parameters and both moments, each (V, D) float32, changed in place."""

    values: np.ndarray
    first: np.ndarray
    second: np.ndarray


def adam_rows(
    table: AdamTable, ids: np.ndarray, gradients: np.ndarray, step: AdamStep, n_threads: int | None = None
) -> None:
    """Move the rows `ids` (m,) int64, which may repeat, by their summed gradients (m, D) float32."""
    _native.adam_rows(*table, ids, gradients, *step, _threads(n_threads))


@final
class Entries(NamedTuple):
    """What bags take of a table: entry i of bag `owner[i]` is `weights[i]` times the row `ids[i]`."""

    ids: np.ndarray  # (m,) int64
    owner: np.ndarray  # (m,) int64
    weights: np.ndarray  # (m,) float32


def bag_gradient(
    entries: Entries, gradients: np.ndarray, n_rows: int, n_threads: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """The rows that any bag takes, ascending (t,), and their gradients (t, D), from those of the bags (n, D)."""
    return _native.bag_gradient(*entries, gradients, n_rows, _threads(n_threads))
