"""Checks for ELIAS settings that conflict or exceed the data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from xclearn.errors import ConfigError
from xclearn.training.prepare import Size

if TYPE_CHECKING:
    from xclearn.algorithms.elias import Elias


def require_sizes(elias: Elias, size: Size) -> None:
    """Raise if a resolved setting does not suit the data or another setting."""
    for name in ("edges_per_cluster", "shortlist_size", "n_clusters", "beam"):
        limit = elias.n_clusters if name == "beam" else size.n_labels
        if getattr(elias, name) > limit:
            allowed = f"up to {limit:,}, the number of {'clusters' if name == 'beam' else 'labels'}"
            raise ConfigError("too large", where=name, got=getattr(elias, name), allowed=allowed)
    if elias.n_clusters & (elias.n_clusters - 1):
        raise ConfigError("not a power of two", where="n_clusters", got=elias.n_clusters, allowed="1, 2, 4, 8 …")
    if elias.negatives != "shortlist" and (setting := needs_paths(elias)):
        what = "it needs classifiers trained on paths"
        got = f"negatives = {elias.negatives}"
        raise ConfigError(what, where=setting, got=got, todo='Set negatives = "shortlist".')


def unread(elias: Elias, size: Size) -> Iterator[tuple[str, str]]:
    """Settings without effect, given the others, each with the change that would make it effective."""
    yield "set second.edge_lr", "first.edge_lr"  # edges are fixed in stage 1
    if elias.training == "partition":
        names = "second second_epochs edges_per_cluster edge_scale edge_start restart_labels"
        yield 'set training = "two_stages"', names
    if elias.training == "end_to_end":
        names = "first first_epochs cluster_text recluster_after edge_start restart_labels"
        yield 'set training = "two_stages"', names
    if elias.negatives != "drawn":
        yield 'set negatives = "drawn"', "n_drawn"
    if size.n_label_entries == 0:
        yield "give label texts", "cluster_text"
    for name, phase in (("first", elias.first), ("second", elias.second)):
        if phase.average_from == 1:
            yield f"set {name}.average_from below 1", f"{name}.average_every"


def needs_paths(elias: Elias) -> str | None:
    """A setting that applies only to classifiers trained on paths; others are updated every step and not averaged."""
    asked = {"reduction": elias.reduction != "sum", "most_clusters": elias.most_clusters > 0}
    for name, phase in (("first", elias.first), ("second", elias.second)):
        asked |= {f"{name}.accumulation": phase.accumulation > 1, f"{name}.average_from": phase.average_from < 1}
    return next((name for name, is_set in asked.items() if is_set), None)
