"""One classifier per label over a bag-of-embeddings encoder, trained end to end: DeepXML-OVA.

From Dahiya et al., "DeepXML: A Deep Extreme Multi-Label Learning Framework Applied to Short Text Documents" (WSDM
2021), whose repository has it as the framework `DeepXML-OVA`: Astec's features under a full one-vs-all classifier.

What differs from the authors' code: label rows start at zero with the prior −ln L instead of uniformly (their start
collapses to label popularity beyond 100,000 labels) and are trained by SGD instead of Adam (better on a hold-out, no
state); no residual block after the bag unless `encoder.residual` (worse on a hold-out); one learning-rate cycle.
On a GPU every step scores all labels. On a CPU it does so up to `exact_labels`; beyond, the batch's own labels and
random others.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, final

import torch

from xclearn.config import Count, Rate, Share
from xclearn.config import Size as Number
from xclearn.inference.components import AllLabels, Sigmoid
from xclearn.inference.servable import Servable
from xclearn.parts.calibration import Calibration
from xclearn.parts.classifiers import row_width
from xclearn.parts.encoder_settings import (
    Bag,
    Convolution,
    EncoderSettings,
    Multilayer,
    Transformer,
    encoder_dim,
    encoder_for,
    encoder_parameters,
    encoder_products,
    encoder_working,
    make_encoder,
)
from xclearn.parts.encoders import encoder_optimisers
from xclearn.parts.losses import MEASURE_EVERY
from xclearn.parts.re_ranking import SparseRanking
from xclearn.parts.row_training import ROW_UPDATES, row_classifier, step_bytes
from xclearn.parts.rows import FeatureRows, SparseRows, feature_rows, reads_tokens
from xclearn.text import Pretrained, Sequences, Subwords, WordPiece, Words
from xclearn.training.algorithm import Algorithm, number
from xclearn.training.plan import Plan, StageCost
from xclearn.training.prepare import Prepared, Size
from xclearn.training.run import Run
from xclearn.training.scoring import held_out_score
from xclearn.training.stage import Batch, Stage, Stopping, one_cycle


@final
@dataclass(kw_only=True)
class OneVsAll(Algorithm):
    """Bag-of-embeddings encoder and one linear classifier per label."""

    name: ClassVar[str] = "one_vs_all"

    vectoriser: Words | WordPiece | Subwords | Sequences | Pretrained = field(
        default_factory=Words
    )  # how texts become tokens
    encoder: Bag | Multilayer | Convolution | Transformer | None = None  # auto: what fits the vectoriser
    embedding_dim: Count | None = None  # length of document and label vectors; a transformer has its own
    dropout: Share = 0.3  # of the encoder, where that is left at auto
    epochs: Count | None = None  # passes over train
    batch_size: Count | None = None  # documents per step
    encoder_lr: Rate = 0.003  # peak learning rate of the encoder (Adam)
    label_lr: Rate = 0.1  # peak learning rate of the label rows, per document
    label_optimiser: Literal["sgd", "adam"] = "sgd"  # adam is the authors' choice; set label_lr near 0.01 with it
    warm_up: Share = 0.1  # share of training in which learning rates rise
    exact_labels: Number = 20_000  # on a CPU, score all labels up to this many, sampled ones beyond
    n_negatives: Count = 1024  # random labels beside the batch's own when sampling
    sparse_ranker: SparseRanking | None = None  # sparse classifiers that rank the best labels anew; auto: none
    calibration: Calibration | None = None  # a tree that calibrates scores, learnt on the hold-out; auto: none
    stopping: Stopping | None = None  # end on a held-out metric; auto: train all epochs on all documents

    def _auto(self, size: Size, device: str) -> dict[str, Any]:
        gpu = device == "cuda"
        return {
            "encoder": self._encoder,
            "embedding_dim": min(302 if gpu else 126, max(32, 2 * math.isqrt(size.n_labels))),
            "epochs": min(100, max(20 if gpu else 15, 500_000 // size.n_documents)),
            "batch_size": min(1024, max(16, size.n_documents // 50)),
        }

    def _plan(self, size: Size, device: str) -> Plan:
        dim, gpu, exact = self._dim, device == "cuda", self._exact(size, device)
        batch = min(number(self.batch_size), size.n_documents)
        table = sum(encoder_parameters(self._encoder, self.vectoriser, size.n_features, dim))
        rows = size.n_labels * row_width(dim)
        sample = math.ceil(batch * size.labels_per_document) + self.n_negatives
        scored = size.n_labels if exact else min(size.n_labels, sample)
        learnt, state = 4 * (table + rows), ROW_UPDATES[self.label_optimiser].bytes_per_value() * rows
        training = self._step_bytes(size, device, batch, scored) + (learnt + state if self.stopping else 0)
        served = 0 if gpu else 4 * size.n_labels * dim  # a copy, made when the encoder's optimiser is gone
        cost = StageCost(
            name="train",
            parameters=learnt + (2 * rows if gpu else 0),
            optimiser=8 * table + state,
            working=max(training, served - 8 * table),
            flops_per_epoch=6.0 * size.n_documents * (scored * row_width(dim) + encoder_products(self.vectoriser)),
            epochs=number(self.epochs),
            path=f"exact: all {size.n_labels:,} labels" if exact else f"sampled: about {scored:,} labels a step",
        )
        return Plan(device=device, data=size.data_bytes, stages=(cost,))

    def _step_bytes(self, size: Size, device: str, batch: int, scored: int) -> int:
        """The block of scores, and beside it one after the other its softplus, the update, the encoder's gradient.

        A GPU's allocator hands on what was freed; the CPU's keeps it.
        """
        dim, gpu, exact = self._dim, device == "cuda", self._exact(size, device)
        scores, update = step_bytes(self.label_optimiser, batch, row_width(dim), scored, device, drawn=not exact)
        tokens = batch * size.n_feature_entries / size.n_documents
        token_rows = size.n_features if gpu or size.dense else 2 * tokens
        encoder = math.ceil(4 * dim * token_rows) + batch * encoder_working(self._encoder, self.vectoriser)
        parts = (scores, update, encoder)
        return scores + (max(parts) if gpu else sum(parts))

    def _stages(self, data: Prepared, run: Run) -> Iterator[Stage]:
        size, text, generator = data.size, self.vectoriser, run.generator("encoder")
        self._documents = feature_rows(data.features, run.device)
        self._relevance = SparseRows.of(data.relevance, run.device)
        sparse = run.device.type == "cpu" and reads_tokens(self._documents)
        self.encoder_ = make_encoder(self._encoder, text, data.vectoriser, self._dim, generator, sparse=sparse)
        self.classifier_ = row_classifier(
            size.n_labels, self._dim, self.label_lr, self.label_optimiser, "bce_sum", run.device
        )
        exact = self._exact(size, run.device.type)
        yield Stage(
            name="train",
            module=torch.nn.ModuleDict({"encoder": self.encoder_, "classifier": self.classifier_}),
            loss=self._exact_loss if exact else self._sampled_loss,
            n_items=size.n_documents,
            batch_size=number(self.batch_size),
            epochs=number(self.epochs),
            optimisers=encoder_optimisers(self.encoder_.to(run.device), self.encoder_lr),
            schedule=one_cycle(self.warm_up),
            score=self._score(data, run),
            patience=self.stopping.patience if self.stopping else None,
        )

    def _servable(self, data: Prepared) -> Servable:
        return Servable(
            data.vectoriser,
            {"document": self.encoder_.served()},
            AllLabels(),
            [self.classifier_.served("document")],
            Sigmoid(),
        )

    @property
    def _encoder(self) -> EncoderSettings:
        return self.encoder or replace(encoder_for(self.vectoriser), dropout=self.dropout)

    @property
    def _dim(self) -> int:
        return encoder_dim(self.vectoriser, number(self.embedding_dim))

    def _exact_loss(self, batch: Batch) -> torch.Tensor:
        vectors = self.encoder_(self._documents.take(batch.rows))  # (n, D)
        every = min(MEASURE_EVERY, -(-len(self._documents) // number(self.batch_size)))  # once an epoch at least
        measure = batch.step % every == 0
        return self.classifier_.exact_loss(vectors, self._relevance.take(batch.rows), measure=measure)

    def _sampled_loss(self, batch: Batch) -> torch.Tensor:
        vectors, positives = self.encoder_(self._documents.take(batch.rows)), self._relevance.take(batch.rows)
        n_labels, device = self._relevance.n_columns, batch.rows.device
        negatives = torch.randint(n_labels, (self.n_negatives,), generator=batch.generator, device=device)
        return self.classifier_.sampled_loss(vectors, positives, torch.cat([positives.columns, negatives]).unique())

    def _score(self, data: Prepared, run: Run) -> Any:
        if self.stopping is None or data.held_out_features is None:
            return None
        held_out: FeatureRows = feature_rows(data.held_out_features, run.device)

        @torch.no_grad()
        def best(rows: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
            return self.classifier_.best(self.encoder_(held_out.take(rows.to(run.device))), k)

        return held_out_score(data, self.stopping.metric, best)

    def _exact(self, size: Size, device: str) -> bool:
        return device == "cuda" or size.n_labels <= self.exact_labels
