"""The pieces a servable is composed of, in NumPy: encoders, candidates, scorers, fusion.

Each is a final frozen dataclass registered under a versioned name, so that a saved model names what it needs and an old
file keeps working when a v2 comes. Arrays are tensors of the model folder, everything else is JSON. Nothing here knows
an algorithm, a label's name, torch, or how a piece was trained.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TypeVar, final

import numpy as np
import scipy.sparse as sp

from xclearn.errors import ModelError

COMPONENTS: dict[str, type] = {}
T = TypeVar("T")


def component(name: str):  # type: ignore[no-untyped-def]
    """Register a class under its versioned name."""

    def register(cls: type[T]) -> type[T]:
        COMPONENTS[name] = cls
        cls.kind = name  # type: ignore[attr-defined]
        return cls

    return register


class Layer(ABC):
    """A step between the bag and the vector."""

    @abstractmethod
    def __call__(self, vectors: np.ndarray) -> np.ndarray: ...  # (n, D) → (n, D)

    @abstractmethod
    def check(self, dim: int) -> None:
        """Refuse tensors whose shapes do not fit."""


@final
@component("relu.v1")
@dataclass(frozen=True)
class Relu(Layer):
    """max(0, v)."""

    def __call__(self, vectors: np.ndarray) -> np.ndarray:
        return np.maximum(vectors, 0)

    def check(self, dim: int) -> None:
        """Has no tensors."""


@final
@component("residual.v1")
@dataclass(frozen=True)
class Residual(Layer):
    """v + max(0, W v + b)."""

    weight: np.ndarray  # (D, D)
    bias: np.ndarray  # (D,)

    def __call__(self, vectors: np.ndarray) -> np.ndarray:
        return vectors + np.maximum(vectors @ self.weight.T + self.bias, 0)

    def check(self, dim: int) -> None:
        _expect(self.weight, (dim, dim), "residual.weight")
        _expect(self.bias, (dim,), "residual.bias")


class Encoder(ABC):
    """Features of documents → one vector each."""

    dim: int
    n_features: int

    @abstractmethod
    def encode(self, features: sp.csr_matrix | np.ndarray) -> np.ndarray: ...  # (n, D) float32

    @abstractmethod
    def check(self) -> None:
        """Refuse tensors whose shapes do not fit."""


@final
@component("bag.v1")
@dataclass(frozen=True)
class Bag(Encoder):
    """The weighted sum of token embeddings, then layers. Dense features are multiplied the same way."""

    token_embeddings: np.ndarray  # (V, D)
    layers: list[Layer]

    @property
    def dim(self) -> int:  # type: ignore[override]
        return self.token_embeddings.shape[1]

    @property
    def n_features(self) -> int:  # type: ignore[override]
        return self.token_embeddings.shape[0]

    def encode(self, features: sp.csr_matrix | np.ndarray) -> np.ndarray:
        vectors = np.asarray(features @ self.token_embeddings, dtype=np.float32)  # (n, D)
        for layer in self.layers:
            vectors = layer(vectors)
        return vectors

    def check(self) -> None:
        if self.token_embeddings.ndim != 2:
            raise ModelError("bag.token_embeddings is not a table", got=self.token_embeddings.shape)
        for layer in self.layers:
            layer.check(self.dim)


@final
@component("all_labels.v1")
@dataclass(frozen=True)
class AllLabels:
    """Every label is scored for every document: exact."""


class Scorer(ABC):
    """Scores labels with one named vector."""

    vector: str
    n_labels: int

    @abstractmethod
    def score_all(self, vectors: np.ndarray) -> np.ndarray: ...  # (n, D) → logits (n, L)

    @abstractmethod
    def check(self, dim: int) -> None:
        """Refuse tensors whose shapes do not fit."""


@final
@component("classifier.v1")
@dataclass(frozen=True)
class Classifier(Scorer):
    """logit = w_l · v + b_l."""

    vector: str  # the encoder whose vector it reads
    weight: np.ndarray  # (L, D)
    bias: np.ndarray  # (L,)

    @property
    def n_labels(self) -> int:  # type: ignore[override]
        return self.weight.shape[0]

    def score_all(self, vectors: np.ndarray) -> np.ndarray:
        logits = vectors @ self.weight.T  # (n, L)
        logits += self.bias
        return logits

    def check(self, dim: int) -> None:
        _expect(self.weight, (len(self.bias), dim), "classifier.weight")


class Fusion(ABC):
    """The scorers' logits → one score in [0, 1]."""

    @abstractmethod
    def __call__(self, logits: list[np.ndarray]) -> np.ndarray: ...  # each (n, k) → (n, k)


@final
@component("sigmoid.v1")
@dataclass(frozen=True)
class Sigmoid(Fusion):
    """σ of the one scorer's logit: monotone, so the best labels are the best logits."""

    def __call__(self, logits: list[np.ndarray]) -> np.ndarray:
        (only,) = logits
        return 1 / (1 + np.exp(-only))


def _expect(array: np.ndarray, shape: tuple[int, ...], name: str) -> None:
    if array.shape != shape:
        raise ModelError(f"tensor {name} has the wrong shape", got=array.shape, allowed=str(shape))
