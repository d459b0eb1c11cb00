"""Sparse or dense matrices on a device, whose rows are gathered without leaving it.

Used for documents (token ids and weights) and relevance (label ids). Knows nothing about what the columns mean.
"""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple, final

import numpy as np
import scipy.sparse as sp
import torch
from torch.nn import functional as F

from xclearn.kernels.adam import Entries, bag_gradient


class Gathered(NamedTuple):
    """Entries of some rows, in row order."""

    owner: torch.Tensor  # (m,) position in the batch of each entry, ascending
    columns: torch.Tensor  # (m,) int64
    values: torch.Tensor  # (m,) float32
    offsets: torch.Tensor  # (n,) start of each row


@final
class SparseRows:
    """A CSR matrix as three tensors."""

    def __init__(self, indptr: torch.Tensor, columns: torch.Tensor, values: torch.Tensor, n_columns: int) -> None:
        self.indptr = indptr
        self.columns = columns
        self.values = values
        self.n_columns = n_columns

    @classmethod
    def of(cls, matrix: sp.csr_matrix, device: torch.device) -> SparseRows:
        parts = (
            matrix.indptr.astype(np.int64),
            matrix.indices.astype(np.int32, copy=False),
            matrix.data.astype(np.float32, copy=False),
        )
        indptr, columns, values = (torch.from_numpy(part).to(device) for part in parts)
        return cls(indptr, columns, values, matrix.shape[1])

    def __len__(self) -> int:
        return len(self.indptr) - 1

    def matrix(self) -> torch.Tensor:
        """A torch sparse CSR tensor, whose products on a GPU are six times as fast as those of COO."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Sparse (CSR tensor support is in beta|invariant checks)")
            parts = (self.indptr.int(), self.columns, self.values)
            shape = (len(self), self.n_columns)
            return torch.sparse_csr_tensor(*parts, shape, check_invariants=True)

    def transposed(self) -> SparseRows:
        columns, order = self.columns.sort(stable=True)
        device = columns.device
        owner = torch.repeat_interleave(torch.arange(len(self), device=device), self.indptr.diff())[order]
        starts = torch.searchsorted(columns, torch.arange(self.n_columns + 1, device=device, dtype=torch.int32))
        return SparseRows(starts, owner.int(), self.values[order], len(self))

    def followed_by(self, other: SparseRows) -> SparseRows:
        """These rows followed by those of another matrix with the same number of columns."""
        indptr = torch.cat([self.indptr, self.indptr[-1] + other.indptr[1:]])
        columns = torch.cat([self.columns, other.columns])
        values = torch.cat([self.values, other.values])
        return SparseRows(indptr, columns, values, self.n_columns)

    def take(self, rows: torch.Tensor) -> Gathered:
        """The entries of `rows` (n,), in that order."""
        starts = self.indptr[rows]  # (n,)
        lengths = self.indptr[rows + 1] - starts
        offsets = lengths.cumsum(0) - lengths
        owner = torch.repeat_interleave(lengths)  # (m,)
        position = torch.arange(len(owner), device=rows.device) + (starts - offsets)[owner]
        return Gathered(owner, self.columns[position].long(), self.values[position], offsets)


@final
class DenseRows:
    """A dense matrix on a device."""

    def __init__(self, values: torch.Tensor) -> None:
        self.values = values  # (n, V)

    def __len__(self) -> int:
        return len(self.values)

    def take(self, rows: torch.Tensor) -> torch.Tensor:
        return self.values[rows]


FeatureRows = SparseRows | DenseRows
FeatureBatch = Gathered | torch.Tensor


def feature_rows(features: sp.csr_matrix | np.ndarray, device: torch.device) -> FeatureRows:
    """A feature matrix on a device."""
    if isinstance(features, np.ndarray):
        kind = np.int32 if features.dtype == np.int32 else np.float32  # token ids stay integers
        return DenseRows(torch.from_numpy(np.ascontiguousarray(features, dtype=kind)).to(device))
    return SparseRows.of(features, device)


def reads_tokens(rows: FeatureRows) -> bool:
    """Whether a document has few of the features, so that a token table's gradient is sparse."""
    return isinstance(rows, SparseRows) or not rows.values.is_floating_point()


def bag_vectors(table: torch.Tensor, features: FeatureBatch, *, sparse: bool) -> torch.Tensor:
    """The weighted sum of table rows for each document (n, D); a `sparse` gradient holds only the batch's rows."""
    if isinstance(features, torch.Tensor):
        return features @ table
    if sparse and table.device.type == "cpu":
        vectors: torch.Tensor = _Bags.apply(table, features)
        return vectors
    return _bags(table, features, sparse=sparse)


def _bags(table: torch.Tensor, features: Gathered, *, sparse: bool) -> torch.Tensor:
    return F.embedding_bag(
        features.columns, table, features.offsets, mode="sum", per_sample_weights=features.values, sparse=sparse
    )


class _Bags(torch.autograd.Function):
    """Unlike torch's sparse gradient with a row per bag entry, this has one row per distinct token."""

    @staticmethod
    def forward(ctx: Any, table: torch.Tensor, features: Gathered) -> torch.Tensor:
        ctx.entries = Entries(*(part.numpy() for part in (features.columns, features.owner, features.values)))
        ctx.shape = table.shape
        return _bags(table, features, sparse=False)

    @staticmethod
    def backward(ctx: Any, *outer: Any) -> Any:
        gradients = outer[0].contiguous().numpy()
        rows, sums = bag_gradient(ctx.entries, gradients, ctx.shape[0], torch.get_num_threads())
        ids, values = torch.from_numpy(rows)[None], torch.from_numpy(sums)
        return torch.sparse_coo_tensor(ids, values, ctx.shape, is_coalesced=True, check_invariants=False), None
