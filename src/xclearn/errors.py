"""One tree of errors, one sentence shape: what is wrong, where, the value that came, what is allowed, what to do.

The command line prints these without a traceback and exits with 2; the server answers 4xx. This module knows nothing
about either, and imports nothing from the package.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any


class XclearnError(Exception):
    """Base of every error a user can cause. Build it with keywords; `str()` gives the one sentence."""

    def __init__(
        self,
        what: str,
        *,
        where: str | None = None,
        got: object = None,
        allowed: str | None = None,
        todo: str | None = None,
    ) -> None:
        self.what = what
        self.where = where
        self.got = got
        self.allowed = allowed
        self.todo = todo
        super().__init__(self._sentence())

    def __reduce__(self) -> tuple[Any, ...]:
        """Keep all fields when an error is pickled from another process."""
        return _again, (type(self), self.what, self.where, self.got, self.allowed, self.todo)

    def _sentence(self) -> str:
        sentence = f"{self.where}: {self.what}" if self.where else self.what
        if self.got is not None:
            sentence += f"; got {_short(self.got)}"
        if self.allowed:
            sentence += f"; allowed: {self.allowed}"
        sentence += "."
        return f"{sentence} {self.todo}" if self.todo else sentence


class DataError(XclearnError, ValueError):
    """A data file, record or array is invalid."""


class ConfigError(XclearnError, ValueError):
    """A setting is unknown, of the wrong type, or out of range."""


class ModelError(XclearnError):
    """A model folder or checkpoint is missing, modified, foreign, or has another format version."""


class NotFitted(XclearnError):
    """`predict`, `save` or a learned attribute was used before `fit`."""


class PlanError(XclearnError):
    """Training would not fit into the available memory."""


class ProcessError(XclearnError):
    """Another process of a distributed job has ended or cannot be reached."""


class MissingCore(XclearnError):
    """The compiled part of the package is missing or does not load."""


class MissingExtra(XclearnError):
    """A required optional dependency is not installed."""


def nearest(name: str, known: Iterable[str]) -> str:
    """`Did you mean 'x'?` if a known name is similar, else the list of known names."""
    names = sorted(known)
    match = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    return f"Did you mean '{match[0]}'?" if match else f"Known: {', '.join(names) or 'none'}."


def _again(kind: type[XclearnError], what: str, *parts: Any) -> XclearnError:
    return kind(what, **dict(zip(("where", "got", "allowed", "todo"), parts, strict=True)))


def _short(value: object, limit: int = 120) -> str:
    text = f"'{value}'" if isinstance(value, str) and value.isprintable() else repr(value)
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
