"""The cost of ELIAS's stages: their weights, the memory of a step, and of building the index.

Knows nothing about the order of stages.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, final

from xclearn.algorithms.elias.stages import AT_ONCE, Phase
from xclearn.parts.cost import Weights
from xclearn.parts.encoder_settings import encoder_dim, encoder_weights
from xclearn.parts.pair_products import dense_bytes
from xclearn.parts.row_training import RowStep, row_weights
from xclearn.training.plan import StageCost, Steps, beside, stage_cost
from xclearn.training.prepare import Size

if TYPE_CHECKING:
    from xclearn.algorithms.elias import Elias

_PATH_BYTES = 120  # per path explored on a GPU
_PAIR_BYTES = 64  # per pair of a document and a label found
Before = Literal["nothing", "clustering", "clustering again", "matching"]


def index_cost(elias: Elias, size: Size, device: str) -> IndexCost:
    """The cost of a member, from its resolved settings."""
    dim = encoder_dim(elias.vectoriser, elias.embedding_dim)
    return IndexCost(
        device=device,
        size=size,
        dim=dim,
        clustered_dim=(1 + elias.cluster_text) * elias.embedding_dim,
        encoder=encoder_weights(elias.encoder, elias.vectoriser, size.n_features, dim),
        encoder_working=elias.encoder.working(elias.vectoriser),
        encoder_products=elias.encoder.products(elias.vectoriser, dim),
        n_clusters=elias.n_clusters,
        n_edges=elias.edges_per_cluster,
        beam=elias.beam,
        shortlist=elias.shortlist_size if elias.negatives == "shortlist" else 0,
        drawn=elias.drawn,
        label_optimiser=elias.label_optimiser,
        stopping=elias.stopping is not None,
    )


class _Classifiers(NamedTuple):
    """The cost of label classifiers."""

    rows: Weights
    step: float  # bytes of a step, including encoder and index
    scored: float  # labels scored per document
    path: str  # description


@final
@dataclass(frozen=True, kw_only=True)
class IndexCost:
    """The cost of one network and its stages, without the data."""

    device: str
    size: Size
    dim: int
    clustered_dim: int  # dimension of the vectors for the first clustering
    encoder: tuple[Weights, ...]
    encoder_working: int  # bytes of activations per document
    encoder_products: int  # multiplications per document
    n_clusters: int
    n_edges: int  # learnt edges per cluster
    beam: int  # clusters explored per document
    shortlist: int  # labels found per document to train classifiers on; 0: trained separately from the paths
    drawn: int  # labels per step for separately trained classifiers; 0: all
    label_optimiser: Literal["sgd", "adam"]
    stopping: bool  # whether the best weights are kept

    @property
    def served(self) -> int:
        """Bytes of the served form, on a CPU."""
        return self._network + 8 * self.n_clusters * self.n_edges

    def stage(self, name: str, phase: Phase, epochs: int, before: Before) -> StageCost:
        """The cost of a stage, including what precedes it; edges are fixed unless matches or nothing precede."""
        fixed = before in ("clustering", "clustering again")
        n_slots = math.ceil(self.size.n_labels / self.n_clusters) if fixed else self.n_edges
        rows, step, scored, path = (self._on_paths if self.shortlist else self._apart)(phase.batch_size, n_slots)
        trained = [*self.encoder, Weights(values=self.n_clusters * (n_slots + self.dim)), rows]
        learnt = sum(weights.held for weights in trained)
        average = learnt if phase.average_from < 1 else 0
        held = step + phase.batch_size * self.encoder_working + average * (2 if self.stopping else 1)
        cost = stage_cost(
            name,
            trained,
            epochs=epochs,
            products=self.size.n_documents * (self.encoder_products + self.dim * (self.n_clusters + scored)),
            path=path,
            steps=Steps(self.size.n_documents / phase.batch_size, held),
            served=self._made(before) - learnt,
            best=self.stopping,
        )
        return beside(cost, 16 * self.n_clusters * n_slots)  # labels of edges, and edges by label

    @property
    def _values(self) -> int:
        return sum(weights.values for weights in self.encoder)

    @property
    def _network(self) -> int:
        """Bytes of encoder, label rows and clusters."""
        return 4 * (self._values + (self.size.n_labels + self.n_clusters) * (self.dim + 1))

    @property
    def _tokens(self) -> float:
        """Tokens per document."""
        return self.size.n_feature_entries / self.size.n_documents

    def _made(self, before: Before) -> int:
        """Bytes while clusters or edges are built."""
        again = before == "clustering again"  # also uses vectors of a network that is still in memory
        if again or before == "clustering":
            vectors = 16 * self.size.n_labels * (self.clustered_dim + again * self.dim)
            return vectors + 4 * self.size.n_features * self.clustered_dim + again * self._network
        matches = min(self.beam * self.size.n_relevant, self.n_clusters * self.size.n_labels)  # maximum, in three forms
        return self._network + 24 * matches if before == "matching" and self.device == "cpu" else 0

    def _on_paths(self, batch: int, n_slots: int) -> _Classifiers:
        """Classifiers trained on the labels found by paths."""
        size, gpu = self.size, self.device == "cuda"
        rows = Weights(values=size.n_labels * (self.dim + 1), optimiser=self.label_optimiser)
        paths = batch * (self.beam + math.ceil(size.labels_per_document)) * n_slots
        pairs = batch * min(self.shortlist, paths // batch)
        distinct = -size.n_labels * math.expm1(
            -pairs / size.n_labels
        )  # distinct labels of a batch, if all were equally likely
        # a GPU holds dense gradients and all paths at once; a CPU holds the batch's rows and their gradients
        dense = 4 * (self._values + rows.values) + _PATH_BYTES * paths + dense_bytes(batch, pairs, size.n_labels)
        step = dense if gpu else 4 * self.dim * (2 * distinct + batch * self._tokens)
        path = f"{self.shortlist:,} labels below {self.beam} of {self.n_clusters:,} clusters"
        return _Classifiers(rows, step + _PAIR_BYTES * pairs, 4 * pairs / batch, path)

    def _apart(self, batch: int, n_slots: int) -> _Classifiers:
        """Classifiers trained separately from the paths."""
        size, gpu = self.size, self.device == "cuda"
        relevant = math.ceil(batch * size.labels_per_document)
        scored = min(size.n_labels, self.drawn + relevant) if self.drawn else size.n_labels
        rows = row_weights(size.share(size.n_labels), self.dim, self.label_optimiser, self.device)
        step = RowStep(
            optimiser=self.label_optimiser,
            batch=batch,
            dim=self.dim,
            scored=size.share(scored),
            drawn=self.drawn > 0,
            device=self.device,
        )
        encoder = 4 * self._values if gpu else 4 * self.dim * 2 * batch * self._tokens
        index = 18 * (
            batch * self.n_clusters + self.n_clusters * n_slots
        )  # probabilities, strengths, and their gradients
        # on a GPU, scores are freed before the encoder's gradients are computed
        working = max(step.beside(0), encoder + index) if gpu else step.beside(encoder + index)
        if gpu and self.stopping:  # held-out documents explore all paths at once
            working = max(working, _PATH_BYTES * AT_ONCE * self.beam * n_slots)
        served = 0 if gpu else 4 * size.n_labels * self.dim
        working = max(working, served - 8 * self._values)
        path = f"about {scored:,} labels per step" if self.drawn else f"all {scored:,} labels"
        return _Classifiers(rows, working, scored, f"{path}, apart from the paths")
