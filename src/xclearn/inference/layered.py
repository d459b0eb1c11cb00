"""Adds layers to an encoder that has none. Knows nothing about what the encoder reads or how it was trained."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, final

from xclearn.errors import ModelError
from xclearn.inference.arrays import Array
from xclearn.inference.components import Bag, Encoder, Layer, component
from xclearn.inference.declared import Scope, shares
from xclearn.text.vectorisers import DENSE_ROWS


@final
@component("layered.v1")
@dataclass(frozen=True)
class Layered(Encoder):
    """An encoder followed by layers."""

    on_device = True
    encoder: Annotated[Encoder, shares("features", "dim")]
    layers: Annotated[list[Layer], shares("dim", empty=True)]

    @property
    def dim(self) -> int:  # type: ignore[override]
        return self.encoder.dim

    @property
    def n_features(self) -> int:  # type: ignore[override]
        return self.encoder.n_features

    def encode(self, features: Any) -> Array:
        vectors = self.encoder.encode(features)  # (n, D)
        for layer in self.layers:
            vectors = layer(vectors)
        return vectors

    @property
    def reads(self) -> tuple[str, ...]:  # type: ignore[override]
        return self.encoder.reads

    def fits(self, _: Scope, /) -> None:
        if self.encoder.gives != DENSE_ROWS:
            raise ModelError("layered.v1 reads dense vectors", got=self.encoder.gives)


def layered(encoder: Encoder, layers: Sequence[Layer]) -> Encoder:
    """The encoder followed by these layers; a bag appends them to its own."""
    if isinstance(encoder, Bag):
        return dataclasses.replace(encoder, layers=[*encoder.layers, *layers])
    return Layered(encoder, list(layers))
