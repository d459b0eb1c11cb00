"""The forms that `xc export` writes, in NumPy: rows of 8, 16 or 32 bits, an index of tokens, trees of clusters.

Rows that are read together stand together: those of a classifier by cluster, those of a level of the tree by their
parent. This order stays inside; label ids go in and out. Knows nothing about how a form was chosen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np
import scipy.sparse as sp

from xclearn.errors import ModelError
from xclearn.inference.components import Candidates, Encoder, Scorer, component, unit
from xclearn.inference.shortlists import best_paths

PRECISIONS = ("fp32", "bf16", "int8")
_LANES = 32  # the width of a row is a multiple of it
_BYTES = {"float32": 4, "uint8": 2, "int8": 1}  # of a value, by the type it is stored as


@final
@component("rows.v1")
@dataclass(frozen=True)
class Rows:
    """w · v + b of many rows; a row is padded with zeros to a multiple of 32 values."""

    values: np.ndarray  # (n, W) float32; (n, 2 W) uint8, the bytes of bfloat16; (n, W) int8 in steps of `scale`
    scale: np.ndarray  # (n,) float32
    bias: np.ndarray  # (n,) float32

    @classmethod
    def of(cls, weight: np.ndarray, bias: np.ndarray, precision: str) -> Rows:
        """Rounded to the nearest value of a precision; int8 gives each row its own step."""
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

    def take(self, order: np.ndarray) -> Rows:
        """These rows, in this order."""
        return Rows(self.values[order], self.scale[order], self.bias[order])

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
        """(m, D), (m, r) → (m, r). One vector at a time: the rows of many would not fit into memory."""
        pairs = zip(vectors, rows, strict=True)
        return np.stack([self.weight(own, len(vector)) @ vector + self.bias[own] for vector, own in pairs])

    def check(self, dim: int, n: int, name: str) -> None:
        """Refuse shapes and types that do not fit."""
        width = -(-dim // _LANES) * _LANES * (2 if self.values.dtype == np.uint8 else 1)
        fits = self.values.dtype.name in _BYTES and self.values.shape == (n, width)
        if not fits or any(part.dtype != np.float32 or part.shape != (n,) for part in (self.scale, self.bias)):
            got = f"{self.values.dtype} {self.values.shape}"
            raise ModelError(f"the rows of {name} do not fit", got=got, allowed=f"{n} rows of {dim} values, padded")


@final
@component("level.v1")
@dataclass(frozen=True)
class Level:
    """The nodes of one level of the tree, and where the children of each stand in the next."""

    rows: Rows  # n nodes
    offsets: np.ndarray  # (n + 1,) int64
    beam: int  # nodes kept

    def children(self, nodes: np.ndarray, logits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Nodes (m, b) and their logits → their children (m, b · most), −1 where there are fewer, and the logits."""
        most = int(np.diff(self.offsets).max())
        places = self.offsets[nodes][:, :, None] + np.arange(most)
        there = (places < self.offsets[nodes + 1][:, :, None]) & (nodes >= 0)[:, :, None]
        return np.where(there, places, -1).reshape(len(nodes), -1), np.repeat(logits, most, axis=1)

    def check(self, dim: int, n_children: int) -> None:
        """Refuse shapes that do not fit, and offsets that do not walk through the children."""
        n = len(self.rows.bias)
        self.rows.check(dim, n, "a level")
        check_offsets(self.offsets, n, n_children, "level")
        if self.beam < 1:
            raise ModelError("a level keeps no node", got=self.beam)


@final
@component("cluster_index.v1")
@dataclass(frozen=True)
class ClusterIndex(Candidates):
    """The labels below the best nodes of a tree; a label's candidate logit is that of its cluster, the last level."""

    vector: str  # the encoder whose vector the nodes read
    levels: list[Level]
    labels: np.ndarray  # (L,) int32 label ids, cluster after cluster

    def find(self, vectors: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        places, logits = below_the_best(self.levels, vectors[self.vector])
        return np.where(places < 0, -1, self.labels[places].astype(np.int64)), logits

    def check(self, dims: Mapping[str, int], n_labels: int) -> None:
        check_levels(self.levels, self.vector, dims, n_labels)
        check_labels(self.labels, n_labels, n_labels, "cluster_index")


@final
@component("centre_index.v1")
@dataclass(frozen=True)
class CentreIndex(Candidates):
    """As `CentroidSearch`, among the centres below the best nodes of a tree."""

    vector: str  # the encoder whose vector is compared
    levels: list[Level]
    centres: Rows  # M, of length one, cluster after cluster
    labels: np.ndarray  # (M,) int32 the label of each centre
    size: int  # labels found, at most

    def find(self, vectors: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        vector = vectors[self.vector]
        places, _ = below_the_best(self.levels, vector)
        ids = np.where(places < 0, -1, self.labels[places].astype(np.int64))
        ids, cosines = best_paths(ids, self.centres.score(unit(vector), places))
        return ids[:, : self.size], cosines[:, : self.size]

    def check(self, dims: Mapping[str, int], n_labels: int) -> None:
        check_levels(self.levels, self.vector, dims, len(self.labels))
        self.centres.check(dims[self.vector], len(self.labels), "centre_index")
        check_labels(self.labels, len(self.labels), n_labels, "centre_index")
        if self.size < 1:
            raise ModelError("centre_index finds no label", got=self.size)


@final
@component("features.v1")
@dataclass(frozen=True)
class Features(Encoder):
    """The features themselves as the vector, for candidates that read tokens."""

    n_features: int

    @property
    def dim(self) -> int:  # type: ignore[override]
        return self.n_features

    def encode(self, features: sp.csr_matrix | np.ndarray) -> Any:
        return features

    def check(self) -> None:
        """Has no tensors."""


@final
@component("token_index.v1")
@dataclass(frozen=True)
class TokenIndex(Candidates):
    """The labels that go best with the tokens of a text, by the sum of their weights there; and some always."""

    vector: str  # the encoder that passes the tokens on
    offsets: np.ndarray  # (V + 1,) int64 where the postings of each token start
    labels: np.ndarray  # (p,) int32 label ids, the heaviest of a token first
    weights: np.ndarray  # (p,) float32
    always: np.ndarray  # (a,) int32 label ids
    tokens: int  # of a text that are looked up, the heaviest
    postings: int  # of a token that are read
    shortlist: int  # labels kept, those of `always` among them

    def find(self, vectors: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """All candidates have logit +∞: to be one says nothing more."""
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

    def check(self, dims: Mapping[str, int], n_labels: int) -> None:
        if self.vector not in dims or min(self.tokens, self.postings, self.shortlist) < 1:
            raise ModelError("the index reads tokens that no encoder passes on, or keeps none", got=self.vector)
        check_offsets(self.offsets, dims[self.vector], len(self.labels), "token_index")
        check_labels(self.labels, len(self.labels), n_labels, "token_index")
        check_labels(self.always, len(self.always), n_labels, "token_index")
        if self.weights.dtype != np.float32 or self.weights.shape != self.labels.shape:
            raise ModelError("token_index.weights do not fit its labels", got=self.weights.shape)


@final
@component("row_classifier.v1")
@dataclass(frozen=True)
class RowClassifier(Scorer):
    """logit = w_l · v + b_l, with the rows in an order of their own and in 8, 16 or 32 bits."""

    vector: str  # the encoder whose vector it reads
    rows: Rows  # L rows
    labels: np.ndarray  # (L,) int32 the label of each row; or empty: that is its number

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

    def check(self, dim: int) -> None:
        self.rows.check(dim, self.n_labels, "row_classifier")
        check_labels(self.labels, self.n_labels if len(self.labels) else 0, self.n_labels, "row_classifier")


def below_the_best(levels: list[Level], vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(m, D) → what stands below the best nodes of the last level (m, c), −1 where there is less, and their logits."""
    logits = levels[0].rows.score_all(vectors)  # (m, nodes)
    nodes = np.broadcast_to(np.arange(logits.shape[1]), logits.shape)
    for i, level in enumerate(levels):
        if i > 0:
            logits = np.where(nodes < 0, -np.inf, level.rows.score(vectors, nodes))
        order = np.lexsort((nodes, -logits), axis=1)[:, : level.beam]
        kept, best = np.take_along_axis(nodes, order, axis=1), np.take_along_axis(logits, order, axis=1)
        nodes, logits = level.children(kept, best)
    return nodes, logits


def check_levels(levels: list[Level], vector: str, dims: Mapping[str, int], n_children: int) -> None:
    """Refuse levels that do not fit each other, the vector, or what stands below the last."""
    if vector not in dims or not levels:
        raise ModelError("the index reads a vector that no encoder makes, or is empty", got=vector)
    for level in reversed(levels):
        level.check(dims[vector], n_children)
        n_children = len(level.rows.bias)


def check_labels(labels: np.ndarray, size: int, n_labels: int, name: str) -> None:
    """Ids outside the labels would be read from outside the model; the file's hash guards against the rest."""
    inside = labels.dtype == np.int32 and (size == 0 or (labels.min() >= 0 and labels.max() < n_labels))
    if not inside or labels.shape != (size,):
        raise ModelError(f"{name}.labels are not label ids", got=labels.shape, allowed=f"({size},) int32")


def check_offsets(offsets: np.ndarray, n: int, end: int, name: str) -> None:
    """Refuse offsets that do not walk from 0 to `end` in n steps."""
    fits = offsets.dtype == np.int64 and offsets.shape == (n + 1,) and n > 0
    if not fits or offsets[0] != 0 or offsets[-1] != end or (np.diff(offsets) < 0).any():
        raise ModelError(f"{name}.offsets do not walk through it", got=offsets.shape, allowed=f"0 … {end} in {n} steps")


def _bfloat16(values: np.ndarray) -> np.ndarray:
    """The bytes (n, 2 W) of the nearest bfloat16, ties to even."""
    bits = values.view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return rounded.astype("<u2").view(np.uint8)
