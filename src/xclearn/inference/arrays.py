"""Array operations for NumPy arrays and torch tensors alike, so that a component is written once for a CPU and a GPU.

Operators, indexing, `.T`, `.clip`, `.reshape` and `.cumsum` mean the same for both and are used as they are; so are the
functions of `module`. The rest is here. Which of the two computes follows from the arrays: those of a component lie
either in the CPU's memory or on a device. Knows no component.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import scipy.sparse as sp

from xclearn.kernels.dense import topk_dense

if TYPE_CHECKING:
    import torch

Array: TypeAlias = Any  # an np.ndarray or a torch.Tensor

_GATHERED_AT_ONCE = {"cpu": 1 << 20, "cuda": 1 << 27}  # values: what a cache holds, or half a GiB


def module(array: Array) -> Any:
    """NumPy or torch, whichever computes with this array."""
    if isinstance(array, np.ndarray):
        return np
    import torch

    return torch


def to_numpy(array: Array) -> np.ndarray:
    """The array in the CPU's memory; sparse rows are there."""
    return array if isinstance(array, np.ndarray | sp.csr_matrix) else array.cpu().numpy()


def like(example: Array, array: np.ndarray) -> Array:
    """An array of NumPy where the example is."""
    if isinstance(example, np.ndarray):
        return array
    return tensor(array, example.device)


def tensor(array: np.ndarray, device: torch.device) -> torch.Tensor:
    """The array on a device: floats in 32 bits, integers in 64."""
    import torch

    kind = np.float32 if array.dtype.kind == "f" else np.int64
    return torch.from_numpy(np.array(array, dtype=kind)).to(device)


def gathered_at_once(array: Array) -> int:
    """How many values may be gathered beside this array at a time."""
    return _GATHERED_AT_ONCE["cpu" if isinstance(array, np.ndarray) else array.device.type]


def filled(shape: tuple[int, ...], value: float, example: Array) -> Array:
    """An array of one value, of the example's type and place."""
    if isinstance(example, np.ndarray):
        return np.full(shape, value, dtype=example.dtype)
    return example.new_full(shape, value)


def numbers(n: int, example: Array) -> Array:
    """0 … n − 1 in 64 bits, where the example is."""
    return like(example, np.arange(n))


def owners(lengths: Array) -> Array:
    """The number of each part, as often as the part is long."""
    if isinstance(lengths, np.ndarray):
        return np.repeat(np.arange(len(lengths)), lengths)
    return module(lengths).repeat_interleave(lengths)


def take_along(array: Array, places: Array) -> Array:
    """What stands at these places (n, m) of each row."""
    return np.take_along_axis(array, places, axis=1) if isinstance(array, np.ndarray) else array.gather(1, places)


def lexsort(keys: Sequence[Array]) -> Array:
    """The order (n, m) of each row by the last key, among equal ones by the one before, and so on."""
    if isinstance(keys[0], np.ndarray):
        return np.lexsort(tuple(keys), axis=1)
    order = keys[0].argsort(dim=1, stable=True)
    for key in keys[1:]:
        order = order.gather(1, key.gather(1, order).argsort(dim=1, stable=True))
    return order


def top(scores: Array, k: int) -> tuple[Array, Array]:
    """Columns (n, k) and scores of the best of each row, best first, ties by the lower column; k ≤ columns."""
    if isinstance(scores, np.ndarray):
        return topk_dense(scores, k)
    scores = scores.nan_to_num(nan=-np.inf, posinf=np.inf, neginf=-np.inf)
    values, columns = scores.topk(min(k + 1, scores.shape[1]))
    if values.shape[1] > k:  # of values that equal the last one topk takes any
        unclear = ((values[:, k - 1] == values[:, k]) & (values[:, k] > -np.inf)).nonzero().flatten()
        again, order = scores[unclear].sort(dim=1, descending=True, stable=True)
        values[unclear, :k] = again[:, :k]
        columns[unclear, :k] = order[:, :k]
    order = lexsort((columns[:, :k], -values[:, :k]))
    return take_along(columns, order), take_along(values, order)


def largest_of_groups(values: Array, groups: Array, n_groups: int) -> Array:
    """Values (n, m) → (n, groups): the largest of each group; `groups` (m,) ascends and none is empty."""
    if isinstance(values, np.ndarray):
        return np.maximum.reduceat(values, np.flatnonzero(np.diff(groups, prepend=-1)), axis=1)
    largest = filled((len(values), n_groups), -np.inf, values)
    return largest.scatter_reduce_(1, groups.expand_as(values), values, "amax")


def rows_times(features: sp.csr_matrix | np.ndarray, table: Array) -> Array:
    """Rows of features (n, V), which come from the CPU, times a table (V, D): (n, D) in 32 bits."""
    if isinstance(table, np.ndarray):
        return np.asarray(features @ table, dtype=np.float32)
    if not isinstance(features, sp.csr_matrix):
        return like(table, features) @ table
    from torch.nn.functional import embedding_bag

    ids, starts, weights = (like(table, part) for part in (features.indices, features.indptr, features.data))
    return embedding_bag(ids, table, starts, mode="sum", per_sample_weights=weights, include_last_offset=True)


def sigmoid(logits: Array) -> Array:
    """1 / (1 + e^−z) without overflow; a very small probability is not yet zero."""
    if isinstance(logits, np.ndarray):
        return np.exp(-np.logaddexp(0, -logits))
    from torch.nn.functional import logsigmoid

    return logsigmoid(logits).exp()


def unit(vectors: Array) -> Array:
    """Each row scaled to length one; a zero row stays zero."""
    xp = module(vectors)
    norms = xp.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / xp.where(norms > 0, norms, 1)
