"""One sparse linear classifier per label over TF-IDF, plus label text: DiSMEC.

From Babbar and Schölkopf, "DiSMEC: Distributed Sparse Machines for Extreme Multi-label Classification" (WSDM 2017);
with label text after Table 4 of Mittal et al., "DECAF" (WSDM 2021). Every label is trained on all documents, and small
weights are dropped. It trains on a CPU, exactly and therefore slowly: `label_tree` is nearly as good and much faster.

Differences from the authors' code: dual coordinate descent instead of a primal Newton method, and a fixed bias. The
appendix of DECAF that describes label text for this method is not published; as in `label_tree`, we add the cosine of
document and label text to the classifier's probability.

Good for: a few thousand labels on a CPU, without torch.
Cost: one linear classifier per label over all texts; grows with labels.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, ClassVar, final

import numpy as np
import scipy.sparse as sp

from xclearn.config import AUTO, Auto, Count, Rate, Span, Weight
from xclearn.inference.servable import Servable
from xclearn.inference.sparse import SparseClassifier
from xclearn.parts.linear import (
    USUAL_COST,
    LevelProblems,
    Loss,
    Solver,
    everything,
    linear_servable,
    matrix_of,
    require_label_text,
    usual_text_weight,
)
from xclearn.parts.setting_types import LabelTextWeight
from xclearn.text import Subwords, WordPiece, Words
from xclearn.training.algorithm import Algorithm
from xclearn.training.plan import Plan, StageCost
from xclearn.training.prepare import Prepared, Size
from xclearn.training.run import Run
from xclearn.training.scoring import best_text_weight
from xclearn.training.stage import Stage, Stopping

_AT_ONCE = 4096  # labels trained between checkpoints
_WEIGHTS = 3  # approximate weights of a label per feature of its documents


@final
@dataclass(kw_only=True)
class SparseOneVsAll(Algorithm):
    """Sparse linear classifiers on all documents plus the cosine with label texts."""

    name: ClassVar[str] = "sparse_one_vs_all"

    vectoriser: Words | WordPiece | Subwords = field(default_factory=Words)  # how texts become tokens
    loss: Loss = "squared_hinge"  # loss of every classifier
    cost: Annotated[Auto[Rate], Span(0.1, 10.0, log=True)] = AUTO  # weight of the loss; auto: by the loss
    epochs: Count = 20  # maximum passes of the solver over its examples
    threshold: Annotated[Weight, Span(0.005, 0.2, log=True)] = 0.05  # weights of at most this magnitude are dropped
    label_text_weight: LabelTextWeight = AUTO  # weight of the cosine with the label's text; 0: do not use it
    stopping: Stopping | None = None  # choose label_text_weight by this metric on held-out documents

    def _auto(self, size: Size, device: str) -> dict[str, Any]:  # noqa: ARG002
        per_label = size.n_relevant / max(1, size.n_labels)
        weight = usual_text_weight(size.n_label_entries, per_label, chosen_later=self.stopping is not None)
        return {"cost": USUAL_COST[self.loss], "label_text_weight": weight}

    def _plan(self, size: Size, device: str) -> Plan:
        words = size.n_feature_entries / max(1, size.n_documents)
        weights = 8 * _WEIGHTS * round(size.n_relevant * words)
        cost = StageCost(
            name="classifiers",
            parameters=weights,
            optimiser=0,
            working=2 * weights,
            flops_per_epoch=Solver.operations(size.n_labels * size.n_feature_entries),
            epochs=1,
            path=f"each of {size.n_labels:,} labels against all documents, on the CPU",
        )
        return Plan(device=device, data=8 * (size.n_feature_entries + size.n_relevant), stages=(cost,))

    def _stages(self, data: Prepared, run: Run) -> Iterator[Stage]:
        require_label_text(data.label_features, self.label_text_weight)
        features = sp.csr_matrix(data.features, dtype=np.float32)
        labels = sp.csr_matrix(data.relevance.T)
        solver = Solver(self.loss, self.cost, self.epochs, self.threshold, run.seed_of("classifiers"))
        starts, parts = range(0, labels.shape[0], _AT_ONCE), []
        for number, start in enumerate(starts):
            own = labels[start : start + _AT_ONCE]
            level = LevelProblems(np.array([0, own.shape[0]]), everything(features.shape[0]), own)
            arrays = run.keep_all(f"part-{number}", partial(solver.train, features, level))
            parts.append((matrix_of(arrays, features.shape[1]), arrays["bias"]))
            run.log("step", stage="classifiers", step=number + 1, steps=len(starts))
        weights, biases = zip(*parts, strict=True)
        self.classifier_ = SparseClassifier.of("features", sp.vstack(weights, format="csr"), np.concatenate(biases))
        if self.label_text_weight is AUTO:
            self.label_text_weight = best_text_weight(data, self.stopping, lambda weight: self._served(data, weight))
        yield from ()  # the solver needs no stages

    def _servable(self, data: Prepared) -> Servable:
        return self._served(data, self.label_text_weight)

    def _served(self, data: Prepared, text_weight: float) -> Servable:
        return linear_servable(data.vectoriser, self.classifier_, self.loss, data.label_features, text_weight)
