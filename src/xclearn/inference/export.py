"""A model made fast to ask: rows in fewer bits, labels found through a tree of clusters; chosen by measuring on a hold-out.

A form is a precision and a beam. Each form is a model like any other; what it costs is the difference of its metrics
from those of the model it comes from, and the time of one text. Test data is never looked at. Knows nothing about files.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, final

import numpy as np

from xclearn.data import hold_out
from xclearn.data.dataset import Dataset, Split, take_documents
from xclearn.data.topk import TopK
from xclearn.errors import ConfigError, DataError, ModelError
from xclearn.inference.components import AllLabels, Candidates, Classifier, ClusterBeam, Sigmoid
from xclearn.inference.evaluation import label_weights
from xclearn.inference.exported import PRECISIONS, ClusterIndex, RowClassifier, Rows
from xclearn.inference.folder import Model
from xclearn.inference.predictor import Predictor
from xclearn.inference.servable import Servable
from xclearn.inference.tree import Clusters, Sample, Tree, cluster_tree, tree_above
from xclearn.metrics import evaluate_predictions

BEAMS = (8, 16, 32, 64, 128, 256)
LIMITS = {"P@1": 0.3, "PSP@5": 0.5}  # points that a form may lose before it is refused
FEWEST_LABELS = 8192  # below, scoring every label is as fast as choosing among them
_DEPTH = 10  # labels of an answer that are compared with the exact ones
_SAMPLE = 10_000  # documents that teach the tree
_HELD_OUT = 2_000  # documents that measure a form
_TIMED = 300  # of them, asked one by one


class Form(NamedTuple):
    """How a model is written."""

    precision: str
    beam: int  # clusters kept; 0: every label is scored

    def __str__(self) -> str:
        return f"{self.precision}, {f'beam {self.beam}' if self.beam else 'every label'}"


@final
@dataclass(frozen=True)
class Measured:
    """What a form gives on the hold-out."""

    form: Form
    values: dict[str, float]  # P@1, P@5, PSP@5 in percent
    lost: dict[str, float]  # points of each that the original has more
    overlap: float  # percent of the original's best ten that are among its own
    p50_us: float  # one text on one core, from text to label names
    p99_us: float


@final
@dataclass(frozen=True)
class Choice:
    """What is wanted of a form; with neither limit, the fastest that loses nearly nothing."""

    precisions: tuple[str, ...] = ()  # empty: int8, or all of them where a limit is given
    beams: tuple[int, ...] = ()  # empty: a range of them, and every label
    target_p99_us: float | None = None  # the best form that answers this fast
    max_loss: float | None = None  # the fastest form that loses at most so many points of P@1

    def forms(self, servable: Servable) -> list[Form]:
        """Those to measure, checked."""
        limited = self.target_p99_us is not None or self.max_loss is not None
        precisions = self.precisions or (PRECISIONS if limited else ("int8",))
        unknown = [name for name in precisions if name not in PRECISIONS]
        if unknown or min(self.beams, default=1) < 0:
            got, allowed = (*unknown, *self.beams), f"{', '.join(PRECISIONS)}; a beam of 0 or more"
            raise ConfigError("unknown precision, or a negative beam", got=got, allowed=allowed)
        every = isinstance(servable.candidates, AllLabels)
        beams = self.beams or ((0,) if every else ()) + (BEAMS if _can_have_tree(servable) else ())
        if not every and 0 in beams:
            raise ConfigError("the model was trained to score the labels of its best clusters", where="beam", got=0)
        if beams != (0,) and not _can_have_tree(servable):
            raise ConfigError("the model has too few labels, or scores of several kinds", where="beam", got=beams)
        return [Form(precision, beam) for precision in precisions for beam in beams]

    def pick(self, points: Sequence[Measured]) -> Measured:
        """The form that does what is wanted."""
        if self.target_p99_us is not None:
            fast = [point for point in points if point.p99_us <= self.target_p99_us]
            if not fast:
                best = min(point.p99_us for point in points)
                raise ConfigError("no form is as fast", got=self.target_p99_us, allowed=f"{best:.0f} µs or more")
            return max(fast, key=lambda point: (round(point.values["P@1"], 2), point.overlap))
        most = 0.1 if self.max_loss is None else self.max_loss
        near = [point for point in points if point.lost["P@1"] <= most and _refused(point) is None]
        return min(near or points, key=lambda point: point.p50_us if near else point.lost["P@1"])


@final
@dataclass(frozen=True)
class Exporter:
    """Makes forms of one model."""

    model: Model
    tree: Tree | None

    @classmethod
    def of(cls, model: Model, data: Dataset | None, seed: int = 0) -> Exporter:
        """Documents of the train split teach the tree; without them there is none."""
        servable = model.servable
        known = isinstance(servable.candidates, AllLabels | ClusterBeam)
        if not known or not all(isinstance(scorer, Classifier) for scorer in servable.scorers):
            raise ConfigError("the model cannot be exported (again)", todo="Name the folder that `xc train -o` wrote.")
        return cls(model, _taught_tree(model, data, seed) if data and _can_have_tree(servable) else None)

    def export(self, form: Form) -> Model:
        """The model in this form."""
        servable = self.model.servable
        labels, candidates = np.arange(servable.n_labels, dtype=np.int32), servable.candidates
        if form.beam:
            labels, candidates = self._index(form)
        scorers = [
            RowClassifier(scorer.vector, Rows.of(scorer.weight[labels], scorer.bias[labels], form.precision), labels)
            for scorer in servable.scorers
            if isinstance(scorer, Classifier)
        ]
        fusion = Sigmoid() if isinstance(servable.candidates, AllLabels) and len(scorers) == 1 else servable.fusion
        about = self.model.about | {"export": form._asdict()}
        return Model(
            replace(servable, candidates=candidates, scorers=scorers, fusion=fusion), self.model.labels, about
        )

    def _index(self, form: Form) -> tuple[np.ndarray, ClusterIndex]:
        if self.tree is None:
            raise ConfigError("a beam needs documents that teach the clusters", todo="Give --data.")
        return self.tree.clusters.labels, self.tree.index(_vector(self.model.servable), form.precision, form.beam)


@final
@dataclass(frozen=True)
class HoldOut:
    """Documents that the forms of a model are measured on, and what the model itself answers to them."""

    split: Split
    label_weights: np.ndarray  # (L,) inverse propensities
    exact: TopK
    values: dict[str, float]

    @classmethod
    def of(cls, model: Model, data: Dataset) -> HoldOut:
        if list(model.labels.names) != list(data.labels.names):
            got = (len(model.labels), data.n_labels)
            raise DataError("the model and the data have different labels", where=data.name, got=got)
        split, weights = _held_out(data)[1], label_weights(data)
        exact = Predictor(model).predict(split.documents, _DEPTH, split.filter_pairs)
        return cls(split, weights, exact, _values(exact, split, weights))

    def measure(self, form: Form, model: Model) -> Measured:
        """Metrics, agreement with the original, and the time of one text."""
        predictor = Predictor(model)
        found = predictor.predict(self.split.documents, _DEPTH, self.split.filter_pairs)
        values = _values(found, self.split, self.label_weights)
        same = (found.ids[:, :, None] == self.exact.ids[:, None, :]).any(axis=1) & (self.exact.ids >= 0)
        p50, p99 = np.percentile(_times_us(predictor, self.split), [50, 99])
        lost = {name: self.values[name] - value for name, value in values.items()}
        overlap = 100 * float(same.sum() / (self.exact.ids >= 0).sum())
        return Measured(form, values, lost, overlap, float(p50), float(p99))


def refuse_loss(point: Measured) -> None:
    """Refuse a form that loses more than `LIMITS`."""
    if metric := _refused(point):
        raise ModelError(
            f"{point.form} loses {point.lost[metric]:.2f} points of {metric} on the hold-out",
            allowed=f"at most {LIMITS[metric]}",
            todo="Choose a wider beam or more bits, or give --force.",
        )


def _refused(point: Measured) -> str | None:
    return next((metric for metric, limit in LIMITS.items() if point.lost[metric] > limit), None)


def _can_have_tree(servable: Servable) -> bool:
    """Several scorers over all labels are fused without a cluster's score, which a tree would bring in."""
    if isinstance(servable.candidates, ClusterBeam):
        return True
    return servable.n_labels >= FEWEST_LABELS and len(servable.scorers) == 1


def _vector(servable: Servable) -> str:
    """The vector that the tree reads."""
    candidates: Candidates = servable.candidates
    return candidates.vector if isinstance(candidates, ClusterBeam) else servable.scorers[0].vector


def _taught_tree(model: Model, data: Dataset, seed: int) -> Tree:
    servable, documents = model.servable, _held_out(data)[0].documents
    some = np.random.default_rng(seed).permutation(len(data.train))
    sample = take_documents(documents, some[some < len(documents)][:_SAMPLE])
    best = Predictor(model).predict(sample, _DEPTH).ids
    full = (best >= 0).all(axis=1)
    vectors = servable.encoders[_vector(servable)].encode(servable.vectoriser.transform(sample))
    rows = _label_rows(servable)
    taught = Sample.of(vectors[full], best[full], rows)
    beam = servable.candidates
    if not isinstance(beam, ClusterBeam):
        return cluster_tree(rows, taught, seed)
    return tree_above(Clusters(beam.labels.astype(np.int32), beam.offsets, beam.weight, beam.bias), taught)


def _label_rows(servable: Servable) -> np.ndarray:
    """What stands for each label (L, D) where the tree is taught: its row, or that of its cluster."""
    beam, scorer = servable.candidates, servable.scorers[0]
    if isinstance(beam, ClusterBeam):
        rows = np.empty((servable.n_labels, beam.weight.shape[1]), dtype=np.float32)
        rows[beam.labels] = np.repeat(beam.weight, np.diff(beam.offsets), axis=0)
        return rows
    assert isinstance(scorer, Classifier)
    return scorer.weight


def _held_out(data: Dataset) -> tuple[Split, Split]:
    """(train, hold-out): the dev split where there is one."""
    train, held = (data.train, data.dev) if data.dev is not None else hold_out(data, most=_HELD_OUT)
    if not len(held):
        raise DataError("too few documents to hold some out", where=data.name, got=len(data.train))
    return train, held.take(np.arange(min(len(held), _HELD_OUT)))


def _values(found: TopK, split: Split, weights: np.ndarray) -> dict[str, float]:
    pairs = split.filter_pairs
    report = evaluate_predictions(found, split.relevance, weights, filter_pairs=pairs, ks=(1, 5), recall_ks=(_DEPTH,))
    return {name: report.values[name] for name in ("P@1", "P@5", "PSP@5")}


def _times_us(predictor: Predictor, split: Split) -> list[float]:
    """Of one text after the other, from text to label names."""
    asked = [take_documents(split.documents, np.array([row])) for row in range(min(len(split), _TIMED))]
    times = []
    for one in [*asked[:20], *asked]:
        start = time.perf_counter()
        predictor.suggest(one, _DEPTH)  # type: ignore[arg-type]
        times.append(1e6 * (time.perf_counter() - start))
    return times[20:]
