"""Files: compressed text read line by line. Writing is in `writing`.

Every failure of the disk, the compression or the encoding becomes a `DataError` that names the file and the line. This
module knows nothing about what the lines mean.
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import lzma
import os
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from xclearn.errors import DataError

FilePath = str | os.PathLike[str]
Lines = FilePath | Iterable[bytes] | Iterable[str]

COMPRESSIONS = (".gz", ".xz", ".bz2", ".zst")

_OPENERS: dict[str, Any] = {".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open}
_DAMAGE = (EOFError, zlib.error, lzma.LZMAError, OSError)


def open_binary(path: FilePath) -> BinaryIO:
    """The decompressed bytes of a file; the suffix says how it is compressed."""
    suffix = Path(path).suffix
    with _reading(path):
        if suffix == ".zst":
            from pyarrow import input_stream

            return io.BufferedReader(input_stream(os.fspath(path), compression="zstd"))
        if suffix in _OPENERS:
            # their own readline is a Python method; a second buffer makes lines several times faster
            return io.BufferedReader(_OPENERS[suffix](path, "rb"))
        return open(path, "rb")


def open_text(path: FilePath) -> io.TextIOWrapper:
    """The decompressed text of a file, strictly UTF-8. `numbered_lines` is the form whose errors name a line."""
    return io.TextIOWrapper(open_binary(path), encoding="utf-8", errors="strict")


def numbered_lines(source: Lines, *, keep_ends: bool = False, fallback: str | None = None) -> Iterator[tuple[int, str]]:
    """(line number from 1, line) of a path or an open stream; a byte-order mark at the start is dropped.

    A line that is not UTF-8 is refused, or decoded by `fallback` where one is given.
    """
    for number, raw in _numbered(source):
        try:
            line = raw if isinstance(raw, str) else raw.decode("utf-8")
        except UnicodeDecodeError as error:
            if fallback is None:
                raise _broken_utf8(source, number, error) from error
            line = error.object.decode(fallback)
        if number == 1:
            line = line.removeprefix("\ufeff")
        yield number, line if keep_ends else line.removesuffix("\n").removesuffix("\r")


def _numbered(source: Lines) -> Iterator[tuple[int, bytes | str]]:
    number = 0
    with open_binary(source) if isinstance(source, str | os.PathLike) else contextlib.nullcontext(source) as lines:
        try:
            for raw in lines:
                number += 1
                yield number, raw
        except UnicodeDecodeError as error:
            raise _broken_utf8(source, number + 1, error) from error
        except _DAMAGE as error:
            where = f"{name_of(source)}:{number + 1}"
            raise DataError(f"the file cannot be read further ({error})", where=where) from error


def name_of(source: Lines) -> str:
    """What an error calls this source."""
    return os.fspath(source) if isinstance(source, str | os.PathLike) else str(getattr(source, "name", "<stream>"))


@contextlib.contextmanager
def _reading(source: Lines) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise DataError("no such file", where=name_of(source)) from error
    except OSError as error:
        raise DataError(f"the file cannot be read ({error.strerror or error})", where=name_of(source)) from error


def _broken_utf8(source: Lines, number: int, error: UnicodeDecodeError) -> DataError:
    return DataError(
        "the text is not UTF-8",
        where=f"{name_of(source)}:{number}",
        got=error.object[error.start : error.start + 8],
        todo="Convert the file to UTF-8.",
    )
