"""How the labels of a text are found without scoring all of them: an index of tokens, or levels above clusters.

An index of tokens and the levels above a model's own clusters are made from sample documents and the labels that are to
be found for them: their own, and those that the exact model answers. A tree of label centres is made from these alone.
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

_POSTINGS = 500  # labels kept of a token
_TOKENS = 32  # of a text that are looked up: a text of many words must not take many times as long
_ALWAYS = 64  # labels that are candidates of every text
_CHILDREN = 16  # of a node above the clusters
_WIDEST_TOP = 256  # nodes of the first level, all of which are scored
_RIDGE = 1.0
_WIDEST_GROUPS = 1024  # likewise, of label centres: a level more loses more than it saves
_ROUNDS = 4  # of k-means
_PER_CELL, _NEAR = 16, 4096  # groups of a cell, and near groups that its vectors are compared with


def token_index(features: sp.csr_matrix, wanted: sp.csr_matrix, vector: str) -> TokenIndex:
    """From documents (n, V) and the labels (n, L) to be found for each.

    A label's weight at a token is the sum of the token's weights in its documents, by the root of the norm of these
    sums. The root stands between the sum itself, under which frequent labels are everywhere, and the centroid, under
    which they are nowhere.
    """
    sums = (features.T.tocsr() @ wanted).tocsr()  # (V, L)
    norms = np.sqrt(np.asarray(sums.multiply(sums).sum(axis=0)).ravel())  # (L,)
    weights = (sums.data / np.sqrt(norms[sums.indices])).astype(np.float32)
    tokens = np.repeat(np.arange(sums.shape[0]), np.diff(sums.indptr))
    order = np.lexsort((sums.indices, -weights, tokens))
    rank = np.arange(sums.nnz) - sums.indptr[tokens]  # of the posting that stands there after sorting
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
    """The nodes of a level, w · v + b each, and where the children of each start in the next."""

    weight: np.ndarray  # (n, D)
    bias: np.ndarray  # (n,)
    offsets: np.ndarray  # (n + 1,) int64


def levels_above(clusters: ClusterBeam, vectors: np.ndarray, wanted: sp.csr_matrix) -> list[Nodes]:
    """The clusters, and above them levels that group neighbours, the top first.

    A node is scored by the linear classifier that tells the documents which have a label below it, a ridge regression.
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
    """The candidate stage that keeps `beam` clusters."""
    return ClusterIndex(clusters.vector, _written(levels, precision, beam), clusters.labels.astype(np.int32))


class CentreTree(NamedTuple):
    """Groups of near centres, groups of these above them, and so on; the top level first."""

    levels: list[Nodes]
    order: np.ndarray  # (M,) the centres, as they stand below the last level


def n_groups(n: int) -> int:
    """That n vectors are grouped in: a power of two, of 16 to 32 vectors each on average."""
    return 1 << max(0, (n - 1).bit_length() - _CHILDREN.bit_length())


def centre_tree(vectors: np.ndarray) -> CentreTree:
    """Of vectors (m, D) of length one. A node is scored by the mean of its children, at length one too."""
    group, means = _grouped(vectors)
    above = centre_tree(means) if len(means) > _WIDEST_GROUPS else CentreTree([], np.arange(len(means)))
    place = np.argsort(above.order)[group]  # of each vector's group
    offsets = np.concatenate([[0], np.cumsum(np.bincount(place))])
    nodes = Nodes(means[above.order], np.zeros(len(means), np.float32), offsets)
    return CentreTree([*above.levels, nodes], np.argsort(place, kind="stable"))


def centre_index(search: CentroidSearch, tree: CentreTree, precision: str, beam: int) -> CentreIndex:
    """The candidate stage that looks at the centres of `beam` groups."""
    n, levels = len(tree.order), _written(tree.levels, precision, beam)
    centres = PackedRows.of(search.centres[tree.order], np.zeros(n, np.float32), precision)
    return CentreIndex(search.vector, levels, centres, search.labels[tree.order], search.size)


def _grouped(vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The group (m,) of each vector, and the mean (g, D) of each at length one: balanced groups, then k-means.

    k-means takes vectors over the borders that balanced splits drew between near ones. A vector is compared with the
    groups near to its cell only, a cell being groups that the splits left together: the time must not be quadratic.
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
    _, group = np.unique(group, return_inverse=True)  # some may be empty
    return group, _means(vectors, group, group.max() + 1)


def _means(vectors: np.ndarray, group: np.ndarray, n: int) -> np.ndarray:
    members = sp.csr_matrix((np.ones(len(group), np.float32), (group, np.arange(len(group)))), (n, len(group)))
    return unit(members @ vectors)


def _written(levels: list[Nodes], precision: str, beam: int) -> list[Level]:
    """Levels that keep `beam` nodes of the last, and half as many of each above."""
    beams = [max(1, beam // 2)] * (len(levels) - 1) + [beam]
    return [
        Level(PackedRows.of(level.weight, level.bias, precision), level.offsets, own)
        for level, own in zip(levels, beams, strict=True)
    ]
