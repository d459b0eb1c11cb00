"""Dataclass fields are the single source of settings; TOML, `--set a.b=c`, `--help` and model.json follow them.

A settings class is a keyword-only dataclass; the comment at the end of a field's line is its help text. A field may
hold another settings class, or a union of several selected by the key `kind` (the class name in snake case). This
module knows nothing about which classes exist.
"""

from __future__ import annotations

import ast
import dataclasses
import enum
import inspect
import math
import re
import sys
import tomllib
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, TypeVar, final

from xclearn.errors import ConfigError, nearest

T = TypeVar("T")


@final
class _Automatic(enum.Enum):
    AUTO = "auto"

    def __repr__(self) -> str:
        return "AUTO"


AUTO: Any = _Automatic.AUTO  # a setting chosen from the data, before or during training
Auto: TypeAlias = Annotated[T, AUTO]  # a field that may hold AUTO until it is resolved; None is "auto" in JSON

_LARGEST_FLOAT = int(sys.float_info.max)


@dataclass(frozen=True)
class Range:
    """The range of a numeric field: `low` ≤ value ≤ `high`, or strictly above `low` if `open_low`."""

    low: float = -math.inf
    high: float = math.inf
    open_low: bool = False

    def holds(self, value: float) -> bool:
        return (value > self.low if self.open_low else value >= self.low) and value <= self.high

    def __str__(self) -> str:
        if math.isinf(self.high):
            return f"a number {'above' if self.open_low else 'of at least'} {self.low:g}"
        return f"a number {'above' if self.open_low else 'from'} {self.low:g} to {self.high:g}"


@dataclass(frozen=True)
class Span:
    """The search space of `xc tune`: from `low` to `high`, log-uniform if `log`; or `choices`."""

    low: float = 0.0  # an int if the setting is an int
    high: float = 0.0
    log: bool = False
    choices: tuple[Any, ...] = ()
    of_label_texts: bool = dataclasses.field(default=False, repr=False)  # used only if labels have texts


Count = Annotated[int, Range(1)]  # 1, 2, 3, …
Number = Annotated[int, Range(0)]  # 0, 1, 2, …
Rate = Annotated[float, Range(0, open_low=True)]  # a learning rate or scale
Weight = Annotated[float, Range(0)]  # zero switches it off
Share = Annotated[float, Range(0, 1)]  # a probability or a fraction


@dataclass(frozen=True)
class Setting:
    """One row of a settings table."""

    name: str
    type: str
    default: str
    help: str


def kind_of(settings: type) -> str:
    """The name that selects a settings class in a file: `WordPiece` → `word_piece`, `BagSettings` → `bag`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", settings.__name__.removesuffix("Settings")).lower()


def describe(settings: type) -> list[Setting]:
    """The settings of a class with type, default and the comment beside each field."""
    comments, rows = _comments(settings), []
    hints = typing.get_type_hints(settings, include_extras=True)
    for field in _fields(settings):
        default = _default_text(field)
        rows.append(Setting(field.name, _type_text(hints[field.name]), default, comments.get(field.name, "")))
        for member in _members(hints[field.name]):
            prefix = f"{field.name}[{kind_of(member)}]." if len(_members(hints[field.name])) > 1 else f"{field.name}."
            rows += [dataclasses.replace(row, name=prefix + row.name) for row in describe(member)]
    return rows


def search_spaces(settings: type) -> dict[str, Span]:
    """Setting → search space, for the settings that declare one."""
    spaces: dict[str, Span] = {}
    for name, hint in typing.get_type_hints(settings, include_extras=True).items():
        notes = typing.get_args(hint)[1:] if typing.get_origin(hint) is Annotated else ()
        spaces.update((name, note) for note in notes if isinstance(note, Span))
    return spaces


def build(settings: type[T], values: Mapping[str, Any], where: str = "settings") -> T:
    """An instance from plain values (a TOML table, model.json); unknown keys, wrong types and ranges are errors."""
    hints = typing.get_type_hints(settings, include_extras=True)
    known = {field.name: hints[field.name] for field in _fields(settings)}
    given = {}
    for name, value in values.items():
        if name not in known:
            raise ConfigError("unknown setting", where=where, got=name, todo=nearest(name, known))
        given[name] = _convert(known[name], value, f"{where}.{name}")
    return settings(**given)


def check(settings: T, where: str = "settings") -> T:
    """A copy whose values have the types of their fields, or an error; constructors store values unchecked."""
    hints = typing.get_type_hints(type(settings), include_extras=True)
    values = {}
    for field in _fields(type(settings)):
        values[field.name] = _convert(hints[field.name], getattr(settings, field.name), f"{where}.{field.name}")
    return dataclasses.replace(settings, **values)  # type: ignore[type-var]


def resolve(settings: T, chosen: Mapping[str, Any]) -> T:
    """A copy with each automatic field set to its chosen value; `chosen` may hold a mapping for a nested setting."""
    values = {}
    for field in _fields(type(settings)):
        value = getattr(settings, field.name)
        if value is AUTO or value is None:
            values[field.name] = chosen.get(field.name, value)
        elif _is_settings(type(value)) and isinstance(part := chosen.get(field.name), Mapping):
            values[field.name] = resolve(value, part)
    return dataclasses.replace(settings, **values)  # type: ignore[type-var]


def to_plain(settings: object) -> dict[str, Any]:
    """The inverse of `build`: plain JSON values, with `kind` for members of a union and null for AUTO."""
    plain: dict[str, Any] = {}
    for field in _fields(type(settings)):
        value = getattr(settings, field.name)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            plain[field.name] = {"kind": kind_of(type(value)), **to_plain(value)}
        else:
            plain[field.name] = list(value) if isinstance(value, tuple) else None if value is AUTO else value
    return plain


def changed(settings: object) -> dict[str, Any]:
    """The settings that differ from their defaults, as plain values; nested ones also as `part.name`."""
    found: dict[str, Any] = {}
    for field in _fields(type(settings)):
        value = getattr(settings, field.name)
        if value == (field.default if field.default_factory is dataclasses.MISSING else field.default_factory()):
            continue
        part = dataclasses.is_dataclass(value) and not isinstance(value, type)
        found[field.name] = to_plain(value) if part else value
        found |= {f"{field.name}.{name}": inner for name, inner in changed(value).items()} if part else {}
    return found


def merge(values: Mapping[str, Any], assignments: Sequence[str]) -> dict[str, Any]:
    """`values` with each `a.b=c` of the command line applied; `c` is a TOML value, or a bare word taken as a string."""
    merged = {key: dict(value) if isinstance(value, Mapping) else value for key, value in values.items()}
    for assignment in assignments:
        path, equals, text = assignment.partition("=")
        if not equals or not path.strip():
            raise ConfigError("not an assignment", where="--set", got=assignment, allowed="name=value")
        *parents, name = path.strip().split(".")
        table = merged
        for parent in parents:
            inner = table.get(parent)
            table[parent] = dict(inner) if isinstance(inner, Mapping) else {} if inner is None else {"kind": inner}
            table = table[parent]
        table[name] = _parse_value(text.strip())
    return merged


def read_toml(path: str | Path) -> dict[str, Any]:
    """A TOML file as plain values; errors name the line."""
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError("the file cannot be read", where=str(path), got=error.strerror) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"not a TOML file: {error}", where=str(path)) from error


def _fields(settings: type) -> list[dataclasses.Field[Any]]:
    return [field for field in dataclasses.fields(settings) if field.init]


def _parse_value(text: str) -> Any:
    if text.lower() in ("null", "auto"):  # "none" is a choice of some settings
        return None
    if "\n" in text:
        raise ConfigError("a value must be on one line", where="--set", got=text)
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _convert(hint: Any, value: Any, where: str) -> Any:
    """`value` converted to the annotated type, or a ConfigError that says what the type allows."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        return _convert_annotated(arguments[0], arguments[1:], value, where)
    if origin in (typing.Union, types.UnionType):
        return _convert_union(hint, arguments, value, where)
    if origin is Literal:
        if value not in arguments:
            raise ConfigError("unknown choice", where=where, got=value, allowed=", ".join(map(str, arguments)))
        return value
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise ConfigError("not a list", where=where, got=value, allowed=_type_text(hint))
        return tuple(_convert(arguments[0], item, f"{where}[{i}]") for i, item in enumerate(value))
    if _is_settings(hint):
        return _convert_settings((hint,), value, where)
    return _convert_scalar(hint, value, where)


def _convert_annotated(hint: Any, notes: tuple[Any, ...], value: Any, where: str) -> Any:
    if AUTO in notes and (value is None or value is AUTO or value == AUTO.value):
        return AUTO
    converted = _convert(hint, value, where)
    for note in notes:
        if isinstance(note, Range) and not note.holds(converted):
            raise ConfigError("out of range", where=where, got=value, allowed=str(note))
    return converted


def _convert_union(hint: Any, arguments: tuple[Any, ...], value: Any, where: str) -> Any:
    if types.NoneType in arguments and (value is None or value is False or value == "none"):
        return None
    if members := _members(hint):
        return _convert_settings(members, value, where)
    scalars = _one_literal([argument for argument in arguments if argument is not types.NoneType])
    for argument in scalars[:-1]:
        try:
            return _convert(argument, value, where)
        except ConfigError:
            continue
    return _convert(scalars[-1], value, where)


def _one_literal(hints: list[Any]) -> list[Any]:
    """Merge several literals into one, so that an error lists all their choices."""
    literals = [hint for hint in hints if typing.get_origin(hint) is Literal]
    choices = tuple(choice for literal in literals for choice in typing.get_args(literal))
    others = [hint for hint in hints if hint not in literals]
    return [*others, Literal[choices]] if literals else others


def _convert_settings(members: tuple[type, ...], value: Any, where: str) -> Any:
    if isinstance(value, members):
        return check(value, where)
    table = dict(value) if isinstance(value, Mapping) else {} if value is True else {"kind": value}
    by_kind = {kind_of(member): member for member in members}
    kind = table.pop("kind", next(iter(by_kind)))
    if not isinstance(kind, str) or kind not in by_kind:
        raise ConfigError("unknown kind", where=where, got=kind, todo=nearest(str(kind), by_kind))
    return build(by_kind[kind], table, where)


def _convert_scalar(hint: Any, value: Any, where: str) -> Any:
    if hint is float and isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _LARGEST_FLOAT:
        return float(value)
    right = isinstance(value, hint) and (hint is bool or not isinstance(value, bool))
    if not right or (isinstance(value, float) and not math.isfinite(value)):
        raise ConfigError("wrong type", where=where, got=value, allowed=_type_text(hint))
    return value


def _members(hint: Any) -> tuple[type, ...]:
    """The settings classes a field chooses from."""
    hint = typing.get_args(hint)[0] if typing.get_origin(hint) is Annotated else hint
    union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    return tuple(member for member in (typing.get_args(hint) if union else (hint,)) if _is_settings(member))


def _is_settings(hint: Any) -> bool:
    return isinstance(hint, type) and dataclasses.is_dataclass(hint)


def _type_text(hint: Any) -> str:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        ranges = [f", {note}" for note in arguments[1:] if isinstance(note, Range)]
        return "".join([_type_text(arguments[0]), *ranges, " or auto" if AUTO in arguments[1:] else ""])
    if origin in (typing.Union, types.UnionType):
        return " or ".join("none" if argument is types.NoneType else _type_text(argument) for argument in arguments)
    if origin is Literal:
        return " | ".join(map(str, arguments))
    if origin is tuple:
        return f"list of {_type_text(arguments[0])}"
    return kind_of(hint) if _is_settings(hint) else getattr(hint, "__name__", str(hint))


def _default_text(field: dataclasses.Field[Any]) -> str:
    default = field.default_factory() if field.default_factory is not dataclasses.MISSING else field.default
    if default is dataclasses.MISSING:
        return "required"
    if dataclasses.is_dataclass(default) and not isinstance(default, type):
        return kind_of(type(default))
    if default is None:
        return "none"
    return "auto" if default is AUTO else str(default)


def _comments(settings: type) -> dict[str, str]:
    """Field name → the comment at the end of its line, in the class or a base class."""
    found = {}
    for base in reversed(settings.__mro__):
        if dataclasses.is_dataclass(base):
            found.update(_own_comments(base))
    return found


def _own_comments(settings: type) -> dict[str, str]:
    try:
        source = inspect.cleandoc("\n" + inspect.getsource(settings))
    except (OSError, TypeError):  # a class defined in an interpreter has no source
        return {}
    lines = source.splitlines()
    body = next(node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)).body
    found = {}
    for node in body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            for line in lines[node.lineno - 1 : node.end_lineno]:  # of a field over several lines, any of them
                _, mark, comment = line.partition("  # ")
                if mark:
                    found[node.target.id] = comment.strip()
    return found
