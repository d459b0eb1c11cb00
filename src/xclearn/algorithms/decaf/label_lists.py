"""DECAF's alternative shortlists: labels found by document vectors instead of trained clusters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch

from xclearn.config import Auto
from xclearn.inference.components import Bag
from xclearn.labels.lists import padded_matrix
from xclearn.parts.text_training import ListedLabels, TextTask
from xclearn.search.nearest import Method
from xclearn.search.shortlists import Centres, ListSource
from xclearn.training.label_search import LabelSearch
from xclearn.training.prepare import Prepared
from xclearn.training.run import Run

_AT_ONCE = 1024  # documents per batch


@final
@dataclass(frozen=True)
class LabelLists(ListedLabels):
    """Labels near each training document."""

    labels: torch.Tensor  # (N, size), padded with −1
    centres: Centres
    encoder: Bag  # of the vectors searched
    recall: float  # share of train's relevant labels in the lists

    def labels_of(self, rows: torch.Tensor) -> torch.Tensor:
        return self.labels[rows]


def label_lists(
    task: TextTask, data: Prepared, run: Run, *, source: ListSource, size: int, method: Auto[Method]
) -> LabelLists:
    """The labels whose documents are nearest, by the network of a task."""
    task.network.eval()  # it may be untrained
    rows = torch.arange(len(task.documents), device=run.device)
    with torch.no_grad():
        vectors = torch.cat([task.network.encode(task.documents.take(part)) for part in rows.split(_AT_ONCE)])  # (N, D)
    search = LabelSearch(data.relevance, run, min(size, data.size.n_labels), method)
    centres = search.centres(vectors)
    found = search.lists("lists", vectors, source, centres, f"{source} {search.size} {method}")
    listed = padded_matrix(found, data.size.n_labels)
    recall = float(listed.multiply(data.relevance > 0).sum() / max(1, data.relevance.nnz))
    labels = torch.from_numpy(found).long().to(run.device)
    return LabelLists(labels, centres, task.network.served_encoder(), recall)
