"""Lists of labels near each training document, found by search under a text network: DECAF's other shortlists.

Knows nothing about how the network was trained, nor what the lists are for.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import final

import numpy as np
import scipy.sparse as sp
import torch

from xclearn.inference.components import Bag
from xclearn.parts.text_training import Negatives, TextTask
from xclearn.search.nearest import Method
from xclearn.search.shortlists import Centres, ListSource, Shortlister, label_centres
from xclearn.training.prepare import Prepared
from xclearn.training.run import Run

_AT_ONCE = 1024  # documents encoded at a time


@final
@dataclass(frozen=True)
class LabelLists(Negatives):
    """Labels near each training document, found by search instead of by trained clusters."""

    labels: torch.Tensor  # (N, size), −1 where there are fewer
    centres: Centres
    encoder: Bag  # of the vectors that were compared
    recall: float  # share of train's relevant labels that are listed

    def labels_of(self, rows: torch.Tensor) -> torch.Tensor:
        return self.labels[rows]


def label_lists(
    task: TextTask, data: Prepared, run: Run, *, source: ListSource, size: int, method: Method | None
) -> LabelLists:
    """The labels whose documents lie nearest under the network of a task."""
    task.network.eval()  # it may not have been trained at all
    rows = torch.arange(len(task.documents), device=run.device)
    with torch.no_grad():
        vectors = torch.cat([task.network.encode(task.documents.take(part)) for part in rows.split(_AT_ONCE)])  # (N, D)
    centres = label_centres(vectors, data.relevance, n_extra=0, head=1, seed=0)
    said, seed, size = partial(run.log, "search"), run.seed_of("lists"), min(size, data.size.n_labels)
    shortlister = Shortlister(source=source, size=size, method=method, seed=seed, said=said)
    found = run.keep(
        "lists", f"{source} {size} {method}", lambda: shortlister.lists(vectors, data.relevance, centres)
    )  # (N, size)
    owner = np.repeat(np.arange(len(found)), found.shape[1])[found.ravel() >= 0]
    listed = sp.csr_matrix((np.ones(len(owner), np.float32), (owner, found[found >= 0])), shape=data.relevance.shape)
    recall = float(listed.multiply(data.relevance > 0).sum() / max(1, data.relevance.nnz))
    labels = torch.from_numpy(found).long().to(run.device)
    return LabelLists(labels, centres, task.network.served_encoder(), recall)
