"""A probabilistic tree of linear classifiers over TF-IDF, plus label text: Parabel, Bonsai and shallower trees.

From Prabhu et al., "Parabel: Partitioned Label Trees for Extreme Classification" (WWW 2018), and Khandagale et al.,
"Bonsai: Diverse and Shallow Trees for Extreme Multi-label Classification" (2020); with label text after Table 4 of
Mittal et al., "DECAF" (WSDM 2021). It trains on a CPU in seconds.

Differences: clusters are balanced at any `branching` (Bonsai's are not), and nodes with many children have a fixed
bias. The appendix of DECAF that describes label text for these methods is not published, so we use what was best on a
hold-out: the cosine of document and label text is added to the tree's probability for all labels, so that labels
without documents, or in a branch that the search missed, can still be found. (Using label texts as documents or in the
clustering was worse.) `branching = 2` is Parabel and 128 is close to Bonsai; by default the root leads to the clusters
in one step.

Good for: a fast, strong model on a CPU, without torch.
Cost: the cheapest: seconds to minutes on one core.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, ClassVar, final

import numpy as np
import scipy.sparse as sp

from xclearn.config import AUTO, Auto, Count, Range, Rate, Span, Weight
from xclearn.inference.servable import Servable
from xclearn.inference.sparse import LabelTrees, Tree, TreeLevel
from xclearn.labels.clustering import cluster_labels, label_centroids
from xclearn.parts.game import GameStep
from xclearn.parts.linear import (
    USUAL_COST,
    Loss,
    Solver,
    leaf_order,
    level_widths,
    linear_servable,
    matrix_of,
    require_label_text,
    tree_levels,
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

_GROWTH = 3  # approximate weights of a level per entry of the features


@final
@dataclass(kw_only=True)
class LabelTree(Algorithm):
    """Trees of sparse linear classifiers plus the cosine with label texts."""

    name: ClassVar[str] = "label_tree"

    vectoriser: Words | WordPiece | Subwords = field(default_factory=Words)  # how texts become tokens
    n_trees: Annotated[Count, Span(1, 5)] = 3  # trees over different clusters; their probabilities are averaged
    branching: Annotated[int, Range(2)] = 2048  # children of a node, rounded down to a power of two
    max_leaf: Annotated[Count, Span(20, 400, log=True)] = 100  # maximum labels of a cluster
    loss: Loss = "squared_hinge"  # loss of every classifier
    cost: Annotated[Auto[Rate], Span(0.1, 10.0, log=True)] = AUTO  # weight of the loss; auto: by the loss
    epochs: Count = 20  # maximum passes of the solver over its examples
    threshold: Annotated[Weight, Span(0.01, 0.3, log=True)] = 0.1  # weights of at most this magnitude are dropped
    beam: Annotated[Count, Span(5, 40, log=True)] = 10  # nodes kept per level by the search
    label_text_weight: LabelTextWeight = AUTO  # weight of the cosine with the label's text; 0: do not use it
    game: GameStep | None = None  # propagate the scores of the best labels over a label graph
    stopping: Stopping | None = None  # choose label_text_weight by this metric on held-out documents

    def _auto(self, size: Size, device: str) -> dict[str, Any]:  # noqa: ARG002
        per_label = size.n_relevant / max(1, size.n_labels)
        weight = usual_text_weight(size.n_label_entries, per_label, chosen_later=self.stopping is not None)
        return {"cost": USUAL_COST[self.loss], "label_text_weight": weight}

    def _plan(self, size: Size, device: str) -> Plan:
        widths = [*level_widths(size.n_labels, self.branching, self.max_leaf), size.n_labels]
        parents = [1, *widths[:-1]]
        shared = [min(1.0, size.labels_per_document / parent) for parent in parents]  # share of documents per node
        visits = sum(width * share * size.n_feature_entries for width, share in zip(widths, shared, strict=True))
        level = 12 * _GROWTH * size.n_feature_entries
        cost = StageCost(
            name="trees",
            parameters=level * len(widths) * self.n_trees,
            optimiser=0,
            working=4 * level,
            flops_per_epoch=Solver.operations(visits),
            epochs=self.n_trees,
            path=f"levels of {', '.join(f'{width:,}' for width in widths)}, on the CPU",
        )
        return Plan(device=device, data=8 * (size.n_feature_entries + size.n_relevant), stages=(cost,))

    def _stages(self, data: Prepared, run: Run) -> Iterator[Stage]:
        require_label_text(data.label_features, self.label_text_weight)
        features = sp.csr_matrix(data.features, dtype=np.float32)
        self.steps_ = [self.game.build(data.relevance, data.label_names, run.seed_of("graph"))] if self.game else []
        self.trees_ = [self._tree(features, data.relevance, run, number) for number in range(self.n_trees)]
        if self.label_text_weight is AUTO:
            self.label_text_weight = best_text_weight(data, self.stopping, lambda weight: self._served(data, weight))
        yield from ()  # the solver needs no stages

    def _tree(self, features: sp.csr_matrix, relevance: sp.csr_matrix, run: Run, number: int) -> Tree:
        widths = level_widths(relevance.shape[1], self.branching, self.max_leaf)
        n_clusters = widths[-1] if widths else 1
        seed = run.seed_of("tree", number)
        clusters = run.keep(
            f"clusters-{number}", lambda: cluster_labels(label_centroids(relevance, features), n_clusters, seed)
        )
        solver = Solver(self.loss, self.cost, self.epochs, self.threshold, seed)
        levels = []
        for depth, level in enumerate(tree_levels(relevance, clusters, widths)):
            arrays = run.keep_all(f"tree-{number}-{depth}", partial(solver.train, features, level))
            levels.append(TreeLevel.of(level.children, matrix_of(arrays, features.shape[1]), arrays["bias"]))
            run.log("step", stage=f"tree-{number}", step=depth + 1, steps=len(widths) + 1)
        return Tree(levels, leaf_order(clusters))

    def _servable(self, data: Prepared) -> Servable:
        return self._served(data, self.label_text_weight)

    def _served(self, data: Prepared, text_weight: float) -> Servable:
        scorer = LabelTrees("features", self.trees_, self.loss, self.beam)
        served = linear_servable(data.vectoriser, scorer, "log", data.label_features, text_weight)
        return dataclasses.replace(served, steps=self.steps_)
