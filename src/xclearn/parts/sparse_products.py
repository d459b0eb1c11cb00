"""A sparse matrix that never changes times a table, and the gradient of the table: torch's products, or Triton's.

Knows nothing about what rows and columns are.
"""

from __future__ import annotations

from typing import final

import torch

from xclearn.parts.rows import SparseRows


@final
class PlainProduct:
    """By torch's sparse matrices: the oracle of `DeviceProduct`."""

    def __init__(self, rows: SparseRows) -> None:
        self.matrix = rows.matrix()
        self.transposed = rows.transposed().matrix()

    def of(self, table: torch.Tensor) -> torch.Tensor:
        """Rows (S, V) times the table (V, D): (S, D) in its precision."""
        return self.matrix @ table

    def back(self, gradient: torch.Tensor) -> torch.Tensor:
        """Columns times a gradient (S, D): (V, D)."""
        return self.transposed @ gradient


@final
class DeviceProduct:
    """By gathering table rows on a GPU, in half precision too; sums are of float32."""

    def __init__(self, rows: SparseRows) -> None:
        from xclearn.parts import triton_text

        self.kernels = triton_text
        self.rows, self.transposed = rows, rows.transposed()
        self.pieces = triton_text.pieces(self.transposed)

    def of(self, table: torch.Tensor) -> torch.Tensor:
        """As `PlainProduct.of`."""
        return self.kernels.weighted_sums(self.rows, table.contiguous())

    def back(self, gradient: torch.Tensor) -> torch.Tensor:
        """As `PlainProduct.back`, in float32."""
        return self.kernels.summed_pieces(self.transposed, self.pieces, gradient.contiguous())
