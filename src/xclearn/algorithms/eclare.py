"""ECLARE: DECAF with a graph of labels in classifiers, clusters, shortlists and predictions.

From Mittal, Sachdeva et al., "ECLARE: Extreme Classification with Label Graph Correlations" (WWW 2021). Random walks
over the relevance matrix give a graph of labels. A classifier is made of the label's text, the text convolved over the
graph, and a refinement that starts at the convolved text. Label centroids are smoothed over the graph before
they are clustered, and scores are passed on over it (GAME), of clusters and of labels.

What differs from the authors' code: how much of the graph is used is chosen on a hold-out of train, on which Module I
is tried with the graph and without; without it this is DECAF. `ranker` is "exact" or "sampled" by default, as in DECAF,
with the paper's path as "shortlist". Parts are combined by DECAF's gates instead of attention (see `combine` and
benchmarks/LOG.md). Blocks, optimisers and biases are DECAF's. Token vectors are trained on after Module I unless
`freeze_tokens`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, final

import numpy as np
import scipy.sparse as sp
import torch

from xclearn.config import Count, Range, Rate, Share, Weight
from xclearn.config import Size as Number
from xclearn.inference.components import AllLabels, Classifier, Product, Scorer, Sigmoid
from xclearn.inference.graph import Game, GameLabels, GameScorer, Graph
from xclearn.inference.servable import Ensemble, Servable
from xclearn.kernels import topk_csr
from xclearn.labels.graph import LabelGraph, cluster_graph, describe, prune_by_vectors
from xclearn.metrics.bins import mean_by_bin
from xclearn.parts.combination import Combine
from xclearn.parts.game import DEPTH
from xclearn.parts.label_clusters import (
    cluster_apart,
    cluster_texts,
    convolved_texts,
    label_vectors,
    membership,
    padded_rows,
    smoothed,
)
from xclearn.parts.rows import FeatureRows, SparseRows, feature_rows
from xclearn.parts.text_network import Convolution, OutputTexts, TextNetwork
from xclearn.parts.text_training import (
    WIDEST_BEAM,
    Clusters,
    FixedNegatives,
    Negatives,
    Shortlister,
    TextTask,
    make_clusters,
)
from xclearn.text import WordPiece, Words
from xclearn.training.algorithm import Algorithm, number
from xclearn.training.plan import Plan, available_memory
from xclearn.training.prepare import Prepared, Size
from xclearn.training.run import Run
from xclearn.training.stage import Metric, Stage, Stopping
from xclearn.training.text_stages import Ranker, TextStages, label_features, task_score, text_task, token_table
from xclearn.training.trial import parted, score_with_game

_SHARES = (0.0, 0.1, 0.25, 0.5)  # of GAME in predictions, to choose from
_LEAST_DOCUMENTS = 2_000  # for a trial: the hold-out of a smaller set says nothing


class Material(NamedTuple):
    """What networks are trained on."""

    documents: FeatureRows
    labels: SparseRows  # (N, L)
    relevance: sp.csr_matrix  # (N, L)
    features: sp.csr_matrix  # (L, V) of labels
    names: Sequence[str]


class Outputs(NamedTuple):
    """Labels or clusters: what they say, alone and over the graph."""

    texts: OutputTexts
    convolved: list[OutputTexts]


@final
@dataclass(kw_only=True)
class Eclare(Algorithm):
    """Label text, label graph and refinement vectors over a shared token table."""

    name: ClassVar[str] = "eclare"

    vectoriser: Words | WordPiece = field(default_factory=Words)  # how texts become tokens
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
        gpu = device == "cuda"
        scale = max(1, min(8, 50_000 // size.n_documents))  # small sets need more passes for as many steps
        return {
            "embedding_dim": min(304 if gpu else 128, max(32, 2 * math.isqrt(size.n_labels))),
            "batch_size": min(1024, max(16, size.n_documents // 50)),
            "trial_epochs": (30 if gpu else 8) * scale,
            "surrogate_epochs": (30 if gpu else 16) * scale,
            "shortlister_epochs": 10 * scale,
            "ranker_epochs": (5 if gpu else 10) * scale,
            "ranker": "exact" if gpu or size.n_labels <= 4_000 else "sampled",
            "n_clusters": 2 ** min(17, max(0, math.floor(math.log2(size.n_labels / 3)))),
        }

    def _plan(self, size: Size, device: str) -> Plan:
        stages, order = self._text_stages(device), 1 if self.order is None else self.order
        scored = stages.scored(size, self.beam, self.n_clusters)
        modules = [("surrogate", self.surrogate_epochs)]
        modules += [(f"ranker-{i}", self.ranker_epochs) for i in range(self.n_members)]
        per_label = size.n_relevant / size.n_labels
        near = min(
            self.graph.edges, max(1.0, per_label) * size.labels_per_document
        )  # neighbours of a label with documents
        entries, everywhere = (
            sum(min((1 + edges) ** i, 100.0) for i in range(order + 1)) for edges in (near, near * min(1.0, per_label))
        )  # texts that a label's parts read: of the labels that are trained, and of all
        parts = 2 + order * (2 if self.combine.startswith("attention") else 1)
        trained = 1 if stages.sampling and self.label_text else entries  # see `TextNetwork.weighted_parts`
        costs = [
            stages.cost(
                name,
                epochs,
                size,
                number(self.embedding_dim),
                scored,
                refined=name != "surrogate",
                parts=parts,
                tokens_per_label=trained * size.tokens_per_label,
            )
            for name, epochs in modules
            if epochs
        ]
        texts = int(56 * size.n_label_entries * everywhere) * (2 if self.ranker == "shortlist" else 1)
        graph = 32 * size.n_labels * (1 + self.graph.edges)
        data = 8 * (size.n_feature_entries + size.n_relevant) + 16 * size.n_documents + texts + graph
        return Plan(device=device, data=data, stages=tuple(costs))

    def _stages(self, data: Prepared, run: Run) -> Iterator[Stage]:
        self._sparse = sp.issparse(data.features)
        yield from self._trial(data, run)
        stages, material = self._text_stages(run.device.type), _material(data, run)
        counts = self._label_graph(material, run, "graph")
        run.log("graph", **describe(counts))
        first = self._network(
            token_table(data, number(self.embedding_dim), run), self._outputs(material.features, counts, run), None, run
        )
        surrogate = text_task(first, material.documents, material.labels, run.device)
        if self.ranker == "shortlist":
            groups, outputs = self._clusters("clusters", first.table.detach(), material, counts, run)
            network = self._network(first.table, outputs, None, run)
            surrogate = text_task(network, material.documents, groups.positives, run.device)
        if self.surrogate_epochs:
            yield stages.stage("surrogate", surrogate, self.surrogate_epochs, self.surrogate_lr)
        table = surrogate.network.table.detach()
        counts = self._pruned(counts, material, table)
        self.graph_, outputs = self.graph.normalise(counts), self._outputs(material.features, counts, run)
        self.members_: list[tuple[TextTask, Shortlister | None]] = []
        for member in range(self.n_members):
            before, shortlister, negatives = surrogate.network, None, None
            if self.ranker == "shortlist":
                groups, of_groups = self._clusters(f"clusters-{member}", table, material, counts, run)
                network = self._network(table, of_groups, before, run, refine=True)
                finder = text_task(network, material.documents, groups.positives, run.device)
                epochs = number(self.shortlister_epochs)
                yield stages.stage(f"shortlister-{member}", finder, epochs, self.later_lr)
                shortlister = self._shortlister(finder, groups, counts)
                run.log("shortlist", member=member, beam=shortlister.beam, recall=shortlister.recall)
                before, negatives = finder.network, self._negatives(shortlister, data)
            network = self._network(before.table, outputs, before, run, refine=True)
            ranker = text_task(network, material.documents, material.labels, run.device)
            epochs, score = number(self.ranker_epochs), task_score(ranker, data, self.stopping, run)
            patience = self.stopping.patience if self.stopping else None
            yield stages.stage(f"ranker-{member}", ranker, epochs, self.later_lr, negatives, score, patience)
            run.log("parts", member=member, lengths=mean_by_bin(ranker.part_lengths(), data.label_counts))
            self.members_.append((ranker, shortlister))

    def _servable(self, data: Prepared) -> Servable | Ensemble:
        served = [self._served_member(data, *member) for member in self.members_]
        return served[0] if len(served) == 1 else Ensemble(served)

    def _trial(self, data: Prepared, run: Run) -> Iterator[Stage]:
        """Choose order and game where they are left open: Module I on a part of train, measured on the rest."""
        if data.size.n_documents < _LEAST_DOCUMENTS:
            self.order, self.game = 1 if self.order is None else self.order, self.game or 0.0
        if self.order is not None and self.game is not None:
            return
        part, stages, scores = parted(data, run), self._text_stages(run.device.type), {}
        material = _material(part, run)
        counts = self._label_graph(material, run, "trial-graph")
        graph, table = Graph.of(self.graph.normalise(counts)), token_table(data, number(self.embedding_dim), run)
        for order in (0, 1) if self.order is None else (self.order,):
            outputs = self._outputs(material.features, counts, run, order)
            network = self._network(table, outputs, None, run)
            task = text_task(network, material.documents, material.labels, run.device)
            yield stages.stage(f"trial-{order}", task, number(self.trial_epochs), self.surrogate_lr)
            for share in _SHARES if self.game is None else (self.game,):
                scores[order, share] = score_with_game(task, part, graph, share, self.choose_by, run)
        chosen = run.keep("choice", "", lambda: np.array(max(scores, key=lambda choice: scores[choice])))
        self.order, self.game = int(chosen[0]), float(chosen[1])
        run.log("choice", order=self.order, game=self.game, scores={f"{o}, {g:g}": s for (o, g), s in scores.items()})

    def _text_stages(self, device: str) -> TextStages:
        return TextStages(
            ranker=str(self.ranker),
            batch_size=number(self.batch_size),
            n_negatives=self.n_negatives,
            add_positives=self.add_positives,
            refinement_lr=self.refinement_lr,
            bias_lr=self.bias_lr,
            warm_up=self.warm_up,
            device=device,
        )

    def _label_graph(self, material: Material, run: Run, name: str) -> sp.csr_matrix:
        """Unnormalised, as the graph of clusters is made of it."""
        memory = available_memory(torch.device("cpu"))
        return self.graph.build(material.relevance, material.names, run.seed_of(name), memory)

    def _pruned(self, counts: sp.csr_matrix, material: Material, table: torch.Tensor) -> sp.csr_matrix:
        if self.least_cosine <= -1:
            return counts
        return prune_by_vectors(counts, material.features @ table.float().cpu().numpy(), self.least_cosine)

    def _outputs(self, features: sp.csr_matrix, counts: sp.csr_matrix, run: Run, order: int | None = None) -> Outputs:
        order = number(self.order) if order is None else order
        convolved = convolved_texts(features, self.graph.normalise(counts), order)
        texts, *more = (OutputTexts(SparseRows.of(each, run.device)) for each in (features, *convolved))
        return Outputs(texts, more)

    def _clusters(
        self, name: str, table: torch.Tensor, material: Material, counts: sp.csr_matrix, run: Run
    ) -> tuple[Clusters, Outputs]:
        def find() -> np.ndarray:
            vectors = label_vectors(table, material.documents, material.labels)
            if self.smooth_centroids:
                vectors = smoothed(vectors, self.graph.normalise(counts))
            of_head = np.bincount(material.relevance.indices, minlength=len(vectors)) > self.graph.head
            apart = of_head & self.head_clusters
            return cluster_apart(vectors, apart, number(self.n_clusters), run.seed_of(name))

        groups = make_clusters(run.keep(name, "", find), material.relevance, material.features, run.device)
        members = membership(groups.cluster_of_label, len(groups.labels))
        graph = cluster_graph(counts, members, self.graph.edges)
        return groups, self._outputs(cluster_texts(members, material.features), graph, run)

    def _network(
        self, table: torch.Tensor, outputs: Outputs, before: TextNetwork | None, run: Run, *, refine: bool = False
    ) -> TextNetwork:
        """A network over these outputs that goes on from the one before."""
        start = None
        if refine and self.refinement != "none":
            texts = outputs.convolved[0] if self.refinement == "graph" and outputs.convolved else outputs.texts
            start = texts.embed(table.detach(), None, sparse=False)
            if self.refinement == "random":
                noise = torch.randn(start.shape, generator=run.generator("refinement")).to(start.device)
                start = noise * start.std()
        with run.seeded("network"):
            network = TextNetwork(
                table.detach(),
                outputs.texts,
                dropout=self.dropout,
                spectral=self.spectral,
                use_text=self.label_text or not (outputs.convolved or start is not None),
                refinement=start,
                sparse=self._text_stages(run.device.type).sampling and self._sparse,
                convolved=outputs.convolved,
                convolution=self.convolution,
                combine=self.combine if outputs.convolved else "gates",
            ).to(run.device)
        if before is not None:
            network.go_on_from(before, blocks=not self.restart_blocks)
        network.table.requires_grad_(before is None or not self.freeze_tokens)
        return network

    def _shortlister(self, finder: TextTask, groups: Clusters, counts: sp.csr_matrix) -> Shortlister:
        members = membership(groups.cluster_of_label, len(groups.labels))
        graph = Graph.of(self.graph.normalise(cluster_graph(counts, members, self.graph.edges)))
        near = None
        if self.negatives == "neighbours":
            near = torch.from_numpy(padded_rows(counts)).to(groups.labels.device)
        return Shortlister(finder, groups, self.beam, self.target_recall, graph, self.cluster_game, near)

    def _negatives(self, shortlister: Shortlister, data: Prepared) -> Negatives:
        if self.negatives != "graph":
            return shortlister
        near = sp.csr_matrix(data.relevance @ self.graph_, dtype=np.float32)
        ids, _ = topk_csr(near.indptr, near.indices, near.data, WIDEST_BEAM)
        return FixedNegatives(torch.from_numpy(ids.astype(np.int32)).to(shortlister.clusters.labels.device))

    def _served_member(self, data: Prepared, ranker: TextTask, shortlister: Shortlister | None) -> Servable:
        scorer: Scorer = Classifier("label", *ranker.classifiers())
        encoders, share, steps = {"label": ranker.network.served_encoder()}, self.game or 0.0, []
        if (
            share == 1 and shortlister is not None
        ):  # the paper's form: among the candidates, before their clusters count
            scorer = GameScorer(scorer, Graph.of(self.graph_.T), share)
        elif share > 0:
            steps = [GameLabels(Game(Graph.of(self.graph_), share, DEPTH), DEPTH)]
        if shortlister is None:
            return Servable(data.vectoriser, encoders, AllLabels(), [scorer], Sigmoid(), steps)
        encoders["cluster"] = shortlister.task.network.served_encoder()
        return Servable(data.vectoriser, encoders, shortlister.served("cluster"), [scorer], Product(), steps)


def _material(data: Prepared, run: Run) -> Material:
    documents, labels = feature_rows(data.features, run.device), SparseRows.of(data.relevance, run.device)
    return Material(documents, labels, data.relevance, label_features(data), data.label_names)
