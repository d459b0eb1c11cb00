"""Components of MACH: dense layers, several encoders side by side, and classifiers of label buckets.

A label is in one bucket of each repetition; its probability is the mean of its buckets' over repetitions. Knows nothing
about how labels were hashed or components trained.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, final

import numpy as np
import scipy.sparse as sp

from xclearn.errors import ModelError
from xclearn.inference.arrays import Array
from xclearn.inference.components import Encoder, Layer, Scorer, component
from xclearn.inference.declared import Scope, Tensor, Vector, ids, shares
from xclearn.text.vectorisers import DENSE_ROWS

_LEAST, _MOST = np.finfo(np.float32).tiny, np.float32(1 - 2**-24)  # probabilities whose logit is finite


@final
@component("affine.v1")
@dataclass(frozen=True)
class Affine(Layer):
    """W v + b."""

    on_device = True
    weight: Annotated[np.ndarray, Tensor("dim dim")]
    bias: Annotated[np.ndarray, Tensor("dim")]

    def __call__(self, vectors: Array) -> Array:
        return vectors @ self.weight.T + self.bias


@final
@component("joined.v1")
@dataclass(frozen=True)
class Joined(Encoder):
    """The concatenated vectors of several encoders."""

    encoders: Annotated[list[Encoder], shares("features")]

    @property
    def dim(self) -> int:  # type: ignore[override]
        return sum(encoder.dim for encoder in self.encoders)

    @property
    def n_features(self) -> int:  # type: ignore[override]
        return self.encoders[0].n_features

    def encode(self, features: sp.csr_matrix | np.ndarray) -> np.ndarray:
        return np.concatenate([encoder.encode(features) for encoder in self.encoders], axis=1)

    @property
    def reads(self) -> tuple[str, ...]:  # type: ignore[override]
        return tuple(form for form in self.encoders[0].reads if all(form in each.reads for each in self.encoders))

    def fits(self, _: Scope, /) -> None:
        if any(encoder.gives != DENSE_ROWS for encoder in self.encoders):
            raise ModelError("joined.v1 joins dense vectors", got=[encoder.gives for encoder in self.encoders])


@final
@component("bucket_classifier.v1")
@dataclass(frozen=True)
class BucketClassifier(Scorer):
    """The logit of a label's mean probability over its buckets; repetition r reads the r-th part of the vector."""

    vector: Annotated[str, Vector()]  # the encoder whose vector it reads
    weight: Annotated[np.ndarray, Tensor("repetitions buckets part")]
    bias: Annotated[np.ndarray, Tensor("repetitions buckets")]
    bucket_of_label: Annotated[np.ndarray, ids("repetitions labels", below="buckets")]
    geometric: bool  # geometric mean instead of arithmetic

    @property
    def n_labels(self) -> int:  # type: ignore[override]
        return self.bucket_of_label.shape[1]

    def score_all(self, vectors: np.ndarray) -> np.ndarray:
        total = np.zeros((len(vectors), self.n_labels), dtype=np.float32)
        for chance, own in zip(self._chances(vectors), self.bucket_of_label, strict=True):
            total += np.take(chance, own, axis=1)  # six times faster than chance[:, own]
        return self._logit(total)

    def score(self, vectors: np.ndarray, ids: np.ndarray) -> np.ndarray:
        total = np.zeros(ids.shape, dtype=np.float32)
        for chance, own in zip(self._chances(vectors), self.bucket_of_label, strict=True):
            total += np.take_along_axis(chance, own[ids].astype(np.int64), axis=1)
        return self._logit(total)

    def _chances(self, vectors: np.ndarray) -> np.ndarray:
        """The probability of each bucket, or its logarithm (R, n, B)."""
        parts = vectors.reshape(len(vectors), len(self.weight), -1).swapaxes(0, 1)  # (R, n, D / R)
        logarithms = -np.logaddexp(0, -(parts @ self.weight.swapaxes(1, 2) + self.bias[:, None]))
        return logarithms if self.geometric else np.exp(logarithms)

    def _logit(self, summed: np.ndarray) -> np.ndarray:
        mean = summed / len(self.weight)
        chance = np.clip(np.exp(mean) if self.geometric else mean, _LEAST, _MOST)
        return np.log(chance) - np.log1p(-chance)

    def fits(self, scope: Scope, /) -> None:
        repetitions, _, part = self.weight.shape
        if repetitions * part != scope.sizes["dim"]:
            raise ModelError("bucket_classifier.v1 does not fit the vector", got=self.weight.shape)
