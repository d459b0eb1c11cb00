"""Balanced clustering of labels on the training device, and the texts and relevance of clusters.

On a CPU the native kernel clusters; on a GPU, all clusters of a level are split at once in torch. Knows nothing about
networks.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
import torch
from torch.nn import functional as F

from xclearn.errors import ConfigError
from xclearn.labels.clustering import cluster_labels
from xclearn.parts.rows import FeatureRows, SparseRows, bag_vectors

_TOLERANCE, _MOST_ITERATIONS = 1e-4, 20
_AT_ONCE = 4096  # documents whose vectors are summed at a time


def cluster_rows(rows: torch.Tensor, n_clusters: int, seed: int) -> np.ndarray:
    """The cluster of each row (L, D); `n_clusters` is a power of two not above the number of rows."""
    if n_clusters & (n_clusters - 1) or n_clusters > len(rows):
        allowed = f"a power of two up to the {len(rows):,} labels"
        raise ConfigError("the number of clusters is invalid", where="n_clusters", got=n_clusters, allowed=allowed)
    if rows.device.type == "cpu":
        return cluster_labels(np.ascontiguousarray(rows.numpy()), n_clusters, seed)
    return _cluster_on_device(rows, n_clusters, seed)


def _cluster_on_device(rows: torch.Tensor, n_clusters: int, seed: int) -> np.ndarray:
    """Balanced spherical 2-means, level by level. Rows are padded with zero rows so that all splits are even."""
    generator = torch.Generator(rows.device).manual_seed(seed)
    size = -(-len(rows) // n_clusters)
    vectors = F.pad(F.normalize(rows, dim=1), (0, 0, 0, size * n_clusters - len(rows)))  # (C · size, D)
    order = torch.randperm(len(vectors), generator=generator, device=rows.device)
    clusters = 1
    while clusters < n_clusters:
        order = _split(vectors[order].view(clusters, -1, vectors.shape[1]), order.view(clusters, -1)).flatten()
        clusters *= 2
    cluster_of_row = torch.empty_like(order)
    cluster_of_row[order] = torch.arange(len(order), device=rows.device) // size
    return cluster_of_row[: len(rows)].cpu().numpy().astype(np.int32)


def _split(vectors: torch.Tensor, order: torch.Tensor) -> torch.Tensor:
    """Split each of C clusters (C, s, D) into halves; returns `order` (C, s) with each cluster's first half first."""
    half, objective = vectors.shape[1] // 2, -torch.inf
    centres = vectors[:, :2].unbind(1)  # the order within a cluster is random: these are two random rows
    ranks = torch.argsort(_lean(vectors, centres), dim=1, stable=True)
    for _ in range(_MOST_ITERATIONS):
        first = torch.zeros_like(order, dtype=vectors.dtype).scatter_(1, ranks[:, :half], 1.0)  # (C, s)
        sums = torch.stack([first, 1 - first], dim=1) @ vectors  # (C, 2, D)
        reached = float(sums.norm(dim=2).sum() / vectors.shape[:2].numel())
        if reached - objective < _TOLERANCE:
            break
        objective, centres = reached, F.normalize(sums, dim=2).unbind(1)
        ranks = torch.argsort(_lean(vectors, centres), dim=1, stable=True)
    return order.gather(1, ranks)


def _lean(vectors: torch.Tensor, centres: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """How much closer each row is to the second centre than to the first (C, s)."""
    return (vectors @ (centres[1] - centres[0])[:, :, None])[:, :, 0]


@torch.no_grad()
def label_vectors(table: torch.Tensor, documents: FeatureRows, labels: SparseRows) -> torch.Tensor:
    """The sum of E x over each label's documents (L, D); a random table E makes it a random projection of TF-IDF."""
    sums = torch.zeros(labels.n_columns, table.shape[1], device=table.device)
    for rows in torch.arange(len(documents), device=table.device).split(_AT_ONCE):
        features, relevant = documents.take(rows), labels.take(rows)
        vectors = bag_vectors(table, features, sparse=False)
        sums.index_add_(0, relevant.columns, vectors[relevant.owner])
    return sums


def membership(cluster_of_label: np.ndarray, n_clusters: int) -> sp.csr_matrix:
    """Clusters × labels, 1 if the label is in the cluster."""
    labels = np.arange(len(cluster_of_label))
    ones = np.ones(len(labels), dtype=np.float32)
    return sp.csr_matrix((ones, (cluster_of_label, labels)), shape=(n_clusters, len(labels)))


def cluster_texts(members: sp.csr_matrix, label_features: sp.csr_matrix) -> sp.csr_matrix:
    """The text of a cluster: the sum of its labels' texts, scaled to length one (K, V)."""
    texts = (members @ label_features).tocsr()
    lengths = np.sqrt(np.asarray(texts.multiply(texts).sum(axis=1))).ravel()
    scaled = sp.diags_array(1 / np.maximum(lengths, 1e-12)).dot(texts).tocsr().astype(np.float32)
    scaled.sort_indices()
    return scaled


def cluster_relevance(relevance: sp.csr_matrix, members: sp.csr_matrix) -> sp.csr_matrix:
    """Documents × clusters, 1 if the document has a label in the cluster."""
    found = (relevance @ members.T).tocsr()
    found.data[:] = 1.0
    found.sort_indices()
    return found
