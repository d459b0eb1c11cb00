"""How much a foreign file may claim or unpack to before it is refused, and the variable that lifts each limit.

Memory must follow what a file holds, not what it says: a header of twenty bytes can name billions of labels, and
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
_SMALL_FILE = 4 * 2**20  # bytes that any file may unpack to, however small it is


@final
@dataclass(frozen=True, kw_only=True)
class ReadLimits:
    """Each field is lifted by an environment variable: `XCLEARN_MAX_` and its name, as in `XCLEARN_MAX_LABELS`."""

    line: int = 32 * 2**20  # bytes of a line, and of a CSV row of several lines
    expansion: int = 100  # bytes that each byte of a packed file may unpack to; text compresses to a third or a tenth
    labels: int = 50_000_000  # labels that the header of a matrix may claim


def limits() -> ReadLimits:
    """The limits in force: the defaults, and what the environment says."""
    return ReadLimits(
        **{field.name: _from_environment(field.name, getattr(ReadLimits, field.name)) for field in fields(ReadLimits)}
    )


def limit_variable(name: str) -> str:
    """The environment variable that lifts this limit."""
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
    """Bytes that a packed file may unpack to: `expansion` times its size, and at least 4 MiB. A pipe has no size."""
    file = Path(path)
    return max(_SMALL_FILE, limits().expansion * file.stat().st_size) if file.is_file() else sys.maxsize


def too_much(name: str, what: str, *, where: str, got: object = None, most: int | None = None) -> DataError:
    """The error for more than this limit permits (or than `most`, which follows from it); it says how to lift it."""
    limit = getattr(limits(), name)
    todo = f"If you trust the file, set the variable {limit_variable(name)}, now {limit}, to more."
    return DataError(what, where=where, got=got, allowed=f"at most {limit if most is None else most}", todo=todo)
