"""Finds the labels on the best paths from documents through clusters.

`algorithms.elias.learned_edges` has the same search in torch, for a GPU. Knows nothing about how scores are computed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from xclearn.kernels import _native


class Clusters(NamedTuple):
    """The clusters explored for each document, and the labels to include if a path leads to them."""

    starts: np.ndarray  # (n + 1,) int64 start of each document's clusters
    clusters: np.ndarray  # (p,) int32
    scores: np.ndarray  # (p,) float32
    wanted_starts: np.ndarray  # (n + 1,) int64
    wanted: np.ndarray  # (w,) int32 labels


def best_paths(
    query: Clusters, labels: np.ndarray, strengths: np.ndarray, n_labels: int, k: int, n_threads: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Document, label, cluster, slot (int64) and whether it is wanted, for the k best labels of each document.

    A path's score is the cluster's score plus the edge's strength in `strengths` (C, E); `labels` (C, E) int32 are the
    labels that edges lead to, −1 for none. Wanted labels rank first, ties go to the smaller id; the result is sorted by
    document and label.
    """
    return _native.best_paths(*query, labels, strengths, n_labels, k, n_threads)
