"""Exports a model for fast prediction: rows in fewer bits and a label index, chosen by measuring on a hold-out.

A form is a precision and a breadth of search. Each form is an ordinary model, measured by its loss in metrics against
the original and by its time for one text. Test data is never used. Knows nothing about files.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, final

import numpy as np
import scipy.sparse as sp

from xclearn.data import hold_out
from xclearn.data.dataset import Dataset, Documents, Split, kind_of, take_documents
from xclearn.data.splits import pairs_matrix
from xclearn.data.topk import TopK
from xclearn.errors import ConfigError, DataError, ModelError
from xclearn.inference.blend import AnyServable, BlendServable
from xclearn.inference.components import AllLabels, Classifier, ClusterBeam
from xclearn.inference.evaluation import label_weights
from xclearn.inference.exported import PRECISIONS, PackedClassifier, PackedRows, TokenFeatures, TokenIndex
from xclearn.inference.folder import Model
from xclearn.inference.index import (
    CentreTree,
    Nodes,
    centre_index,
    centre_tree,
    cluster_index,
    levels_above,
    n_groups,
    token_index,
)
from xclearn.inference.predictor import Predictor
from xclearn.inference.servable import Ensemble, Servable
from xclearn.inference.shortlists import CentroidSearch
from xclearn.metrics import evaluate_predictions
from xclearn.text.documents import DENSE

SHORTLISTS = (125, 250, 500, 1000, 2000)  # shortlist sizes for a model that scores all labels
BEAMS = (8, 16, 32, 64, 128)  # beam widths for a model with clusters
GROUPS = (16, 32, 64, 128, 256, 512)  # searched groups for a model with label centroids
LIMITS = {"P@1": 0.3, "PSP@5": 0.5}  # points that a form may lose before it is rejected
_USUAL_LOSS = 0.1  # default limit, in points of P@1
_USUAL_OVERLAP = (
    75.0  # default minimum overlap of the best ten, in percent: an index has seen train, so its loss there looks small
)
_PER_POSTING = 4  # shortlist labels per posting read
_TOKENS = "tokens"  # the vector that the token index reads
_DEPTH = 10  # labels compared with the original's
_SAMPLE = 10_000  # documents whose exact predictions enter the index
_HELD_OUT = 5_000  # maximum documents to measure a form on
_TIMED, _WARM_UP = 300, 20  # texts predicted one by one


class Form(NamedTuple):
    """A precision and breadth of an exported model."""

    precision: str
    breadth: int  # shortlist size, beam width or searched groups; 0: everything

    def __str__(self) -> str:
        return f"{self.precision}, {f'breadth {self.breadth}' if self.breadth else 'every label'}"


@final
@dataclass(frozen=True)
class Measured:
    """Measurements of a form on the hold-out."""

    form: Form
    values: dict[str, float]  # P@1, P@5, PSP@5 in percent
    lost: dict[str, float]  # points lost against the original
    overlap: float  # percent of the original's best ten that it also predicts
    p50_us: float  # one text on one core, from text to label names
    p99_us: float


@final
@dataclass(frozen=True)
class Choice:
    """The requested form; without limits, the fastest int8 form that loses nearly nothing."""

    precision: str | None = None  # None: int8, or all precisions if a limit is given
    breadth: int | None = None  # None: try several
    target_p99_us: float | None = None  # the most accurate form within this latency
    max_loss: float | None = None  # the fastest form that loses at most this many points of P@1

    def forms(self, servable: AnyServable) -> list[Form]:
        """The forms to measure."""
        if self.precision not in (None, *PRECISIONS):
            raise ConfigError("unknown precision", got=self.precision, allowed=", ".join(PRECISIONS))
        limited = self.target_p99_us is not None or self.max_loss is not None
        precisions = (self.precision,) if self.precision else PRECISIONS if limited else ("int8",)
        breadths = _breadths(servable)
        if self.breadth is not None and not _fits(self.breadth, breadths):
            allowed = "0 (every label)" if breadths == [0] else f"{min(breadths)} or more"
            raise ConfigError("the model cannot be searched with this breadth", got=self.breadth, allowed=allowed)
        chosen = breadths if self.breadth is None else [self.breadth]
        return [Form(precision, breadth) for precision in precisions for breadth in chosen]

    def pick(self, points: Sequence[Measured]) -> Measured:
        """The best form for the request; if all lose too much, the one that loses least."""
        if self.target_p99_us is not None:
            fast = [point for point in points if point.p99_us <= self.target_p99_us]
            if not fast:
                best = min(point.p99_us for point in points)
                raise ConfigError("no form is that fast", got=self.target_p99_us, allowed=f"{best:.0f} µs or more")
            return max(fast, key=lambda point: (round(point.values["P@1"], 2), point.overlap))
        most, least = (_USUAL_LOSS, _USUAL_OVERLAP) if self.max_loss is None else (self.max_loss, 0.0)
        near = [p for p in points if p.lost["P@1"] <= most and p.overlap >= least and _too_much(p) is None]
        if near:
            return min(near, key=lambda point: point.p50_us)
        return min(points, key=lambda point: (round(point.lost["P@1"], 2), point.p50_us))


@final
class Exporter:
    """Makes forms of a model; an index, if needed, is built from the documents of `data`."""

    def __init__(self, model: Model, data: Dataset | None) -> None:
        self.model, self.data = model, data

    def export(self, form: Form) -> Model:
        """The model in this form."""
        made = [self._export(member, number, form) for number, member in enumerate(_members(self.model.servable))]
        servable = Ensemble(made) if isinstance(self.model.servable, Ensemble) else made[0]
        return replace(self.model, servable=servable, about=self.model.about | {"export": form._asdict()})

    def _export(self, servable: Servable, number: int, form: Form) -> Servable:
        labels = np.empty(0, np.int32)
        encoders = servable.encoders
        candidates = servable.candidates
        if isinstance(candidates, ClusterBeam):
            labels = candidates.labels.astype(np.int32)
            candidates = cluster_index(candidates, self._levels[number], form.precision, form.breadth)
        elif candidates.beam_width:
            candidates = candidates.with_beam(form.breadth)
        elif isinstance(candidates, CentroidSearch) and form.breadth:
            candidates = centre_index(candidates, self._centre_trees[number], form.precision, form.breadth)
        elif form.breadth:
            encoders = {**encoders, _TOKENS: TokenFeatures(servable.vectoriser.n_features)}
            postings = max(1, min(form.breadth // _PER_POSTING, self._token_index.postings))
            candidates = replace(self._token_index, shortlist=form.breadth, postings=postings)
        scorers = [_rows(scorer, labels, form.precision) for scorer in _classifiers(servable)]
        return replace(servable, encoders=encoders, candidates=candidates, scorers=scorers)

    @cached_property
    def _token_index(self) -> TokenIndex:
        return token_index(*self._sample, _TOKENS)

    @cached_property
    def _levels(self) -> list[list[Nodes]]:
        """The levels above the clusters of each member."""
        features, wanted = self._sample
        members = [(member.encoders, member.candidates) for member in _members(self.model.servable)]
        return [
            levels_above(candidates, encoders[candidates.vector].encode(features), wanted)
            for encoders, candidates in members
            if isinstance(candidates, ClusterBeam)
        ]

    @cached_property
    def _centre_trees(self) -> list[CentreTree]:
        """The centroid tree of each member."""
        stages = [member.candidates for member in _members(self.model.servable)]
        return [centre_tree(stage.centres) for stage in stages if isinstance(stage, CentroidSearch)]

    @cached_property
    def _sample(self) -> tuple[sp.csr_matrix, sp.csr_matrix]:
        """Training documents and label texts as features (n, V), and the labels (n, L) to be found for each.

        These are a document's own labels, for some documents also the model's predictions, and for a text its label.
        """
        if self.data is None:
            raise ConfigError("an index needs documents", todo="Give --data.")
        train = self.data.train
        some = np.random.default_rng(0).permutation(len(train))[:_SAMPLE]
        best = Predictor(self.model).predict(take_documents(train.documents, some), _DEPTH).ids
        pairs = np.column_stack([np.repeat(some, best.shape[1]), best.ravel()])
        wanted = (train.relevance + pairs_matrix(pairs[pairs[:, 1] >= 0], train.relevance.shape)).tocsr()
        wanted.data[:] = 1
        vectoriser = self.model.servable.vectoriser
        texts = self.data.labels.texts
        features = vectoriser.transform(train.documents)
        if texts is None or kind_of(texts) != kind_of(train.documents):
            return features, wanted
        itself = sp.identity(len(texts), dtype=wanted.dtype, format="csr")
        return sp.vstack([features, vectoriser.transform(texts)]).tocsr(), sp.vstack([wanted, itself]).tocsr()


@final
@dataclass(frozen=True)
class HoldOut:
    """Documents to measure forms on, and the model's own predictions for them."""

    split: Split
    label_weights: np.ndarray  # (L,) inverse propensities
    answers: TopK
    values: dict[str, float]

    @classmethod
    def of(cls, model: Model, data: Dataset) -> HoldOut:
        if list(model.labels.names) != list(data.labels.names):
            got = (len(model.labels), data.n_labels)
            raise DataError("the labels of the model and the data differ", where=data.name, got=got)
        split, weights = held_out(data), label_weights(data)
        answers = Predictor(model).predict(split.documents, _DEPTH, split.filter_pairs)
        return cls(split, weights, answers, _values(answers, split, weights))

    def measure(self, form: Form, model: Model) -> Measured:
        """Metrics, agreement with the original, and latency of one text."""
        predictor, exact = Predictor(model), self.answers.ids
        found = predictor.predict(self.split.documents, _DEPTH, self.split.filter_pairs)
        values = _values(found, self.split, self.label_weights)
        same = (exact[:, :, None] == found.ids[:, None, :]).any(axis=2) & (exact >= 0)
        p50, p99 = np.percentile(_times_us(predictor, self.split), [50, 99])
        lost = {name: self.values[name] - value for name, value in values.items()}
        return Measured(form, values, lost, 100 * float(same.sum() / (exact >= 0).sum()), float(p50), float(p99))


def refuse_loss(point: Measured) -> None:
    """Raise if a form loses more than `LIMITS`."""
    if metric := _too_much(point):
        raise ModelError(
            f"{point.form} loses {point.lost[metric]:.2f} points of {metric} on the hold-out",
            allowed=f"at most {LIMITS[metric]}",
            todo="Use a greater breadth or more bits, or give --force.",
        )


def held_out(data: Dataset) -> Split:
    """The documents to measure forms on: the dev split, or else part of train, with half of each document's words.

    A model has memorised its training documents. With half of their words, its predictions resemble those for unseen
    documents, though they are better. An index built from train has seen these documents too, so its loss is
    underestimated; a dev split is the better measure.
    """
    held = data.dev if data.dev is not None else hold_out(data, most=_HELD_OUT)[1]
    if not len(held):
        raise DataError("too few documents to hold some out", where=data.name, got=len(data.train))
    part = held.take(np.arange(min(len(held), _HELD_OUT)))
    return part if data.dev is not None else replace(part, documents=_halved(part.documents))


def _halved(documents: Documents) -> Documents:
    """Every second word of each text, or every second feature."""
    if isinstance(documents, Sequence):
        return [" ".join(text.split()[::2]) for text in documents]
    kept: Any = documents.copy()
    features = kept.data if sp.issparse(kept) else kept.T
    features[1::2] = 0
    return kept


def _too_much(point: Measured) -> str | None:
    return next((metric for metric, limit in LIMITS.items() if point.lost[metric] > limit), None)


def _fits(breadth: int, breadths: list[int]) -> bool:
    """Whether a breadth is possible for a model with these usual breadths."""
    return breadth in breadths or (breadth > 0 and breadths != [0])


def _breadths(servable: AnyServable) -> list[int]:
    """The breadths to try for a model; raises if it cannot be exported."""
    members = _members(servable)
    for scorer in (scorer for member in members for scorer in member.scorers):
        if isinstance(scorer, PackedClassifier):
            raise ConfigError("the model is already exported", todo="Give the folder that `xc train -o` wrote.")
        if not isinstance(scorer, Classifier):
            got = type(scorer).__name__
            allowed = "a dense row for each label"
            raise ConfigError("a model with such classifiers needs no export", got=got, allowed=allowed)
    stages = [member.candidates for member in members]
    beams = [stage.beam_width for stage in stages]
    if all(beams):
        return sorted({*BEAMS, *beams})
    if all(isinstance(stage, CentroidSearch) for stage in stages):
        fewest = min(n_groups(len(stage.labels)) for stage in stages if isinstance(stage, CentroidSearch))
        return [0, *(groups for groups in GROUPS if 2 * groups <= fewest)]
    if not all(isinstance(stage, AllLabels) for stage in stages):
        raise ConfigError("the model's candidate stage cannot be exported")
    has_tokens = servable.vectoriser.reads != DENSE
    return [0, *(size for size in SHORTLISTS if has_tokens and 4 * size <= servable.n_labels)]


def _members(servable: AnyServable) -> Sequence[Servable]:
    if isinstance(servable, BlendServable):
        todo = "Serve its folder directly, or train a single algorithm (`xc train -a decaf`) and export that."
        raise ConfigError("a blend of several models cannot be exported", got="blend", todo=todo)
    return servable.members if isinstance(servable, Ensemble) else [servable]


def _classifiers(servable: Servable) -> list[Classifier]:
    return [scorer for scorer in servable.scorers if isinstance(scorer, Classifier)]


def _rows(scorer: Classifier, labels: np.ndarray, precision: str) -> PackedClassifier:
    order = labels if len(labels) else slice(None)
    return PackedClassifier(scorer.vector, PackedRows.of(scorer.weight[order], scorer.bias[order], precision), labels)


def _values(found: TopK, split: Split, weights: np.ndarray) -> dict[str, float]:
    pairs = split.filter_pairs
    report = evaluate_predictions(found, split.relevance, weights, filter_pairs=pairs, ks=(1, 5), recall_ks=(_DEPTH,))
    return {name: report.values[name] for name in ("P@1", "P@5", "PSP@5")}


def _times_us(predictor: Predictor, split: Split) -> list[float]:
    """Latencies of single texts, from text to label names."""
    asked = [take_documents(split.documents, np.array([row])) for row in range(min(len(split), _TIMED))]
    times = []
    for one in [*asked[:_WARM_UP], *asked]:
        start = time.perf_counter()
        predictor.suggest(one, _DEPTH)  # type: ignore[arg-type]
        times.append(1e6 * (time.perf_counter() - start))
    return times[-len(asked) :]
