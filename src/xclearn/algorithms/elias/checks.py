"""Settings of ELIAS that do not go together, or ask for more than there is."""

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
            raise ConfigError("larger than there are", where=name, got=getattr(elias, name), allowed=allowed)
    if elias.n_clusters & (elias.n_clusters - 1):
        raise ConfigError("not a power of two", where="n_clusters", got=elias.n_clusters, allowed="1, 2, 4, 8 …")
    if elias.negatives != "shortlist" and (setting := needs_paths(elias)):
        what = "asks for classifiers that are trained on paths"
        got = f"negatives = {elias.negatives}"
        raise ConfigError(what, where=setting, got=got, todo='Set negatives = "shortlist".')


def unread(elias: Elias, size: Size) -> Iterator[tuple[str, str]]:
    """Settings that nothing reads as the others stand, each with what would make something read it."""
    yield "set second.edge_lr", "first.edge_lr"  # the edges of stage 1 are fixed
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
    """A setting that only classifiers trained on paths have: others move at every step and are not averaged."""
    asked = {"reduction": elias.reduction != "sum", "most_clusters": elias.most_clusters > 0}
    for name, phase in (("first", elias.first), ("second", elias.second)):
        asked |= {f"{name}.accumulation": phase.accumulation > 1, f"{name}.average_from": phase.average_from < 1}
    return next((name for name, is_set in asked.items() if is_set), None)
