"""Astec and its framework DeepXML: features from an easier task, shortlists, and one classifier a label on them.

From Dahiya et al., "DeepXML: A Deep Extreme Multi-Label Learning Framework Applied to Short Text Documents" (WSDM
2021). Module I trains the encoder on clusters of labels, Module II lists the labels that each document could be
confused with, Module III adds a residual block of bounded norm, Module IV trains it with a classifier of every label on
the lists. A re-ranker, a fresh network, learns from Module IV's own mistakes. Each choice of a module is a setting.

What differs from the authors' code: with `negatives = "all"` (the default on a GPU, and for few labels) Module IV
trains against all labels and needs no lists; label rows start at zero with the prior −ln L and are trained by SGD
instead of Adam; blocks have no bias; one learning-rate cycle a stage instead of halvings; a served model looks for
candidates among label centres only, not among training documents; the weight of the two scores is chosen on held-out
documents, never on test.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, final, get_args

import numpy as np
import torch

from xclearn.config import Count, Range, Rate, Share
from xclearn.config import Size as Number
from xclearn.errors import ConfigError
from xclearn.inference.components import Encoder, Scorer
from xclearn.inference.servable import Ensemble, Servable
from xclearn.inference.shortlists import CentroidSearch, Mix
from xclearn.parts.calibration import Calibration
from xclearn.parts.classifiers import RowClassifier, row_width
from xclearn.parts.encoder_settings import (
    Bag,
    Convolution,
    Multilayer,
    Transformer,
    encoder_dim,
    encoder_for,
    encoder_parameters,
    make_encoder,
    usual_dim,
)
from xclearn.parts.encoders import BagEncoder, DocumentEncoder, encoder_optimisers
from xclearn.parts.frozen import Frozen, solved
from xclearn.parts.game import GameStep
from xclearn.parts.losses import SCORES_AT_ONCE, OutputLoss
from xclearn.parts.re_ranking import SparseRanking
from xclearn.parts.row_training import (
    ROW_UPDATES,
    Negatives,
    ProjectionTask,
    RowTask,
    encoded,
    row_classifier,
    unigram_chance,
)
from xclearn.parts.rows import DenseRows, SparseRows, feature_rows
from xclearn.parts.surrogates import (
    Surrogate,
    bags_of,
    surrogate_targets,
    target_rows,
    word_vectors,
)
from xclearn.parts.transfer import Transfer, TransferBlock, TransferEncoder
from xclearn.search.nearest import Method
from xclearn.search.shortlists import Centres, ListSource, Shortlister, label_centres
from xclearn.text import Pretrained, Sequences, WordPiece, Words
from xclearn.training.algorithm import Algorithm, number
from xclearn.training.plan import Plan, StageCost
from xclearn.training.prepare import Prepared, Size
from xclearn.training.run import Run
from xclearn.training.scoring import best_fusion, held_out_score
from xclearn.training.stage import Batch, Stage, Stopping, one_cycle

_EXACT = 20_000  # outputs up to which a CPU scores all of them in a step
_SGD_LR, _LISTS_LR, _RERANKER_LR = 0.1, 1.0, 0.4  # of label rows, per document: fewer labels a step, larger steps
_LISTED = get_args(ListSource)
_FUSION_WEIGHTS = (1.0, 0.9, 0.75, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.05, 0.02)  # to choose from


@final
@dataclass(frozen=True)
class _Member:
    """What one member of the ensemble serves."""

    encoders: dict[str, Encoder]
    candidates: CentroidSearch
    scorers: list[Scorer]


@final
@dataclass(kw_only=True)
class Astec(Algorithm):
    """Features learnt on clusters of labels, then a classifier of each label on shortlists, and a re-ranker."""

    name: ClassVar[str] = "astec"

    vectoriser: Words | WordPiece | Sequences | Pretrained = field(default_factory=Words)  # how texts become tokens
    encoder: Bag | Multilayer | Convolution | Transformer | None = None  # auto: what reads the vectoriser's tokens
    embedding_dim: Count | None = None  # length of document and label vectors
    dropout: Share | None = None  # after the ReLU of residual blocks
    batch_size: Count | None = None  # documents per step
    surrogate: Surrogate = "clusters"  # Module I: the task that features are learnt on
    n_clusters: Count | None = None  # outputs of that task: clusters, buckets, frequent labels or directions
    surrogate_epochs: Count | None = None  # passes over train in Module I
    surrogate_lr: Rate = 0.003  # peak learning rate of Module I (Adam)
    surrogate_loss: OutputLoss = "bce_sum"  # of Module I
    negatives: ListSource | Literal["uniform", "unigram", "all"] | None = None  # Module II: labels trained against
    shortlist_size: Count = 500  # labels of a document's shortlist
    n_random: Number = 50  # random labels beside each shortlist
    n_drawn: Count = 1024  # labels drawn in a step by uniform and unigram negatives
    unigram_power: Share = 0.75  # of label counts when drawing by unigram
    head_centres: Number = 0  # centres beside the mean of labels with many documents
    head_documents: Count = 7500  # documents from which on a label has them
    search: Method | None = None  # exact, or an index of faiss
    rebuild_every: Count = 5  # epochs after which lists are made anew while the encoder is trained
    transfer: Transfer = "spectral"  # Module III: how features may move
    transfer_limit: Annotated[float, Range(0, 1, open_low=True)] = 1.0  # spectral norm of the residual block
    classifier: Literal["rows"] | Frozen = "rows"  # Module IV: rows trained with the block, or a solver over features
    extreme_epochs: Count | None = None  # passes over train in Module IV
    extreme_lr: Rate = 0.003  # peak learning rate of Module IV (Adam)
    loss: OutputLoss = "bce_sum"  # of Module IV and the re-ranker
    label_optimiser: Literal["sgd", "adam"] = "sgd"  # of label rows; adam is the authors' choice
    label_lr: Rate | None = None  # peak learning rate of label rows; auto: by module and optimiser
    warm_up: Share = 0.1  # share of each stage in which learning rates rise
    reranker_epochs: Number | None = None  # passes over train of the re-ranker; 0 leaves it out
    reranker_lr: Rate = 0.003  # peak learning rate of the re-ranker (Adam)
    reranker_size: Count = 100  # labels that the re-ranker is trained on for each document
    reranker_weight: Share = 0.5  # of the re-ranker's logit beside the classifier's
    fusion: Literal["plain", "row_max"] = "plain"  # whether scores are divided by the largest of their row
    fusion_weight: Share | None = None  # of classifiers beside the similarity to label centres
    served_labels: Count | None = None  # labels scored for a document when predicting
    n_members: Count = 1  # ensemble members, each trained on its own
    game: GameStep | None = None  # pass the scores of the best labels on over a label graph
    sparse_ranker: SparseRanking | None = None  # sparse classifiers that rank the best labels anew; auto: none
    calibration: Calibration | None = None  # a tree that calibrates scores, learnt on the hold-out; auto: none
    stopping: Stopping | None = None  # end Module IV on a held-out metric, and choose fusion_weight by it

    def _auto(self, size: Size, device: str) -> dict[str, Any]:
        gpu = device == "cuda"
        scale = max(1, min(8, 50_000 // size.n_documents))  # small sets need more passes for as many steps
        few = {"selection": math.ceil(size.n_labels / 5), "projection": min(256, size.n_labels)}
        clusters = 2 ** min(16, max(0, math.floor(math.log2(size.n_labels / 2))))
        negatives = self.negatives or ("all" if gpu or size.n_labels <= 4_000 else "both")
        return {
            "encoder": encoder_for(self.vectoriser),
            "embedding_dim": usual_dim(size.n_labels, device),
            "batch_size": min(1024, max(16, size.n_documents // 50)),
            "n_clusters": few.get(self.surrogate, clusters),
            "dropout": 0.5 if gpu else 0.3,
            "surrogate_epochs": 10 * scale,
            "extreme_epochs": 10 * scale,
            "reranker_epochs": 10 * scale if self.classifier == "rows" else 0,
            "negatives": negatives,
            "fusion_weight": None if self.stopping else 0.9 if negatives == "all" else 0.3,
            "served_labels": self.shortlist_size,
        }

    def _plan(self, size: Size, device: str) -> Plan:
        outputs, listed = number(self.n_clusters), self.shortlist_size + self.n_random
        sampled = outputs > _EXACT and device == "cpu"
        against = {"all": size.n_labels, "uniform": self.n_drawn, "unigram": self.n_drawn}.get(
            str(self.negatives), listed
        )
        stages = [
            ("surrogate", outputs, self.n_drawn if sampled else outputs, self.surrogate_epochs),
            ("extreme", size.n_labels, min(size.n_labels, against), self.extreme_epochs),
            ("re-ranker", size.n_labels, min(size.n_labels, self.reranker_size), self.reranker_epochs),
        ]
        left_out = {"surrogate": self.surrogate in ("none", "word_vectors"), "re-ranker": not self.reranker_epochs}
        costs = [self._cost(stage, size, device) for stage in stages if not left_out.get(stage[0])] * self.n_members
        held = 4 * size.n_documents * (self.shortlist_size + number(self.embedding_dim))  # lists and vectors
        data = 8 * (size.n_feature_entries + size.n_relevant) + 16 * size.n_documents + held
        return Plan(device=device, data=data, stages=tuple(costs))

    def _cost(self, stage: tuple[str, int, int, int | None], size: Size, device: str) -> StageCost:
        """The network before it is still there; a document is trained against `scored` outputs."""
        name, outputs, scored, epochs = stage
        batch, gpu = number(self.batch_size), device == "cuda"
        dim = encoder_dim(self.vectoriser, number(self.embedding_dim))
        assert self.encoder is not None
        table, rest = encoder_parameters(self.encoder, self.vectoriser, size.n_features, dim)
        rows, before = outputs * row_width(dim), 0 if name == "surrogate" else table
        block = min(batch * scored, SCORES_AT_ONCE[device]) * (2 if gpu else 4)
        return StageCost(
            name=name,
            parameters=4 * (table + rest + before) + (10 if name == "re-ranker" else 6 if gpu else 4) * rows,
            optimiser=8 * (table + rest) + ROW_UPDATES[self.label_optimiser].bytes_per_value() * rows,
            working=max(3 * block, 4 * rows),  # scores and their gradients; later the served copy
            flops_per_epoch=6.0 * size.n_documents * scored * row_width(dim),
            epochs=number(epochs),
            path=f"{self.negatives}: {scored:,} of {outputs:,} outputs a document",
        )

    def _stages(self, data: Prepared, run: Run) -> Iterator[Stage]:
        self._documents = feature_rows(data.features, run.device)
        self._labels = SparseRows.of(data.relevance, run.device)
        self.steps_ = [self.game.build(data.relevance, data.label_names, run.seed_of("graph"))] if self.game else []
        self.members_: list[_Member] = []
        for member in range(self.n_members):
            base = self._encoder(data, run, member, "encoder")
            if self.surrogate == "word_vectors":
                self._set_word_vectors(base, data, run)
            elif self.surrogate != "none":
                yield self._surrogate_stage(data, run, member, base)
            if self.classifier == "rows":
                yield from self._rows_stages(data, run, member, base)
            else:
                self._solved(data, run, member, base)
        if self.fusion_weight is None:
            fusions = {weight: self._served(data, 0, weight).fusion for weight in _FUSION_WEIGHTS}
            self.fusion_weight = best_fusion(data, self.stopping, self._served(data, 0, 1.0), fusions)

    def _servable(self, data: Prepared) -> Servable | Ensemble:
        assert self.fusion_weight is not None
        served = [self._served(data, member, self.fusion_weight) for member in range(self.n_members)]
        return served[0] if len(served) == 1 else Ensemble(served)

    def _served(self, data: Prepared, member: int, weight: float) -> Servable:
        parts = self.members_[member]
        weights = [1.0] if len(parts.scorers) == 1 else [1 - self.reranker_weight, self.reranker_weight]
        mix = Mix(weights, weight, self.fusion == "row_max")
        return Servable(data.vectoriser, parts.encoders, parts.candidates, parts.scorers, mix, self.steps_)

    def _surrogate_stage(self, data: Prepared, run: Run, member: int, base: DocumentEncoder) -> Stage:
        """Module I: the encoder with a block of its own on an easier task; all but the encoder is then discarded."""
        encoder = TransferEncoder(base, self._block(base.dim, "spectral")).to(run.device)
        outputs, seed, bags = number(self.n_clusters), run.seed_of("surrogate", member), self._bags(data)
        arrays = run.keep_all(
            f"surrogate-{member}",
            "",
            lambda: surrogate_targets(self.surrogate, outputs, data.relevance, bags, seed, run.device),
        )
        name, epochs, lr = f"surrogate-{member}", number(self.surrogate_epochs), self.surrogate_lr
        optimisers = _optimisers(encoder, lr)
        if "values" in arrays:
            with run.seeded("projection", member):
                head = torch.nn.Linear(base.dim, arrays["values"].shape[1]).to(run.device)
            optimisers.append(torch.optim.Adam(head.parameters(), lr=lr))
            targets = torch.from_numpy(arrays["values"]).to(run.device)
            return self._stage(name, ProjectionTask(encoder, head, self._documents, targets), optimisers, epochs)
        classifier = self._classifier(outputs, base.dim, self.surrogate_loss, (lr, _SGD_LR), run)
        negatives = Negatives(drawn=self.n_drawn if outputs > _EXACT and run.device.type == "cpu" else 0)
        positives = target_rows(arrays, outputs, run.device)
        task = RowTask(encoder, classifier, self._documents, positives, negatives)
        return self._stage(name, task, optimisers, epochs)

    def _rows_stages(self, data: Prepared, run: Run, member: int, base: DocumentEncoder) -> Iterator[Stage]:
        """Modules II to IV and the re-ranker. While the encoder itself is trained, lists are made anew now and then."""
        joint, epochs = self.surrogate == "none" or self.transfer == "fine_tune", number(self.extreme_epochs)
        block = self._block(base.dim, self.transfer).to(run.device)
        encoder = TransferEncoder(base, block)
        rates = (self.extreme_lr, _LISTS_LR if self.negatives in _LISTED else _SGD_LR)
        classifier = self._classifier(data.size.n_labels, base.dim, self.loss, rates, run)
        every = self.rebuild_every if joint and self.negatives in _LISTED else epochs
        for begin in range(0, epochs, every):
            end, vectors = min(begin + every, epochs), encoded(base, self._documents, run.device)
            documents, trained = (self._documents, encoder) if joint else (DenseRows(vectors), block)
            negatives = self._negatives(vectors, data, run, f"lists-{member}-{begin}")
            task = RowTask(trained, classifier, documents, self._labels, negatives)
            share, score = (begin / epochs, end / epochs), None
            if end == epochs and self.stopping is not None:
                score = self._score(RowTask(encoder, classifier, documents, self._labels, negatives), data, run)
            optimisers = _optimisers(trained, self.extreme_lr)
            yield self._stage(f"extreme-{member}-{begin}", task, optimisers, end - begin, share, score)
        encoders: dict[str, Encoder] = {"shortlist": base.served(), "document": encoder.served()}
        scorers: list[Scorer] = [classifier.served("document")]
        if self.reranker_epochs:
            ranker = self._reranker(task, base, data, run, member)
            assert isinstance(ranker.encoder, DocumentEncoder)
            optimisers = _optimisers(ranker.encoder, self.reranker_lr)
            yield self._stage(f"re-ranker-{member}", ranker, optimisers, self.reranker_epochs)
            encoders["re-ranker"] = ranker.encoder.served()
            scorers.append(ranker.classifier.served("re-ranker"))
        self._add_member(encoders, scorers, base, data, run)

    def _solved(self, data: Prepared, run: Run, member: int, base: DocumentEncoder) -> None:
        """Module IV by a solver over the intermediate features."""
        if self.reranker_epochs:
            raise ConfigError(
                "only rows have a re-ranker", where="reranker_epochs", got=self.reranker_epochs, allowed="0"
            )
        vectors = encoded(base, self._documents, run.device)
        lists = self._lists(vectors, data, run, f"lists-{member}", "centroids") if self.classifier == "slice" else None
        seed, kind = run.seed_of("solver", member), self.classifier
        assert kind != "rows"
        scorer = solved(kind, "document", vectors.cpu().numpy(), data.relevance, lists, seed)
        served = base.served()
        self._add_member({"shortlist": served, "document": served}, [scorer], base, data, run)

    def _add_member(
        self, encoders: dict[str, Encoder], scorers: list[Scorer], base: DocumentEncoder, data: Prepared, run: Run
    ) -> None:
        centres = self._centres(encoded(base, self._documents, run.device), data, run)
        self.members_.append(_Member(encoders, centres.served("shortlist", number(self.served_labels)), scorers))

    def _reranker(self, task: RowTask, base: DocumentEncoder, data: Prepared, run: Run, member: int) -> RowTask:
        """A network of its own, to be trained on the labels that Module IV ranks first."""
        shortlist, size = task.negatives.shortlist, min(self.reranker_size, data.size.n_labels)
        kept = run.keep(f"first-{member}", "", lambda: task.best_of(shortlist, size).cpu().numpy())
        fresh = self._encoder(data, run, member, "re-ranker")
        fresh.load_state_dict(base.state_dict())
        encoder = TransferEncoder(fresh, self._block(base.dim, "spectral")).to(run.device)
        rates = (self.reranker_lr, _RERANKER_LR)
        classifier = self._classifier(data.size.n_labels, base.dim, self.loss, rates, run)
        first = Negatives(shortlist=torch.from_numpy(kept).to(run.device))
        return RowTask(encoder, classifier, self._documents, self._labels, first)

    def _negatives(self, vectors: torch.Tensor, data: Prepared, run: Run, name: str) -> Negatives:
        """Module II."""
        if self.negatives == "uniform" or self.negatives == "unigram":
            power = self.unigram_power if self.negatives == "unigram" else 0.0
            return Negatives(drawn=self.n_drawn, chance=unigram_chance(data.label_counts, power, run.device))
        if self.negatives == "all" or self.negatives is None:
            return Negatives()
        lists = self._lists(vectors, data, run, name, self.negatives)
        return Negatives(shortlist=torch.from_numpy(lists).to(run.device), drawn=self.n_random)

    def _lists(self, vectors: torch.Tensor, data: Prepared, run: Run, name: str, source: ListSource) -> np.ndarray:
        said, seed, size = partial(run.log, "search"), run.seed_of(name), self.shortlist_size
        shortlister = Shortlister(source=source, size=size, method=self.search, seed=seed, said=said)
        return run.keep(name, "", lambda: shortlister.lists(vectors, data.relevance, self._centres(vectors, data, run)))

    def _centres(self, vectors: torch.Tensor, data: Prepared, run: Run) -> Centres:
        extra, head, seed = self.head_centres, self.head_documents, run.seed_of("centres")
        return label_centres(vectors, data.relevance, n_extra=extra, head=head, seed=seed)

    def _encoder(self, data: Prepared, run: Run, member: int, name: str) -> DocumentEncoder:
        """The encoder without a block."""
        assert self.encoder is not None
        dim, generator, sparse = number(self.embedding_dim), run.generator(name, member), run.device.type == "cpu"
        made = make_encoder(
            self.encoder, self.vectoriser, data.vectoriser, dim, generator, sparse=sparse and not data.size.dense
        )
        return made.to(run.device)

    def _set_word_vectors(self, base: DocumentEncoder, data: Prepared, run: Run) -> None:
        if not isinstance(base, BagEncoder):
            raise ConfigError("word vectors need an encoder that sums them", where="surrogate", got=self.surrogate)
        dim, seed, bags = base.dim, run.seed_of("word_vectors"), self._bags(data)
        table = run.keep("word_vectors", "", lambda: word_vectors(bags, dim, seed))
        base.token_embeddings.data.copy_(torch.from_numpy(table))

    def _bags(self, data: Prepared) -> Any:
        return bags_of(data.features, data.size.n_features)

    def _block(self, dim: int, kind: Transfer) -> TransferBlock:
        return TransferBlock(dim, float(self.dropout or 0), kind, self.transfer_limit)

    def _classifier(
        self, n_outputs: int, dim: int, loss: OutputLoss, rates: tuple[float, float], run: Run
    ) -> RowClassifier:
        """`rates` are the learning rates of rows by Adam and by SGD when none is set."""
        adam, sgd = rates[0], _SGD_LR if loss == "squared_hinge" else rates[1]  # its gradient has no bound
        rate = self.label_lr or {"adam": adam, "sgd": sgd}[self.label_optimiser]
        return row_classifier(n_outputs, dim, rate, self.label_optimiser, loss, run.device)

    def _stage(
        self,
        name: str,
        task: RowTask | ProjectionTask,
        optimisers: list[torch.optim.Optimizer],
        epochs: int,
        share: tuple[float, float] = (0.0, 1.0),
        score: Callable[[], float] | None = None,
    ) -> Stage:
        """`share` of the learning-rate cycle is run through."""

        def loss(batch: Batch) -> torch.Tensor:
            return task.loss(batch.rows, batch.step, batch.generator)

        cycle, (begin, end) = one_cycle(self.warm_up), share
        return Stage(
            name=name,
            module=task.module,
            loss=loss,
            n_items=len(task.documents),
            batch_size=number(self.batch_size),
            epochs=epochs,
            optimisers=optimisers,
            schedule=lambda done: cycle(begin + done * (end - begin)),
            score=score,
            patience=self.stopping.patience if self.stopping and score else None,
        )

    def _score(self, task: RowTask, data: Prepared, run: Run) -> Callable[[], float]:
        assert self.stopping is not None
        assert data.held_out_features is not None
        held_out = feature_rows(data.held_out_features, run.device)
        return held_out_score(data, self.stopping.metric, lambda rows, k: task.best(held_out, rows.to(run.device), k))


def _optimisers(module: torch.nn.Module, lr: float) -> list[torch.optim.Optimizer]:
    if isinstance(module, DocumentEncoder):
        return encoder_optimisers(module, lr)
    return [torch.optim.Adam(module.parameters(), lr=lr)]
