"""Declarations of what each field of a part may hold, and the code that checks all of them.

`Annotated[np.ndarray, Tensor("labels dim")]` names the axes of a tensor. The first field that mentions a size sets it,
and all others must agree, so an index declared `below="labels"` is never out of range. Relations between fields that no
declaration can express are checked by the part's own `fits`. Knows no part, algorithm or file.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, final

import numpy as np

from xclearn.config import Range
from xclearn.errors import ModelError
from xclearn.text.vectorisers import DENSE_ROWS

LARGEST_COUNT = 2**31 - 1  # the native core multiplies two such counts in 64 bits
LARGEST_FLOAT = float(np.finfo(np.float32).max)
_BLOCK = 1 << 17  # values
_FLOATS = ("float32", "float64")


class Part:
    """A part of a model: a frozen dataclass with declared fields."""

    on_device: ClassVar[bool] = False  # whether it also runs on a GPU

    def fits(self, _: Scope, /) -> None:
        """Check relations between fields; called after the declarations of single fields hold."""


@final
@dataclass(frozen=True)
class Tensor:
    """An array. Floats must be finite, and axes non-empty unless `empty`."""

    axes: str  # the size of each axis, such as "clusters+1"; "...": any shape
    kinds: tuple[str, ...] = _FLOATS
    least: float | None = None
    most: float | None = None
    below: str | None = None  # the size that bounds every value
    to: str | None = None  # values are non-decreasing from 0 to this size
    empty: bool = False


def ids(axes: str, below: str, kind: str = "int32", *, least: int = 0, empty: bool = False) -> Tensor:
    """Indices below a size."""
    return Tensor(axes, (kind,), least, below=below, empty=empty)


def offsets(parts: str, to: str) -> Tensor:
    """CSR offsets: the start of each part, and the end of the last."""
    return Tensor(f"{parts}+1", ("int64",), to=to)


@final
@dataclass(frozen=True)
class SizeOf:
    """A number equal to a size, or a table of that length."""

    name: str


@final
@dataclass(frozen=True)
class Vector:
    """The name of an encoder, whose width becomes a size."""

    size: str = "dim"
    forms: tuple[str, ...] = (DENSE_ROWS,)
    optional: bool = False  # may be empty: no vector, size 0


@final
@dataclass(frozen=True)
class Inner:
    """Nested parts, and their sizes that equal sizes of the outer part."""

    sizes: Mapping[str, str]  # inner → outer
    empty: bool = False  # whether the field may be empty


def shares(*names: str, empty: bool = False, **renamed: str) -> Inner:
    """Nested parts that share these sizes with the outer part; keywords map an inner to an outer name."""
    return Inner({name: name for name in names} | renamed, empty)


@final
@dataclass(frozen=True)
class Chain:
    """Levels of a tree: the children of one level are the nodes of the next; the last level leads to `end`."""

    nodes: str
    leads_to: str
    end: str
    start: int | None = None  # nodes of the first level


class Encoded(NamedTuple):
    """The output of an encoder."""

    dim: int
    form: str


@final
@dataclass(frozen=True)
class Scope:
    """The sizes known while a part is checked."""

    sizes: dict[str, int] = field(default_factory=dict)
    vectors: Mapping[str, Encoded] = field(default_factory=dict)
    values: bool = True  # whether to read every float, or only values with declared bounds

    def size(self, expression: str) -> int:
        """The value of "labels", "labels+1" or "bag+dim"."""
        return sum(int(term) if term.isdigit() else self.sizes[term] for term in expression.split("+"))

    def inner(self, sizes: Mapping[str, str]) -> Scope:
        """The scope of a nested part; `sizes` maps its names to those of this scope."""
        known = {name: self.sizes[outer] for name, outer in sizes.items() if outer in self.sizes}
        return dataclasses.replace(self, sizes=known)


def check(part: Part, scope: Scope) -> None:
    """Raise unless a part is as declared; adds the sizes it sets to the scope."""
    check_types(part)
    fields = [(getattr(part, name), spec, _where(part, name)) for name, (_, spec) in _declarations(type(part)).items()]
    for value, spec, where in fields:
        _check_setting(value, spec, scope, where)
    tensors = [(a, spec, where) for v, spec, where in fields if isinstance(spec, Tensor) for a in _arrays(v)]
    for array, spec, where in tensors:
        _check_shape(array, spec, scope, where)
    for value, spec, where in fields:
        if isinstance(spec, Inner | Chain):
            _check_inner(_parts(value), spec, scope, where)
    for array, spec, where in tensors:
        _check_values(array, spec, scope, where)
    part.fits(scope)


def check_types(part: Part) -> None:
    """Raise unless all fields have their annotated types."""
    for name, (hint, _) in _declarations(type(part)).items():
        if not _is_of(getattr(part, name), hint):
            raise ModelError("a field is of the wrong type", where=_where(part, name), got=getattr(part, name))


_declared: dict[type, dict[str, tuple[Any, Any]]] = {}


def _declarations(kind: type) -> dict[str, tuple[Any, Any]]:
    """The type and declaration of each field, cached."""
    if kind not in _declared:
        _declared[kind] = _read_declarations(kind)
    return _declared[kind]


def _read_declarations(kind: type) -> dict[str, tuple[Any, Any]]:
    plain = typing.get_type_hints(kind)
    rich = typing.get_type_hints(kind, include_extras=True)
    names = [each.name for each in dataclasses.fields(kind)]
    return {name: (plain[name], next(iter(getattr(rich[name], "__metadata__", ())), None)) for name in names}


def _is_of(value: Any, hint: Any) -> bool:
    """Whether a value has an annotated type, including items of lists and mappings."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is None:
        return isinstance(value, hint) and (hint is bool or not isinstance(value, bool))
    if origin is typing.Literal:
        return value in arguments
    if origin is types.UnionType:
        return any(_is_of(value, argument) for argument in arguments)
    if issubclass(origin, Mapping):
        return isinstance(value, dict) and all(_is_of(item, arguments[1]) for item in value.values())
    return isinstance(value, list) and all(_is_of(item, arguments[0]) for item in value)


def _where(part: Part, name: str) -> str:
    return f"{part.kind}.{name}"  # type: ignore[attr-defined]


def _arrays(value: Any) -> Iterable[np.ndarray]:
    return value.values() if isinstance(value, Mapping) else [value]


def _parts(value: Any) -> Sequence[Part]:
    return [] if value is None else [value] if isinstance(value, Part) else list(value)


def _check_setting(value: Any, spec: Any, scope: Scope, where: str) -> None:
    """Check names of vectors, sizes and numbers; undeclared numbers must be finite too."""
    if isinstance(spec, Vector):
        _read_vector(value, spec, scope, where)
    elif isinstance(spec, SizeOf):
        _set_size(spec.name, len(value) if isinstance(value, Sequence) else value, scope, where)
    for number in value if isinstance(value, list) else [value]:
        if isinstance(number, int | float):
            _check_number(number, spec if isinstance(spec, Range) else Range(), where)


def _check_number(number: float, allowed: Range, where: str) -> None:
    largest = LARGEST_COUNT if isinstance(number, int) else LARGEST_FLOAT
    if not allowed.holds(number) or not -largest <= number <= largest:  # NaN is in no range
        raise ModelError("a number is out of range", where=where, got=number, allowed=f"{allowed}, at most {largest}")


def _read_vector(name: str, spec: Vector, scope: Scope, where: str) -> None:
    if spec.optional and not name:
        scope.sizes[spec.size] = 0
        return
    if name not in scope.vectors:
        allowed = ", ".join(scope.vectors)
        raise ModelError("it reads a vector that no encoder makes", where=where, got=name, allowed=allowed)
    dim, form = scope.vectors[name]
    if form not in spec.forms:
        raise ModelError("it cannot read this form of vector", where=where, got=form, allowed=" or ".join(spec.forms))
    _set_size(spec.size, dim, scope, where)


def _set_size(name: str, size: int, scope: Scope, where: str) -> None:
    if not 0 < size <= LARGEST_COUNT or scope.sizes.setdefault(name, size) != size:
        allowed = str(scope.sizes.get(name, f"1 to {LARGEST_COUNT}"))
        raise ModelError(f"the number of {name} does not fit", where=where, got=size, allowed=allowed)


def _check_shape(array: np.ndarray, spec: Tensor, scope: Scope, where: str) -> None:
    """Check the type, the number of axes and their sizes; sets sizes that are still unknown."""
    axes = spec.axes.split()
    fits = array.dtype.name in spec.kinds and array.dtype.isnative and (axes == ["..."] or array.ndim == len(axes))
    for axis, length in zip(axes, array.shape, strict=False) if fits and axes != ["..."] else ():
        name, _, more = axis.partition("+")
        size = length - int(more or 0)
        fits &= size >= (not spec.empty) and scope.sizes.setdefault(name, size) == size
    if not fits:
        known = (f"{axis}" + (f" = {scope.size(axis)}" if axis.split("+")[0] in scope.sizes else "") for axis in axes)
        allowed = f"{' or '.join(spec.kinds)} ({', '.join(known)})"
        got = f"{array.dtype} {array.shape}"
        raise ModelError("the tensor has the wrong shape or type", where=where, got=got, allowed=allowed)


def _check_inner(parts: Sequence[Part], spec: Inner | Chain, scope: Scope, where: str) -> None:
    if not parts and not (isinstance(spec, Inner) and spec.empty):
        raise ModelError("the model has no such part", where=where, got=0, allowed="1 or more")
    if isinstance(spec, Chain):
        _check_chain(parts, spec, scope, where)
        return
    for part in parts:
        inner = scope.inner(spec.sizes)
        check(part, inner)
        scope.sizes.update({outer: inner.sizes[name] for name, outer in spec.sizes.items() if name in inner.sizes})


def _check_chain(parts: Sequence[Part], spec: Chain, scope: Scope, where: str) -> None:
    end = scope.sizes[spec.end]
    for part in reversed(parts):
        inner = scope.inner({"dim": "dim"})
        inner.sizes[spec.leads_to] = end
        check(part, inner)
        end = inner.sizes[spec.nodes]
    if spec.start not in (None, end):
        raise ModelError("the first level has the wrong number of nodes", where=where, got=end, allowed=str(spec.start))


def _check_values(array: np.ndarray, spec: Tensor, scope: Scope, where: str) -> None:
    if spec.to is not None:
        end = scope.sizes[spec.to]
        if array[0] != 0 or array[-1] != end or (array[1:] < array[:-1]).any():  # a difference would wrap around
            allowed = f"non-decreasing numbers from 0 to {end}"
            raise ModelError("the offsets do not cover all entries", where=where, got=array, allowed=allowed)
        return
    if (spec.least, spec.most, spec.below) == (None, None, None):
        if scope.values and array.dtype.kind == "f" and not all(map(_is_finite, blocks(array))):
            raise ModelError("a value is out of range", where=where, allowed="finite numbers")
        return
    if not array.size:
        return
    least = -LARGEST_FLOAT if spec.least is None else spec.least
    most = LARGEST_FLOAT if spec.most is None else spec.most
    if spec.below is not None:
        most = scope.size(spec.below) - 1
    if not (least <= array.min() and array.max() <= most):  # NaN is in no range
        got = (array.min().item(), array.max().item())
        raise ModelError("a value is out of range", where=where, got=got, allowed=f"{least} to {most}, not NaN")


def blocks(array: np.ndarray) -> Iterator[np.ndarray]:
    """The values in blocks that fit into the cache."""
    flat = array.reshape(-1)
    return (flat[start : start + _BLOCK] for start in range(0, flat.size, _BLOCK))


def _is_finite(values: np.ndarray) -> bool:
    """Check the sum first, which is finite only if all values are; if it is not, check each value."""
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(values.sum()) or np.isfinite(values).all())
