"""From logits to probabilities, how far these are from the truth, and how much of the tail they should be shown with.

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

_FEW_RIGHT = 200  # right pairs below which a logistic curve calibrates instead of an isotonic line
_POINTS = 41  # of a logistic curve
_BINS = 15  # of the expected calibration error
_SHOWN = 5  # first labels of a document, whose probabilities are looked at
_DEPTHS = (1, 3, 5)  # of the answers by which an exponent is chosen
_TAILS = tuple(place / 20 for place in range(21))  # to choose from
_NEARLY = 0.975  # of the weight that the best member finds: about a point of PSP


@final
@dataclass(frozen=True)
class Judged:
    """What cross-fit says of held-out pairs: a logit, and the probability that a label is right."""

    held: HeldOut
    logits: np.ndarray  # (m,)
    probabilities: np.ndarray  # (m,)

    def first(self, depth: int, weights: np.ndarray | None = None, tail: float = 0.0) -> np.ndarray:
        """Where the pairs stand that are answered first for each document; `weights` are of labels (L,)."""
        held = self.held
        lift = None if weights is None else weights[held.labels]
        order = in_order(held.rows, held.labels, self.logits, self.probabilities, lift, tail)
        starts = np.searchsorted(held.rows, np.arange(len(held.n_right)))
        return order[np.arange(len(order)) - starts[held.rows[order]] < depth]

    @property
    def expected_error(self) -> float:
        """ECE@5: the mean distance of probability and truth over bins, of each document's first labels."""
        first = self.first(_SHOWN)
        return expected_error(self.probabilities[first], self.held.right[first])

    @property
    def reliability(self) -> dict[str, str]:
        """The same for labels of about as many training documents, in words for the model card."""
        first = self.first(_SHOWN)
        band, said = band_of(self.held.documents[first]), {}
        for place, name in enumerate(BAND_NAMES):
            own = first[band == place]
            if len(own):
                mean = self.probabilities[own].mean()
                share = self.held.right[own].mean()
                said[name] = f"{len(own):,} answers: {mean:.3f} said, {share:.3f} right"
        return said

    def points(self) -> OperatingPoints | None:
        """What each threshold came to."""
        return OperatingPoints.of(self.held.rows, self.probabilities, self.held.right, self.held.n_true)

    def points_by_band(self) -> dict[str, OperatingPoints]:
        """The same for the labels of each band, where there are enough; recall is of all right labels."""
        band, found = band_of(self.held.documents), {}
        for place, least in enumerate(BANDS):
            own = band == place
            rows, right = self.held.rows[own], self.held.right[own]
            points = OperatingPoints.of(rows, self.probabilities[own], right, self.held.n_true)
            if points is not None:
                found[str(least)] = points
        return found

    def hits(self, weights: np.ndarray, tail: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
        """Right answers among the first 1, 3 and 5 of all documents, and their weights, each (3,)."""
        counted = []
        for depth in _DEPTHS:
            first = self.first(depth, weights, tail)
            found = first[self.held.right[first]]
            counted.append((len(found), float(weights[self.held.labels[found]].sum())))
        return np.array(counted).T[0], np.array(counted).T[1]


def best_tail(whole: Judged, members: Sequence[Judged], weights: np.ndarray) -> float:
    """The smallest exponent with which no member alone finds clearly more of the rare labels.

    Never one with which a member would find more labels of any kind: then the largest that is small enough.
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
    """The mean distance of probability and truth, over bins of equal width."""
    place = np.minimum((probabilities * _BINS).astype(np.int64), _BINS - 1)
    off = np.bincount(place, weights=probabilities - right, minlength=_BINS)
    return float(np.abs(off).sum() / max(len(place), 1))


def calibrated(logits: np.ndarray, right: np.ndarray) -> Isotonic:
    """From logits to probabilities: isotonic, of few right pairs a logistic curve."""
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
