"""ELIAS: a label index whose cluster-to-label edges are learnt jointly with the encoder and the classifiers.

From Gupta et al., "ELIAS: End-to-End Learning to Index and Search in Large Output Spaces" (NeurIPS 2022). Stage 1
trains encoder, clusters and label classifiers over a fixed partition of the labels; the matches of documents and
clusters determine the possible edges, and stage 2 learns these too. ELIAS++ re-ranks the best labels by sparse
classifiers (`sparse_ranker`) and calibrates their scores (`calibration`).

Differences from the authors' code:

* Label classifiers are trained separately from the paths, against all or sampled labels, and alone rank what the index
  finds, unless `negatives = "shortlist"`.
* The encoder is a bag of tokens unless a transformer is chosen.
* Label rows start at zero with a prior instead of uniformly, are kept in stage 2 unless `restart_labels`, and are
trained
  by SGD unless `label_optimiser = "adam"`. Losses are summed over labels unless `reduction = "mean"`.
* Every parent of a relevant label is explored unless `most_clusters` is set, and reachable relevant labels are never
cut
  from the shortlist. A label keeps an edge from the cluster that it matches most. Labels are re-clustered, once, only
  with `recluster_after`, and label texts can take part in the clustering (`cluster_text`).
* The ranker reads no vectors unless `sparse_ranker.vector`, but pairs of neighbouring tokens if texts are sequences.
The
  weight of the calibration is chosen on the hold-out.

Good for: long texts with a pretrained transformer, and labels that cluster.
Cost: a label index trained with the encoder; a GPU.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal, final

import numpy as np
import torch

from xclearn.algorithms.elias.checks import needs_paths, require_sizes, unread
from xclearn.algorithms.elias.cost import Before, index_cost
from xclearn.algorithms.elias.learned_edges import EdgeIndex, IndexedNetwork, PairClassifier, random_edges
from xclearn.algorithms.elias.stages import IndexedStages, Phase, usual_rates
from xclearn.config import AUTO, Auto, Count, Number, Rate, Share, Span, Weight
from xclearn.inference.components import Product, Sigmoid
from xclearn.inference.servable import Ensemble, Servable
from xclearn.labels.lists import padded_rows
from xclearn.parts.calibration import Calibration
from xclearn.parts.classifiers import RowClassifier
from xclearn.parts.encoder_settings import (
    AnyText,
    EncoderSettings,
    encoder_for,
    make_encoder,
    usual_dim,
)
from xclearn.parts.encoders import DocumentEncoder
from xclearn.parts.label_clusters import cluster_rows, membership
from xclearn.parts.row_training import Negatives, row_classifier
from xclearn.parts.rows import SparseRows, feature_rows, reads_tokens
from xclearn.parts.setting_types import EmbeddingDim
from xclearn.parts.sparse_ranking import SparseRanking
from xclearn.text import Words
from xclearn.training.algorithm import Algorithm, together
from xclearn.training.plan import Plan, of_members
from xclearn.training.prepare import Prepared, Size
from xclearn.training.run import Run
from xclearn.training.stage import Stage, Stopping

_FEWEST = 1e-6  # minimum match of a cluster and a label before taking the log


@final
@dataclass(kw_only=True)
class Elias(Algorithm):
    """A learnt index over clusters, and one classifier per label for the labels it finds."""

    name: ClassVar[str] = "elias"

    vectoriser: AnyText = field(default_factory=Words)  # how texts become tokens
    encoder: Auto[EncoderSettings] = AUTO  # auto: the one that fits the vectoriser
    embedding_dim: EmbeddingDim = AUTO  # length of document and label vectors; a transformer has its own
    batch_size: Auto[Count] = AUTO  # documents per step
    training: Literal["two_stages", "partition", "end_to_end"] = (
        "two_stages"  # partition: stage 1 only; end_to_end: stage 2 from scratch
    )
    first_epochs: Auto[Count] = AUTO  # passes over train in stage 1
    second_epochs: Auto[Count] = AUTO  # passes over train in stage 2
    first: Phase = field(default_factory=Phase)  # how stage 1 is trained
    second: Phase = field(default_factory=Phase)  # how stage 2 is trained
    n_clusters: Auto[Count] = AUTO  # number of clusters, a power of two
    cluster_text: bool = False  # cluster labels by their own texts too, if they have any
    beam: Auto[Count] = AUTO  # clusters explored per document
    edges_per_cluster: Auto[Count] = AUTO  # maximum labels that a cluster leads to
    shortlist_size: Annotated[Auto[Count], Span(100, 2000, log=True)] = AUTO  # labels scored per document
    negatives: Auto[Literal["shortlist", "drawn", "all"]] = AUTO  # negative labels of the classifiers
    n_drawn: Count = 1024  # labels sampled per step by drawn negatives
    cluster_scale: Auto[Rate] = AUTO  # softmax scale of clusters before clamping at 1 (α)
    edge_scale: Auto[Rate] = AUTO  # softmax scale of edges before clamping at 1 (β)
    edge_start: Literal["random", "matches"] = (
        "matches"  # initial edge weights: uniform in 0…1, or the log of the matches
    )
    restart_labels: bool = False  # reinitialise label rows in stage 2
    most_clusters: Number = 0  # maximum clusters explored in training, sampled by probability; 0: all
    recluster_after: Number = 0  # epochs of a preliminary stage 1 whose encoder re-clusters the labels; 0: none
    label_optimiser: Literal["sgd", "adam"] = "sgd"  # the authors use adam; set label_lr near 0.005 with it
    weight_decay: Weight = 0.0  # weight decay of AdamW, on matrices
    reduction: Literal["sum", "mean"] = (
        "sum"  # reduction of losses over labels; the authors use the mean over the shortlist
    )
    warm_up: Share = 0.1  # share of each stage in which learning rates rise
    sparse_ranker: SparseRanking | None = None  # sparse classifiers that re-rank the best labels
    calibration: Calibration | None = None  # a tree that calibrates scores, learnt on the hold-out
    n_members: Count = 1  # ensemble members, each with its own clusters
    stopping: Stopping | None = None  # stop each stage early by a held-out metric

    def _auto(self, size: Size, device: str) -> dict[str, Any]:
        gpu, n_labels = device == "cuda", size.n_labels
        scale = max(1, min(8, 2_000 // size.n_documents))  # very small sets need more passes to get enough steps
        usual = "shortlist" if needs_paths(self) else "all" if gpu else "drawn"
        negatives = usual if self.negatives is AUTO else self.negatives
        searched = (10, 500) if not gpu else (100, 1300) if negatives == "shortlist" else (200, 8000)
        n_clusters = 2 ** max(0, math.ceil(math.log2(n_labels / 16))) if self.n_clusters is AUTO else self.n_clusters
        batch_size = min(1024 if gpu else 256, max(16, size.n_documents // 50))
        phase = usual_rates(device, apart=negatives != "shortlist")
        phase["batch_size"] = batch_size if self.batch_size is AUTO else self.batch_size
        return {
            "encoder": encoder_for(self.vectoriser),
            "embedding_dim": usual_dim(n_labels, device),
            "batch_size": batch_size,
            "first": phase,
            "second": phase,
            "first_epochs": 10 * scale,
            "second_epochs": 10 * scale,
            "n_clusters": n_clusters,
            "beam": min(n_clusters, searched[0]),
            "cluster_scale": 50.0 if gpu else 10.0,
            "edges_per_cluster": min(n_labels, math.ceil(10 * n_labels / n_clusters)),
            "shortlist_size": min(n_labels, searched[1]),
            "edge_scale": n_labels / n_clusters,
            "negatives": negatives,
        }

    def _unread(self, size: Size, device: str) -> Iterator[tuple[str, str]]:  # noqa: ARG002
        return unread(self, size)

    def _plan(self, size: Size, device: str) -> Plan:
        require_sizes(self, size)
        cost = index_cost(self, size, device)
        costs = []
        if self.training != "end_to_end":
            if self.recluster_after:
                costs.append(cost.stage("warm", self.first, self.recluster_after, "clustering"))
            made: Before = "clustering again" if self.recluster_after else "clustering"
            costs.append(cost.stage("first", self.first, self.first_epochs, made))
        if self.training != "partition":
            made = "nothing" if self.training == "end_to_end" else "matching"
            costs.append(cost.stage("second", self.second, self.second_epochs, made))
        served = 0 if device == "cuda" else cost.served  # it is served on a CPU
        return Plan(device=device, data=size.data_bytes, stages=of_members(costs, self.n_members, served))

    @property
    def drawn(self) -> int:
        """Labels that classifiers are trained against per step; 0: all, or those on the paths."""
        return self.n_drawn if self.negatives == "drawn" else 0

    def _shares_rows(self) -> bool:
        """Not if classifiers are trained on paths, whose loss needs the gradients of both sides."""
        return self.negatives != "shortlist"

    def _stages(self, data: Prepared, run: Run) -> Iterator[Stage]:
        stages = IndexedStages(
            documents=feature_rows(data.features, run.device),
            relevance=SparseRows.of(data.relevance, run.device),
            beam=self.beam,
            size=self.shortlist_size,
            most_clusters=self.most_clusters,
            warm_up=self.warm_up,
            label_optimiser=self.label_optimiser,
            weight_decay=self.weight_decay,
            reduction=self.reduction,
            negatives=Negatives(drawn=self.drawn),
        )
        self.members_: list[Servable] = []
        for member in range(self.n_members):
            self.members_.append((yield from self._member(stages, data, run, member)))

    def _servable(self, data: Prepared) -> Servable | Ensemble:  # noqa: ARG002 (members were made of it)
        return together(self.members_)

    def _member(self, stages: IndexedStages, data: Prepared, run: Run, member: int) -> Generator[Stage, None, Servable]:
        """Train one ensemble member and return its servable; its network is freed before the next member."""
        if self.training == "end_to_end":
            network = self._unguided(stages, data, run, member)
        else:
            network = self._partition(stages, data, run, member, None)
            if self.recluster_after:
                name, epochs = f"warm-{member}", self.recluster_after
                yield from stages.stage(name, network, self.first, epochs, data, self.stopping)
                network = self._partition(stages, data, run, member, network)
            epochs = self.first_epochs
            yield from stages.stage(f"first-{member}", network, self.first, epochs, data, self.stopping)
            if self.training == "partition":
                return self._served_member(data, network)
            network = self._successor(stages, data, run, member, network)
        epochs = self.second_epochs
        yield from stages.stage(f"second-{member}", network, self.second, epochs, data, self.stopping)
        return self._served_member(data, network)

    def _partition(
        self, stages: IndexedStages, data: Prepared, run: Run, member: int, before: IndexedNetwork | None
    ) -> IndexedNetwork:
        """Stage 1: each label in one cluster, by its documents' bags and, if any, an earlier network's vectors."""
        n_clusters, seed = self.n_clusters, run.seed_of("clusters", member)
        encoder = self._encoder(stages, data, run, member)  # first, so that errors come before the clustering

        def cluster() -> np.ndarray:
            dim = self.embedding_dim
            generator = run.generator("projection")
            vectors = stages.bag_vectors(data, dim, generator, texts=self.cluster_text)
            learnt = [] if before is None else [stages.label_vectors(before)]
            return cluster_rows(torch.cat([*vectors, *learnt], dim=1), n_clusters, seed)

        clusters = run.keep(f"clusters-{member}", cluster, inputs="by bag" if before is None else "learnt")
        labels = padded_rows(membership(clusters, n_clusters))
        return self._network(encoder, labels, None, data, run)

    def _successor(
        self, stages: IndexedStages, data: Prepared, run: Run, member: int, before: IndexedNetwork
    ) -> IndexedNetwork:
        """Stage 2: continues from stage 1, with edges where its clusters were matched with labels."""
        n_edges = self.edges_per_cluster
        found = run.keep_all(f"edges-{member}", lambda: stages.matched_edges(before, data.relevance, n_edges))
        weights = torch.rand(found["labels"].shape, generator=run.generator("edges", member))
        if self.edge_start == "matches":
            weights = torch.from_numpy(found["matches"]).clamp(min=_FEWEST).log()
        network = self._network(before.encoder, found["labels"], weights, data, run)
        network.index.clusters.load_state_dict(before.index.clusters.state_dict())
        if not self.restart_labels:
            network.classifier = before.classifier
        return network

    def _unguided(self, stages: IndexedStages, data: Prepared, run: Run, member: int) -> IndexedNetwork:
        """Stage 2 from scratch: random edges with random weights."""
        shape = self.n_clusters, self.edges_per_cluster
        labels = random_edges(shape, data.size.n_labels, run.seed_of("edges", member))
        weights = torch.rand(shape, generator=run.generator("edges", member))
        return self._network(self._encoder(stages, data, run, member), labels, weights, data, run)

    def _encoder(self, stages: IndexedStages, data: Prepared, run: Run, member: int) -> DocumentEncoder:
        dim = self.embedding_dim
        generator = run.generator("encoder", member)
        sparse = run.device.type == "cpu" and reads_tokens(stages.documents)
        return make_encoder(self.encoder, self.vectoriser, data.vectoriser, dim, generator, sparse=sparse)

    def _network(
        self, encoder: DocumentEncoder, labels: np.ndarray, weights: torch.Tensor | None, data: Prepared, run: Run
    ) -> IndexedNetwork:
        """A network over these edges (C, E), which are fixed if there are no weights."""
        n_labels = data.size.n_labels
        classifier: PairClassifier | RowClassifier
        scales = {"cluster_scale": self.cluster_scale, "edge_scale": float(self.edge_scale)}
        with run.seeded("clusters"):
            index = EdgeIndex(encoder.dim, torch.from_numpy(labels), weights, n_labels=n_labels, **scales)
        if self.negatives == "shortlist":
            prior = -math.log(self.shortlist_size + 1)
            classifier = PairClassifier(n_labels, encoder.dim, prior, sparse=run.device.type == "cpu")
        else:
            rows, lr = run.rows(n_labels), self.first.label_lr
            classifier = row_classifier(rows, encoder.dim, lr, self.label_optimiser, "bce_sum", run.device)
        return IndexedNetwork(encoder, index, classifier).to(run.device)

    def _served_member(self, data: Prepared, network: IndexedNetwork) -> Servable:
        index = network.index.served("document", self.beam, self.shortlist_size)
        encoders = {"document": network.encoder.served()}
        scorers = [network.classifier.served("document")]
        fusion = Product() if self.negatives == "shortlist" else Sigmoid()
        return Servable(data.vectoriser, encoders, index, scorers, fusion)
