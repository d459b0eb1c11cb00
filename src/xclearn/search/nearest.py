"""The vectors with the largest inner product, exact or approximate, behind one interface: ids, scores.

`ExactSearch` multiplies in blocks on any device. `FaissSearch` needs the extra `ann` and a CPU; `build_search`
falls back to exact search where the extra is missing, unless an approximate method was requested by name. Knows nothing
about what the vectors mean; for cosines, pass unit vectors.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Literal, final

import numpy as np
import torch

from xclearn.config import AUTO, Auto
from xclearn.extras import is_installed, missing

Method = Literal["exact", "hnsw", "ivf"]

_SCORES_AT_ONCE = {"cpu": 1 << 25, "cuda": 1 << 28}  # entries of a block of scores: 128 MB, 1 GB
_QUERIES_AT_ONCE = {"cpu": 512, "cuda": 4096}
_EXACT_CPU = 20_000  # up to this many vectors, exact search on a CPU is no slower than building an index
_LINKS, _EF_CONSTRUCTION, _EF_SEARCH = 32, 100, 400  # of the HNSW graph
_CELL_SIZE, _PROBED = 100, 64  # mean vectors per IVF cell, cells searched per query


class Search(ABC):
    """Finds the nearest among a set of vectors."""

    @abstractmethod
    def search(self, queries: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The k nearest of each query (n, D): ids (n, k) int64 and inner products (n, k), best first.

        There are fewer columns if there are fewer vectors; rows where an index found fewer are padded with −1 and −∞.
        """


@final
class ExactSearch(Search):
    """Multiplies every query with every vector, in blocks."""

    def __init__(self, vectors: torch.Tensor) -> None:
        self.vectors = vectors  # (m, D)

    def search(self, queries: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
        k = min(k, len(self.vectors))
        found = [self._best(part, k) for part in queries.split(_QUERIES_AT_ONCE[queries.device.type])]
        ids, scores = zip(*found, strict=True)
        return torch.cat(ids), torch.cat(scores)

    def _best(self, queries: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Merge each block into the best so far."""
        size = max(k, _SCORES_AT_ONCE[queries.device.type] // max(1, len(queries)))
        ids = torch.empty(len(queries), 0, dtype=torch.int64, device=queries.device)
        scores = torch.empty(len(queries), 0, device=queries.device)
        for start in range(0, len(self.vectors), size):
            products = queries @ self.vectors[start : start + size].T  # (n, size)
            best = products.topk(min(k, products.shape[1]), dim=1)
            ids = torch.cat([ids, best.indices + start], dim=1)
            scores = torch.cat([scores, best.values], dim=1)
            scores, order = scores.topk(min(k, scores.shape[1]), dim=1)
            ids = ids.gather(1, order)
        return ids, scores


@final
class FaissSearch(Search):
    """A faiss index: a graph (`hnsw`) or cells (`ivf`).

    Cells are deterministic; the links of a graph built by several threads are not.
    """

    def __init__(self, vectors: torch.Tensor, method: Literal["hnsw", "ivf"]) -> None:
        self.size = len(vectors)
        self.index = _faiss_index(vectors.cpu().numpy(), method)

    def search(self, queries: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
        scores, ids = self.index.search(queries.cpu().numpy(), min(k, self.size))
        scores = np.where(ids < 0, -np.inf, scores)
        return torch.from_numpy(ids).to(queries.device), torch.from_numpy(scores).to(queries.device)


def build_search(
    vectors: torch.Tensor, method: Auto[Method] = AUTO, on_fallback: Callable[..., None] = lambda **_: None
) -> Search:
    """A search among `vectors` (m, D). AUTO is IVF for many vectors on a CPU, exact search otherwise.

    `on_fallback` is called when exact search replaces faiss.
    """
    there = is_installed("faiss")
    if method is AUTO and vectors.device.type == "cpu" and len(vectors) > _EXACT_CPU:
        method = "ivf" if there else "exact"
        if not there:
            on_fallback(method="exact", reason="faiss is not installed; pip install 'xclearn[ann]' makes it faster")
    if method is AUTO or method == "exact":
        return ExactSearch(vectors)
    if not there:
        raise missing("faiss", "approximate search", otherwise='set search = "exact"')
    return FaissSearch(vectors, method)


def recall(found: torch.Tensor, wanted: torch.Tensor) -> float:
    """The share of `wanted` (n, k) that appears in the same row of `found` (n, m)."""
    rows = torch.arange(len(wanted), device=wanted.device)[:, None] * (int(wanted.max()) + 1)
    inside = torch.isin(wanted + rows, torch.where(found > wanted.max(), -1, found + rows))
    return float(inside[wanted >= 0].float().mean())


def _faiss_index(vectors: np.ndarray, method: str) -> Any:
    import faiss

    n, dim = vectors.shape
    index: Any
    if method == "hnsw":
        index = faiss.IndexHNSWFlat(dim, _LINKS, faiss.METRIC_INNER_PRODUCT)
        index.hnsw.efConstruction = _EF_CONSTRUCTION
        index.hnsw.efSearch = _EF_SEARCH
    else:
        cells = max(1, n // _CELL_SIZE)
        index = faiss.IndexIVFFlat(faiss.IndexFlatIP(dim), dim, cells, faiss.METRIC_INNER_PRODUCT)
        index.nprobe = min(cells, _PROBED)
        index.cp.min_points_per_centroid = 1  # do not warn about small cells
        index.train(vectors)
    index.add(vectors)
    return index
