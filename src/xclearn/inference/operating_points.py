"""Operating points: precision, recall and coverage of each probability threshold on held-out documents.

Knows nothing about how probabilities were computed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, NamedTuple, final

import numpy as np

from xclearn.errors import ConfigError, ModelError
from xclearn.inference.components import component
from xclearn.inference.declared import Part, Scope, Tensor

_SHARES = Tensor("points", ("float64",), least=0, most=1)
_FEWEST = 20  # predicted labels needed for a meaningful precision
BANDS = (0, 1, 2, 6, 26)  # minimum training documents of each frequency band
BAND_NAMES = ("no document", "1 document", "2 to 5 documents", "6 to 25 documents", "26 documents and more")


def band_of(documents: np.ndarray) -> np.ndarray:
    """The frequency band of labels with these numbers of training documents."""
    return np.searchsorted(BANDS, documents, side="right") - 1


class Point(NamedTuple):
    """Measurements at a threshold, from 0 to 1."""

    threshold: float
    precision: float  # share of labels with at least this probability that are correct
    recall: float  # share of all correct labels that these include
    coverage: float  # share of documents that get any label


@final
@component("operating_points.v1")
@dataclass(frozen=True)
class OperatingPoints(Part):
    """Ascending thresholds and their measurements."""

    thresholds: Annotated[np.ndarray, _SHARES]
    precision: Annotated[np.ndarray, _SHARES]
    recall: Annotated[np.ndarray, _SHARES]
    coverage: Annotated[np.ndarray, _SHARES]

    @classmethod
    def of(
        cls, rows: np.ndarray, probabilities: np.ndarray, right: np.ndarray, n_right: np.ndarray
    ) -> OperatingPoints | None:
        """Measured on pairs (m,) of documents `rows`, which have `n_right` (n,) correct labels; None if too few."""
        order = np.argsort(-probabilities, kind="stable")
        given = np.arange(1, len(order) + 1)
        hits = np.cumsum(right[order])
        best = np.full(len(n_right), -1.0)
        np.maximum.at(best, rows, probabilities)
        best = np.sort(best)
        grid = np.arange(101) / 100
        counts = np.searchsorted(-probabilities[order], -grid, side="right")  # pairs with at least this probability
        enough = counts >= _FEWEST
        if not enough.any():
            return None
        grid, last = grid[enough], counts[enough] - 1
        covered = 1 - np.searchsorted(best, grid, side="left") / max(len(best), 1)
        return cls(grid, hits[last] / given[last], hits[last] / max(n_right.sum(), 1), covered)

    def for_precision(self, target: float) -> Point:
        """The lowest threshold that reaches a precision."""
        if not 0 < target <= 1:
            raise ConfigError("a precision is out of range", got=target, allowed="above 0, at most 1")
        reached = np.flatnonzero(self.precision >= target)
        if not len(reached):
            best = int(self.precision.argmax())
            what = f"no threshold of the model reaches this precision; the best is {self.precision[best]:.3f}"
            raise ConfigError(
                what, got=target, todo=f"Lower the target, or use a minimum score of {self.thresholds[best]:g}."
            )
        return self._point(int(reached[0]))

    @property
    def best_f1(self) -> Point:
        """The threshold with the best F1."""
        f1 = 2 * self.precision * self.recall / np.maximum(self.precision + self.recall, 1e-12)
        return self._point(int(f1.argmax()))

    def _point(self, place: int) -> Point:
        columns = (self.thresholds, self.precision, self.recall, self.coverage)
        return Point(*(float(column[place]) for column in columns))

    def fits(self, _: Scope, /) -> None:
        if (np.diff(self.thresholds) <= 0).any():
            raise ModelError("operating_points.v1: thresholds must ascend")
