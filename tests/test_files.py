"""Compressed reading and atomic writing, against files made by other means and a disk that really fails."""

import bz2
import errno
import gzip
import io
import lzma
import os
from pathlib import Path
from typing import Any

import pyarrow
import pytest

from xclearn.errors import DataError
from xclearn.files import atomic_folder, atomic_path, numbered_lines, open_text

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


def write_and_fail(path: Path) -> None:
    path.write_text("half")
    raise KeyError


def test_atomic_path_replaces_on_success_only(tmp_path: Path) -> None:
    path = tmp_path / "file.txt"
    path.write_text("old")
    with pytest.raises(KeyError), atomic_path(path) as temporary:
        write_and_fail(temporary)
    assert path.read_text() == "old"
    with atomic_path(path) as temporary:
        temporary.write_text("new")
        assert path.read_text() == "old"
        assert temporary.parent == path.parent
    assert path.read_text() == "new"
    assert os.listdir(tmp_path) == ["file.txt"]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs the device that is always full")
@pytest.mark.parametrize("manager", [atomic_path, atomic_folder])
def test_a_full_disk_is_our_error_and_leaves_nothing(tmp_path: Path, manager: Any) -> None:
    def fill() -> None:
        with open("/dev/full", "w") as file:
            file.write("x")

    with pytest.raises(DataError, match=os.strerror(errno.ENOSPC)), manager(tmp_path / "target"):
        fill()
    assert os.listdir(tmp_path) == []


def test_writing_where_there_is_no_folder_is_our_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="writing failed"), atomic_path(tmp_path / "absent" / "file") as temporary:
        temporary.write_text("x")


def test_atomic_folder_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    folder = tmp_path / "inner" / "folder"
    with pytest.raises(KeyError), atomic_folder(folder) as temporary:
        write_and_fail(temporary / "half")
    assert not folder.exists()
    with atomic_folder(folder) as temporary:
        (temporary / "whole").write_text("x")
        assert not folder.exists()
    assert os.listdir(folder) == ["whole"]
    assert os.listdir(folder.parent) == ["folder"]


def test_atomic_folder_refuses_what_it_would_overwrite_before_any_work(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    for target, what in ((tmp_path, "not empty"), (tmp_path / "mine", "in the way")):
        with pytest.raises(DataError, match=what), atomic_folder(target):
            pytest.fail("the block ran")
    assert (tmp_path / "mine").read_text() == "precious"


def test_atomic_folder_replaces_its_files_and_keeps_others(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "ours").write_text("old")
    (folder / "notes").write_text("precious")
    with atomic_folder(folder, replace=True) as temporary:
        (temporary / "ours").write_text("new")
    assert {path.name: path.read_text() for path in folder.iterdir()} == {"ours": "new", "notes": "precious"}
    assert os.listdir(tmp_path) == ["folder"]
