"""ELIAS's index: a document's clusters, edges from clusters to labels, and the best paths.

    cluster   s_c  = min(1, a · softmax(W x + b))          edge   s_cl = min(1, e · softmax of the cluster's edges)
    label     ŷ_l  = max over clusters of s_c · s_cl       score  p_l  = σ(w_l · x + b_l) · ŷ_l

Label classifiers are trained by p on the labels that paths find, or separately; then the index only finds labels, which
σ(w_l · x + b_l) ranks.

Probabilities are stored as logarithms, so that even unlikely paths get a gradient. Paths are selected without a
gradient, which then flows through the selected ones. Fixed edges have probability 1: the index is then a partition of
the labels. Knows nothing about stages or optimisers.
"""

from __future__ import annotations

import math
from typing import NamedTuple, final

import numpy as np
import scipy.sparse as sp
import torch
from torch import nn
from torch.nn import functional as F

from xclearn.inference import components, shortlists
from xclearn.kernels import topk_csr
from xclearn.kernels.paths import Clusters, best_paths
from xclearn.parts.classifiers import RowClassifier
from xclearn.parts.encoders import DocumentEncoder
from xclearn.parts.pair_products import pair_scores
from xclearn.parts.rows import FeatureBatch, Gathered, SparseRows

_NEVER = -1e4  # logit of a missing edge; finite, because a cluster may have no edges
_LEAST = 1e-7  # minimum of 1 − ŷ before taking the log


class Paths(NamedTuple):
    """The labels found, sorted by document, each with its path."""

    owner: torch.Tensor  # (m,) position of the document in the batch
    label: torch.Tensor  # (m,)
    cluster: torch.Tensor  # (m,)
    slot: torch.Tensor  # (m,) index of the cluster's edge
    target: torch.Tensor  # (m,) whether the label is relevant


@final
class EdgeIndex(nn.Module):
    """Clusters over vectors, and their edges to labels: two tensors (C, E), the labels and the weights."""

    labels: torch.Tensor
    leading: torch.Tensor
    starts: torch.Tensor

    def __init__(
        self,
        dim: int,
        labels: torch.Tensor,
        edges: torch.Tensor | None,
        *,
        n_labels: int,
        cluster_scale: float,
        edge_scale: float,
    ) -> None:
        super().__init__()
        self.clusters = nn.Linear(dim, len(labels))
        self.register_buffer("labels", labels)  # (C, E) int64, −1 for missing edges
        self.edges = None if edges is None else nn.Parameter(edges)  # (C, E); None: fixed
        self.n_labels = n_labels
        self.cluster_scale = cluster_scale
        self.edge_scale = edge_scale
        leading = labels.flatten().argsort(stable=True)[int((labels < 0).sum()) :]
        starts = torch.searchsorted(labels.flatten()[leading], torch.arange(n_labels + 1))
        self.register_buffer("leading", leading, persistent=False)  # existing edges (of C · E), sorted by label
        self.register_buffer("starts", starts, persistent=False)  # (L + 1,) start of each label's edges
        self.one_path = bool((starts.diff() <= 1).all())  # every label is in at most one cluster

    def chances(self, x: torch.Tensor) -> torch.Tensor:
        """Log-probability of each cluster (n, C) before clamping at 1; clusters are ranked by it."""
        return F.log_softmax(self.clusters(x).float(), dim=1) + math.log(self.cluster_scale)

    def strengths(self) -> torch.Tensor:
        """Log-probability of each edge (C, E) before clamping at 1; −∞ for missing edges."""
        missing = self.labels < 0
        if self.edges is None:
            return torch.zeros(self.labels.shape, device=self.labels.device).masked_fill(missing, -torch.inf)
        logits = F.log_softmax(self.edges.masked_fill(missing, _NEVER), dim=1) + math.log(self.edge_scale)
        return logits.masked_fill(missing, -torch.inf)

    def reach(self, chances: torch.Tensor, strengths: torch.Tensor, paths: Paths) -> torch.Tensor:
        """log ŷ of each path (m,), differentiable."""
        clusters = chances[paths.owner, paths.cluster].clamp(max=0)
        return clusters + strengths[paths.cluster, paths.slot].clamp(max=0)

    def reached(self, x: torch.Tensor, wanted: Gathered) -> torch.Tensor:
        """log ŷ of the best path to each wanted label that is reachable, differentiable."""
        chances = self.chances(x).clamp(max=0)
        strengths = self.strengths().flatten().clamp(max=0)
        edges = SparseRows(self.starts, self.leading, self.leading, len(strengths)).take(wanted.columns)  # no values
        paths = chances[wanted.owner[edges.owner], edges.columns // self.labels.shape[1]] + strengths[edges.columns]
        best = torch.full((len(wanted.columns),), -torch.inf, device=x.device)
        best = best.scatter_reduce(0, edges.owner, paths, "amax")
        return best[best > -torch.inf]

    @torch.no_grad()
    def parents(self, strengths: torch.Tensor) -> torch.Tensor:
        """The cluster with the strongest edge to each label (L,), −1 if unreachable."""
        place = self.labels.clamp(min=0).flatten()
        best = torch.full((self.n_labels,), -torch.inf, device=place.device)
        best.scatter_reduce_(0, place, strengths.flatten(), "amax")
        cluster = torch.arange(len(self.labels), device=place.device).repeat_interleave(self.labels.shape[1])
        strongest = (strengths.flatten() == best[place]) & (self.labels.flatten() >= 0)
        found = torch.full((self.n_labels,), -1, device=place.device)
        return found.scatter_reduce_(0, place, torch.where(strongest, cluster, -1), "amax")

    @torch.no_grad()
    def beam(self, chances: torch.Tensor, size: int) -> torch.Tensor:
        """The best clusters of each document (n, size)."""
        return chances.topk(min(size, chances.shape[1]), dim=1).indices

    @torch.no_grad()
    def paths(
        self,
        chances: torch.Tensor,
        strengths: torch.Tensor,
        beam: int,
        size: int,
        positives: Gathered | None = None,
        most: tuple[int, torch.Generator] | None = None,
    ) -> Paths:
        """The `size` best labels of each document below its best clusters.

        With `positives`, also below the parents of these, which then rank before any other label. `most` limits the
        clusters of a document to a sample by probability, as in the authors' code.
        """
        pairs = self._explored(chances, strengths, beam, positives, most)
        strengths = strengths.clamp(max=0)
        if chances.device.type == "cpu":
            return self._native_paths(pairs, chances, strengths, size, positives)
        return self._torch_paths(pairs, chances, strengths, size, positives)

    def _explored(
        self,
        chances: torch.Tensor,
        strengths: torch.Tensor,
        beam: int,
        positives: Gathered | None,
        most: tuple[int, torch.Generator] | None,
    ) -> torch.Tensor:
        """document · C + cluster for every explored pair, sorted by document."""
        n, n_clusters = chances.shape
        pairs = (torch.arange(n, device=chances.device)[:, None] * n_clusters + self.beam(chances, beam)).flatten()
        if positives is not None:
            parents = self.parents(strengths)[positives.columns]
            pairs = torch.cat([pairs, (positives.owner * n_clusters + parents)[parents >= 0]]).unique()
        if most is not None:
            noise = torch.empty(len(pairs), device=pairs.device).exponential_(generator=most[1]).log()
            pairs = pairs[_best_of_each(pairs // n_clusters, chances.flatten()[pairs].clamp(max=0) - noise, most[0], n)]
        return pairs

    def _native_paths(
        self,
        pairs: torch.Tensor,
        chances: torch.Tensor,
        strengths: torch.Tensor,
        size: int,
        positives: Gathered | None,
    ) -> Paths:
        n, n_clusters = chances.shape
        empty = torch.empty(0, dtype=torch.int64)
        owner, wanted = (empty, empty) if positives is None else (positives.owner, positives.columns)
        query = Clusters(
            _starts(pairs // n_clusters, n),
            (pairs % n_clusters).int().numpy(),
            chances.flatten()[pairs].clamp(max=0).numpy(),
            _starts(owner, n),
            wanted.int().numpy(),
        )
        edges = (self.labels.int().numpy(), strengths.numpy())
        threads = torch.get_num_threads()
        found = best_paths(query, *edges, self.n_labels, size, threads)
        return Paths(*map(torch.from_numpy, found))

    def _torch_paths(
        self,
        pairs: torch.Tensor,
        chances: torch.Tensor,
        strengths: torch.Tensor,
        size: int,
        positives: Gathered | None,
    ) -> Paths:
        n, n_clusters = chances.shape
        slots = self.labels.shape[1]
        there = (self.labels[pairs % n_clusters] >= 0).flatten().nonzero()[:, 0]  # existing edges (of p · E)
        pair, slot = pairs[there // slots], there % slots
        owner, cluster = pair // n_clusters, pair % n_clusters
        keys = owner * self.n_labels + self.labels[cluster, slot]
        scores = chances[owner, cluster].clamp(max=0) + strengths[cluster, slot]
        found, chosen = keys.sort() if self.one_path else _best_of_equals(keys, scores)
        target = torch.zeros(len(found), dtype=torch.bool, device=found.device)
        if positives is not None:
            target = _among(found, positives.owner * self.n_labels + positives.columns)
        kept = _best_of_each(found // self.n_labels, scores[chosen].masked_fill(target, torch.inf), size, n)
        found, chosen = found[kept], chosen[kept]
        return Paths(found // self.n_labels, found % self.n_labels, cluster[chosen], slot[chosen], target[kept])

    @torch.no_grad()
    def served(self, vector: str, beam: int, size: int) -> shortlists.LearnedEdges:
        weight, bias, edges = (
            tensor.float().cpu().numpy()
            for tensor in (self.clusters.weight, self.clusters.bias, self.strengths().clamp(max=0).exp())
        )
        labels = self.labels.int().cpu().numpy()
        scale = float(self.cluster_scale)
        return shortlists.LearnedEdges(vector, weight, bias, scale, beam, labels, edges, size)


@final
class PairClassifier(nn.Module):
    """logit = w_l · x + b_l + prior for (document, label) pairs; rows start at zero.

    With `sparse`, the gradient holds only the labels of the batch.
    """

    def __init__(self, n_labels: int, dim: int, prior: float, *, sparse: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(n_labels, dim))
        self.bias = nn.Parameter(torch.zeros(n_labels, 1))
        self.prior, self.sparse = prior, sparse

    def forward(self, x: torch.Tensor, owner: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        """Logits of pairs (m,), from vectors (n, D)."""
        if not self.sparse:
            return pair_scores(x, self.weight, owner, label) + self.bias[label, 0] + self.prior
        labels, column = label.unique(return_inverse=True)
        weight, bias = (F.embedding(labels, values, sparse=True) for values in (self.weight, self.bias))
        return pair_scores(x, weight, owner, column) + bias[column, 0] + self.prior

    def served(self, vector: str) -> components.Classifier:
        weight, bias = (values.detach().float().cpu().numpy() for values in (self.weight, self.bias))
        return components.Classifier(vector, weight, bias[:, 0] + np.float32(self.prior))


@final
class IndexedNetwork(nn.Module):
    """Encoder, index and label classifiers, which are trained on paths or separately, as rows."""

    def __init__(self, encoder: DocumentEncoder, index: EdgeIndex, classifier: PairClassifier | RowClassifier) -> None:
        super().__init__()
        self.encoder = encoder
        self.index = index
        self.classifier = classifier

    def forward(
        self,
        features: FeatureBatch,
        beam: int,
        size: int,
        positives: Gathered | None = None,
        most: tuple[int, torch.Generator] | None = None,
    ) -> tuple[Paths, torch.Tensor, torch.Tensor]:
        """The paths of `EdgeIndex.paths`, with the logit and log ŷ (m,) of their labels."""
        x, strengths = self.encoder(features), self.index.strengths()
        chances = self.index.chances(x)
        paths = self.index.paths(chances, strengths, beam, size, positives, most)
        return paths, self.classifier(x, paths.owner, paths.label), self.index.reach(chances, strengths, paths)

    @torch.no_grad()
    def best(self, features: FeatureBatch, n: int, k: int, beam: int, size: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The k best labels of each of n documents and their log p: (n, k), padded with −1 and −∞."""
        paths, logits, reach = self(features, beam, size)
        scores = F.logsigmoid(logits) + (0 if isinstance(self.classifier, RowClassifier) else reach)
        order, rank = _ranked(paths.owner, scores, n)
        order, rank = order[rank < k], rank[rank < k]
        place = paths.owner[order], rank
        ids = torch.full((n, k), -1, device=order.device).index_put_(place, paths.label[order])
        values = torch.full((n, k), -torch.inf, device=order.device).index_put_(place, scores[order])
        return ids, values


def path_losses(logits: torch.Tensor, reach: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Binary cross-entropy of p = σ(logit) · ŷ for each label (m,), from log ŷ."""
    present = F.logsigmoid(logits) + reach
    left = (-torch.expm1(reach)).clamp(min=_LEAST).log()  # log(1 − ŷ)
    absent = F.softplus(logits + left) - F.softplus(logits)  # log(1 − p)
    return -torch.where(target, present, absent)


def edges_from_matches(relevance: sp.csr_matrix, matches: sp.csr_matrix, size: int) -> tuple[np.ndarray, np.ndarray]:
    """The `size` best-matching labels of each cluster, padded with −1, and their matches: (C, E) each.

    `matches` (N, C) holds the probabilities of each document's best clusters. A label comes first in the row of its
    best-matching cluster, so that it is kept as long as there is room.
    """
    counts = sp.csr_matrix(relevance.T @ matches, dtype=np.float32)  # (L, C)
    largest = counts.max(axis=1).toarray().ravel()
    first = 1 + largest.max(initial=0)
    strongest = counts.data >= np.repeat(largest, np.diff(counts.indptr))
    ranked = sp.csr_matrix((counts.data + np.where(strongest, first, 0), counts.indices, counts.indptr), counts.shape)
    by_cluster = sp.csr_matrix(ranked.T, dtype=np.float32)  # (C, L)
    labels, _ = topk_csr(by_cluster.indptr, by_cluster.indices, by_cluster.data, size)
    clusters = np.repeat(np.arange(len(labels)), labels.shape[1])
    own = np.asarray(counts[np.maximum(labels, 0).ravel(), clusters]).reshape(labels.shape)
    return labels, np.where(labels < 0, np.float32(0), own)


def random_edges(shape: tuple[int, int], n_labels: int, seed: int) -> np.ndarray:
    """Random labels for each cluster (C, E), all labels about equally often; −1 replaces duplicates."""
    random = np.random.default_rng(seed)
    rounds = -(-math.prod(shape) // n_labels)
    drawn = np.concatenate([random.permutation(n_labels) for _ in range(rounds)])[: math.prod(shape)]
    labels = np.sort(drawn.reshape(shape), axis=1)
    labels[:, 1:][labels[:, 1:] == labels[:, :-1]] = -1
    return labels


def _starts(owner: torch.Tensor, n: int) -> np.ndarray:
    """CSR offsets (n + 1,) of ascending owners."""
    return np.searchsorted(owner.numpy(), np.arange(n + 1))


def _among(keys: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    """Whether each key is in `wanted`, which is short; `torch.isin` would sort all keys too."""
    if not len(wanted):
        return torch.zeros(len(keys), dtype=torch.bool, device=keys.device)
    wanted = wanted.sort().values
    place = torch.searchsorted(wanted, keys).clamp(max=len(wanted) - 1)
    return wanted[place] == keys


def _best_of_equals(keys: torch.Tensor, scores: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The distinct keys (u,), ascending, and the position of each key's best score, ties by position."""
    found, group = keys.unique(return_inverse=True)
    best = torch.full((len(found),), -torch.inf, device=keys.device).scatter_reduce_(0, group, scores, "amax")
    place = torch.arange(len(keys), device=keys.device).masked_fill(scores < best[group], len(keys))
    return found, torch.full_like(found, len(keys)).scatter_reduce_(0, group, place, "amin")


def _best_of_each(owner: torch.Tensor, scores: torch.Tensor, k: int, n: int) -> torch.Tensor:
    """The positions of the k best scores of each of n ascending owners, ascending."""
    if int(torch.bincount(owner, minlength=n).max()) <= k:
        return torch.arange(len(owner), device=owner.device)
    order, rank = _ranked(owner, scores, n)
    return order[rank < k].sort().values


def _ranked(owner: torch.Tensor, scores: torch.Tensor, n: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The order by owner (already ascending) and then score, best first; and the rank of each within its owner."""
    order = scores.argsort(descending=True, stable=True)
    order = order[owner[order].argsort(stable=True)]
    counts = torch.bincount(owner, minlength=n)
    return order, torch.arange(len(owner), device=owner.device) - (counts.cumsum(0) - counts)[owner]
