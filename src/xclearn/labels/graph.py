"""Graphs of labels: random walks over relevance, co-occurrence, personalised PageRank, or edges from a file.

A graph is a sparse matrix (L, L): entry (l, m) is the weight of the edge from label l to label m; every label has an
edge to itself. Labels with many documents ("head labels") have no other edge. Knows nothing about models or texts.
"""

from __future__ import annotations

import csv
import math
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, final

import numpy as np
import scipy.sparse as sp

from xclearn.config import Count, Number, Share
from xclearn.data.folder import data_file
from xclearn.data.vocabulary import SKOS, skos_edges
from xclearn.errors import ConfigError, DataError, PlanError
from xclearn.files import numbered_lines
from xclearn.kernels.walks import random_walks
from xclearn.writing import atomic_path

_LABELS_AT_ONCE = 2048  # rows of a label-by-label product held at a time
_EDGES_AT_ONCE = 1 << 18  # edges whose vectors are held at a time
_EDGE_BYTES = 24  # per edge while a graph is built: id and weight, twice, and their sort order
_HOPS, _REST = 32, 1e-3  # of a PageRank: the maximum, and the remaining mass at which it stops early
_KEPT = 256  # labels that a hop continues from
_TELEPORT = 0.05  # teleport probability of the Perron vector: without it most graphs have none
_SHOWN = 5  # unknown names that an error lists


@final
@dataclass(frozen=True, kw_only=True)
class RandomWalk:
    """Visit counts of a random walk with restart from each label."""

    steps: Count = 400  # length of the walk from each label
    restart: Share = 0.8  # probability of restarting at the label before each step


@final
@dataclass(frozen=True, kw_only=True)
class Cooccurrence:
    """The number of documents that two labels share."""


@final
@dataclass(frozen=True, kw_only=True)
class PageRank:
    """Personalised PageRank: the limit of a random walk's visits as it gets longer."""

    restart: Share = 0.2  # probability of restarting at the label before each step


@final
@dataclass(frozen=True, kw_only=True)
class EdgeList:
    """A file of lines `label, label, weight`: .csv with commas, anything else with tabs; or a SKOS vocabulary."""

    path: str = ""  # the file


@final
@dataclass(frozen=True, kw_only=True)
class LabelGraph:
    """The source of the edges, how many are kept, and how they are weighted."""

    source: RandomWalk | Cooccurrence | PageRank | EdgeList = field(default_factory=RandomWalk)  # of the edges
    edges: Count = 10  # edges from each label to others, at most
    head: Number = 500  # labels with more documents than this have an edge to themselves only
    normalisation: Literal["two_sided", "perron", "rows"] = "two_sided"  # of the weights

    def build(
        self, relevance: sp.csr_matrix, names: Sequence[str], seed: int, memory: int | None = None
    ) -> sp.csr_matrix:
        """The unnormalised graph; `memory` limits the bytes used while building it."""
        source, top, head = self.source, self.edges, self.head
        if isinstance(source, RandomWalk):
            steps, restart = source.steps, source.restart
            return random_walk_graph(
                relevance, steps=steps, restart=restart, top=top, seed=seed, head=head, memory=memory
            )
        if isinstance(source, EdgeList):
            if not source.path:
                what = "an edge list needs a file"
                todo = "Set path to a file of lines label, label, weight."
                raise ConfigError(what, where="graph.source.path", got=source.path, todo=todo)
            return strongest_edges(_alone(read_edges(source.path, names, memory), relevance, head), top)
        if isinstance(source, PageRank):
            return pagerank_graph(relevance, restart=source.restart, top=top, head=head, memory=memory)
        return cooccurrence_graph(relevance, top=top, head=head, memory=memory)

    def normalise(self, graph: sp.csr_matrix) -> sp.csr_matrix:
        """The graph with normalised weights."""
        return NORMALISATIONS[self.normalisation](graph)


def random_walk_graph(
    relevance: sp.csr_matrix,  # (N, L)
    *,
    steps: int,
    restart: float,
    top: int,
    seed: int,
    head: int | None = None,
    memory: int | None = None,
) -> sp.csr_matrix:
    """Visit counts of one walk from each label: the `top` other labels visited most, and the label itself.

    The result does not depend on the number of threads. The walk never enters labels with more than `head` documents.
    """
    if not 0 <= restart <= 1 or min(steps, top) < 1:
        got = f"steps {steps}, restart {restart}, top {top}"
        raise ConfigError(
            "random walk settings are out of range", got=got, allowed="1 or more steps and edges, a restart from 0 to 1"
        )
    _require_room(min(top, steps), relevance.shape[1], memory)
    return random_walks(_connected(relevance, head), steps, restart, top, seed)


def cooccurrence_graph(
    relevance: sp.csr_matrix, *, top: int, head: int | None = None, memory: int | None = None
) -> sp.csr_matrix:
    """The number of documents that two labels share: YᵀY, computed in blocks of rows."""
    _require_room(top, relevance.shape[1], memory)
    by_document = _connected(relevance, head)
    by_label = sp.csr_matrix(by_document.T)
    return _by_rows(by_label.shape[0], top, lambda rows: by_label[rows] @ by_document)


def pagerank_graph(
    relevance: sp.csr_matrix, *, restart: float, top: int, head: int | None = None, memory: int | None = None
) -> sp.csr_matrix:
    """Personalised PageRank of every label, for a restart at each label."""
    _require_room(max(top, _KEPT * _LABELS_AT_ONCE // max(1, relevance.shape[1])), relevance.shape[1], memory)
    by_document = _connected(relevance, head)
    to_documents = row_shares(sp.csr_matrix(by_document.T))
    to_labels = row_shares(by_document)

    def visits(rows: slice) -> sp.csr_matrix:
        at = sp.csr_matrix(to_documents[rows] @ to_labels)  # where the first step ends
        found, going, hop = restart * at, 1 - restart, 1
        while going > _REST and hop < _HOPS:
            at = _largest(sp.csr_matrix(at @ to_documents @ to_labels), _KEPT)
            found = found + going * restart * at
            going = going * (1 - restart)
            hop = hop + 1
        return sp.csr_matrix(found + going * at)

    return _by_rows(to_documents.shape[0], top, visits)


def read_edges(path: str | Path, names: Sequence[str], memory: int | None = None) -> sp.csr_matrix:
    """The graph of an edge file; repeated edges are summed, and a label's missing edge to itself gets weight 1.

    For a SKOS vocabulary, edges are its broader, narrower and related relations between labels; other concepts are
    ignored.
    """
    if data_file(Path(path)).suffix in SKOS:
        known = set(names)
        pairs = ((one, other, 1.0) for one, other in skos_edges(Path(path)) if one in known and other in known)
        return edges_graph(pairs, names, where=str(path), memory=memory)
    separator = "," if Path(path).suffix == ".csv" else "\t"
    return edges_graph(_lines(path, separator), names, where=str(path), memory=memory)


def edges_graph(
    edges: Iterable[tuple[str, str, float]], names: Sequence[str], *, where: str = "edges", memory: int | None = None
) -> sp.csr_matrix:
    """The graph of (label, label, weight)."""
    number = {name: i for i, name in enumerate(names)}
    unknown = dict[str, None]()
    sides, weights = array("q"), array("f")
    for one, other, weight in edges:
        if not (math.isfinite(weight) and weight >= 0):
            raise DataError(f"the weight from '{one}' to '{other}' is invalid", where=where, got=weight, allowed="≥ 0")
        unknown.update((name, None) for name in (one, other) if name not in number)
        sides.extend((number.get(one, 0), number.get(other, 0)))
        weights.append(weight)
    if unknown:
        shown = ", ".join(f"'{name}'" for name in list(unknown)[:_SHOWN])
        raise DataError(f"{len(unknown):,} names are not labels, such as {shown}", where=where, todo="Leave them out.")
    _require_room(-(-len(weights) // max(1, len(names))), len(names), memory)
    rows, columns = np.array(sides, dtype=np.int64).reshape(-1, 2).T
    graph = sp.csr_matrix((np.array(weights), (rows, columns)), shape=(len(names),) * 2)
    return _with_self(graph)


def write_edges(path: str | Path, graph: sp.csr_matrix, names: Sequence[str]) -> None:
    """Write a graph in the format that `read_edges` reads."""
    separator = "," if Path(path).suffix == ".csv" else "\t"
    edges = sp.coo_matrix(graph)
    with atomic_path(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, delimiter=separator, lineterminator="\n")
        for one, other, weight in zip(edges.row, edges.col, edges.data.tolist(), strict=True):
            writer.writerow((names[one], names[other], f"{weight:.7g}"))


def two_sided(graph: sp.csr_matrix) -> sp.csr_matrix:
    """Each weight divided by the square roots of its row sum and column sum, which favours edges of rare labels."""
    rows, columns = (np.asarray(graph.sum(axis=axis)).ravel() for axis in (1, 0))
    return _scaled(graph, 1 / np.sqrt(rows), 1 / np.sqrt(np.maximum(columns, 1e-12)))


def perron(graph: sp.csr_matrix) -> sp.csr_matrix:
    """Chung's symmetric form of a directed graph: ½ (Φ^½ P Φ^−½ + Φ^−½ Pᵀ Φ^½), φ its stationary distribution."""
    step = row_shares(graph)
    share = np.full(graph.shape[0], 1 / max(1, graph.shape[0]))
    for _ in range(_HOPS):
        share = (1 - _TELEPORT) * (step.T @ share) + _TELEPORT / len(share)
    one_way = _scaled(step, np.sqrt(share), 1 / np.sqrt(share))
    return sp.csr_matrix((one_way + one_way.T) / 2, dtype=np.float32)


def row_shares(matrix: sp.csr_matrix) -> sp.csr_matrix:
    """Rows normalised to sum to one, so that a product averages over neighbours."""
    sums = np.asarray(matrix.sum(axis=1)).ravel()
    return _scaled(matrix, 1 / np.where(sums > 0, sums, 1), np.ones(matrix.shape[1]))


NORMALISATIONS: dict[str, Callable[[sp.csr_matrix], sp.csr_matrix]] = {
    "two_sided": two_sided,
    "perron": perron,
    "rows": row_shares,
}


def strongest_edges(graph: sp.csr_matrix, top: int) -> sp.csr_matrix:
    """Each label's `top` strongest edges to others (ties by smaller id) and its edge to itself."""
    others = sp.coo_matrix(graph)
    apart = others.row != others.col
    loops = sp.diags_array(graph.diagonal())
    kept = _largest(sp.csr_matrix((others.data[apart], (others.row[apart], others.col[apart])), graph.shape), top)
    return sp.csr_matrix(kept + loops, dtype=np.float32)


def prune_by_vectors(graph: sp.csr_matrix, vectors: np.ndarray, least: float) -> sp.csr_matrix:
    """Drop edges between labels whose vectors (L, D) have a cosine below `least`; edges to oneself stay."""
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit = vectors / np.maximum(norms, 1e-12)
    edges = sp.coo_matrix(graph)
    parts = range(0, edges.nnz, _EDGES_AT_ONCE)
    ends = [(edges.row[i : i + _EDGES_AT_ONCE], edges.col[i : i + _EDGES_AT_ONCE]) for i in parts]
    cosine = np.concatenate([np.zeros(0), *((unit[one] * unit[other]).sum(axis=1) for one, other in ends)])
    kept = (cosine >= least) | (edges.row == edges.col)
    return sp.csr_matrix((edges.data[kept], (edges.row[kept], edges.col[kept])), graph.shape)


def cluster_graph(graph: sp.csr_matrix, members: sp.csr_matrix, top: int) -> sp.csr_matrix:
    """The graph of clusters, with weights summed over their labels; `members` is clusters × labels."""
    return strongest_edges(_with_self(sp.csr_matrix(members @ graph @ members.T)), top)


def mean_cluster_graph(graph: sp.csr_matrix, members: sp.csr_matrix) -> sp.csr_matrix:
    """ECLARE's G_M = Mᵀ G M, the columns of M summing to one: the mean weight between the labels of two clusters.

    `graph` is normalised, and so is this then; no edge is left out.
    """
    shares = row_shares(members)
    return sp.csr_matrix(shares @ graph @ shares.T, dtype=np.float32)


def neighbours(graph: sp.csr_matrix, label: int) -> tuple[np.ndarray, np.ndarray]:
    """The labels adjacent to this one and the edge weights, strongest first."""
    row = sp.csr_matrix(graph[[label]])
    order = np.lexsort((row.indices, -row.data))
    order = order[row.indices[order] != label]
    return row.indices[order].astype(np.int64), row.data[order]


def describe(graph: sp.csr_matrix) -> dict[str, Any]:
    """Counts that describe how connected the labels are."""
    others = np.diff(graph.indptr) - 1
    return {
        "labels": graph.shape[0],
        "edges": int(others.sum()),
        "edges_per_label": round(float(others.mean()), 2) if len(others) else 0.0,
        "labels_without_neighbour": int((others == 0).sum()),
        "pairs_bound_both_ways": (int(graph.astype(bool).multiply(graph.T.astype(bool)).nnz) - graph.shape[0]) // 2,
    }


def _connected(relevance: sp.csr_matrix, head: int | None) -> sp.csr_matrix:
    """Relevance without the labels that have more than `head` documents, which no walk may enter."""
    if head is None:
        return relevance
    kept = _counts(relevance) <= head
    entries = kept[relevance.indices]
    indptr = np.append(0, np.cumsum(entries))[relevance.indptr]
    return sp.csr_matrix((relevance.data[entries], relevance.indices[entries], indptr), relevance.shape)


def _alone(graph: sp.csr_matrix, relevance: sp.csr_matrix, head: int) -> sp.csr_matrix:
    """The graph without edges to and from head labels."""
    edges, is_head = sp.coo_matrix(graph), _counts(relevance) > head
    kept = ~(is_head[edges.row] | is_head[edges.col]) | (edges.row == edges.col)
    return sp.csr_matrix((edges.data[kept], (edges.row[kept], edges.col[kept])), graph.shape)


def _counts(relevance: sp.csr_matrix) -> np.ndarray:
    return np.bincount(relevance.indices, minlength=relevance.shape[1])


def _by_rows(n_labels: int, top: int, make: Callable[[slice], sp.csr_matrix]) -> sp.csr_matrix:
    """A graph built in blocks of rows, each pruned to its strongest edges immediately."""
    parts = []
    for start in range(0, n_labels, _LABELS_AT_ONCE):
        rows = slice(start, min(start + _LABELS_AT_ONCE, n_labels))
        loops = np.arange(rows.start, rows.stop)
        block = sp.coo_matrix(make(rows))
        own = block.col == block.row + rows.start
        on_self = np.ones(len(loops), dtype=np.float32)  # one visit if there was none
        on_self[block.row[own]] = block.data[own]
        others = sp.csr_matrix((block.data[~own], (block.row[~own], block.col[~own])), block.shape)
        selves = sp.csr_matrix((on_self, (np.arange(len(loops)), loops)), block.shape)
        parts.append(_largest(others, top) + selves)
    return sp.csr_matrix(sp.vstack(parts), dtype=np.float32)


def _largest(matrix: sp.csr_matrix, top: int) -> sp.csr_matrix:
    """The `top` largest entries of each row, ties by smaller column."""
    matrix.sort_indices()
    row = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    order = np.lexsort((matrix.indices, -matrix.data, row))
    kept = order[np.arange(len(order)) - matrix.indptr[row] < top]
    found = sp.csr_matrix((matrix.data[kept], (row[kept], matrix.indices[kept])), matrix.shape)
    found.sort_indices()
    return found


def _with_self(graph: sp.csr_matrix) -> sp.csr_matrix:
    """Add an edge of weight 1 from each label to itself where there is none."""
    return sp.csr_matrix(graph + sp.diags_array((graph.diagonal() == 0).astype(np.float32)), dtype=np.float32)


def _scaled(matrix: sp.csr_matrix, rows: np.ndarray, columns: np.ndarray) -> sp.csr_matrix:
    row = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    values = (matrix.data * rows[row] * columns[matrix.indices]).astype(np.float32)
    return sp.csr_matrix((values, matrix.indices, matrix.indptr), matrix.shape)


def _lines(path: str | Path, separator: str) -> Iterator[tuple[str, str, float]]:
    lines = csv.reader((line for _, line in numbered_lines(path, keep_ends=True)), delimiter=separator)
    try:
        for cells in lines:
            yield _edge(cells, f"{path}:{lines.line_num}")
    except csv.Error as error:
        raise DataError(f"not readable as a table ({error})", where=f"{path}:{lines.line_num}") from error


def _edge(cells: list[str], where: str) -> tuple[str, str, float]:
    if len(cells) != 3:
        raise DataError("a line must be label, label, weight", where=where, got=cells)
    try:
        return cells[0], cells[1], float(cells[2])
    except ValueError as error:
        raise DataError("the weight is not a number", where=where, got=cells[2]) from error


def _require_room(edges_per_label: int, n_labels: int, memory: int | None) -> None:
    """Raise if the graph would not fit into memory, naming the number of edges that would."""
    fitting = math.inf if memory is None else memory // (_EDGE_BYTES * max(1, n_labels)) - 1
    if edges_per_label > fitting:
        todo = (
            f"Set edges = {int(fitting)}, or reduce the file to that many."
            if fitting >= 1
            else "Use a machine with more memory."
        )
        got = f"{edges_per_label:,} edges for each of {n_labels:,} labels"
        raise PlanError("the label graph would not fit into memory", got=got, todo=todo)
