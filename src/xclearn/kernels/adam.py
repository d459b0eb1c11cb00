"""Rows of a table that a batch touched, their summed gradients and Adam's step: native where it is built, else NumPy.

Gradients of the same row are summed and applied in one pass, so that neither the sum nor the intermediate steps exist
as arrays of their own. Knows nothing about optimisers or schedules.
"""

from __future__ import annotations

from typing import NamedTuple, final

import numpy as np
import scipy.sparse as sp

from xclearn import kernels


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
    if kernels.BACKEND == "native":
        from xclearn.kernels import _native

        _native.adam_rows(*table, ids, gradients, *step, kernels._threads(n_threads))
    else:
        adam_rows_numpy(table, ids, gradients, step)


def adam_rows_numpy(table: AdamTable, ids: np.ndarray, gradients: np.ndarray, step: AdamStep) -> None:
    """The same with whole arrays: the native one's oracle."""
    rows, place = np.unique(ids, return_inverse=True)
    gradient = np.zeros((len(rows), gradients.shape[1]), dtype=np.float32)
    np.add.at(gradient, place, gradients)
    first = table.first[rows] + (gradient - table.first[rows]) * np.float32(step.first_share)
    second = table.second[rows] + (gradient * gradient - table.second[rows]) * np.float32(step.second_share)
    table.first[rows], table.second[rows] = first, second
    table.values[rows] -= np.float32(step.size) * (first / (np.sqrt(second) + np.float32(step.epsilon)))


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
    if kernels.BACKEND == "native":
        from xclearn.kernels import _native

        return _native.bag_gradient(*entries, gradients, n_rows, kernels._threads(n_threads))
    return bag_gradient_numpy(entries, gradients)


def bag_gradient_numpy(entries: Entries, gradients: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same as a sparse product: the native one's oracle."""
    rows, place = np.unique(entries.ids, return_inverse=True)
    weights = sp.csr_matrix((entries.weights, (place, entries.owner)), shape=(len(rows), len(gradients)))
    return rows, weights @ gradients
