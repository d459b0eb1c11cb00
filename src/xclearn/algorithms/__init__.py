"""Discovers algorithms: every file or package here is one; other packages add theirs through entry points.

Listing reads file names and docstrings only; an algorithm is imported when it is used.
"""

from __future__ import annotations

import ast
from importlib import import_module, metadata
from pathlib import Path
from typing import TYPE_CHECKING

from xclearn.errors import ConfigError, nearest
from xclearn.extras import missing

if TYPE_CHECKING:
    from xclearn.training.algorithm import Algorithm

_ENTRY_POINTS = "xclearn.algorithms"


def algorithm_names() -> list[str]:
    """The names of all available algorithms."""
    folder = Path(__file__).parent
    own = [path.stem for path in folder.glob("[!_]*.py")] + [path.parent.name for path in folder.glob("*/__init__.py")]
    return sorted({*own, *(point.name for point in metadata.entry_points(group=_ENTRY_POINTS))})


def summary(name: str) -> str:
    """The first line of an algorithm's docstring."""
    return _docstring(name)[0]


def advice(name: str) -> tuple[str, str]:
    """What an algorithm is good for and what it costs, from its docstring; empty if it says neither."""
    lines = [line.strip() for line in _docstring(name)]
    good, cost = (
        [line.removeprefix(mark) for line in lines if line.startswith(mark)] for mark in ("Good for: ", "Cost: ")
    )
    return good[0] if good else "", cost[0] if cost else ""


def _docstring(name: str) -> list[str]:
    """The lines of an algorithm's docstring, read without importing built-in algorithms."""
    folder = Path(__file__).parent / name
    path = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) if path.exists() else find(name).__doc__
    return (docstring or "").strip().splitlines() or [""]


def find(name: str) -> type[Algorithm]:
    """The class of an algorithm, given its name."""
    if name not in algorithm_names():
        raise ConfigError("unknown algorithm", got=name, todo=nearest(name, algorithm_names()))
    points = metadata.entry_points(group=_ENTRY_POINTS, name=name)
    if points:
        return next(iter(points)).load()
    try:
        return getattr(import_module(f"{__name__}.{name}"), class_name(name))
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise missing("torch", f"the algorithm {name}") from error


def class_name(name: str) -> str:
    """`one_vs_all` → `OneVsAll`."""
    return "".join(word.capitalize() for word in name.split("_"))


def by_class_name(wanted: str) -> type[Algorithm] | None:
    """The algorithm whose class has this name, for `xclearn.OneVsAll`; `help` on it explains its settings."""
    found = next((find(name) for name in algorithm_names() if class_name(name) == wanted), None)
    if found is not None:
        from xclearn.training.help_text import with_settings

        found.__doc__ = with_settings(found)
    return found
