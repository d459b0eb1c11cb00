"""Encoders as torch modules, from features of documents to vectors: those that read a bag of tokens.

`served()` gives the form used for prediction. Encoders of token sequences are in `sequence_encoders`;
`encoder_settings` chooses an encoder by name. Knows nothing about labels, losses or training.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import final

import torch
from torch import nn
from torch.nn import functional as F

from xclearn.inference import components, hashed
from xclearn.parts.lazy_adam import LazyAdam
from xclearn.parts.rows import FeatureBatch, bag_vectors


class DocumentEncoder(nn.Module, ABC):
    """Maps the features of a batch of documents to vectors (n, D)."""

    dim: int

    @abstractmethod
    def forward(self, features: FeatureBatch) -> torch.Tensor: ...

    @abstractmethod
    def lazy_parameters(self) -> list[nn.Parameter]:
        """Parameters whose gradient holds only the tokens of the batch."""

    @abstractmethod
    def served(self) -> components.Encoder: ...


def encoder_optimisers(encoder: nn.Module, lr: float) -> list[torch.optim.Optimizer]:
    """Adam, lazy for a token table with a sparse gradient: only the batch's tokens are updated."""
    lazy = encoder.lazy_parameters() if isinstance(encoder, DocumentEncoder) else []
    others = [each for each in encoder.parameters() if not any(each is table for table in lazy)]
    optimisers: list[torch.optim.Optimizer] = [LazyAdam(lazy, lr=lr)] if lazy else []
    return [*optimisers, torch.optim.Adam(others, lr=lr, fused=True)] if others else optimisers


@final
class BagEncoder(DocumentEncoder):
    """ReLU of the weighted sum of token embeddings, then layers v ↦ ReLU(W v + b) if any; dropout after each ReLU.

    With `sparse`, the table's gradient holds only the tokens of the batch (for LazyAdam).
    """

    def __init__(
        self, n_features: int, dim: int, dropout: float, generator: torch.Generator, *, sparse: bool, n_layers: int = 0
    ) -> None:
        super().__init__()
        self.token_embeddings = random_table(n_features, dim, generator)
        self.layers = nn.ModuleList(nn.Linear(dim, dim) for _ in range(n_layers))
        start_uniformly(self.layers, generator)
        self.dim, self.dropout, self.sparse = dim, dropout, sparse

    def forward(self, features: FeatureBatch) -> torch.Tensor:
        """Sparse rows or a dense batch (n, V) → (n, D)."""
        vectors = F.relu(bag_vectors(self.token_embeddings, features, sparse=self.sparse))
        for layer in self.layers:
            vectors = F.relu(layer(F.dropout(vectors, self.dropout, self.training)))
        return F.dropout(vectors, self.dropout, self.training)  # (n, D)

    def lazy_parameters(self) -> list[nn.Parameter]:
        return [self.token_embeddings] if self.sparse else []

    def served(self) -> components.Bag:
        layers: list[components.Layer] = [components.Relu()]
        for linear in self.layers:
            layers += [hashed.Affine(*(values.detach().cpu().numpy() for values in linear.parameters()))]
            layers += [components.Relu()]
        return components.Bag(self.token_embeddings.detach().cpu().numpy(), layers)


def random_table(n_features: int, dim: int, generator: torch.Generator) -> nn.Parameter:
    """Token vectors (V, D), uniform within ±√(6 / D) / 2."""
    bound = math.sqrt(6 / dim) / 2
    return nn.Parameter(torch.empty(n_features, dim).uniform_(-bound, bound, generator=generator))


def start_uniformly(layers: nn.Module, generator: torch.Generator) -> None:
    """Weights of linear and convolution layers within ±√(6 / inputs), biases zero."""
    for layer in layers.modules():
        if isinstance(layer, nn.Linear | nn.Conv1d):
            nn.init.kaiming_uniform_(layer.weight, nonlinearity="relu", generator=generator)
            assert layer.bias is not None
            nn.init.zeros_(layer.bias)
