"""From which probability on labels are worth giving: what each threshold came to on held-out documents.

Knows nothing about how probabilities were made.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, NamedTuple, final

import numpy as np

from xclearn.errors import ConfigError, ModelError
from xclearn.inference.components import component
from xclearn.inference.declared import Part, Scope, Tensor

_SHARES = Tensor("points", ("float64",), least=0, most=1)
_FEWEST = 20  # given labels below which a precision says nothing
BANDS = (0, 1, 2, 6, 26)  # training documents from which on labels belong to the next band
BAND_NAMES = ("no document", "1 document", "2 to 5 documents", "6 to 25 documents", "26 documents and more")


def band_of(documents: np.ndarray) -> np.ndarray:
    """Which of `BANDS` labels with so many training documents belong to."""
    return np.searchsorted(BANDS, documents, side="right") - 1


class Point(NamedTuple):
    """What a threshold came to, from 0 to 1."""

    threshold: float
    precision: float  # of all labels with at least this probability, how many are right
    recall: float  # of all right labels, how many these are
    coverage: float  # of all documents, how many get a label at all


@final
@component("operating_points.v1")
@dataclass(frozen=True)
class OperatingPoints(Part):
    """Thresholds ascending, and what each came to."""

    thresholds: Annotated[np.ndarray, _SHARES]
    precision: Annotated[np.ndarray, _SHARES]
    recall: Annotated[np.ndarray, _SHARES]
    coverage: Annotated[np.ndarray, _SHARES]

    @classmethod
    def of(
        cls, rows: np.ndarray, probabilities: np.ndarray, right: np.ndarray, n_right: np.ndarray
    ) -> OperatingPoints | None:
        """Of pairs (m,) of documents `rows` of which `n_right` (n,) labels are right; None of too few pairs."""
        order = np.argsort(-probabilities, kind="stable")
        given = np.arange(1, len(order) + 1)
        hits = np.cumsum(right[order])
        best = np.full(len(n_right), -1.0)
        np.maximum.at(best, rows, probabilities)
        best = np.sort(best)
        grid = np.arange(101) / 100
        counts = np.searchsorted(-probabilities[order], -grid, side="right")  # with at least this probability
        enough = counts >= _FEWEST
        if not enough.any():
            return None
        grid, last = grid[enough], counts[enough] - 1
        covered = 1 - np.searchsorted(best, grid, side="left") / max(len(best), 1)
        return cls(grid, hits[last] / given[last], hits[last] / max(n_right.sum(), 1), covered)

    def for_precision(self, target: float) -> Point:
        """The lowest threshold from which on labels were right so often."""
        if not 0 < target <= 1:
            raise ConfigError("a precision is out of range", got=target, allowed="above 0, at most 1")
        reached = np.flatnonzero(self.precision >= target)
        if not len(reached):
            best = int(self.precision.argmax())
            what = f"no threshold of the model reaches this precision, the best has {self.precision[best]:.3f}"
            raise ConfigError(
                what, got=target, todo=f"Ask for less, or for scores of at least {self.thresholds[best]:g}."
            )
        return self._point(int(reached[0]))

    @property
    def best_f1(self) -> Point:
        """Where precision and recall together are best."""
        f1 = 2 * self.precision * self.recall / np.maximum(self.precision + self.recall, 1e-12)
        return self._point(int(f1.argmax()))

    def _point(self, place: int) -> Point:
        columns = (self.thresholds, self.precision, self.recall, self.coverage)
        return Point(*(float(column[place]) for column in columns))

    def fits(self, _: Scope, /) -> None:
        if (np.diff(self.thresholds) <= 0).any():
            raise ModelError("operating_points.v1: the thresholds do not rise")
