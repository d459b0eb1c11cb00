"""GAME as a step after any algorithm's predictions: the best labels bring in their neighbours in a label graph.

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

DEPTH = 100  # best labels that pass their scores on


@final
@dataclass(frozen=True, kw_only=True)
class GameStep:
    """Pass the scores of the best labels on over a graph of labels."""

    graph: LabelGraph = field(default_factory=LabelGraph)  # the labels' graph
    share: Annotated[float, Range(0, 1, open_low=True)] = 0.5  # of what is passed on; 1 leaves nothing of the first
    depth: Count = DEPTH  # best labels that pass their scores on, and that what is passed on is cut to

    def build(self, relevance: sp.csr_matrix, names: Sequence[str], seed: int) -> GameLabels:
        """The step for a set's labels."""
        graph = self.graph.normalise(self.graph.build(relevance, names, seed))
        return GameLabels(Game(Graph.of(graph), self.share, self.depth), self.depth)
