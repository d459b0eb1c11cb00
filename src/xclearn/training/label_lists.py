"""Lists of labels near each training document, found by search among vectors that the caller gives.

`label_lists` takes them from a text network: DECAF's other shortlists. Knows nothing about how they were trained,
nor what the lists are for.
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
class LabelSearch:
    """How labels near training documents are found in one run."""

    relevance: sp.csr_matrix  # (N, L)
    run: Run
    size: int  # labels of a list
    method: Method | None  # exact, or an index of faiss
    head_centres: int = 0  # centres beside the mean of labels with many documents
    head_documents: int = 1  # documents from which on a label has them

    def centres(self, vectors: torch.Tensor) -> Centres:
        """Where labels lie among the documents `vectors` (N, D)."""
        extra, head, seed = self.head_centres, self.head_documents, self.run.seed_of("centres")
        return label_centres(vectors, self.relevance, n_extra=extra, head=head, seed=seed)

    def lists(
        self,
        name: str,
        vectors: torch.Tensor,
        source: ListSource = "centroids",
        centres: Centres | None = None,
        inputs: str = "",
    ) -> np.ndarray:
        """Labels (N, size) near each document, best first, −1 where there are fewer; kept under a name and inputs."""
        seed, said = self.run.seed_of(name), partial(self.run.log, "search")
        shortlister = Shortlister(source=source, size=self.size, method=self.method, seed=seed, said=said)
        return self.run.keep(
            name, inputs, lambda: shortlister.lists(vectors, self.relevance, centres or self.centres(vectors))
        )


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
    search = LabelSearch(data.relevance, run, min(size, data.size.n_labels), method)
    centres = search.centres(vectors)
    found = search.lists("lists", vectors, source, centres, f"{source} {search.size} {method}")
    owner = np.repeat(np.arange(len(found)), found.shape[1])[found.ravel() >= 0]
    listed = sp.csr_matrix((np.ones(len(owner), np.float32), (owner, found[found >= 0])), shape=data.relevance.shape)
    recall = float(listed.multiply(data.relevance > 0).sum() / max(1, data.relevance.nnz))
    labels = torch.from_numpy(found).long().to(run.device)
    return LabelLists(labels, centres, task.network.served_encoder(), recall)
