"""Stages that train a text network: on what, against which outputs, by which optimisers, and what they hold and cost.

DECAF and ECLARE share them. Knows nothing about what a classifier is made of beyond its cost, nor what its outputs are.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Self, final

import numpy as np
import scipy.sparse as sp
import torch

from xclearn.parts.lazy_adam import LazyAdam
from xclearn.parts.losses import SCORES_AT_ONCE
from xclearn.parts.pair_products import dense_bytes
from xclearn.parts.rows import FeatureRows, SparseRows, feature_rows
from xclearn.parts.text_network import TextNetwork
from xclearn.parts.text_training import WIDEST_BEAM, Negatives, TextTask
from xclearn.training.algorithm import number
from xclearn.training.plan import Plan, StageCost, of_members
from xclearn.training.prepare import Prepared, Size
from xclearn.training.run import Run
from xclearn.training.stage import Batch, Stage, Stopping, one_cycle

Ranker = Literal["exact", "sampled", "shortlist"]


def usual_settings(size: Size, device: str) -> dict[str, Any]:
    """Values for settings that both algorithms may leave at None."""
    gpu = device == "cuda"
    scale = max(1, min(8, 50_000 // size.n_documents))  # small sets need more passes for as many steps
    return {
        "embedding_dim": min(304 if gpu else 128, max(32, 2 * math.isqrt(size.n_labels))),
        "batch_size": min(1024, max(16, size.n_documents // 50)),
        "surrogate_epochs": (30 if gpu else 16) * scale,
        "shortlister_epochs": 10 * scale,
        "ranker_epochs": (5 if gpu else 10) * scale,
        "ranker": "exact" if gpu or size.n_labels <= 4_000 else "sampled",
        "n_clusters": 2 ** min(17, max(0, math.floor(math.log2(size.n_labels / 3)))),
    }


@final
@dataclass(frozen=True)
class Material:
    """Train as the stages read it."""

    documents: FeatureRows  # N rows
    labels: SparseRows  # (N, L)
    relevance: sp.csr_matrix  # (N, L) the same
    features: sp.csr_matrix  # (L, V) what labels say; all empty where they are only names

    @classmethod
    def of(cls, data: Prepared, device: torch.device) -> Self:
        documents, labels = feature_rows(data.features, device), SparseRows.of(data.relevance, device)
        empty = sp.csr_matrix((data.size.n_labels, data.size.n_features), dtype=np.float32)
        features = empty if data.label_features is None else sp.csr_matrix(data.label_features)
        return cls(documents, labels, data.relevance, features)

    def task(self, network: TextNetwork, positives: SparseRows | None = None) -> TextTask:
        """A network to be trained on labels, or on other outputs (N, S); every score starts near its base rate."""
        wanted = self.labels if positives is None else positives
        compute = torch.bfloat16 if wanted.indptr.device.type == "cuda" else torch.float32
        return TextTask(network, self.documents, wanted, -math.log(wanted.n_columns + 1), compute)


@final
@dataclass(frozen=True)
class ClassifierCost:
    """What makes the classifier of a label dear; by default DECAF's, of its text and a refinement."""

    parts: int = 2  # vectors (L, D) that are held at once
    trained: float = 1.0  # labels whose texts one trained label reads with a gradient
    texts: float = 1.0  # labels whose texts are held for each
    graph: int = 0  # bytes of the label graph

    @classmethod
    def over_graph(cls, size: Size, edges: int, order: int, *, attention: bool, detached: bool) -> Self:
        """With texts convolved `order` times; `detached` where only a label's own text has a gradient."""
        per_label = size.n_relevant / size.n_labels
        near = min(edges, max(1.0, per_label) * size.labels_per_document)  # neighbours of a label with documents
        trained, texts = (
            sum(min((1 + each) ** i, 100.0) for i in range(order + 1)) for each in (near, near * min(1.0, per_label))
        )
        graph = 32 * size.n_labels * (1 + edges)
        return cls(2 + order * (2 if attention else 1), 1.0 if detached else trained, texts, graph)


@final
@dataclass(frozen=True, kw_only=True)
class TextStages:
    """What the stages of one run have in common."""

    ranker: str
    batch_size: int
    n_negatives: int
    add_positives: bool
    refinement_lr: float  # SGD, per document
    bias_lr: float  # SGD, per document
    warm_up: float
    stopping: Stopping | None
    device: str

    @property
    def sampling(self) -> bool:
        """Whether gradients hold only the batch's tokens and outputs: always on a CPU, unless every label is scored."""
        return self.ranker == "sampled" or (self.ranker == "shortlist" and self.device == "cpu")

    def stage(
        self,
        name: str,
        task: TextTask,
        epochs: int,
        lr: float,
        negatives: Negatives | None = None,
        score: Callable[[], float] | None = None,
    ) -> Stage:
        """A stage that trains the network of `task`."""

        def loss(batch: Batch) -> torch.Tensor:
            if negatives is not None:
                listed = negatives.labels_of(batch.rows)
                return task.against_shortlist(batch.rows, listed, add_positives=self.add_positives)
            if self.sampling:
                return task.against_sample(batch.rows, batch.step, self.n_negatives, batch.generator)
            return task.against_all(batch.rows, batch.step)

        return Stage(
            name=name,
            module=task.network,
            loss=loss,
            n_items=len(task.documents),
            batch_size=self.batch_size,
            epochs=epochs,
            optimisers=self._optimisers(task.network, lr),
            schedule=one_cycle(self.warm_up),
            score=score,
            patience=self.stopping.patience if self.stopping and score else None,
        )

    def _optimisers(self, network: TextNetwork, lr: float) -> list[torch.optim.Optimizer]:
        """Adam, lazy for a sparse token table; SGD per document for what each label has of its own."""
        own = [(network.bias, self.bias_lr), (network.refinement, self.refinement_lr)]
        rows = [{"params": [values], "lr": rate * self.batch_size} for values, rate in own if values is not None]
        shared = network.shared_parameters()
        table = [network.table] if network.table.requires_grad else []
        if not network.sparse:
            return [torch.optim.Adam([*table, *shared], lr=lr), torch.optim.SGD(rows)]
        lazy = [LazyAdam(table, lr=lr)] if table else []
        return [torch.optim.Adam(shared, lr=lr), *lazy, torch.optim.SGD(rows)]

    def scored(self, size: Size, beam: int | None, n_clusters: int | None, list_size: int | None = None) -> int:
        """Distinct labels a step trains; `list_size` are those of a document where lists are found by search."""
        relevant = math.ceil(self.batch_size * size.labels_per_document)
        if self.ranker == "shortlist" and list_size is not None:
            others = self.batch_size * list_size
        elif self.ranker == "shortlist":
            others = self.batch_size * (beam or WIDEST_BEAM) * math.ceil(size.n_labels / number(n_clusters))
        else:
            others = size.n_labels if self.ranker == "exact" else self.n_negatives
        return min(size.n_labels, relevant + others)

    def plan(
        self, size: Size, dim: int, scored: int, classifier: ClassifierCost, epochs: tuple[int, int], n_members: int
    ) -> Plan:
        """Of Modules I and IV, whose `epochs` are given. Modules over clusters hold fewer outputs."""
        first = [self._cost("surrogate", epochs[0], size, dim, scored, classifier)] if epochs[0] else []
        ranker = self._cost("ranker", epochs[1], size, dim, scored, classifier)
        kept = 4 * dim * (size.n_features + size.n_labels)  # networks of the members before
        costs = [*first, *of_members([ranker], n_members, kept)]
        texts = int(56 * size.n_label_entries * classifier.texts)  # rows, matrix and transposed
        texts *= 2 if self.ranker == "shortlist" else 1  # of labels and clusters
        data = size.data_bytes + texts + classifier.graph
        return Plan(device=self.device, data=data, stages=tuple(costs))

    def _cost(self, name: str, epochs: int, size: Size, dim: int, scored: int, classifier: ClassifierCost) -> StageCost:
        gpu, table = self.device == "cuda", 4 * size.n_features * dim
        block = min(self.batch_size * scored, SCORES_AT_ONCE[self.device]) * (2 if gpu else 4)
        if gpu and self.ranker == "shortlist":
            block = max(block, dense_bytes(self.batch_size, self.batch_size * scored, size.n_labels) // 2)
        per_label, refined = classifier.trained * size.tokens_per_label, name != "surrogate"
        tokens = math.ceil((self.batch_size * size.n_feature_entries / size.n_documents) + scored * per_label)
        gradients = 8 * dim * tokens if self.sampling else table  # a sparse one has a row per token; parts are joined
        served = 0 if gpu else 8 * size.n_labels * dim  # made in parts, when the optimisers are gone
        return StageCost(
            name=name,
            parameters=2 * table + (4 * size.n_labels * dim if refined else 0),  # the network before it is still there
            optimiser=2 * table,
            working=max(2 * block + (36 + 48 * (classifier.parts - 2)) * scored * dim + gradients, served - 2 * table),
            flops_per_epoch=6.0 * size.n_documents * scored * dim * (1 + classifier.parts * dim / self.batch_size),
            epochs=epochs,
            path=f"{self.ranker}: {'all' if scored == size.n_labels else 'about'} {scored:,} labels",
        )


def token_table(data: Prepared, dim: int, run: Run, word_vectors: str | None = None) -> torch.Tensor:
    """Token vectors (V, D): random, so that weighted sums are random projections of TF-IDF rows, or from a file."""
    n_features, generator = data.size.n_features, run.generator("tokens")
    bound = math.sqrt(6 / dim) / 2
    table = torch.empty(n_features, dim).uniform_(-bound, bound, generator=generator)
    if word_vectors is not None:
        read = run.keep_all("word_vectors", "", lambda: data.word_vectors(word_vectors, dim)._asdict())
        known = read["known"]
        run.note(tokens_with_word_vectors=f"{known.sum():,} of {n_features:,}")
        table[torch.from_numpy(known)] = torch.from_numpy(read["values"][known])
    return table.to(run.device)
