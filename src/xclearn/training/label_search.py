"""Lists of labels near each training document, found by search among vectors that the caller gives.

Knows nothing about how the vectors were trained, nor what the lists are for.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import final

import numpy as np
import scipy.sparse as sp
import torch

from xclearn.config import Auto
from xclearn.search.nearest import Method
from xclearn.search.shortlists import Centres, ListSource, Shortlister, label_centres
from xclearn.training.run import Run


@final
@dataclass(frozen=True)
class LabelSearch:
    """How labels near training documents are found in one run."""

    relevance: sp.csr_matrix  # (N, L)
    run: Run
    size: int  # labels of a list
    method: Auto[Method]  # exact, or an index of faiss
    head_centres: int = 0  # centres beside the mean of labels with many documents
    head_documents: int = 1  # documents from which on a label has them

    def centres(self, vectors: torch.Tensor) -> Centres:
        """Where labels lie among the documents `vectors` (N, D)."""
        extra = self.head_centres
        head = self.head_documents
        seed = self.run.seed_of("centres")
        return label_centres(vectors, self.relevance, n_extra=extra, head=head, seed=seed)

    def lists(
        self,
        name: str,
        vectors: torch.Tensor,  # (N, D)
        source: ListSource = "centroids",
        centres: Centres | None = None,
        inputs: str = "",
    ) -> np.ndarray:
        """Labels (N, size) near each document, best first, −1 where there are fewer; kept under a name and inputs."""
        on_fallback = partial(self.run.log, "search")
        seed = self.run.seed_of(name)
        shortlister = Shortlister(source=source, size=self.size, method=self.method, seed=seed, on_fallback=on_fallback)

        def find() -> np.ndarray:
            return shortlister.lists(vectors, self.relevance, centres or self.centres(vectors))

        return self.run.keep(name, find, inputs=inputs)
