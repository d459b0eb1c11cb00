"""Builds indexes that find labels without scoring all of them: an index of tokens, or tree levels above clusters.

A token index and the levels above a model's clusters are built from sample documents and the labels to be found for
them: their own, and those that the exact model predicts. A tree of label centroids is built from the centroids alone.
Knows nothing about texts, precision or files.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from xclearn.inference.arrays import unit
from xclearn.inference.components import ClusterBeam
from xclearn.inference.exported import CentreIndex, ClusterIndex, Level, PackedRows, TokenIndex
from xclearn.inference.shortlists import CentroidSearch
from xclearn.kernels import balanced_clusters_dense

_POSTINGS = 500  # labels kept per token
_TOKENS = 32  # tokens looked up per text, which bounds the time for long texts
_ALWAYS = 64  # labels that are candidates for every text
_CHILDREN = 16  # children of a node above the clusters
_WIDEST_TOP = 256  # maximum nodes of the first level, which are all scored
_RIDGE = 1.0
_WIDEST_GROUPS = 1024  # the same for label centroids: another level would lose more than it saves
_ROUNDS = 4  # k-means iterations
_PER_CELL, _NEAR = 16, 4096  # groups per cell, and near groups compared with its vectors


def token_index(features: sp.csr_matrix, wanted: sp.csr_matrix, vector: str) -> TokenIndex:
    """A token index from documents (n, V) and the labels (n, L) to be found for each.

    A label's weight at a token is the sum of the token's weights in its documents, divided by the square root of the
    norm of these sums. This is a compromise between the plain sum, which lists frequent labels everywhere, and the
    centroid, which lists them nowhere.
    """
    sums = (features.T.tocsr() @ wanted).tocsr()  # (V, L)
    norms = np.sqrt(np.asarray(sums.multiply(sums).sum(axis=0)).ravel())  # (L,)
    weights = (sums.data / np.sqrt(norms[sums.indices])).astype(np.float32)
    tokens = np.repeat(np.arange(sums.shape[0]), np.diff(sums.indptr))
    order = np.lexsort((sums.indices, -weights, tokens))
    rank = np.arange(sums.nnz) - sums.indptr[tokens]  # rank of each posting after sorting
    order = order[rank < _POSTINGS]
    sizes = np.minimum(np.diff(sums.indptr), _POSTINGS)
    frequency = np.asarray(wanted.sum(axis=0)).ravel()
    return TokenIndex(
        vector,
        offsets=np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]),
        labels=sums.indices[order].astype(np.int32),
        weights=weights[order],
        always=np.argsort(-frequency, kind="stable")[:_ALWAYS].astype(np.int32),
        tokens=_TOKENS,
        postings=_POSTINGS,
        shortlist=_POSTINGS,
    )


class Nodes(NamedTuple):
    """The nodes of a level (w · v + b) and the offsets of their children in the next."""

    weight: np.ndarray  # (n, D)
    bias: np.ndarray  # (n,)
    offsets: np.ndarray  # (n + 1,) int64


def levels_above(clusters: ClusterBeam, vectors: np.ndarray, wanted: sp.csr_matrix) -> list[Nodes]:
    """The clusters, and levels above them that group neighbours, top level first.

    A node's classifier is a ridge regression of whether a document has a label below it.
    """
    n, n_labels = len(clusters.bias), len(clusters.labels)
    levels = [Nodes(clusters.weight, clusters.bias, clusters.offsets.astype(np.int64))]
    node_of_label = np.empty(n_labels, dtype=np.int64)
    node_of_label[clusters.labels] = np.repeat(np.arange(n), np.diff(clusters.offsets))
    documents = np.hstack([vectors, np.ones((len(vectors), 1), dtype=np.float32)])  # (n, D + 1)
    products = documents.T @ documents + _RIDGE * np.eye(documents.shape[1])
    while n > _WIDEST_TOP:
        offsets = np.append(np.arange(0, n, _CHILDREN), n)
        n, node_of_label = len(offsets) - 1, node_of_label // _CHILDREN
        below = sp.csr_matrix((np.ones(n_labels), (np.arange(n_labels), node_of_label)), (n_labels, n))
        has = (wanted @ below).tocsr()  # (documents, nodes)
        has.data[:] = 1
        solved = np.linalg.solve(products, (has.T @ documents).T).T.astype(np.float32)  # (nodes, D + 1)
        levels.insert(0, Nodes(solved[:, :-1], solved[:, -1], offsets))
    return levels


def cluster_index(clusters: ClusterBeam, levels: list[Nodes], precision: str, beam: int) -> ClusterIndex:
    """A candidate stage with a beam of `beam` clusters."""
    return ClusterIndex(clusters.vector, _written(levels, precision, beam), clusters.labels.astype(np.int32))


class CentreTree(NamedTuple):
    """Groups of near centroids, groups of groups above them, and so on; top level first."""

    levels: list[Nodes]
    order: np.ndarray  # (M,) the centroids in the order of the last level


def n_groups(n: int) -> int:
    """The number of groups for n vectors: a power of two, with 16 to 32 vectors each on average."""
    return 1 << max(0, (n - 1).bit_length() - _CHILDREN.bit_length())


def centre_tree(vectors: np.ndarray) -> CentreTree:
    """A tree of unit vectors (m, D). A node's vector is the normalised mean of its children."""
    group, means = _grouped(vectors)
    above = centre_tree(means) if len(means) > _WIDEST_GROUPS else CentreTree([], np.arange(len(means)))
    place = np.argsort(above.order)[group]  # position of each vector's group
    offsets = np.concatenate([[0], np.cumsum(np.bincount(place))])
    nodes = Nodes(means[above.order], np.zeros(len(means), np.float32), offsets)
    return CentreTree([*above.levels, nodes], np.argsort(place, kind="stable"))


def centre_index(search: CentroidSearch, tree: CentreTree, precision: str, beam: int) -> CentreIndex:
    """A candidate stage that searches the centroids of `beam` groups."""
    n, levels = len(tree.order), _written(tree.levels, precision, beam)
    centres = PackedRows.of(search.centres[tree.order], np.zeros(n, np.float32), precision)
    return CentreIndex(search.vector, levels, centres, search.labels[tree.order], search.size)


def _grouped(vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The group (m,) of each vector, and the groups' normalised means (g, D): balanced clustering, then k-means.

    k-means moves vectors across the borders of balanced splits. A vector is compared only with groups near its cell,
    which is a set of groups that the splits kept together; otherwise the time would be quadratic.
    """
    n = n_groups(len(vectors))
    group = balanced_clusters_dense(vectors, n, seed=0).astype(np.int64)
    for _ in range(_ROUNDS):
        means = _means(vectors, group, n)
        cells = _means(means, np.arange(n) // _PER_CELL, -(-n // _PER_CELL))
        ends = np.cumsum(np.bincount(group // _PER_CELL, minlength=len(cells)))
        for cell, own in zip(cells, np.split(np.argsort(group // _PER_CELL), ends[:-1]), strict=True):
            near = np.argpartition(means @ -cell, min(_NEAR, n) - 1)[:_NEAR]
            group[own] = near[(vectors[own] @ means[near].T).argmax(axis=1)]
    _, group = np.unique(group, return_inverse=True)  # drops empty groups
    return group, _means(vectors, group, group.max() + 1)


def _means(vectors: np.ndarray, group: np.ndarray, n: int) -> np.ndarray:
    members = sp.csr_matrix((np.ones(len(group), np.float32), (group, np.arange(len(group)))), (n, len(group)))
    return unit(members @ vectors)


def _written(levels: list[Nodes], precision: str, beam: int) -> list[Level]:
    """Levels with a beam of `beam` nodes in the last, halved at each level above."""
    beams = [max(1, beam // 2)] * (len(levels) - 1) + [beam]
    return [
        Level(PackedRows.of(level.weight, level.bias, precision), level.offsets, own)
        for level, own in zip(levels, beams, strict=True)
    ]
