"""The native core, and its first two kernels: top-k of sparse rows and balanced clustering.

Importing this package without the extension raises `MissingCore`. All arguments are checked here. Knows nothing about
labels, documents or models.
"""

from __future__ import annotations

import os

import numpy as np

from xclearn.errors import ConfigError, DataError, MissingCore

try:
    from xclearn.kernels import _native
except ImportError as error:
    raise MissingCore(
        "the native core xclearn.kernels._native cannot be imported",
        got=str(error),
        todo="Install xclearn with pip, or run `make setup` in a clone; both compile it with a C++20 compiler.",
    ) from error

__all__ = ["balanced_clusters_csr", "balanced_clusters_dense", "topk_csr"]

MAX_INT32 = np.iinfo(np.int32).max


def topk_csr(
    indptr: np.ndarray, indices: np.ndarray, data: np.ndarray, k: int, n_threads: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """The k largest stored entries of each sparse row: ids (n, k) int64, scores (n, k) float32.

    Sorted by score, ties by smaller id; padded with −1 and −inf if a row has fewer than k entries.
    """
    if k < 1:
        raise ConfigError("k must be positive", got=k, allowed="1 or more")
    arrays = _csr(indptr, indices, data, n_columns=None)
    if np.isnan(arrays[2]).any():
        raise DataError("scores must not be NaN")
    return _native.topk_csr(*arrays, k, _threads(n_threads))


def balanced_clusters_csr(
    indptr: np.ndarray,
    indices: np.ndarray,
    data: np.ndarray,
    n_columns: int,
    n_clusters: int,
    seed: int,
    n_threads: int | None = None,
) -> np.ndarray:
    """The cluster of each sparse row, (n,) int32, by recursive balanced 2-means on the L2-normalised rows.

    Every split halves a cluster exactly (the first half gets the odd row); `n_clusters` is a power of two. The result
    depends only on the rows and the seed, not on the number of threads.
    """
    arrays = _csr(indptr, indices, data, n_columns)
    _check_finite(arrays[2])
    _check_clusters(n_clusters, seed)
    return _native.balanced_clusters_csr(*arrays, n_columns, n_clusters, seed, _threads(n_threads))


def balanced_clusters_dense(rows: np.ndarray, n_clusters: int, seed: int, n_threads: int | None = None) -> np.ndarray:
    """Like `balanced_clusters_csr`, for dense rows (n, D) float32."""
    _check_array("rows", rows, "float32", n_dimensions=2)
    _check_finite(rows)
    _check_clusters(n_clusters, seed)
    return _native.balanced_clusters_dense(np.ascontiguousarray(rows), n_clusters, seed, _threads(n_threads))


def _csr(
    indptr: np.ndarray, indices: np.ndarray, data: np.ndarray, n_columns: int | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The three arrays of a sparse matrix, checked and cast to the types the kernels take."""
    _check_array("indptr", indptr, "integer", n_dimensions=1)
    _check_array("indices", indices, "integer", n_dimensions=1)
    _check_array("data", data, "float32", n_dimensions=1)
    if len(indices) != len(data):
        raise DataError("indices and data differ in length", got=(len(indices), len(data)))
    if len(indptr) == 0 or indptr[0] != 0 or indptr[-1] != len(data) or (indptr[1:] < indptr[:-1]).any():
        raise DataError("indptr must be non-decreasing from 0 to the number of entries", allowed=f"0 … {len(data)}")
    limit = MAX_INT32 if n_columns is None else n_columns
    if len(indices) and not 0 <= indices.min() <= indices.max() < limit:
        raise DataError("column out of range", got=(indices.min(), indices.max()), allowed=f"0 to {limit - 1}")
    return (
        np.ascontiguousarray(indptr, dtype=np.int64),
        np.ascontiguousarray(indices, dtype=np.int32),
        np.ascontiguousarray(data),
    )


def _check_array(name: str, array: np.ndarray, kind: str, n_dimensions: int) -> None:
    is_kind = array.dtype.kind in "iu" if kind == "integer" else array.dtype == kind
    if not is_kind or array.ndim != n_dimensions:
        got = f"{array.ndim} of {array.dtype}"
        raise DataError(f"{name} has the wrong dimensions or type", got=got, allowed=f"{n_dimensions} of {kind}")


def _check_finite(values: np.ndarray) -> None:
    if not np.isfinite(values).all():
        raise DataError("values to cluster must be finite", got="NaN or infinity")


def _check_clusters(n_clusters: int, seed: int) -> None:
    if not 1 <= n_clusters <= MAX_INT32 or n_clusters & (n_clusters - 1):
        raise ConfigError("n_clusters must be a power of two", got=n_clusters, allowed="1, 2, 4, …")
    if not 0 <= seed < 1 << 64:
        raise ConfigError("seed is out of range", got=seed, allowed="0 to 2^64 − 1")


def _threads(n_threads: int | None) -> int:
    """The requested number of threads, by default as many as this process may use."""
    if n_threads is None:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if n_threads < 1:
        raise ConfigError("n_threads must be positive", got=n_threads, allowed="1 or more")
    return n_threads
