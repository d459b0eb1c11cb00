"""Whether the tensors of a model fit together: one sentence for each way in which they do not."""

from __future__ import annotations

import numpy as np

from xclearn.errors import ModelError


def expect_shape(array: np.ndarray, shape: tuple[int, ...], name: str) -> None:
    """Refuse a tensor of another shape."""
    if array.shape != shape:
        raise ModelError(f"tensor {name} has the wrong shape", got=array.shape, allowed=str(shape))


def expect(array: np.ndarray, dtype: type, shape: int | tuple[int, ...], name: str) -> None:
    """Refuse a tensor of another type or shape; a number is that of a vector."""
    if array.dtype != dtype or array.shape != (shape if isinstance(shape, tuple) else (shape,)):
        raise ModelError(f"tensor {name} has the wrong shape or type", got=f"{array.dtype} {array.shape}")


def expect_starts(starts: np.ndarray, n: int, end: int, name: str) -> None:
    """Refuse what does not say where each of n parts of `end` entries starts."""
    expect(starts, np.int64, n + 1, name)
    if starts[0] != 0 or starts[-1] != end or (np.diff(starts) < 0).any():
        raise ModelError(f"{name} does not walk through its entries", got=(int(starts[0]), int(starts[-1])))


def expect_below(numbers: np.ndarray, limit: int, size: int, name: str) -> None:
    """Refuse what is not so many numbers from 0 to below the limit."""
    expect(numbers, np.int32, size, name)
    if size and not 0 <= numbers.min() <= numbers.max() < limit:
        found = (int(numbers.min()), int(numbers.max()))
        raise ModelError(f"{name} is out of range", got=found, allowed=f"0 … {limit - 1}")
