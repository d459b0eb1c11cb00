"""Turns intermediate document features v into final ones: x̂ = v + ReLU(R v).

The spectral norm of R is fixed at a limit, bounded by it, or free; the skip connection is optional. `served()` gives
the NumPy form. Knows nothing about labels, losses or what the features were trained on.
"""

from __future__ import annotations

from typing import Literal, final

import torch
from torch import nn
from torch.nn import functional as F

from xclearn.inference import components
from xclearn.inference.hashed import Affine
from xclearn.inference.layered import layered
from xclearn.parts.encoders import DocumentEncoder
from xclearn.parts.rows import FeatureBatch

Transfer = Literal["spectral", "capped", "free", "fully_connected", "fine_tune"]


@final
class TransferBlock(nn.Module):
    """v ↦ v + dropout(ReLU(R v)), with R initialised to the identity.

    `spectral` (and `fine_tune`, which differs in what else is trained): R = λ W / σ(W), σ the largest singular value;
    `capped`: R = W min(1, λ / σ(W)). Neither has a bias, so that ‖x̂ − v‖ ≤ λ ‖v‖. `free`: R = W and a bias;
    `fully_connected`: the same without the skip connection. σ is tracked by one power iteration per step in training
    and exact otherwise.
    """

    direction: torch.Tensor

    def __init__(self, dim: int, dropout: float, kind: Transfer, limit: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.eye(dim) * (limit if kind == "capped" else 1.0))
        self.bias = nn.Parameter(torch.zeros(dim)) if kind in ("free", "fully_connected") else None
        self.register_buffer("direction", F.normalize(torch.arange(1.0, dim + 1), dim=0))  # (D,)
        self.dropout, self.kind, self.limit = dropout, kind, limit

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        inner = F.relu(F.linear(vectors, self.matrix(), self.bias))
        inner = F.dropout(inner, self.dropout, self.training)  # (n, D)
        return inner if self.kind == "fully_connected" else vectors + inner

    def matrix(self) -> torch.Tensor:
        """R (D, D)."""
        if self.bias is not None:
            return self.weight
        norm = self._norm()
        scale = self.limit / norm.clamp(min=self.limit if self.kind == "capped" else 1e-12)
        return self.weight * scale

    def served(self) -> list[components.Layer]:
        matrix = self.matrix().detach().float().cpu().numpy()
        bias = torch.zeros(len(matrix)) if self.bias is None else self.bias.detach().float().cpu()
        if self.kind == "fully_connected":
            return [Affine(matrix, bias.numpy()), components.Relu()]
        return [components.Residual(matrix, bias.numpy())]

    def _norm(self) -> torch.Tensor:
        """The largest singular value; differentiable."""
        if not self.training:
            return torch.linalg.matrix_norm(self.weight, 2)
        with torch.no_grad():
            self.direction.copy_(F.normalize(self.weight.T @ (self.weight @ self.direction), dim=0))
        return torch.linalg.vector_norm(self.weight @ self.direction.clone())


@final
class TransferEncoder(DocumentEncoder):
    """An encoder followed by a transfer block, trained together."""

    def __init__(self, base: DocumentEncoder, block: TransferBlock) -> None:
        super().__init__()
        self.base, self.block = base, block
        self.dim = base.dim

    def forward(self, features: FeatureBatch) -> torch.Tensor:
        vectors: torch.Tensor = self.block(self.base(features))  # (n, D)
        return vectors

    def lazy_parameters(self) -> list[nn.Parameter]:
        return self.base.lazy_parameters()

    def served(self) -> components.Encoder:
        return layered(self.base.served(), self.block.served())
