"""A tree of clusters over the labels of a linear model, for search that does not score every label.

Its leaves are clusters of labels, every level above groups 16 neighbours. A node is scored by a linear classifier that
tells the documents whose best labels stand below it: a ridge regression on the vectors of sample documents and what the
exact model answers to them. (The mean of the rows below, the usual score, finds far less: benchmarks/LOG.md.) Knows
nothing about texts, precision or files.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
import scipy.sparse as sp

from xclearn.inference.exported import ClusterIndex, Level, Rows
from xclearn.kernels import balanced_clusters_dense

_LABELS_PER_CLUSTER = 28  # about; fewer make more clusters to choose from
_CHILDREN = 16  # of a node above the clusters
_WIDEST_TOP = 256  # nodes of the first level, all of which are scored
_RIDGE = 1.0
_OWN_ROW = 0.1  # what a label's row counts beside a sample document; it decides where no sample has the label


@final
@dataclass(frozen=True)
class Clusters:
    """Labels in clusters: w · v + b scores a cluster."""

    labels: np.ndarray  # (L,) int32 label ids, cluster after cluster
    offsets: np.ndarray  # (K + 1,) int64 where each cluster's labels start
    weight: np.ndarray  # (K, D)
    bias: np.ndarray  # (K,)


@final
@dataclass(frozen=True)
class Tree:
    """Clusters, and the scores w · v + b of the nodes of the levels above them, the top first."""

    clusters: Clusters
    above: list[tuple[np.ndarray, np.ndarray]]  # weight (n, D), bias (n,)

    def index(self, vector: str, precision: str, beam: int) -> ClusterIndex:
        """As the candidate stage that keeps `beam` clusters, and half as many nodes of a level above."""
        scores = [*self.above, (self.clusters.weight, self.clusters.bias)]
        sizes = [len(bias) for _, bias in scores]
        offsets = [np.minimum(np.arange(n + 1) * _CHILDREN, below) for n, below in zip(sizes, sizes[1:], strict=False)]
        beams = [max(1, beam // 2)] * len(self.above)
        levels = [
            Level(Rows.of(*score, precision), places, own)
            for score, places, own in zip(scores, [*offsets, self.clusters.offsets], [*beams, beam], strict=True)
        ]
        return ClusterIndex(vector, levels, self.clusters.labels)


@final
@dataclass(frozen=True)
class Sample:
    """Sample documents and their best labels: what nodes are taught by."""

    best: np.ndarray  # (n, k) label ids
    documents: np.ndarray  # (n, D + 1) vectors, and one for the bias
    labels: np.ndarray  # (L, D + 1) the rows of the labels, as long as a document's vector, and one
    products: np.ndarray  # (D + 1, D + 1) of the ridge regression

    @classmethod
    def of(cls, vectors: np.ndarray, best: np.ndarray, rows: np.ndarray) -> Sample:
        """Vectors (n, D), their best labels (n, k), and the rows (L, D) of all labels."""
        norms = np.maximum(np.linalg.norm(rows, axis=1), np.finfo(np.float32).tiny)
        length = np.linalg.norm(vectors, axis=1).mean()
        documents, labels = _with_one(vectors), _with_one(rows * (length / norms)[:, None])
        products = documents.T @ documents + _OWN_ROW * labels.T @ labels
        return cls(best, documents, labels, products + _RIDGE * np.eye(len(products)))

    def teach(self, node_of_label: np.ndarray, n_nodes: int) -> tuple[np.ndarray, np.ndarray]:
        """The weight (n_nodes, D) and bias (n_nodes,) that tell whether one of the best labels stands below a node."""
        n, k = self.best.shape
        node_of_pair = node_of_label[self.best].ravel()
        has = sp.csr_matrix((np.ones(n * k), (node_of_pair, np.repeat(np.arange(n), k))), (n_nodes, n))
        has.data[:] = 1  # where several of the best stand below one node they were summed
        n_labels = len(node_of_label)
        below = sp.csr_matrix((np.ones(n_labels), (node_of_label, np.arange(n_labels))), (n_nodes, n_labels))
        wanted = has @ self.documents + _OWN_ROW * (below @ self.labels)  # (n_nodes, D + 1)
        solved = np.linalg.solve(self.products, wanted.T).T
        return solved[:, :-1].astype(np.float32), solved[:, -1].astype(np.float32)


def cluster_tree(rows: np.ndarray, sample: Sample, seed: int) -> Tree:
    """A tree over the labels with these rows (L, D)."""
    n_clusters = 1 << max(0, round(np.log2(len(rows) / _LABELS_PER_CLUSTER)))
    cluster = balanced_clusters_dense(np.ascontiguousarray(rows), n_clusters, seed)  # halvings: numbers near, rows near
    labels = np.argsort(cluster, kind="stable").astype(np.int32)
    offsets = np.searchsorted(cluster[labels], np.arange(n_clusters + 1)).astype(np.int64)
    return tree_above(Clusters(labels, offsets, *sample.teach(cluster, n_clusters)), sample)


def tree_above(clusters: Clusters, sample: Sample) -> Tree:
    """The levels above clusters that there are; neighbours are grouped."""
    n = len(clusters.bias)
    node_of_label = np.empty(len(clusters.labels), dtype=np.int64)
    node_of_label[clusters.labels] = np.repeat(np.arange(n), np.diff(clusters.offsets))
    above: list[tuple[np.ndarray, np.ndarray]] = []
    while n > _WIDEST_TOP:
        n, node_of_label = -(-n // _CHILDREN), node_of_label // _CHILDREN
        above.insert(0, sample.teach(node_of_label, n))
    return Tree(clusters, above)


def _with_one(vectors: np.ndarray) -> np.ndarray:
    """A column of ones after the vectors, for the bias."""
    return np.hstack([vectors, np.ones((len(vectors), 1), dtype=np.float32)])
