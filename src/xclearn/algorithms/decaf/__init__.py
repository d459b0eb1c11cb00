"""DECAF: classifiers built from label text and a free refinement vector over one shared token table.

From Mittal et al., "DECAF: Deep Extreme Classification with Label Features" (WSDM 2021). Module I trains the token
table on label text alone, Module II a shortlister over clusters of labels, Modules III and IV the label classifiers
w = σ(α) ⊙ text + σ(β) ⊙ refinement, with the refinement starting at E z.

What differs from the authors' code: `ranker = "exact"` (the default on a GPU) trains every module against all labels,
where no shortlister is needed; `"sampled"` (the default on a CPU) against the batch's labels and random others;
`"shortlist"` is the paper's own path with clusters, beam and σ(label) · σ(cluster). Refinements and biases are trained
by SGD, which keeps rare labels near their text, instead of Adam; blocks go on from Module I unless `restart_blocks`;
biases start at −ln L.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, final

import numpy as np
import torch

from xclearn.config import Count, Rate, Share, Weight
from xclearn.config import Size as Number
from xclearn.inference.components import AllLabels, Classifier, Product, Sigmoid
from xclearn.inference.servable import Ensemble, Servable
from xclearn.parts.calibration import Calibration
from xclearn.parts.game import GameStep
from xclearn.parts.label_clusters import cluster_rows, label_vectors
from xclearn.parts.re_ranking import SparseRanking
from xclearn.parts.rows import SparseRows
from xclearn.parts.text_network import OutputTexts, TextNetwork, first_refinement
from xclearn.parts.text_training import Clusters, Shortlister, TextTask, make_clusters
from xclearn.search.nearest import Method
from xclearn.search.shortlists import ListSource
from xclearn.text import Subwords, WordPiece, Words
from xclearn.training.algorithm import Algorithm, number
from xclearn.training.label_lists import LabelLists, label_lists
from xclearn.training.plan import Plan
from xclearn.training.prepare import Prepared, Size
from xclearn.training.run import Run
from xclearn.training.scoring import task_score
from xclearn.training.stage import Stage, Stopping
from xclearn.training.text_stages import ClassifierCost, Material, Ranker, TextStages, token_table, usual_settings


@final
@dataclass(kw_only=True)
class Decaf(Algorithm):
    """Label text and refinement vectors over a shared token table."""

    name: ClassVar[str] = "decaf"

    vectoriser: Words | WordPiece | Subwords = field(default_factory=Words)  # how texts become tokens
    embedding_dim: Count | None = None  # length of all vectors
    batch_size: Count | None = None  # documents per step
    surrogate_epochs: Number | None = None  # Module I: label text only
    shortlister_epochs: Count | None = None  # Module II, when the ranker uses a shortlist
    ranker_epochs: Count | None = None  # Module IV
    surrogate_lr: Rate = 0.01  # peak learning rate of Module I
    later_lr: Rate = 0.005  # peak learning rate of Modules II and IV
    refinement_lr: Weight = 0.1  # peak learning rate of refinements (SGD, per document)
    bias_lr: Weight = 0.01  # peak learning rate of biases (SGD, per document)
    dropout: Share = 0.25  # after each ReLU
    surrogate_dropout: Share | None = None  # the same in Module I; auto: as `dropout`
    warm_up: Share = 0.1  # share of each stage in which learning rates rise
    ranker: Ranker | None = None  # labels a document is trained against
    n_negatives: Count = 1024  # random labels beside the batch's own when sampling
    shortlist: Literal["clusters", "nearest", "tree"] = "clusters"  # Module II, or labels found by search instead
    list_size: Count = 500  # labels of a document that search finds
    search: Method | None = None  # how search is done; auto: by what is installed and the number of labels
    n_clusters: Count | None = None  # clusters of the shortlister, a power of two
    beam: Count | None = None  # clusters kept per document; auto: enough for target_recall
    target_recall: Share = 0.85  # share of train's relevant labels the beam must reach
    add_positives: bool = True  # train on relevant labels that the shortlist missed
    label_text: bool = True  # False drops the text from classifiers (DECAF-ẑ²)
    refinement: Literal["text", "random", "none"] = "text"  # where refinements start; none is DECAF-ẑ¹
    word_vectors: str | None = (
        None  # what the token table starts from: a file, a transformer's folder, or minilm; auto: random
    )
    freeze_tokens: bool = False  # token table fixed after Module I (DECAF-lite), or throughout if from a file (-FFT)
    restart_blocks: bool = False  # blocks start again at the identity in each module, as in the paper
    spectral: bool = True  # blocks' matrices have spectral norm one
    n_members: Count = 1  # ensemble members sharing Module I
    game: GameStep | None = None  # pass the scores of the best labels on over a label graph
    sparse_ranker: SparseRanking | None = None  # sparse classifiers that rank the best labels anew; auto: none
    calibration: Calibration | None = None  # a tree that calibrates scores, learnt on the hold-out; auto: none
    stopping: Stopping | None = None  # end the last module on a held-out metric

    def _auto(self, size: Size, device: str) -> dict[str, Any]:
        return usual_settings(size, device) | {"surrogate_dropout": self.dropout}

    def _plan(self, size: Size, device: str) -> Plan:
        stages = self._text_stages(device)
        listed = None if self.shortlist == "clusters" else self.list_size
        scored = stages.scored(size, self.beam, self.n_clusters, listed)
        epochs = number(self.surrogate_epochs), number(self.ranker_epochs)
        return stages.plan(size, number(self.embedding_dim), scored, ClassifierCost(), epochs, self.n_members)

    def _stages(self, data: Prepared, run: Run) -> Iterator[Stage]:
        train, stages = Material.of(data, run.device), self._text_stages(run.device.type)
        self._sparse = stages.sampling and isinstance(train.documents, SparseRows)
        texts = OutputTexts(SparseRows.of(train.features, run.device))

        def clusters(name: str, table: torch.Tensor) -> Clusters:
            def find() -> np.ndarray:
                vectors = label_vectors(table, train.documents, train.labels)  # (L, D)
                return cluster_rows(vectors, number(self.n_clusters), run.seed_of(name))

            return make_clusters(run.keep(name, "", find), train.relevance, train.features, run.device)

        table = token_table(data, number(self.embedding_dim), run, self.word_vectors)
        surrogate = train.task(self._network(table, texts, None, run))
        if self.ranker == "shortlist":
            groups = clusters("clusters", table)
            surrogate = train.task(self._network(table, groups.texts, None, run), groups.positives)
        if self.surrogate_epochs:
            yield stages.stage("surrogate", surrogate, self.surrogate_epochs, self.surrogate_lr)
        self.steps_ = [self.game.build(data.relevance, data.label_names, run.seed_of("graph"))] if self.game else []
        self.members_: list[tuple[TextTask, Shortlister | LabelLists | None]] = []
        for member in range(self.n_members):
            before = surrogate.network
            found: Shortlister | LabelLists | None = None
            if self.ranker == "shortlist" and self.shortlist == "clusters":
                groups = clusters(f"clusters-{member}", before.table.detach())
                finder = train.task(self._network(before.table, groups.texts, before, run), groups.positives)
                epochs = number(self.shortlister_epochs)
                yield stages.stage(f"shortlister-{member}", finder, epochs, self.later_lr)
                found = Shortlister(finder, groups, self.beam, self.target_recall)
                run.log("shortlist", member=member, beam=found.beam, recall=found.recall)
                before = finder.network
            elif self.ranker == "shortlist":
                source: ListSource = "tree" if self.shortlist == "tree" else "centroids"
                found = label_lists(surrogate, data, run, source=source, size=self.list_size, method=self.search)
            self._note_premise(data, found, run)
            ranker = train.task(self._network(before.table, texts, before, run))
            epochs, score = number(self.ranker_epochs), task_score(ranker, data, self.stopping)
            yield stages.stage(f"ranker-{member}", ranker, epochs, self.later_lr, found, score)
            self.members_.append((ranker, found))

    def _servable(self, data: Prepared) -> Servable | Ensemble:
        served = [self._served_member(data, *member) for member in self.members_]
        return served[0] if len(served) == 1 else Ensemble(served)

    def _note_premise(self, data: Prepared, found: Shortlister | LabelLists | None, run: Run) -> None:
        """Theorem 3.1 bounds the excess risk by s (1 − r) ln(1 / (s (1 − r))): few labels a document, high recall."""
        sparsity = data.relevance.nnz / (data.relevance.shape[0] * data.relevance.shape[1])
        run.note(label_sparsity=f"{sparsity:.3g}", shortlist_recall=round(found.recall if found else 1.0, 4))

    def _text_stages(self, device: str) -> TextStages:
        return TextStages(
            ranker=str(self.ranker),
            batch_size=number(self.batch_size),
            n_negatives=self.n_negatives,
            add_positives=self.add_positives,
            refinement_lr=self.refinement_lr,
            bias_lr=self.bias_lr,
            warm_up=self.warm_up,
            stopping=self.stopping,
            device=device,
        )

    def _network(self, table: torch.Tensor, texts: OutputTexts, before: TextNetwork | None, run: Run) -> TextNetwork:
        """Classifiers (S, D) of text and, after Module I, a refinement; goes on from the network before."""
        start = None
        if before is not None and self.refinement != "none":
            noise = run.generator("refinement") if self.refinement == "random" else None
            start = first_refinement(texts, table, noise)
        with run.seeded("network"):
            network = TextNetwork(
                table.detach(),
                texts,
                dropout=self.dropout if before is not None else number(self.surrogate_dropout),
                spectral=self.spectral,
                use_text=self.label_text or start is None,
                refinement=start,
                sparse=self._sparse,
            ).to(run.device)
        if before is not None:
            network.go_on_from(before, blocks=not self.restart_blocks)
        starts = before is None and self.word_vectors is None
        network.table.requires_grad_(starts or not self.freeze_tokens)
        return network

    def _served_member(self, data: Prepared, ranker: TextTask, found: Shortlister | LabelLists | None) -> Servable:
        scorers = [Classifier("label", *ranker.classifiers())]
        encoders = {"label": ranker.network.served_encoder()}
        if found is None:
            return Servable(data.vectoriser, encoders, AllLabels(), scorers, Sigmoid(), self.steps_)
        if isinstance(found, LabelLists):
            encoders["list"] = found.encoder
            candidates = found.centres.served("list", self.list_size)
            return Servable(data.vectoriser, encoders, candidates, scorers, Sigmoid(), self.steps_)
        encoders["cluster"] = found.task.network.served_encoder()
        return Servable(data.vectoriser, encoders, found.served("cluster"), scorers, Product(), self.steps_)
