"""The other form of a component, found by its class: what the native core is told of it.

A component's module registers the form beside the class, so that a new component edits no list. A component without a
form, or one whose form does not fit what stands beside it, leaves the model to NumPy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, final

import numpy as np

from xclearn.inference.declared import Part

if TYPE_CHECKING:
    from xclearn.inference.servable import Servable

NativeRows = tuple[np.ndarray, int, np.ndarray, np.ndarray]  # values as bytes, bytes of a value, scale, bias
Function = TypeVar("Function", bound=Callable[..., Any])

_native: dict[type[Part], Callable[..., Any]] = {}


@final
class NoNativeForm(Exception):
    """The native core cannot do what this component does, or not beside the others."""


@final
@dataclass(frozen=True)
class Core:
    """The native core of a model while it is being made, and what its components need to know of each other."""

    native: Any  # the C++ object
    servable: Servable
    place: Mapping[str, int]  # of each vector that the core makes
    row_labels: np.ndarray | None  # the label of each row of the first scorer; None where that is its number

    def place_of(self, vector: str) -> int:
        """The place of a vector that a component reads."""
        if vector not in self.place:
            raise NoNativeForm
        return self.place[vector]


def native_form_of(kind: type[Part]) -> Callable[[Function], Function]:
    """Register what makes the native form of a component.

    | component | called with | gives |
    |---|---|---|
    | encoder | itself, the C++ object | whether the core makes its vector |
    | layer | itself, the C++ object | |
    | scorer | itself | its rows, and the label of each or None |
    | candidates | itself, `Core` | the label at each position of the search, or None |
    | fusion, step | itself, `Core` | |
    """

    def register(make: Function) -> Function:
        _native[kind] = make
        return make

    return register


def native_form(part: Part, *context: Any) -> Any:
    """Tell the core of a component, or get what the core needs of it."""
    if type(part) not in _native:
        raise NoNativeForm
    return _native[type(part)](part, *context)


def exact_rows(weight: np.ndarray, bias: np.ndarray) -> NativeRows:
    """Rows (n, D) in 32 bits as the core takes them."""
    exact, bias = as_kind(weight, np.float32), as_kind(bias, np.float32)
    return exact.view(np.uint8), 4, bias, bias  # the scale of exact rows is not read


def as_kind(array: np.ndarray, kind: type) -> np.ndarray:
    """Of this type and in one piece; the array itself where it is already."""
    return np.ascontiguousarray(array, dtype=kind)
