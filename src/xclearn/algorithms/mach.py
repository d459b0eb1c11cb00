"""MACH: labels hashed into buckets several times, a small network per hashing, and averaged predictions.

From Medini et al., "Extreme Classification in Log Memory using Count-Min Sketch: A Case Study of Amazon Search with 50M
Products" (NeurIPS 2019). Labels are hashed into B buckets, R times; each repetition trains a multilayer encoder and
classifier on buckets instead of labels, and a label's score is the mean over repetitions of its buckets' probabilities.

Differences from the paper: documents are bags of TF-IDF weighted tokens instead of hashed n-grams; buckets are trained
by binary cross-entropy, as a document is in several; rows start at zero with the prior −ln B and are trained by SGD;
one learning-rate cycle. `combine = "geometric"` averages log-probabilities instead.

Good for: so many labels that one row per label does not fit into memory.
Cost: several networks, whose memory does not grow with the number of labels.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, final

import numpy as np

from xclearn.config import AUTO, Auto, Count, Rate, Share, Span
from xclearn.inference.components import AllLabels, Sigmoid
from xclearn.inference.hashed import BucketClassifier, Joined
from xclearn.inference.servable import Servable
from xclearn.parts.encoder_settings import MultilayerSettings, encoder_weights, make_encoder
from xclearn.parts.encoders import DocumentEncoder
from xclearn.parts.label_clusters import cluster_relevance, membership
from xclearn.parts.row_training import Negatives, RowTask, row_classifier
from xclearn.parts.rows import FeatureRows, SparseRows, feature_rows
from xclearn.text import Subwords, WordPiece, Words
from xclearn.training.algorithm import Algorithm
from xclearn.training.plan import Plan, of_members
from xclearn.training.prepare import Prepared, Size
from xclearn.training.row_stages import RowStages
from xclearn.training.run import Run
from xclearn.training.stage import Stage, Stopping

_PRIME = (1 << 31) - 1  # above any number of labels; products stay within 64 bits


class _Repetition(NamedTuple):
    encoder: DocumentEncoder
    task: RowTask
    bucket_of_label: np.ndarray  # (L,)


_BucketLr = Annotated[Rate, Span(0.02, 0.5, log=True)]


@final
@dataclass(kw_only=True)
class Mach(Algorithm):
    """Several hashings of labels into buckets, with a network for each."""

    name: ClassVar[str] = "mach"

    vectoriser: Words | WordPiece | Subwords = field(default_factory=Words)  # how texts become tokens
    encoder: MultilayerSettings = field(default_factory=MultilayerSettings)  # layers of each network
    embedding_dim: Annotated[Auto[Count], Span(64, 512, log=True)] = AUTO  # width of all layers
    n_repetitions: Annotated[Auto[Count], Span(4, 32, log=True)] = AUTO  # hashings, and networks
    n_buckets: Auto[Count] = AUTO  # buckets of each hashing
    combine: Literal["mean", "geometric"] = (
        "mean"  # mean of the probabilities of a label's buckets: arithmetic or geometric
    )
    epochs: Annotated[Auto[Count], Span(5, 30)] = AUTO  # passes over train of each network
    batch_size: Auto[Count] = AUTO  # documents per step
    encoder_lr: Annotated[Rate, Span(0.0005, 0.02, log=True)] = 0.003  # peak learning rate of encoders (Adam)
    bucket_lr: _BucketLr = 0.1  # peak learning rate of the buckets' rows (SGD), per document
    warm_up: Share = 0.1  # share of training in which learning rates rise
    stopping: Stopping | None = None  # stop each network early by a held-out metric of all networks so far

    def _auto(self, size: Size, device: str) -> dict[str, Any]:
        gpu = device == "cuda"
        return {
            "embedding_dim": min(302 if gpu else 126, max(32, 2 * math.isqrt(size.n_labels))),
            "n_repetitions": min(16 if gpu else 8, max(3, size.n_labels.bit_length() // 2)),
            "n_buckets": min(size.n_labels, 16 * math.isqrt(size.n_labels)),
            "epochs": min(100, max(20 if gpu else 15, 500_000 // size.n_documents)),
            "batch_size": min(1024, max(16, size.n_documents // 50)),
        }

    def _plan(self, size: Size, device: str) -> Plan:
        stages = self._row_stages(device)
        tokens = size.sparse_tokens(self.batch_size, device)
        trained = encoder_weights(self.encoder, self.vectoriser, size.n_features, stages.dim, tokens)
        cost = stages.cost(
            "repetition",
            size,
            trained,
            epochs=self.epochs,
            outputs=self.n_buckets,
            scored=self.n_buckets,
            path=f"exact: all {self.n_buckets:,} buckets of {size.n_labels:,} labels",
        )
        data = size.data_bytes + 16 * size.n_relevant  # relevance of buckets, while it is built
        return Plan(device=device, data=data, stages=of_members([cost], self.n_repetitions, cost.parameters))

    def _stages(self, data: Prepared, run: Run) -> Iterator[Stage]:
        documents = feature_rows(data.features, run.device)
        stages = self._row_stages(run.device.type)
        self.repetitions_: list[_Repetition] = []
        score = stages.served_score(lambda: self._servable(data), data)
        for i in range(self.n_repetitions):
            made = self._repetition(i, documents, data, run)
            self.repetitions_.append(made)
            yield stages.stage(f"repetition-{i}", made.task, self.encoder_lr, self.epochs, score=score)

    def _servable(self, data: Prepared) -> Servable:
        encoder = Joined([repetition.encoder.served() for repetition in self.repetitions_])
        rows = [repetition.task.classifier.served("document") for repetition in self.repetitions_]
        weight = np.stack([each.weight for each in rows])
        bias = np.stack([each.bias for each in rows])
        buckets = np.stack([repetition.bucket_of_label for repetition in self.repetitions_])
        scorer = BucketClassifier("document", weight, bias, buckets, self.combine == "geometric")
        return Servable(data.vectoriser, {"document": encoder}, AllLabels(), [scorer], Sigmoid())

    def _row_stages(self, device: str) -> RowStages:
        return RowStages(
            dim=self.embedding_dim,
            batch_size=self.batch_size,
            warm_up=self.warm_up,
            stopping=self.stopping,
            device=device,
        )

    def _repetition(self, i: int, documents: FeatureRows, data: Prepared, run: Run) -> _Repetition:
        n_buckets, dim = self.n_buckets, self.embedding_dim
        buckets = hash_labels(data.size.n_labels, n_buckets, run.seed_of("buckets", i))
        positives = SparseRows.of(cluster_relevance(data.relevance, membership(buckets, n_buckets)), run.device)
        sparse = run.device.type == "cpu" and isinstance(documents, SparseRows)
        generator = run.generator("encoder", i)
        encoder = make_encoder(self.encoder, self.vectoriser, data.vectoriser, dim, generator, sparse=sparse)
        encoder.to(run.device)
        classifier = row_classifier(n_buckets, dim, self.bucket_lr, "sgd", "bce_sum", run.device)
        return _Repetition(encoder, RowTask(encoder, classifier, documents, positives, Negatives()), buckets)


def hash_labels(n_labels: int, n_buckets: int, seed: int) -> np.ndarray:
    """The bucket of each label (L,) int32: ((a · label + b) mod p) mod buckets, with random a and b.

    Two labels share a bucket with probability of about 1 / buckets.
    """
    rng = np.random.default_rng(seed)
    factor, offset = rng.integers(1, _PRIME), rng.integers(_PRIME)
    return ((factor * np.arange(n_labels, dtype=np.int64) + offset) % _PRIME % n_buckets).astype(np.int32)
