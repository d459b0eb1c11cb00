"""Module I's surrogate tasks, on which features are learnt first: fewer outputs than labels, or none.

Outputs may be clusters of labels, the most frequent labels, or random buckets; another task is to regress on a low-rank
factorisation of relevance. Knows nothing about stages.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, final

import numpy as np
import scipy.sparse as sp
import torch
from torch import nn
from torch.nn import functional as F

from xclearn.errors import ConfigError
from xclearn.labels.clustering import cluster_labels, label_centroids
from xclearn.labels.graph import RandomWalk, random_walk_graph, row_shares
from xclearn.labels.lists import padded_matrix
from xclearn.parts.classifiers import RowClassifier
from xclearn.parts.encoders import BagEncoder, DocumentEncoder, encoder_optimisers
from xclearn.parts.frozen import singular_vectors
from xclearn.parts.label_clusters import cluster_relevance, cluster_rows, label_vectors, membership
from xclearn.parts.row_training import Negatives, RowTask
from xclearn.parts.rows import FeatureRows, SparseRows, feature_rows

Surrogate = Literal[
    "clusters", "correlated_clusters", "selection", "hashing", "projection", "word_vectors", "skip_gram", "none"
]  # the task of Module I
UNTRAINED = ("word_vectors", "skip_gram", "none")  # tasks without a stage

_NEIGHBOURS = 10  # labels whose centroids are averaged with a label's own, as in the authors' code
_PROJECTED = 128  # dimensions of the random projection of label centroids
_EXACT = 20_000  # up to this many outputs, a CPU scores all of them per step


def usual_outputs(kind: Surrogate, n_labels: int) -> int:
    """The default number of outputs of a task."""
    few = {"selection": math.ceil(n_labels / 5), "projection": min(256, n_labels)}
    return few.get(kind, 2 ** min(16, max(0, math.floor(math.log2(n_labels / 2)))))


def drawn_outputs(n_drawn: int, n_outputs: int, device: str) -> int:
    """How many outputs a step draws; 0 if it scores all."""
    return n_drawn if n_outputs > _EXACT and device == "cpu" else 0


def summed_tokens(encoder: DocumentEncoder, where: str, got: str) -> torch.Tensor:
    """The token vectors (V, D) of an encoder that sums them, to be written to; other encoders are refused."""
    if not isinstance(encoder, BagEncoder):
        raise ConfigError("word vectors need an encoder that sums them", where=where, got=got)
    return encoder.token_embeddings.data


def surrogate_targets(
    kind: Surrogate,
    n_outputs: int,
    relevance: sp.csr_matrix,
    bags: sp.csr_matrix | np.ndarray,
    seed: int,
    device: torch.device,
    walk: RandomWalk | None = None,
) -> dict[str, np.ndarray]:
    """The targets of each document: `values` (N, r), or the positive outputs as `indptr` and `indices`.

    `bags` (N, V) tell which labels have similar documents, and a `walk` which labels are correlated.
    """
    if kind == "projection":
        return {"values": low_rank_targets(relevance, n_outputs, seed)}
    if kind == "selection":
        found = frequent_labels(relevance, n_outputs)
    else:
        group = group_of_label(kind, n_outputs, relevance, bags, seed, device, walk)
        found = cluster_relevance(relevance, membership(group, n_outputs))
    return {"indptr": found.indptr.astype(np.int64), "indices": found.indices.astype(np.int32)}


@final
@dataclass(frozen=True)
class ProjectionTask:
    """An encoder and a linear map from its vectors to given coordinates."""

    encoder: DocumentEncoder
    head: nn.Linear
    documents: FeatureRows
    targets: torch.Tensor  # (N, r)

    @property
    def module(self) -> nn.ModuleDict:
        return nn.ModuleDict({"encoder": self.encoder, "head": self.head})

    @property
    def n_items(self) -> int:
        return len(self.documents)

    def optimisers(self, lr: float) -> list[torch.optim.Optimizer]:
        return [*encoder_optimisers(self.encoder, lr), torch.optim.Adam(self.head.parameters(), lr=lr, fused=True)]

    def loss(self, rows: torch.Tensor, step: int, generator: torch.Generator) -> torch.Tensor:  # noqa: ARG002
        """Mean squared error over coordinates."""
        return F.mse_loss(self.head(self.encoder(self.documents.take(rows))), self.targets[rows])


def surrogate_task(
    targets: dict[str, np.ndarray],
    encoder: DocumentEncoder,
    classifier: RowClassifier,
    documents: FeatureRows,
    drawn: int,
    device: torch.device,
) -> RowTask | ProjectionTask:
    """The task of learning `targets`; coordinates are predicted by a linear map instead of the classifier.

    `drawn` outputs per step are trained beside the relevant ones; 0: all.
    """
    if "values" in targets:
        head = nn.Linear(encoder.dim, targets["values"].shape[1]).to(device)
        return ProjectionTask(encoder, head, documents, torch.from_numpy(targets["values"]).to(device))
    positives = target_rows(targets, len(classifier.rows), device)
    return RowTask(encoder, classifier, documents, positives, Negatives(drawn=drawn))


def target_rows(arrays: dict[str, np.ndarray], n_outputs: int, device: torch.device) -> SparseRows:
    """Targets that are outputs, on the device."""
    ones = np.ones(len(arrays["indices"]), dtype=np.float32)
    shape = (len(arrays["indptr"]) - 1, n_outputs)
    return SparseRows.of(sp.csr_matrix((ones, arrays["indices"], arrays["indptr"]), shape), device)


def group_of_label(
    kind: str,
    n_groups: int,
    relevance: sp.csr_matrix,
    bags: sp.csr_matrix | np.ndarray,
    seed: int,
    device: torch.device,
    walk: RandomWalk | None = None,
) -> np.ndarray:
    """The bucket or cluster of each label, (L,) int32."""
    n_labels = relevance.shape[1]
    if kind == "hashing":
        return np.random.default_rng(seed).integers(n_groups, size=n_labels, dtype=np.int32)
    if n_groups > n_labels or n_groups & (n_groups - 1):
        allowed = f"a power of two up to the {n_labels:,} labels"
        raise ConfigError("the number of clusters is invalid", where="n_clusters", got=n_groups, allowed=allowed)
    if device.type == "cpu" and sp.issparse(
        bags
    ):  # without projection, which keeps a document's labels together more often
        centroids = label_centroids(relevance, bags)
        return cluster_labels(_smoothed(centroids, kind, relevance, seed, walk), n_groups, seed)
    projected = F.normalize(_projected_centroids(bags, relevance, seed, device), dim=1).cpu().numpy()
    rows = np.asarray(_smoothed(projected, kind, relevance, seed, walk), dtype=np.float32)
    return cluster_rows(torch.from_numpy(rows).to(device), n_groups, seed)


def _smoothed(
    centroids: sp.csr_matrix | np.ndarray, kind: str, relevance: sp.csr_matrix, seed: int, walk: RandomWalk | None
) -> sp.csr_matrix | np.ndarray:
    """Centroids (L, V) of correlated clusters: the mean over a label and those that a walk from it visits most."""
    if kind != "correlated_clusters":
        return centroids
    steps = (walk or RandomWalk()).steps
    restart = (walk or RandomWalk()).restart
    return (
        row_shares(random_walk_graph(relevance, steps=steps, restart=restart, top=_NEIGHBOURS, seed=seed)) @ centroids
    )


def frequent_labels(relevance: sp.csr_matrix, n_outputs: int) -> sp.csr_matrix:
    """Relevance of only the most frequent labels (N, n)."""
    if n_outputs > relevance.shape[1]:
        allowed = f"up to the {relevance.shape[1]:,} labels"
        raise ConfigError("more labels than the data has", where="n_clusters", got=n_outputs, allowed=allowed)
    counts = np.bincount(relevance.indices, minlength=relevance.shape[1])
    kept = np.sort(np.argsort(-counts, kind="stable")[:n_outputs])
    chosen = sp.csr_matrix(relevance[:, kept])
    chosen.sort_indices()
    return chosen


def low_rank_targets(relevance: sp.csr_matrix, rank: int, seed: int) -> np.ndarray:
    """Coordinates (N, r) of each document's labels along the main singular directions of relevance, unit variance."""
    left, _ = singular_vectors(relevance, min(rank, *relevance.shape), seed)
    return (left * np.sqrt(len(left))).astype(np.float32)


def bags_of(features: sp.csr_matrix | np.ndarray, n_features: int) -> sp.csr_matrix | np.ndarray:
    """Features (N, V) unchanged, or counted from token sequences (N, T) padded with −1."""
    if sp.issparse(features) or features.dtype.kind != "i":
        return features
    return padded_matrix(features, n_features)


def _projected_centroids(
    bags: sp.csr_matrix | np.ndarray, relevance: sp.csr_matrix, seed: int, device: torch.device
) -> torch.Tensor:
    """A random projection of the sum of each label's documents (L, 128)."""
    table = torch.randn(bags.shape[1], _PROJECTED, generator=torch.Generator().manual_seed(seed)).to(device)
    return label_vectors(table, feature_rows(bags, device), SparseRows.of(relevance, device))
