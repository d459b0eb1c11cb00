"""Filters over the words in their order, and one classifier per label, trained end to end: XML-CNN.

From Liu et al., "Deep Learning for Extreme Multi-label Text Classification" (SIGIR 2017): filters of several widths
over token vectors, the largest value of each in some parts of the text (dynamic max pooling), a bottleneck layer, and a
binary cross-entropy summed over labels.

What differs from the paper: token vectors start at random instead of from GloVe; label rows start at zero with the
prior −ln L and are trained by SGD; one learning-rate cycle. On a CPU beyond `exact_labels`, a step takes the batch's
labels and random ones instead of all.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, final

from xclearn.config import Count, Rate, Share
from xclearn.config import Size as Number
from xclearn.inference.components import AllLabels, Sigmoid
from xclearn.inference.servable import Servable
from xclearn.parts.classifiers import row_width
from xclearn.parts.encoder_settings import Convolution, encoder_parameters, encoder_working, make_encoder
from xclearn.parts.losses import SCORES_AT_ONCE
from xclearn.parts.row_training import Negatives, RowTask, row_classifier
from xclearn.parts.rows import SparseRows, feature_rows
from xclearn.text import Sequences
from xclearn.training.algorithm import Algorithm, number
from xclearn.training.plan import Plan, StageCost
from xclearn.training.prepare import Prepared, Size
from xclearn.training.row_stages import RowStages
from xclearn.training.run import Run
from xclearn.training.scoring import task_score
from xclearn.training.stage import Stage, Stopping


@final
@dataclass(kw_only=True)
class XmlCnn(Algorithm):
    """Convolution over token sequences and one linear classifier per label."""

    name: ClassVar[str] = "xml_cnn"

    vectoriser: Sequences = field(default_factory=Sequences)  # how texts become tokens
    encoder: Convolution = field(default_factory=Convolution)  # filters and their pooling
    embedding_dim: Count | None = None  # width of the bottleneck
    epochs: Count | None = None  # passes over train
    batch_size: Count | None = None  # documents per step
    encoder_lr: Rate = 0.003  # peak learning rate of the encoder (Adam)
    label_lr: Rate = 0.1  # peak learning rate of the label rows (SGD), per document
    warm_up: Share = 0.1  # share of training in which learning rates rise
    exact_labels: Number = 20_000  # on a CPU, score all labels up to this many, sampled ones beyond
    n_negatives: Count = 1024  # random labels beside the batch's own when sampling
    stopping: Stopping | None = None  # end on a held-out metric

    def _auto(self, size: Size, device: str) -> dict[str, Any]:
        gpu = device == "cuda"
        return {
            "embedding_dim": min(510 if gpu else 126, max(32, 2 * math.isqrt(size.n_labels))),
            "epochs": min(50, max(10, 300_000 // size.n_documents)),
            "batch_size": min(1024 if gpu else 256, max(16, size.n_documents // 50)),
        }

    def _plan(self, size: Size, device: str) -> Plan:
        dim, gpu, batch = number(self.embedding_dim), device == "cuda", min(number(self.batch_size), size.n_documents)
        table, rest = encoder_parameters(self.encoder, self.vectoriser, size.n_features, dim)
        rows = size.n_labels * row_width(dim)
        sampled = math.ceil(batch * size.labels_per_document) + self.n_negatives
        scored = size.n_labels if self._exact(size, device) else min(size.n_labels, sampled)
        places = batch * encoder_working(self.encoder, self.vectoriser)
        block = (2 if gpu else 4) * min(batch * scored, SCORES_AT_ONCE[device])
        learnt = 4 * (table + rest + rows)
        kept = learnt if self.stopping else 0  # the best epoch
        cost = StageCost(
            name="train",
            parameters=learnt + (2 * rows if gpu else 0),
            optimiser=8 * (table + rest),
            working=2 * block + places + 4 * (rows + (table if gpu else 0)) + kept,
            flops_per_epoch=6.0 * size.n_documents * (scored * row_width(dim) + self.vectoriser.max_length * rest),
            epochs=number(self.epochs),
            path=f"{'exact: all' if scored == size.n_labels else 'sampled: about'} {scored:,} labels a step",
        )
        return Plan(device=device, data=4 * size.n_feature_entries + 8 * size.n_relevant, stages=(cost,))

    def _stages(self, data: Prepared, run: Run) -> Iterator[Stage]:
        dim, kind = number(self.embedding_dim), run.device.type
        generator, sparse = run.generator("encoder"), kind == "cpu"
        encoder = make_encoder(self.encoder, self.vectoriser, data.vectoriser, dim, generator, sparse=sparse)
        encoder.to(run.device)
        classifier = row_classifier(data.size.n_labels, dim, self.label_lr, "sgd", "bce_sum", run.device)
        documents, labels = feature_rows(data.features, run.device), SparseRows.of(data.relevance, run.device)
        negatives = Negatives(drawn=0 if self._exact(data.size, kind) else self.n_negatives)
        self.encoder_, self.task_ = encoder, RowTask(encoder, classifier, documents, labels, negatives)
        stages = RowStages(
            dim=dim, batch_size=number(self.batch_size), warm_up=self.warm_up, stopping=self.stopping, device=kind
        )
        score = task_score(self.task_, data, self.stopping)
        yield stages.stage("train", self.task_, self.encoder_lr, number(self.epochs), score=score)

    def _servable(self, data: Prepared) -> Servable:
        scorer = self.task_.classifier.served("document")
        return Servable(data.vectoriser, {"document": self.encoder_.served()}, AllLabels(), [scorer], Sigmoid())

    def _exact(self, size: Size, device: str) -> bool:
        return device == "cuda" or size.n_labels <= self.exact_labels
