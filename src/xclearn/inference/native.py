"""The native predictor of a servable: from texts to the best labels in one call, without the GIL.

It supports bag encoders with all their candidate stages and fusions, linear scorers, a label graph followed by
re-ranking, label trees, sparse classifiers and label texts. Other steps, or steps in another order, run in NumPy. For
anything else (sequence encoders, graphs inside a scorer, dense features) `native_predictor` returns None. The servable
is its oracle.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, final

import numpy as np
import scipy.sparse as sp

from xclearn.data.dataset import NO_PAIRS, Documents
from xclearn.data.topk import TopK
from xclearn.inference.forms import Core, NoNativeForm, native_form
from xclearn.inference.native_sparse import is_known_sparse, set_text, sparse_core
from xclearn.inference.servable import Ensemble, Servable, check_k, in_blocks
from xclearn.inference.tensors import StringTable
from xclearn.kernels import _native
from xclearn.text.documents import TEXTS, require
from xclearn.text.vectorisers import SPARSE_ROWS, TfidfVectoriser

_AT_ONCE = 4096  # documents re-ranked per block
_NO_ROWS = np.empty(0, dtype=np.int32)
_NO_PAIRS = (np.empty(0, dtype=np.int64), _NO_ROWS)


@final
class NativePredictor:
    """Predicts the same as its servable."""

    def __init__(self, core: Any, servable: Servable, n_threads: int | None) -> None:
        self._core, self._n_threads = core, n_threads
        self.vectoriser = servable.vectoriser
        self.n_labels = servable.n_labels

    def predict(self, documents: Documents, k: int, exclude: np.ndarray = NO_PAIRS) -> TopK:
        """Like `Servable.predict`; documents are divided among threads."""
        if not isinstance(self.vectoriser, TfidfVectoriser):
            return self.rank(self.vectoriser.transform(documents), k, exclude)
        texts = self.vectoriser.preparation.all(require(documents, TEXTS))
        found, excluded, threads = self._prepare(len(texts), k, exclude)
        self._core.predict_texts(texts, *excluded, threads, *found)
        return found

    def rank(self, features: sp.csr_matrix, k: int, exclude: np.ndarray = NO_PAIRS) -> TopK:
        """As `Servable.rank`."""
        found, excluded, threads = self._prepare(features.shape[0], k, exclude)
        indptr = features.indptr.astype(np.int64)
        indices = features.indices.astype(np.int32)
        self._core.predict_rows(indptr, indices, features.data, *excluded, threads, *found)
        return found

    def _prepare(self, n: int, k: int, exclude: np.ndarray) -> tuple[TopK, tuple[np.ndarray, np.ndarray], int]:
        """Output arrays, excluded pairs, and the number of threads."""
        check_k(k)
        shape = (n, min(k, self.n_labels))
        excluded = _by_row(exclude, n) if len(exclude) else _NO_PAIRS
        threads = 1 if n < 2 else self._n_threads or _n_cores()
        return TopK(np.empty(shape, dtype=np.int64), np.empty(shape, dtype=np.float32)), excluded, threads

    def transform_one(self, text: str) -> tuple[np.ndarray, np.ndarray]:
        """Bit-equal to the vectoriser's `transform_one`."""
        if not isinstance(self.vectoriser, TfidfVectoriser):
            return self.vectoriser.transform_one(text)
        ids, weights = self._core.bag(self.vectoriser.preparation(text))
        return np.array(ids, dtype=np.int32), np.array(weights, dtype=np.float32)


@final
class NativeThenSteps:
    """A native predictor up to fusion, followed by the servable's steps in NumPy."""

    def __init__(self, first: NativePredictor, servable: Servable) -> None:
        self._first, self._servable = first, servable
        self.vectoriser = servable.vectoriser
        self.n_labels = servable.n_labels
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


Native = NativePredictor | NativeThenSteps | Ensemble


def native_predictor(servable: Servable | Ensemble, n_threads: int | None = None) -> Native | None:
    """The native form of a servable, or None. By default one thread per core."""
    if isinstance(servable, Ensemble):
        members: list[Any] = [native_predictor(member, n_threads) for member in servable.members]
        return None if None in members else Ensemble(members)
    try:
        core = sparse_core(servable) if is_known_sparse(servable) else _core(servable)
        return NativePredictor(core, servable, n_threads)
    except NoNativeForm:
        pass
    first = native_predictor(_without_steps(servable), n_threads) if servable.steps else None
    return NativeThenSteps(first, servable) if isinstance(first, NativePredictor) else None


def _core(servable: Servable) -> Any:
    """The native core of a servable with dense vectors."""
    if servable.vectoriser.gives != SPARSE_ROWS or len(servable.steps) > len({type(step) for step in servable.steps}):
        raise NoNativeForm
    native = _native.Predictor(servable.n_labels)
    made = [name for name, encoder in servable.encoders.items() if native_form(encoder, native)]
    scorers = [native_form(scorer) for scorer in servable.scorers]
    core = Core(native, servable, {name: i for i, name in enumerate(made)}, scorers[0][1])
    labels = native_form(servable.candidates, core)
    if labels is not None:
        native.set_labels(labels)
    for scorer, (rows, own) in zip(servable.scorers, scorers, strict=True):
        native.add_scorer(core.place_of(scorer.vector), rows, _rows_by_position(labels, own))
    for part in (servable.fusion, *servable.steps):
        native_form(part, core)
    set_text(native, servable.vectoriser)
    return native


def _without_steps(servable: Servable) -> Servable:
    """The servable up to fusion, without encoders that only steps read."""
    only = servable.step_encoders.keys() - {scorer.vector for scorer in servable.scorers}
    kept = {name: encoder for name, encoder in servable.encoders.items() if name not in only}
    return replace(servable, encoders=kept, steps=[])


def strings_at(table: Sequence[str], ids: np.ndarray) -> list[str]:
    """The strings with these ids (m,) int64."""
    return table.at(ids) if isinstance(table, StringTable) else [table[i] for i in ids.tolist()]


def _rows_by_position(labels: np.ndarray | None, own: np.ndarray | None) -> np.ndarray:
    """The row (L,) int32 that scores the label at each search position; empty if they are equal."""
    if own is None:
        return _NO_ROWS if labels is None else labels
    if labels is not None and np.array_equal(own, labels):
        return _NO_ROWS
    row_of_label = np.argsort(own).astype(np.int32)
    return row_of_label if labels is None else row_of_label[labels]


def _by_row(pairs: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """(row, label) pairs in CSR form: offsets (n + 1,), and labels ascending within a row."""
    order = np.lexsort((pairs[:, 1], pairs[:, 0]))
    return np.searchsorted(pairs[order, 0], np.arange(n + 1)), pairs[order, 1].astype(np.int32)


def _n_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
