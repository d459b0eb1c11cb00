"""A blend of several models: evidence about each label from members, label texts and neighbours, and a stacker.

Every source lists its best labels; together they are a document's candidates. The evidence of all sources about a
candidate is turned into a logit by a stacker, and into a probability by isotonic calibration. The same code makes the
evidence that a stacker is trained on. Knows nothing about how members were trained.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, Any, NamedTuple, Protocol, TypeAlias, final

import numpy as np
import scipy.sparse as sp

from xclearn.config import Range, Share
from xclearn.data.dataset import NO_PAIRS, Documents, n_documents, take_documents
from xclearn.data.topk import TopK
from xclearn.errors import ConfigError, ModelError
from xclearn.inference.components import component
from xclearn.inference.declared import Inner, Part, Scope, SizeOf, Tensor, check, check_types, ids, offsets
from xclearn.inference.one_form import one_form
from xclearn.inference.operating_points import BANDS, OperatingPoints
from xclearn.inference.servable import Ensemble, Servable, check_k
from xclearn.inference.sparse import unit_rows
from xclearn.inference.stackers import Isotonic, LinearStacker, MeanStacker, TreeStacker
from xclearn.kernels.memory import DocumentLabels, RowIndex
from xclearn.text import Vectoriser, same_vectoriser
from xclearn.text.documents import require

ROWS_AT_ONCE = 256  # documents per block
_OF_A_LIST = ("score", "gap", "rank")  # evidence of a list: the label's score, its gap to the best, 1 / rank
COLUMNS = len(_OF_A_LIST)  # columns of each list in the evidence
_BY_LABEL = {"rows": "labels", "columns": "features"}
_SMALLEST = 1e-7  # scores are clipped to this distance from 0 and 1 before taking the logit
_LEAST = 1e-12  # floor of probabilities when labels are ordered


AnyStacker: TypeAlias = LinearStacker | TreeStacker | MeanStacker


class Answers(Protocol):
    """A servable in any of its forms."""

    @property
    def vectoriser(self) -> Vectoriser: ...

    def rank(self, features: Any, k: int, exclude: np.ndarray = ...) -> TopK: ...


class Evidence(NamedTuple):
    """Evidence about m pairs of a document and a label, sorted by document and label."""

    rows: np.ndarray  # (m,) int64
    labels: np.ndarray  # (m,) int64
    values: np.ndarray  # (m, F) float32; NaN if a source has no value


@final
@component("sparse_rows.v1")
@dataclass(frozen=True)
class CsrRows(Part):
    """A sparse matrix stored as tensors."""

    starts: Annotated[np.ndarray, offsets("rows", to="entries")]
    columns: Annotated[np.ndarray, ids("entries", below="columns", empty=True)]
    values: Annotated[np.ndarray, Tensor("entries", ("float32",), empty=True)]
    width: Annotated[int, SizeOf("columns")]

    @classmethod
    def of(cls, matrix: sp.csr_matrix) -> CsrRows:
        rows = sp.csr_matrix(matrix, dtype=np.float32)
        rows.sort_indices()
        return cls(rows.indptr.astype(np.int64), rows.indices.astype(np.int32), rows.data, int(rows.shape[1]))

    @cached_property
    def matrix(self) -> sp.csr_matrix:
        """(n, width)."""
        shape = (len(self.starts) - 1, self.width)
        return sp.csr_matrix((self.values, self.columns, self.starts), shape=shape)

    @cached_property
    def index(self) -> RowIndex:
        """An index that finds the nearest rows."""
        return RowIndex.of(self.matrix)


@final
@component("memory.v1")
@dataclass(frozen=True)
class Memory(Part):
    """Training documents and their labels: a label's score is the share of the nearest documents that have it."""

    documents: Annotated[CsrRows, Inner({"rows": "documents", "columns": "features"})]  # of length one
    labels: Annotated[CsrRows, Inner({"rows": "documents", "columns": "labels"})]
    size: Annotated[int, Range(1)]  # nearest documents that vote
    power: Annotated[float, Range(0, open_low=True)]  # a document's vote is its cosine to this power

    def votes(self, rows: sp.csr_matrix) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """For documents (n, V): row · L + label of each pair, ascending; its share of the votes; its nearest cosine."""
        ids, cosines = self.documents.index.nearest(rows, self.size)
        votes = self._labels.votes(ids, cosines, self.power)
        row = np.repeat(np.arange(rows.shape[0], dtype=np.int64), np.diff(votes.starts))
        return row * self.labels.width + votes.labels, votes.shares, votes.nearest

    @cached_property
    def _labels(self) -> DocumentLabels:
        return DocumentLabels(self.labels.matrix)


@final
@component("blend_sources.v1")
@dataclass(frozen=True)
class Sources(Part):
    """All sources of evidence about the labels of a document."""

    vectoriser: Vectoriser  # of the sources that are not members
    members: Mapping[str, Servable | Ensemble]
    label_texts: Annotated[CsrRows | None, Inner(_BY_LABEL, empty=True)]  # of length one
    centroids: Annotated[CsrRows | None, Inner(_BY_LABEL, empty=True)]  # mean of a label's documents, of length one
    memory: Annotated[Memory | None, Inner({"features": "features", "labels": "labels"}, empty=True)]
    counts: Annotated[np.ndarray, Tensor("labels", ("float32",), least=0)]  # training documents of each label
    depth: Annotated[int, Range(1)]  # labels listed by each source
    everywhere: bool = False  # label texts and memory score every candidate, not only those they list

    @property
    def n_labels(self) -> int:
        return len(self.counts)

    @property
    def lists(self) -> list[str]:
        """The sources that list labels."""
        of_parts: dict[str, CsrRows | Memory | None] = {"label text": self.label_texts, "memory": self.memory}
        return [*self.members, *(name for name, part in of_parts.items() if part is not None)]

    @property
    def value_names(self) -> list[str]:
        """The names of the evidence columns."""
        of_lists = [f"{name}: {value}" for name in self.lists for value in _OF_A_LIST]
        centroids = ["centroid: cosine"] if self.centroids is not None else []
        memory = ["memory: nearest"] if self.memory is not None else []
        return [*of_lists, *centroids, *memory, "sources", "label: documents", "document: words"]

    def evidence(self, documents: Documents, exclude: np.ndarray = NO_PAIRS, depth: int | None = None) -> Evidence:
        """The evidence about every label that a source lists for a document."""
        return self.weigh(documents, self.member_lists(documents, exclude, depth), exclude, depth)

    def member_lists(self, documents: Documents, exclude: np.ndarray, depth: int | None = None) -> list[TopK]:
        """The list of each member. Members with the same vectoriser share features."""
        features: dict[int, Any] = {}
        found = []
        for member, reader in zip(self.answering, self._readers, strict=True):
            if reader not in features:
                features[reader] = member.vectoriser.transform(documents)
            found.append(member.rank(features[reader], min(depth or self.depth, self.n_labels), exclude))
        return found

    def weigh(
        self, documents: Documents, found: Sequence[TopK], exclude: np.ndarray, depth: int | None = None
    ) -> Evidence:
        """The evidence, given the lists of the members."""
        n = n_documents(documents)
        size = min(depth or self.depth, self.n_labels)
        features = sp.csr_matrix(self.vectoriser.transform(documents), dtype=np.float32)
        rows = unit_rows(features)
        lists = [TopK(part.ids, logits_of(part)) for part in found]
        if self.label_texts is not None:
            lists.append(self._nearest_texts(rows, size))
        votes = None if self.memory is None else self.memory.votes(rows)
        if votes is not None:
            lists.append(_best_votes(votes[0], votes[1], n, self.n_labels, size))
        keys = _candidates(lists, n, self.n_labels, exclude)
        row, label = keys // self.n_labels, keys % self.n_labels
        columns = [column for part in lists for column in _of_list(part, keys, self.n_labels)]
        if self.everywhere:
            self._fill_in(columns, lists, rows, votes, keys)
        named = np.sum([columns[i] > 0 for i in range(2, len(columns), COLUMNS)], axis=0)
        if self.centroids is not None:
            columns.append(_cosines(rows, self.centroids.matrix, row, label))
        if votes is not None:
            columns.append(_looked_up(votes[0], votes[2], keys))
        columns += [named, np.round(2 * np.log2(1 + self.counts))[label], np.diff(features.indptr)[row]]
        return Evidence(row, label, np.column_stack(columns).astype(np.float32))

    def _fill_in(
        self, columns: list[np.ndarray], lists: Sequence[TopK], rows: sp.csr_matrix, votes: Any, keys: np.ndarray
    ) -> None:
        """Add the values of label texts and memory for candidates that they do not list."""
        row, label = keys // self.n_labels, keys % self.n_labels
        for place in range(len(self.members), len(lists)):
            texts = self.label_texts if place == len(self.members) else None
            own = _looked_up(votes[0], votes[1], keys) if texts is None else _cosines(rows, texts.matrix, row, label)
            score = np.where(columns[COLUMNS * place + 2] > 0, columns[COLUMNS * place], own)
            best = lists[place].scores[:, 0][row]  # −∞ if the source lists nothing
            columns[COLUMNS * place : COLUMNS * place + 2] = score, score - np.maximum(best, 0.0)

    def check(self, *, values: bool = True) -> None:
        """Refuse parts that are not as declared or do not fit each other: a model folder is untrusted input."""
        check(self, Scope({"features": self.vectoriser.n_features}, {}, values))
        if not self.members:
            raise ModelError("the blend has no members")
        for name, member in self.members.items():
            member.check(values=values)
            if member.n_labels != self.n_labels:
                got = (member.n_labels, self.n_labels)
                raise ModelError("members of the blend differ in labels", where=name, got=got)

    def answered_by(self, members: Sequence[Answers]) -> Sources:
        """A copy whose members are replaced by these forms."""
        other = replace(self)
        other.__dict__["answering"] = list(members)
        return other

    @cached_property
    def answering(self) -> list[Answers]:
        """Each member in its fastest form on a CPU."""
        return [one_form(member) for member in self.members.values()]

    @cached_property
    def _readers(self) -> list[int]:
        """For each member, the first member with the same vectoriser."""
        own = [member.vectoriser for member in self.answering]
        return [next(j for j, other in enumerate(own) if same_vectoriser(one, other)) for one in own]

    def _nearest_texts(self, rows: sp.csr_matrix, size: int) -> TopK:
        assert self.label_texts is not None
        ids, cosines = self.label_texts.index.nearest(rows, size)
        return TopK(ids, cosines.astype(np.float64))


@final
@component("blend.v1")
@dataclass(frozen=True)
class BlendServable(Part):
    """Predicts the probability of each candidate from all evidence."""

    sources: Sources
    stacker: AnyStacker
    calibration: Isotonic
    points: OperatingPoints | None = None  # thresholds, if there were enough documents to learn them
    unseen: Isotonic | None = None  # replaces `calibration` for labels without training documents
    bands: Mapping[str, OperatingPoints] = field(default_factory=dict)  # by the minimum frequency of a band's labels
    inverse_propensity: Annotated[np.ndarray | None, Tensor("labels", ("float32",), least=0)] = None
    tail: Share = 0.0  # labels are ordered by probability · inverse propensity to this power

    @property
    def n_labels(self) -> int:
        return self.sources.n_labels

    @property
    def vectoriser(self) -> Vectoriser:
        return self.sources.vectoriser

    @property
    def members(self) -> Sequence[Servable | Ensemble]:
        return list(self.sources.members.values())

    @property
    def widest(self) -> int:
        """The maximum number of candidates of a document."""
        return min(self.n_labels, self.sources.depth * len(self.sources.lists))

    def check(self, *, values: bool = True) -> None:
        """Refuse parts that are not as declared or do not fit each other: a model folder is untrusted input."""
        check_types(self)
        self.sources.check(values=values)
        check(self.stacker, Scope({"values": len(self.sources.value_names)}, {}, values))
        for part in (self.calibration, self.unseen, self.points, *self.bands.values()):
            if part is not None:
                check(part, Scope({}, {}, values))
        if not set(self.bands) <= set(map(str, BANDS)):
            raise ModelError("unknown frequency band", got=", ".join(self.bands), allowed=", ".join(map(str, BANDS)))
        if not 0 <= self.tail <= 1:
            raise ModelError("the tail exponent is out of range", got=self.tail, allowed="0 to 1")
        weights = self.inverse_propensity
        if weights is not None and (
            weights.shape != (self.n_labels,) or not (np.isfinite(weights) & (weights >= 1)).all()
        ):
            raise ModelError("inverse propensities do not fit the labels", got=weights.shape, allowed="1 or more each")

    def predict(
        self, documents: Documents, k: int, exclude: np.ndarray = NO_PAIRS, tail: float | np.ndarray | None = None
    ) -> TopK:
        """Like `Servable.predict`; labels that no source lists are not predicted.

        `tail` replaces the model's own exponent, for all documents or (n,) for each. It changes the order of labels but
        not their scores.
        """
        check_k(k)
        given = require(documents, self.vectoriser.reads)
        powers = np.broadcast_to(self.checked_tail(tail), (n_documents(given),))
        starts = range(0, len(powers), ROWS_AT_ONCE)
        blocks = zip(blocks_of(given, exclude), starts, strict=True)
        found = [self._block(*block, k, powers[start : start + ROWS_AT_ONCE]) for block, start in blocks]
        width = min(k, self.n_labels)
        empty = TopK(np.empty((0, width), np.int64), np.empty((0, width), np.float32))
        return TopK(*(np.concatenate(parts) for parts in zip(empty, *found, strict=True)))

    def checked_tail(self, tail: float | np.ndarray | None) -> float | np.ndarray:
        """The requested tail exponent, or the model's own."""
        if tail is None:
            return self.tail
        if not ((np.asarray(tail) >= 0) & (np.asarray(tail) <= 1)).all():  # NaN is in no range
            raise ConfigError("out of range", where="tail", got=tail, allowed="0 to 1")
        if self.inverse_propensity is None and np.any(tail):
            todo = "Train it again with this version, or leave tail out."
            raise ConfigError("the model has no propensities", where="tail", got=tail, todo=todo)
        return tail

    def probabilities(self, logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """The probability that each of m pairs is correct, given the stacker's logit and the label."""
        found = self.calibration(logits)
        if self.unseen is None:
            return found
        return np.where(self.sources.counts[labels] > 0, found, self.unseen(logits))

    def _block(self, documents: Documents, exclude: np.ndarray, k: int, tail: np.ndarray) -> TopK:
        """Predict one block; `tail` (n,) is the exponent of each document."""
        evidence = self.sources.evidence(documents, exclude)
        logits = self.stacker(evidence.values)
        scores = self.probabilities(logits, evidence.labels)
        weights = None if self.inverse_propensity is None else self.inverse_propensity[evidence.labels]
        order = in_order(evidence.rows, evidence.labels, logits, scores, weights, tail[evidence.rows])
        places = first_places(evidence.rows, order, n_documents(documents), min(k, self.n_labels))
        if not len(order):
            return TopK(places, np.full(places.shape, -np.inf, dtype=np.float32))
        missing = (places < 0) | np.isnan(scores[places])  # NaN can come from an unverified stacker
        ids = np.where(missing, -1, evidence.labels[places])
        best = np.where(missing, -np.inf, scores[places])
        return TopK(ids, best.astype(np.float32))


AnyServable: TypeAlias = Servable | Ensemble | BlendServable  # the prediction part of a model


def servables_of(servable: AnyServable) -> list[Servable]:
    """The servables of a model, in order."""
    if isinstance(servable, Servable):
        return [servable]
    return [part for member in servable.members for part in servables_of(member)]


def blocks_of(documents: Documents, exclude: np.ndarray) -> Iterator[tuple[Documents, np.ndarray]]:
    """Blocks of documents, each with its excluded pairs."""
    total = n_documents(documents)
    for begin in range(0, total, ROWS_AT_ONCE):
        rows = np.arange(begin, min(begin + ROWS_AT_ONCE, total))
        here = exclude[(exclude[:, 0] >= begin) & (exclude[:, 0] < begin + len(rows))] - [begin, 0]
        yield take_documents(documents, rows), here


def best_pairs(rows: np.ndarray, labels: np.ndarray, scores: np.ndarray, n: int, k: int) -> TopK:
    """The k best labels of each of n documents, from pairs (m,) with ascending rows."""
    places = first_places(rows, np.lexsort((labels, -scores, rows)), n, k)
    if not len(rows):
        return TopK(places, np.full(places.shape, -np.inf))
    return TopK(np.where(places < 0, -1, labels[places]), np.where(places < 0, -np.inf, scores[places]))


def in_order(
    rows: np.ndarray,
    labels: np.ndarray,
    logits: np.ndarray,
    scores: np.ndarray,
    weights: np.ndarray | None = None,
    tail: np.ndarray | float = 0.0,
) -> np.ndarray:
    """Sort pairs (m,) by document, then by score · weight^`tail`, ties by the higher logit."""
    worth = np.log(np.maximum(scores, _LEAST))
    if weights is not None:
        worth = worth + tail * np.log(weights)
    return np.lexsort((labels, -logits, np.where(np.isnan(worth), np.inf, -worth), rows))


def first_places(rows: np.ndarray, order: np.ndarray, n: int, k: int) -> np.ndarray:
    """The first k pairs (n, k) of each of n documents in this order of pairs (m,), padded with −1.

    `rows` (m,) ascend, and `order` keeps a document's pairs together.
    """
    starts = np.searchsorted(rows, np.arange(n + 1))
    places = starts[:-1, None] + np.arange(k)  # (n, k)
    there = places < starts[1:, None]
    if not len(order):
        return np.full((n, k), -1, dtype=np.int64)
    return np.where(there, order[np.minimum(places, len(order) - 1)], -1)


def logits_of(found: TopK) -> np.ndarray:
    """The logits of a member's scores, read as probabilities; −∞ for missing labels."""
    scores = np.clip(found.scores.astype(np.float64), _SMALLEST, 1 - _SMALLEST)
    return np.where(found.ids < 0, -np.inf, np.log(scores / (1 - scores)))


def _candidates(lists: Sequence[TopK], n: int, n_labels: int, exclude: np.ndarray) -> np.ndarray:
    """row · L + label of every listed label, ascending, without excluded pairs."""
    keys = [(np.arange(n)[:, None] * n_labels + part.ids)[part.ids >= 0] for part in lists]
    every = np.unique(np.concatenate(keys)) if keys else np.empty(0, dtype=np.int64)
    return np.setdiff1d(every, exclude[:, 0] * n_labels + exclude[:, 1], assume_unique=False)


def _of_list(part: TopK, keys: np.ndarray, n_labels: int) -> list[np.ndarray]:
    """Score, gap to the row's best and 1 / rank of each pair; NaN, NaN and 0 if the list does not contain it."""
    n, width = part.ids.shape
    flat = np.where(part.ids < 0, -1, np.arange(n)[:, None] * n_labels + part.ids).ravel()
    order = np.argsort(flat, kind="stable")
    place = np.minimum(np.searchsorted(flat, keys, sorter=order), max(0, len(order) - 1))
    position = order[place]
    hit = flat[position] == keys
    score = np.where(hit, part.scores.ravel()[position], np.nan)
    best = part.scores[:, 0][keys // n_labels]
    return [score, score - best, np.where(hit, 1 / (1 + position % width), 0.0)]


def _looked_up(known: np.ndarray, values: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """The values of these keys, 0 if missing; `known` is ascending."""
    if not len(known):
        return np.zeros(len(keys))
    place = np.minimum(np.searchsorted(known, keys), len(known) - 1)
    return np.where(known[place] == keys, values[place], 0.0)


def _best_votes(keys: np.ndarray, share: np.ndarray, n: int, n_labels: int, k: int) -> TopK:
    return best_pairs(keys // n_labels, keys % n_labels, share, n, k)


def _cosines(rows: sp.csr_matrix, labels: sp.csr_matrix, row: np.ndarray, label: np.ndarray) -> np.ndarray:
    """The product of each pair's two rows."""
    return np.asarray(rows[row].multiply(labels[label]).sum(axis=1)).ravel()
