"""Encoders as torch modules: features of documents → vectors.

They know nothing about labels, losses or training; `served()` gives the NumPy form that the servable runs.
"""

from __future__ import annotations

import math
from typing import final

import torch
from torch import nn
from torch.nn import functional as F

from xclearn.inference import components
from xclearn.parts.rows import FeatureBatch, bag_vectors


@final
class BagEncoder(nn.Module):
    """ReLU of the weighted sum of token embeddings, then a residual block: v + ReLU(W v + b), dropout after each ReLU.

    The token table starts uniform within ±√(6 / D) / 2; the block starts as the identity map (W = 0), so that training
    begins with the plain bag. `sparse` makes the table's gradient hold only the tokens of the batch (for SparseAdam).
    """

    def __init__(self, n_features: int, dim: int, dropout: float, generator: torch.Generator, *, sparse: bool) -> None:
        super().__init__()
        bound = math.sqrt(6 / dim) / 2
        self.token_embeddings = nn.Parameter(torch.empty(n_features, dim).uniform_(-bound, bound, generator=generator))
        self.residual = nn.Linear(dim, dim)
        nn.init.zeros_(self.residual.weight)
        nn.init.zeros_(self.residual.bias)
        self.dropout, self.sparse = dropout, sparse

    def forward(self, features: FeatureBatch) -> torch.Tensor:
        """Sparse rows or a dense batch (n, V) → (n, D)."""
        summed = bag_vectors(self.token_embeddings, features, sparse=self.sparse)
        bag = F.dropout(F.relu(summed), self.dropout, self.training)
        return bag + F.dropout(F.relu(self.residual(bag)), self.dropout, self.training)  # (n, D)

    def served(self) -> components.Bag:
        table, weight, bias = (
            tensor.detach().float().cpu().numpy()
            for tensor in (self.token_embeddings, self.residual.weight, self.residual.bias)
        )
        return components.Bag(table, [components.Relu(), components.Residual(weight, bias)])
