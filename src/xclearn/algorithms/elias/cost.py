"""What the stages of a network with a label index take: the bytes of each, and what making its index took before.

Knows nothing about which stages an algorithm has.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple, final

from xclearn.algorithms.elias.stages import AT_ONCE, Phase
from xclearn.parts.classifiers import row_width
from xclearn.parts.pair_products import dense_bytes
from xclearn.parts.row_training import ROW_UPDATES, step_bytes
from xclearn.training.plan import StageCost
from xclearn.training.prepare import Size

_PATH_BYTES = 120  # of a path that a GPU explores
Before = Literal["nothing", "clustering", "clustering again", "matching"]


class _Classifiers(NamedTuple):
    """What label classifiers take."""

    rows: int  # values of the label rows
    moments: int  # bytes of their optimiser
    step: int  # bytes that a step holds, of encoder and index too
    scored: float  # labels scored for a document
    path: str  # in words


@final
@dataclass(frozen=True, kw_only=True)
class IndexCost:
    """Of one network and its stages, beside the data."""

    device: str
    size: Size
    batch_size: int
    dim: int
    clustered_dim: int  # of the vectors by which labels are clustered before there is a network
    encoder: int  # values that the encoder learns
    encoder_working: int  # bytes that it holds for a document
    encoder_products: int  # its multiplications for a document, if they are many
    n_clusters: int
    n_edges: int  # of a cluster, when they are learnt
    beam: int  # clusters explored for a document
    shortlist: int  # labels found for a document that classifiers are trained on; 0: apart from the paths
    drawn: int  # labels that classifiers apart from the paths are trained against in a step; 0: all
    label_optimiser: Literal["sgd", "adam"]
    stopping: bool  # whether the best weights are kept

    @property
    def served(self) -> int:
        """Bytes of what is served of it, on a CPU."""
        return 4 * self._values + 8 * self.n_clusters * self.n_edges

    def stage(self, name: str, phase: Phase, epochs: int, before: Before) -> StageCost:
        """Of a stage, and of what comes before it; edges are fixed until there are matches, or nothing, before."""
        fixed = before in ("clustering", "clustering again")
        n_slots = math.ceil(self.size.n_labels / self.n_clusters) if fixed else self.n_edges
        batch = phase.batch_size or self.batch_size
        rows, moments, step, scored, path = (self._on_paths if self.shortlist else self._apart)(batch, n_slots)
        edges, slots = self.n_clusters * (n_slots + self.dim), self.n_clusters * n_slots
        learnt = 4 * (self.encoder + rows + edges) + 16 * slots  # labels of edges, and edges by label
        average = learnt if phase.average_from < 1 else 0
        best = learnt + average + (0 if self.shortlist else moments) if self.stopping else 0
        optimiser, working = 8 * (self.encoder + edges) + moments, step + batch * self.encoder_working
        products = self.encoder_products + self.dim * (self.n_clusters + scored)
        return StageCost(
            name=name,
            parameters=learnt,
            optimiser=optimiser,
            working=max(working + average + best, self._made(before) - learnt - optimiser),
            flops_per_epoch=6.0 * self.size.n_documents * products,
            epochs=epochs,
            path=path,
        )

    @property
    def _values(self) -> int:
        """Of encoder, label rows and clusters."""
        return self.encoder + (self.size.n_labels + self.n_clusters) * (self.dim + 1)

    def _made(self, before: Before) -> int:
        """Bytes while clusters or edges are made."""
        again = before == "clustering again"  # by the vectors of a network too, which is still there
        if again or before == "clustering":
            vectors = 16 * self.size.n_labels * (self.clustered_dim + again * self.dim)
            return vectors + 4 * self.size.n_features * self.clustered_dim + again * 4 * self._values
        matches = min(self.beam * self.size.n_relevant, self.n_clusters * self.size.n_labels)  # at most, in three forms
        return 4 * self._values + 24 * matches if before == "matching" and self.device == "cpu" else 0

    def _on_paths(self, batch: int, n_slots: int) -> _Classifiers:
        """On the labels that are found."""
        size, gpu = self.size, self.device == "cuda"
        rows = size.n_labels * (self.dim + 1)
        paths = batch * (self.beam + math.ceil(size.labels_per_document)) * n_slots
        pairs = batch * min(self.shortlist, paths // batch)
        distinct = -size.n_labels * math.expm1(-pairs / size.n_labels)  # labels of a batch, if all were as likely
        tokens = batch * size.n_feature_entries / size.n_documents
        # a GPU has dense gradients, and all paths at once; a CPU the rows of the batch and their gradients
        dense = 4 * (self.encoder + rows) + _PATH_BYTES * paths + dense_bytes(batch, pairs, size.n_labels)
        step = dense if gpu else math.ceil(4 * self.dim * (2 * distinct + tokens))
        moments = 8 * rows if self.label_optimiser == "adam" else 0
        path = f"{self.shortlist:,} labels below {self.beam} of {self.n_clusters:,} clusters"
        return _Classifiers(rows, moments, step + 64 * pairs, 4 * pairs / batch, path)

    def _apart(self, batch: int, n_slots: int) -> _Classifiers:
        """Apart from the paths."""
        size, gpu, width = self.size, self.device == "cuda", row_width(self.dim)
        relevant = math.ceil(batch * size.labels_per_document)
        scored = min(size.n_labels, self.drawn + relevant) if self.drawn else size.n_labels
        scores, update = step_bytes(self.label_optimiser, batch, width, scored, self.device, drawn=self.drawn > 0)
        tokens = 2 * batch * size.n_feature_entries / size.n_documents
        encoder = 4 * self.encoder if gpu else math.ceil(4 * self.dim * tokens)
        index = 18 * (batch * self.n_clusters + self.n_clusters * n_slots)  # chances, strengths, their gradients
        # a GPU's allocator hands on what was freed: the scores are gone when gradients come; the CPU's keeps it
        step = max(scores + max(scores, update), encoder + index) if gpu else 2 * scores + update + encoder + index
        if gpu and self.stopping:  # held-out documents explore all paths at once
            step = max(step, _PATH_BYTES * AT_ONCE * self.beam * n_slots)
        rows, served = size.n_labels * width, 0 if gpu else 4 * size.n_labels * self.dim
        step = max(step, served - 8 * self.encoder) + (2 * rows if gpu else 0)  # and all rows in half the bits
        path = f"about {scored:,} labels a step" if self.drawn else f"all {scored:,} labels"
        moments = ROW_UPDATES[self.label_optimiser].bytes_per_value() * rows
        return _Classifiers(rows, moments, step, scored, f"{path}, apart from the paths")
