"""ECLARE: DECAF with a graph of labels in classifiers, clusters, shortlists and predictions.

From Mittal, Sachdeva et al., "ECLARE: Extreme Classification with Label Graph Correlations" (WWW 2021). Random walks
over the relevance matrix give a graph of labels. A classifier is made of the label's text (LTE), the text convolved
over the graph (GALE), and a refinement that starts at the convolved text. Label centroids are smoothed over the graph
before they are clustered, and scores are passed on over it (GAME), of clusters and of labels.

What differs from the authors' code: how much of the graph is used is chosen on a hold-out of train, on which Module I
is tried with the graph and without; without it this is DECAF. `ranker` is "exact" or "sampled" by default, as in DECAF,
with the paper's path as "shortlist". Parts are combined by DECAF's gates instead of attention (see `combine` and
benchmarks/LOG.md). Blocks, optimisers and biases are DECAF's. Token vectors are trained on after Module I unless
`freeze_tokens`.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal, final

import numpy as np
import scipy.sparse as sp
import torch

from xclearn.algorithms.eclare.trial import best_choice, parted, score_with_game
from xclearn.config import Count, Range, Rate, Share, Weight
from xclearn.config import Size as Number
from xclearn.inference.components import AllLabels, Classifier, Product, Scorer, Sigmoid
from xclearn.inference.graph import Game, GameLabels, GameScorer, Graph
from xclearn.inference.servable import Ensemble, Servable
from xclearn.labels.graph import LabelGraph, cluster_graph, describe, prune_by_vectors
from xclearn.metrics.bins import mean_by_bin
from xclearn.parts.combination import Combine
from xclearn.parts.game import DEPTH
from xclearn.parts.label_clusters import cluster_apart, cluster_texts, label_vectors, padded_rows, smoothed
from xclearn.parts.text_network import Convolution, OutputTexts, TextNetwork, first_refinement, texts_over_graph
from xclearn.parts.text_training import Clusters, Shortlister, TextTask, graph_negatives, make_clusters
from xclearn.text import Subwords, WordPiece, Words
from xclearn.training.algorithm import Algorithm, number
from xclearn.training.plan import Plan, available_memory
from xclearn.training.prepare import Prepared, Size
from xclearn.training.run import Run
from xclearn.training.scoring import task_score
from xclearn.training.stage import Metric, Stage, Stopping
from xclearn.training.text_stages import ClassifierCost, Material, Ranker, TextStages, token_table, usual_settings

_SHARES = (0.0, 0.1, 0.25, 0.5)  # of GAME in predictions, to choose from
_LEAST_DOCUMENTS = 2_000  # for a trial: the hold-out of a smaller set says nothing


@final
@dataclass(kw_only=True)
class Eclare(Algorithm):
    """Label text, label graph and refinement vectors over a shared token table."""

    name: ClassVar[str] = "eclare"

    vectoriser: Words | WordPiece | Subwords = field(default_factory=Words)  # how texts become tokens
    embedding_dim: Count | None = None  # length of all vectors
    batch_size: Count | None = None  # documents per step
    trial_epochs: Count | None = None  # Module I with and without graph, on a part of train
    surrogate_epochs: Number | None = None  # Module I: label text and graph
    shortlister_epochs: Count | None = None  # Module II, when the ranker uses a shortlist
    ranker_epochs: Count | None = None  # Module IV
    surrogate_lr: Rate = 0.01  # peak learning rate of Module I
    later_lr: Rate = 0.005  # peak learning rate of Modules II and IV
    refinement_lr: Weight = 0.1  # peak learning rate of refinements (SGD, per document)
    bias_lr: Weight = 0.01  # peak learning rate of biases (SGD, per document)
    dropout: Share = 0.25  # after each ReLU
    warm_up: Share = 0.1  # share of each stage in which learning rates rise
    ranker: Ranker | None = None  # labels a document is trained against
    n_negatives: Count = 1024  # random labels beside the batch's own when sampling
    graph: LabelGraph = field(default_factory=LabelGraph)  # of labels
    order: Number | None = None  # convolutions of label text (GALE); 0 leaves the graph out; auto: on a hold-out
    convolution: Convolution = "block"  # after a convolution: block, or the layers of GCN or LightGCN
    combine: Combine = "gates"  # how the parts of a classifier become one; attention in the paper
    label_text: bool = True  # False drops the label's own text from classifiers (NoLTE)
    refinement: Literal["graph", "text", "random", "none"] = "graph"  # where refinements start; none is NoRefine
    least_cosine: Annotated[float, Range(-1, 1)] = -1.0  # of two labels' texts after Module I, or their edge goes
    smooth_centroids: bool = True  # clusters from centroids that are smoothed over the graph
    head_clusters: bool = True  # labels of the head in clusters of their own
    n_clusters: Count | None = None  # clusters of the shortlister, a power of two
    beam: Count | None = None  # clusters kept per document; auto: enough for target_recall
    target_recall: Share = 0.85  # share of train's relevant labels the beam must reach
    cluster_game: Share = 0.5  # share of GAME in cluster scores; 1 is the paper's form, 0.5 that of its code
    negatives: Literal["neighbours", "clusters", "graph"] = "neighbours"  # shortlist and its neighbours; it; only graph
    add_positives: bool = True  # train on relevant labels that the shortlist missed
    choose_by: Metric = "P@5"  # metric of the hold-out by which order and game are chosen
    game: Share | None = None  # share of GAME in label scores; 1 is the paper's form; auto: on a hold-out
    freeze_tokens: bool = False  # token table fixed after Module I, as in the paper
    restart_blocks: bool = False  # blocks start again at the identity in each module, as in the paper
    spectral: bool = True  # blocks' matrices have spectral norm one
    n_members: Count = 1  # ensemble members sharing Module I
    stopping: Stopping | None = None  # end the last module on a held-out metric

    def _auto(self, size: Size, device: str) -> dict[str, Any]:
        usual = usual_settings(size, device)
        untried = {"order": 1, "game": 0.0} if size.n_documents < _LEAST_DOCUMENTS else {}
        return usual | untried | {"trial_epochs": usual["surrogate_epochs"] // (1 if device == "cuda" else 2)}

    def _plan(self, size: Size, device: str) -> Plan:
        stages, order = self._text_stages(device), 1 if self.order is None else self.order
        attention, detached = self.combine.startswith("attention"), stages.sampling and self.label_text
        cost = ClassifierCost.over_graph(size, self.graph.edges, order, attention=attention, detached=detached)
        scored = stages.scored(size, self.beam, self.n_clusters)
        epochs = number(self.surrogate_epochs), number(self.ranker_epochs)
        return stages.plan(size, number(self.embedding_dim), scored, cost, epochs, self.n_members)

    def _stages(self, data: Prepared, run: Run) -> Iterator[Stage]:
        self._text = self._text_stages(run.device.type)
        self._sparse = self._text.sampling and sp.issparse(data.features)
        yield from self._choose(data, run)
        train, counts = Material.of(data, run.device), self._label_graph(data, run, "graph")
        run.log("graph", **describe(counts))
        first = yield from self._module_one(token_table(data, number(self.embedding_dim), run), train, counts, run)
        if self.least_cosine > -1:
            vectors = train.features @ first.table.detach().float().cpu().numpy()  # (L, D)
            counts = prune_by_vectors(counts, vectors, self.least_cosine)
        self.graph_, texts = self.graph.normalise(counts), self._texts(train.features, counts, self.order, run)
        self.members_: list[tuple[TextTask, Shortlister | None]] = []
        for member in range(self.n_members):
            before, shortlister, negatives = first, None, None
            if self.ranker == "shortlist":
                shortlister = yield from self._module_two(member, first, train, counts, run)
                before, by_graph = shortlister.task.network, self.negatives == "graph"
                negatives = graph_negatives(train.relevance, self.graph_, run.device) if by_graph else shortlister
            ranker = train.task(self._network(before.table, texts, before, run))  # Module III
            epochs, score = number(self.ranker_epochs), task_score(ranker, data, self.stopping)
            yield self._text.stage(f"ranker-{member}", ranker, epochs, self.later_lr, negatives, score)  # Module IV
            run.log("parts", member=member, lengths=mean_by_bin(ranker.part_lengths(), data.label_counts))
            self.members_.append((ranker, shortlister))

    def _servable(self, data: Prepared) -> Servable | Ensemble:
        served = [self._served_member(data, *member) for member in self.members_]
        return served[0] if len(served) == 1 else Ensemble(served)

    def _module_one(
        self, table: torch.Tensor, train: Material, counts: sp.csr_matrix, run: Run
    ) -> Generator[Stage, None, TextNetwork]:
        """The token table E (V, D), by LTE and GALE alone: of labels, or of clusters where these make shortlists."""
        if self.ranker == "shortlist":
            clusters, _, texts = self._clusters("clusters", table, train, counts, run)
            task = train.task(self._network(table, texts, None, run), clusters.positives)
        else:
            task = train.task(self._network(table, self._texts(train.features, counts, self.order, run), None, run))
        if self.surrogate_epochs:
            yield self._text.stage("surrogate", task, self.surrogate_epochs, self.surrogate_lr)
        return task.network

    def _module_two(
        self, member: int, first: TextNetwork, train: Material, counts: sp.csr_matrix, run: Run
    ) -> Generator[Stage, None, Shortlister]:
        """The shortlister: clusters of labels made anew, with refinements; GAME over their graph widens the beam."""
        clusters, between, texts = self._clusters(f"clusters-{member}", first.table.detach(), train, counts, run)
        task = train.task(self._network(first.table, texts, first, run), clusters.positives)  # (N, K)
        yield self._text.stage(f"shortlister-{member}", task, number(self.shortlister_epochs), self.later_lr)
        near = torch.from_numpy(padded_rows(counts)).to(run.device) if self.negatives == "neighbours" else None
        graph = Graph.of(self.graph.normalise(between))
        found = Shortlister(task, clusters, self.beam, self.target_recall, graph, self.cluster_game, near)
        run.log("shortlist", member=member, beam=found.beam, recall=found.recall)
        return found

    def _label_graph(self, data: Prepared, run: Run, name: str) -> sp.csr_matrix:
        """Weights between labels (L, L), not normalised yet: the graph of clusters is made of them too."""
        memory = available_memory(torch.device("cpu"))
        return self.graph.build(data.relevance, data.label_names, run.seed_of(name), memory)

    def _clusters(
        self, name: str, table: torch.Tensor, train: Material, counts: sp.csr_matrix, run: Run
    ) -> tuple[Clusters, sp.csr_matrix, list[OutputTexts]]:
        """K clusters of labels by centroids over the graph, the weights between them (K, K), and their texts."""

        def find() -> np.ndarray:
            vectors = label_vectors(table, train.documents, train.labels)  # (L, D)
            if self.smooth_centroids:
                vectors = smoothed(vectors, self.graph.normalise(counts))
            of_head = np.bincount(train.relevance.indices, minlength=len(vectors)) > self.graph.head
            return cluster_apart(vectors, of_head & self.head_clusters, number(self.n_clusters), run.seed_of(name))

        clusters = make_clusters(run.keep(name, "", find), train.relevance, train.features, run.device)
        between = cluster_graph(counts, clusters.members, self.graph.edges)
        return clusters, between, self._texts(cluster_texts(clusters.members, train.features), between, self.order, run)

    def _texts(self, features: sp.csr_matrix, counts: sp.csr_matrix, order: int | None, run: Run) -> list[OutputTexts]:
        """What LTE embeds, the texts z (S, V) of labels or clusters, and GALE, these over their graph: G z, G² z, …"""
        return texts_over_graph(features, self.graph.normalise(counts), number(order), run.device)

    def _network(
        self, table: torch.Tensor, texts: list[OutputTexts], before: TextNetwork | None, run: Run
    ) -> TextNetwork:
        """Classifiers (S, D) of LTE, GALE and, after Module I, a refinement; goes on from the network before."""
        (own, *convolved), start = texts, None
        if before is not None and self.refinement != "none":
            noise = run.generator("refinement") if self.refinement == "random" else None
            over_graph = self.refinement == "graph" and convolved
            start = first_refinement(convolved[0] if over_graph else own, table, noise)  # E G z, or E z: (S, D)
        with run.seeded("network"):
            network = TextNetwork(
                table.detach(),
                own,
                dropout=self.dropout,
                spectral=self.spectral,
                use_text=self.label_text or not (convolved or start is not None),
                refinement=start,
                sparse=self._sparse,
                convolved=convolved,
                convolution=self.convolution,
                combine=self.combine if convolved else "gates",
            ).to(run.device)
        if before is not None:
            network.go_on_from(before, blocks=not self.restart_blocks)
        network.table.requires_grad_(before is None or not self.freeze_tokens)
        return network

    def _served_member(self, data: Prepared, ranker: TextTask, shortlister: Shortlister | None) -> Servable:
        """GAME over labels comes last, or in the paper's form among the candidates, before their clusters count."""
        scorer: Scorer = Classifier("label", *ranker.classifiers())
        encoders, share, steps = {"label": ranker.network.served_encoder()}, self.game or 0.0, []
        if share == 1 and shortlister is not None:
            scorer = GameScorer(scorer, Graph.of(self.graph_.T), share)
        elif share > 0:
            steps = [GameLabels(Game(Graph.of(self.graph_), share, DEPTH), DEPTH)]
        if shortlister is None:
            return Servable(data.vectoriser, encoders, AllLabels(), [scorer], Sigmoid(), steps)
        encoders["cluster"] = shortlister.task.network.served_encoder()
        return Servable(data.vectoriser, encoders, shortlister.served("cluster"), [scorer], Product(), steps)

    def _choose(self, data: Prepared, run: Run) -> Iterator[Stage]:
        """Not in the paper: order and game, where left open, by Module I on a part of train, measured on the rest."""
        if self.order is not None and self.game is not None:
            return
        part, scores = parted(data, run), {}
        train, counts = Material.of(part, run.device), self._label_graph(part, run, "trial-graph")
        graph, table = Graph.of(self.graph.normalise(counts)), token_table(data, number(self.embedding_dim), run)
        for order in (0, 1) if self.order is None else (self.order,):
            task = train.task(self._network(table, self._texts(train.features, counts, order, run), None, run))
            yield self._text.stage(f"trial-{order}", task, number(self.trial_epochs), self.surrogate_lr)
            for share in _SHARES if self.game is None else (self.game,):
                scores[order, share] = score_with_game(task, part, graph, share, self.choose_by, run)
        assert part.held_out is not None
        self.order, self.game = best_choice(scores, len(part.held_out), run)

    def _text_stages(self, device: str) -> TextStages:
        return TextStages(
            ranker=str(self.ranker),
            batch_size=number(self.batch_size),
            n_negatives=self.n_negatives,
            add_positives=self.add_positives,
            refinement_lr=self.refinement_lr,
            bias_lr=self.bias_lr,
            warm_up=self.warm_up,
            stopping=self.stopping,
            device=device,
        )
