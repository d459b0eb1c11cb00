"""Classifiers by a solver over vectors that are trained no further: a label tree, one-vs-all, or Slice's.

Slice trains a label against its own documents and those that have it on their shortlist. Knows nothing about encoders
or stages.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import scipy.sparse as sp

from xclearn.inference.components import Classifier, Scorer
from xclearn.inference.sparse import LabelTrees, Tree, TreeLevel
from xclearn.labels.clustering import cluster_labels, label_centroids
from xclearn.parts.linear import Level, Solver, everything, leaf_order, level_widths, matrix_of, tree_levels

Frozen = Literal["label_tree", "slice", "sparse_one_vs_all"]

_COST = 1.0  # of the loss against short weights
_BRANCHING, _MAX_LEAF, _BEAM = 2048, 100, 10  # of the tree


def solved(
    kind: Frozen,
    vector: str,
    vectors: np.ndarray,
    relevance: sp.csr_matrix,
    lists: np.ndarray | None,
    seed: int,
    epochs: int = 20,
) -> Scorer:
    """The scorer of `vector`, trained on `vectors` (N, D); `lists` (N, m) are the shortlists that Slice needs."""
    rows, solver = sp.csr_matrix(vectors, dtype=np.float32), Solver("squared_hinge", _COST, epochs, 0.0, seed)
    if kind == "label_tree":
        return LabelTrees(vector, [_tree(solver, rows, vectors, relevance)], solver.loss, _BEAM)
    positives = sp.csr_matrix(relevance.T)  # (L, N)
    n_labels, n_documents = positives.shape
    level = Level(np.array([0, n_labels]), everything(n_documents), positives)
    if kind == "slice":
        assert lists is not None
        level = Level(np.arange(n_labels + 1), _listed(lists, positives), positives)
    arrays = solver.train(rows, level)
    weights = matrix_of(arrays, rows.shape[1]).toarray().astype(np.float32)
    return Classifier(vector, weights, arrays["bias"].astype(np.float32))


def _listed(lists: np.ndarray, positives: sp.csr_matrix) -> sp.csr_matrix:
    """The documents (L, N) that have each label, or have it on their list."""
    owner, place = np.nonzero(lists >= 0)
    shape = positives.shape
    both = sp.csr_matrix((np.ones(len(owner), np.float32), (lists[owner, place], owner)), shape) + positives
    both.data[:] = 1
    both.sort_indices()
    return both


def _tree(solver: Solver, rows: sp.csr_matrix, vectors: np.ndarray, relevance: sp.csr_matrix) -> Tree:
    widths = level_widths(relevance.shape[1], _BRANCHING, _MAX_LEAF)
    clusters = cluster_labels(label_centroids(relevance, vectors), widths[-1] if widths else 1, solver.seed)
    levels = []
    for level in tree_levels(relevance, clusters, widths):
        arrays = solver.train(rows, level)
        levels.append(TreeLevel.of(level.children, matrix_of(arrays, rows.shape[1]), arrays["bias"]))
    return Tree(levels, leaf_order(clusters))
