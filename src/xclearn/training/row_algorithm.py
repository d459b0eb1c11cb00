"""The common base of one-vs-all and XML-CNN: an encoder and a row per label, trained end to end in one stage.

An abstract algorithm whose fields are settings of both. A step on a GPU scores all labels; on a CPU it does so up to
`exact_labels`, and beyond that the batch's own labels and random others. Knows nothing about the encoder.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Literal

from xclearn.config import AUTO, Auto, Count, Number, Rate, Share, Span
from xclearn.inference.components import AllLabels, Sigmoid
from xclearn.inference.servable import Servable
from xclearn.parts.calibration import Calibration
from xclearn.parts.classifiers import row_width
from xclearn.parts.encoder_settings import (
    AnyText,
    EncoderSettings,
    encoder_dim,
    encoder_weights,
    make_encoder,
)
from xclearn.parts.row_training import Negatives, RowStep, RowTask, row_classifier, row_weights
from xclearn.parts.rows import SparseRows, feature_rows, reads_tokens
from xclearn.parts.setting_types import EmbeddingDim
from xclearn.parts.sparse_ranking import SparseRanking
from xclearn.text import Pretrained, Words
from xclearn.training.algorithm import Algorithm
from xclearn.training.plan import Plan, Steps, stage_cost
from xclearn.training.prepare import Prepared, Size
from xclearn.training.row_stages import RowStages
from xclearn.training.run import Run
from xclearn.training.scoring import task_score
from xclearn.training.stage import Stage, Stopping

_EXACT_ON_CPU = 20_000  # labels


@dataclass(kw_only=True)
class RowAlgorithm(Algorithm):
    """An encoder and one linear classifier per label."""

    vectoriser: AnyText = field(default_factory=Words)  # how texts become tokens
    encoder: Auto[EncoderSettings] = AUTO  # auto: the one that fits the vectoriser
    embedding_dim: EmbeddingDim = AUTO  # length of document and label vectors; a transformer has its own
    epochs: Annotated[Auto[Count], Span(5, 40)] = AUTO  # passes over train
    batch_size: Auto[Count] = AUTO  # documents per step
    encoder_lr: Annotated[Rate, Span(0.0005, 0.02, log=True)] = 0.003  # peak learning rate of the encoder (Adam)
    label_lr: Annotated[Rate, Span(0.02, 0.5, log=True)] = 0.1  # peak learning rate of the label rows, per document
    label_optimiser: Literal["sgd", "adam"] = "sgd"  # the authors use adam; set label_lr near 0.01 with it
    warm_up: Share = 0.1  # share of training in which learning rates rise
    exact_labels: Auto[Number] = AUTO  # score all labels up to this many, else a sample; auto: 20,000 on a CPU
    n_negatives: Count = 1024  # random labels per step when sampling
    sparse_ranker: SparseRanking | None = None  # sparse classifiers that re-rank the best labels
    calibration: Calibration | None = None  # a tree that calibrates scores, learnt on the hold-out
    stopping: Stopping | None = None  # stop early by a held-out metric; none: train all epochs on all documents

    def _unread(self, size: Size, device: str) -> Iterator[tuple[str, str]]:  # noqa: ARG002
        if self._exact(size):
            yield f"set exact_labels below the {size.n_labels:,} labels", "n_negatives"
        if isinstance(self.vectoriser, Pretrained):
            yield "choose an encoder other than a transformer", "embedding_dim"

    def _plan(self, size: Size, device: str) -> Plan:
        dim = self._dim
        batch = min(self.batch_size, size.n_documents)
        exact = self._exact(size)
        sample = math.ceil(batch * size.labels_per_document) + self.n_negatives
        scored = size.share(size.n_labels if exact else min(size.n_labels, sample))
        tokens = size.sparse_tokens(batch, device)
        encoder = encoder_weights(self.encoder, self.vectoriser, size.n_features, dim, tokens)
        step = RowStep(
            optimiser=self.label_optimiser, batch=batch, dim=dim, scored=scored, drawn=not exact, device=device
        )
        gradient = sum(part.gradient for part in encoder) + batch * self.encoder.working(self.vectoriser)
        products = scored * row_width(dim) + self.encoder.products(self.vectoriser, dim)
        cost = stage_cost(
            "train",
            [*encoder, row_weights(size.share(size.n_labels), dim, self.label_optimiser, device, scored)],
            epochs=self.epochs,
            products=size.n_documents * products,
            steps=Steps(size.n_documents / batch, step.beside(gradient)),
            path=f"exact: all {size.n_labels:,} labels" if exact else f"sampled: about {scored:,} labels per step",
            served=0 if device == "cuda" else 4 * size.n_labels * dim,
            best=self.stopping is not None,
        )
        return Plan(device=device, data=size.data_bytes, stages=(cost,))

    def _shares_rows(self) -> bool:
        return True

    def _stages(self, data: Prepared, run: Run) -> Iterator[Stage]:
        kind = run.device.type
        text = self.vectoriser
        generator = run.generator("encoder")
        documents = feature_rows(data.features, run.device)
        labels = SparseRows.of(data.relevance, run.device)
        sparse = kind == "cpu" and reads_tokens(documents)
        encoder = make_encoder(self.encoder, text, data.vectoriser, self._dim, generator, sparse=sparse).to(run.device)
        rows = run.rows(data.size.n_labels)
        classifier = row_classifier(rows, self._dim, self.label_lr, self.label_optimiser, "bce_sum", run.device)
        negatives = Negatives(drawn=0 if self._exact(data.size) else self.n_negatives)
        self.encoder_ = encoder
        self.task_ = RowTask(encoder, classifier, documents, labels, negatives)
        stages = RowStages(
            dim=self._dim, batch_size=self.batch_size, warm_up=self.warm_up, stopping=self.stopping, device=kind
        )
        score = task_score(self.task_, data, self.stopping)
        yield stages.stage("train", self.task_, self.encoder_lr, self.epochs, score=score)

    def _servable(self, data: Prepared) -> Servable:
        scorer = self.task_.classifier.served("document")
        return Servable(data.vectoriser, {"document": self.encoder_.served()}, AllLabels(), [scorer], Sigmoid())

    def _hand_over(self) -> None:
        self.task_.classifier.served("document")

    @property
    def _dim(self) -> int:
        return encoder_dim(self.vectoriser, self.embedding_dim)

    def _exact(self, size: Size) -> bool:
        return size.n_labels <= self.exact_labels


def usual_exact_labels(size: Size, device: str) -> int:
    """The default of exact_labels: on a GPU, all labels."""
    return size.n_labels if device == "cuda" else _EXACT_ON_CPU
