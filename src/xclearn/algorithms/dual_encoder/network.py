"""Encoders of documents and label texts into one space of unit vectors.

`BagTowers` shares a token table and has one block for each side; `TransformerTower` is the same for both. `served`
gives the form used for prediction. Knows nothing about losses, stages or relevance.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import final

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from xclearn.inference import components
from xclearn.inference.layered import layered
from xclearn.parts.rows import FeatureBatch, FeatureRows, bag_vectors
from xclearn.parts.sequence_encoders import TransformerEncoder
from xclearn.parts.text_network import EmbeddingBlock

_AT_ONCE = 4096  # texts per batch outside training
_PART = 1024  # texts of similar length per transformer pass: little padding, few launches


class DualNetwork(nn.Module, ABC):
    """Maps features of texts to unit vectors (n, D)."""

    dim: int
    weight_decay: float = 0.0

    @abstractmethod
    def documents(self, features: FeatureBatch) -> torch.Tensor: ...

    @abstractmethod
    def labels(self, features: FeatureBatch, around: tuple[int, int] = (0, 0)) -> torch.Tensor:
        """Vectors of some labels; `around` are the numbers of labels before and after them, in other processes."""

    @abstractmethod
    def lazy_parameters(self) -> list[nn.Parameter]:
        """Parameters whose gradient holds only the tokens of the batch."""

    @abstractmethod
    def served(self) -> tuple[components.Encoder, components.Encoder]:
        """The encoders of documents and of label texts."""

    @torch.no_grad()
    def all_documents(self, texts: FeatureRows, device: torch.device) -> torch.Tensor:
        """Vectors of all documents (N, D), without dropout."""
        self.eval()
        parts = torch.arange(len(texts), device=device).split(_AT_ONCE)
        return torch.cat([self.documents(texts.take(rows)) for rows in parts])

    @torch.no_grad()
    def all_labels(self, texts: FeatureRows, device: torch.device) -> torch.Tensor:
        """Vectors of all label texts (L, D), without dropout."""
        self.eval()
        parts = torch.arange(len(texts), device=device).split(_AT_ONCE)
        return torch.cat([self.labels(texts.take(rows)) for rows in parts])


@final
class BagTowers(DualNetwork):
    """The weighted sum of token vectors, followed by one gated block for documents and another for labels.

    With `sparse`, the table's gradient holds only the tokens of the batch (for LazyAdam).
    """

    def __init__(self, table: torch.Tensor, dropout: float, *, sparse: bool) -> None:
        super().__init__()
        self.dim = table.shape[1]
        self.table = nn.Parameter(table.clone())  # (V, D)
        self.document_block = EmbeddingBlock(self.dim, dropout, spectral=False)
        self.label_block = EmbeddingBlock(self.dim, dropout, spectral=False)
        self.sparse = sparse

    def documents(self, features: FeatureBatch) -> torch.Tensor:
        return F.normalize(self.document_block(bag_vectors(self.table, features, sparse=self.sparse)), dim=1)

    def labels(self, features: FeatureBatch, around: tuple[int, int] = (0, 0)) -> torch.Tensor:
        return F.normalize(self.label_block(bag_vectors(self.table, features, sparse=self.sparse), around), dim=1)

    def lazy_parameters(self) -> list[nn.Parameter]:
        return [self.table] if self.sparse else []

    def served(self) -> tuple[components.Encoder, components.Encoder]:
        table = self.table.detach().float().cpu().numpy()
        blocks = self.document_block, self.label_block
        first, second = (components.Bag(table, [block.served(), components.Unit()]) for block in blocks)
        return first, second


@final
class TransformerTower(DualNetwork):
    """A pretrained transformer, the same for documents and labels.

    Texts are encoded in parts of similar length. Beyond `at_once` texts, activations are recomputed for the gradient
    (gradient caching, Gao et al. 2021), so that memory does not grow with the batch.
    """

    weight_decay = 0.01

    def __init__(self, encoder: TransformerEncoder, at_once: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.at_once = at_once
        self.dim = encoder.dim

    def documents(self, features: FeatureBatch) -> torch.Tensor:
        assert isinstance(features, torch.Tensor)
        at_once = min(_PART, self.at_once)
        if len(features) <= at_once:
            return F.normalize(self.encoder(features), dim=1)
        keep_layers = len(features) <= self.at_once or not torch.is_grad_enabled()
        order = (features >= 0).sum(dim=1).argsort(stable=True)
        parts = [self._part(features[rows], keep_layers) for rows in order.split(at_once)]
        return F.normalize(torch.cat(parts)[order.argsort()], dim=1)

    def labels(self, features: FeatureBatch, around: tuple[int, int] = (0, 0)) -> torch.Tensor:  # noqa: ARG002
        return self.documents(features)  # without dropout: nothing to draw alike

    def _part(self, features: torch.Tensor, keep_layers: bool) -> torch.Tensor:
        if keep_layers:
            vectors: torch.Tensor = self.encoder(features)
            return vectors
        again: torch.Tensor = checkpoint(self.encoder, features, use_reentrant=False)
        return again

    def lazy_parameters(self) -> list[nn.Parameter]:
        return []

    def served(self) -> tuple[components.Encoder, components.Encoder]:
        encoder = layered(self.encoder.served(), [components.Unit()])
        return encoder, encoder


def random_tokens(n_features: int, dim: int, generator: torch.Generator) -> torch.Tensor:
    """Random token vectors (V, D) of length about one."""
    return torch.randn(n_features, dim, generator=generator) / math.sqrt(dim)
