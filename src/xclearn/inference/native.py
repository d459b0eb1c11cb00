"""The native predictor of a servable: from texts to the best labels in one call without the interpreter's lock.

It knows bag encoders, every candidate stage and fusion that they are served with, linear scorers, the graph between
labels and a re-ranking after it; and label trees, sparse classifiers and label texts. Steps after these, or in another
order, follow in NumPy. `native_predictor` gives None for anything else (sequence encoders, graphs inside a scorer,
dense features), and where the extension is absent. The servable is its oracle.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, final

import numpy as np
import scipy.sparse as sp

from xclearn import kernels
from xclearn.data.dataset import NO_PAIRS, Documents
from xclearn.data.topk import TopK
from xclearn.inference.components import (
    AllLabels,
    Bag,
    Candidates,
    Classifier,
    ClusterBeam,
    GatedBlock,
    Layer,
    Product,
    Relu,
    Residual,
    Scorer,
    Sigmoid,
    Unit,
)
from xclearn.inference.exported import CentreIndex, ClusterIndex, Features, RowClassifier, Rows, TokenIndex
from xclearn.inference.graph import Game, GameBeam, GameLabels
from xclearn.inference.native_sparse import is_known_sparse, set_text, sparse_core
from xclearn.inference.re_ranking import ReRanking, SparseRanker
from xclearn.inference.servable import Ensemble, Servable, check_k, in_blocks
from xclearn.inference.shortlists import CentroidSearch, LearnedEdges, Mix
from xclearn.inference.sparse import SparseFeatures
from xclearn.inference.tensors import StringTable
from xclearn.text.documents import TEXTS, require
from xclearn.text.subwords import SubwordVectoriser
from xclearn.text.vectorisers import SparseVectoriser, TfidfVectoriser

_ENCODERS, _LAYERS = (Bag, Features, SparseFeatures), (Relu, Residual, GatedBlock, Unit)
_STEPS: tuple[list[type], ...] = ([], [GameLabels], [ReRanking], [GameLabels, ReRanking])
_SIMILAR = (CentroidSearch, CentreIndex, LearnedEdges)  # candidates that each have a value of their own
_READERS = (ClusterBeam, ClusterIndex, *_SIMILAR)  # candidates that read a vector
_CANDIDATES, _SCORERS = (AllLabels, TokenIndex, GameBeam, *_READERS), (Classifier, RowClassifier)
_AT_ONCE = 4096  # documents re-ranked at a time
_NO_ROWS = np.empty(0, dtype=np.int32)
_NO_PAIRS = (np.empty(0, dtype=np.int64), _NO_ROWS)


@final
class NativePredictor:
    """Predicts what its servable predicts."""

    def __init__(self, core: Any, servable: Servable, n_threads: int | None) -> None:
        self._core, self._n_threads = core, n_threads
        self.vectoriser, self.n_labels = servable.vectoriser, servable.n_labels

    def predict(self, documents: Documents, k: int, exclude: np.ndarray = NO_PAIRS) -> TopK:
        """As `Servable.predict`; several documents are shared among the threads."""
        if not isinstance(self.vectoriser, TfidfVectoriser):
            return self.rank(self.vectoriser.transform(documents), k, exclude)
        texts = list(require(documents, TEXTS))
        found, excluded, threads = self._prepare(len(texts), k, exclude)
        self._core.predict_texts(texts, *excluded, threads, *found)
        return found

    def rank(self, features: sp.csr_matrix, k: int, exclude: np.ndarray = NO_PAIRS) -> TopK:
        """As `Servable.rank`."""
        found, excluded, threads = self._prepare(features.shape[0], k, exclude)
        indptr, indices = features.indptr.astype(np.int64), features.indices.astype(np.int32)
        self._core.predict_rows(indptr, indices, features.data, *excluded, threads, *found)
        return found

    def _prepare(self, n: int, k: int, exclude: np.ndarray) -> tuple[TopK, tuple[np.ndarray, np.ndarray], int]:
        """Where the answers go, the excluded pairs, and the number of threads."""
        check_k(k)
        shape = (n, min(k, self.n_labels))
        excluded = _by_row(exclude, n) if len(exclude) else _NO_PAIRS
        threads = 1 if n < 2 else self._n_threads or _n_cores()
        return TopK(np.empty(shape, dtype=np.int64), np.empty(shape, dtype=np.float32)), excluded, threads

    def transform_one(self, text: str) -> tuple[np.ndarray, np.ndarray]:
        """To the bit what the vectoriser's `transform_one` gives."""
        if not isinstance(self.vectoriser, TfidfVectoriser):
            return self.vectoriser.transform_one(text)
        ids, weights = self._core.bag(text)
        return np.array(ids, dtype=np.int32), np.array(weights, dtype=np.float32)


@final
class RankedAnew:
    """What a native predictor finds, followed by the steps of the servable in NumPy."""

    def __init__(self, first: NativePredictor, servable: Servable) -> None:
        self._first, self._servable = first, servable
        self.vectoriser, self.n_labels = servable.vectoriser, servable.n_labels
        self._encoders = servable.step_encoders

    def predict(self, documents: Documents, k: int, exclude: np.ndarray = NO_PAIRS) -> TopK:
        """As `Servable.predict`."""
        check_k(k)
        return self.rank(self.vectoriser.transform(documents), k, exclude)

    def rank(self, features: sp.csr_matrix, k: int, exclude: np.ndarray = NO_PAIRS) -> TopK:
        """As `Servable.rank`."""
        return in_blocks(self._best, features, min(k, self.n_labels), exclude, _AT_ONCE)

    def _best(self, features: sp.csr_matrix | np.ndarray, k: int, exclude: np.ndarray) -> TopK:
        vectors = {name: encoder.encode(features) for name, encoder in self._encoders.items()}
        return self._servable.after_steps(vectors, self._first.rank(features, self._servable.fused_depth), k, exclude)


Native = NativePredictor | RankedAnew | Ensemble


def native_predictor(servable: Servable | Ensemble, n_threads: int | None = None) -> Native | None:
    """The native form of a servable; None where there is none. By default a thread for each core."""
    if isinstance(servable, Ensemble):
        members: list[Any] = [native_predictor(member, n_threads) for member in servable.members]
        return None if None in members else Ensemble(members)
    if kernels.BACKEND != "native":
        return None
    if is_known_sparse(servable):
        return NativePredictor(sparse_core(servable), servable, n_threads)
    if _is_known(servable):
        return NativePredictor(_core(servable), servable, n_threads)
    first = native_predictor(_without_steps(servable), n_threads) if servable.steps else None
    return RankedAnew(first, servable) if isinstance(first, NativePredictor) else None


def _core(servable: Servable) -> Any:
    """What predicts as a servable of dense vectors."""
    from xclearn.kernels import _native

    core = _native.Predictor(servable.n_labels)
    set_text(core, servable.vectoriser)
    bags = {name: encoder for name, encoder in servable.encoders.items() if isinstance(encoder, Bag)}
    for bag in bags.values():
        core.add_encoder(_float32(bag.token_embeddings))
        for layer in bag.layers:
            _add_layer(core, layer)
    place = {name: i for i, name in enumerate(bags)}
    labels = _add_candidates(core, servable.candidates, servable.scorers, place)
    if labels is not None:
        core.set_labels(labels)
    for scorer in servable.scorers:
        rows, own = _scorer_rows(scorer)
        core.add_scorer(place[scorer.vector], rows, _rows_by_position(labels, own))
    if isinstance(servable.fusion, Product):
        core.set_product()
    elif isinstance(servable.fusion, Mix):
        core.set_mix(servable.fusion.scorer_weights, servable.fusion.weight, servable.fusion.by_row)
    for step in servable.steps:
        if isinstance(step, GameLabels):
            core.set_label_game(_game(step.game), step.depth)
        elif isinstance(step, ReRanking):
            _set_re_ranking(core, step, servable, place)
    return core


def _set_re_ranking(core: Any, step: ReRanking, servable: Servable, place: dict[str, int]) -> None:
    core.set_re_ranking(step.depth)
    if (ranker := step.ranker) is not None:
        bag = servable.encoders[ranker.bag]
        assert isinstance(bag, SparseFeatures)
        parts = ranker.starts, ranker.features, ranker.weights, ranker.bias
        core.set_ranker(parts, bag.dim, bag.unit, place.get(ranker.vector, -1))
    if (tree := step.calibration) is not None:
        numbers = tree.columns, _as(tree.thresholds, np.float64), tree.left, tree.right
        core.set_calibration((*numbers, _float32(tree.chances), _float32(tree.label_counts)), tree.depth, tree.weight)


def _without_steps(servable: Servable) -> Servable:
    """The servable up to its fusion, without the encoders that only steps read."""
    only = servable.step_encoders.keys() - {scorer.vector for scorer in servable.scorers}
    kept = {name: encoder for name, encoder in servable.encoders.items() if name not in only}
    return replace(servable, encoders=kept, steps=[])


def strings_at(table: Sequence[str], ids: np.ndarray) -> list[str]:
    """The strings with these ids (m,) int64."""
    return table.at(ids) if isinstance(table, StringTable) else [table[i] for i in ids.tolist()]


def _is_known_ranker(ranker: SparseRanker | None, servable: Servable) -> bool:
    if ranker is None:
        return True
    vector = servable.encoders.get(ranker.vector)
    return isinstance(servable.encoders[ranker.bag], SparseFeatures) and (not ranker.vector or isinstance(vector, Bag))


def _is_known(servable: Servable) -> bool:
    bags = {name: encoder for name, encoder in servable.encoders.items() if isinstance(encoder, Bag)}
    layers = [layer for bag in bags.values() for layer in bag.layers]
    reads = [scorer.vector for scorer in servable.scorers]
    stage = servable.candidates.clusters if isinstance(servable.candidates, GameBeam) else servable.candidates
    if isinstance(stage, _READERS):
        reads.append(stage.vector)
    similar = isinstance(stage, _SIMILAR)
    return (
        (isinstance(servable.fusion, Sigmoid | Product) or (isinstance(servable.fusion, Mix) and similar))
        and [type(step) for step in servable.steps] in _STEPS
        and all(_is_known_ranker(step.ranker, servable) for step in servable.steps if isinstance(step, ReRanking))
        and isinstance(servable.vectoriser, TfidfVectoriser | SubwordVectoriser | SparseVectoriser)
        and isinstance(servable.candidates, _CANDIDATES)
        and all(isinstance(encoder, _ENCODERS) for encoder in servable.encoders.values())
        and all(isinstance(layer, _LAYERS) for layer in layers)
        and all(isinstance(scorer, _SCORERS) for scorer in servable.scorers)
        and all(name in bags for name in reads)
    )


def _add_layer(core: Any, layer: Layer) -> None:
    if isinstance(layer, Residual):
        core.add_residual(_float32(layer.weight), _float32(layer.bias))
    elif isinstance(layer, GatedBlock):
        core.add_gated(*map(_float32, (layer.weight, layer.bias, layer.block_gate, layer.skip_gate)))
    elif isinstance(layer, Unit):
        core.add_unit()
    else:
        core.add_relu()


def _add_candidates(
    core: Any, candidates: Candidates, scorers: Sequence[Scorer], place: dict[str, int]
) -> np.ndarray | None:
    """The label (L,) int32 at each position of the search; None where that is the position itself."""
    if isinstance(candidates, ClusterIndex | CentreIndex):
        for level in candidates.levels:
            core.add_level(place[candidates.vector], _parts(level.rows), level.offsets, level.beam)
        if isinstance(candidates, ClusterIndex):
            return candidates.labels
        per_label = int(np.bincount(candidates.labels).max())
        rows = _parts(candidates.centres)
        core.set_centres(place[candidates.vector], rows, candidates.labels, candidates.size, per_label)
        return None
    if isinstance(candidates, TokenIndex):
        index = candidates
        arrays = (index.offsets, index.labels, index.weights, index.always)
        core.set_index(*arrays, index.tokens, index.postings, index.shortlist)
        return None
    if isinstance(candidates, CentroidSearch):
        rows = _exact_parts(candidates.centres, np.zeros(len(candidates.labels), np.float32))
        core.set_centres(place[candidates.vector], rows, candidates.labels, candidates.size, 1)
        return None
    if isinstance(candidates, LearnedEdges):
        edges = candidates
        rows = _exact_parts(edges.weight, edges.bias)
        core.set_edges(place[edges.vector], rows, edges.scale, edges.beam, edges.labels, edges.edges, edges.size)
        return None
    if isinstance(candidates, GameBeam):
        core.set_cluster_game(_game(candidates.game))
        candidates = candidates.clusters
    if isinstance(candidates, ClusterBeam):
        rows = _exact_parts(candidates.weight, candidates.bias)
        core.add_level(place[candidates.vector], rows, _as(candidates.offsets, np.int64), candidates.beam)
        return _as(candidates.labels, np.int32)
    return _scorer_rows(scorers[0])[1]


def _scorer_rows(scorer: Scorer) -> tuple[tuple[Any, ...], np.ndarray | None]:
    """The rows as the core takes them, and the label of each; None where that is its number."""
    if isinstance(scorer, RowClassifier):
        return _parts(scorer.rows), scorer.labels if len(scorer.labels) else None
    assert isinstance(scorer, Classifier)
    return _exact_parts(scorer.weight, scorer.bias), None


def _rows_by_position(labels: np.ndarray | None, own: np.ndarray | None) -> np.ndarray:
    """The row (L,) int32 that scores the label at each position; empty where that is the position itself."""
    if own is None:
        return _NO_ROWS if labels is None else labels
    if labels is not None and np.array_equal(own, labels):
        return _NO_ROWS
    row_of_label = np.argsort(own).astype(np.int32)
    return row_of_label if labels is None else row_of_label[labels]


def _game(game: Game) -> tuple[Any, ...]:
    return game.graph.offsets, game.graph.targets, game.graph.weights, game.share, game.kept


def _parts(rows: Rows) -> tuple[Any, ...]:
    return rows.values.view(np.uint8), rows.value_bytes, rows.scale, rows.bias


def _exact_parts(weight: np.ndarray, bias: np.ndarray) -> tuple[Any, ...]:
    exact, bias = _float32(weight), _float32(bias)
    return exact.view(np.uint8), 4, bias, bias  # the scale of exact rows is not read


def _float32(array: np.ndarray) -> np.ndarray:
    return _as(array, np.float32)


def _as(array: np.ndarray, kind: type) -> np.ndarray:
    """Of this type and in one piece; the array itself where it is already."""
    return np.ascontiguousarray(array, dtype=kind)


def _by_row(pairs: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """(row, label) pairs as where each row's labels start (n + 1,), and the labels, ascending in a row."""
    order = np.lexsort((pairs[:, 1], pairs[:, 0]))
    return np.searchsorted(pairs[order, 0], np.arange(n + 1)), pairs[order, 1].astype(np.int32)


def _n_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
