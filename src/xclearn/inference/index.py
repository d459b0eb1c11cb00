"""How the labels of a text are found without scoring all of them: an index of tokens, or levels above clusters.

Both are made from sample documents and the labels that are to be found for them: their own, and those that the exact
model answers. Knows nothing about texts, precision or files.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from xclearn.inference.components import ClusterBeam
from xclearn.inference.exported import ClusterIndex, Level, Rows, TokenIndex

_POSTINGS = 500  # labels kept of a token
_TOKENS = 32  # of a text that are looked up: a text of many words must not take many times as long
_ALWAYS = 64  # labels that are candidates of every text
_CHILDREN = 16  # of a node above the clusters
_WIDEST_TOP = 256  # nodes of the first level, all of which are scored
_RIDGE = 1.0


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
    order, sizes = order[rank < _POSTINGS], np.minimum(np.diff(sums.indptr), _POSTINGS)
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
    """The candidate stage that keeps `beam` clusters, and half as many nodes of each level above."""
    beams = [max(1, beam // 2)] * (len(levels) - 1) + [beam]
    kept = [
        Level(Rows.of(level.weight, level.bias, precision), level.offsets, own)
        for level, own in zip(levels, beams, strict=True)
    ]
    return ClusterIndex(clusters.vector, kept, clusters.labels.astype(np.int32))
