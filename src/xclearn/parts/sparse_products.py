"""Products of a constant sparse matrix with a table, and the table's gradient, by torch or Triton.

Knows nothing about what rows and columns are.
"""

from __future__ import annotations

from typing import final

import torch

from xclearn.parts.rows import SparseRows


@final
class PlainProduct:
    """Torch's sparse products: the oracle of `DeviceProduct`."""

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
    """Gathers table rows on a GPU, also in half precision, and sums in float32."""

    def __init__(self, rows: SparseRows) -> None:
        from xclearn.parts import triton_text

        self.kernels = triton_text
        self.rows, self.transposed = rows, rows.transposed()
        self.pieces = triton_text.pieces(self.transposed)

    def of(self, table: torch.Tensor) -> torch.Tensor:
        """Like `PlainProduct.of`."""
        return self.kernels.weighted_sums(self.rows, table.contiguous())

    def back(self, gradient: torch.Tensor) -> torch.Tensor:
        """Like `PlainProduct.back`, in float32."""
        return self.kernels.summed_pieces(self.transposed, self.pieces, gradient.contiguous())
