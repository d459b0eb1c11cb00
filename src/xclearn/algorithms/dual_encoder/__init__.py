"""Dual encoder: documents and label texts in one space, then a row per label initialised from its text.

After Gupta et al., "Dual-Encoders for Extreme Multi-Label Classification" (ICLR 2024), whose decoupled softmax trains
the encoder, and Dahiya et al., "NGAME" (WSDM 2023), which continues with a classifier per label. Stage 1 samples
several relevant labels of each document and contrasts them with the labels of the batch, random negatives and,
optionally, hard negatives. Stage 2 freezes the encoder and trains an offset from the text for each label's row.

Differences from these papers: the encoder is a bag of tokens with a block for either side, so that it trains on a CPU,
unless the vectoriser is `pretrained`: then it is one transformer for both sides, with gradient caching and hard
negatives from exact search. The fewer documents a label has, the closer its row stays to its text; text and offset are
served as a single row per label, and scores are probabilities.

Good for: labels with texts but hardly any documents, and labels added later.
Cost: an encoder trained on pairs; new labels need no training.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, final

import numpy as np
import torch

from xclearn.algorithms.dual_encoder.frequency_mix import Rows
from xclearn.algorithms.dual_encoder.mixing import frequency_mix
from xclearn.algorithms.dual_encoder.network import BagTowers, DualNetwork, TransformerTower, random_tokens
from xclearn.algorithms.dual_encoder.stages import (
    DualMaterial,
    DualStages,
    EncoderCost,
    NearLabels,
    with_label_documents,
)
from xclearn.algorithms.dual_encoder.tasks import (
    Changes,
    Drawing,
    DualTask,
    ExactRowTask,
    HeldRows,
    HeldRowTask,
    LabelRowTask,
)
from xclearn.config import AUTO, Auto, Count, Number, Rate, Share, Span, Weight
from xclearn.errors import ConfigError
from xclearn.inference.components import AllLabels, Classifier, Sigmoid
from xclearn.inference.servable import Servable
from xclearn.inference.text_rows import TextRows
from xclearn.parts.encoder_settings import (
    TransformerSettings,
    encoder_dim,
    encoder_weights,
    make_encoder,
)
from xclearn.parts.rows import SparseRows, feature_rows
from xclearn.parts.sequence_encoders import TransformerEncoder
from xclearn.text import Pretrained, Subwords, TextSettings, WordPiece, Words
from xclearn.training.algorithm import Algorithm, View
from xclearn.training.plan import Plan
from xclearn.training.prepare import Prepared, Size, required
from xclearn.training.run import Run
from xclearn.training.stage import Stage, Stopping
from xclearn.training.token_table import start_from

_TOKENS_AT_ONCE = 1 << 18  # whose activations a GPU keeps per step: about 10 GiB for MiniLM
_MANY_DRAWN = 1 << 16  # labels of a step
_AFFORDABLE = 2e10  # up to this many multiplications per epoch (seconds), a CPU trains rows against all labels
_SMALLEST_BATCH, _STEPS = 64, 640  # of a bag: documents per step; steps of small sets
_ENOUGH_TOKENS = 32_000_000  # document tokens that suffice to train a transformer, including padding
_TOKEN_PASSES, _LAYER_PASSES = 4, 11  # over a step's texts in memory, fitted to measured trainings
_EXAMPLES_GAIN = 0.3  # weight of a new label's examples against its text

_Lr = Annotated[Auto[Rate], Span(0.001, 0.03, log=True)]
_RowLr = Annotated[Auto[Weight], Span(0.003, 0.3, log=True)]
_Hold = Annotated[Auto[Rate], Span(0.1, 30.0, log=True)]


@final
@dataclass(kw_only=True)
class DualEncoder(Algorithm):
    """One space for documents and label texts, and label rows initialised from their texts."""

    name: ClassVar[str] = "dual_encoder"

    vectoriser: Words | WordPiece | Subwords | Pretrained = field(default_factory=Subwords)  # texts to tokens
    encoder: Auto[Literal["bag", "transformer"]] = AUTO  # auto: the one that reads the vectoriser's tokens
    embedding_dim: Annotated[Auto[Count], Span(64, 512, log=True)] = AUTO  # length of document and label vectors
    word_vectors: str | None = None  # initial token vectors: a file, a transformer's folder or minilm; none: random
    batch_size: Auto[Count] = AUTO  # documents per step
    epochs: Annotated[Auto[Count], Span(5, 30)] = AUTO  # passes over train of the encoder
    lr: _Lr = AUTO  # peak learning rate of the encoder (Adam); auto: 0.01, for a transformer 0.0002
    dropout: Annotated[Share, Span(0.0, 0.5)] = 0.2  # dropout after each ReLU
    temperature: Annotated[Rate, Span(0.02, 0.2, log=True)] = 0.05  # softmax temperature: cosines are divided by it
    texts_at_once: Auto[Count] = AUTO  # texts per transformer pass; larger batches use gradient caching
    n_positives: Auto[Count] = AUTO  # relevant labels sampled per document and step
    n_negatives: Auto[Number] = AUTO  # random negatives per step; L or more: all labels
    hard_negatives: Auto[Number] = AUTO  # hard negatives per document and step, from nearest labels; 0: none
    hard_size: Count = 30  # nearest labels they are sampled from
    refresh_every: Auto[Count] = AUTO  # epochs between searches for nearest labels (exact)
    label_documents: bool = False  # also use each label's text as a document with that label
    average: Share = 0.0  # average the encoder's weights over this last share of training
    warm_up: Share = 0.1  # share of a stage in which learning rates rise
    row_negatives: Auto[Literal["all", "drawn"]] = AUTO  # negatives of the rows; auto: all labels if that is fast
    row_epochs: Auto[Number] = AUTO  # passes over train for the rows; 0: rows are the label texts
    row_lr: _RowLr = AUTO  # peak learning rate of rows (SGD, per document); auto: 0.015, or 0.1 against all labels
    hold: _Hold = AUTO  # number of documents at which the offset has half its weight
    row_weight: Auto[Weight] = AUTO  # weight of the rows' offset; with stopping it is learnt on the hold-out
    stopping: Stopping | None = None  # stop early by a held-out metric, and calibrate scores on the hold-out

    def _auto(self, size: Size, device: str) -> dict[str, Any]:
        gpu = device == "cuda"
        transformer = isinstance(self.vectoriser, Pretrained)
        usual_batch = _usual_batch(self.vectoriser, size.n_documents, gpu)
        batch = usual_batch if self.batch_size is AUTO else self.batch_size
        usual_epochs = _usual_epochs(self.vectoriser, size.n_documents, batch, gpu)
        epochs = usual_epochs if self.epochs is AUTO else self.epochs
        dim = min(320 if gpu else 192, max(32, 2 * math.isqrt(size.n_labels)))
        affordable = gpu or size.n_documents * size.n_labels * dim <= _AFFORDABLE
        against_all = affordable if self.row_negatives is AUTO else self.row_negatives == "all"
        return {
            "encoder": "transformer" if transformer else "bag",
            "embedding_dim": dim,
            "batch_size": usual_batch,
            "epochs": epochs,
            "lr": 2e-4 * math.sqrt(batch / 1024) if transformer else 0.01,  # Adam's steps in small batches are noise
            "texts_at_once": _texts_at_once(self.vectoriser) if gpu else 64,
            "n_positives": 1 if transformer else 3,
            "n_negatives": 0 if transformer else min(2048, 2 * batch),
            "hard_negatives": 3 if transformer and gpu else 0,
            "refresh_every": 2 if transformer else math.ceil(epochs / 2),
            "row_negatives": "all" if against_all else "drawn",
            "row_epochs": 12 if against_all else 4,
            "row_lr": 0.1 if against_all else 0.015,
            "hold": 0.1 if against_all else 5.0,
            "row_weight": 0.5 if against_all else 1.0,
        }

    def _plan(self, size: Size, device: str) -> Plan:
        stages = self._dual_stages(device)
        drawn = self.batch_size * (self.n_positives + self.hard_negatives)
        scored = min(size.n_labels, drawn + self.n_negatives)
        encoder = self._encoder_cost(size, scored)
        costs = [stages.cost("encoder", self.epochs, size, encoder, scored, rows=False)]
        if self.row_epochs and self.row_negatives == "all":
            costs.append(stages.exact_rows_cost(self.row_epochs, size, encoder))
        elif self.row_epochs:
            costs.append(stages.cost("rows", self.row_epochs, size, encoder, scored, rows=True))
        lists = 4 * self.hard_size * size.n_documents if self.hard_negatives else 0
        texts = 8 * size.share(size.n_label_entries)
        return Plan(device=device, data=size.data_bytes + texts + lists, stages=tuple(costs))

    def _encoder_cost(self, size: Size, scored: int) -> EncoderCost:
        if isinstance(self.vectoriser, Pretrained):
            settings = TransformerSettings(pooling="mean", dropout=0.0)
            _, weights = encoder_weights(settings, self.vectoriser, size.n_features, 0)
            working = settings.working(self.vectoriser) * min(self.texts_at_once, self.batch_size + scored)
            return EncoderCost(
                kind=f"transformer {self.vectoriser.folder}",
                dim=encoder_dim(self.vectoriser, 0),
                bytes=4 * weights.values,
                working=working,
                moved=_LAYER_PASSES * working,
                products=settings.products(self.vectoriser, 0),
            )
        dim = self.embedding_dim
        tokens = self.batch_size * size.n_feature_entries / size.n_documents + scored * size.tokens_per_label
        gradients = 8 * dim * math.ceil(min(size.n_features, tokens))
        start = "random tokens" if self.word_vectors is None else f"tokens from {Path(self.word_vectors).name}"
        table = 4 * size.n_features * dim
        return EncoderCost(
            kind=f"bag, {start}",
            dim=dim,
            bytes=table,
            working=gradients,
            moved=_TOKEN_PASSES * gradients,
            products=dim * dim,
        )

    def _stages(self, data: Prepared, run: Run) -> Iterator[Stage]:
        train = DualMaterial.of(data, run)
        stages = self._dual_stages(run.device.type)
        self.network_ = self._network(train, data, run)
        seen = train
        if self.label_documents:
            seen = with_label_documents(train, feature_rows(required(data.label_features), run.device))
        task = DualTask(
            network=self.network_,
            documents=seen.documents,
            labels=seen.labels,
            rows=seen.rows,
            drawing=self._drawing(seen),
            scale=1 / self.temperature,
            compute=torch.bfloat16 if run.device.type == "cuda" and self._draws_all(data.size) else torch.float32,
        )
        near = NearLabels(self.network_, seen, self.hard_size, self.refresh_every, run)

        def task_of(epoch: int) -> DualTask:
            hard = near.at(epoch) if self.hard_negatives else None
            return task if hard is None else task.against(self._drawing(seen, hard))

        yield from stages.encoder(task_of, seen.items, self.lr, self.epochs, data)
        texts = self.network_.all_labels(train.labels, run.device)
        vectors = self.network_.all_documents(train.documents, run.device)
        self.centre_ = vectors.mean(dim=0).float().cpu().numpy()
        changes = Changes(torch.zeros_like(texts), torch.zeros_like(texts[:, 0]))
        if self.row_epochs:
            rows = self._row_task(texts, vectors, train)
            lr = None if self.row_negatives == "all" else self.row_lr
            yield stages.rows(rows, train.items, self.row_epochs, lr)
            changes = rows.changes()
        parts = texts / self.temperature, changes.rows / self.temperature, changes.biases, train.own_counts
        self.rows_ = Rows.of(*(train.rows.of_all(part) for part in parts))

    def _shares_rows(self) -> bool:
        return True

    def _servable(self, data: Prepared) -> Servable:
        self.encoder_, self.label_encoder_ = self.network_.served()
        device = next(self.network_.parameters()).device
        self.mix_ = frequency_mix(self.rows_, self.encoder_, data, self.row_weight, self.stopping, device)
        return self._with_rows(data, *self.mix_.folded(self.rows_))

    def _with_rows(self, data: Prepared, weight: np.ndarray, bias: np.ndarray) -> Servable:
        scorer = Classifier("document", weight, bias)
        return Servable(data.vectoriser, {"document": self.encoder_}, AllLabels(), [scorer], Sigmoid())

    def _views(self, data: Prepared) -> dict[str, View]:
        """Label texts alone, which are better than rows for labels with few documents."""
        if not self.row_epochs:
            return {}
        weight = np.float32(self.mix_.slope) * self.rows_.texts
        bias = np.full(len(weight), self.mix_.biases[0], dtype=np.float32)
        return {"texts": View(self._with_rows(data, weight, bias), self._text_rows()[0])}

    def _text_rows(self) -> list[TextRows]:
        bias = float(self.mix_.biases[0])
        return [TextRows(self.label_encoder_, self.centre_, self.mix_.slope / self.temperature, bias, _EXAMPLES_GAIN)]

    def _network(self, train: DualMaterial, data: Prepared, run: Run) -> DualNetwork:
        if self.encoder != ("transformer" if isinstance(self.vectoriser, Pretrained) else "bag"):
            todo = "Leave `encoder` at auto, or set `vectoriser` too: a transformer reads what pretrained makes."
            raise ConfigError("the encoder cannot read these tokens", where="encoder", got=self.encoder, todo=todo)
        if isinstance(self.vectoriser, Pretrained):
            settings = TransformerSettings(pooling="mean", dropout=0.0)
            unused = run.generator("tokens")
            encoder = make_encoder(settings, self.vectoriser, data.vectoriser, 0, unused, sparse=False)
            assert isinstance(encoder, TransformerEncoder)
            return TransformerTower(encoder, self.texts_at_once).to(run.device)
        dim = self.embedding_dim
        sparse = run.device.type == "cpu" and isinstance(train.documents, SparseRows)
        table = random_tokens(data.size.n_features, dim, run.generator("tokens"))
        if self.word_vectors is not None:
            start_from(table, self.word_vectors, data, run)
        with run.seeded("network"):
            return BagTowers(table, self.dropout, sparse=sparse).to(run.device)

    def _row_task(self, texts: torch.Tensor, vectors: torch.Tensor, train: DualMaterial) -> LabelRowTask:
        scale = 1 / self.temperature
        if self.row_negatives == "all":
            start = train.rows, texts, train.own_counts, self.hold
            return ExactRowTask.starting_at(*start, vectors, train.positives, scale, self.row_lr)
        rows = HeldRows(train.rows, texts, train.own_counts, self.hold).to(texts.device)
        drawing = self._drawing(train)
        return HeldRowTask(rows=rows, vectors=vectors, drawing=drawing, scale=scale, compute=torch.float32)

    def _drawing(self, train: DualMaterial, hard: torch.Tensor | None = None) -> Drawing:
        return Drawing(
            positives=train.positives,
            n_positives=self.n_positives,
            n_random=self.n_negatives,
            hard=hard,
            n_hard=self.hard_negatives,
        )

    def _dual_stages(self, device: str) -> DualStages:
        return DualStages(
            batch_size=self.batch_size,
            warm_up=self.warm_up,
            average=self.average,
            stopping=self.stopping,
            device=device,
        )

    def _draws_all(self, size: Size) -> bool:
        """Whether float32 products over the labels of an encoder step would dominate its time."""
        return self.n_negatives >= _MANY_DRAWN or self.n_negatives >= size.n_labels > _MANY_DRAWN


def _usual_batch(vectoriser: TextSettings, n_documents: int, gpu: bool) -> int:
    """Documents per step. For a bag the labels dominate the cost of a step, so small batches save nothing."""
    if isinstance(vectoriser, Pretrained):
        return min(1024 if gpu else 64, max(16, n_documents // 50))
    return min(1024, max(_SMALLEST_BATCH, n_documents // 16))


def _usual_epochs(vectoriser: TextSettings, n_documents: int, batch: int, gpu: bool) -> int:
    """Passes over train. A bag gets more of them on small sets, up to a number of steps; a pretrained transformer needs
    about a million short texts."""
    if not isinstance(vectoriser, Pretrained):
        scale = max(1, min(8, 50_000 // n_documents))
        return max(10, min(10 * scale, math.ceil(_STEPS * batch / n_documents)))
    if not gpu:
        return 3
    return min(15, max(5, _ENOUGH_TOKENS // (vectoriser.max_length * n_documents)))


def _texts_at_once(vectoriser: TextSettings) -> int:
    """Texts whose activations a GPU keeps: fewer if they are longer."""
    longest = vectoriser.max_length if isinstance(vectoriser, Pretrained) else 1
    return max(256, _TOKENS_AT_ONCE // longest)
