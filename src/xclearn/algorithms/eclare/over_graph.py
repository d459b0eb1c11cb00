"""ECLARE's uses of a label graph: convolved texts, smoothed label vectors, negatives, and their cost."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
import torch
from torch.nn import functional as F

from xclearn.kernels import topk_csr
from xclearn.parts.label_clusters import cluster_rows
from xclearn.parts.rows import SparseRows
from xclearn.parts.text_network import OutputTexts
from xclearn.parts.text_training import WIDEST_BEAM, FixedLabels
from xclearn.training.prepare import Size
from xclearn.training.text_algorithm import ClassifierCost

_MOST_TEXTS = 100.0  # neighbours' texts assumed per further convolution in the cost


def texts_over_graph(
    features: sp.csr_matrix, graph: sp.csr_matrix, order: int, device: torch.device
) -> list[OutputTexts]:
    """The texts z (S, V) of outputs, then G z, G² z, … up to `order`, over their graph (S, S)."""
    found = [features]
    for _ in range(order):
        found.append(sp.csr_matrix(graph @ found[-1], dtype=np.float32))
        found[-1].sort_indices()
    return [OutputTexts(SparseRows.of(each, device)) for each in found]


def smoothed(vectors: torch.Tensor, graph: sp.csr_matrix) -> torch.Tensor:
    """Unit vectors (L, D) of labels smoothed over the graph, which helps labels with few documents."""
    unit = F.normalize(vectors, dim=1).cpu().numpy()
    return torch.from_numpy(np.asarray(graph @ unit, dtype=np.float32)).to(vectors.device)


def cluster_apart(rows: torch.Tensor, apart: np.ndarray, n_clusters: int, seed: int) -> np.ndarray:
    """Like `cluster_rows`, but rows where `apart` (L,) is true get separate clusters of similar size."""
    rest = ~apart
    if not apart.any() or rest.sum() < n_clusters:
        return cluster_rows(rows, n_clusters, seed)
    size = -(-int(rest.sum()) // n_clusters)
    n_more = 1 << (max(1, int(apart.sum()) // size).bit_length() - 1)
    cluster_of_row = np.empty(len(rows), dtype=np.int32)
    cluster_of_row[rest] = cluster_rows(rows[torch.from_numpy(rest)], n_clusters, seed)
    cluster_of_row[apart] = n_clusters + cluster_rows(rows[torch.from_numpy(apart)], n_more, seed)
    return cluster_of_row


def graph_negatives(
    relevance: sp.csr_matrix, graph: sp.csr_matrix, device: torch.device, most: int = WIDEST_BEAM
) -> FixedLabels:
    """The `most` labels with the strongest edges in the graph (L, L) to each document's labels."""
    near = sp.csr_matrix(relevance @ graph, dtype=np.float32)
    ids, _ = topk_csr(near.indptr, near.indices, near.data, most)
    return FixedLabels(torch.from_numpy(ids.astype(np.int32)).to(device))


def cost_over_graph(size: Size, edges: int, order: int, *, attention: bool, detached: bool) -> ClassifierCost:
    """The cost of classifiers with `order` convolutions; `detached`: only a label's own text has a gradient."""
    per_label = size.n_relevant / size.n_labels
    near = min(edges, max(1.0, per_label) * size.labels_per_document)  # neighbours of a label with documents
    trained, texts = (
        sum(min((1 + each) ** i, _MOST_TEXTS) for i in range(order + 1)) for each in (near, near * min(1.0, per_label))
    )
    return ClassifierCost(
        parts=2 + order * (2 if attention else 1),
        trained=1.0 if detached else trained,
        texts=texts,
        graph=32 * size.n_labels * (1 + edges),
    )
