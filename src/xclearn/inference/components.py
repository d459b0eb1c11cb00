"""The pieces a servable is composed of: encoders, candidates, scorers, fusion, steps after it.

Each is a final frozen dataclass registered under a versioned name, so that a saved model names what it needs and an old
file keeps working when a v2 comes. Arrays are tensors of the model folder, everything else is JSON. A piece that says
`on_device` is written with `arrays.py` and also computes on a GPU. Nothing here knows an algorithm, a label's name,
torch, or how a piece was trained.
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
    """Register a class under its versioned name, and under older ones whose fields it also takes."""

    def register(cls: type[T]) -> type[T]:
        COMPONENTS.update(dict.fromkeys((name, *older), cls))
        cls.kind = name  # type: ignore[attr-defined]
        return cls

    return register


class Layer(Part, ABC):
    """A step between the bag and the vector."""

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
    """g_block ⊙ (W max(0, v) + b) + g_skip ⊙ v: DECAF's embedding block with its gates already squashed."""

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
    """v / ‖v‖; a vector of zeros stays as it is."""

    on_device = True

    def __call__(self, vectors: Array) -> Array:
        return arrays.unit(vectors)


@native_form_of(Unit)
def _(_: Unit, core: Any) -> None:
    core.add_unit()


class Encoder(Part, ABC):
    """Features of documents → one vector each."""

    reads: ClassVar[tuple[str, ...]] = (SPARSE_ROWS, DENSE_ROWS)  # forms of features
    gives: ClassVar[str] = DENSE_ROWS  # form of its vectors
    dim: int
    n_features: int

    @abstractmethod
    def encode(self, features: sp.csr_matrix | np.ndarray) -> Array: ...  # (n, D) float32


@final
@component("bag.v1")
@dataclass(frozen=True)
class Bag(Encoder):
    """The weighted sum of token embeddings, then layers. Dense features are multiplied the same way."""

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
    """Which labels are scored for a document."""

    width: int = 1  # values that finding one document's labels takes on a device
    own_logits: ClassVar[bool] = False  # whether the labels found have a logit each, not that of their cluster

    @abstractmethod
    def find(self, vectors: Mapping[str, Array]) -> tuple[Array, Array] | None:
        """Label ids (n, m), −1 where there are fewer, and the logit of each as a candidate; None means every label."""


@final
@component("all_labels.v1")
@dataclass(frozen=True)
class AllLabels(Candidates):
    """Every label is scored for every document: exact."""

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
    """The labels of the best clusters. A label is in one cluster; its candidate logit is the cluster's."""

    on_device = True
    vector: Annotated[str, Vector()]  # the encoder whose vector the clusters read
    weight: Annotated[np.ndarray, Tensor("clusters dim")]
    bias: Annotated[np.ndarray, Tensor("clusters")]
    labels: Annotated[np.ndarray, ids("labels", below="labels", kind="int64")]  # cluster after cluster
    offsets: Annotated[np.ndarray, offsets("clusters", to="labels")]
    beam: Count  # clusters kept

    @property
    def width(self) -> int:  # type: ignore[override]
        return max(len(self.bias), self.beam * int((self.offsets[1:] - self.offsets[:-1]).max()))

    def find(self, vectors: Mapping[str, Array]) -> tuple[Array, Array]:
        return self.labels_of(*self.best(vectors))

    def best(self, vectors: Mapping[str, Array]) -> tuple[Array, Array]:
        """The clusters (n, beam) kept for each document, and their logits."""
        logits = vectors[self.vector] @ self.weight.T + self.bias  # (n, K)
        return arrays.top(logits, min(self.beam, len(self.bias)))

    def labels_of(self, clusters: Array, logits: Array) -> tuple[Array, Array]:
        """Clusters (n, b), −1 where there are fewer, and their logits → the same of their labels."""
        places, logits = below(self.offsets, clusters, logits)
        return arrays.module(places).where(places < 0, -1, self.labels[places]), logits


@native_form_of(ClusterBeam)
def _(stage: ClusterBeam, core: Core) -> np.ndarray:
    rows = exact_rows(stage.weight, stage.bias)
    offsets = as_kind(stage.offsets, np.int64)
    core.native.add_level(core.place_of(stage.vector), rows, offsets, stage.beam)
    return as_kind(stage.labels, np.int32)


def below(offsets: Array, nodes: Array, logits: Array) -> tuple[Array, Array]:
    """Nodes (n, b), −1 where there are fewer, and their logits → what stands below them (n, m), and its logits.

    As wide as the most that stands below the nodes of a row together: one large node does not widen the others.
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
    """The numbers of m ranges, one after the other: the range of each, and the number."""
    lengths = ends - begins
    owner = arrays.owners(lengths)
    return owner, arrays.numbers(len(owner), owner) - (lengths.cumsum(0) - lengths - begins)[owner]


class Scorer(Part, ABC):
    """Scores labels with one named vector."""

    vector: str
    n_labels: int
    by_label: ClassVar[tuple[str, ...]] = ()  # fields that have a row for each label

    @final
    def block(self, own: slice) -> Self:
        """The scorer of these labels alone; of one whose fields stand `by_label`."""
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
        for start in range(0, len(ids), few):  # the rows of many documents would not fit into memory
            rows = slice(start, start + few)
            own = ids[rows]
            logits[rows] = (self.weight[own] @ vectors[rows, :, None])[:, :, 0] + self.bias[own]
        return logits


@native_form_of(Classifier)
def _(scorer: Classifier) -> tuple[NativeRows, None]:
    return exact_rows(scorer.weight, scorer.bias), None


class Fusion(Part, ABC):
    """The candidates' and scorers' logits → one score in [0, 1]."""

    @abstractmethod
    def __call__(self, candidate: Array | None, logits: Sequence[Array]) -> Array:
        """Each (n, m) → (n, m); `candidate` is None when every label was a candidate. −∞ stands where there is none."""


@final
@component("sigmoid.v1")
@dataclass(frozen=True)
class Sigmoid(Fusion):
    """σ of the one scorer's logit; what made a label a candidate does not count."""

    on_device = True

    def __call__(self, candidate: Array | None, logits: Sequence[Array]) -> Array:  # noqa: ARG002
        (only,) = logits
        return arrays.sigmoid(only)

    def fits(self, scope: Scope, /) -> None:
        if scope.sizes["scorers"] != 1:
            raise ModelError("sigmoid.v1 reads one scorer", got=scope.sizes["scorers"])


@native_form_of(Sigmoid)
def _(_: Sigmoid, core: Core) -> None:
    """What the core does unless it is told otherwise."""


@final
@component("product.v1")
@dataclass(frozen=True)
class Product(Fusion):
    """σ(candidate) · σ(scorer) · …: the probability of the cluster times that of the label in it."""

    on_device = True

    def __call__(self, candidate: Array | None, logits: Sequence[Array]) -> Array:
        factors = [arrays.sigmoid(each) for each in (*logits, *(() if candidate is None else (candidate,)))]
        return reduce(operator.mul, factors)


@native_form_of(Product)
def _(_: Product, core: Core) -> None:
    core.native.set_product()


class Step(Part, ABC):
    """What happens to the best labels of a document after fusion: they are re-ranked, or bring in others."""

    depth: int  # best labels that it is given

    @property
    def reads(self) -> frozenset[str]:
        """The encoders whose vectors it asks for."""
        return frozenset()

    @abstractmethod
    def __call__(
        self, vectors: Mapping[str, np.ndarray], ids: np.ndarray, scores: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Ids (n, m), −1 where there are fewer, and scores, −∞ there → the same of another width, in any order."""
