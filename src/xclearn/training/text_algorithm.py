"""The common base of DECAF and ECLARE: their settings, and stages that train a text network module by module.

An abstract algorithm whose fields are settings of both. Knows nothing about label graphs beyond their cost, or about
what is served.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, Self, final

import numpy as np
import scipy.sparse as sp
import torch

from xclearn.config import AUTO, Auto, Count, Number, Rate, Share, Span, Weight
from xclearn.parts.combination import Combine
from xclearn.parts.cost import Weights
from xclearn.parts.encoders import random_table
from xclearn.parts.lazy_adam import LazyAdam
from xclearn.parts.losses import SCORES_AT_ONCE
from xclearn.parts.pair_products import dense_bytes
from xclearn.parts.rows import FeatureRows, SparseRows, feature_rows
from xclearn.parts.text_network import Blocks, OutputTexts, SummedTexts, TextNetwork, first_refinement
from xclearn.parts.text_training import WIDEST_BEAM, ListedLabels, TextTask
from xclearn.text import Subwords, WordPiece, Words
from xclearn.training.algorithm import Algorithm
from xclearn.training.plan import Plan, StageCost, Steps, beside, of_members, stage_cost
from xclearn.training.prepare import Prepared, Size
from xclearn.training.run import Run
from xclearn.training.stage import Batch, Stage, Stopping, one_cycle
from xclearn.training.token_table import start_from

Ranker = Literal["exact", "sampled", "shortlist"]


@final
@dataclass(frozen=True)
class Material:
    """The training data of the stages."""

    documents: FeatureRows  # N rows
    labels: SparseRows  # (N, L)
    relevance: sp.csr_matrix  # (N, L) the same
    features: sp.csr_matrix  # (L, V) label texts; all empty if labels are only names

    @classmethod
    def of(cls, data: Prepared, device: torch.device) -> Self:
        features = data.label_features
        if features is None:
            features = sp.csr_matrix((data.size.n_labels, data.size.n_features), dtype=np.float32)
        documents = feature_rows(data.features, device)
        return cls(documents, SparseRows.of(data.relevance, device), data.relevance, sp.csr_matrix(features))

    def texts(self, run: Run) -> OutputTexts:
        """The texts of this process's labels."""
        rows = run.rows(self.features.shape[0])
        own = self.features if rows.ranks.count == 1 else self.features[rows.start : rows.stop]
        return OutputTexts(SparseRows.of(own, run.device), rows)

    def task(self, network: TextNetwork, positives: SparseRows | None = None) -> TextTask:
        """The task of training a network on labels, or on other outputs (N, S); scores start near their base rates."""
        wanted = self.labels if positives is None else positives
        compute = torch.bfloat16 if wanted.indptr.device.type == "cuda" else torch.float32
        return TextTask(network, self.documents, wanted, -math.log(wanted.n_columns + 1), compute)


@final
@dataclass(frozen=True)
class ClassifierCost:
    """The cost of a label's classifier; by default DECAF's, of text and refinement."""

    parts: int = 2  # vectors (L, D) in memory at once
    trained: float = 1.0  # label texts per trained label that get a gradient
    texts: float = 1.0  # label texts in memory per label
    graph: int = 0  # bytes of the label graph


_SurrogateEpochs = Annotated[Auto[Number], Span(3, 25)]
_RefinementLr = Annotated[Weight, Span(0.02, 0.5, log=True)]


@dataclass(kw_only=True)
class TextAlgorithm(Algorithm):
    """Documents and label texts with a shared token table."""

    vectoriser: Words | WordPiece | Subwords = field(default_factory=Words)  # how texts become tokens
    embedding_dim: Annotated[Auto[Count], Span(64, 512, log=True)] = AUTO  # length of all vectors
    batch_size: Auto[Count] = AUTO  # documents per step
    surrogate_epochs: _SurrogateEpochs = (
        AUTO  # epochs of Module I: classifiers from label text only, without refinements
    )
    shortlister_epochs: Auto[Count] = AUTO  # epochs of Module II, if the ranker uses a shortlist
    ranker_epochs: Annotated[Auto[Count], Span(1, 15)] = AUTO  # epochs of Module IV
    surrogate_lr: Annotated[Rate, Span(0.002, 0.05, log=True)] = 0.01  # peak learning rate of Module I
    later_lr: Annotated[Rate, Span(0.001, 0.02, log=True)] = 0.005  # peak learning rate of Modules II and IV
    refinement_lr: _RefinementLr = 0.1  # peak learning rate of refinements (SGD, per document)
    bias_lr: Weight = 0.01  # peak learning rate of biases (SGD, per document)
    dropout: Annotated[Share, Span(0.0, 0.6)] = 0.25  # dropout after each ReLU
    warm_up: Share = 0.1  # share of each stage in which learning rates rise
    ranker: Auto[Ranker] = AUTO  # labels to train a document against
    n_negatives: Count = 1024  # random labels per step when sampling
    n_clusters: Auto[Count] = AUTO  # clusters of the shortlister, a power of two
    beam: Auto[Count] = AUTO  # clusters kept per document; auto: enough for target_recall
    target_recall: Share = 0.85  # share of train's relevant labels that the beam must reach
    add_positives: bool = True  # train on relevant labels that the shortlist missed
    label_text: bool = True  # use the label's own text in classifiers
    spectral: bool = True  # normalise block matrices to spectral norm one
    restart_blocks: bool = False  # reset blocks to the identity in each module, as in the paper
    n_members: Count = 1  # ensemble members sharing Module I
    stopping: Stopping | None = None  # stop the last module early by a held-out metric

    def _usual(self, size: Size, device: str) -> dict[str, Any]:
        """Values for the automatic settings of both algorithms."""
        gpu = device == "cuda"
        scale = max(1, min(8, 50_000 // size.n_documents))  # small sets need more passes to get enough steps
        return {
            "embedding_dim": min(304 if gpu else 128, max(32, 2 * math.isqrt(size.n_labels))),
            "batch_size": min(1024, max(16, size.n_documents // 50)),
            "surrogate_epochs": (30 if gpu else 16) * scale,
            "shortlister_epochs": 10 * scale,
            "ranker_epochs": (5 if gpu else 10) * scale,
            "ranker": "exact" if gpu or size.n_labels <= 4_000 else "sampled",
            "n_clusters": 2 ** min(17, max(0, math.floor(math.log2(size.n_labels / 3)))),
        }

    def _unread(self, size: Size, device: str) -> Iterator[tuple[str, str]]:  # noqa: ARG002
        if self.ranker != "shortlist":
            names = "shortlister_epochs n_clusters beam target_recall add_positives"
            yield 'set ranker = "shortlist"', names
        elif self.beam is not AUTO:
            yield "leave beam at auto", "target_recall"
        if not self._samples(device):
            yield 'set ranker = "sampled"', "n_negatives"
        if not self.surrogate_epochs:
            yield "set surrogate_epochs above 0", "surrogate_lr surrogate_dropout"

    def _samples(self, device: str) -> bool:
        """Whether gradients are sparse: on a CPU, unless every label is scored."""
        return self.ranker == "sampled" or (self.ranker == "shortlist" and device == "cpu")

    def _stage(
        self,
        name: str,
        task: TextTask,
        epochs: int,
        lr: float,
        listed: ListedLabels | None = None,
        score: Callable[[], float] | None = None,
    ) -> Stage:
        """A stage that trains the network of `task`, on the listed labels if given."""
        samples = self._samples(task.positives.indptr.device.type)

        def loss(batch: Batch) -> torch.Tensor:
            if listed is not None:
                labels = listed.labels_of(batch.rows)
                return task.against_shortlist(batch.rows, labels, add_positives=self.add_positives)
            if samples:
                return task.against_sample(batch.rows, batch.step, self.n_negatives, batch.generator)
            return task.against_all(batch.rows, batch.step)

        network = task.network
        shared = [*network.shared_parameters(), *([network.table] if network.table.requires_grad else [])]
        return Stage(
            name=name,
            module=network,
            loss=loss,
            n_items=len(task.documents),
            batch_size=self.batch_size,
            epochs=epochs,
            optimisers=self._optimisers(network, lr),
            schedule=one_cycle(self.warm_up),
            score=score,
            partial=shared,
            patience=self.stopping.patience if self.stopping and score else None,
        )

    def _optimisers(self, network: TextNetwork, lr: float) -> list[torch.optim.Optimizer]:
        """Adam, lazy for a sparse token table; SGD per document for refinements and biases of labels."""
        if network.table.is_cuda and self.ranker == "exact":
            network.move_refinements_at_once(self.refinement_lr * self.batch_size)
        moved = network.refinement_update is not None
        own = [(network.bias, self.bias_lr), (None if moved else network.refinement, self.refinement_lr)]
        rows = [{"params": [values], "lr": rate * self.batch_size} for values, rate in own if values is not None]
        shared = network.shared_parameters()
        table = [network.table] if network.table.requires_grad else []
        if not network.sparse:
            return [torch.optim.Adam([*table, *shared], lr=lr, fused=True), torch.optim.SGD(rows, fused=True)]
        lazy = [LazyAdam(table, lr=lr)] if table else []
        return [torch.optim.Adam(shared, lr=lr, fused=True), *lazy, torch.optim.SGD(rows)]

    def _next_network(
        self,
        table: torch.Tensor,  # (V, D)
        texts: Sequence[OutputTexts | SummedTexts],  # of the outputs, then convolved over their graph
        before: TextNetwork | None,
        run: Run,
        blocks: Blocks,
        *,
        start: Literal["graph", "text", "random", "none"],  # initial refinements
        combine: Combine = "gates",
    ) -> TextNetwork:
        """A network of texts and, after Module I, refinements, which takes over the blocks of the previous one."""
        own, *convolved = texts
        refinement = None
        if before is not None and start != "none":
            noise = run.generator("refinement") if start == "random" else None
            first = convolved[0] if start == "graph" and convolved else own
            refinement = first_refinement(first, table, noise)  # E G z, or E z: (S, D)
        with run.seeded("network"):
            network = TextNetwork(
                table.detach(),
                texts,
                blocks,
                use_text=self.label_text or not (convolved or refinement is not None),
                refinement=refinement,
                sparse=self._samples(run.device.type) and self._sparse_features,
                combine=combine if convolved else "gates",
            ).to(run.device)
        if before is not None:
            network.go_on_from(before, blocks=not self.restart_blocks)
        return network

    def _material(self, data: Prepared, run: Run) -> Material:
        self._sparse_features = sp.issparse(data.features)
        return Material.of(data, run.device)

    def _scored(self, size: Size, list_size: int | None = None) -> int:
        """Distinct labels trained per step; `list_size` is the size of shortlists found by search, if any."""
        relevant = math.ceil(self.batch_size * size.labels_per_document)
        if self.ranker == "shortlist" and list_size is not None:
            others = self.batch_size * list_size
        elif self.ranker == "shortlist":
            beam = WIDEST_BEAM if self.beam is AUTO else self.beam
            others = self.batch_size * beam * math.ceil(size.n_labels / self.n_clusters)
        else:
            others = size.n_labels if self.ranker == "exact" else self.n_negatives
        return min(size.n_labels, relevant + others)

    def _text_plan(self, size: Size, device: str, scored: int, classifier: ClassifierCost) -> Plan:
        """The plan of Modules I and IV; modules over clusters have fewer outputs."""
        dim = self.embedding_dim
        epochs = {"surrogate": self.surrogate_epochs, "ranker": self.ranker_epochs}
        first, ranker = (self._text_cost(name, epochs[name], size, device, scored, classifier) for name in epochs)
        kept = 4 * dim * (size.n_features + size.share(size.n_labels))  # networks of earlier members
        costs = [*([first] if self.surrogate_epochs else []), *of_members([ranker], self.n_members, kept)]
        texts = int(56 * size.share(size.n_label_entries) * classifier.texts)  # rows, matrix and transposed
        texts *= 2 if self.ranker == "shortlist" else 1  # of labels and clusters
        return Plan(device=device, data=size.data_bytes + texts + classifier.graph, stages=tuple(costs))

    def _text_cost(
        self, name: str, epochs: int, size: Size, device: str, scored: int, classifier: ClassifierCost
    ) -> StageCost:
        dim, batch = self.embedding_dim, self.batch_size
        gpu, refined = device == "cuda", name != "surrogate"
        together, scored, n_labels = scored, size.share(scored), size.share(size.n_labels)
        # scores and their gradient
        block = min(batch * scored, SCORES_AT_ONCE[device]) * (2 if gpu else 4)
        if gpu and self.ranker == "shortlist":
            block = max(block, dense_bytes(batch, batch * scored, size.n_labels) // 2)
        # a sparse gradient of the token table has a row per token, built in parts that are then concatenated
        label_tokens = classifier.trained * size.tokens_per_label
        read = size.n_processes * batch * size.n_feature_entries / size.n_documents  # each process has all of them
        tokens = math.ceil(read + together * label_tokens)
        table = Weights(values=size.n_features * dim, touched=2 * dim * tokens if self._samples(device) else None)
        rows = Weights(values=n_labels * dim * refined, optimiser="sgd")
        held = 2 * block + (36 + 48 * (classifier.parts - 2)) * scored * dim + table.gradient
        cost = stage_cost(
            name,
            [table, rows],
            epochs=epochs,
            products=size.n_documents * scored * dim * (1 + classifier.parts * dim / batch),
            steps=Steps(size.n_documents / batch, held),
            path=f"{self.ranker}: {'all' if together == size.n_labels else 'about'} {together:,} labels",
            served=0 if gpu else 8 * size.n_labels * dim,  # built in parts
            best=refined and self.stopping is not None,
        )
        return beside(cost, table.held)  # the previous network


def token_table(data: Prepared, dim: int, run: Run, word_vectors: str | None = None) -> torch.Tensor:
    """Token vectors (V, D): random, which makes bags random projections of TF-IDF rows, or from a file."""
    table = random_table(data.size.n_features, dim, run.generator("tokens")).detach()
    if word_vectors is not None:
        start_from(table, word_vectors, data, run)
    return table.to(run.device)
