"""Which labels are worth giving: those of at least a score, or as many as a precision or F1 allows.

A threshold that is chosen rests on what the model kept from held-out documents. Knows nothing about texts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from xclearn.errors import ConfigError
from xclearn.inference.blend import AnyServable, BlendServable
from xclearn.inference.operating_points import BAND_NAMES, BANDS, OperatingPoints, Point, band_of

_NEVER = 2.0  # no probability is as high
_TODO = "Train it with blend, or with calibrate = true, on more documents; or give a least score."


@final
@dataclass(frozen=True)
class Threshold:
    """What a label's score must come to; with all at their default every label is given."""

    min_score: float = 0.0
    target_precision: float | None = None  # of the labels given, how many should be right
    best_f1: bool = False  # where precision and recall together are best
    by_frequency: bool = False  # the precision is to hold for rare labels and for frequent ones, each for themselves

    def __post_init__(self) -> None:
        if self.target_precision is not None and self.best_f1:
            what = "a precision and the best F1 are two thresholds"
            todo = "Ask for one of them."
            raise ConfigError(what, where="target precision, best F1", todo=todo)
        if self.by_frequency and self.target_precision is None:
            what = "by frequency says how a precision is to be reached"
            todo = "Give a target precision too."
            raise ConfigError(what, where="by frequency", todo=todo)

    def least(self, servable: AnyServable) -> float | np.ndarray:
        """The least score; of each label (L,) where it depends on its frequency."""
        if not self.by_frequency:
            point = self.point(servable)
            return self.min_score if point is None else max(self.min_score, point.threshold)
        of_band = np.full(len(BANDS), _NEVER)
        for band, point in self._by_band(_calibrated(servable)).items():
            of_band[band] = point.threshold
        counts = _calibrated(servable).sources.counts
        return np.maximum(of_band[band_of(counts)], self.min_score)

    def point(self, servable: AnyServable) -> Point | None:
        """What the one threshold came to on held-out documents; None where only a score is asked for."""
        if self.best_f1:
            return points_of(servable).best_f1
        return None if self.target_precision is None else points_of(servable).for_precision(self.target_precision)

    def told(self, servable: AnyServable) -> list[str]:
        """The thresholds that were chosen, in words."""
        if self.by_frequency:
            found = self._by_band(_calibrated(servable))
            return [f"labels with {BAND_NAMES[band]}: {_words(point)}" for band, point in found.items()]
        chosen = self.point(servable)
        return [] if chosen is None else [_words(chosen)]

    def _by_band(self, blend: BlendServable) -> dict[int, Point]:
        """Of each band of labels that reaches the precision; labels of the others are never given."""
        if not blend.bands:
            raise ConfigError("the model knows no thresholds by frequency", where="by frequency", todo=_TODO)
        self.point(blend)  # refuses what is no share, and what not even all labels together reach
        assert self.target_precision is not None
        reached = {int(least): points for least, points in blend.bands.items()}
        return {
            BANDS.index(least): points.for_precision(self.target_precision)
            for least, points in reached.items()
            if points.precision.max() >= self.target_precision
        }


def points_of(servable: AnyServable) -> OperatingPoints:
    """What thresholds came to on held-out documents; refused by a model that has learnt none."""
    points = _calibrated(servable).points
    assert points is not None
    return points


def knows_thresholds(servable: AnyServable) -> bool:
    """Whether a precision or the best F1 can be asked for."""
    return isinstance(servable, BlendServable) and servable.points is not None


def _calibrated(servable: AnyServable) -> BlendServable:
    if not isinstance(servable, BlendServable) or servable.points is None:
        raise ConfigError("the model knows no thresholds", where="threshold", todo=_TODO)
    return servable


def _words(point: Point) -> str:
    covered = f"{point.coverage:.1%} of held-out texts get a label"
    return f"scores from {point.threshold:g}: precision {point.precision:.3f}, recall {point.recall:.3f}, {covered}"
