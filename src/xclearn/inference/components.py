"""The components of a servable: encoders, candidates, scorers, fusion, and steps after it.

Each is a final frozen dataclass registered under a versioned name. A saved model refers to that name, so old files keep
working when there is a v2. Arrays are stored as tensors, everything else as JSON. A component with `on_device` is
written with `arrays.py` and also runs on a GPU. Knows nothing about algorithms, label names, torch or training.
"""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Annotated, Any, ClassVar, Self, TypeVar, final

import numpy as np
import scipy.sparse as sp

from xclearn.config import Count
from xclearn.errors import ModelError
from xclearn.inference import arrays
from xclearn.inference.arrays import Array
from xclearn.inference.declared import Part, Scope, Tensor, Vector, ids, offsets, shares
from xclearn.inference.forms import Core, NativeRows, as_kind, exact_rows, native_form, native_form_of
from xclearn.text.vectorisers import DENSE_ROWS, SPARSE_ROWS

COMPONENTS: dict[str, type] = {}
T = TypeVar("T")


def component(name: str, *older: str):  # type: ignore[no-untyped-def]
    """Register a class under its versioned name, and under older names whose fields it still accepts."""

    def register(cls: type[T]) -> type[T]:
        COMPONENTS.update(dict.fromkeys((name, *older), cls))
        cls.kind = name  # type: ignore[attr-defined]
        return cls

    return register


class Layer(Part, ABC):
    """A layer after the sum of token embeddings."""

    @abstractmethod
    def __call__(self, vectors: Array) -> Array: ...  # (n, D) → (n, D)


@final
@component("relu.v1")
@dataclass(frozen=True)
class Relu(Layer):
    """max(0, v)."""

    on_device = True

    def __call__(self, vectors: Array) -> Array:
        return vectors.clip(0)


@native_form_of(Relu)
def _(_: Relu, core: Any) -> None:
    core.add_relu()


@final
@component("residual.v1")
@dataclass(frozen=True)
class Residual(Layer):
    """v + max(0, W v + b)."""

    on_device = True
    weight: Annotated[np.ndarray, Tensor("dim dim")]
    bias: Annotated[np.ndarray, Tensor("dim")]

    def __call__(self, vectors: Array) -> Array:
        return vectors + (vectors @ self.weight.T + self.bias).clip(0)


@native_form_of(Residual)
def _(layer: Residual, core: Any) -> None:
    core.add_residual(*(as_kind(part, np.float32) for part in (layer.weight, layer.bias)))


@final
@component("gated_block.v1")
@dataclass(frozen=True)
class GatedBlock(Layer):
    """g_block ⊙ (W max(0, v) + b) + g_skip ⊙ v: DECAF's embedding block, with gates after the sigmoid."""

    on_device = True
    weight: Annotated[np.ndarray, Tensor("dim dim")]
    bias: Annotated[np.ndarray, Tensor("dim")]
    block_gate: Annotated[np.ndarray, Tensor("dim")]  # in 0…1
    skip_gate: Annotated[np.ndarray, Tensor("dim")]  # in 0…1

    def __call__(self, vectors: Array) -> Array:
        inner = vectors.clip(0) @ self.weight.T + self.bias
        return self.block_gate * inner + self.skip_gate * vectors


@native_form_of(GatedBlock)
def _(layer: GatedBlock, core: Any) -> None:
    parts = layer.weight, layer.bias, layer.block_gate, layer.skip_gate
    core.add_gated(*(as_kind(part, np.float32) for part in parts))


@final
@component("unit.v1")
@dataclass(frozen=True)
class Unit(Layer):
    """v / ‖v‖; zero vectors stay zero."""

    on_device = True

    def __call__(self, vectors: Array) -> Array:
        return arrays.unit(vectors)


@native_form_of(Unit)
def _(_: Unit, core: Any) -> None:
    core.add_unit()


class Encoder(Part, ABC):
    """Maps the features of a document to a vector."""

    reads: ClassVar[tuple[str, ...]] = (SPARSE_ROWS, DENSE_ROWS)  # accepted forms of features
    gives: ClassVar[str] = DENSE_ROWS  # form of the vectors
    dim: int
    n_features: int

    @abstractmethod
    def encode(self, features: sp.csr_matrix | np.ndarray) -> Array: ...  # (n, D) float32


@final
@component("bag.v1")
@dataclass(frozen=True)
class Bag(Encoder):
    """The weighted sum of token embeddings, followed by layers. Dense features work the same way."""

    on_device = True
    token_embeddings: Annotated[np.ndarray, Tensor("features dim")]
    layers: Annotated[list[Layer], shares("dim", empty=True)]

    @property
    def dim(self) -> int:  # type: ignore[override]
        return self.token_embeddings.shape[1]

    @property
    def n_features(self) -> int:  # type: ignore[override]
        return self.token_embeddings.shape[0]

    def encode(self, features: sp.csr_matrix | np.ndarray) -> Array:
        vectors = arrays.rows_times(features, self.token_embeddings)  # (n, D)
        for layer in self.layers:
            vectors = layer(vectors)
        return vectors


@native_form_of(Bag)
def _(bag: Bag, core: Any) -> bool:
    core.add_encoder(as_kind(bag.token_embeddings, np.float32))
    for layer in bag.layers:
        native_form(layer, core)
    return True


class Candidates(Part, ABC):
    """Selects the labels that are scored for a document."""

    width: int = 1  # values per document held on a device while finding labels
    own_logits: ClassVar[bool] = False  # whether labels have their own logits, not their cluster's

    @abstractmethod
    def find(self, vectors: Mapping[str, Array]) -> tuple[Array, Array] | None:
        """Label ids (n, m), padded with −1, and their logits as candidates; None means all labels."""

    @property
    def beam_width(self) -> int:
        """The number of clusters it keeps; 0 if it has none."""
        return 0

    def with_beam(self, beam: int) -> Candidates:  # noqa: ARG002
        """The same stage with another beam, if it has one."""
        return self


@final
@component("all_labels.v1")
@dataclass(frozen=True)
class AllLabels(Candidates):
    """Scores every label for every document, which is exact."""

    on_device = True

    def find(self, vectors: Mapping[str, Array]) -> None:  # noqa: ARG002
        return None


@native_form_of(AllLabels)
def _(_: AllLabels, core: Core) -> np.ndarray | None:
    return core.row_labels


@final
@component("cluster_beam.v1")
@dataclass(frozen=True)
class ClusterBeam(Candidates):
    """The labels of the best clusters. Each label is in one cluster, whose logit is its candidate logit."""

    on_device = True
    vector: Annotated[str, Vector()]  # the encoder whose vector the clusters read
    weight: Annotated[np.ndarray, Tensor("clusters dim")]
    bias: Annotated[np.ndarray, Tensor("clusters")]
    labels: Annotated[np.ndarray, ids("labels", below="labels", kind="int64")]  # sorted by cluster
    offsets: Annotated[np.ndarray, offsets("clusters", to="labels")]
    beam: Count  # clusters kept

    @property
    def width(self) -> int:  # type: ignore[override]
        return max(len(self.bias), self.beam * int((self.offsets[1:] - self.offsets[:-1]).max()))

    @property
    def beam_width(self) -> int:
        return self.beam

    def with_beam(self, beam: int) -> ClusterBeam:
        return replace(self, beam=beam)

    def find(self, vectors: Mapping[str, Array]) -> tuple[Array, Array]:
        return self.labels_of(*self.best(vectors))

    def best(self, vectors: Mapping[str, Array]) -> tuple[Array, Array]:
        """The best clusters (n, beam) of each document, and their logits."""
        logits = vectors[self.vector] @ self.weight.T + self.bias  # (n, K)
        return arrays.top(logits, min(self.beam, len(self.bias)))

    def labels_of(self, clusters: Array, logits: Array) -> tuple[Array, Array]:
        """Expand clusters (n, b), padded with −1, and their logits to labels."""
        places, logits = below(self.offsets, clusters, logits)
        return arrays.module(places).where(places < 0, -1, self.labels[places]), logits


@native_form_of(ClusterBeam)
def _(stage: ClusterBeam, core: Core) -> np.ndarray:
    rows = exact_rows(stage.weight, stage.bias)
    offsets = as_kind(stage.offsets, np.int64)
    core.native.add_level(core.place_of(stage.vector), rows, offsets, stage.beam)
    return as_kind(stage.labels, np.int32)


def below(offsets: Array, nodes: Array, logits: Array) -> tuple[Array, Array]:
    """Expand nodes (n, b), padded with −1, and their logits to their children (n, m).

    The width is the largest number of children in a row, so one large node does not widen all rows.
    """
    xp = arrays.module(nodes)
    ends = xp.where(nodes < 0, offsets[nodes], offsets[nodes + 1])
    owner, places = ranges(offsets[nodes].ravel(), ends.ravel())
    row = owner // max(1, nodes.shape[1])
    column = arrays.numbers(len(row), row) - xp.searchsorted(row, row)
    shape = (len(nodes), int(column.max()) + 1 if len(column) else 0)
    found = arrays.filled(shape, -1, places)
    passed = arrays.filled(shape, -np.inf, logits)
    found[row, column], passed[row, column] = places, logits.ravel()[owner]
    return found, passed


def ranges(begins: Array, ends: Array) -> tuple[Array, Array]:
    """The concatenated numbers of m ranges: for each, the index of its range, and the number."""
    lengths = ends - begins
    owner = arrays.owners(lengths)
    return owner, arrays.numbers(len(owner), owner) - (lengths.cumsum(0) - lengths - begins)[owner]


class Scorer(Part, ABC):
    """Scores labels using one named vector."""

    vector: str
    n_labels: int
    by_label: ClassVar[tuple[str, ...]] = ()  # fields with one row per label

    @final
    def block(self, own: slice) -> Self:
        """The scorer restricted to these labels, for scorers with `by_label` fields."""
        return replace(self, **{name: getattr(self, name)[own] for name in self.by_label})  # type: ignore[type-var]

    @abstractmethod
    def score_all(self, vectors: Array) -> Array: ...  # (n, D) → logits (n, L)

    @abstractmethod
    def score(self, vectors: Array, ids: Array) -> Array: ...  # (n, D), (n, m) → logits (n, m)


@final
@component("classifier.v1")
@dataclass(frozen=True)
class Classifier(Scorer):
    """logit = w_l · v + b_l."""

    on_device = True
    by_label = ("weight", "bias")
    vector: Annotated[str, Vector()]  # the encoder whose vector it reads
    weight: Annotated[np.ndarray, Tensor("labels dim")]
    bias: Annotated[np.ndarray, Tensor("labels")]

    @property
    def n_labels(self) -> int:  # type: ignore[override]
        return self.weight.shape[0]

    def score_all(self, vectors: Array) -> Array:
        logits = vectors @ self.weight.T  # (n, L)
        logits += self.bias
        return logits

    def score(self, vectors: Array, ids: Array) -> Array:
        logits = arrays.filled(ids.shape, 0, vectors)
        few = max(1, arrays.gathered_at_once(vectors) // max(1, ids.shape[1] * vectors.shape[1]))
        for start in range(0, len(ids), few):  # rows of all documents at once may not fit into memory
            rows = slice(start, start + few)
            own = ids[rows]
            logits[rows] = (self.weight[own] @ vectors[rows, :, None])[:, :, 0] + self.bias[own]
        return logits


@native_form_of(Classifier)
def _(scorer: Classifier) -> tuple[NativeRows, None]:
    return exact_rows(scorer.weight, scorer.bias), None


class Fusion(Part, ABC):
    """Combines the logits of candidates and scorers into one score in [0, 1]."""

    @abstractmethod
    def __call__(self, candidate: Array | None, logits: Sequence[Array]) -> Array:
        """Combine (n, m) logits; `candidate` is None if all labels are candidates, and −∞ for missing ones."""


@final
@component("sigmoid.v1")
@dataclass(frozen=True)
class Sigmoid(Fusion):
    """σ of the scorer's logit; the candidate logit is ignored."""

    on_device = True

    def __call__(self, candidate: Array | None, logits: Sequence[Array]) -> Array:  # noqa: ARG002
        (only,) = logits
        return arrays.sigmoid(only)

    def fits(self, scope: Scope, /) -> None:
        if scope.sizes["scorers"] != 1:
            raise ModelError("sigmoid.v1 reads one scorer", got=scope.sizes["scorers"])


@native_form_of(Sigmoid)
def _(_: Sigmoid, core: Core) -> None:
    """The default of the native core."""


@final
@component("product.v1")
@dataclass(frozen=True)
class Product(Fusion):
    """σ(candidate) · σ(scorer) · …: the probability of the cluster times that of the label given the cluster."""

    on_device = True

    def __call__(self, candidate: Array | None, logits: Sequence[Array]) -> Array:
        factors = [arrays.sigmoid(each) for each in (*logits, *(() if candidate is None else (candidate,)))]
        return reduce(operator.mul, factors)


@native_form_of(Product)
def _(_: Product, core: Core) -> None:
    core.native.set_product()


class Step(Part, ABC):
    """Processes the best labels of a document after fusion: re-ranks them or adds others."""

    depth: int  # number of best labels it processes

    @property
    def reads(self) -> frozenset[str]:
        """The names of the encoders whose vectors it reads."""
        return frozenset()

    @abstractmethod
    def __call__(
        self, vectors: Mapping[str, np.ndarray], ids: np.ndarray, scores: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Transform ids (n, m), padded with −1, and scores, padded with −∞; the width and order may change."""
