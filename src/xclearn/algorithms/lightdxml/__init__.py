"""LightDXML: shortlists from label embeddings, which are trained in alternation with the classifiers.

From Mishra et al., "Light-weight Deep Extreme Multilabel Classification" (IJCNN 2023). A label encoder embeds each
label near its documents; the labels nearest to a document are its hard negatives. As training moves the documents,
labels are embedded again every few epochs. There is one network and one classifier per label, no surrogate task and, by
default, no re-ranker.

Differences from the authors' code: with `negatives = "all"` (the default on a GPU and for few labels) classifiers are
trained against all labels, and labels are embedded once, at the end; labels are embedded again after the last epoch
(`final_refresh`); the label encoder starts as the identity; label rows start at zero with the prior −ln L and are
trained by SGD instead of Adam; every step trains all relevant labels, not at most twenty; there is one learning-rate
cycle instead of halvings, and Adam's moments are reset after each embedding of labels; the weight of the two scores is
chosen on held-out documents, never on test.

Good for: a light deep model for labels without descriptive texts.
Cost: one shortlist search per cycle; less than astec.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Literal, final

import numpy as np
import torch
from torch.nn import functional as F

from xclearn.algorithms.lightdxml.cycles import BestCycle
from xclearn.algorithms.lightdxml.label_encoder import LabelEncoder, LabelTask, label_means
from xclearn.config import AUTO, Auto, Count, Number, Rate, Share, Span
from xclearn.errors import ConfigError
from xclearn.inference.servable import Servable
from xclearn.parts.calibration import Calibration
from xclearn.parts.cost import Weights
from xclearn.parts.encoder_settings import FEW_LABELS, BagSettings, encoder_weights, wider_dim
from xclearn.parts.encoders import BagEncoder
from xclearn.parts.row_training import Negatives, RowTask, encoded, row_weights
from xclearn.parts.rows import SparseRows, feature_rows
from xclearn.parts.setting_types import FusionWeight, LabelLr
from xclearn.parts.sparse_ranking import SparseRanking
from xclearn.parts.transfer import TransferBlock, TransferEncoder
from xclearn.search.nearest import Method
from xclearn.search.shortlists import Centres
from xclearn.text import Subwords, WordPiece, Words
from xclearn.training.algorithm import Algorithm
from xclearn.training.label_search import LabelSearch
from xclearn.training.plan import Plan, StageCost, Steps, beside, stage_cost
from xclearn.training.prepare import Prepared, Size
from xclearn.training.row_stages import ROW_LR, RowStages, ScoreMix, reranker_mix, reranker_task
from xclearn.training.run import Run
from xclearn.training.scoring import best_fusion_weight, mixed_with, task_score
from xclearn.training.stage import Stage, Stopping
from xclearn.training.token_table import start_from

_FUSION_WEIGHTS = (1.0, 0.9, 0.75, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.05, 0.0)  # candidates
_MOST_EPOCHS, _ENOUGH = 25, 250_000  # with few labels on a CPU: maximum epochs; documents to be seen


@final
@dataclass(kw_only=True)
class Lightdxml(Algorithm):
    """Label embeddings and a classifier per label on the nearest labels, trained in alternation."""

    name: ClassVar[str] = "lightdxml"

    vectoriser: Words | WordPiece | Subwords = field(default_factory=Words)  # how texts become tokens
    embedding_dim: Annotated[Auto[Count], Span(64, 512, log=True)] = AUTO  # length of document and label vectors
    word_vectors: str | None = None  # initial token vectors: a file, a transformer's folder or minilm; none: random
    dropout: Annotated[Auto[Share], Span(0.0, 0.6)] = AUTO  # dropout after each ReLU
    batch_size: Auto[Count] = AUTO  # documents per step
    model_epochs: Auto[Count] = AUTO  # passes over train of encoder and classifiers, all cycles together
    model_lr: Annotated[Auto[Rate], Span(0.0005, 0.02, log=True)] = AUTO  # peak learning rate of the encoder (Adam)
    label_optimiser: Literal["sgd", "adam"] = "sgd"  # optimiser of label rows; the authors use adam
    label_lr: LabelLr = AUTO  # peak learning rate of label rows; auto: 0.1 or 0.2 for sgd, model_lr for adam
    warm_up: Share = 0.1  # share of training in which learning rates rise
    negatives: Auto[Literal["nearest", "all"]] = AUTO  # negative labels: nearest by embedding, or all
    shortlist_size: Count = 500  # nearest labels, as hard negatives and as candidates when predicting
    n_random: Number = 0  # random labels per step added to the nearest
    search: Auto[Method] = AUTO  # exact, or a faiss index; auto: by the number of labels and what is installed
    refresh_every: Auto[Count] = AUTO  # epochs between embeddings of the labels
    final_refresh: bool = True  # also embed labels after the last epoch; the authors do not
    label_epochs: Auto[Count] = AUTO  # passes over pairs of documents and labels per embedding
    label_encoder_dim: Auto[Count] = AUTO  # hidden size of the label encoder
    label_encoder_relu: bool = True  # end the label encoder with a ReLU, as in the paper; the authors' code does not
    label_encoder_lr: Rate = 0.001  # peak learning rate of the label encoder (Adam)
    label_batch_size: Count = 2048  # pairs per step
    reranker_epochs: Number = 0  # passes over train of a re-ranker like Astec's; 0: no re-ranker
    reranker_lr: Rate = 0.003  # peak learning rate of the re-ranker (Adam)
    reranker_size: Count = 100  # shortlist size of the re-ranker
    reranker_random: Number = 50  # random labels added to it; without any, the re-ranker misjudges lower labels
    reranker_weight: Share = 0.5  # weight of the re-ranker's logit beside the classifier's
    fusion: ScoreMix = "plain"  # row_max divides scores by their row's maximum; two_levels mixes a sigmoid of each
    fusion_weight: FusionWeight = AUTO  # weight of classifiers against the similarity to label embeddings
    sparse_ranker: SparseRanking | None = None  # sparse classifiers that re-rank the best labels
    calibration: Calibration | None = None  # a tree that calibrates scores, learnt on the hold-out
    stopping: Stopping | None = (
        None  # stop early by a held-out metric, keep the best cycle, and choose fusion_weight by it
    )

    def _auto(self, size: Size, device: str) -> dict[str, Any]:
        gpu, few = device == "cuda", size.n_labels <= FEW_LABELS  # beyond: trained slowly, for longer, in large batches
        small = min(_MOST_EPOCHS, max(10, _ENOUGH // size.n_documents))
        usual_epochs = {(True, True): 15, (True, False): 20, (False, True): small, (False, False): 14}[gpu, few]
        dim = wider_dim(size.n_labels, device) if self.embedding_dim is AUTO else self.embedding_dim
        epochs = usual_epochs if self.model_epochs is AUTO else self.model_epochs
        usual = "all" if gpu or size.n_labels <= 10_000 else "nearest"
        negatives = usual if self.negatives is AUTO else self.negatives
        return {
            "embedding_dim": dim,
            "dropout": 0.5 if gpu or few else 0.3,
            "model_epochs": epochs,
            "model_lr": (0.007 if gpu else 0.01) if few else 0.003,
            "label_lr": 0.2 if gpu and few and (negatives, self.label_optimiser) == ("all", "sgd") else AUTO,
            "batch_size": min((512 if few else 1024) if gpu else 256, max(16, size.n_documents // 50)),
            "negatives": negatives,
            "refresh_every": math.ceil(epochs / 2),
            "label_epochs": 4 if negatives == "all" else 2,
            "label_encoder_dim": 2 * dim,
            "fusion_weight": AUTO if self.stopping else 0.75 if negatives == "all" else 0.3,
        }

    def _unread(self, size: Size, device: str) -> Iterator[tuple[str, str]]:  # noqa: ARG002
        if not self._nearest:
            yield 'set negatives = "nearest"', "refresh_every n_random search final_refresh"
        if not self.reranker_epochs:
            yield "set reranker_epochs", "reranker_lr reranker_size reranker_random reranker_weight"
            yield from [("set reranker_epochs", "fusion")] if self.fusion == "two_levels" else []

    def _plan(self, size: Size, device: str) -> Plan:
        dim = self.embedding_dim
        n_labels = size.n_labels
        batch = self.label_batch_size
        tokens = size.sparse_tokens(self.batch_size, device)
        encoder = [
            *encoder_weights(BagSettings(), self.vectoriser, size.n_features, dim, tokens),
            Weights(values=dim**2),
        ]
        network = sum(part.held for part in [*encoder, row_weights(n_labels, dim, self.label_optimiser, device)])
        # the label encoder, beside the network, label means and embeddings
        placing = len(self._cycles()) * self._nearest + (self.final_refresh or not self._nearest)
        pairs = Weights(values=2 * dim * self.label_encoder_dim)
        labels = stage_cost(
            "labels",
            [pairs],
            epochs=self.label_epochs * placing,
            products=size.n_relevant * pairs.values,
            path=f"{size.n_relevant:,} pairs of a document and its label",
            steps=Steps(size.n_relevant / batch, pairs.gradient + 16 * batch * dim + 4 * n_labels * dim),
        )
        # encoder and rows, and with stopping copies of the best epoch and cycle
        listed = min(n_labels, self.shortlist_size + self.n_random) if self._nearest else n_labels
        copies = 1 + self._nearest if self.stopping else 0
        model = self._cost("model", size, encoder, self.model_epochs, listed, device)
        stages = [beside(labels, network), beside(model, copies * network)]
        if self.reranker_epochs:
            first = min(n_labels, self.reranker_size + self.reranker_random)
            stages.append(beside(self._cost("re-ranker", size, encoder, self.reranker_epochs, first, device), network))
        held = 4 * dim * (size.n_documents + n_labels)  # vectors of documents, embeddings of labels
        lists = 4 * size.n_documents * min(n_labels, self.shortlist_size) * self._nearest
        return Plan(device=device, data=size.data_bytes + held + lists, stages=tuple(stages))

    def _cost(self, name: str, size: Size, trained: list[Weights], epochs: int, scored: int, device: str) -> StageCost:
        path = f"{self.negatives}: {scored:,} of {size.n_labels:,} labels per document"
        stages = self._row_stages(device)
        return stages.cost(name, size, trained, epochs=epochs, outputs=size.n_labels, scored=scored, path=path)

    def _stages(self, data: Prepared, run: Run) -> Iterator[Stage]:
        self._documents = feature_rows(data.features, run.device)
        self._labels = SparseRows.of(data.relevance, run.device)
        if missing := data.size.n_labels - len(np.unique(data.relevance.indices)):
            run.note(labels_without_documents=missing)  # they have no centroid and are never found
        rows = self._row_stages(run.device.type)
        epochs = self.model_epochs
        lr = self.model_lr
        encoder = self._encoder(data, run)
        classifier = rows.classifier(data.size.n_labels, lr, ROW_LR)
        self.encoders_ = {"document": encoder}
        self.classifiers_ = {"document": classifier}
        hidden, relu = self.label_encoder_dim, self.label_encoder_relu
        places = LabelEncoder(encoder.dim, hidden, run.generator("places"), relu=relu).to(run.device)
        task = RowTask(encoder, classifier, self._documents, self._labels, Negatives())
        best = BestCycle(task.module, self.stopping.patience if self.stopping else 1)
        among_nearest = rows.served_score(lambda: mixed_with(self._servable(data), 1.0), data)
        # among the negatives
        score = among_nearest if self._nearest else task_score(task, data, self.stopping)
        for begin, end in self._cycles():
            if self._nearest:
                vectors = yield from self._place(f"labels-{begin}", places, data, run)
                task = replace(task, negatives=self._lists(f"lists-{begin}", vectors, data, run))
            yield rows.stage(f"model-{begin}", task, lr, end - begin, (begin / epochs, end / epochs), score)
            if self._nearest and score is not None and best.finished(score(), end - begin):
                break
        best.restore()
        if self.final_refresh or not self._nearest:
            yield from self._place("labels-last", places, data, run)
        if self.reranker_epochs:
            fresh = deepcopy(encoder)
            classifier = rows.classifier(data.size.n_labels, lr, ROW_LR)
            self.encoders_["re-ranker"] = fresh
            self.classifiers_["re-ranker"] = classifier
            sizes = self.reranker_size, self.reranker_random
            ranker = reranker_task("first", task, fresh, classifier, self._documents, sizes, run)
            yield rows.stage("re-ranker", ranker, self.reranker_lr, self.reranker_epochs)
        if self.fusion_weight is AUTO:
            self.fusion_weight = best_fusion_weight(data, self.stopping, self._servable(data), _FUSION_WEIGHTS)

    def _servable(self, data: Prepared) -> Servable:
        encoders = {name: encoder.eval().served() for name, encoder in self.encoders_.items()}
        scorers = [classifier.served(name) for name, classifier in self.classifiers_.items()]
        candidates = self.centres_.served("document", self.shortlist_size)
        mix = reranker_mix(len(scorers), self.reranker_weight, self.fusion_weight, self.fusion)
        return Servable(data.vectoriser, encoders, candidates, list(scorers), mix)

    def _row_stages(self, device: str) -> RowStages:
        return RowStages(
            dim=self.embedding_dim,
            batch_size=self.batch_size,
            warm_up=self.warm_up,
            stopping=self.stopping,
            device=device,
            label_optimiser=self.label_optimiser,
            label_lr=self.label_lr,
        )

    @property
    def _nearest(self) -> bool:
        return self.negatives == "nearest"

    def _cycles(self) -> list[tuple[int, int]]:
        """First epoch and end of each cycle; a single cycle if there are no shortlists."""
        epochs, every = self.model_epochs, self.refresh_every
        if every > epochs:
            allowed = f"up to model_epochs = {epochs}"
            raise ConfigError("a cycle is longer than training", where="refresh_every", got=every, allowed=allowed)
        every = every if self._nearest else epochs
        return [(begin, min(begin + every, epochs)) for begin in range(0, epochs, every)]

    def _place(self, name: str, places: LabelEncoder, data: Prepared, run: Run) -> Generator[Stage, None, torch.Tensor]:
        """Train the label encoder on the current document vectors (N, D), and embed the labels."""
        vectors = encoded(self.encoders_["document"], self._documents, run.device)
        task = LabelTask(places, vectors, label_means(vectors, self._labels), self._labels)
        stages = replace(self._row_stages(run.device.type), batch_size=self.label_batch_size)
        yield stages.stage(name, task, self.label_encoder_lr, self.label_epochs)
        found = torch.from_numpy(np.unique(data.relevance.indices)).long().to(run.device)
        self.centres_ = Centres(F.normalize(task.embeddings()[found], dim=1), found)
        return vectors

    def _lists(self, name: str, vectors: torch.Tensor, data: Prepared, run: Run) -> Negatives:
        search = LabelSearch(data.relevance, run, self.shortlist_size, self.search)
        lists = search.lists(name, vectors, centres=self.centres_)
        return Negatives(shortlist=torch.from_numpy(lists).to(run.device), drawn=self.n_random)

    def _encoder(self, data: Prepared, run: Run) -> TransferEncoder:
        """A bag of tokens and a residual block, as in Astec."""
        dim, dropout = self.embedding_dim, self.dropout
        sparse = run.device.type == "cpu" and not data.size.dense
        base = BagEncoder(data.size.n_features, dim, dropout, run.generator("encoder"), sparse=sparse)
        if self.word_vectors is not None:
            start_from(base.token_embeddings.data, self.word_vectors, data, run)
        return TransferEncoder(base, TransferBlock(dim, dropout, "spectral", 1.0)).to(run.device)
