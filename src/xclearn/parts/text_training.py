"""Trains a text network on a batch: against all outputs, a sample of them, or each document's own shortlist.

Also the shortlister: which clusters a document gets, and how wide the beam must be for a target recall. Knows
nothing about stages or algorithms.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import final

import numpy as np
import scipy.sparse as sp
import torch
from torch.nn import functional as F

from xclearn.config import AUTO, Auto
from xclearn.inference import components
from xclearn.inference.graph import Game, GameBeam, Graph
from xclearn.labels.lists import padded_rows
from xclearn.parts.label_clusters import cluster_relevance, cluster_texts, membership
from xclearn.parts.label_rows import LabelRows
from xclearn.parts.losses import all_outputs_loss, worth_measuring
from xclearn.parts.pair_products import pair_scores
from xclearn.parts.rows import FeatureRows, Gathered, SparseRows
from xclearn.parts.text_network import OutputTexts, SummedTexts, TextNetwork
from xclearn.parts.text_outputs import BatchScoring, mixture_loss

_AT_ONCE = 1024  # documents per batch outside training
WIDEST_BEAM = 256  # maximum beam width


@final
@dataclass(frozen=True)
class TextTask:
    """A network, its documents and their relevant outputs."""

    network: TextNetwork
    documents: FeatureRows
    positives: SparseRows
    prior: float  # added to every score
    compute: torch.dtype  # precision of the large products

    def against_all(self, rows: torch.Tensor, step: int) -> torch.Tensor:
        """Mean over documents of the loss summed over all outputs; NaN in most steps, as measuring it takes time."""
        vectors = self.network.encode(self.documents.take(rows))
        relevant = self.positives.take(rows)
        return self._loss(vectors, relevant, None, step)

    def against_sample(
        self, rows: torch.Tensor, step: int, n_negatives: int, generator: torch.Generator
    ) -> torch.Tensor:
        """The same, over the outputs relevant to any document of the batch and random others."""
        vectors = self.network.encode(self.documents.take(rows))
        relevant = self.positives.take(rows)
        drawn = torch.randint(self.positives.n_columns, (n_negatives,), generator=generator, device=rows.device)
        outputs = torch.cat([relevant.columns, drawn]).unique()
        columns = torch.searchsorted(outputs, relevant.columns)
        return self._loss(vectors, relevant._replace(columns=columns), outputs, step)

    def _loss(self, vectors: torch.Tensor, relevant: Gathered, outputs: torch.Tensor | None, step: int) -> torch.Tensor:
        """The loss over all outputs or `outputs` (S,), ascending, which `relevant` indexes."""
        network = self.network
        rows = network.rows if outputs is None else network.rows.part(outputs)
        here = None if outputs is None else outputs[rows.start : rows.stop] - network.rows.start
        measure = worth_measuring(step, len(vectors) * rows.n_labels)
        part = self._own_loss(vectors, relevant, here, rows, measure)
        return rows.loss(part) if measure else part

    def _own_loss(
        self, vectors: torch.Tensor, relevant: Gathered, outputs: torch.Tensor | None, rows: LabelRows, measure: bool
    ) -> torch.Tensor:
        """The loss over this process's `rows` of the outputs: all that it holds, or `outputs` (S,) among them."""
        network = self.network
        mixture = network.mixture()
        if mixture is not None:
            seed = torch.randint(1 << 31, (), device=vectors.device) if vectors.is_cuda else None
            dropout = network.dropout if network.training else 0.0
            update = network.refinement_update if outputs is None else None
            descent = None if update is None else update.lr * update.factor
            own = network.own(outputs, self.prior, self.compute)
            how = BatchScoring(self.compute, dropout, measure, seed, rows, descent)
            return mixture_loss(vectors, mixture, own, relevant, how)
        weight, bias = network.classifiers(outputs)
        return all_outputs_loss(
            vectors,
            weight,
            bias + self.prior,
            relevant.owner,
            relevant.columns - rows.start,
            compute=self.compute,
            measure=measure,
        )

    def against_shortlist(self, rows: torch.Tensor, shortlist: torch.Tensor, *, add_positives: bool) -> torch.Tensor:
        """The loss of each document against its own outputs `shortlist` (n, m), padded with −1."""
        vectors = self.network.encode(self.documents.take(rows))
        relevant = self.positives.take(rows)
        n = len(rows)
        listed = (shortlist * n + torch.arange(n, device=rows.device)[:, None])[shortlist >= 0]
        wanted = relevant.columns * n + relevant.owner
        pairs = torch.cat([listed, wanted]).unique() if add_positives else listed.unique()  # sorted by output
        outputs, column = (pairs // n).unique_consecutive(return_inverse=True)
        weight, bias = self.network.classifiers(outputs)
        scores = pair_scores(vectors, weight, pairs % n, column) + bias[column] + self.prior  # (pairs,)
        target = torch.isin(pairs, wanted).to(scores.dtype)
        return F.binary_cross_entropy_with_logits(scores, target, reduction="sum") / n

    @torch.no_grad()
    def classifiers(self) -> tuple[np.ndarray, np.ndarray]:
        """Weight (outputs, D) and bias with the prior (outputs,) of all processes, in the first; made in blocks."""
        rows = self.network.rows
        every = torch.arange(len(rows), device=self.positives.indptr.device)
        parts = [self.network.classifiers(outputs) for outputs in every.split(_AT_ONCE)]
        weight, bias = (rows.of_all(torch.cat(part).float()).numpy() for part in zip(*parts, strict=True))
        return weight, bias + np.float32(self.prior)

    @torch.no_grad()
    def part_lengths(self) -> np.ndarray:
        """The norm of each part of each output's classifier (outputs, parts), its contribution."""
        every = torch.arange(len(self.network.rows), device=self.positives.indptr.device)
        parts = [self.network.weighted_parts(outputs) for outputs in every.split(_AT_ONCE)]
        lengths = [torch.stack([part.norm(dim=1) for part in some], dim=1) for some in parts]
        return torch.cat(lengths).float().cpu().numpy()

    @torch.no_grad()
    def best(self, documents: FeatureRows, rows: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The k best outputs of some documents: ids, logits (n, k)."""
        weight, bias = self.network.classifiers()
        found = (self.network.encode(documents.take(rows)) @ weight.T + bias).topk(min(k, len(bias)), dim=1)
        return self.network.rows.best(found.indices + self.network.rows.start, found.values + self.prior, k)


@final
@dataclass(frozen=True)
class ClusterOutputs:
    """Clusters of labels as outputs of a network."""

    cluster_of_label: np.ndarray  # (L,)
    texts: OutputTexts  # K rows
    positives: SparseRows  # (N, K)
    labels: torch.Tensor  # (K, largest) labels of each cluster, padded with −1

    @property
    def members(self) -> sp.csr_matrix:
        """(K, L): 1 if the label is in the cluster."""
        return membership(self.cluster_of_label, len(self.labels))

    def by_label(self, texts: OutputTexts) -> SummedTexts:
        """The same clusters as sums over the blocks of their labels' `texts`."""
        return SummedTexts(texts, SparseRows.of(self.members, self.labels.device), self.texts)


def make_clusters(
    cluster_of_label: np.ndarray, relevance: sp.csr_matrix, label_features: sp.csr_matrix, device: torch.device
) -> ClusterOutputs:
    """The clusters as outputs: their texts, relevance and labels."""
    members = membership(cluster_of_label, int(cluster_of_label.max()) + 1)
    texts = OutputTexts(SparseRows.of(cluster_texts(members, label_features), device))
    positives = SparseRows.of(cluster_relevance(relevance, members), device)
    return ClusterOutputs(cluster_of_label, texts, positives, torch.from_numpy(padded_rows(members)).to(device))


class ListedLabels(ABC):
    """The labels that each document is trained against."""

    @abstractmethod
    def labels_of(self, rows: torch.Tensor) -> torch.Tensor:
        """The labels of documents (n,): (n, m), padded with −1."""


@final
class FixedLabels(ListedLabels):
    """Labels found before training."""

    def __init__(self, labels: torch.Tensor) -> None:
        self.labels = labels  # (N, m)

    def labels_of(self, rows: torch.Tensor) -> torch.Tensor:
        return self.labels[rows].long()


@final
class ClusterShortlister(ListedLabels):
    """The best clusters of each training document, with a beam wide enough for a target recall.

    With a graph of clusters (GAME), the best clusters add up to as many neighbours. With `neighbours` (L, e) of labels,
    padded with −1, the neighbours of shortlisted labels are trained too.
    """

    def __init__(
        self,
        task: TextTask,
        clusters: ClusterOutputs,
        beam: Auto[int],
        target_recall: float,
        graph: Graph | None = None,
        share: float = 0.0,
        neighbours: torch.Tensor | None = None,
    ) -> None:
        widest = min(len(clusters.labels), WIDEST_BEAM if beam is AUTO else beam)
        rows = torch.arange(len(task.documents), device=clusters.labels.device)
        parts = [task.best(task.documents, part, widest) for part in rows.split(_AT_ONCE)]
        found, logits = (torch.cat([part[i] for part in parts]) for i in (0, 1))  # (N, widest)
        reached = _recall_by_beam(found, clusters.positives)
        enough = int(np.searchsorted(reached, target_recall)) + 1
        self.beam = min(enough, widest) if beam is AUTO else widest
        self.recall = float(reached[self.beam - 1])
        self.game = Game(graph, share, self.beam) if graph is not None and share > 0 else None
        self.task = task
        self.clusters = clusters
        self.neighbours = neighbours
        self._found = found[:, : self.beam].int()
        if self.game is not None:
            chances = logits[:, : self.beam].sigmoid().float().cpu().numpy()
            more = self.game(self._found.cpu().numpy().astype(np.int64), chances)[0]  # (N, up to 2 · beam)
            self._found = torch.from_numpy(more).to(found.device).int()
            self.recall = float(_recall_by_beam(self._found.long(), clusters.positives)[-1])

    def labels_of(self, rows: torch.Tensor) -> torch.Tensor:
        """The labels of each document's clusters (n, m), padded with −1."""
        labels = _rows_or_missing(self.clusters.labels, self._found[rows].long())
        if self.neighbours is None:
            return labels
        return torch.cat([labels, _rows_or_missing(self.neighbours, labels)], dim=1)

    def served(self, vector: str) -> components.ClusterBeam | GameBeam:
        weight, bias = self.task.classifiers()
        order = np.argsort(self.clusters.cluster_of_label, kind="stable").astype(np.int64)
        sizes = np.bincount(self.clusters.cluster_of_label, minlength=len(bias))
        offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        beam = components.ClusterBeam(vector, weight, bias, order, offsets, self.beam)
        return beam if self.game is None else GameBeam(beam, self.game)


def _rows_or_missing(table: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
    """Table rows (rows, e) for numbers (n, m), as (n, m · e); all −1 if the number is −1."""
    return table[numbers.clamp(min=0)].masked_fill((numbers < 0)[:, :, None], -1).flatten(1)


def _recall_by_beam(found: torch.Tensor, positives: SparseRows) -> np.ndarray:
    """Share of relevant clusters among the first 1, 2, … of `found` (N, widest): the shortlister's recall on train."""
    ranks = torch.zeros(found.shape[1], device=found.device)
    for rows in torch.arange(len(found), device=found.device).split(_AT_ONCE):
        relevant = positives.take(rows)
        keys = torch.arange(len(rows), device=rows.device)[:, None] * positives.n_columns + found[rows]
        keys = keys.masked_fill(found[rows] < 0, -1)
        wanted = relevant.owner * positives.n_columns + relevant.columns
        ranks += torch.isin(keys, wanted).sum(dim=0)
    return (ranks.cumsum(0) / max(1, len(positives.columns))).cpu().numpy()
