"""The training stages of a dual encoder and its label rows: optimisers, averaging, held-out score, cost.

Knows nothing about the encoder's input or how labels are served.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Self, final

import numpy as np
import torch
from torch import nn

from xclearn.algorithms.dual_encoder.network import DualNetwork
from xclearn.algorithms.dual_encoder.tasks import DualTask, LabelRowTask, first_bias_documents
from xclearn.errors import DataError
from xclearn.parts.averaging import WeightAverage
from xclearn.parts.classifiers import row_width
from xclearn.parts.label_rows import LabelRows
from xclearn.parts.lazy_adam import LazyAdam
from xclearn.parts.row_training import RowStep, row_weights
from xclearn.parts.rows import DenseRows, FeatureRows, SparseRows, feature_rows
from xclearn.search.nearest import ExactSearch
from xclearn.training.plan import CALLS, StageCost
from xclearn.training.prepare import Prepared, Size, required
from xclearn.training.run import Run
from xclearn.training.scoring import held_out_score
from xclearn.training.stage import Batch, Stage, Stopping, cosine_cycle

_MIXING = 160 << 20  # bytes: the solver of the mix, once loaded, and the candidates that it learns from
_AVERAGE_EVERY = 10  # steps


@final
@dataclass(frozen=True)
class DualMaterial:
    """The training data of the stages."""

    documents: FeatureRows  # N rows
    rows: LabelRows  # labels of this process
    labels: FeatureRows  # their texts
    positives: SparseRows  # (N, L)
    items: torch.Tensor  # documents that have a label
    counts: torch.Tensor  # (L,) documents of each label

    @property
    def own_counts(self) -> torch.Tensor:
        """Documents (rows,) of each label of this process."""
        return self.counts[self.rows.start : self.rows.stop]

    @classmethod
    def of(cls, data: Prepared, run: Run) -> Self:
        if data.label_features is None:
            raise DataError(
                "a dual encoder needs label texts, but the data has none", todo="Use one_vs_all or label_tree."
            )
        device, rows = run.device, run.rows(data.size.n_labels)
        texts = data.label_features if rows.ranks.count == 1 else data.label_features[rows.start : rows.stop]
        documents, labels = (feature_rows(each, device) for each in (data.features, texts))
        items = torch.from_numpy(np.flatnonzero(np.diff(data.relevance.indptr)))
        counts = torch.from_numpy(np.bincount(data.relevance.indices, minlength=data.relevance.shape[1]))
        positives = SparseRows.of(data.relevance, device)
        return cls(documents, rows, labels, positives, items.to(device), counts.to(device))


@final
@dataclass(frozen=True, kw_only=True)
class EncoderCost:
    """The cost of an encoder of documents and label texts."""

    kind: str  # description
    dim: int
    bytes: int  # bytes of its weights
    working: int  # further bytes of a step
    moved: int  # bytes that a step reads and writes for its texts
    products: int  # multiplications per text


@final
@dataclass(frozen=True, kw_only=True)
class DualStages:
    """The shared settings of a run's stages."""

    batch_size: int
    warm_up: float
    average: float  # last share of a stage over which weights are averaged
    stopping: Stopping | None
    device: str

    def encoder(
        self, task_of: Callable[[int], DualTask], items: torch.Tensor, lr: float, epochs: int, data: Prepared
    ) -> Iterator[Stage]:
        """Train the encoder on the task of each epoch; it ends with averaged weights."""
        task = task_of(0)
        steps = epochs * self._steps(items)
        first = round((1 - self.average) * steps)
        average = WeightAverage(list(task.network.parameters()) if first < steps else [], first, _AVERAGE_EVERY)

        def loss(batch: Batch) -> torch.Tensor:
            average.see(batch.step)
            return task_of(batch.step // self._steps(items)).loss(items[batch.rows], batch.generator)

        def score() -> float:
            with average.exchanged():
                return task_score(task, data, self.stopping)

        yield Stage(
            name="encoder",
            module=nn.ModuleDict({"network": task.network, "average": average}),
            loss=loss,
            n_items=len(items),
            batch_size=self.batch_size,
            epochs=epochs,
            optimisers=_optimisers(task.network, lr),
            schedule=cosine_cycle(self.warm_up),
            score=score if self.stopping else None,
            partial=list(task.network.parameters()),
            patience=self.stopping.patience if self.stopping else None,
        )
        average.exchange()
        task.network.eval()

    def rows(self, task: LabelRowTask, items: torch.Tensor, epochs: int, lr: float | None) -> Stage:
        """Train label rows, with learning rate `lr` unless they update themselves."""
        optimisers = [] if lr is None else [torch.optim.SGD(task.module.parameters(), lr=lr * self.batch_size)]
        return Stage(
            name="rows",
            module=task.module,
            loss=lambda batch: task.loss(items[batch.rows], batch.step, batch.generator),
            n_items=len(items),
            batch_size=self.batch_size,
            epochs=epochs,
            optimisers=optimisers,
            schedule=cosine_cycle(self.warm_up),
        )

    def cost(self, name: str, epochs: int, size: Size, encoder: EncoderCost, scored: int, *, rows: bool) -> StageCost:
        """The cost of a stage with `scored` labels per step; `rows`: of the rows, after the encoder."""
        dim, labels = encoder.dim, 4 * size.share(size.n_labels) * encoder.dim
        together, scored = scored, size.share(scored)
        held = 3 * labels + 4 * size.n_documents * dim if rows else encoder.bytes * (1 if self.average else 0)
        scores = 12 * self.batch_size * scored + 24 * scored * dim
        texts, moved = (labels, 3 * labels) if rows else (encoder.working, encoder.moved)
        steps = size.n_documents / self.batch_size
        encoding = 0.0 if rows else 6.0 * encoder.products * (size.n_documents + steps * scored)
        return StageCost(
            name=name,
            parameters=encoder.bytes + held,
            optimiser=0 if rows else 2 * encoder.bytes,
            working=scores + texts,
            flops_per_epoch=6.0 * size.n_documents * scored * dim + encoding,
            epochs=epochs,
            bytes_per_epoch=steps * (3 * scores + moved),
            calls_per_epoch=steps * CALLS,
            path=f"{encoder.kind}: about {together:,} of {size.n_labels:,} labels per step",
        )

    def exact_rows_cost(self, epochs: int, size: Size, encoder: EncoderCost) -> StageCost:
        """The cost of rows trained against all labels, of their initial bias, and of mixing them with the texts."""
        dim, n_rows = encoder.dim, size.share(size.n_labels)
        rows, vectors = 4 * n_rows * dim, 4 * size.n_documents * dim
        step = RowStep(
            optimiser="sgd", batch=self.batch_size, dim=dim, scored=n_rows, drawn=False, device=self.device
        ).beside(0)
        first_bias = 8 * first_bias_documents(size.n_labels) * n_rows
        steps = size.n_documents / self.batch_size
        return StageCost(
            name="rows",
            parameters=encoder.bytes + rows + 2 * vectors + row_weights(n_rows, dim, "sgd", self.device).held,
            optimiser=0,
            working=math.ceil(max(step, first_bias, 4 * rows + _MIXING)),
            flops_per_epoch=6.0 * size.n_documents * n_rows * row_width(dim),
            epochs=epochs,
            bytes_per_epoch=steps * (3 * step + 8 * rows),
            calls_per_epoch=steps * CALLS,
            path=f"exact: all {size.n_labels:,} labels",
        )

    def _steps(self, items: torch.Tensor) -> int:
        return math.ceil(len(items) / self.batch_size)


def with_label_documents(train: DualMaterial, texts: FeatureRows) -> DualMaterial:
    """Add the text of each label, of all processes, as a document with only this label."""
    labels = torch.arange(len(texts), device=train.items.device)
    itself = SparseRows(
        torch.arange(len(labels) + 1, device=labels.device),
        labels.int(),
        torch.ones(len(labels)).to(labels.device),
        len(labels),
    )
    return replace(
        train,
        documents=_followed_by(train.documents, texts),
        positives=train.positives.followed_by(itself),
        items=torch.cat([train.items, labels + len(train.documents)]),
    )


def _followed_by(first: FeatureRows, second: FeatureRows) -> FeatureRows:
    """The rows of one matrix followed by those of another of its kind."""
    if isinstance(first, SparseRows) and isinstance(second, SparseRows):
        return first.followed_by(second)
    assert isinstance(first, DenseRows)
    assert isinstance(second, DenseRows)
    return DenseRows(torch.cat([first.values, second.values]))


@final
class NearLabels:
    """Hard negatives: the labels nearest to each document, by exact search every few epochs."""

    def __init__(self, network: DualNetwork, train: DualMaterial, size: int, every: int, run: Run) -> None:
        self._network = network
        self._train = train
        self._size = size
        self._every = every
        self._run = run
        self._found: tuple[int, torch.Tensor | None] = (0, None)

    def at(self, epoch: int) -> torch.Tensor | None:
        """The lists (N, size) int32 of an epoch, −1 if a label's text equals the document; None at first.

        An item that is also a label must not be its own negative.
        """
        begin = epoch // self._every * self._every
        if begin != self._found[0]:
            training = self._network.training
            lists = self._run.keep(f"near-{begin}", self._find)
            self._network.train(training)
            self._found = begin, torch.from_numpy(lists).to(self._run.device)
        return self._found[1]

    def _find(self) -> np.ndarray:
        device = self._run.device
        rows = self._train.rows
        search = ExactSearch(self._network.all_labels(self._train.labels, device))
        found, scores = search.search(self._network.all_documents(self._train.documents, device), self._size)
        ids = rows.best(found + rows.start, scores, self._size)[0].cpu().numpy()
        return np.where(ids == self._own[:, None], -1, ids).astype(np.int32)

    @cached_property
    def _own(self) -> np.ndarray:
        rows = self._train.rows
        own = torch.from_numpy(_same_texts(self._train.documents, self._train.labels, rows.start))
        return rows.ranks.beside(own.to(self._run.device)[:, None]).amax(dim=1).cpu().numpy()  # (N,)


def _same_texts(documents: FeatureRows, labels: FeatureRows, first: int) -> np.ndarray:
    """The last label (N,) with the same features as the document, −1 if there is none; `first` is the first label."""
    label_of = {row: label for label, row in enumerate(_row_bytes(labels), start=first)}
    return np.fromiter((label_of.get(row, -1) for row in _row_bytes(documents)), np.int64, len(documents))


def _row_bytes(rows: FeatureRows) -> Iterator[bytes]:
    if isinstance(rows, DenseRows):
        return (row.tobytes() for row in rows.values.cpu().numpy())
    starts, columns = rows.indptr.cpu().numpy(), rows.columns.cpu().numpy()
    values = rows.values.cpu().numpy()
    return (columns[a:b].tobytes() + values[a:b].tobytes() for a, b in pairwise(starts))


def task_score(task: DualTask, data: Prepared, stopping: Stopping | None) -> float:
    """The held-out metric of the encoder alone, in percent."""
    device = task.drawing.positives.indptr.device
    texts = task.network.all_labels(task.labels, device)
    vectors = task.network.all_documents(feature_rows(required(data.held_out_features), device), device)

    def best(rows: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
        found = (vectors[rows.to(device)] @ texts.T).topk(min(k, len(texts)), dim=1)
        return task.rows.best(found.indices + task.rows.start, found.values, k)

    return held_out_score(data, required(stopping).metric, best)()


def _optimisers(network: DualNetwork, lr: float) -> list[torch.optim.Optimizer]:
    """AdamW, lazy for a token table with a sparse gradient."""
    lazy = network.lazy_parameters()
    others = [each for each in network.parameters() if not any(each is table for table in lazy)]
    optimisers: list[torch.optim.Optimizer] = [
        torch.optim.AdamW(others, lr=lr, weight_decay=network.weight_decay, fused=True)
    ]
    return [*optimisers, LazyAdam(lazy, lr=lr)] if lazy else optimisers
