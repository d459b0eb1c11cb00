"""Stages that train a dual encoder, and rows of labels after it: optimisers, averages, the held-out score, the cost.

Knows nothing about what the encoder reads, nor how its labels are served.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Self, final

import numpy as np
import torch
from torch import nn

from xclearn.algorithms.dual_encoder.network import DualNetwork
from xclearn.algorithms.dual_encoder.tasks import DualTask, HeldRowTask
from xclearn.errors import DataError
from xclearn.parts.averaging import WeightAverage
from xclearn.parts.lazy_adam import LazyAdam
from xclearn.parts.rows import DenseRows, FeatureRows, SparseRows, feature_rows
from xclearn.search.nearest import ExactSearch
from xclearn.training.plan import StageCost
from xclearn.training.prepare import Prepared, Size
from xclearn.training.run import Run
from xclearn.training.scoring import held_out_score
from xclearn.training.stage import Batch, Stage, Stopping, cosine_cycle

_AVERAGE_EVERY = 10  # steps


@final
@dataclass(frozen=True)
class DualMaterial:
    """Train as the stages read it."""

    documents: FeatureRows  # N rows
    labels: FeatureRows  # L rows: the texts of labels
    positives: SparseRows  # (N, L)
    items: torch.Tensor  # rows of documents that have a label
    counts: torch.Tensor  # (L,) documents of each label

    @classmethod
    def of(cls, data: Prepared, device: torch.device) -> Self:
        if data.label_features is None:
            raise DataError(
                "a dual encoder reads label texts, and there are none", todo="Use one_vs_all or label_tree."
            )
        documents, labels = (feature_rows(each, device) for each in (data.features, data.label_features))
        items = torch.from_numpy(np.flatnonzero(np.diff(data.relevance.indptr)))
        counts = torch.from_numpy(np.bincount(data.relevance.indices, minlength=data.relevance.shape[1]))
        positives = SparseRows.of(data.relevance, device)
        return cls(documents, labels, positives, items.to(device), counts.to(device))


@final
@dataclass(frozen=True, kw_only=True)
class EncoderCost:
    """What an encoder of documents and label texts takes."""

    kind: str  # in words
    dim: int
    bytes: int  # of its weights
    working: int  # bytes of a step beside these
    products: int  # multiplications for a text


@final
@dataclass(frozen=True, kw_only=True)
class DualStages:
    """What the stages of one run have in common."""

    batch_size: int
    warm_up: float
    average: float  # share of a stage, at its end, over whose steps weights are averaged
    stopping: Stopping | None
    device: str

    def encoder(
        self, name: str, task: DualTask, items: torch.Tensor, lr: float, epochs: tuple[int, int, int], data: Prepared
    ) -> Iterator[Stage]:
        """Trains the encoder from one epoch to another of all; averaged weights are in place after it."""
        begin, end, total = epochs
        last = round((1 - self.average) * total * self._steps(items)) - begin * self._steps(items)
        weights = list(task.network.parameters()) if last < (end - begin) * self._steps(items) else []
        average = WeightAverage(weights, max(0, last), _AVERAGE_EVERY)
        cycle = cosine_cycle(self.warm_up)

        def loss(batch: Batch) -> torch.Tensor:
            average.see(batch.step)
            return task.loss(items[batch.rows], batch.generator)

        def score() -> float:
            with average.exchanged():
                return task_score(task, data, self.stopping)

        yield Stage(
            name=name,
            module=nn.ModuleDict({"network": task.network, "average": average}),
            loss=loss,
            n_items=len(items),
            batch_size=self.batch_size,
            epochs=end - begin,
            optimisers=_optimisers(task.network, lr),
            schedule=lambda done: cycle((begin + done * (end - begin)) / total),
            score=score if self.stopping else None,
            patience=self.stopping.patience if self.stopping else None,
        )
        average.exchange()
        task.network.eval()

    def rows(self, name: str, task: HeldRowTask, items: torch.Tensor, lr: float, epochs: int) -> Stage:
        """The stage that trains rows of labels."""
        return Stage(
            name=name,
            module=task.rows,
            loss=lambda batch: task.loss(items[batch.rows], batch.generator),
            n_items=len(items),
            batch_size=self.batch_size,
            epochs=epochs,
            optimisers=[torch.optim.SGD([task.rows.changes], lr=lr * self.batch_size)],
            schedule=cosine_cycle(self.warm_up),
        )

    def cost(self, name: str, epochs: int, size: Size, encoder: EncoderCost, scored: int, *, rows: bool) -> StageCost:
        """Of a step against `scored` labels; `rows` after the encoder is trained."""
        dim, labels = encoder.dim, 4 * size.n_labels * encoder.dim
        held = 3 * labels + 4 * size.n_documents * dim if rows else encoder.bytes * (1 if self.average else 0)
        working = 12 * self.batch_size * scored + 24 * scored * dim + (labels if rows else encoder.working)
        steps = size.n_documents / self.batch_size
        encoding = 0.0 if rows else 6.0 * encoder.products * (size.n_documents + steps * scored)
        return StageCost(
            name=name,
            parameters=encoder.bytes + held,
            optimiser=0 if rows else 2 * encoder.bytes,
            working=working,
            flops_per_epoch=6.0 * size.n_documents * scored * dim + encoding,
            epochs=epochs,
            path=f"{encoder.kind}: about {scored:,} of {size.n_labels:,} labels a step",
        )

    def _steps(self, items: torch.Tensor) -> int:
        return math.ceil(len(items) / self.batch_size)


def with_label_documents(train: DualMaterial) -> DualMaterial:
    """The text of each label is a document more, which has this label alone."""
    labels = torch.arange(len(train.labels), device=train.items.device)
    itself = SparseRows(
        torch.arange(len(labels) + 1, device=labels.device),
        labels.int(),
        torch.ones(len(labels)).to(labels.device),
        len(labels),
    )
    return replace(
        train,
        documents=_followed_by(train.documents, train.labels),
        positives=train.positives.followed_by(itself),
        items=torch.cat([train.items, labels + len(train.documents)]),
    )


def _followed_by(first: FeatureRows, second: FeatureRows) -> FeatureRows:
    """The rows of one matrix, then those of another of its kind."""
    if isinstance(first, SparseRows) and isinstance(second, SparseRows):
        return first.followed_by(second)
    assert isinstance(first, DenseRows)
    assert isinstance(second, DenseRows)
    return DenseRows(torch.cat([first.values, second.values]))


def hard_labels(network: DualNetwork, train: DualMaterial, size: int, run: Run, name: str) -> torch.Tensor:
    """The labels (N, `size`) int32 whose texts are nearest to each document, by exact search.

    −1 stands where the text is the document's own: of items that are labels too, it is not to be told from itself.
    """

    def find() -> np.ndarray:
        search = ExactSearch(network.all_labels(train.labels, run.device))
        ids, _ = search.search(network.all_documents(train.documents, run.device), size)
        own = _same_texts(train.documents, train.labels)  # (N,)
        return np.where(ids.cpu().numpy() == own[:, None], -1, ids.cpu().numpy()).astype(np.int32)

    return torch.from_numpy(run.keep(name, find)).to(run.device)


def _same_texts(documents: FeatureRows, labels: FeatureRows) -> np.ndarray:
    """The label (N,) whose features are those of the document, −1 where there is none."""
    label_of = {row: label for label, row in enumerate(_row_bytes(labels))}
    return np.fromiter((label_of.get(row, -1) for row in _row_bytes(documents)), np.int64, len(documents))


def _row_bytes(rows: FeatureRows) -> Iterator[bytes]:
    if isinstance(rows, DenseRows):
        return (row.tobytes() for row in rows.values.cpu().numpy())
    starts, columns = rows.indptr.cpu().numpy(), rows.columns.cpu().numpy()
    values = rows.values.cpu().numpy()
    return (columns[a:b].tobytes() + values[a:b].tobytes() for a, b in pairwise(starts))


def task_score(task: DualTask, data: Prepared, stopping: Stopping | None) -> float:
    """The held-out metric of the encoder alone, in percent."""
    assert stopping is not None
    assert data.held_out_features is not None
    device = task.drawing.positives.indptr.device
    texts = task.network.all_labels(task.labels, device)
    vectors = task.network.all_documents(feature_rows(data.held_out_features, device), device)

    def best(rows: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
        found = (vectors[rows.to(device)] @ texts.T).topk(min(k, len(texts)), dim=1)
        return found.indices, found.values

    return held_out_score(data, stopping.metric, best)()


def _optimisers(network: DualNetwork, lr: float) -> list[torch.optim.Optimizer]:
    """AdamW; a token table whose gradient is sparse moves only where the batch has tokens."""
    lazy = network.lazy_parameters()
    others = [each for each in network.parameters() if not any(each is table for table in lazy)]
    optimisers: list[torch.optim.Optimizer] = [
        torch.optim.AdamW(others, lr=lr, weight_decay=network.weight_decay, fused=True)
    ]
    return [*optimisers, LazyAdam(lazy, lr=lr)] if lazy else optimisers
