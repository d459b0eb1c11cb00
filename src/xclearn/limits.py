"""How much a foreign file may declare or unpack to before it is rejected, and the variable that raises each limit.

Memory use must follow a file's content, not its claims: a header of twenty bytes can declare billions of labels, and
100 KB can unpack to gigabytes. The defaults are far above every published data set. Knows no file format.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, fields
from pathlib import Path
from typing import final

from xclearn.errors import ConfigError, DataError

_PREFIX = "XCLEARN_MAX_"
_SMALL_FILE = 4 * 2**20  # bytes; even the smallest file may unpack to this much


@final
@dataclass(frozen=True, kw_only=True)
class ReadLimits:
    """Each limit can be raised by the environment variable `XCLEARN_MAX_` + its name, as in `XCLEARN_MAX_LABELS`."""

    line: int = 32 * 2**20  # bytes of a line, and of a CSV row of several lines
    expansion: int = 100  # unpacked bytes per packed byte; text typically compresses 3 to 10 times
    labels: int = 50_000_000  # labels that the header of a matrix may declare


def limits() -> ReadLimits:
    """The limits in force: the defaults, overridden by environment variables."""
    return ReadLimits(
        **{field.name: _from_environment(field.name, getattr(ReadLimits, field.name)) for field in fields(ReadLimits)}
    )


def limit_variable(name: str) -> str:
    """The environment variable that raises this limit."""
    return f"{_PREFIX}{name.upper()}"


def _from_environment(name: str, default: int) -> int:
    variable = limit_variable(name)
    text = os.environ.get(variable, "")
    if not text:
        return default
    if not text.isdecimal() or len(text) > 18 or not int(text):
        raise ConfigError("not a limit", where=variable, got=text, allowed="a whole number from 1 to 18 digits long")
    return int(text)


def largest_contents(path: str | os.PathLike[str]) -> int:
    """Bytes that a packed file may unpack to: `expansion` times its size, at least 4 MiB. A pipe has no size."""
    file = Path(path)
    return max(_SMALL_FILE, limits().expansion * file.stat().st_size) if file.is_file() else sys.maxsize


def too_much(name: str, what: str, *, where: str, got: object = None, most: int | None = None) -> DataError:
    """The error for exceeding a limit (or `most`, derived from it); it says how to raise the limit."""
    limit = getattr(limits(), name)
    todo = f"If you trust the file, raise the environment variable {limit_variable(name)} (now {limit})."
    return DataError(what, where=where, got=got, allowed=f"at most {limit if most is None else most}", todo=todo)
