"""Thresholds for predicted labels: a minimum score, or the score that reaches a precision or the best F1.

Chosen thresholds rely on the model's measurements on held-out documents. Knows nothing about texts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from xclearn.errors import ConfigError
from xclearn.inference.blend import AnyServable, BlendServable
from xclearn.inference.operating_points import BAND_NAMES, BANDS, OperatingPoints, Point, band_of

_NEVER = 2.0  # above any probability
_TODO = "Train it with blend, or with calibrate = true, on more documents; or give a minimum score."


@final
@dataclass(frozen=True)
class Threshold:
    """The condition on a label's score; by default, every label is returned."""

    min_score: float = 0.0
    target_precision: float | None = None  # target share of returned labels that are correct
    best_f1: bool = False  # use the threshold with the best F1
    by_frequency: bool = False  # reach the precision separately for rare and for frequent labels

    def __post_init__(self) -> None:
        if self.target_precision is not None and self.best_f1:
            what = "a target precision and the best F1 cannot be combined"
            todo = "Give one of them."
            raise ConfigError(what, where="target precision, best F1", todo=todo)
        if self.by_frequency and self.target_precision is None:
            what = "by frequency needs a target precision"
            todo = "Give a target precision too."
            raise ConfigError(what, where="by frequency", todo=todo)

    def least(self, servable: AnyServable) -> float | np.ndarray:
        """The minimum score, or (L,) if it depends on label frequency."""
        if not self.by_frequency:
            point = self.point(servable)
            return self.min_score if point is None else max(self.min_score, point.threshold)
        of_band = np.full(len(BANDS), _NEVER)
        for band, point in self._by_band(_calibrated(servable)).items():
            of_band[band] = point.threshold
        counts = _calibrated(servable).sources.counts
        return np.maximum(of_band[band_of(counts)], self.min_score)

    def point(self, servable: AnyServable) -> Point | None:
        """Measurements of the chosen threshold on held-out documents; None if only a score was given."""
        if self.best_f1:
            return points_of(servable).best_f1
        return None if self.target_precision is None else points_of(servable).for_precision(self.target_precision)

    def told(self, servable: AnyServable) -> list[str]:
        """Descriptions of the chosen thresholds."""
        if self.by_frequency:
            found = self._by_band(_calibrated(servable))
            return [f"labels with {BAND_NAMES[band]}: {_words(point)}" for band, point in found.items()]
        chosen = self.point(servable)
        return [] if chosen is None else [_words(chosen)]

    def _by_band(self, blend: BlendServable) -> dict[int, Point]:
        """The point of each frequency band that reaches the precision; labels of other bands are never returned."""
        if not blend.bands:
            raise ConfigError("the model has no thresholds by frequency", where="by frequency", todo=_TODO)
        self.point(blend)  # raises if the target is out of range, or not reached even over all labels
        assert self.target_precision is not None
        reached = {int(least): points for least, points in blend.bands.items()}
        return {
            BANDS.index(least): points.for_precision(self.target_precision)
            for least, points in reached.items()
            if points.precision.max() >= self.target_precision
        }


def points_of(servable: AnyServable) -> OperatingPoints:
    """Measurements of thresholds on held-out documents; raises if the model has none."""
    points = _calibrated(servable).points
    assert points is not None
    return points


def knows_thresholds(servable: AnyServable) -> bool:
    """Whether the model supports a target precision and the best F1."""
    return isinstance(servable, BlendServable) and servable.points is not None


def _calibrated(servable: AnyServable) -> BlendServable:
    if not isinstance(servable, BlendServable) or servable.points is None:
        raise ConfigError("the model has no thresholds", where="threshold", todo=_TODO)
    return servable


def _words(point: Point) -> str:
    covered = f"{point.coverage:.1%} of held-out texts get a label"
    return f"scores from {point.threshold:g}: precision {point.precision:.3f}, recall {point.recall:.3f}, {covered}"
