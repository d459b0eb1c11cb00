"""Slice: a linear classifier per label over fixed vectors, trained on near documents only.

From Jain et al., "Slice: Scalable Linear Extreme Classifiers Trained on 100 Million Labels for Related Searches" (WSDM
2019). Each document has a shortlist of the labels with the nearest centroids; a label is trained on the documents that
have it on their shortlist. It trains on a CPU.

Differences from the paper: vectors of texts come from a truncated SVD of their TF-IDF rows unless `word_vectors` is set
(dense features are used directly); the solver is dual coordinate descent on the squared hinge.

Good for: vectors that you already have, and a CPU.
Cost: one linear classifier per label on shortlists; no encoder is trained.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, final

import numpy as np
import torch

from xclearn.config import AUTO, Auto, Count, Span
from xclearn.inference.components import Bag, Layer, Relu
from xclearn.inference.servable import Servable
from xclearn.inference.shortlists import Mix
from xclearn.parts.frozen import latent_tokens, solved
from xclearn.parts.linear import Solver
from xclearn.parts.setting_types import FusionWeight
from xclearn.search.nearest import Method
from xclearn.text import Subwords, WordPiece, Words
from xclearn.training.algorithm import Algorithm
from xclearn.training.label_search import LabelSearch
from xclearn.training.plan import Plan, StageCost
from xclearn.training.prepare import Prepared, Size
from xclearn.training.run import Run
from xclearn.training.scoring import best_fusion_weight
from xclearn.training.stage import Stage, Stopping
from xclearn.training.token_table import start_from

_FUSION_WEIGHTS = (1.0, 0.9, 0.75, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1)  # candidates
_FUSION_WEIGHT = 0.9

_ShortlistSize = Annotated[Count, Span(50, 1000, log=True)]


@final
@dataclass(kw_only=True)
class Slice(Algorithm):
    """Linear classifiers over fixed vectors, trained on shortlists."""

    name: ClassVar[str] = "slice"

    vectoriser: Words | WordPiece | Subwords = field(default_factory=Words)  # how texts become tokens
    embedding_dim: Annotated[Auto[Count], Span(64, 512, log=True)] = AUTO  # length of text vectors
    word_vectors: str | None = None  # token vectors: a file, a transformer's folder or minilm; none: truncated SVD
    shortlist_size: _ShortlistSize = 300  # labels of a shortlist, also scored when predicting
    search: Auto[Method] = AUTO  # exact, or a faiss index; auto: by the number of labels and what is installed
    epochs: Count = 20  # maximum passes of the solver over its examples
    fusion_weight: FusionWeight = AUTO  # weight of classifiers against the similarity to label centroids
    stopping: Stopping | None = None  # choose fusion_weight by this metric on held-out documents

    def _auto(self, size: Size, device: str) -> dict[str, Any]:  # noqa: ARG002
        dim = size.n_features if size.dense else min(300, size.n_features)
        return {"embedding_dim": dim, "fusion_weight": AUTO if self.stopping else _FUSION_WEIGHT}

    def _unread(self, size: Size, device: str) -> Iterator[tuple[str, str]]:  # noqa: ARG002
        if size.dense and self.embedding_dim != size.n_features:
            yield f"set it to the {size.n_features} of the dense features", "embedding_dim"
        if size.dense:
            yield "give texts instead of dense features", "word_vectors"

    def _plan(self, size: Size, device: str) -> Plan:
        dim = self.embedding_dim
        listed = min(self.shortlist_size, size.n_labels)
        rows = 4 * size.n_labels * dim
        cost = StageCost(
            name="classifiers",
            parameters=rows + 4 * size.n_features * dim,
            optimiser=0,
            working=3 * rows + 12 * size.n_documents * listed,
            flops_per_epoch=Solver.operations(float(size.n_documents * listed * dim)),
            epochs=1,
            path=f"each of {size.n_labels:,} labels against documents that list it, on the CPU",
        )
        return Plan(device=device, data=4 * size.n_documents * dim + 8 * size.n_feature_entries, stages=(cost,))

    def _stages(self, data: Prepared, run: Run) -> Iterator[Stage]:
        table = self._table(data, run)
        layers: list[Layer] = [] if data.size.dense or self.word_vectors is not None else [Relu()]
        self.encoder_ = Bag(table, layers)
        vectors = self.encoder_.encode(data.features)
        rows = torch.from_numpy(vectors)
        search = LabelSearch(data.relevance, run, self.shortlist_size, self.search)
        self.centres_ = search.centres(rows)
        lists = search.lists("lists", rows, centres=self.centres_)
        seed = run.seed_of("classifiers")
        self.scorer_ = solved("slice", "document", vectors, data.relevance, lists, seed, self.epochs)
        if self.fusion_weight is AUTO:
            self.fusion_weight = best_fusion_weight(data, self.stopping, self._servable(data), _FUSION_WEIGHTS)
        yield from ()  # the solver needs no stages

    def _servable(self, data: Prepared) -> Servable:
        candidates = self.centres_.served("document", self.shortlist_size)
        mix = Mix([1.0], 1.0 if self.fusion_weight is AUTO else self.fusion_weight, by_row=False)
        return Servable(data.vectoriser, {"document": self.encoder_}, candidates, [self.scorer_], mix)

    def _table(self, data: Prepared, run: Run) -> np.ndarray:
        """Token vectors (V, D); the identity for dense features."""
        if data.size.dense:
            return np.eye(data.size.n_features, self.embedding_dim, dtype=np.float32)
        if self.word_vectors is not None:  # a token that it does not know counts for nothing
            table = torch.zeros(data.size.n_features, self.embedding_dim)
            start_from(table, self.word_vectors, data, run)
            return table.numpy()
        dim = self.embedding_dim
        return run.keep("vectors", lambda: latent_tokens(data.features, dim, run.seed_of("vectors")))
