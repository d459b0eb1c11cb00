"""Small files that claim, or unpack to, very much: each is refused, or read in little memory.

They are read in a child that may not take more than 2 GiB, so that these tests can fail.
"""

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp
from pyarrow import parquet
from test_files import pack

ROOT = Path(__file__).parents[1]
LIFTED_BY = "raise the environment variable XCLEARN_MAX_"


def outcomes_of(*paths: Path, **environment: str) -> list[dict[str, Any]]:
    """How `statistics` and `validate` of each data set end in the sandbox of the fuzzer."""
    command = [sys.executable, "-m", "tests.fuzz.readers", "--paths", *map(str, paths)]
    ran = subprocess.run(command, cwd=ROOT, env=os.environ | environment, capture_output=True, text=True, check=False)
    assert ran.stdout, ran.stderr
    return [json.loads(line) for line in ran.stdout.splitlines()]


def xc_header(folder: Path) -> None:
    (folder / "train.txt").write_text("1 4 40000000\n1 0:1\n")


def xc_header_beyond_the_limit(folder: Path) -> None:
    (folder / "train.txt").write_text("1 1 100000000\n0 0:1\n")


def coo_documents(folder: Path) -> None:
    for name, width in (("X", 4), ("Y", 2)):
        matrix = sp.coo_matrix((np.ones(3, np.float32), ([0, 1, 2], [0, 1, 1])), shape=(10**9, width))
        sp.save_npz(folder / f"train_{name}.npz", matrix)


def zst_line(folder: Path) -> None:
    pack(folder / "train.jsonl.zst", b'{"text": "' + b"a" * 10**8 + b'", "labels": ["x"]}\n')


def plain_line(folder: Path) -> None:
    line = b'{"text": "' + b"a" * (40 * 2**20) + b'", "labels": ["x"]}\n'
    (folder / "train.jsonl").write_bytes(line)


def blank_documents(folder: Path) -> None:
    pack(folder / "train.txt.gz", b"20000000 4 2\n0 0:1\n" + b"\n" * 19_999_999)


def blank_lines_gz(folder: Path, suffix: str = ".gz") -> None:
    pack(folder / f"train.jsonl{suffix}", b"\n" * 20_000_000)


def blank_lines_xz(folder: Path) -> None:
    blank_lines_gz(folder, ".xz")


def blank_lines_bz2(folder: Path) -> None:
    blank_lines_gz(folder, ".bz2")


def blank_lines_zst(folder: Path) -> None:
    blank_lines_gz(folder, ".zst")


def xz_dictionary(folder: Path) -> None:
    """A header that asks for a dictionary of 4 GiB; its check value made good."""
    import lzma
    import zlib

    data = bytearray(lzma.compress(b'{"text": "a", "labels": ["x"]}\n'))
    assert data[12:15] == b"\x02\x00\x21"  # block header: size, flags, LZMA2
    data[16] = 40
    data[20:24] = zlib.crc32(data[12:20]).to_bytes(4, "little")
    (folder / "train.jsonl.xz").write_bytes(data)


def open_quote(folder: Path) -> None:
    (folder / "train.csv").write_bytes(b'text,labels\n"' + (b"a" * 1023 + b"\n") * (40 * 2**10))


def parquet_run_lengths(folder: Path) -> None:
    table = pa.table({"text": pa.array(["a"]).take(pa.array(np.zeros(10**7, np.int8))), "labels": ["x"] * 10**7})
    parquet.write_table(table, folder / "train.parquet", compression="zstd", row_group_size=10**7)


def parquet_dictionary(folder: Path) -> None:
    """A text of 1 MB, 100,000 times."""
    text = pa.DictionaryArray.from_arrays(np.zeros(10**5, np.int32), ["a" * 10**6])
    labels = pa.DictionaryArray.from_arrays(np.zeros(10**5, np.int32), ["x"])
    parquet.write_table(pa.table({"text": text, "labels": labels}), folder / "train.parquet", compression="zstd")


def parquet_list(folder: Path) -> None:
    """One document with 10⁷ labels, all of them the same."""
    inner = pa.DictionaryArray.from_arrays(np.zeros(10**7, np.int32), ["x"])
    labels = pa.ListArray.from_arrays(np.array([0, 10**7], np.int32), inner)
    parquet.write_table(pa.table({"text": ["a"], "labels": labels}), folder / "train.parquet", compression="zstd")


def npz_of_zeros(folder: Path) -> None:
    matrix = sp.csr_matrix((20_000_000, 4), dtype=np.float32)
    for name in "XY":
        sp.save_npz(folder / f"train_{name}.npz", matrix)


def npy_of_no_width(folder: Path) -> None:
    np.save(folder / "train_X.npy", np.empty((10**12, 0), dtype=np.float32))
    sp.save_npz(folder / "train_Y.npz", sp.csr_matrix(np.eye(2)))


def csr_offsets(folder: Path) -> None:
    """SciPy checks nothing when the last offset is 0; one of 2⁴⁰ before it then crashed `xc data validate`."""
    matrix = sp.csr_matrix(np.eye(4, dtype=np.float32))
    starts = np.array([0, 2**40, 2**50, 2**40, 0])
    for name in "XY":
        arrays = {"data": matrix.data, "indices": matrix.indices, "indptr": starts, "shape": matrix.shape}
        np.savez(folder / f"train_{name}.npz", format=b"csr", **arrays)


def csc_offsets(folder: Path) -> None:
    csr_offsets(folder)
    for path in folder.iterdir():
        with np.load(path) as stored:
            arrays = dict(stored)
        np.savez(path, **arrays | {"format": b"csc"})


REFUSED = {  # by the limit that lifts the refusal
    xc_header_beyond_the_limit: "LABELS",
    coo_documents: "EXPANSION",
    zst_line: "EXPANSION",
    plain_line: "LINE",
    blank_documents: "EXPANSION",
    blank_lines_gz: "EXPANSION",
    blank_lines_xz: "EXPANSION",
    blank_lines_bz2: "EXPANSION",
    blank_lines_zst: "EXPANSION",
    open_quote: "LINE",
    parquet_run_lengths: "EXPANSION",
    parquet_dictionary: "EXPANSION",
    parquet_list: "EXPANSION",
    npz_of_zeros: "EXPANSION",
    npy_of_no_width: "EXPANSION",
}
OTHERS = (xc_header, xz_dictionary, csr_offsets, csc_offsets)


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """By the name of the function that writes the folder."""
    folders = {write: tmp_path_factory.mktemp(write.__name__) for write in (*REFUSED, *OTHERS)}
    for write, folder in folders.items():
        write(folder)
    found = outcomes_of(*folders.values())
    return {write.__name__: outcome for write, outcome in zip(folders, found, strict=True)}


@pytest.mark.parametrize("write", REFUSED, ids=lambda write: write.__name__)
def test_a_file_beyond_a_limit_is_refused_in_little_memory(
    outcomes: dict[str, dict[str, Any]], write: Callable[[Path], None]
) -> None:
    outcome = outcomes[write.__name__]
    assert outcome["kind"] == "refused", outcome
    assert f"{LIFTED_BY}{REFUSED[write]}" in outcome["detail"]
    assert outcome["peak_mib"] < 500, outcome


def test_a_header_below_the_limit_takes_no_memory_for_names(outcomes: dict[str, dict[str, Any]]) -> None:
    outcome = outcomes["xc_header"]
    assert outcome["kind"] == "done", outcome
    assert outcome["peak_mib"] < 1500, outcome  # the names alone were 2.7 GB


def test_an_xz_header_may_not_ask_for_gigabytes(outcomes: dict[str, dict[str, Any]]) -> None:
    outcome = outcomes["xz_dictionary"]
    assert (outcome["kind"], outcome["peak_mib"] < 100) == ("refused", True), outcome
    assert "emory usage limit" in outcome["detail"]


@pytest.mark.parametrize("name", ["csr_offsets", "csc_offsets"])
def test_offsets_that_end_in_zero_are_no_way_around_the_check(outcomes: dict[str, dict[str, Any]], name: str) -> None:
    outcome = outcomes[name]
    assert outcome["kind"] == "refused", outcome
    assert "does not ascend" in outcome["detail"]


def test_the_variable_that_the_error_names_lifts_the_limit(tmp_path: Path) -> None:
    text = "ab " * 4_000_000
    (tmp_path / "train.jsonl.gz").write_bytes(gzip.compress(json.dumps({"text": text, "labels": ["x"]}).encode()))
    assert f"{LIFTED_BY}EXPANSION (now 100)" in outcomes_of(tmp_path)[0]["detail"]
    assert outcomes_of(tmp_path, XCLEARN_MAX_EXPANSION="2000")[0]["kind"] == "done"
    refused = outcomes_of(tmp_path, XCLEARN_MAX_EXPANSION="2000", XCLEARN_MAX_LINE="1000")[0]
    assert f"{LIFTED_BY}LINE (now 1000)" in refused["detail"]
    wrong = outcomes_of(tmp_path, XCLEARN_MAX_EXPANSION="-1")[0]
    assert "ConfigError: 'XCLEARN_MAX_EXPANSION: not a limit" in wrong["detail"].replace('"', "'")
