"""Trains a dual encoder, and later its label rows, on a batch: sampling of labels, and losses.

A step scores its documents against one set of labels: sampled relevant labels, random negatives and, if given, hard
negatives. Knows nothing about stages or where hard negatives come from.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol, Self, final

import torch
from torch import nn
from torch.nn import functional as F

from xclearn.algorithms.dual_encoder.decoupled_softmax import Relevant, decoupled_softmax
from xclearn.algorithms.dual_encoder.network import DualNetwork
from xclearn.parts.classifiers import RowClassifier, row_width
from xclearn.parts.label_rows import LabelRows
from xclearn.parts.losses import worth_measuring
from xclearn.parts.row_update import RowSgd
from xclearn.parts.rows import FeatureRows, SparseRows

_BISECTIONS = 40  # bisection steps to find the initial bias
_SAMPLE = 1024  # documents used to find it, at most
_SAMPLED_SCORES = 1 << 26  # with all labels, at most


@final
@dataclass(frozen=True, kw_only=True)
class Drawing:
    """Samples the labels of a step."""

    positives: SparseRows  # (N, L)
    n_positives: int  # relevant labels per document, sampled with replacement
    n_random: int  # random labels per batch; L or more: all labels
    hard: torch.Tensor | None = None  # (N, m) int32 hard negatives, padded with −1
    n_hard: int = 0  # hard negatives per document

    def labels(self, rows: torch.Tensor, generator: torch.Generator) -> tuple[torch.Tensor, Relevant]:
        """The labels (C,) for the documents `rows` (n,), ascending, and the relevant pairs."""
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
    labels: FeatureRows  # the texts of `rows`
    rows: LabelRows  # of this process
    drawing: Drawing
    scale: float  # 1 / temperature
    compute: torch.dtype  # precision of the large products

    @property
    def module(self) -> nn.Module:
        return self.network

    def against(self, drawing: Drawing) -> Self:
        """A copy with another sampling of labels."""
        return replace(self, drawing=drawing)

    def loss(self, rows: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        """Mean loss of the documents `rows` (n,), each with a relevant label."""
        labels, relevant = self.drawing.labels(rows, generator)
        vectors = self.network.documents(self.documents.take(rows))
        here = self.rows.part(labels)
        own = labels[here.start : here.stop] - self.rows.start
        others = self.network.labels(self.labels.take(own), here.others)
        return decoupled_softmax(vectors, others, relevant, self.scale, compute=self.compute, rows=here)


class Changes(NamedTuple):
    """The offsets of label rows from their texts, learnt from documents."""

    rows: torch.Tensor  # (L, D)
    biases: torch.Tensor  # (L,) biases of logits


class LabelRowTask(Protocol):
    """Label rows trained on documents with fixed vectors."""

    @property
    def module(self) -> nn.Module: ...

    def loss(self, rows: torch.Tensor, step: int, generator: torch.Generator) -> torch.Tensor:
        """Mean loss of the documents `rows` (n,), each with a relevant label."""

    def changes(self) -> Changes:
        """The learnt offset of every row."""


@final
class HeldRows(nn.Module):
    """A row per label of this process: its text's vector plus an offset learnt from its documents.

    The offset is weighted by `n / (n + hold)` for a label with n documents, so that rare labels stay near their texts.
    """

    row_state = ("changes",)
    texts: torch.Tensor
    held: torch.Tensor

    def __init__(self, rows: LabelRows, texts: torch.Tensor, counts: torch.Tensor, hold: float) -> None:
        super().__init__()
        self.rows = rows
        self.register_buffer("texts", texts, persistent=False)  # (L, D)
        self.register_buffer("held", (counts / (counts + hold)).float()[:, None], persistent=False)  # (L, 1)
        self.changes = nn.Parameter(torch.zeros_like(texts))

    def forward(self, labels: torch.Tensor) -> torch.Tensor:
        """Rows (C, D) of some labels, counted from the first of this process; the gradient is sparse."""
        return self.texts[labels] + self.held[labels] * F.embedding(labels, self.changes, sparse=True)

    @torch.no_grad()
    def trained(self) -> Changes:
        """The learnt offset of every row."""
        return Changes(self.held * self.changes, torch.zeros_like(self.held[:, 0]))


@final
@dataclass(frozen=True, kw_only=True)
class HeldRowTask:
    """Label rows trained by the decoupled softmax over a sample of labels per step."""

    rows: HeldRows
    vectors: torch.Tensor  # (N, D)
    drawing: Drawing
    scale: float
    compute: torch.dtype

    @property
    def module(self) -> nn.Module:
        return self.rows

    def loss(self, rows: torch.Tensor, step: int, generator: torch.Generator) -> torch.Tensor:  # noqa: ARG002
        labels, relevant = self.drawing.labels(rows, generator)
        here = self.rows.rows.part(labels)
        own = self.rows(labels[here.start : here.stop] - self.rows.rows.start)
        return decoupled_softmax(self.vectors[rows], own, relevant, self.scale, compute=self.compute, rows=here)

    def changes(self) -> Changes:
        return self.rows.trained()


@final
@dataclass(frozen=True, kw_only=True)
class ExactRowTask:
    """Label rows trained by binary cross-entropy against all labels (as in Renée), affordable on a GPU.

    Vectors and rows are both multiplied by √`scale`, so that biases learn as fast as directions.
    """

    classifier: RowClassifier
    texts: torch.Tensor  # (rows, D) initial rows
    counts: torch.Tensor  # (rows,) documents of each label
    hold: float  # number of documents at which the offset has half its weight
    vectors: torch.Tensor  # (N, D)
    positives: SparseRows  # (N, L)
    scale: float

    @classmethod
    def starting_at(
        cls,
        own: LabelRows,
        texts: torch.Tensor,
        counts: torch.Tensor,
        hold: float,
        vectors: torch.Tensor,
        positives: SparseRows,
        scale: float,
        lr: float,
    ) -> Self:
        """Rows initialised to the text vectors, with one bias that gives the right number of expected labels."""
        n_rows, dim = texts.shape
        compute = torch.bfloat16 if texts.is_cuda else torch.float32
        update = RowSgd(n_rows, row_width(dim), lr)
        relevant = len(positives.columns) / max(1, len(vectors))  # labels per document
        prior = _first_bias(own, vectors[: first_bias_documents(own.n_labels)], texts, scale, relevant)
        classifier = RowClassifier(own, dim, prior, update, compute)
        classifier.table[:n_rows, :dim] = texts.cpu() * math.sqrt(scale)
        if classifier.shadow is not None:
            classifier.shadow.copy_(classifier.table)
        return cls(
            classifier=classifier.to(texts.device),
            texts=texts,
            counts=counts,
            hold=hold,
            vectors=vectors * math.sqrt(scale),
            positives=positives,
            scale=scale,
        )

    @property
    def module(self) -> nn.Module:
        return self.classifier

    def loss(self, rows: torch.Tensor, step: int, generator: torch.Generator) -> torch.Tensor:  # noqa: ARG002
        vectors = self.vectors[rows].requires_grad_()  # the loop needs a gradient; rows update themselves
        measure = worth_measuring(step, len(rows) * self.classifier.rows.n_labels)
        return self.classifier.exact_loss(vectors, self.positives.take(rows), measure=measure)

    def changes(self) -> Changes:
        held = (self.counts / (self.counts + self.hold)).float()  # (L,)
        rows = self.classifier.weight[:, : self.texts.shape[1]] / math.sqrt(self.scale) - self.texts
        biases = self.classifier.weight[:, self.texts.shape[1]]
        return Changes(held[:, None] * rows, held * biases)


def first_bias_documents(n_labels: int) -> int:
    """Documents whose scores with all labels the initial bias is found on."""
    return max(1, min(_SAMPLE, _SAMPLED_SCORES // n_labels))


def _first_bias(rows: LabelRows, vectors: torch.Tensor, texts: torch.Tensor, scale: float, relevant: float) -> float:
    """The bias at which the probabilities of all labels sum to `relevant`, averaged over some documents."""
    scores = scale * (vectors @ texts.T)  # (n, rows)
    low, high = -60.0 - scale, 60.0 + scale
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        too_many = float(rows.ranks.sum(torch.add(scores, middle).sigmoid_().sum(dim=1))[0].mean()) > relevant
        low, high = (low, middle) if too_many else (middle, high)
    return (low + high) / 2
