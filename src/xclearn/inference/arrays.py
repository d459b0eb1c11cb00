"""Array operations for both NumPy arrays and torch tensors, so that a component is written once for CPU and GPU.

Operators, indexing, `.T`, `.clip`, `.reshape` and `.cumsum` work the same for both and are used directly, as are the
functions of `module`; the rest is here. A component's arrays are either all in CPU memory or all on one device, which
decides the library. Knows no component.
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

_GATHERED_AT_ONCE = {"cpu": 1 << 20, "cuda": 1 << 27}  # values: the size of a cache, or half a GiB


def module(array: Array) -> Any:
    """The library of this array: NumPy or torch."""
    if isinstance(array, np.ndarray):
        return np
    import torch

    return torch


def to_numpy(array: Array) -> np.ndarray:
    """The array in CPU memory; sparse matrices already are."""
    return array if isinstance(array, np.ndarray | sp.csr_matrix) else array.cpu().numpy()


def like(example: Array, array: np.ndarray) -> Array:
    """A NumPy array, moved to the device of the example."""
    if isinstance(example, np.ndarray):
        return array
    return tensor(array, example.device)


def tensor(array: np.ndarray, device: torch.device) -> torch.Tensor:
    """The array on a device, with 32-bit floats and 64-bit integers."""
    import torch

    kind = np.float32 if array.dtype.kind == "f" else np.int64
    return torch.from_numpy(np.array(array, dtype=kind)).to(device)


def gathered_at_once(array: Array) -> int:
    """How many values to gather at a time on this array's device."""
    return _GATHERED_AT_ONCE["cpu" if isinstance(array, np.ndarray) else array.device.type]


def filled(shape: tuple[int, ...], value: float, example: Array) -> Array:
    """A constant array with the type and device of the example."""
    if isinstance(example, np.ndarray):
        return np.full(shape, value, dtype=example.dtype)
    return example.new_full(shape, value)


def numbers(n: int, example: Array) -> Array:
    """0 … n − 1 as 64-bit integers, on the example's device."""
    return like(example, np.arange(n))


def owners(lengths: Array) -> Array:
    """The index of each part, repeated by the part's length."""
    if isinstance(lengths, np.ndarray):
        return np.repeat(np.arange(len(lengths)), lengths)
    return module(lengths).repeat_interleave(lengths)


def take_along(array: Array, places: Array) -> Array:
    """The values at these columns (n, m) of each row."""
    return np.take_along_axis(array, places, axis=1) if isinstance(array, np.ndarray) else array.gather(1, places)


def lexsort(keys: Sequence[Array]) -> Array:
    """The sort order (n, m) of each row by the last key, ties by the key before, and so on."""
    if isinstance(keys[0], np.ndarray):
        return np.lexsort(tuple(keys), axis=1)
    order = keys[0].argsort(dim=1, stable=True)
    for key in keys[1:]:
        order = order.gather(1, key.gather(1, order).argsort(dim=1, stable=True))
    return order


def top(scores: Array, k: int) -> tuple[Array, Array]:
    """Columns (n, k) and scores of each row's k best, best first, ties by the lower column; k ≤ columns."""
    if isinstance(scores, np.ndarray):
        return topk_dense(scores, k)
    scores = scores.nan_to_num(nan=-np.inf, posinf=np.inf, neginf=-np.inf)
    values, columns = scores.topk(min(k + 1, scores.shape[1]))
    if values.shape[1] > k:  # topk picks arbitrarily among values equal to the k-th
        unclear = ((values[:, k - 1] == values[:, k]) & (values[:, k] > -np.inf)).nonzero().flatten()
        again, order = scores[unclear].sort(dim=1, descending=True, stable=True)
        values[unclear, :k] = again[:, :k]
        columns[unclear, :k] = order[:, :k]
    order = lexsort((columns[:, :k], -values[:, :k]))
    return take_along(columns, order), take_along(values, order)


def largest_of_groups(values: Array, groups: Array, n_groups: int) -> Array:
    """Values (n, m) → (n, groups), the maximum of each group; `groups` (m,) ascends and no group is empty."""
    if isinstance(values, np.ndarray):
        return np.maximum.reduceat(values, np.flatnonzero(np.diff(groups, prepend=-1)), axis=1)
    largest = filled((len(values), n_groups), -np.inf, values)
    return largest.scatter_reduce_(1, groups.expand_as(values), values, "amax")


def rows_times(features: sp.csr_matrix | np.ndarray, table: Array) -> Array:
    """Features (n, V) in CPU memory times a table (V, D): (n, D) float32."""
    if isinstance(table, np.ndarray):
        return np.asarray(features @ table, dtype=np.float32)
    if not isinstance(features, sp.csr_matrix):
        return like(table, features) @ table
    from torch.nn.functional import embedding_bag

    ids, starts, weights = (like(table, part) for part in (features.indices, features.indptr, features.data))
    return embedding_bag(ids, table, starts, mode="sum", per_sample_weights=weights, include_last_offset=True)


def sigmoid(logits: Array) -> Array:
    """1 / (1 + e^−z) without overflow, and without rounding tiny probabilities to zero."""
    if isinstance(logits, np.ndarray):
        return np.exp(-np.logaddexp(0, -logits))
    from torch.nn.functional import logsigmoid

    return logsigmoid(logits).exp()


def unit(vectors: Array) -> Array:
    """Each row scaled to unit length; zero rows stay zero."""
    xp = module(vectors)
    norms = xp.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / xp.where(norms > 0, norms, 1)
