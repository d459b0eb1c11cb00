"""DECAF: classifiers built from label text and a free refinement vector over one shared token table.

From Mittal et al., "DECAF: Deep Extreme Classification with Label Features" (WSDM 2021). Module I trains the token
table on label text alone, Module II a shortlister over clusters of labels, Modules III and IV the label classifiers
w = σ(α) ⊙ text + σ(β) ⊙ refinement. The refinement starts at E z, or at random without text (ẑ²).

Differences from the authors' code: `ranker = "exact"` (the default on a GPU) trains every module against all labels and
needs no shortlister; `"sampled"` (the default on a CPU) trains against the batch's labels and random others;
`"shortlist"` is the paper's own path with clusters, beam and σ(label) · σ(cluster). Refinements and biases are trained
by SGD instead of Adam, which keeps rare labels near their text; blocks continue from Module I unless `restart_blocks`;
biases start at −ln L.

Good for: rare labels with descriptive texts.
Cost: every step reads the label texts; best on a GPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias, final

import numpy as np
import torch

from xclearn.algorithms.decaf.label_lists import LabelLists, label_lists
from xclearn.algorithms.decaf.new_labels import new_label_rows
from xclearn.config import AUTO, Auto, Count, Share
from xclearn.inference.components import AllLabels, Classifier, Encoder, Product, Sigmoid
from xclearn.inference.servable import Ensemble, Servable
from xclearn.inference.text_rows import TextRows
from xclearn.parts.calibration import Calibration
from xclearn.parts.game import GameStep
from xclearn.parts.label_clusters import cluster_rows, label_vectors
from xclearn.parts.sparse_ranking import SparseRanking
from xclearn.parts.text_network import Blocks, OutputTexts, SummedTexts, TextNetwork
from xclearn.parts.text_training import ClusterOutputs, ClusterShortlister, TextTask, make_clusters
from xclearn.search.nearest import Method
from xclearn.search.shortlists import ListSource
from xclearn.training.algorithm import together
from xclearn.training.plan import Plan
from xclearn.training.prepare import Prepared, Size
from xclearn.training.run import Run
from xclearn.training.scoring import task_score
from xclearn.training.stage import Stage
from xclearn.training.text_algorithm import ClassifierCost, Material, TextAlgorithm, token_table

_Found: TypeAlias = ClusterShortlister | LabelLists | None  # Module II; None: every label is scored


@final
@dataclass(kw_only=True)
class Decaf(TextAlgorithm):
    """Label text and refinement vectors over a shared token table."""

    name: ClassVar[str] = "decaf"

    surrogate_dropout: Auto[Share] = AUTO  # dropout after each ReLU in Module I; auto: as `dropout`
    shortlist: Literal["clusters", "nearest", "tree"] = "clusters"  # Module II's clusters, or labels found by search
    list_size: Count = 500  # labels per document found by search
    search: Auto[Method] = AUTO  # exact, or a faiss index; auto: by the number of labels and what is installed
    meta_text: Literal["block_of_sum", "sum_of_blocks"] = "block_of_sum"  # text of a cluster; the paper: sum_of_blocks
    refinement: Auto[Literal["text", "random", "none"]] = AUTO  # initial refinements; none is DECAF-ẑ¹
    word_vectors: str | None = None  # initial token vectors: a file, a transformer's folder or minilm; none: random
    freeze_tokens: bool = False  # freeze the token table after Module I (DECAF-lite), or always if from a file (-FFT)
    game: GameStep | None = None  # propagate the scores of the best labels over a label graph
    sparse_ranker: SparseRanking | None = None  # sparse classifiers that re-rank the best labels
    calibration: Calibration | None = None  # a tree that calibrates scores, learnt on the hold-out

    def _auto(self, size: Size, device: str) -> dict[str, Any]:
        start = "text" if self.label_text else "random"
        return self._usual(size, device) | {"surrogate_dropout": self.dropout, "refinement": start}

    def _unread(self, size: Size, device: str) -> Iterator[tuple[str, str]]:
        yield from super()._unread(size, device)
        if self.refinement == "none":
            yield 'set refinement = "text"', "refinement_lr label_text"
        if not (self.ranker == "shortlist" and self.shortlist == "clusters" and self.label_text):
            yield 'set ranker = "shortlist", shortlist = "clusters" and label_text', "meta_text"
        if self.ranker != "shortlist":
            yield 'set ranker = "shortlist"', "shortlist list_size search"
        elif self.shortlist == "clusters":
            yield 'set shortlist = "nearest"', "list_size search"
        else:
            yield 'set shortlist = "clusters"', "shortlister_epochs beam target_recall"
            yield from [] if self.shortlist == "nearest" else [('set shortlist = "nearest"', "search")]

    def _plan(self, size: Size, device: str) -> Plan:
        scored = self._scored(size, None if self.shortlist == "clusters" else self.list_size)
        return self._text_plan(size, device, scored, ClassifierCost())

    def _stages(self, data: Prepared, run: Run) -> Iterator[Stage]:
        train = self._material(data, run)
        texts = train.texts(run)
        table = token_table(data, self.embedding_dim, run, self.word_vectors)
        # Module I: label text only, of labels or of their clusters
        surrogate = train.task(self._network(table, texts, None, run))
        if self.ranker == "shortlist":
            groups = self._clusters("clusters", table, train, run)
            surrogate = train.task(self._network(table, groups.texts, None, run), groups.positives)
        if self.surrogate_epochs:
            yield self._stage("surrogate", surrogate, self.surrogate_epochs, self.surrogate_lr)
        self.steps_ = [self.game.build(data.relevance, data.label_names, run.seed_of("graph"))] if self.game else []
        self.members_: list[tuple[TextTask, _Found]] = []
        for member in range(self.n_members):
            before = surrogate.network
            found: _Found = None
            if self.ranker == "shortlist" and self.shortlist == "clusters":
                # Module II: clusters of labels, with refinements
                groups = self._clusters(f"clusters-{member}", before.table.detach(), train, run)
                meta = groups.texts if self.meta_text == "block_of_sum" else groups.by_label(texts)
                finder = train.task(self._network(before.table, meta, before, run), groups.positives)
                yield self._stage(f"shortlister-{member}", finder, self.shortlister_epochs, self.later_lr)
                found = ClusterShortlister(finder, groups, self.beam, self.target_recall)
                run.log("shortlist", member=member, beam=found.beam, recall=found.recall)
                before = finder.network
            elif self.ranker == "shortlist":
                source: ListSource = "tree" if self.shortlist == "tree" else "centroids"
                found = label_lists(surrogate, data, run, source=source, size=self.list_size, method=self.search)
            self._note_premise(data, found, run)
            # Modules III and IV: text and refinement together
            ranker = train.task(self._network(before.table, texts, before, run))
            score = task_score(ranker, data, self.stopping)
            yield self._stage(f"ranker-{member}", ranker, self.ranker_epochs, self.later_lr, found, score)
            self.members_.append((ranker, found))

    def _servable(self, data: Prepared) -> Servable | Ensemble:
        self.text_rows_: list[TextRows] = []
        return together([self._served_member(data, *member) for member in self.members_])

    def _shares_rows(self) -> bool:
        """Not with a shortlist, whose pairs need both sides of their gradient."""
        return self.ranker != "shortlist"

    def _hand_over(self) -> None:
        for ranker, _ in self.members_:
            ranker.classifiers()

    def _text_rows(self) -> list[TextRows]:
        return self.text_rows_

    def _clusters(self, name: str, table: torch.Tensor, train: Material, run: Run) -> ClusterOutputs:
        """Cluster labels by the summed vectors of their documents."""

        def find() -> np.ndarray:
            vectors = label_vectors(table, train.documents, train.labels)  # (L, D)
            return cluster_rows(vectors, self.n_clusters, run.seed_of(name))

        return make_clusters(run.keep(name, find), train.relevance, train.features, run.device)

    def _note_premise(self, data: Prepared, found: _Found, run: Run) -> None:
        """Theorem 3.1 bounds the excess risk by s (1 − r) ln(1 / (s (1 − r))), small for few labels and high recall."""
        sparsity = data.relevance.nnz / (data.relevance.shape[0] * data.relevance.shape[1])
        run.note(label_sparsity=f"{sparsity:.3g}", shortlist_recall=round(found.recall if found else 1.0, 4))

    def _network(
        self, table: torch.Tensor, texts: OutputTexts | SummedTexts, before: TextNetwork | None, run: Run
    ) -> TextNetwork:
        """A network whose classifiers (S, D) combine text and, after Module I, a refinement."""
        dropout = self.surrogate_dropout if before is None else self.dropout
        blocks = Blocks(dropout, self.spectral)
        network = self._next_network(table, [texts], before, run, blocks, start=self.refinement)
        from_nothing = before is None and self.word_vectors is None
        network.table.requires_grad_(from_nothing or not self.freeze_tokens)
        return network

    def _served_member(self, data: Prepared, ranker: TextTask, found: _Found) -> Servable:
        scorers = [Classifier("label", *ranker.classifiers())]
        bag = ranker.network.served_encoder()
        encoders: dict[str, Encoder] = {"label": bag}
        if self.label_text:  # without it, classifiers have not learnt to use text
            from_text = self.refinement == "text"
            self.text_rows_.append(new_label_rows(ranker.network, bag, scorers[0], data, from_text=from_text))
        if found is None:
            return Servable(data.vectoriser, encoders, AllLabels(), scorers, Sigmoid(), self.steps_)
        if isinstance(found, LabelLists):
            encoders["list"] = found.encoder
            candidates = found.centres.served("list", self.list_size)
            return Servable(data.vectoriser, encoders, candidates, scorers, Sigmoid(), self.steps_)
        encoders["cluster"] = found.task.network.served_encoder()
        return Servable(data.vectoriser, encoders, found.served("cluster"), scorers, Product(), self.steps_)
