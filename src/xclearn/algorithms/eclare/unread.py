"""Settings of ECLARE that have no effect, given the others, beside those of every text network."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from xclearn.config import AUTO

if TYPE_CHECKING:
    from xclearn.algorithms.eclare import Eclare


def unread(eclare: Eclare) -> Iterator[tuple[str, str]]:
    """Unused settings, each with the change that would make it effective."""
    lists = eclare.ranker == "shortlist"
    convolves = eclare.order is AUTO or eclare.order > 0
    listed_over_graph = lists and (eclare.smooth_centroids or eclare.cluster_game > 0 or eclare.negatives != "clusters")
    if eclare.order is not AUTO and eclare.game is not AUTO:
        yield "leave order or game at auto on 2,000 documents or more", "trial_epochs choose_by"
    if not lists:
        yield 'set ranker = "shortlist"', "smooth_centroids head_clusters cluster_game negatives between_clusters"
    elif not (convolves or eclare.cluster_game > 0):
        yield "set order or cluster_game above 0", "between_clusters"
    if not convolves:
        names = "convolution combine convolved_gradient"
        yield "set order above 0", f"{names} refinement" if eclare.refinement == "graph" else names
    if not (convolves or listed_over_graph or eclare.game is AUTO or eclare.game > 0):
        of_graph = "graph.source graph.edges graph.normalisation" if lists and eclare.head_clusters else "graph"
        yield "set order or game above 0", f"{of_graph} least_cosine"
    if eclare.refinement == "none":
        yield "set refinement to text or graph", "refinement_lr" if convolves else "refinement_lr label_text"
