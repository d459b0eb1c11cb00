"""Astec and its framework DeepXML: features from an easier task, shortlists, and one classifier per label on them.

From Dahiya et al., "DeepXML: A Deep Extreme Multi-Label Learning Framework Applied to Short Text Documents" (WSDM
2021). Module I trains the encoder on clusters of labels, Module II finds hard negatives for each document, Module III
adds a residual block of bounded norm, and Module IV trains it together with a classifier for every label on the
shortlists. A re-ranker, a separate network, learns from Module IV's mistakes. Each module's variants are settings.

Differences from the authors' code: with `negatives = "all"` (the default on a GPU and for few labels, except with
`surrogate = "none"`, which is DeepXML-ANNS) Module IV trains against all labels and needs no shortlists; label rows
start at zero with the prior −ln L and are trained by SGD instead of Adam; blocks have no bias; each stage has one
learning-rate cycle instead of halvings; a served model searches candidates among label centroids only, not training
documents; the weight of the two scores is chosen on held-out documents, never on test.

Good for: very many labels without descriptive texts, each with enough documents.
Cost: a shortlist instead of all labels; slow for a deep algorithm on a CPU.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Literal, TypeAlias, final, get_args

import torch

from xclearn.algorithms.astec.cost import ModuleCosts
from xclearn.algorithms.astec.surrogates import (
    UNTRAINED,
    Surrogate,
    bags_of,
    drawn_outputs,
    summed_tokens,
    surrogate_targets,
    surrogate_task,
    usual_outputs,
)
from xclearn.algorithms.astec.unread import unread
from xclearn.config import AUTO, Auto, Count, Number, Range, Rate, Share, Span
from xclearn.inference.components import Encoder, Scorer
from xclearn.inference.layered import layered
from xclearn.inference.servable import Ensemble, Servable
from xclearn.labels.graph import RandomWalk
from xclearn.parts.calibration import Calibration
from xclearn.parts.encoder_settings import (
    AnyText,
    EncoderSettings,
    encoder_dim,
    encoder_for,
    encoder_weights,
    wider_dim,
)
from xclearn.parts.encoders import DocumentEncoder
from xclearn.parts.frozen import Frozen, latent_tokens, skip_gram_tokens, solved
from xclearn.parts.game import GameStep
from xclearn.parts.losses import OutputLoss
from xclearn.parts.row_training import Negatives, RowTask, encoded, unigram_chance
from xclearn.parts.rows import DenseRows, SparseRows, feature_rows
from xclearn.parts.setting_types import FusionWeight, LabelLr
from xclearn.parts.sparse_ranking import SparseRanking
from xclearn.parts.transfer import Transfer, TransferBlock, TransferEncoder
from xclearn.search.nearest import Method
from xclearn.search.shortlists import ListSource
from xclearn.text import Words
from xclearn.training.algorithm import Algorithm, together
from xclearn.training.label_search import LabelSearch
from xclearn.training.plan import Plan, of_members
from xclearn.training.prepare import Prepared, Size
from xclearn.training.row_stages import ROW_LR, RowStages, ScoreMix, reranker_mix, reranker_task
from xclearn.training.run import Run
from xclearn.training.scoring import best_fusion_weight, mixed_with, task_score
from xclearn.training.stage import Stage, Stopping
from xclearn.training.token_table import start_from

_Parts: TypeAlias = tuple[dict[str, Encoder], list[Scorer]]  # of a member
_LISTS_LR, _RERANKER_LR = 1.0, 0.4  # learning rates of label rows by SGD: fewer labels per step need larger rates
_FUSION_WEIGHTS = (1.0, 0.9, 0.75, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.05, 0.02)  # candidates


@final
@dataclass(kw_only=True)
class Astec(Algorithm):
    """Features learnt on clusters of labels, then a classifier per label on shortlists, and a re-ranker."""

    name: ClassVar[str] = "astec"

    vectoriser: AnyText = field(default_factory=Words)  # how texts become tokens
    encoder: Auto[EncoderSettings] = AUTO  # auto: the one that reads the vectoriser's tokens
    embedding_dim: Annotated[Auto[Count], Span(64, 512, log=True)] = AUTO  # length of document and label vectors
    word_vectors: str | None = None  # initial token vectors: a file, a transformer's folder or minilm; none: random
    dropout: Annotated[Auto[Share], Span(0.0, 0.6)] = AUTO  # dropout after the ReLU of residual blocks
    batch_size: Auto[Count] = AUTO  # documents per step
    surrogate: Surrogate = "clusters"  # Module I: the task on which features are learnt
    n_clusters: Auto[Count] = AUTO  # outputs of that task: clusters, buckets, frequent labels or dimensions
    correlation: RandomWalk = field(
        default_factory=RandomWalk
    )  # random walk of correlated_clusters; published: 50 steps, 0.2
    surrogate_epochs: Auto[Count] = AUTO  # passes over train in Module I
    surrogate_lr: Annotated[Rate, Span(0.0005, 0.02, log=True)] = 0.003  # peak learning rate of Module I (Adam)
    surrogate_loss: OutputLoss = "bce_sum"  # loss of Module I
    negatives: Auto[ListSource | Literal["uniform", "unigram", "all"]] = AUTO  # Module II: negative labels
    shortlist_size: Count = 500  # labels of a document's shortlist
    n_random: Number = 50  # random labels added to each shortlist
    n_drawn: Count = 1024  # labels drawn per step by uniform and unigram negatives
    unigram_power: Share = 0.75  # exponent of label counts for unigram negatives
    head_centres: Number = 0  # extra centroids for labels with many documents
    head_documents: Count = 7500  # minimum documents of a label with extra centroids
    search: Auto[Method] = AUTO  # exact, or a faiss index; auto: by the number of labels and what is installed
    rebuild_every: Count = 5  # epochs between rebuilding shortlists while the encoder is trained
    transfer: Transfer = "spectral"  # Module III: how features may change
    transfer_limit: Annotated[float, Range(0, 1, open_low=True)] = 1.0  # spectral norm of the residual block
    classifier: Literal["rows"] | Frozen = (
        "rows"  # Module IV: rows trained with the block, or a solver on fixed features
    )
    extreme_epochs: Auto[Count] = AUTO  # passes over train in Module IV
    extreme_lr: Annotated[Rate, Span(0.0005, 0.02, log=True)] = 0.003  # peak learning rate of Module IV (Adam)
    loss: OutputLoss = "bce_sum"  # loss of Module IV and the re-ranker
    label_optimiser: Literal["sgd", "adam"] = "sgd"  # optimiser of label rows; the authors use adam
    label_lr: LabelLr = AUTO  # peak learning rate of label rows; auto: by module and optimiser
    warm_up: Share = 0.1  # share of each stage in which learning rates rise
    reranker_epochs: Auto[Number] = AUTO  # passes over train of the re-ranker; 0: no re-ranker
    reranker_lr: Rate = 0.003  # peak learning rate of the re-ranker (Adam)
    reranker_size: Count = 100  # shortlist size of the re-ranker
    reranker_random: Number = 50  # random labels added to it; without any, the re-ranker misjudges lower labels
    reranker_weight: Share = 0.5  # weight of the re-ranker's logit beside the classifier's
    fusion: ScoreMix = "plain"  # row_max divides scores by their row's maximum; two_levels mixes a sigmoid of each
    fusion_weight: FusionWeight = AUTO  # weight of classifiers against the similarity to label centroids
    served_labels: Auto[Count] = AUTO  # labels scored per document when predicting
    n_members: Count = 1  # ensemble members, trained independently
    game: GameStep | None = None  # propagate the scores of the best labels over a label graph
    sparse_ranker: SparseRanking | None = None  # sparse classifiers that re-rank the best labels
    calibration: Calibration | None = None  # a tree that calibrates scores, learnt on the hold-out
    stopping: Stopping | None = None  # stop Module IV early by a held-out metric, and choose fusion_weight by it

    def _auto(self, size: Size, device: str) -> dict[str, Any]:
        gpu = device == "cuda"
        scale = max(1, min(8, 5_000 // size.n_documents))  # very small sets need more passes to get enough steps
        exact = self.surrogate != "none" and (gpu or size.n_labels <= 4_000)  # without a surrogate it is DeepXML-ANNS
        usual = "all" if exact else "both"
        negatives = usual if self.negatives is AUTO else self.negatives
        return {
            "encoder": encoder_for(self.vectoriser),
            "embedding_dim": wider_dim(size.n_labels, device),
            "batch_size": min(1024, max(16, size.n_documents // 50)),
            "n_clusters": usual_outputs(self.surrogate, size.n_labels),
            "dropout": 0.5 if gpu else 0.3,
            "surrogate_epochs": 10 * scale,
            "extreme_epochs": 10 * scale,
            "reranker_epochs": 10 * scale if self.classifier == "rows" else 0,
            "negatives": negatives,
            "fusion_weight": AUTO if self.stopping else 0.9 if negatives == "all" else 0.3,
            "served_labels": self.shortlist_size,
        }

    def _unread(self, size: Size, device: str) -> Iterator[tuple[str, str]]:  # noqa: ARG002
        return unread(self, device)

    def _plan(self, size: Size, device: str) -> Plan:
        stages, n_labels = self._row_stages(device), size.n_labels
        tokens = size.sparse_tokens(self.batch_size, device)
        encoder = encoder_weights(self.encoder, self.vectoriser, size.n_features, stages.dim, tokens)
        cost = ModuleCosts(stages, size, encoder, self.negatives)
        costs = []
        if self.surrogate not in UNTRAINED:
            drawn = drawn_outputs(self.n_drawn, self.n_clusters, device)
            costs.append(cost.surrogate(self.surrogate_epochs, self.n_clusters, drawn))
        numbers = {"all": n_labels, "uniform": self.n_drawn, "unigram": self.n_drawn}
        against = numbers.get(self.negatives, self.shortlist_size + self.n_random)
        costs.append(cost.extreme(self.extreme_epochs, against, joint=self.trains_encoder_last))
        if self.reranker_epochs:
            costs.append(cost.reranker(self.reranker_epochs, self.reranker_size + self.reranker_random))
        lists = 4 * size.n_documents * (self.shortlist_size + stages.dim)  # and vectors
        members = of_members(costs, self.n_members, cost.kept(2 if self.reranker_epochs else 1))
        return Plan(device=device, data=size.data_bytes + lists, stages=members)

    @property
    def trains_encoder_last(self) -> bool:
        """Whether Module IV trains the encoder too."""
        return self.surrogate == "none" or self.transfer == "fine_tune"

    def _stages(self, data: Prepared, run: Run) -> Iterator[Stage]:
        self._rows = self._row_stages(run.device.type)
        self._documents = feature_rows(data.features, run.device)
        self._labels = SparseRows.of(data.relevance, run.device)
        search = self.search, self.head_centres, self.head_documents
        self._near = LabelSearch(data.relevance, run, self.shortlist_size, *search)
        self.steps_ = [self.game.build(data.relevance, data.label_names, run.seed_of("graph"))] if self.game else []
        self.members_: list[Servable] = []
        for member in range(self.n_members):
            base = self._rows.encoder(self.encoder, self.vectoriser, data, run, member)
            if self.word_vectors is not None:
                start_from(summed_tokens(base, "word_vectors", self.word_vectors), self.word_vectors, data, run)
            if self.surrogate != "none":
                yield from self._features(data, run, member, base)
            if self.classifier == "rows":
                encoders, scorers = yield from self._extreme(data, run, member, base)
            else:
                encoders, scorers = self._solved(self.classifier, data, run, member, base)
            centres = self._near.centres(encoded(base, self._documents, run.device))
            candidates = centres.served("shortlist", self.served_labels)
            mix = reranker_mix(len(scorers), self.reranker_weight, self.fusion_weight, self.fusion)
            self.members_.append(Servable(data.vectoriser, encoders, candidates, scorers, mix, self.steps_))
        if self.fusion_weight is AUTO:
            self.fusion_weight = best_fusion_weight(data, self.stopping, self.members_[0], _FUSION_WEIGHTS)
            self.members_ = [mixed_with(member, self.fusion_weight) for member in self.members_]

    def _servable(self, data: Prepared) -> Servable | Ensemble:  # noqa: ARG002
        return together(self.members_)

    def _row_stages(self, device: str) -> RowStages:
        return RowStages(
            dim=encoder_dim(self.vectoriser, self.embedding_dim),
            batch_size=self.batch_size,
            warm_up=self.warm_up,
            stopping=self.stopping,
            device=device,
            label_optimiser=self.label_optimiser,
            label_lr=self.label_lr,
        )

    def _with_block(self, base: DocumentEncoder, run: Run, kind: Transfer = "spectral") -> TransferEncoder:
        return TransferEncoder(base, TransferBlock(base.dim, self.dropout, kind, self.transfer_limit)).to(run.device)

    def _features(self, data: Prepared, run: Run, member: int, base: DocumentEncoder) -> Iterator[Stage]:
        """Module I: the encoder with its own block on an easier task; everything but the encoder is then discarded."""
        name = f"surrogate-{member}"
        kind = self.surrogate
        bags = bags_of(data.features, data.size.n_features)
        if kind in UNTRAINED:
            tokens = summed_tokens(base, "surrogate", kind)
            find = skip_gram_tokens if kind == "skip_gram" else latent_tokens
            if self.word_vectors is None:
                tokens.copy_(torch.from_numpy(run.keep(kind, lambda: find(bags, base.dim, run.seed_of(kind)))))
            return
        device = run.device
        outputs = self.n_clusters
        seed = run.seed_of("surrogate", member)
        walk = self.correlation
        targets = run.keep_all(name, lambda: surrogate_targets(kind, outputs, data.relevance, bags, seed, device, walk))
        encoder = self._with_block(base, run)
        drawn = drawn_outputs(self.n_drawn, outputs, device.type)
        classifier = self._rows.classifier(outputs, self.surrogate_lr, ROW_LR, self.surrogate_loss)
        with run.seeded("projection", member):
            task = surrogate_task(targets, encoder, classifier, self._documents, drawn, device)
        yield self._rows.stage(name, task, self.surrogate_lr, self.surrogate_epochs)

    def _extreme(self, data: Prepared, run: Run, member: int, base: DocumentEncoder) -> Generator[Stage, None, _Parts]:
        """Modules II to IV and the re-ranker. While the encoder is trained too, shortlists are rebuilt periodically."""
        joint = self.trains_encoder_last
        listed = self.negatives in get_args(ListSource)
        encoder = self._with_block(base, run, self.transfer)
        lr = self.extreme_lr
        epochs = self.extreme_epochs
        classifier = self._rows.classifier(data.size.n_labels, lr, _LISTS_LR if listed else ROW_LR, self.loss)
        every = self.rebuild_every if joint and listed else epochs
        for begin in range(0, epochs, every):
            end = min(begin + every, epochs)
            vectors = encoded(base, self._documents, run.device)
            documents, trained = (self._documents, encoder) if joint else (DenseRows(vectors), encoder.block)
            negatives = self._negatives(vectors, data, run, f"lists-{member}-{begin}")
            task = RowTask(trained, classifier, documents, self._labels, negatives)
            score = task_score(replace(task, encoder=encoder), data, self.stopping) if end == epochs else None
            name = f"extreme-{member}-{begin}"
            share = (begin / epochs, end / epochs)
            yield self._rows.stage(name, task, lr, end - begin, share, score)
        served = base.served()
        encoders: dict[str, Encoder] = {"shortlist": served, "document": layered(served, encoder.block.served())}
        scorers: list[Scorer] = [classifier.served("document")]
        if self.reranker_epochs:
            fresh = self._with_block(deepcopy(base), run)
            classifier = self._rows.classifier(data.size.n_labels, self.reranker_lr, _RERANKER_LR, self.loss)
            sizes = self.reranker_size, self.reranker_random
            ranker = reranker_task(f"first-{member}", task, fresh, classifier, self._documents, sizes, run)
            yield self._rows.stage(f"re-ranker-{member}", ranker, self.reranker_lr, self.reranker_epochs)
            encoders["re-ranker"] = fresh.served()
            scorers.append(classifier.served("re-ranker"))
        return encoders, scorers

    def _solved(self, kind: Frozen, data: Prepared, run: Run, member: int, base: DocumentEncoder) -> _Parts:
        """Module IV by a solver on the intermediate features."""
        vectors = encoded(base, self._documents, run.device)
        seed = run.seed_of("solver", member)
        served = base.served()
        lists = self._near.lists(f"lists-{member}", vectors) if kind == "slice" else None
        scorer = solved(kind, "document", vectors.cpu().numpy(), data.relevance, lists, seed)
        return {"shortlist": served, "document": served}, [scorer]

    def _negatives(self, vectors: torch.Tensor, data: Prepared, run: Run, name: str) -> Negatives:
        """Module II: the negative labels."""
        if self.negatives == "uniform" or self.negatives == "unigram":
            power = self.unigram_power if self.negatives == "unigram" else 0.0
            return Negatives(drawn=self.n_drawn, chance=unigram_chance(data.label_counts, power, run.device))
        if self.negatives == "all":
            return Negatives()
        lists = self._near.lists(name, vectors, self.negatives)
        return Negatives(shortlist=torch.from_numpy(lists).to(run.device), drawn=self.n_random)
