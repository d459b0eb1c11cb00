"""Stages that train an encoder with a row per output: optimisers, learning rates, held-out score, cost.

Used by every algorithm with rows. Knows nothing about the outputs or where shortlists come from.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, final

import torch
from torch import nn

from xclearn.config import AUTO, Auto
from xclearn.inference.servable import Servable
from xclearn.inference.shortlists import Mix, TwoLevelMix
from xclearn.parts.classifiers import RowClassifier, row_width
from xclearn.parts.cost import Weights
from xclearn.parts.encoder_settings import EncoderSettings, make_encoder
from xclearn.parts.encoders import DocumentEncoder
from xclearn.parts.losses import OutputLoss
from xclearn.parts.row_training import Negatives, RowStep, RowTask, list_step, row_classifier, row_weights
from xclearn.parts.rows import FeatureRows
from xclearn.text import TextSettings
from xclearn.training.plan import StageCost, Steps, stage_cost
from xclearn.training.prepare import Prepared, Size
from xclearn.training.run import Run
from xclearn.training.scoring import served_score
from xclearn.training.stage import Stage, Stopping, one_cycle

ROW_LR = 0.1  # learning rate of rows by SGD, per document
ScoreMix = Literal["plain", "row_max", "two_levels"]  # of the scores of classifier, re-ranker and similarity


class Task(Protocol):
    """A module and the items that a stage trains it on."""

    @property
    def module(self) -> nn.Module: ...

    @property
    def n_items(self) -> int: ...

    def optimisers(self, lr: float) -> list[torch.optim.Optimizer]:
        """The optimisers of all parameters that do not update themselves."""
        ...

    def loss(self, rows: torch.Tensor, step: int, generator: torch.Generator) -> torch.Tensor:
        """Mean loss of the items `rows` (n,)."""
        ...


@final
@dataclass(frozen=True, kw_only=True)
class RowStages:
    """The shared settings of a run's stages."""

    dim: int
    batch_size: int
    warm_up: float
    stopping: Stopping | None
    device: str
    label_optimiser: Literal["sgd", "adam"] = "sgd"
    label_lr: Auto[float] = AUTO  # learning rate of rows; auto: the default of each classifier

    def stage(
        self,
        name: str,
        task: Task,
        lr: float,
        epochs: int,
        share: tuple[float, float] = (0.0, 1.0),
        score: Callable[[], float] | None = None,
    ) -> Stage:
        """A stage that trains a task, over the part `share` of the learning-rate cycle."""
        cycle, (begin, end) = one_cycle(self.warm_up), share
        return Stage(
            name=name,
            module=task.module,
            loss=lambda batch: task.loss(batch.rows, batch.step, batch.generator),
            n_items=task.n_items,
            batch_size=self.batch_size,
            epochs=epochs,
            optimisers=task.optimisers(lr),
            schedule=lambda done: cycle(begin + done * (end - begin)),
            score=score,
            patience=self.stopping.patience if self.stopping and score else None,
        )

    def served_score(self, served: Callable[[], Servable], data: Prepared) -> Callable[[], float] | None:
        """The held-out score of the served form."""
        if self.stopping is None:
            return None
        metric = self.stopping.metric
        return lambda: served_score(data, metric, served())

    def encoder(
        self, settings: EncoderSettings, text: TextSettings, data: Prepared, run: Run, member: int
    ) -> DocumentEncoder:
        """A new encoder; on a CPU its token table has a sparse gradient."""
        generator = run.generator("encoder", member)
        sparse = self.device == "cpu" and not data.size.dense
        return make_encoder(settings, text, data.vectoriser, self.dim, generator, sparse=sparse).to(run.device)

    def classifier(self, n_outputs: int, adam: float, sgd: float, loss: OutputLoss = "bce_sum") -> RowClassifier:
        """New rows; `adam` and `sgd` are the default learning rates."""
        bounded = ROW_LR if loss == "squared_hinge" else sgd  # its gradient is unbounded
        rate = {"adam": adam, "sgd": bounded}[self.label_optimiser] if self.label_lr is AUTO else self.label_lr
        return row_classifier(n_outputs, self.dim, rate, self.label_optimiser, loss, torch.device(self.device))

    def cost(
        self, name: str, size: Size, trained: Sequence[Weights], *, epochs: int, outputs: int, scored: int, path: str
    ) -> StageCost:
        """The cost of a stage that trains an encoder and the rows of outputs, with `scored` outputs per document."""
        distinct = -outputs * math.expm1(
            -self.batch_size * scored / outputs
        )  # distinct rows of a batch, if all were equally likely
        rows = row_weights(outputs, self.dim, self.label_optimiser, self.device, min(outputs, distinct))
        gradient = sum(part.gradient for part in trained)
        step = self._step_bytes(outputs, scored, gradient)
        products = size.n_documents * scored * row_width(self.dim)
        # afterwards, a served copy of the rows
        return stage_cost(
            name,
            [*trained, rows],
            epochs=epochs,
            products=products,
            path=path,
            steps=Steps(size.n_documents / self.batch_size, max(step, 4 * rows.values)),
        )

    def _step_bytes(self, outputs: int, scored: int, gradient: float) -> float:
        if scored < outputs:
            return list_step(self.batch_size, scored, outputs, self.device) + gradient
        step = RowStep(
            optimiser=self.label_optimiser,
            batch=self.batch_size,
            dim=self.dim,
            scored=outputs,
            drawn=False,
            device=self.device,
        )
        return step.beside(gradient)


def reranker_task(
    name: str,
    task: RowTask,
    encoder: DocumentEncoder,
    classifier: RowClassifier,
    documents: FeatureRows,
    sizes: tuple[int, int],
    run: Run,
) -> RowTask:
    """A separate network, trained on the best labels of a trained one; its shortlists are stored under a name.

    `sizes` are the numbers of best and of random labels: the re-ranker scores every candidate, and without random
    labels it would overrate those it has never been trained on.
    """
    size, drawn = min(sizes[0], task.positives.n_columns), sizes[1]
    kept = run.keep(name, lambda: task.best_of(task.negatives.shortlist, size).cpu().numpy())
    first = Negatives(shortlist=torch.from_numpy(kept).to(run.device), drawn=drawn)
    return RowTask(encoder, classifier, documents, task.positives, first)


def reranker_mix(n_scorers: int, reranker_weight: float, weight: Auto[float], kind: ScoreMix) -> Mix | TwoLevelMix:
    """Mix a classifier, and a re-ranker if there is one, with the similarity; AUTO means not chosen yet."""
    chosen = 1.0 if weight is AUTO else weight
    if kind == "two_levels" and n_scorers == 2:
        return TwoLevelMix(chosen, reranker_weight)
    weights = [1.0] if n_scorers == 1 else [1 - reranker_weight, reranker_weight]
    return Mix(weights, chosen, kind == "row_max")
