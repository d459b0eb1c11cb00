"""Untrained vectors, and classifiers trained by a solver over fixed vectors: a label tree, one-vs-all, or Slice.

Slice trains a label on its own documents and on those that have it on their shortlist. Knows nothing about encoders
or stages.
"""

from __future__ import annotations

from itertools import islice
from typing import Literal

import numpy as np
import scipy.sparse as sp

from xclearn.errors import ConfigError
from xclearn.inference.components import Classifier, Scorer
from xclearn.inference.sparse import LabelTrees, Tree, TreeLevel
from xclearn.kernels import topk_csr
from xclearn.labels.clustering import cluster_labels, label_centroids
from xclearn.labels.lists import padded_matrix
from xclearn.parts.linear import LevelProblems, Solver, everything, leaf_order, level_widths, matrix_of, tree_levels

Frozen = Literal["label_tree", "slice", "sparse_one_vs_all"]

_COST = 1.0  # weight of the loss against regularisation
_BRANCHING, _MAX_LEAF, _BEAM = 2048, 100, 10  # of the tree
_SEEDS = 1 << 32  # range of scikit-learn's seeds
_CONTEXT = 64  # heaviest tokens of a document that are context of each other


def solved(
    kind: Frozen,
    vector: str,
    vectors: np.ndarray,
    relevance: sp.csr_matrix,
    lists: np.ndarray | None,
    seed: int,
    epochs: int = 20,
) -> Scorer:
    """A scorer of `vector`, trained on `vectors` (N, D); `lists` (N, m) are the shortlists for Slice."""
    rows = sp.csr_matrix(vectors, dtype=np.float32)
    solver = Solver("squared_hinge", _COST, epochs, 0.0, seed)
    if kind == "label_tree":
        return LabelTrees(vector, [_tree(solver, rows, vectors, relevance)], solver.loss, _BEAM)
    positives = sp.csr_matrix(relevance.T)  # (L, N)
    n_labels, n_documents = positives.shape
    level = LevelProblems(np.array([0, n_labels]), everything(n_documents), positives)
    if kind == "slice":
        assert lists is not None
        level = LevelProblems(np.arange(n_labels + 1), _listed(lists, positives), positives)
    arrays = solver.train(rows, level)
    weights = matrix_of(arrays, rows.shape[1]).toarray().astype(np.float32)
    return Classifier(vector, weights, arrays["bias"].astype(np.float32))


def _listed(lists: np.ndarray, positives: sp.csr_matrix) -> sp.csr_matrix:
    """The documents (L, N) that have each label or have it on their list."""
    both = sp.csr_matrix(padded_matrix(lists, positives.shape[0]).T) + positives
    both.data[:] = 1
    both.sort_indices()
    return both


def learnt_clusters(
    vectors: np.ndarray, relevance: sp.csr_matrix, branching: int, max_leaf: int, seed: int
) -> tuple[np.ndarray, list[tuple[np.ndarray, np.ndarray]]]:
    """Clusters of labels and the classifiers leading to them: a label tree without its last level.

    Returns the cluster of each label (L,), and the weights (nodes, D) and biases (nodes,) of each level, children in
    order.
    """
    rows = sp.csr_matrix(vectors, dtype=np.float32)
    solver = Solver("squared_hinge", _COST, 20, 0.0, seed)
    widths = level_widths(relevance.shape[1], branching, max_leaf)
    clusters = cluster_labels(label_centroids(relevance, vectors), widths[-1] if widths else 1, seed)
    found = []
    for level in islice(tree_levels(relevance, clusters, widths), len(widths)):
        arrays = solver.train(rows, level)
        found.append((matrix_of(arrays, rows.shape[1]).toarray(), arrays["bias"].astype(np.float32)))
    return clusters, found


def _tree(solver: Solver, rows: sp.csr_matrix, vectors: np.ndarray, relevance: sp.csr_matrix) -> Tree:
    widths = level_widths(relevance.shape[1], _BRANCHING, _MAX_LEAF)
    clusters = cluster_labels(label_centroids(relevance, vectors), widths[-1] if widths else 1, solver.seed)
    levels = []
    for level in tree_levels(relevance, clusters, widths):
        arrays = solver.train(rows, level)
        levels.append(TreeLevel.of(level.children, matrix_of(arrays, rows.shape[1]), arrays["bias"]))
    return Tree(levels, leaf_order(clusters))


def latent_tokens(features: sp.csr_matrix | np.ndarray, dim: int, seed: int) -> np.ndarray:
    """Token vectors (V, D) from the documents alone: singular directions, each with its negative.

    So a ReLU after the sum of a text's vectors loses no information.
    """
    half = min(max(1, dim // 2), *features.shape)
    _, right = singular_vectors(features, half, seed)  # (half, V)
    table = np.zeros((features.shape[1], dim), dtype=np.float32)
    table[:, :half] = right.T
    table[:, half : 2 * half] = -right.T[:, : max(0, dim - half)]
    return table


def skip_gram_tokens(features: sp.csr_matrix | np.ndarray, dim: int, seed: int) -> np.ndarray:
    """Token vectors (V, D) from which tokens come together: what skip-gram with negatives learns, without training.

    Levy and Goldberg (2014): skip-gram factorises the pointwise mutual information of a token and its context, here
    the other tokens of its document. Each direction stands with its opposite, as in `latent_tokens`.
    """
    if isinstance(features, np.ndarray):
        raise ConfigError("dense features have no tokens", where="surrogate", got="skip_gram", allowed="texts")
    heaviest, _ = topk_csr(features.indptr, features.indices, features.data, _CONTEXT)
    there = padded_matrix(heaviest, features.shape[1])
    there.data[:] = 1
    together = sp.coo_matrix(there.T @ there)
    others = together.row != together.col
    row, column, counts = together.row[others], together.col[others], together.data[others].astype(np.float64)
    sums = np.bincount(row, counts, minlength=features.shape[1])
    information = np.log(counts * sums.sum() / (sums[row] * sums[column]))
    kept = information > 0
    matrix = sp.csr_matrix((information[kept], (row[kept], column[kept])), together.shape, dtype=np.float32)
    half = min(max(1, dim // 2), *matrix.shape)
    left, _ = singular_vectors(matrix, half, seed)
    strength = np.sqrt(np.linalg.norm(matrix.T @ left, axis=0))  # roots of the singular values
    vectors = left * strength
    vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    table = np.zeros((features.shape[1], dim), dtype=np.float32)
    table[:, :half] = vectors
    table[:, half : 2 * half] = -vectors[:, : max(0, dim - half)]
    return table


def singular_vectors(matrix: sp.csr_matrix | np.ndarray, rank: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The leading left (n, r) and right (r, m) ones, on one BLAS thread: several would change the last bits."""
    from sklearn.utils.extmath import randomized_svd
    from threadpoolctl import threadpool_limits

    with threadpool_limits(limits=1, user_api="blas"):
        left, _, right = randomized_svd(matrix, rank, random_state=seed % _SEEDS)
    return left, right
