"""How a dual encoder, and rows of labels after it, are trained on a batch: labels drawn, hard and relevant.

A step scores its documents against one set of labels: relevant ones that are drawn for each document, random ones, and
hard ones where lists of these are given. Knows nothing about stages, nor where hard labels come from.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self, final

import torch
from torch import nn
from torch.nn import functional as F

from xclearn.algorithms.dual_encoder.decoupled_softmax import Relevant, decoupled_softmax
from xclearn.algorithms.dual_encoder.network import DualNetwork
from xclearn.parts.rows import FeatureRows, SparseRows


@final
@dataclass(frozen=True, kw_only=True)
class Drawing:
    """Which labels a step holds."""

    positives: SparseRows  # (N, L)
    n_positives: int  # relevant labels drawn for each document, with repetition
    n_random: int  # random labels for the whole batch; as many as there are, or more: all labels
    hard: torch.Tensor | None = None  # (N, m) int32 labels that are easily taken for relevant, −1 where fewer
    n_hard: int = 0  # of these drawn for each document

    def labels(self, rows: torch.Tensor, generator: torch.Generator) -> tuple[torch.Tensor, Relevant]:
        """The labels (C,) of the documents `rows` (n,), ascending, and which of them are relevant to which."""
        drawn = self._draw(rows, generator)  # (n, P)
        n_labels = self.positives.n_columns
        if self.n_random >= n_labels:
            labels = torch.arange(n_labels, device=rows.device)
        else:
            random = torch.randint(n_labels, (self.n_random,), generator=generator, device=rows.device)
            labels = torch.cat([drawn.ravel(), random, *self._hard(rows, generator)]).unique()
        known = self.positives.take(rows)
        place = torch.searchsorted(labels, known.columns).clamp(max=len(labels) - 1)
        there = labels[place] == known.columns
        return labels, Relevant(torch.searchsorted(labels, drawn), known.owner[there], place[there])

    def _draw(self, rows: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        """Relevant labels (n, P) of documents that each have at least one."""
        starts = self.positives.indptr[rows][:, None]
        counts = self.positives.indptr[rows + 1][:, None] - starts
        share = torch.rand((len(rows), self.n_positives), generator=generator, device=rows.device)
        return self.positives.columns[starts + (share * counts).long().clamp(max=counts - 1)].long()

    def _hard(self, rows: torch.Tensor, generator: torch.Generator) -> list[torch.Tensor]:
        if self.hard is None or not self.n_hard:
            return []
        places = (len(rows), self.n_hard)
        drawn = torch.randint(self.hard.shape[1], places, generator=generator, device=rows.device)
        found = self.hard[rows].gather(1, drawn).long()
        return [found[found >= 0]]


@final
@dataclass(frozen=True, kw_only=True)
class DualTask:
    """An encoder of documents and label texts."""

    network: DualNetwork
    documents: FeatureRows  # N rows
    labels: FeatureRows  # L rows
    drawing: Drawing
    scale: float  # of cosines: one over the temperature
    compute: torch.dtype  # of the large products

    @property
    def module(self) -> nn.Module:
        return self.network

    def against(self, drawing: Drawing) -> Self:
        """The same with other labels to be told from."""
        return replace(self, drawing=drawing)

    def loss(self, rows: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        """Mean loss of the documents `rows` (n,), each with a relevant label."""
        labels, relevant = self.drawing.labels(rows, generator)
        vectors = self.network.documents(self.documents.take(rows))
        others = self.network.labels(self.labels.take(labels))
        return decoupled_softmax(vectors, others, relevant, self.scale, compute=self.compute)


@final
class HeldRows(nn.Module):
    """A row of each label: its text's vector, and what its documents change about it.

    The change counts by `n / (n + hold)` for a label of n documents, so that a label with few stays near its text.
    """

    texts: torch.Tensor
    held: torch.Tensor

    def __init__(self, texts: torch.Tensor, counts: torch.Tensor, hold: float) -> None:
        super().__init__()
        self.register_buffer("texts", texts, persistent=False)  # (L, D)
        self.register_buffer("held", (counts / (counts + hold)).float()[:, None], persistent=False)  # (L, 1)
        self.changes = nn.Parameter(torch.zeros_like(texts))

    def forward(self, labels: torch.Tensor) -> torch.Tensor:
        """Rows (C, D) of some labels; the gradient holds only these."""
        return self.texts[labels] + self.held[labels] * F.embedding(labels, self.changes, sparse=True)

    @torch.no_grad()
    def all_changes(self) -> torch.Tensor:
        """What documents change about every row (L, D)."""
        return self.held * self.changes


@final
@dataclass(frozen=True, kw_only=True)
class HeldRowTask:
    """Rows of labels, trained on documents whose vectors are given."""

    rows: HeldRows
    vectors: torch.Tensor  # (N, D)
    drawing: Drawing
    scale: float
    compute: torch.dtype

    @property
    def module(self) -> nn.Module:
        return self.rows

    def loss(self, rows: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        """Mean loss of the documents `rows` (n,), each with a relevant label."""
        labels, relevant = self.drawing.labels(rows, generator)
        return decoupled_softmax(self.vectors[rows], self.rows(labels), relevant, self.scale, compute=self.compute)
