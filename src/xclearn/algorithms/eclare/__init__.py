"""ECLARE: DECAF with a graph of labels in classifiers, clusters, shortlists and predictions.

From Mittal, Sachdeva et al., "ECLARE: Extreme Classification with Label Graph Correlations" (WWW 2021). Random walks
over the relevance matrix give a graph of labels. A classifier combines the label's text (LTE), the text convolved over
the graph (GALE), and a refinement initialised to the convolved text. Label centroids are smoothed over the graph before
clustering, and the scores of clusters and labels are propagated over it (GAME).

Differences from the authors' code: how much the graph is used is chosen on a hold-out of train, where Module I is tried
with and without the graph; without it, ECLARE is DECAF. `ranker` is "exact" or "sampled" by default, as in DECAF, with
the paper's path as "shortlist". Parts are combined by DECAF's gates instead of attention (see `combine` and
benchmarks/LOG.md). Blocks, optimisers and biases are DECAF's. Token vectors keep training after Module I unless
`freeze_tokens`.

Good for: rare labels that co-occur with others.
Cost: that of decaf, a label graph, and a trial of the graph's benefit.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Literal, final

import numpy as np
import scipy.sparse as sp
import torch

from xclearn.algorithms.eclare.over_graph import (
    cluster_apart,
    cost_over_graph,
    graph_negatives,
    smoothed,
    texts_over_graph,
)
from xclearn.algorithms.eclare.trial import best_choice, parted, report_with_game
from xclearn.algorithms.eclare.unread import unread
from xclearn.config import AUTO, Auto, Count, Number, Range, Share, Span
from xclearn.inference.components import AllLabels, Classifier, Product, Scorer, Sigmoid
from xclearn.inference.graph import Game, GameLabels, GameScorer, Graph
from xclearn.inference.servable import Ensemble, Servable
from xclearn.labels.graph import LabelGraph, cluster_graph, describe, mean_cluster_graph, prune_by_vectors
from xclearn.labels.lists import padded_rows
from xclearn.metrics.bins import mean_by_bin
from xclearn.parts.combination import Combine
from xclearn.parts.game import DEPTH
from xclearn.parts.label_clusters import cluster_texts, label_vectors
from xclearn.parts.text_network import AfterConvolution, Blocks, OutputTexts, TextNetwork
from xclearn.parts.text_training import ClusterOutputs, ClusterShortlister, TextTask, make_clusters
from xclearn.training.algorithm import together
from xclearn.training.plan import Plan, available_memory
from xclearn.training.prepare import Prepared, Size
from xclearn.training.run import Run
from xclearn.training.scoring import task_score
from xclearn.training.stage import Metric, Stage
from xclearn.training.text_algorithm import Material, TextAlgorithm, token_table

_SHARES = (0.0, 0.1, 0.25, 0.5)  # candidate shares of GAME in predictions
_JUDGED = ("P@1", "P@5", "PSP@1", "PSP@5")  # held-out metrics compared
_LEAST_DOCUMENTS = 2_000  # for a trial: smaller hold-outs are too noisy

_Order = Annotated[Auto[Number], Span(choices=(0, 1, 2))]


@final
@dataclass(kw_only=True)
class Eclare(TextAlgorithm):
    """Label text, label graph and refinement vectors over a shared token table."""

    name: ClassVar[str] = "eclare"

    trial_epochs: Auto[Count] = AUTO  # epochs of the trial: Module I with and without the graph, on part of train
    graph: LabelGraph = field(default_factory=LabelGraph)  # the label graph
    order: _Order = AUTO  # convolutions of label text (GALE); 0: no graph; auto: chosen on a hold-out
    convolution: AfterConvolution = "block"  # layer after a convolution: block, or that of GCN or LightGCN
    combine: Combine = "gates"  # how the parts of a classifier are combined; attention in the paper
    refinement: Auto[Literal["graph", "text", "random", "none"]] = AUTO  # initial refinements; none is NoRefine
    least_cosine: Annotated[
        float, Range(-1, 1)
    ] = -1.0  # drop edges between labels whose texts have a lower cosine after Module I
    smooth_centroids: bool = True  # cluster labels by centroids smoothed over the graph
    head_clusters: bool = True  # put head labels into separate clusters
    cluster_game: Share = 0.5  # share of GAME in cluster scores; 1 in the paper, 0.5 in its code
    between_clusters: Literal["sums", "means"] = "sums"  # cluster graph: summed label edges, or the paper's means
    negatives: Literal["neighbours", "clusters", "graph"] = (
        "neighbours"  # the shortlist with its neighbours, the shortlist, or only the graph
    )
    choose_by: Auto[Metric] = AUTO  # metric to choose order and game by; auto: P and PSP at 1 and 5 together
    game: Auto[Share] = AUTO  # share of GAME in label scores; 1 in the paper; auto: chosen on a hold-out
    freeze_tokens: bool = False  # freeze the token table after Module I, as in the paper
    convolved_gradient: Auto[bool] = AUTO  # convolved texts train the token table; auto: unless its gradient is sparse

    def _auto(self, size: Size, device: str) -> dict[str, Any]:
        usual = self._usual(size, device)
        untried = {"order": 1, "game": 0.0} if size.n_documents < _LEAST_DOCUMENTS else {}
        usual["refinement"] = "text" if self.order == 0 else "graph"
        ranker = usual["ranker"] if self.ranker is AUTO else self.ranker
        # the tokens of all neighbours make a sparse gradient about ten times as long
        sparse = (ranker == "sampled" or (ranker == "shortlist" and device == "cpu")) and not size.dense
        usual["convolved_gradient"] = not (sparse and self.label_text)
        return usual | untried | {"trial_epochs": usual["surrogate_epochs"] // (1 if device == "cuda" else 2)}

    def _unread(self, size: Size, device: str) -> Iterator[tuple[str, str]]:
        yield from super()._unread(size, device)
        yield from unread(self)

    def _plan(self, size: Size, device: str) -> Plan:
        order = 1 if self.order is AUTO else self.order
        attention = self.combine.startswith("attention")
        detached = self._samples(device) and self.label_text and not self.convolved_gradient
        cost = cost_over_graph(size, self.graph.edges, order, attention=attention, detached=detached)
        plan = self._text_plan(size, device, self._scored(size), cost)
        orders = (0, 1) if self.order is AUTO else (self.order,)
        trials = [
            self._text_cost(f"trial-{each}", self.trial_epochs, size, device, self._scored(size), cost)
            for each in orders
        ]
        return replace(plan, stages=(*trials, *plan.stages)) if self._tries else plan

    @property
    def _tries(self) -> bool:
        """Whether order or game are chosen on a hold-out."""
        return self.order is AUTO or self.game is AUTO

    def _stages(self, data: Prepared, run: Run) -> Iterator[Stage]:
        yield from self._choose(data, run)
        train = self._material(data, run)
        counts = self._label_graph(data, run, "graph")
        run.log("graph", **describe(counts))
        first = yield from self._module_one(token_table(data, self.embedding_dim, run), train, counts, run)
        if self.least_cosine > -1:
            vectors = train.features @ first.table.detach().float().cpu().numpy()  # (L, D)
            counts = prune_by_vectors(counts, vectors, self.least_cosine)
        self.graph_ = self.graph.normalise(counts)
        texts = texts_over_graph(train.features, self.graph_, self.order, run.device)
        self.members_: list[tuple[TextTask, ClusterShortlister | None]] = []
        for member in range(self.n_members):
            before, shortlister, listed = first, None, None
            if self.ranker == "shortlist":
                shortlister = yield from self._module_two(member, first, train, counts, run)
                before = shortlister.task.network
                by_graph = self.negatives == "graph"
                listed = graph_negatives(train.relevance, self.graph_, run.device) if by_graph else shortlister
            ranker = train.task(self._network(before.table, texts, before, run))  # Module III
            score = task_score(ranker, data, self.stopping)
            yield self._stage(f"ranker-{member}", ranker, self.ranker_epochs, self.later_lr, listed, score)  # Module IV
            run.log("parts", member=member, lengths=mean_by_bin(ranker.part_lengths(), data.label_counts))
            self.members_.append((ranker, shortlister))

    def _servable(self, data: Prepared) -> Servable | Ensemble:
        return together([self._served_member(data, *member) for member in self.members_])

    def _module_one(
        self, table: torch.Tensor, train: Material, counts: sp.csr_matrix, run: Run
    ) -> Generator[Stage, None, TextNetwork]:
        """Train the token table E (V, D) with LTE and GALE only, on labels, or on clusters if these make shortlists."""
        if self.ranker == "shortlist":
            clusters, _, texts = self._clusters("clusters", table, train, counts, run)
            task = train.task(self._network(table, texts, None, run), clusters.positives)
        else:
            texts = texts_over_graph(train.features, self.graph.normalise(counts), self.order, run.device)
            task = train.task(self._network(table, texts, None, run))
        if self.surrogate_epochs:
            yield self._stage("surrogate", task, self.surrogate_epochs, self.surrogate_lr)
        return task.network

    def _module_two(
        self, member: int, first: TextNetwork, train: Material, counts: sp.csr_matrix, run: Run
    ) -> Generator[Stage, None, ClusterShortlister]:
        """The shortlister: new clusters of labels, with refinements; GAME over their graph widens the beam."""
        clusters, between, texts = self._clusters(f"clusters-{member}", first.table.detach(), train, counts, run)
        task = train.task(self._network(first.table, texts, first, run), clusters.positives)  # (N, K)
        yield self._stage(f"shortlister-{member}", task, self.shortlister_epochs, self.later_lr)
        near = torch.from_numpy(padded_rows(counts)).to(run.device) if self.negatives == "neighbours" else None
        graph = Graph.of(between.T if self.cluster_game == 1 else between)  # G p̃ in the paper, p̃ G in its code
        found = ClusterShortlister(task, clusters, self.beam, self.target_recall, graph, self.cluster_game, near)
        run.log("shortlist", member=member, beam=found.beam, recall=found.recall)
        return found

    def _label_graph(self, data: Prepared, run: Run, name: str) -> sp.csr_matrix:
        """Unnormalised weights between labels (L, L), from which the graph of clusters is also made."""
        memory = available_memory(torch.device("cpu"))
        return self.graph.build(data.relevance, data.label_names, run.seed_of(name), memory)

    def _clusters(
        self, name: str, table: torch.Tensor, train: Material, counts: sp.csr_matrix, run: Run
    ) -> tuple[ClusterOutputs, sp.csr_matrix, list[OutputTexts]]:
        """K clusters of labels by smoothed centroids, the normalised graph of clusters (K, K), and their texts."""

        def find() -> np.ndarray:
            vectors = label_vectors(table, train.documents, train.labels)  # (L, D)
            if self.smooth_centroids:
                vectors = smoothed(vectors, self.graph.normalise(counts))
            of_head = np.bincount(train.relevance.indices, minlength=len(vectors)) > self.graph.head
            return cluster_apart(vectors, of_head & self.head_clusters, self.n_clusters, run.seed_of(name))

        clusters = make_clusters(run.keep(name, find), train.relevance, train.features, run.device)
        if self.between_clusters == "means":
            between = mean_cluster_graph(self.graph.normalise(counts), clusters.members)
        else:
            between = self.graph.normalise(cluster_graph(counts, clusters.members, self.graph.edges))
        features = cluster_texts(clusters.members, train.features)
        return clusters, between, texts_over_graph(features, between, self.order, run.device)

    def _network(
        self, table: torch.Tensor, texts: list[OutputTexts], before: TextNetwork | None, run: Run
    ) -> TextNetwork:
        """A network whose classifiers (S, D) combine LTE, GALE and, after Module I, a refinement."""
        blocks = Blocks(self.dropout, self.spectral, self.convolution, convolved_gradient=self.convolved_gradient)
        network = self._next_network(table, texts, before, run, blocks, start=self.refinement, combine=self.combine)
        network.table.requires_grad_(before is None or not self.freeze_tokens)
        return network

    def _served_member(self, data: Prepared, ranker: TextTask, shortlister: ClusterShortlister | None) -> Servable:
        """GAME over labels comes last or, as in the paper, among candidates before multiplying by cluster scores."""
        scorer: Scorer = Classifier("label", *ranker.classifiers())
        encoders, steps = {"label": ranker.network.served_encoder()}, []
        if self.game == 1 and shortlister is not None:
            scorer = GameScorer(scorer, Graph.of(self.graph_.T), self.game)
        elif self.game > 0:
            steps = [GameLabels(Game(Graph.of(self.graph_), self.game, DEPTH), DEPTH)]
        if shortlister is None:
            return Servable(data.vectoriser, encoders, AllLabels(), [scorer], Sigmoid(), steps)
        encoders["cluster"] = shortlister.task.network.served_encoder()
        return Servable(data.vectoriser, encoders, shortlister.served("cluster"), [scorer], Product(), steps)

    def _choose(self, data: Prepared, run: Run) -> Iterator[Stage]:
        """Choose automatic order and game by training Module I on part of train and evaluating on the rest (ours)."""
        if not self._tries:
            return
        part, reports = parted(data, run), {}
        train = self._material(part, run)
        edges = self.graph.normalise(self._label_graph(part, run, "trial-graph"))
        graph = Graph.of(edges)
        table = token_table(data, self.embedding_dim, run)
        for order in (0, 1) if self.order is AUTO else (self.order,):
            texts = texts_over_graph(train.features, edges, order, run.device)
            task = train.task(self._network(table, texts, None, run))
            yield self._stage(f"trial-{order}", task, self.trial_epochs, self.surrogate_lr)
            for share in _SHARES if self.game is AUTO else (self.game,):
                reports[order, share] = report_with_game(task, part, graph, share, run)
        self.order, self.game = best_choice(reports, _JUDGED if self.choose_by is AUTO else (self.choose_by,), run)
