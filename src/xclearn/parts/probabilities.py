"""Calibration of logits into probabilities, their calibration error, and the exponent that favours tail labels.

Knows nothing about where logits come from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from xclearn.inference.blend import in_order
from xclearn.inference.operating_points import BAND_NAMES, BANDS, OperatingPoints, band_of
from xclearn.inference.stackers import Isotonic
from xclearn.parts.held_out import HeldOut

_FEW_RIGHT = 200  # with fewer correct pairs, calibration is logistic instead of isotonic
_POINTS = 41  # points of a logistic curve
_BINS = 15  # bins of the expected calibration error
_SHOWN = 5  # first labels of a document whose probabilities are measured
_DEPTHS = (1, 3, 5)  # depths at which an exponent is evaluated
_TAILS = tuple(place / 20 for place in range(21))  # candidate exponents
_NEARLY = 0.975  # required share of the best member's weight: about a point of PSP


@final
@dataclass(frozen=True)
class Judged:
    """Cross-fitted logits and probabilities of held-out pairs."""

    held: HeldOut
    logits: np.ndarray  # (m,)
    probabilities: np.ndarray  # (m,)

    def first(self, depth: int, weights: np.ndarray | None = None, tail: float = 0.0) -> np.ndarray:
        """Positions of the pairs ranked first for each document; `weights` (L,) are label weights."""
        held = self.held
        lift = None if weights is None else weights[held.labels]
        order = in_order(held.rows, held.labels, self.logits, self.probabilities, lift, tail)
        starts = np.searchsorted(held.rows, np.arange(len(held.n_right)))
        return order[np.arange(len(order)) - starts[held.rows[order]] < depth]

    @property
    def expected_error(self) -> float:
        """ECE@5: the expected calibration error of each document's first labels."""
        first = self.first(_SHOWN)
        return expected_error(self.probabilities[first], self.held.right[first])

    @property
    def reliability(self) -> dict[str, str]:
        """Mean probability and accuracy by label frequency, as text for the model card."""
        first = self.first(_SHOWN)
        band, said = band_of(self.held.documents[first]), {}
        for place, name in enumerate(BAND_NAMES):
            own = first[band == place]
            if len(own):
                mean = self.probabilities[own].mean()
                share = self.held.right[own].mean()
                said[name] = f"{len(own):,} predictions: mean probability {mean:.3f}, {share:.3f} correct"
        return said

    def points(self) -> OperatingPoints | None:
        """Precision and recall at each threshold."""
        return OperatingPoints.of(self.held.rows, self.probabilities, self.held.right, self.held.n_true)

    def points_by_band(self) -> dict[str, OperatingPoints]:
        """The same for each frequency band with enough labels; recall counts all correct labels."""
        band, found = band_of(self.held.documents), {}
        for place, least in enumerate(BANDS):
            own = band == place
            rows, right = self.held.rows[own], self.held.right[own]
            points = OperatingPoints.of(rows, self.probabilities[own], right, self.held.n_true)
            if points is not None:
                found[str(least)] = points
        return found

    def hits(self, weights: np.ndarray, tail: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
        """Correct labels among the first 1, 3 and 5 of all documents, and their summed weights, each (3,)."""
        counted = []
        for depth in _DEPTHS:
            first = self.first(depth, weights, tail)
            found = first[self.held.right[first]]
            counted.append((len(found), float(weights[self.held.labels[found]].sum())))
        return np.array(counted).T[0], np.array(counted).T[1]


def best_tail(whole: Judged, members: Sequence[Judged], weights: np.ndarray) -> float:
    """The smallest exponent with which no member alone finds clearly more of the rare labels.

    Limited to exponents with which no member finds more labels overall.
    """
    found = [member.hits(weights) for member in members]
    right, rare = (np.max([part[i] for part in found], axis=0) for i in range(2))
    allowed = 0.0
    for tail in _TAILS:
        own_right, own_rare = whole.hits(weights, tail)
        if tail and (own_right < right).any():
            break
        allowed = tail
        if (own_rare >= _NEARLY * rare).all():
            break
    return allowed


def expected_error(probabilities: np.ndarray, right: np.ndarray) -> float:
    """The expected calibration error, over bins of equal width."""
    place = np.minimum((probabilities * _BINS).astype(np.int64), _BINS - 1)
    off = np.bincount(place, weights=probabilities - right, minlength=_BINS)
    return float(np.abs(off).sum() / max(len(place), 1))


def calibrated(logits: np.ndarray, right: np.ndarray) -> Isotonic:
    """Calibration of logits: isotonic, or logistic if there are few correct pairs."""
    from sklearn.isotonic import IsotonicRegression
    from sklearn.linear_model import LogisticRegression

    if not right.any() or right.all():
        return Isotonic(np.zeros(1), np.full(1, float(right.any())))
    if right.sum() >= _FEW_RIGHT:
        line = IsotonicRegression(y_min=0.0, y_max=1.0).fit(logits, right)
        return Isotonic(line.X_thresholds_.astype(np.float64), line.y_thresholds_.astype(np.float64))
    curve = LogisticRegression(C=1e3).fit(logits[:, None], right)
    slope = max(float(curve.coef_[0, 0]), 0.0)
    points = np.linspace(logits.min(), logits.max(), _POINTS)
    return Isotonic(points, 1 / (1 + np.exp(-(slope * points + float(curve.intercept_[0])))))
