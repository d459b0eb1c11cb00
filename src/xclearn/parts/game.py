"""GAME as a step after any algorithm's predictions: the best labels add their neighbours in a label graph.

Knows nothing about the algorithm.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, final

import scipy.sparse as sp

from xclearn.config import Count, Range
from xclearn.inference.graph import Game, GameLabels, Graph
from xclearn.labels.graph import LabelGraph

DEPTH = 100  # best labels that propagate their scores


@final
@dataclass(frozen=True, kw_only=True)
class GameStep:
    """Propagate the scores of the best labels over a label graph."""

    graph: LabelGraph = field(default_factory=LabelGraph)  # the label graph
    share: Annotated[float, Range(0, 1, open_low=True)] = (
        0.5  # share of propagated scores; 1 replaces the original scores
    )
    depth: Count = DEPTH  # best labels that propagate their scores, and that are kept afterwards

    def build(self, relevance: sp.csr_matrix, names: Sequence[str], seed: int) -> GameLabels:
        """The step for the labels of a data set."""
        graph = self.graph.normalise(self.graph.build(relevance, names, seed))
        return GameLabels(Game(Graph.of(graph), self.share, self.depth), self.depth)
