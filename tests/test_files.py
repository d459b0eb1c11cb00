"""Compressed reading, against files made by other means."""

import bz2
import gzip
import io
import lzma
from pathlib import Path
from typing import Any

import pyarrow
import pytest

from xclearn.errors import DataError
from xclearn.files import numbered_lines, open_text

SUFFIXES = ("", ".gz", ".xz", ".bz2", ".zst")
TEXT = "first\nsecond é\n\nlast"


def pack(path: Path, data: bytes) -> Path:
    """Write bytes as the path's suffix says, without our own code."""
    packers: dict[str, Any] = {".gz": gzip.compress, ".xz": lzma.compress, ".bz2": bz2.compress}
    if path.suffix == ".zst":
        with pyarrow.output_stream(str(path), compression="zstd") as stream:
            stream.write(data)
    else:
        path.write_bytes(packers.get(path.suffix, bytes)(data))
    return path


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_lines_are_numbered_whatever_the_compression(tmp_path: Path, suffix: str) -> None:
    path = pack(tmp_path / f"lines.txt{suffix}", TEXT.encode())
    assert list(numbered_lines(path)) == [(1, "first"), (2, "second é"), (3, ""), (4, "last")]
    with open_text(path) as stream:
        assert stream.read() == TEXT


@pytest.mark.parametrize("suffix", SUFFIXES[1:])
def test_compressed_files_written_one_after_the_other_are_one_text(tmp_path: Path, suffix: str) -> None:
    parts = [pack(tmp_path / f"part{suffix}", text.encode()).read_bytes() for text in ("a\nb", "c\n", "d" * 300_000)]
    path = tmp_path / f"lines.txt{suffix}"
    path.write_bytes(b"".join(parts) + (bytes(8) if suffix == ".xz" else b""))  # xz files may be padded
    assert list(numbered_lines(path)) == [(1, "a"), (2, "bc"), (3, "d" * 300_000)]


@pytest.mark.parametrize("suffix", SUFFIXES[1:])
@pytest.mark.parametrize("kept", [0.5, 0.99])
def test_truncated_compression_is_named_with_its_line(tmp_path: Path, suffix: str, kept: float) -> None:
    lines = [f"line {number} {hash(number) % 977}" for number in range(20_000)]
    path = pack(tmp_path / f"lines.txt{suffix}", "\n".join(lines).encode())
    path.write_bytes(path.read_bytes()[: int(kept * path.stat().st_size)])
    read: list[str] = []
    with pytest.raises(DataError) as caught:
        read.extend(line for _, line in numbered_lines(path))
    assert read == lines[: len(read)]
    assert caught.value.where == f"{path}:{len(read) + 1}"


@pytest.mark.parametrize("suffix", SUFFIXES[1:])
def test_a_file_that_is_not_compressed_as_it_says_is_refused(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"lines.txt{suffix}"
    path.write_bytes(b"plain text, and long enough to be read as a header of something")
    with pytest.raises(DataError, match="cannot be read"):
        list(numbered_lines(path))


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_broken_utf8_names_file_and_line(tmp_path: Path, suffix: str) -> None:
    path = pack(tmp_path / f"lines.txt{suffix}", b"good\nbad \xff\xfe\nnever reached")
    with pytest.raises(DataError, match="not UTF-8") as caught:
        list(numbered_lines(path))
    assert caught.value.where == f"{path}:2"


def test_the_fallback_decodes_only_what_is_not_utf8(tmp_path: Path) -> None:
    path = tmp_path / "Y.txt"
    path.write_bytes("é\n".encode() + "é\n".encode("latin-1"))
    assert [line for _, line in numbered_lines(path, fallback="latin-1")] == ["é", "é"]


def test_missing_and_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file"):
        list(numbered_lines(tmp_path / "absent.txt"))
    with pytest.raises(DataError, match="directory"):
        list(numbered_lines(tmp_path))
    with pytest.raises(DataError):
        list(numbered_lines(tmp_path / "absent.zst"))


def test_line_ends_and_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "windows.txt"
    path.write_bytes(b"\xef\xbb\xbfa\r\nb\rc\n")
    assert [line for _, line in numbered_lines(path)] == ["a", "b\rc"]
    assert [line for _, line in numbered_lines(path, keep_ends=True)] == ["a\r\n", "b\rc\n"]


def test_streams_of_bytes_and_of_text() -> None:
    assert list(numbered_lines(io.BytesIO(b"a\nb\n"))) == [(1, "a"), (2, "b")]
    assert list(numbered_lines(io.StringIO("a\nb"))) == [(1, "a"), (2, "b")]
    broken = io.TextIOWrapper(io.BytesIO(b"\xff\n"), encoding="utf-8")
    with pytest.raises(DataError, match="not UTF-8"):
        list(numbered_lines(broken))
