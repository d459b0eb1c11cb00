"""Hard negatives for each training document, from label centroids, similar documents, clusters or hash codes.

Every source takes document vectors and returns labels and scores, best first, padded with −1. Knows nothing about
encoders, classifiers or training.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias, final

import numpy as np
import scipy.sparse as sp
import torch
from torch.nn import functional as F

from xclearn.config import Auto
from xclearn.inference.shortlists import CentroidSearch, best_paths
from xclearn.kernels import topk_csr
from xclearn.labels.lists import padded_matrix, padded_rows
from xclearn.parts.frozen import learnt_clusters
from xclearn.parts.label_clusters import membership
from xclearn.search.nearest import ExactSearch, Method, build_search

ListSource = Literal["centroids", "documents", "both", "cluster", "tree", "hash"]
Listed: TypeAlias = tuple[np.ndarray, np.ndarray]  # label ids (n, k), padded with −1, and scores

_AT_ONCE = 8192  # documents per block
_DOCUMENT_WEIGHT = 0.075  # weight of similar documents relative to centroids, as published
_NEIGHBOURS = 100  # similar documents per query
_LEAVES = 8  # clusters or leaves searched for a list
_BITS = 128  # of a hash code


@final
@dataclass(frozen=True)
class Centres:
    """Label centroids: the mean of a label's documents, and extra centroids for labels with very many documents."""

    vectors: torch.Tensor  # (M, D) of length one
    labels: torch.Tensor  # (M,) ascending

    def served(self, vector: str, size: int) -> CentroidSearch:
        """The candidate stage that searches these centroids."""
        vectors = self.vectors.cpu().numpy()
        labels = self.labels.cpu().numpy().astype(np.int32)
        return CentroidSearch(vector, vectors, labels, min(size, len(np.unique(labels))))


@final
@dataclass(frozen=True, kw_only=True)
class Shortlister:
    """How lists are made."""

    source: ListSource
    size: int  # labels per list
    method: Auto[Method]  # search method
    seed: int
    on_fallback: Callable[..., None]  # called when exact search replaces faiss

    def lists(self, vectors: torch.Tensor, relevance: sp.csr_matrix, centres: Centres) -> np.ndarray:
        """Labels (N, size) int32 of every training document `vectors` (N, D)."""
        vectors = F.normalize(vectors, dim=1)
        find = self._finder(vectors, relevance, centres)
        return np.concatenate([find(part)[0].astype(np.int32) for part in vectors.split(_AT_ONCE)])

    def _finder(
        self, vectors: torch.Tensor, relevance: sp.csr_matrix, centres: Centres
    ) -> Callable[[torch.Tensor], Listed]:
        k = min(self.size, relevance.shape[1])
        n_labels = relevance.shape[1]
        if self.source in ("cluster", "tree"):
            return _by_tree(vectors, relevance, centres, k, self.seed, flat=self.source == "cluster")
        if self.source == "hash":
            return _by_codes(centres, k, self.seed)
        by_centres = _by_centres(centres, k, self.method, self.on_fallback) if self.source != "documents" else None
        if self.source == "centroids":
            assert by_centres is not None
            return by_centres
        by_documents = _by_documents(vectors, relevance, k, self.method, self.on_fallback)
        if by_centres is None:
            return by_documents
        weighted = ((by_centres, 1 - _DOCUMENT_WEIGHT), (by_documents, _DOCUMENT_WEIGHT))
        return lambda queries: merged([(*find(queries), weight) for find, weight in weighted], n_labels, k)


def label_centres(vectors: torch.Tensor, relevance: sp.csr_matrix, *, n_extra: int, head: int, seed: int) -> Centres:
    """The mean of the vectors (N, D) of each label's documents; labels with at least `head` get `n_extra` more.

    A label without documents has no centroid.
    """
    counts = np.bincount(relevance.indices, minlength=relevance.shape[1])
    sums = torch.zeros(len(counts), vectors.shape[1], device=vectors.device)
    for rows in _parts(len(vectors)):
        part = relevance[rows]
        owner = torch.from_numpy(np.repeat(np.arange(part.shape[0]), np.diff(part.indptr))).to(vectors.device)
        sums.index_add_(0, torch.from_numpy(part.indices.astype(np.int64)).to(vectors.device), vectors[rows][owner])
    labels = np.flatnonzero(counts)
    found = [sums[torch.from_numpy(counts > 0).to(sums.device)]]
    owners, by_label = [labels], sp.csr_matrix(relevance.T)
    for label in np.flatnonzero(counts >= head) if n_extra else ():
        extra = _k_means(vectors[torch.from_numpy(by_label[label].indices).long()], n_extra, seed)
        found.append(extra)
        owners.append(np.full(len(extra), label))
    owner_of_centre = np.concatenate(owners)
    order = torch.from_numpy(np.argsort(owner_of_centre, kind="stable")).to(vectors.device)
    return Centres(F.normalize(torch.cat(found), dim=1)[order], torch.from_numpy(owner_of_centre).to(order)[order])


def merged(parts: list[tuple[np.ndarray, np.ndarray, float]], n_labels: int, k: int) -> Listed:
    """The k labels with the largest weighted sum of scores over several lists for the same documents."""
    total = sum(weight * padded_matrix(ids, n_labels, scores) for ids, scores, weight in parts)
    return topk_csr(total.indptr, total.indices, total.data.astype(np.float32), k)


def _by_centres(
    centres: Centres, k: int, method: Auto[Method], on_fallback: Callable[..., None]
) -> Callable[[torch.Tensor], Listed]:
    search = build_search(centres.vectors, method, on_fallback)
    several = len(centres.labels) > len(centres.labels.unique())

    def find(queries: torch.Tensor) -> Listed:
        ids, scores = search.search(queries, 2 * k if several else k)
        labels = torch.where(ids < 0, -1, centres.labels[ids]).cpu().numpy()
        if not several:
            return labels, scores.cpu().numpy()
        once, best = best_paths(labels, scores.cpu().numpy())
        return once[:, :k], best[:, :k]

    return find


def _by_documents(
    vectors: torch.Tensor, relevance: sp.csr_matrix, k: int, method: Auto[Method], on_fallback: Callable[..., None]
) -> Callable[[torch.Tensor], Listed]:
    """A label's score is the summed similarity of near documents that have it, divided by the row's largest."""
    search = build_search(vectors, method, on_fallback)

    def find(queries: torch.Tensor) -> Listed:
        ids, scores = (part.cpu().numpy() for part in search.search(queries, _NEIGHBOURS))
        summed = sp.csr_matrix(padded_matrix(ids, relevance.shape[0], scores) @ relevance)
        labels, best = topk_csr(summed.indptr, summed.indices, summed.data.astype(np.float32), k)
        return labels, best / np.maximum(best[:, :1], 1e-12)

    return find


def _by_codes(centres: Centres, k: int, seed: int) -> Callable[[torch.Tensor], Listed]:
    """Smallest Hamming distance of random-hyperplane codes, centred at the mean because all vectors lie in a cone."""
    middle, device = centres.vectors.mean(dim=0), centres.vectors.device
    planes = torch.randn(len(middle), _BITS, generator=torch.Generator().manual_seed(seed)).to(device)

    def code(vectors: torch.Tensor) -> torch.Tensor:
        return ((vectors - middle) @ planes).sign()

    search = ExactSearch(code(centres.vectors))

    def find(queries: torch.Tensor) -> Listed:
        ids, scores = search.search(code(queries), k)
        return best_paths(centres.labels[ids].cpu().numpy(), scores.cpu().numpy())

    return find


def _by_tree(
    vectors: torch.Tensor, relevance: sp.csr_matrix, centres: Centres, k: int, seed: int, *, flat: bool
) -> Callable[[torch.Tensor], Listed]:
    """The labels of the best leaves of a tree of classifiers: Parabel's, or `flat`, a single level of leaves.

    Ordered by leaf, and within a leaf by the similarity of label centroids.
    """
    branching = relevance.shape[1] if flat else 2
    leaf, levels = learnt_clusters(vectors.cpu().numpy(), relevance, max(2, branching), max(1, k // _LEAVES), seed)
    members = torch.from_numpy(padded_rows(membership(leaf, int(leaf.max()) + 1))).to(vectors.device)
    beam = min(len(members), -(-k // max(1, members.shape[1] - 1)))
    on_device = [tuple(torch.from_numpy(part).to(vectors) for part in level) for level in levels]
    middle = torch.zeros(relevance.shape[1], vectors.shape[1], device=vectors.device)  # (L, D)
    middle.index_copy_(0, centres.labels, centres.vectors)  # any one of several centroids: it only orders a leaf

    def find(queries: torch.Tensor) -> Listed:
        nodes = torch.zeros(len(queries), 1, dtype=torch.long, device=queries.device)
        scores = queries.new_zeros(1, 1)
        before = 1
        for weight, bias in on_device:
            step = len(weight) // before
            nodes = (nodes[:, :, None] * step + torch.arange(step, device=queries.device)).flatten(1)  # (n, children)
            logits = (queries @ weight.T + bias).gather(1, nodes)
            chances = scores.repeat_interleave(step, dim=1) - (1 - logits).clamp(min=0) ** 2
            scores, places = chances.topk(min(beam, chances.shape[1]), dim=1)
            nodes, before = nodes.gather(1, places), len(weight)
        listed = members[nodes]  # (n, beam, largest)
        near = (queries @ middle.T).gather(1, listed.clamp(min=0).flatten(1)).view(listed.shape)
        order = near - 4 * torch.arange(listed.shape[1], device=near.device)[:, None]  # cosines differ by less
        labels = listed.flatten(1).cpu().numpy()
        once, once_scores = best_paths(labels, order.flatten(1).cpu().numpy())
        return once[:, :k], once_scores[:, :k]

    return find


def _k_means(vectors: torch.Tensor, n_centres: int, seed: int) -> torch.Tensor:
    from sklearn.cluster import KMeans

    n_centres = min(n_centres, len(vectors))
    found = KMeans(n_centres, n_init=2, max_iter=50, random_state=seed % (1 << 32)).fit(vectors.cpu().numpy())
    return torch.from_numpy(found.cluster_centers_.astype(np.float32)).to(vectors.device)


def _parts(total: int) -> Iterator[slice]:
    return (slice(start, start + _AT_ONCE) for start in range(0, total, _AT_ONCE))
