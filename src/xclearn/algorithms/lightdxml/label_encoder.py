"""The label encoder: from the centroid of a label's documents to the label's embedding.

The encoder is trained so that each document is near its labels; document vectors are fixed. Knows
nothing about stages, search or classifiers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch
from torch import nn
from torch.nn import functional as F

from xclearn.parts.encoders import encoder_optimisers
from xclearn.parts.rows import SparseRows

_AT_ONCE = 8192  # documents per block


@final
class LabelEncoder(nn.Module):
    """μ ↦ W₂ (W₁ μ + b₁) + b₂, optionally followed by a ReLU.

    W₁ is initialised with orthogonal rows or columns and W₂ with its transpose, so that with a hidden size of at least
    D a label's embedding starts at its centroid.
    """

    def __init__(self, dim: int, hidden_dim: int, generator: torch.Generator, *, relu: bool) -> None:
        super().__init__()
        self.inner = nn.Linear(dim, hidden_dim)
        self.outer = nn.Linear(hidden_dim, dim)
        nn.init.orthogonal_(self.inner.weight, generator=generator)
        with torch.no_grad():
            self.outer.weight.copy_(self.inner.weight.T)
        for layer in (self.inner, self.outer):
            nn.init.zeros_(layer.bias)
        self.relu = relu

    def forward(self, means: torch.Tensor) -> torch.Tensor:
        """(n, D) → (n, D)."""
        vectors: torch.Tensor = self.outer(self.inner(means))
        return F.relu(vectors) if self.relu else vectors


@final
@dataclass(frozen=True)
class LabelTask:
    """A label encoder, and its training pairs of a document and one of its labels."""

    encoder: LabelEncoder
    vectors: torch.Tensor  # (N, D) document vectors
    means: torch.Tensor  # (L, D) label centroids
    relevance: SparseRows

    @property
    def module(self) -> nn.Module:
        return self.encoder

    @property
    def n_items(self) -> int:
        return len(self.relevance.columns)

    def optimisers(self, lr: float) -> list[torch.optim.Optimizer]:
        return encoder_optimisers(self.encoder, lr)

    def loss(self, rows: torch.Tensor, step: int, generator: torch.Generator) -> torch.Tensor:  # noqa: ARG002
        """Mean of log(1 + d²) over the pairs `rows` (n,), d the distance of the document and the label."""
        owner = torch.searchsorted(self.relevance.indptr, rows, right=True) - 1  # (n,)
        places = self.encoder(self.means[self.relevance.columns[rows].long()])  # (n, D)
        return (self.vectors[owner] - places).square().sum(dim=1).log1p().mean()

    @torch.no_grad()
    def embeddings(self) -> torch.Tensor:
        """The embedding of every label (L, D)."""
        return torch.cat([self.encoder(part) for part in self.means.split(_AT_ONCE)])


def label_means(vectors: torch.Tensor, relevance: SparseRows) -> torch.Tensor:
    """The mean of the vectors (N, D) of each label's documents (L, D); zero for a label without documents."""
    sums = torch.zeros(relevance.n_columns, vectors.shape[1], device=vectors.device)
    for rows in torch.arange(len(vectors), device=vectors.device).split(_AT_ONCE):
        relevant = relevance.take(rows)
        sums.index_add_(0, relevant.columns, vectors[rows][relevant.owner])
    counts = torch.bincount(relevance.columns, minlength=relevance.n_columns)
    return sums / counts.clamp(min=1)[:, None]
