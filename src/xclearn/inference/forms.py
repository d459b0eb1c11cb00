"""The native form of a component, found by its class.

A component's module registers the form beside the class, so a new component needs no central list. If a component has
no form, or its form does not fit the others, NumPy computes the model.
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
    """The native core cannot compute this component, or not in this combination."""


@final
@dataclass(frozen=True)
class Core:
    """The native core of a model under construction, and what its components need to know about each other."""

    native: Any  # the C++ object
    servable: Servable
    place: Mapping[str, int]  # index of each vector that the core computes
    row_labels: np.ndarray | None  # label of each row of the first scorer; None: the row's number

    def place_of(self, vector: str) -> int:
        """The index of a vector that a component reads."""
        if vector not in self.place:
            raise NoNativeForm
        return self.place[vector]


def native_form_of(kind: type[Part]) -> Callable[[Function], Function]:
    """Register the function that makes the native form of a component.

    | component | arguments | returns |
    |---|---|---|
    | encoder | itself, the C++ object | whether the core computes its vector |
    | layer | itself, the C++ object | |
    | scorer | itself | its rows, and the label of each or None |
    | candidates | itself, `Core` | the label at each search position, or None |
    | fusion, step | itself, `Core` | |
    """

    def register(make: Function) -> Function:
        _native[kind] = make
        return make

    return register


def native_form(part: Part, *context: Any) -> Any:
    """Apply the registered function of a component."""
    if type(part) not in _native:
        raise NoNativeForm
    return _native[type(part)](part, *context)


def exact_rows(weight: np.ndarray, bias: np.ndarray) -> NativeRows:
    """Rows (n, D) float32 in the core's format."""
    exact, bias = as_kind(weight, np.float32), as_kind(bias, np.float32)
    return exact.view(np.uint8), 4, bias, bias  # the scale of exact rows is not read


def as_kind(array: np.ndarray, kind: type) -> np.ndarray:
    """The array with this type and contiguous; not copied if it already is."""
    return np.ascontiguousarray(array, dtype=kind)
