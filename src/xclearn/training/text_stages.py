"""Stages that train a text network: against which outputs, by which optimisers, and what a stage holds and costs.

DECAF and ECLARE share them. Knows nothing about which parts a classifier has, nor what its outputs are.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, final

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
from xclearn.training.plan import StageCost
from xclearn.training.prepare import Prepared, Size
from xclearn.training.run import Run
from xclearn.training.scoring import held_out_score
from xclearn.training.stage import Batch, Stage, Stopping, one_cycle

Ranker = Literal["exact", "sampled", "shortlist"]


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
        patience: int | None = None,
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
            patience=patience if score else None,
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

    def cost(
        self,
        name: str,
        epochs: int,
        size: Size,
        dim: int,
        scored: int,
        *,
        refined: bool,
        parts: int = 2,
        tokens_per_label: float | None = None,
    ) -> StageCost:
        """Of a stage over labels with classifiers of so many parts. Stages over clusters hold fewer outputs."""
        gpu, table = self.device == "cuda", 4 * size.n_features * dim
        block = min(self.batch_size * scored, SCORES_AT_ONCE[self.device]) * (2 if gpu else 4)
        if gpu and self.ranker == "shortlist":
            block = max(block, dense_bytes(self.batch_size, self.batch_size * scored, size.n_labels) // 2)
        per_label = size.tokens_per_label if tokens_per_label is None else tokens_per_label
        tokens = math.ceil((self.batch_size * size.n_feature_entries / size.n_documents) + scored * per_label)
        gradients = 8 * dim * tokens if self.sampling else table  # a sparse one has a row per token; parts are joined
        served = 0 if gpu else 8 * size.n_labels * dim  # made in parts, when the optimisers are gone
        return StageCost(
            name=name,
            parameters=2 * table + (4 * size.n_labels * dim if refined else 0),  # the network before it is still there
            optimiser=2 * table,
            working=max(2 * block + (36 + 48 * (parts - 2)) * scored * dim + gradients, served - 2 * table),
            flops_per_epoch=6.0 * size.n_documents * scored * dim * (1 + parts * dim / self.batch_size),
            epochs=epochs,
            path=f"{self.ranker}: {'all' if scored == size.n_labels else 'about'} {scored:,} labels",
        )


def text_task(network: TextNetwork, documents: FeatureRows, positives: SparseRows, device: torch.device) -> TextTask:
    """A network with its documents and their outputs; every score starts near its base rate."""
    compute = torch.bfloat16 if device.type == "cuda" else torch.float32
    return TextTask(network, documents, positives, -math.log(positives.n_columns + 1), compute)


def task_score(task: TextTask, data: Prepared, stopping: Stopping | None, run: Run) -> Callable[[], float] | None:
    """The held-out metric of a task over labels, where one is to be stopped by."""
    if stopping is None:
        return None
    assert data.held_out_features is not None
    held_out = feature_rows(data.held_out_features, run.device)
    return held_out_score(data, stopping.metric, lambda rows, k: task.best(held_out, rows.to(run.device), k))


def token_table(data: Prepared, dim: int, run: Run, word_vectors: str | None = None) -> torch.Tensor:
    """Token vectors (V, D): random, so that weighted sums are random projections of TF-IDF rows, or from a file."""
    n_features, generator = data.size.n_features, run.generator("tokens")
    bound = math.sqrt(6 / dim) / 2
    table = torch.empty(n_features, dim).uniform_(-bound, bound, generator=generator)
    if word_vectors is not None:
        read = data.word_vectors(word_vectors, dim)
        run.note(tokens_with_word_vectors=f"{read.known.sum():,} of {n_features:,}")
        table[torch.from_numpy(read.known)] = torch.from_numpy(read.values[read.known])
    return table.to(run.device)


def label_features(data: Prepared) -> sp.csr_matrix:
    """What labels say; all empty where they are only names."""
    if data.label_features is None:
        return sp.csr_matrix((data.size.n_labels, data.size.n_features), dtype=np.float32)
    return sp.csr_matrix(data.label_features)
