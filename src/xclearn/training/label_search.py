"""Shortlists of labels near each training document, by search among given vectors.

Knows nothing about how the vectors were trained or what the shortlists are for.
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
    """Finds labels near training documents in one run."""

    relevance: sp.csr_matrix  # (N, L)
    run: Run
    size: int  # labels per shortlist
    method: Auto[Method]  # exact, or a faiss index
    head_centres: int = 0  # extra centroids for labels with many documents
    head_documents: int = 1  # minimum documents of a label with extra centroids

    def centres(self, vectors: torch.Tensor) -> Centres:
        """The label centroids among the document `vectors` (N, D)."""
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
        """Labels (N, size) near each document, best first, padded with −1; stored under a name and inputs."""
        on_fallback = partial(self.run.log, "search")
        seed = self.run.seed_of(name)
        shortlister = Shortlister(source=source, size=self.size, method=self.method, seed=seed, on_fallback=on_fallback)

        def find() -> np.ndarray:
            return shortlister.lists(vectors, self.relevance, centres or self.centres(vectors))

        return self.run.keep(name, find, inputs=inputs)
