"""Sparse Adam: sums the gradients of the table rows that a batch touched, and updates those rows.

Gradients of the same row are summed and applied in one pass, without intermediate arrays. Knows nothing about
optimisers or schedules.
"""

from __future__ import annotations

from typing import NamedTuple, final

import numpy as np

from xclearn.kernels import _native, _threads


@final
class AdamStep(NamedTuple):
    """The coefficients of one step."""

    size: float  # the learning rate with Adam's bias correction
    first_share: float  # weight of the gradient in the first moment
    second_share: float  # weight of its square in the second moment
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
    """Update the rows `ids` (m,) int64, which may repeat, by their summed gradients (m, D) float32."""
    _native.adam_rows(*table, ids, gradients, *step, _threads(n_threads))


@final
class Entries(NamedTuple):
    """Weighted sums of table rows: entry i adds `weights[i]` times row `ids[i]` to bag `owner[i]`."""

    ids: np.ndarray  # (m,) int64
    owner: np.ndarray  # (m,) int64
    weights: np.ndarray  # (m,) float32


def bag_gradient(
    entries: Entries, gradients: np.ndarray, n_rows: int, n_threads: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """The rows used by any bag, ascending (t,), and their gradients (t, D), given the bags' gradients (n, D)."""
    return _native.bag_gradient(*entries, gradients, n_rows, _threads(n_threads))
