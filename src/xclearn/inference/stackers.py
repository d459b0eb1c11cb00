"""Turns evidence about a label into a logit (linear, boosted trees) and a logit into a probability (isotonic).

Evidence is a row of values for each pair of a document and a label, NaN if missing. Knows nothing about where values
come from or how weights and trees were learnt.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, final

import numpy as np

from xclearn.errors import ModelError
from xclearn.inference.components import component
from xclearn.inference.declared import Inner, Part, Scope, Tensor, ids
from xclearn.kernels import boosted

_FLOAT64 = ("float64",)


class Stacker(Part, ABC):
    """Evidence (m, F) float32 → logits (m,)."""

    @abstractmethod
    def __call__(self, values: np.ndarray) -> np.ndarray: ...


@final
@component("linear_stacker.v1")
@dataclass(frozen=True)
class LinearStacker(Stacker):
    """w · max(v, lowest) + b; missing values count as the lowest seen."""

    weights: Annotated[np.ndarray, Tensor("values", _FLOAT64)]
    lowest: Annotated[np.ndarray, Tensor("values", _FLOAT64)]
    bias: float

    def __call__(self, values: np.ndarray) -> np.ndarray:
        result: np.ndarray = np.fmax(values, self.lowest) @ self.weights + self.bias  # fmax ignores NaN
        return result


@final
@component("tree_stacker.v1")
@dataclass(frozen=True)
class TreeStacker(Stacker):
    """The sum of regression trees; a node goes left if value ≤ threshold, and a leaf is its own child."""

    roots: Annotated[np.ndarray, ids("trees", below="nodes")]
    feature: Annotated[np.ndarray, ids("nodes", below="values")]
    threshold: Annotated[np.ndarray, Tensor("nodes", _FLOAT64)]
    left: Annotated[np.ndarray, ids("nodes", below="nodes")]
    right: Annotated[np.ndarray, ids("nodes", below="nodes")]
    missing_left: Annotated[np.ndarray, Tensor("nodes", ("bool",))]  # direction of missing values
    value: Annotated[np.ndarray, Tensor("nodes", _FLOAT64)]  # of leaves
    base: float

    def __call__(self, values: np.ndarray) -> np.ndarray:
        return self._trees(np.ascontiguousarray(values, dtype=np.float32))

    @cached_property
    def _trees(self) -> boosted.BoostedTrees:
        children = self.left, self.right
        nodes = self.feature, self.threshold, children, self.missing_left, self.value
        return boosted.BoostedTrees(self.roots, *nodes, self.base)

    def fits(self, _: Scope, /) -> None:
        own = np.arange(len(self.left))
        leaf = (self.left == own) & (self.right == own)
        if not (leaf | ((self.left > own) & (self.right > own))).all():
            raise ModelError("tree_stacker.v1: a child precedes its parent", allowed="children after their parent")


@final
@component("mean_stacker.v1")
@dataclass(frozen=True)
class MeanStacker(Stacker):
    """The mean of a linear stacker's logit and that of trees."""

    linear: Annotated[LinearStacker, Inner({"values": "values"})]
    trees: Annotated[TreeStacker, Inner({"values": "values"})]

    def __call__(self, values: np.ndarray) -> np.ndarray:
        mean: np.ndarray = (self.linear(values) + self.trees(values)) / 2
        return mean


@final
@component("isotonic.v1")
@dataclass(frozen=True)
class Isotonic(Part):
    """A non-decreasing piecewise linear map from logit to probability."""

    logits: Annotated[np.ndarray, Tensor("points", _FLOAT64)]
    probabilities: Annotated[np.ndarray, Tensor("points", _FLOAT64, least=0, most=1)]

    def __call__(self, logits: np.ndarray) -> np.ndarray:
        return np.interp(logits, self.logits, self.probabilities)

    def fits(self, _: Scope, /) -> None:
        if (np.diff(self.logits) < 0).any() or (np.diff(self.probabilities) < 0).any():
            raise ModelError("isotonic.v1: points must not decrease")
