"""What MACH serves, in NumPy: plain layers, several encoders side by side, and classifiers of buckets of labels.

A label is in one bucket of each repetition; its probability is the mean over repetitions of its buckets'. Knows nothing
about how labels were hashed or how a piece was trained.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
import scipy.sparse as sp

from xclearn.errors import ModelError
from xclearn.inference.checks import expect_shape
from xclearn.inference.components import Encoder, Layer, Scorer, component

_LEAST, _MOST = np.finfo(np.float32).tiny, np.float32(1 - 2**-24)  # probabilities whose logit is finite


@final
@component("affine.v1")
@dataclass(frozen=True)
class Affine(Layer):
    """W v + b."""

    weight: np.ndarray  # (D, D)
    bias: np.ndarray  # (D,)

    def __call__(self, vectors: np.ndarray) -> np.ndarray:
        return vectors @ self.weight.T + self.bias

    def check(self, dim: int) -> None:
        expect_shape(self.weight, (dim, dim), "affine.weight")
        expect_shape(self.bias, (dim,), "affine.bias")


@final
@component("joined.v1")
@dataclass(frozen=True)
class Joined(Encoder):
    """The vectors of several encoders, one after the other."""

    encoders: list[Encoder]

    @property
    def dim(self) -> int:  # type: ignore[override]
        return sum(encoder.dim for encoder in self.encoders)

    @property
    def n_features(self) -> int:  # type: ignore[override]
        return self.encoders[0].n_features

    def encode(self, features: sp.csr_matrix | np.ndarray) -> np.ndarray:
        return np.concatenate([encoder.encode(features) for encoder in self.encoders], axis=1)

    def check(self) -> None:
        for encoder in self.encoders:
            encoder.check()
        if len({encoder.n_features for encoder in self.encoders}) != 1:
            raise ModelError("joined encoders differ in features", got=[each.n_features for each in self.encoders])


@final
@component("bucket_classifier.v1")
@dataclass(frozen=True)
class BucketClassifier(Scorer):
    """The logit of a label's mean probability over its buckets; repetition r reads the r-th part of the vector."""

    vector: str  # the encoder whose vector it reads
    weight: np.ndarray  # (R, B, D / R)
    bias: np.ndarray  # (R, B)
    bucket_of_label: np.ndarray  # (R, L) int32
    geometric: bool  # the mean of logarithms instead

    @property
    def n_labels(self) -> int:  # type: ignore[override]
        return self.bucket_of_label.shape[1]

    def score_all(self, vectors: np.ndarray) -> np.ndarray:
        total = np.zeros((len(vectors), self.n_labels), dtype=np.float32)
        for chance, own in zip(self._chances(vectors), self.bucket_of_label, strict=True):
            total += np.take(chance, own, axis=1)  # six times as fast as chance[:, own]
        return self._logit(total)

    def score(self, vectors: np.ndarray, ids: np.ndarray) -> np.ndarray:
        total = np.zeros(ids.shape, dtype=np.float32)
        for chance, own in zip(self._chances(vectors), self.bucket_of_label, strict=True):
            total += np.take_along_axis(chance, own[ids].astype(np.int64), axis=1)
        return self._logit(total)

    def check(self, dim: int) -> None:
        if self.weight.ndim != 3 or not 0 < len(self.weight) <= dim:
            raise ModelError("tensor bucket_classifier.weight has the wrong shape", got=self.weight.shape)
        repetitions, n_buckets, _ = self.weight.shape
        expect_shape(self.bias, (repetitions, n_buckets), "bucket_classifier.bias")
        expect_shape(self.weight, (repetitions, n_buckets, dim // repetitions), "bucket_classifier.weight")
        buckets = self.bucket_of_label
        if buckets.dtype != np.int32 or buckets.ndim != 2 or len(buckets) != repetitions or not buckets.size:
            raise ModelError("tensor bucket_classifier.bucket_of_label has the wrong shape", got=buckets.shape)
        if not 0 <= buckets.min() <= buckets.max() < n_buckets:
            allowed = f"0 to {n_buckets - 1}"
            raise ModelError("a label is in no bucket", got=(buckets.min(), buckets.max()), allowed=allowed)

    def _chances(self, vectors: np.ndarray) -> np.ndarray:
        """The probability of each bucket, or its logarithm (R, n, B)."""
        parts = vectors.reshape(len(vectors), len(self.weight), -1).swapaxes(0, 1)  # (R, n, D / R)
        logarithms = -np.logaddexp(0, -(parts @ self.weight.swapaxes(1, 2) + self.bias[:, None]))
        return logarithms if self.geometric else np.exp(logarithms)

    def _logit(self, summed: np.ndarray) -> np.ndarray:
        mean = summed / len(self.weight)
        chance = np.clip(np.exp(mean) if self.geometric else mean, _LEAST, _MOST)
        return np.log(chance) - np.log1p(-chance)
