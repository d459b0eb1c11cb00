"""The labels nearest to a label, in the model's label graph or by its classifiers.

Knows nothing about names or how a graph was built.
"""

from __future__ import annotations

import numpy as np

from xclearn.inference.blend import AnyServable
from xclearn.inference.components import Classifier, Scorer
from xclearn.inference.graph import GameLabels, GameScorer, Graph
from xclearn.inference.servable import Servable

Neighbours = list[tuple[int, float]]  # labels and similarities, nearest first


def label_graph(servable: AnyServable) -> Graph | None:
    """The label graph of the model or of its first member that has one, else None."""
    if not isinstance(servable, Servable):
        found = (label_graph(member) for member in servable.members)
        return next((graph for graph in found if graph is not None), None)
    graphs = [step.game.graph for step in servable.steps if isinstance(step, GameLabels)]
    graphs += [scorer.graph for scorer in servable.scorers if isinstance(scorer, GameScorer)]
    return graphs[0] if graphs else None


def near_labels(servable: AnyServable, label: int, k: int) -> list[int]:
    """The k labels nearest to one: by classifier if labels have vectors, else in the graph, else none."""
    found = near_by_classifier(servable, label, k)
    graph = label_graph(servable) if found is None else None
    if graph is not None:
        found = near_in_graph(graph, label, k)
    return [other for other, _ in found or []]


def near_in_graph(graph: Graph, label: int, k: int) -> Neighbours:
    """The k labels with the strongest edges to or from this one."""
    weights = np.maximum(graph.matrix[[label]].toarray()[0], graph.matrix[:, [label]].toarray()[:, 0])  # (L,)
    return _best(weights, label, k)


def near_by_classifier(servable: AnyServable, label: int, k: int) -> Neighbours | None:
    """The k labels with the most similar classifiers by cosine; None if labels have no vectors."""
    if not isinstance(servable, Servable):
        found = (near_by_classifier(member, label, k) for member in servable.members)
        return next((near for near in found if near is not None), None)
    scorer: Scorer = servable.scorers[0]
    scorer = scorer.scorer if isinstance(scorer, GameScorer) else scorer
    if not isinstance(scorer, Classifier):
        return None
    lengths = np.linalg.norm(scorer.weight, axis=1)
    cosine = scorer.weight @ scorer.weight[label] / np.maximum(lengths * lengths[label], 1e-12)
    return _best(cosine, label, k)


def _best(values: np.ndarray, label: int, k: int) -> Neighbours:
    order = np.argsort(-values, kind="stable")
    order = order[(order != label) & (values[order] > 0)][:k]
    return [(int(other), float(values[other])) for other in order]
