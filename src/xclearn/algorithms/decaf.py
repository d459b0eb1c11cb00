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

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, final

import numpy as np
import scipy.sparse as sp
import torch

from xclearn.config import Count, Rate, Share, Weight
from xclearn.config import Size as Number
from xclearn.inference.components import AllLabels, Classifier, Product, Sigmoid
from xclearn.inference.servable import Ensemble, Servable
from xclearn.parts.label_clusters import cluster_rows, label_vectors
from xclearn.parts.losses import SCORES_AT_ONCE
from xclearn.parts.rows import SparseRows, feature_rows
from xclearn.parts.text_network import OutputTexts, TextNetwork
from xclearn.parts.text_training import WIDEST_BEAM, Clusters, Shortlister, TextTask, make_clusters
from xclearn.text import WordPiece, Words
from xclearn.training.algorithm import Algorithm, number
from xclearn.training.plan import Plan, StageCost
from xclearn.training.prepare import Prepared, Size
from xclearn.training.run import Run
from xclearn.training.scoring import held_out_score
from xclearn.training.stage import Batch, Stage, Stopping, one_cycle


@final
@dataclass(kw_only=True)
class Decaf(Algorithm):
    """Label text and refinement vectors over a shared token table."""

    name: ClassVar[str] = "decaf"

    vectoriser: Words | WordPiece = field(default_factory=Words)  # how texts become tokens
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
    warm_up: Share = 0.1  # share of each stage in which learning rates rise
    ranker: Literal["exact", "sampled", "shortlist"] | None = None  # labels a document is trained against
    n_negatives: Count = 1024  # random labels beside the batch's own when sampling
    n_clusters: Count | None = None  # clusters of the shortlister, a power of two
    beam: Count | None = None  # clusters kept per document; auto: enough for target_recall
    target_recall: Share = 0.85  # share of train's relevant labels the beam must reach
    add_positives: bool = True  # train on relevant labels that the shortlist missed
    label_text: bool = True  # False drops the text from classifiers (DECAF-ẑ²)
    refinement: Literal["text", "random", "none"] = "text"  # where refinements start; none is DECAF-ẑ¹
    freeze_tokens: bool = False  # token table fixed after Module I (DECAF-lite)
    restart_blocks: bool = False  # blocks start again at the identity in each module, as in the paper
    spectral: bool = True  # blocks' matrices have spectral norm one
    n_members: Count = 1  # ensemble members sharing Module I
    stopping: Stopping | None = None  # end the last module on a held-out metric

    def _auto(self, size: Size, device: str) -> dict[str, Any]:
        gpu = device == "cuda"
        scale = max(1, min(8, 50_000 // size.n_documents))  # small sets need more passes for as many steps
        return {
            "embedding_dim": min(304 if gpu else 128, max(32, 2 * math.isqrt(size.n_labels))),
            "batch_size": min(1024, max(16, size.n_documents // 50)),
            "surrogate_epochs": (30 if gpu else 12) * scale,
            "shortlister_epochs": 10 * scale,
            "ranker_epochs": 5 * scale,
            "ranker": "exact" if gpu or size.n_labels <= 4_000 else "sampled",
            "n_clusters": 2 ** min(17, max(0, math.floor(math.log2(size.n_labels / 3)))),
        }

    def _plan(self, size: Size, device: str) -> Plan:
        label_stages = [
            ("surrogate", self.surrogate_epochs),
            *((f"ranker-{i}", self.ranker_epochs) for i in range(self.n_members)),
        ]
        costs = [self._cost(name, number(epochs), size, device) for name, epochs in label_stages if epochs]
        texts = 56 * size.n_label_entries * (2 if self.ranker == "shortlist" else 1)  # rows, matrix and transposed
        data = 8 * (size.n_feature_entries + size.n_relevant) + 16 * size.n_documents + texts
        return Plan(device=device, data=data, stages=tuple(costs))

    def _cost(self, name: str, epochs: int, size: Size, device: str) -> StageCost:
        """Cluster stages are left out: they hold fewer outputs than label stages."""
        dim, batch, gpu = number(self.embedding_dim), number(self.batch_size), device == "cuda"
        scored = self._scored(size)
        table, refined = 4 * size.n_features * dim, 4 * size.n_labels * dim if name != "surrogate" else 0
        block = min(batch * scored, SCORES_AT_ONCE[device]) * (2 if gpu else 4)
        tokens = math.ceil((batch * size.n_feature_entries / size.n_documents) + scored * size.tokens_per_label)
        # a sparse gradient has a row per token; SparseAdam copies the distinct ones six times
        gradients = 4 * dim * (tokens + 6 * min(tokens, size.n_features)) if self._sampling(device) else table
        served = 0 if gpu else 8 * size.n_labels * dim  # made in parts, when the optimisers are gone
        return StageCost(
            name=name,
            parameters=2 * table + refined,  # the network before it is still there
            optimiser=2 * table,
            working=max(2 * block + 36 * scored * dim + gradients, served - 2 * table),
            flops_per_epoch=6.0 * size.n_documents * scored * dim * (1 + 2 * dim / batch),
            epochs=epochs,
            path=f"{self.ranker}: {'all' if scored == size.n_labels else 'about'} {scored:,} labels",
        )

    def _scored(self, size: Size) -> int:
        """Distinct labels a step trains."""
        batch = number(self.batch_size)
        relevant = math.ceil(batch * size.labels_per_document)
        in_clusters = batch * (self.beam or WIDEST_BEAM) * math.ceil(size.n_labels / number(self.n_clusters))
        others = {"exact": size.n_labels, "sampled": self.n_negatives, "shortlist": in_clusters}[str(self.ranker)]
        return min(size.n_labels, relevant + others)

    def _stages(self, data: Prepared, run: Run) -> Iterator[Stage]:
        self._documents = documents = feature_rows(data.features, run.device)
        labels = SparseRows.of(data.relevance, run.device)
        label_features = _label_features(data)
        texts = OutputTexts(SparseRows.of(label_features, run.device))

        def task(network: TextNetwork, positives: SparseRows) -> TextTask:
            compute = torch.bfloat16 if run.device.type == "cuda" else torch.float32
            return TextTask(network, documents, positives, -math.log(positives.n_columns + 1), compute)

        def clusters(name: str, table: torch.Tensor) -> Clusters:
            seed, n_clusters = run.seed_of(name), number(self.n_clusters)
            found = run.keep(name, "", lambda: cluster_rows(label_vectors(table, documents, labels), n_clusters, seed))
            return make_clusters(found, data.relevance, label_features, run.device)

        first = self._network(self._table(data, run), texts, None, run, refine=False)
        surrogate = task(first, labels)
        if self.ranker == "shortlist":
            groups = clusters("clusters", first.table.detach())
            surrogate = task(self._network(first.table, groups.texts, None, run, refine=False), groups.positives)
        if self.surrogate_epochs:
            yield self._stage("surrogate", surrogate, run, number(self.surrogate_epochs), self.surrogate_lr)
        self.members_: list[tuple[TextTask, Shortlister | None]] = []
        for member in range(self.n_members):
            before, shortlister = surrogate.network, None
            if self.ranker == "shortlist":
                groups = clusters(f"clusters-{member}", before.table.detach())
                finder = task(self._network(before.table, groups.texts, before, run, refine=True), groups.positives)
                epochs = number(self.shortlister_epochs)
                yield self._stage(f"shortlister-{member}", finder, run, epochs, self.later_lr)
                shortlister = Shortlister(finder, groups, self.beam, self.target_recall)
                run.log("shortlist", member=member, beam=shortlister.beam, recall=shortlister.recall)
                before = finder.network
            ranker = task(self._network(before.table, texts, before, run, refine=True), labels)
            epochs = number(self.ranker_epochs)
            yield self._stage(f"ranker-{member}", ranker, run, epochs, self.later_lr, shortlister, data)
            self.members_.append((ranker, shortlister))

    def _servable(self, data: Prepared) -> Servable | Ensemble:
        served = [self._served_member(data, *member) for member in self.members_]
        return served[0] if len(served) == 1 else Ensemble(served)

    def _table(self, data: Prepared, run: Run) -> torch.Tensor:
        """Random token vectors (V, D): their weighted sums are random projections of TF-IDF rows."""
        dim = number(self.embedding_dim)
        bound = math.sqrt(6 / dim) / 2
        table = torch.empty(data.size.n_features, dim).uniform_(-bound, bound, generator=run.generator("tokens"))
        return table.to(run.device)

    def _network(
        self, table: torch.Tensor, texts: OutputTexts, before: TextNetwork | None, run: Run, *, refine: bool
    ) -> TextNetwork:
        """A network over these outputs that goes on from the one before."""
        start = None
        if refine and self.refinement != "none":
            start = texts.embed(table.detach(), None, sparse=False)
            if self.refinement == "random":
                noise = torch.randn(start.shape, generator=run.generator("refinement")).to(start.device)
                start = noise * start.std()
        with run.seeded("network"):
            network = TextNetwork(
                table.detach(),
                texts,
                dropout=self.dropout,
                spectral=self.spectral,
                use_text=self.label_text or start is None,
                refinement=start,
                sparse=self._sampling(run.device.type) and isinstance(self._documents, SparseRows),
            ).to(run.device)
        if before is not None and not self.restart_blocks:
            network.document_block.load_state_dict(before.document_block.state_dict())
            network.text_block.load_state_dict(before.text_block.state_dict())
        if before is not None and before.bias.shape == network.bias.shape:
            network.bias.data.copy_(before.bias.data)
        network.table.requires_grad_(before is None or not self.freeze_tokens)
        return network

    def _stage(
        self,
        name: str,
        task: TextTask,
        run: Run,
        epochs: int,
        lr: float,
        shortlister: Shortlister | None = None,
        data: Prepared | None = None,
    ) -> Stage:
        def loss(batch: Batch) -> torch.Tensor:
            if shortlister is not None:
                listed = shortlister.labels_of(batch.rows)
                return task.against_shortlist(batch.rows, listed, add_positives=self.add_positives)
            if self._sampling(run.device.type):
                return task.against_sample(batch.rows, self.n_negatives, batch.generator)
            return task.against_all(batch.rows, batch.step)

        score = None if data is None or self.stopping is None else self._score(task, data, run)
        return Stage(
            name=name,
            module=task.network,
            loss=loss,
            n_items=len(task.documents),
            batch_size=number(self.batch_size),
            epochs=epochs,
            optimisers=self._optimisers(task.network, lr),
            schedule=one_cycle(self.warm_up),
            score=score,
            patience=self.stopping.patience if self.stopping and score else None,
        )

    def _optimisers(self, network: TextNetwork, lr: float) -> list[torch.optim.Optimizer]:
        """Adam, lazy for a sparse token table; SGD per document for what each label has of its own."""
        per_document = number(self.batch_size)
        own = [(network.bias, self.bias_lr), (network.refinement, self.refinement_lr)]
        rows = [{"params": [values], "lr": rate * per_document} for values, rate in own if values is not None]
        shared = [p for part in (network.document_block, network.text_block) for p in part.parameters()]
        shared += [network.text_gate, network.refinement_gate]
        table = [network.table] if network.table.requires_grad else []
        if not network.sparse:
            return [torch.optim.Adam([*table, *shared], lr=lr), torch.optim.SGD(rows)]
        lazy = [torch.optim.SparseAdam(table, lr=lr)] if table else []
        return [torch.optim.Adam(shared, lr=lr), *lazy, torch.optim.SGD(rows)]

    def _sampling(self, device: str) -> bool:
        """Whether gradients hold only the batch's tokens and outputs: always on a CPU, unless every label is scored."""
        return self.ranker == "sampled" or (self.ranker == "shortlist" and device == "cpu")

    def _score(self, task: TextTask, data: Prepared, run: Run) -> Any:
        assert self.stopping is not None
        assert data.held_out_features is not None
        held_out = feature_rows(data.held_out_features, run.device)
        return held_out_score(data, self.stopping.metric, lambda rows, k: task.best(held_out, rows.to(run.device), k))

    def _served_member(self, data: Prepared, ranker: TextTask, shortlister: Shortlister | None) -> Servable:
        scorers = [Classifier("label", *ranker.classifiers())]
        encoders = {"label": ranker.network.served_encoder()}
        if shortlister is None:
            return Servable(data.vectoriser, encoders, AllLabels(), scorers, Sigmoid())
        encoders["cluster"] = shortlister.task.network.served_encoder()
        return Servable(data.vectoriser, encoders, shortlister.served("cluster"), scorers, Product())


def _label_features(data: Prepared) -> sp.csr_matrix:
    """What labels say; all empty where they are only names."""
    if data.label_features is None:
        return sp.csr_matrix((data.size.n_labels, data.size.n_features), dtype=np.float32)
    return sp.csr_matrix(data.label_features)
