"""Reads compressed text files line by line. Writing is in `writing`.

Every failure of the disk, the compression or the encoding becomes a `DataError` that names the file and the line. This
module knows nothing about what the lines mean.
"""

from __future__ import annotations

import bz2
import codecs
import contextlib
import gzip
import io
import lzma
import os
import zlib
from collections.abc import Iterable, Iterator
from itertools import repeat, takewhile
from pathlib import Path
from typing import Any, BinaryIO, final

from xclearn.errors import DataError
from xclearn.limits import largest_contents, limits, too_much

FilePath = str | os.PathLike[str]
Lines = FilePath | Iterable[bytes] | Iterable[str]

COMPRESSIONS = (".gz", ".xz", ".bz2", ".zst")

_DAMAGE = (EOFError, zlib.error, lzma.LZMAError, OSError)
_UNPACKED_AT_ONCE = 1 << 17  # bytes
_LZMA_MEMORY = 256 * 2**20  # `xz -9` needs 65 MiB; a header may ask for 4 GiB


def open_binary(path: FilePath) -> BinaryIO:
    """The decompressed bytes of a file; its suffix gives the compression.

    Reading past the size that `limits` allow raises an error.
    """
    with _reading(path):
        if Path(path).suffix not in COMPRESSIONS:
            return open(path, "rb")
        # the readers' own readline is pure Python; a second buffer makes reading lines several times faster
        return io.BufferedReader(_Unpacked(path), _UNPACKED_AT_ONCE)


@final
class _Unpacked(io.RawIOBase):
    """The unpacked content of a compressed file, up to the limit that its size sets."""

    def __init__(self, path: FilePath) -> None:
        self._path = path
        self._most = largest_contents(path)
        self._seen = 0
        self._source = _decompressed(path)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        data = self._source.read(len(buffer))
        self._seen += len(data)
        if self._seen > self._most:
            what = f"the file unpacks to more than is plausible for its size ({Path(self._path).stat().st_size} bytes)"
            raise too_much("expansion", what, where=name_of(self._path), most=self._most)
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self._source.close()
        super().close()


def _decompressed(path: FilePath) -> Any:
    """An object with `read(size)` and `close()`."""
    match Path(path).suffix:
        case ".gz":
            return gzip.open(path, "rb")
        case ".bz2":
            return bz2.open(path, "rb")
        case ".xz":
            return _Lzma(path)
    from pyarrow import input_stream

    return input_stream(os.fspath(path), compression="zstd")


@final
class _Lzma:
    """Consecutive xz streams; unlike `lzma.open`, it limits the memory that a header may request."""

    def __init__(self, path: FilePath) -> None:
        self._file = open(path, "rb")  # noqa: SIM115 (closed by close)
        self._rest = b""  # bytes of the file not yet decompressed
        self._stream: lzma.LZMADecompressor | None = None  # None between streams

    def read(self, size: int) -> bytes:
        """Up to `size` bytes; empty at the end of the file."""
        while True:
            if self._stream is None and not self._next_stream():
                return b""
            assert self._stream is not None
            if self._stream.needs_input and not self._rest:
                self._rest = self._file.read(_UNPACKED_AT_ONCE)
                if not self._rest:
                    raise EOFError("the compressed data ends too early")
            data = self._stream.decompress(self._rest, size)
            self._rest = b""
            if self._stream.eof:
                self._rest = self._stream.unused_data
                self._stream = None
            if data:
                return data

    def close(self) -> None:
        self._file.close()

    def _next_stream(self) -> bool:
        """Whether another stream begins; streams may be separated by zero bytes."""
        while not self._rest.lstrip(b"\0"):
            self._rest = self._file.read(_UNPACKED_AT_ONCE)
            if not self._rest:
                return False
        self._rest = self._rest.lstrip(b"\0")
        self._stream = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_LZMA_MEMORY)
        return True


def open_text(path: FilePath) -> io.TextIOWrapper:
    """The decompressed text of a file as strict UTF-8. Errors of `numbered_lines` name the line."""
    return io.TextIOWrapper(open_binary(path), encoding="utf-8", errors="strict")


def numbered_lines(source: Lines, *, keep_ends: bool = False, fallback: str | None = None) -> Iterator[tuple[int, str]]:
    """(line number from 1, line) of a path or an open stream, without a leading byte-order mark.

    A line that is not UTF-8 is an error unless `fallback` can decode it; a line longer than `limits` allow always is.
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
    longest = limits().line
    with open_binary(source) if isinstance(source, str | os.PathLike) else contextlib.nullcontext(source) as lines:
        try:
            for raw in _lines(lines, longest):
                number += 1
                if len(raw) > longest:
                    raise too_much("line", "the line is too long", where=f"{name_of(source)}:{number}")
                yield number, raw
        except UnicodeDecodeError as error:
            raise _broken_utf8(source, number + 1, error) from error
        except _DAMAGE as error:
            where = f"{name_of(source)}:{number + 1}"
            raise DataError(f"the file cannot be read further ({error})", where=where) from error


def _lines(source: Any, longest: int) -> Iterator[bytes | str]:
    """The lines; from a file, at most `longest` + 1 bytes of a line are held in memory."""
    if not isinstance(source, io.IOBase):
        return iter(source)
    return takewhile(bool, map(source.readline, repeat(longest + 1)))


def name_of(source: Lines) -> str:
    """The name of this source in errors."""
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
        todo=_how_to_convert(source, error.object[:4]),
    )


def _how_to_convert(source: Lines, first: bytes) -> str:
    """UTF-16 starts with a byte-order mark; most other files come from Windows."""
    likely = "UTF-16" if first[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) else "WINDOWS-1252"
    file = name_of(source)
    return f"Save it as UTF-8 (in a spreadsheet: CSV UTF-8), or try: iconv -f {likely} -t UTF-8 {file} > NEW."
