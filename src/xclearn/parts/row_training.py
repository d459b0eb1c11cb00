"""Trains an encoder and one classifier per label on a batch: against all labels, a sample, or shortlists.

Knows nothing about stages or where shortlists come from.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, final

import numpy as np
import torch
from torch import nn

from xclearn.parts.classifiers import LabelPairs, RowClassifier, row_width
from xclearn.parts.cost import Weights
from xclearn.parts.encoders import encoder_optimisers
from xclearn.parts.label_rows import LabelRows
from xclearn.parts.losses import OutputLoss, blocks, worth_measuring
from xclearn.parts.pair_products import dense_bytes
from xclearn.parts.row_update import RowAdam, RowSgd
from xclearn.parts.rows import FeatureRows, Gathered, SparseRows

ROW_UPDATES = {"sgd": RowSgd, "adam": RowAdam}
_AT_ONCE = 1024  # documents per batch outside training
_PAIR_BYTES = 64  # per pair of a document and an output: keys, targets, score and gradient


@final
@dataclass(frozen=True, kw_only=True)
class Negatives:
    """The negative labels of a document; by default, all labels."""

    shortlist: torch.Tensor | None = None  # (N, m) int32, padded with −1
    drawn: int = 0  # labels drawn per step: for each document if there is a shortlist, else for the whole batch
    chance: torch.Tensor | None = None  # (L,) cumulative probability of labels; None: uniform

    def draw(self, n_labels: int, shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
        """Random labels of this shape."""
        if self.chance is None:
            return torch.randint(n_labels, shape, generator=generator, device=generator.device)
        places = torch.rand(shape, generator=generator, device=generator.device) * self.chance[-1]
        return torch.searchsorted(self.chance, places).clamp(max=n_labels - 1)

    def loss(
        self,
        classifier: RowClassifier,
        vectors: torch.Tensor,
        positives: Gathered,
        rows: torch.Tensor,
        step: int,
        generator: torch.Generator,
    ) -> torch.Tensor:
        """Train the classifier on `vectors` (n, D) of the documents `rows`: the mean loss; see `RowTask.loss`."""
        n_labels = classifier.rows.n_labels
        if self.shortlist is not None:
            random = self.draw(n_labels, (len(rows), self.drawn), generator)
            listed = torch.cat([self.shortlist[rows].long(), random], dim=1)
            return classifier.shortlist_loss(vectors, LabelPairs.of(listed, positives))
        if self.drawn == 0:
            measure = worth_measuring(step, len(vectors) * n_labels)
            return classifier.exact_loss(vectors, positives, measure=measure)
        random = self.draw(n_labels, (self.drawn,), generator)
        return classifier.sampled_loss(vectors, positives, torch.cat([positives.columns, random]).unique())


@final
@dataclass(frozen=True)
class RowTask:
    """An encoder, a classifier for each output, and the documents they are trained on."""

    encoder: nn.Module
    classifier: RowClassifier
    documents: FeatureRows
    positives: SparseRows
    negatives: Negatives

    @property
    def module(self) -> nn.ModuleDict:
        return nn.ModuleDict({"encoder": self.encoder, "classifier": self.classifier})

    @property
    def n_items(self) -> int:
        return len(self.documents)

    def optimisers(self, lr: float) -> list[torch.optim.Optimizer]:
        """Adam for the encoder; the rows update themselves."""
        return encoder_optimisers(self.encoder, lr)

    def loss(self, rows: torch.Tensor, step: int, generator: torch.Generator) -> torch.Tensor:
        """Mean loss of the documents `rows` (n,); with many scores it is NaN in most steps, to save time."""
        vectors = self.encoder(self.documents.take(rows))
        positives = self.positives.take(rows)
        return self.negatives.loss(self.classifier, vectors, positives, rows, step, generator)

    @torch.no_grad()
    def best(self, documents: FeatureRows, rows: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The k best of all outputs for some documents: ids, logits (n, k)."""
        return self.classifier.best(self.encoder(documents.take(rows)), k)

    @torch.no_grad()
    def best_of(self, shortlist: torch.Tensor | None, k: int) -> torch.Tensor:
        """The k best outputs (N, k) int32 of every training document among its own `shortlist` (N, m), or all."""
        parts = torch.arange(len(self.documents), device=self.positives.indptr.device).split(_AT_ONCE)
        if shortlist is None:
            return torch.cat([self.best(self.documents, rows, k)[0].int() for rows in parts])
        return torch.cat([self._best_listed(rows, shortlist[rows], k) for rows in parts])

    def _best_listed(self, rows: torch.Tensor, listed: torch.Tensor, k: int) -> torch.Tensor:
        scores = self.classifier.logits(self.encoder(self.documents.take(rows)), listed.clamp(min=0).long())
        scores = scores.masked_fill(listed < 0, -torch.inf)
        return listed.gather(1, scores.topk(min(k, listed.shape[1]), dim=1).indices)


def row_classifier(
    rows: int | LabelRows, dim: int, lr: float, optimiser: str, loss: OutputLoss, device: torch.device
) -> RowClassifier:
    """Rows initialised at zero, with a prior that puts every output near its base rate, or at the hinge's margin."""
    rows = LabelRows(0, rows) if isinstance(rows, int) else rows
    update = ROW_UPDATES[optimiser](len(rows), row_width(dim), lr)
    prior = -1.0 if loss == "squared_hinge" else -math.log(rows.n_labels + 1)
    compute = torch.bfloat16 if device.type == "cuda" else torch.float32
    return RowClassifier(rows, dim, prior, update, compute, loss)


def row_weights(
    n_outputs: int, dim: int, optimiser: Literal["sgd", "adam"], device: str, scored: float | None = None
) -> Weights:
    """The weights of a classifier's rows; `scored` is the number of rows in a step if not all."""
    copies, width = 1 if device == "cuda" else 0, row_width(dim)
    touched = None if scored is None or scored >= n_outputs else scored * width
    return Weights(values=n_outputs * width, optimiser=optimiser, touched=touched, in_module=True, copies=copies)


@final
@dataclass(frozen=True, kw_only=True)
class RowStep:
    """Memory of a training step of a row classifier."""

    optimiser: Literal["sgd", "adam"]
    batch: int
    dim: int
    scored: int  # outputs scored per step, or per document with shortlists
    drawn: bool  # whether they are a sample of all outputs
    device: str

    @property
    def scores(self) -> int:
        """Bytes of a block of scores."""
        return (2 if self.device == "cuda" else 4) * self.batch * self._block

    @property
    def update(self) -> int:
        """Bytes of the update of a block's rows."""
        changed = ROW_UPDATES[self.optimiser].working_bytes_per_value() + (4 if self.drawn else 0)  # rows copied out
        return changed * self._block * row_width(self.dim)

    def beside(self, encoder: float) -> float:
        """Bytes of a step whose encoder takes `encoder` bytes: a GPU's allocator reuses freed memory."""
        parts = (self.scores, self.update, encoder)
        return self.scores + (max(parts) if self.device == "cuda" else sum(parts))

    @property
    def _block(self) -> int:
        if self.drawn:
            return self.scored
        return max(end - begin for begin, end in blocks(self.scored, self.batch, self.device))


def list_step(batch: int, listed: int, n_outputs: int, device: str) -> int:
    """Bytes of a step in which each document has its own `listed` outputs."""
    if device == "cuda":
        return dense_bytes(batch, batch * listed, n_outputs) + _PAIR_BYTES * batch * listed
    return _PAIR_BYTES * batch * listed


@torch.no_grad()
def encoded(encoder: nn.Module, documents: FeatureRows, device: torch.device) -> torch.Tensor:
    """Vectors of all documents (N, D), without dropout."""
    encoder.eval()
    parts = torch.arange(len(documents), device=device).split(_AT_ONCE)
    return torch.cat([encoder(documents.take(rows)) for rows in parts])


def unigram_chance(label_counts: np.ndarray, power: float, device: torch.device) -> torch.Tensor:
    """Cumulative probabilities (L,) for drawing labels in proportion to a power of their frequency."""
    chance = torch.from_numpy(np.cumsum(np.asarray(label_counts, dtype=np.float64) ** power))
    return (chance / chance[-1]).float().to(device)
