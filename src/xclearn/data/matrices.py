"""Reads feature and relevance matrices: XC repository text (old and new), scipy npz, dense npy.

All matrices are checked: finite, in range, indices sorted and unique. Knows nothing about names or splits.
"""

from __future__ import annotations

import math
import re
import zipfile
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import final

import numpy as np
import scipy.sparse as sp

from xclearn.data.folder import DataFile
from xclearn.errors import DataError
from xclearn.files import numbered_lines
from xclearn.limits import largest_contents, too_much

_LARGEST_DIMENSION = 2**31 - 1
_XC_HEADER = re.compile(r"\s*\d+\s+\d+\s+\d+\s*")


@final
class _Rows:
    """Collects sparse rows; `width` comes from the header."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.starts = array("q", [0])
        self.columns = array("q")
        self.values = array("d")

    def add(self, columns: list[int], values: list[float], where: str) -> None:
        if columns and not 0 <= min(columns) <= max(columns) < self.width:
            got = min(columns) if min(columns) < 0 else max(columns)
            raise DataError("index out of range", where=where, got=got, allowed=f"0 to {self.width - 1}")
        self.columns.extend(columns)
        self.values.extend(values)
        self.starts.append(len(self.columns))

    def matrix(self) -> sp.csr_matrix:
        with np.errstate(over="ignore"):  # values too large for float32 become infinite, which is an error
            values = np.array(self.values, dtype=np.float32)
        parts = (values, np.array(self.columns, dtype=np.int32), np.array(self.starts))
        return sp.csr_matrix(parts, shape=(len(self.starts) - 1, self.width))


def is_xc_file(file: DataFile) -> bool:
    """Whether a .txt begins with the header `documents features labels` of the XC repository's old format."""
    if file.suffix != "txt":
        return False
    _, first = next(numbered_lines(file.path), (1, ""))
    return _XC_HEADER.fullmatch(first) is not None


def read_xc(path: Path) -> tuple[sp.csr_matrix, sp.csr_matrix]:
    """Features and relevance in the old format: `l1,l2 f:v f:v`; a line that starts with a space has no labels."""
    lines = numbered_lines(path)
    n_rows, width, n_labels = _header(lines, path, ("documents", "features", "labels"))
    features, relevance = _Rows(width), _Rows(n_labels)
    for number, line in _body(lines, path, n_rows):
        where = f"{path}:{number}"
        labels, pairs = _labels_and_pairs(line)
        ids = _numbers(labels.split(",") if labels else [], where)
        relevance.add(ids, [1.0] * len(ids), where)
        features.add(*_pairs(pairs, where), where)
    return _checked_features(features.matrix(), path, 2), _checked_relevance(relevance.matrix(), path, 2)


def read_features(file: DataFile) -> sp.csr_matrix | np.ndarray:
    """A feature matrix, float32: sparse from .txt and .npz, dense from .npy."""
    if file.suffix == "npy":
        return _read_dense(file.path)
    return _checked_features(_read_sparse(file), file.path, 2 if file.suffix == "txt" else 1)


def read_relevance(file: DataFile) -> sp.csr_matrix:
    """A relevance matrix, float32: 1 for every nonzero entry."""
    return _checked_relevance(_read_sparse(file), file.path, 2 if file.suffix == "txt" else 1)


def read_filter_pairs(path: Path, shape: tuple[int, int]) -> np.ndarray:
    """Filter pairs (m, 2) int64 from lines of `document label` row numbers."""
    pairs = array("q")
    for number, line in numbered_lines(path):
        if line.strip():
            where = f"{path}:{number}"
            pair = _numbers(line.split(), where)
            if len(pair) != 2 or not (0 <= pair[0] < shape[0] and 0 <= pair[1] < shape[1]):
                allowed = f"a document row below {shape[0]} and a label row below {shape[1]}"
                raise DataError("not a filter pair", where=where, got=line, allowed=allowed)
            pairs.extend(pair)
    return np.array(pairs, dtype=np.int64).reshape(-1, 2)


def _read_sparse(file: DataFile) -> sp.csr_matrix:
    return _read_sparse_text(file.path) if file.suffix == "txt" else _read_npz(file.path)


def _read_sparse_text(path: Path) -> sp.csr_matrix:
    """The new format: a header `rows columns`, then rows of `column:value` pairs; an empty line is an empty row."""
    lines = numbered_lines(path)
    n_rows, width = _header(lines, path, ("rows", "columns"))
    rows = _Rows(width)
    for number, line in _body(lines, path, n_rows):
        where = f"{path}:{number}"
        rows.add(*_pairs(line, where), where)
    return rows.matrix()


def _read_npz(path: Path) -> sp.csr_matrix:
    """A csr, csc or coo matrix with all indices checked, as SciPy's own checks miss some files that crash it."""
    try:
        with open(path, "rb") as file, zipfile.ZipFile(file) as archive:
            _refuse_bomb(archive, path)
            matrix = _assembled(_Members(archive), path)
        with np.errstate(over="ignore"):
            return sp.csr_matrix(matrix, dtype=np.float32)
    except DataError:
        raise
    except Exception as error:  # a damaged archive can raise nearly any exception in zip, zlib or NumPy
        what = f"not a sparse matrix saved by scipy ({error})"
        raise DataError(what, where=str(path), allowed="csr, csc or coo of real numbers") from error


def _refuse_bomb(archive: zipfile.ZipFile, path: Path) -> None:
    unpacked = sum(member.file_size for member in archive.infolist())
    if unpacked > largest_contents(path):
        what = "the file unpacks to more than is plausible for its size"
        raise too_much("expansion", what, where=str(path), got=unpacked, most=largest_contents(path))


@final
class _Members:
    """The arrays of an .npz by name; none is allocated beyond what its archive member can fill."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive

    def vector(self, name: str, kinds: str) -> np.ndarray:
        """A one-dimensional array whose dtype is of one of these kinds."""
        array = self.array(name)
        if array.ndim != 1 or array.dtype.kind not in kinds:
            raise ValueError(f"'{name}' is of {array.dtype}, shape {array.shape}")
        return array

    def array(self, name: str) -> np.ndarray:
        """An array of any shape."""
        member = self._archive.getinfo(f"{name}.npy")
        with self._archive.open(member) as stream:
            version = np.lib.format.read_magic(stream)
            readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
            shape, _, dtype = readers[version](stream)
        if dtype.hasobject or math.prod(shape) * dtype.itemsize > member.file_size:
            raise ValueError(f"'{name}' is of {dtype}, shape {shape}, in {member.file_size} bytes")
        with self._archive.open(member) as stream:
            return np.lib.format.read_array(stream, allow_pickle=False)


def _assembled(members: _Members, path: Path) -> sp.csr_matrix | sp.csc_matrix | sp.coo_matrix:
    layout = members.array("format").item()
    layout = layout.decode("ascii") if isinstance(layout, bytes) else layout
    if layout not in ("csr", "csc", "coo"):
        raise ValueError(f"a {layout} matrix")
    n_rows, width = map(int, members.vector("shape", "iu"))
    if not 0 <= min(n_rows, width) <= max(n_rows, width) <= _LARGEST_DIMENSION:
        raise ValueError(f"shape {(n_rows, width)}")
    _refuse_implausible_rows(n_rows, path)
    values = members.vector("data", "biuf")
    if layout == "coo":
        rows = _indices_below(n_rows, members.vector("row", "iu"), "row")
        columns = _indices_below(width, members.vector("col", "iu"), "col")
        return sp.coo_matrix((values, (rows, columns)), shape=(n_rows, width))
    n_starts, n_indices = (n_rows, width) if layout == "csr" else (width, n_rows)
    starts = _offsets(members.vector("indptr", "iu"), n_starts, len(values))
    indices = _indices_below(n_indices, members.vector("indices", "iu"), "indices")
    kind = sp.csr_matrix if layout == "csr" else sp.csc_matrix
    return kind((values, indices, starts), shape=(n_rows, width))


def _refuse_implausible_rows(n_rows: int, path: Path) -> None:
    """Raise if a header declares more documents than the file has bytes, as each would take memory."""
    if n_rows > largest_contents(path):
        what = "the header declares more documents than the file can hold"
        raise too_much("expansion", what, where=str(path), got=n_rows, most=largest_contents(path))


def _indices_below(end: int, indices: np.ndarray, name: str) -> np.ndarray:
    if len(indices) and not 0 <= indices.min() <= indices.max() < end:
        raise ValueError(f"'{name}' holds {indices.min()} to {indices.max()}, not 0 to {end - 1}")
    return indices.astype(np.int64, copy=False)


def _offsets(starts: np.ndarray, n_rows: int, n_entries: int) -> np.ndarray:
    """Checked offsets, ascending from 0 to the number of entries; compared, as differences can overflow."""
    if len(starts) != n_rows + 1 or starts[0] != 0 or starts[-1] != n_entries or np.any(starts[1:] < starts[:-1]):
        raise ValueError(f"'indptr' does not ascend from 0 to {n_entries} in {n_rows} steps")
    return starts.astype(np.int64, copy=False)


def _read_dense(path: Path) -> np.ndarray:
    try:
        stored = np.load(
            path, mmap_mode="r", allow_pickle=False
        )  # memory-mapped first, which checks the size in the header
        if stored.ndim != 2 or stored.dtype.kind not in "biuf":
            raise ValueError(f"shape {stored.shape} of {stored.dtype}")
        with np.errstate(over="ignore"):
            values = np.array(stored, dtype=np.float32)  # (n, D)
    except Exception as error:  # as above
        raise DataError(f"not a two-dimensional array saved by NumPy ({error})", where=str(path)) from error
    _refuse_implausible_rows(len(values), path)  # rows of width 0 take no bytes
    broken = np.flatnonzero(~np.isfinite(values).all(axis=1))
    if len(broken):
        raise DataError("a feature is not a finite number", where=f"{path}:{broken[0] + 1}")
    return values


def _header(lines: Iterator[tuple[int, str]], path: Path, names: tuple[str, ...]) -> list[int]:
    _, line = next(lines, (1, ""))
    fields = line.split()
    if len(fields) == len(names) and all(field.isdecimal() and len(field) < 11 for field in fields):
        numbers = [int(field) for field in fields]
        if max(numbers) <= _LARGEST_DIMENSION:
            _refuse_implausible_rows(numbers[0], path)
            return numbers
    what = "wrong header" if line else "the file is empty"
    raise DataError(what, where=f"{path}:1", got=line or None, allowed=f"'{' '.join(names)}' as whole numbers")


def _body(lines: Iterator[tuple[int, str]], path: Path, n_rows: int) -> Iterator[tuple[int, str]]:
    """Exactly as many rows as the header declares; blank lines may follow."""
    found = 0
    for number, line in lines:
        if found == n_rows and line.strip():
            raise DataError(f"more rows than the {n_rows} of the header", where=f"{path}:{number}")
        if found < n_rows:
            found += 1
            yield number, line
    if found < n_rows:
        raise DataError(f"the header declares {n_rows} rows", where=str(path), got=f"{found} rows")


def _labels_and_pairs(line: str) -> tuple[str, str]:
    first, _, rest = line.partition(" ")
    return ("", line) if ":" in first else (first, rest)


def _pairs(text: str, where: str) -> tuple[list[int], list[float]]:
    tokens = text.split()
    fields = ":".join(tokens).split(":") if tokens else []
    try:
        if any(token.count(":") != 1 for token in tokens):
            raise ValueError("not every pair has one colon")
        return list(map(int, fields[::2])), list(map(float, fields[1::2]))
    except ValueError as error:
        raise DataError(f"not 'index:value' pairs ({error})", where=where, got=text) from error


def _numbers(fields: list[str], where: str) -> list[int]:
    try:
        return list(map(int, fields))
    except ValueError as error:
        raise DataError("not row numbers", where=where, got=" ".join(fields)) from error


def _refuse_entry(matrix: sp.csr_matrix, entries: np.ndarray, what: str, path: Path, first_line: int) -> None:
    """Raise for the first of these stored entries, naming its line (or its row from 1, if there are no lines)."""
    if len(entries):
        row = int(np.searchsorted(matrix.indptr, entries[0], side="right")) - 1
        raise DataError(what, where=f"{path}:{row + first_line}", got=float(matrix.data[entries[0]]))


def _checked_features(matrix: sp.csr_matrix, path: Path, first_line: int) -> sp.csr_matrix:
    broken = np.flatnonzero(~np.isfinite(matrix.data))
    _refuse_entry(matrix, broken, "a feature is not a finite number", path, first_line)
    matrix.sort_indices()
    starts_row = np.zeros(matrix.nnz + 1, dtype=bool)
    starts_row[matrix.indptr] = True
    repeated = 1 + np.flatnonzero((np.diff(matrix.indices) == 0) & ~starts_row[1:-1])
    _refuse_entry(matrix, repeated, "a feature occurs twice in the row", path, first_line)
    return matrix


def _checked_relevance(matrix: sp.csr_matrix, path: Path, first_line: int) -> sp.csr_matrix:
    broken = np.flatnonzero(~np.isfinite(matrix.data))
    _refuse_entry(matrix, broken, "a relevance is not a finite number", path, first_line)
    matrix.eliminate_zeros()
    return as_relevance(matrix)


def as_relevance(matrix: sp.csr_matrix) -> sp.csr_matrix:
    """The same pairs, sorted and unique, with value 1; repeated labels of a record are merged."""
    matrix.sum_duplicates()
    matrix.data = np.ones(matrix.nnz, dtype=np.float32)
    return matrix
