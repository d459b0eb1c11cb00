"""The forms that `xc export` writes, in NumPy: rows of 8, 16 or 32 bits, an index of tokens, trees of clusters.

Rows that are read together are stored together: classifiers by cluster, nodes of a tree level by parent. This order is
internal; the interface uses label ids. Knows nothing about how a form was chosen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar, final

import numpy as np
import scipy.sparse as sp

from xclearn.config import Count
from xclearn.errors import ModelError
from xclearn.inference.arrays import unit
from xclearn.inference.components import Candidates, Encoder, Scorer, below, component
from xclearn.inference.declared import Chain, Part, Scope, SizeOf, Tensor, Vector, blocks, ids, offsets, shares
from xclearn.inference.forms import Core, NativeRows, native_form_of
from xclearn.inference.shortlists import best_paths
from xclearn.text.vectorisers import SPARSE_ROWS

PRECISIONS = ("fp32", "bf16", "int8")
_INFINITE = 0x7F80  # exponent bits of an infinite or NaN bfloat16
_LANES = 32  # row widths are multiples of it
_BYTES = {"float32": 4, "uint8": 2, "int8": 1}  # per value, by storage type


@final
@component("rows.v1")
@dataclass(frozen=True)
class PackedRows(Part):
    """w · v + b for many rows, which are zero-padded to a multiple of 32 values."""

    # (n, W) float32; (n, 2 W) uint8, the bytes of bfloat16; (n, W) int8 in steps of `scale`
    values: Annotated[np.ndarray, Tensor("rows width", tuple(_BYTES))]
    scale: Annotated[np.ndarray, Tensor("rows", ("float32",))]
    bias: Annotated[np.ndarray, Tensor("rows", ("float32",))]

    @classmethod
    def of(cls, weight: np.ndarray, bias: np.ndarray, precision: str) -> PackedRows:
        """Round to a precision; int8 has a scale for each row."""
        n, dim = weight.shape
        padded = np.zeros((n, -(-dim // _LANES) * _LANES), dtype=np.float32)
        padded[:, :dim] = weight
        scale = np.ones(n, dtype=np.float32)
        if precision == "bf16":
            padded = _bfloat16(padded)
        elif precision == "int8":
            scale = np.abs(padded).max(axis=1) / 127
            padded /= np.where(scale > 0, scale, 1)[:, None]
            padded = np.rint(padded, out=padded).astype(np.int8)
        return cls(padded, scale.astype(np.float32), np.asarray(bias, dtype=np.float32))

    @property
    def value_bytes(self) -> int:
        return _BYTES[self.values.dtype.name]

    @property
    def native(self) -> NativeRows:
        """The form that the native core takes."""
        return self.values.view(np.uint8), self.value_bytes, self.scale, self.bias

    def take(self, order: np.ndarray) -> PackedRows:
        """A selection of rows, in this order."""
        return PackedRows(self.values[order], self.scale[order], self.bias[order])

    def weight(self, rows: np.ndarray | slice, dim: int) -> np.ndarray:
        """The weights (m, dim) float32 of these rows."""
        values = self.values[rows]
        if self.value_bytes == 2:
            bits = np.ascontiguousarray(values).view("<u2").astype(np.uint32) << 16
            return bits.view(np.float32)[:, :dim]
        return values[:, :dim] * self.scale[rows][:, None]

    def score_all(self, vectors: np.ndarray) -> np.ndarray:
        """(m, D) → (m, n)."""
        return vectors @ self.weight(slice(None), vectors.shape[1]).T + self.bias

    def score(self, vectors: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """(m, D), (m, r) → (m, r), one vector at a time to save memory."""
        pairs = zip(vectors, rows, strict=True)
        return np.stack([self.weight(own, len(vector)) @ vector + self.bias[own] for vector, own in pairs])

    def fits(self, scope: Scope, /) -> None:
        width = -(-scope.sizes["dim"] // _LANES) * _LANES * (2 if self.value_bytes == 2 else 1)
        if scope.sizes["width"] != width:
            raise ModelError("rows.v1 does not fit the vector", got=scope.sizes["width"], allowed=f"{width} values")
        if not scope.values or self.value_bytes == 4:
            return
        if self.value_bytes == 2:
            rounded = all(((block & _INFINITE) < _INFINITE).all() for block in blocks(self.values.view("<u2")))
        else:
            rounded = self.values.min() >= -127
        if not rounded:
            raise ModelError("rows.v1 holds an invalid value", allowed="finite, or −127 to 127")


@final
@component("level.v1")
@dataclass(frozen=True)
class Level(Part):
    """The nodes of one tree level, and the offsets of their children in the next."""

    rows: Annotated[PackedRows, shares("dim", rows="nodes")]
    offsets: Annotated[np.ndarray, offsets("nodes", to="children")]
    beam: Count  # nodes kept


@final
@component("cluster_index.v1")
@dataclass(frozen=True)
class ClusterIndex(Candidates):
    """The labels below the best nodes of a tree; a label's candidate logit is that of its cluster in the last level."""

    vector: Annotated[str, Vector()]  # the encoder whose vector the nodes read
    levels: Annotated[list[Level], Chain("nodes", "children", end="labels")]
    labels: Annotated[np.ndarray, ids("labels", below="labels")]  # sorted by cluster

    def find(self, vectors: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        places, logits = below_the_best(self.levels, vectors[self.vector])
        return np.where(places < 0, -1, self.labels[places].astype(np.int64)), logits


@native_form_of(ClusterIndex)
def _(index: ClusterIndex, core: Core) -> np.ndarray:
    _add_levels(index, core)
    return index.labels


@final
@component("centre_index.v1")
@dataclass(frozen=True)
class CentreIndex(Candidates):
    """Like `CentroidSearch`, restricted to the centroids below the best nodes of a tree."""

    own_logits = True
    vector: Annotated[str, Vector()]  # the encoder whose vector is compared
    levels: Annotated[list[Level], Chain("nodes", "children", end="centres")]
    centres: Annotated[PackedRows, shares("dim", rows="centres")]  # of length one, sorted by cluster
    labels: Annotated[np.ndarray, ids("centres", below="labels")]  # of each centre
    size: Count  # maximum labels found

    def find(self, vectors: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        vector = vectors[self.vector]
        places, _ = below_the_best(self.levels, vector)
        ids = np.where(places < 0, -1, self.labels[places].astype(np.int64))
        ids, cosines = best_paths(ids, self.centres.score(unit(vector), places))
        return ids[:, : self.size], cosines[:, : self.size]


@native_form_of(CentreIndex)
def _(index: CentreIndex, core: Core) -> None:
    _add_levels(index, core)
    per_label = int(np.bincount(index.labels).max())
    place = core.place_of(index.vector)
    core.native.set_centres(place, index.centres.native, index.labels, index.size, per_label)


def _add_levels(index: ClusterIndex | CentreIndex, core: Core) -> None:
    for level in index.levels:
        core.native.add_level(core.place_of(index.vector), level.rows.native, level.offsets, level.beam)


@final
@component("features.v1")
@dataclass(frozen=True)
class TokenFeatures(Encoder):
    """Passes the features through, for candidates that read tokens."""

    reads: ClassVar[tuple[str, ...]] = (SPARSE_ROWS,)
    gives: ClassVar[str] = SPARSE_ROWS
    n_features: Annotated[int, SizeOf("features")]

    @property
    def dim(self) -> int:  # type: ignore[override]
        return self.n_features

    def encode(self, features: sp.csr_matrix | np.ndarray) -> Any:
        return features


@native_form_of(TokenFeatures)
def _(_: TokenFeatures, core: Any) -> bool:  # noqa: ARG001
    return False


@final
@component("token_index.v1")
@dataclass(frozen=True)
class TokenIndex(Candidates):
    """The labels with the largest sum of weights over a text's tokens, and some labels always."""

    vector: Annotated[str, Vector(forms=(SPARSE_ROWS,))]  # the encoder that passes the tokens through
    offsets: Annotated[np.ndarray, offsets("dim", to="entries")]
    labels: Annotated[np.ndarray, ids("entries", below="labels", empty=True)]  # the heaviest of a token first
    weights: Annotated[np.ndarray, Tensor("entries", ("float32",), empty=True)]
    always: Annotated[np.ndarray, ids("always", below="labels", empty=True)]
    tokens: Count  # heaviest tokens of a text to look up
    postings: Count  # postings read per token
    shortlist: Count  # labels kept, including those of `always`

    def find(self, vectors: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """All candidates get logit +∞, as being one carries no further information."""
        found = [self._shortlist(row.indices, row.data) for row in sp.csr_matrix(vectors[self.vector])]
        ids = np.full((len(found), max(map(len, found), default=0)), -1, dtype=np.int64)
        for row, own in zip(ids, found, strict=True):
            row[: len(own)] = own
        return ids, np.full(ids.shape, np.inf, dtype=np.float32)

    def _shortlist(self, tokens: np.ndarray, weights: np.ndarray) -> np.ndarray:
        heaviest = np.sort(np.lexsort((tokens, -weights))[: self.tokens])
        starts = self.offsets[tokens[heaviest]]
        sizes = np.minimum(self.offsets[tokens[heaviest] + 1] - starts, self.postings)
        places = np.repeat(starts - np.cumsum(sizes) + sizes, sizes) + np.arange(sizes.sum())
        labels, member = np.unique(np.concatenate([self.always, self.labels[places]]), return_inverse=True)
        sums = np.zeros(len(labels), dtype=np.float32)
        added = np.repeat(weights[heaviest], sizes) * self.weights[places]
        np.add.at(sums, member, np.concatenate([np.full(len(self.always), np.inf, dtype=np.float32), added]))
        return labels[np.lexsort((labels, -sums))[: self.shortlist]]


@native_form_of(TokenIndex)
def _(index: TokenIndex, core: Core) -> None:
    arrays = index.offsets, index.labels, index.weights, index.always
    core.native.set_index(*arrays, index.tokens, index.postings, index.shortlist)


@final
@component("row_classifier.v1")
@dataclass(frozen=True)
class PackedClassifier(Scorer):
    """logit = w_l · v + b_l, with rows in 8, 16 or 32 bits and in any order."""

    vector: Annotated[str, Vector()]  # the encoder whose vector it reads
    rows: Annotated[PackedRows, shares("dim", rows="labels")]
    labels: Annotated[
        np.ndarray, ids("named", below="labels", empty=True)
    ]  # label of each row; empty: the row's number

    @property
    def n_labels(self) -> int:  # type: ignore[override]
        return len(self.rows.bias)

    @cached_property
    def row_of_label(self) -> np.ndarray:
        """(L,)"""
        return np.argsort(self.labels) if len(self.labels) else np.arange(self.n_labels)

    def score_all(self, vectors: np.ndarray) -> np.ndarray:
        return self.rows.score_all(vectors)[:, self.row_of_label]

    def score(self, vectors: np.ndarray, ids: np.ndarray) -> np.ndarray:
        return self.rows.score(vectors, self.row_of_label[ids])

    def fits(self, _: Scope, /) -> None:
        if len(self.labels) not in (0, self.n_labels):
            raise ModelError("row_classifier.v1 does not have one label for each row", got=len(self.labels))


@native_form_of(PackedClassifier)
def _(scorer: PackedClassifier) -> tuple[NativeRows, np.ndarray | None]:
    return scorer.rows.native, scorer.labels if len(scorer.labels) else None


def below_the_best(levels: list[Level], vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(m, D) → the children of the best nodes of the last level (m, c), padded with −1, and their logits."""
    logits = levels[0].rows.score_all(vectors)  # (m, nodes)
    nodes = np.broadcast_to(np.arange(logits.shape[1]), logits.shape)
    for i, level in enumerate(levels):
        if i > 0:
            logits = np.where(nodes < 0, -np.inf, level.rows.score(vectors, nodes))
        order = np.lexsort((nodes, -logits), axis=1)[:, : level.beam]
        kept = np.take_along_axis(nodes, order, axis=1)
        best = np.take_along_axis(logits, order, axis=1)
        nodes, logits = below(level.offsets, kept, best)
    return nodes, logits


def _bfloat16(values: np.ndarray) -> np.ndarray:
    """The bytes (n, 2 W) of the nearest bfloat16, ties to even."""
    bits = values.view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return rounded.astype("<u2").view(np.uint8)
