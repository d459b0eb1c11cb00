"""Calibrates the scores of any algorithm as probabilities on held-out documents, and records their quality.

An algorithm with `calibrate` is served as a blend of one member: its own ranking, isotonic calibration, thresholds, and
propensities to favour rare labels.
"""

from __future__ import annotations

import contextlib

import numpy as np

from xclearn.data.dataset import Dataset, Split
from xclearn.data.splits import hold_out
from xclearn.errors import ConfigError
from xclearn.inference.blend import BlendServable, Sources
from xclearn.inference.operating_points import OperatingPoints
from xclearn.inference.servable import Ensemble, Servable
from xclearn.labels.propensity import inverse_propensity
from xclearn.parts.held_out import judged
from xclearn.parts.probabilities import Judged
from xclearn.parts.stacking import Learnt, single
from xclearn.training.prepare import Prepared
from xclearn.training.run import Run

_SHARE, _FEWEST, _MOST = 0.05, 500, 0.2  # share of train to hold out, minimum documents, and maximum share
_DEPTH = 100  # labels per document that get a probability


def cut_for_probabilities(data: Dataset, seed: int) -> tuple[Dataset, Split | None]:
    """The data without the documents to calibrate on, and those documents: the dev split if there is one."""
    if data.dev is not None:
        return data, data.dev
    fraction = min(_MOST, max(_SHARE, _FEWEST / len(data.train)))
    train, held = hold_out(data, fraction=fraction, seed=seed)
    if not len(held):
        return data, None
    return Dataset(data.name, train, data.labels, data.test, None, data.propensity), held


def calibrated_alone(
    name: str, servable: Servable | Ensemble, data: Prepared, held: Split | None, run: Run
) -> Servable | Ensemble | BlendServable:
    """The same ranking with calibrated probabilities; unchanged if there are too few documents."""
    counts = np.asarray(data.relevance.sum(axis=0), dtype=np.float32).ravel()
    sources = Sources(data.vectoriser, {name: servable}, None, None, None, counts, _DEPTH)
    evidence = None if held is None else judged(sources, held, run.answers_on)
    if evidence is None or not evidence.right[evidence.seen].any():
        run.note(calibrate="none: too few documents to calibrate on")
        return servable
    return with_probabilities(sources, single(evidence, 0), propensity_weights(counts, data), 0.0, run)


def propensity_weights(counts: np.ndarray, data: Prepared) -> np.ndarray:
    """Inverse propensities (L,) of labels with these numbers of training documents."""
    return inverse_propensity(counts, data.relevance.shape[0], *data.propensity).astype(np.float32)


def with_probabilities(sources: Sources, learnt: Learnt, weights: np.ndarray, tail: float, run: Run) -> BlendServable:
    """The served blend; notes the calibration error, the best F1 and a threshold for the model card."""
    points, bands = learnt.judged.points(), learnt.judged.points_by_band()
    _note(learnt.judged, points, run)
    run.note(tail=tail)
    return BlendServable(sources, learnt.stacker, learnt.calibration, points, learnt.unseen, bands, weights, tail)


def _note(found: Judged, points: OperatingPoints | None, run: Run) -> None:
    run.note(ece_5=round(100 * found.expected_error, 2))
    run.note(**{f"reliability, {band}": said for band, said in found.reliability.items()})
    if points is None:
        return
    best = points.best_f1
    run.note(
        best_f1=f"at scores of at least {best.threshold:g}: precision {best.precision:.3f}, recall {best.recall:.3f}"
    )
    with contextlib.suppress(ConfigError):  # a weak model may not reach the precision
        safe = points.for_precision(0.9)
        run.note(precision_90=f"at scores of at least {safe.threshold:g}: {safe.coverage:.1%} of texts get a label")
