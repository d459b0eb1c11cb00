"""Stages that train a network through a label index: the loss of a batch, optimisers by group, averaged weights.

Also computations over all of train: label vectors, with and without a network, and matches of clusters and labels.
Knows nothing about the order of stages.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, final

import numpy as np
import scipy.sparse as sp
import torch
from torch import nn
from torch.nn import functional as F

from xclearn.algorithms.elias.learned_edges import IndexedNetwork, edges_from_matches, path_losses
from xclearn.config import AUTO, Auto, Count, Rate, Share, Weight
from xclearn.inference.token_bag import bag_encoder
from xclearn.labels.lists import padded_matrix
from xclearn.parts.averaging import WeightAverage
from xclearn.parts.classifiers import RowClassifier
from xclearn.parts.encoders import random_table
from xclearn.parts.label_clusters import label_vectors
from xclearn.parts.lazy_adam import LazyAdam
from xclearn.parts.row_training import Negatives
from xclearn.parts.rows import FeatureRows, SparseRows, feature_rows
from xclearn.training.prepare import Prepared, required
from xclearn.training.scoring import held_out_score
from xclearn.training.stage import Batch, Stage, Stopping, one_cycle

AT_ONCE = 1024  # documents per batch outside training
_WEIGHT_APART = 0.2  # weight of the shortlist loss: more would favour the index over ranking
_ENCODER_LR = {"cpu": 0.01, "cuda": 0.003}  # longer training needs the lower rate
_CLUSTER_LR = {"cpu": 0.03, "cuda": 0.005}


@final
@dataclass(frozen=True, kw_only=True)
class Phase:
    """Settings of one stage."""

    batch_size: Auto[Count] = AUTO  # documents per step; auto: the algorithm's
    encoder_lr: Auto[Rate] = AUTO  # peak learning rate of the encoder; auto: 0.01, on a GPU 0.003
    cluster_lr: Auto[Rate] = AUTO  # peak learning rate of the clusters; auto: 0.03, on a GPU 0.005
    edge_lr: Rate = 0.05  # peak learning rate of the edges
    label_lr: Rate = 0.1  # peak learning rate of the label rows, per document with SGD
    shortlist_loss_weight: Auto[Weight] = (
        AUTO  # weight of −log ŷ of relevant labels (λ); auto: 1, or 0.2 if classifiers are trained separately
    )
    accumulation: Count = 1  # steps between updates of clusters, edges and label rows
    average_from: Share = 1.0  # share of the stage after which weights are averaged; 1: no averaging
    average_every: Count = 1  # steps between averaged weights


def usual_rates(device: str, *, apart: bool) -> dict[str, Any]:
    """Values for the automatic settings of a phase; `apart`: classifiers are trained separately from the paths."""
    weight = _WEIGHT_APART if apart else 1.0
    return {
        "encoder_lr": _ENCODER_LR[device],
        "cluster_lr": _CLUSTER_LR[device],
        "shortlist_loss_weight": weight,
    }


@final
@dataclass(frozen=True, kw_only=True)
class IndexedStages:
    """The shared settings of a run's stages."""

    documents: FeatureRows
    relevance: SparseRows
    beam: int  # clusters explored per document
    size: int  # labels scored per document
    most_clusters: int  # maximum clusters explored in training; 0: all
    warm_up: float
    label_optimiser: Literal["sgd", "adam"]
    weight_decay: float
    reduction: Literal["sum", "mean"]
    negatives: Negatives  # negatives of separately trained classifiers

    def stage(
        self, name: str, network: IndexedNetwork, phase: Phase, epochs: int, data: Prepared, stopping: Stopping | None
    ) -> Iterator[Stage]:
        """One stage; it ends with the averaged weights."""
        average = self._average(network, phase, epochs * math.ceil(len(self.documents) / phase.batch_size))
        moving, waiting = self._optimisers(network, phase)

        def loss(batch: Batch) -> torch.Tensor:
            average.see(batch.step)
            return self._loss(network, phase, batch)

        yield Stage(
            name=name,
            module=nn.ModuleDict({"network": network, "average": average}),
            loss=loss,
            n_items=len(self.documents),
            batch_size=phase.batch_size,
            epochs=epochs,
            optimisers=[*moving, *waiting],
            accumulation=[1] * len(moving) + [phase.accumulation] * len(waiting),
            schedule=one_cycle(self.warm_up),
            score=None if stopping is None else self._score(network, average, data, stopping),
            patience=None if stopping is None else stopping.patience,
        )
        average.exchange()
        network.eval()

    def _loss(self, network: IndexedNetwork, phase: Phase, batch: Batch) -> torch.Tensor:
        """The classification loss plus the weighted loss of reaching relevant labels."""
        positives = self.relevance.take(batch.rows)
        n = len(batch.rows)
        weight = phase.shortlist_loss_weight
        if isinstance(rows := network.classifier, RowClassifier):
            x = network.encoder(self.documents.take(batch.rows))
            classification = self.negatives.loss(rows, x, positives, batch.rows, batch.step, batch.generator)
            missed = -network.index.reached(x, positives).sum() / n
            return classification + weight * missed
        most = (self.most_clusters, batch.generator) if self.most_clusters else None
        paths, logits, reach = network(self.documents.take(batch.rows), self.beam, self.size, positives, most)
        classification = path_losses(logits, reach, paths.target).sum() / n
        shortlist = -reach[paths.target].sum() / n
        if self.reduction == "mean":
            most_positives = torch.bincount(positives.owner, minlength=n).max().clamp(min=1)
            classification = classification / self.size
            shortlist = shortlist / most_positives
        return classification + weight * shortlist

    def _average(self, network: IndexedNetwork, phase: Phase, steps: int) -> WeightAverage:
        """The average of all weights but the edges', or of none."""
        weights = [values for name, values in network.named_parameters() if name != "index.edges"]
        start = round(phase.average_from * steps)
        return WeightAverage(weights if start < steps else [], start, phase.average_every)

    def _optimisers(
        self, network: IndexedNetwork, phase: Phase
    ) -> tuple[list[torch.optim.Optimizer], list[torch.optim.Optimizer]]:
        """Optimisers for every step (the encoder's), and those that may accumulate."""
        encoder = network.encoder
        index = network.index
        classifier = network.classifier
        lazy, lr = encoder.lazy_parameters(), phase.encoder_lr
        others = _without(encoder.parameters(), lazy)
        moving = [self._adamw(others, lr)] if others else []
        moving += [LazyAdam(lazy, lr=lr)] if lazy else []
        waiting = [self._adamw(list(index.clusters.parameters()), phase.cluster_lr)]
        waiting += [] if index.edges is None else [self._adamw([index.edges], phase.edge_lr)]
        if isinstance(classifier, RowClassifier):
            classifier.update.lr = phase.label_lr  # rows update themselves
            return moving, waiting
        rows = list(classifier.parameters())
        if self.label_optimiser == "sgd":
            waiting.append(torch.optim.SGD(rows, lr=phase.label_lr * phase.batch_size))
        else:
            waiting.append(
                LazyAdam(rows, lr=phase.label_lr) if classifier.sparse else self._adamw(rows, phase.label_lr)
            )
        return moving, waiting

    def _adamw(self, parameters: list[nn.Parameter], lr: float) -> torch.optim.Optimizer:
        """AdamW with weight decay on matrices, not on biases and gains."""
        matrices = [values for values in parameters if values.ndim > 1 and values.shape[1] > 1]
        groups = [(matrices, self.weight_decay), (_without(iter(parameters), matrices), 0.0)]
        split = [{"params": own, "weight_decay": decay} for own, decay in groups if own]
        return torch.optim.AdamW(split, lr=lr, fused=True)

    def _score(
        self, network: IndexedNetwork, average: WeightAverage, data: Prepared, stopping: Stopping
    ) -> Callable[[], float]:
        """The held-out metric with the averaged weights."""
        device = self.relevance.indptr.device
        held_out = feature_rows(required(data.held_out_features), device)

        def best(rows: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
            return network.best(held_out.take(rows.to(device)), len(rows), k, self.beam, self.size)

        measured = held_out_score(data, stopping.metric, best)

        def score() -> float:
            with average.exchanged():
                return measured()

        return score

    @torch.no_grad()
    def bag_vectors(self, data: Prepared, dim: int, generator: torch.Generator, *, texts: bool) -> list[torch.Tensor]:
        """Random projections of each label's summed bags of documents and, with `texts`, of its own text.

        Each has unit rows (L, D).
        """
        encoder = bag_encoder(data.vectoriser, data.features)
        device = self.relevance.indptr.device
        bags = SparseRows.of(encoder.encode(data.features), device)
        table = random_table(bags.n_columns, dim, generator).to(device)
        found = [label_vectors(table, bags, self.relevance)]
        if texts and data.label_features is not None:
            own = SparseRows.of(encoder.encode(data.label_features), device)
            found.append(label_vectors(table, own, SparseRows.of(sp.identity(len(own), format="csr"), device)))
        return [F.normalize(vectors, dim=1) for vectors in found]

    @torch.no_grad()
    def label_vectors(self, network: IndexedNetwork) -> torch.Tensor:
        """The normalised sum of the unit vectors of each label's documents (L, D)."""
        sums = torch.zeros(self.relevance.n_columns, network.encoder.dim, device=self.relevance.indptr.device)
        for rows in self._every_row():
            relevant = self.relevance.take(rows)
            vectors = network.encoder(self.documents.take(rows))
            sums.index_add_(0, relevant.columns, F.normalize(vectors, dim=1)[relevant.owner])
        return F.normalize(sums, dim=1)

    @torch.no_grad()
    def matched_edges(self, network: IndexedNetwork, relevance: sp.csr_matrix, size: int) -> dict[str, np.ndarray]:
        """The `size` best-matching labels of each cluster on train, and their matches: (C, size) each."""
        shape = (len(self.documents), min(self.beam, len(network.index.labels)))
        n_clusters = len(network.index.labels)
        columns = np.empty(shape, dtype=np.int32)
        chances = np.empty(shape, dtype=np.float32)  # (N, beam)
        for rows in self._every_row():
            scores = network.index.chances(network.encoder(self.documents.take(rows)))
            clusters = network.index.beam(scores, self.beam)
            own = slice(int(rows[0]), int(rows[-1]) + 1)
            columns[own] = clusters.cpu().numpy()
            chances[own] = scores.gather(1, clusters).clamp(max=0).exp().cpu().numpy()
        matches = padded_matrix(columns, n_clusters, chances)
        labels, counts = edges_from_matches(relevance, matches, size)
        return {"labels": labels, "matches": counts}

    def _every_row(self) -> tuple[torch.Tensor, ...]:
        return torch.arange(len(self.documents), device=self.relevance.indptr.device).split(AT_ONCE)


def _without(parameters: Iterator[nn.Parameter], others: Sequence[nn.Parameter]) -> list[nn.Parameter]:
    return [each for each in parameters if not any(each is other for other in others)]
