"""safetensors files as memory-mapped NumPy arrays, and string tables as tensors.

Reading maps the file and checks its header without touching tensor bytes, so a model loads in milliseconds and may
be larger than memory. Knows nothing about what the tensors mean.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, final

import numpy as np

from xclearn.errors import ModelError
from xclearn.kernels import _native
from xclearn.writing import atomic_path

_DTYPES = {
    "F16": "<f2",
    "F32": "<f4",
    "F64": "<f8",
    "I64": "<i8",
    "I32": "<i4",
    "I8": "|i1",
    "U8": "|u1",
    "BOOL": "|b1",
}
_LARGEST_HEADER = 100_000_000
_STRINGS_AT_ONCE = 1 << 16


def write_tensors(path: Path, tensors: Mapping[str, np.ndarray], metadata: Mapping[str, str] | None = None) -> None:
    """Write a safetensors file atomically."""
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    with atomic_path(path) as temporary:
        contiguous = {name: np.asarray(array, order="C") for name, array in tensors.items()}
        try:
            save_file(contiguous, temporary, metadata=dict(metadata or {}))
            temporary.chmod(0o644)  # it is created readable by its owner only, but a server may be another user
        except SafetensorError as error:  # usually a full disk
            raise OSError(str(error)) from error


def read_tensors(path: Path, mapped: np.ndarray | None = None) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """All tensors of a file, mapped read-only, and its metadata; `mapped` (bytes,) uint8 replaces the file."""
    mapped = _mapped(path) if mapped is None else mapped
    header, start = _header(mapped, path)
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict):
        raise ModelError("the tensor header is damaged", where=str(path), got=metadata)
    return {name: _view(mapped, start, entry, f"{path}:{name}") for name, entry in header.items()}, metadata


def tensor_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """The shape of each tensor from a file's header, including types that NumPy lacks (bfloat16)."""
    header, _ = _header(_mapped(path), path)
    header.pop("__metadata__", None)
    return {name: _shape(entry, f"{path}:{name}") for name, entry in header.items()}


def _shape(entry: Any, where: str) -> tuple[int, ...]:
    shape = entry.get("shape") if isinstance(entry, dict) else None
    if not isinstance(shape, list) or not all(type(size) is int and 0 <= size <= sys.maxsize for size in shape):
        raise ModelError("a tensor's entry has no shape", where=where, got=entry)
    return tuple(shape)


def _mapped(path: Path) -> np.ndarray:
    """The bytes of a file (n,) uint8, without reading them."""
    try:
        return np.asarray(np.memmap(path, dtype=np.uint8, mode="r"))
    except (OSError, ValueError) as error:
        raise ModelError("the tensor file cannot be opened", where=str(path), got=str(error)) from error


def _header(mapped: np.ndarray, path: Path) -> tuple[dict[str, Any], int]:
    length = int(mapped[:8].view("<u8")[0]) if len(mapped) >= 8 else _LARGEST_HEADER
    if length >= _LARGEST_HEADER or 8 + length > len(mapped):
        raise ModelError("not a safetensors file, or truncated", where=str(path), got=f"{len(mapped)} bytes")
    try:
        header = json.loads(mapped[8 : 8 + length].tobytes())
    except (ValueError, RecursionError) as error:
        raise ModelError("the tensor header is damaged", where=str(path)) from error
    if not isinstance(header, dict):
        raise ModelError("the tensor header is damaged", where=str(path))
    return header, 8 + length


def _view(mapped: np.ndarray, start: int, entry: Any, where: str) -> np.ndarray:
    """The bytes of an entry as an array.

    Misaligned tensors are errors: reading them is undefined behaviour in C++, and copying them would let a small file
    with overlapping entries take any amount of memory. The safetensors library writes aligned tensors.
    """
    try:
        dtype = np.dtype(_DTYPES[entry["dtype"]])
        shape = tuple(entry["shape"])
        (begin, end) = entry["data_offsets"]
        whole = all(type(size) is int and 0 <= size <= sys.maxsize for size in (*shape, begin, end))
        if not whole or not begin <= end <= len(mapped) - start or math.prod(shape) * dtype.itemsize != end - begin:
            raise ValueError
        view = mapped[start + begin : start + end].view(dtype).reshape(shape)
    except (KeyError, TypeError, ValueError) as error:
        raise ModelError("a tensor's entry does not fit the file", where=where, got=entry) from error
    if not view.flags.aligned:
        allowed = f"a multiple of {dtype.itemsize} bytes from the start of the file"
        raise ModelError("a tensor is not aligned", where=where, got=start + begin, allowed=allowed)
    return view


@final
class StringTable(Sequence[str]):
    """Strings as one block of UTF-8 with offsets; loads without decoding, and decodes strings on access."""

    def __init__(self, block: np.ndarray, offsets: np.ndarray) -> None:
        self.block, self.offsets = block, offsets  # uint8 (bytes,), int64 (n + 1,)

    @classmethod
    def of(cls, strings: Sequence[str]) -> StringTable:
        encoded = [string.encode("utf-8", "surrogatepass") for string in strings]
        offsets = np.concatenate([[0], np.cumsum([len(item) for item in encoded], dtype=np.int64)]).astype(np.int64)
        return cls(np.frombuffer(b"".join(encoded), dtype=np.uint8), offsets)

    def check(self, where: str) -> None:
        """Raise unless the offsets cover the block."""
        block, offsets = self.block, self.offsets
        kinds = block.dtype == np.uint8 and offsets.dtype == np.int64 and block.ndim == offsets.ndim == 1
        right = kinds and len(offsets) > 0 and offsets[0] == 0 and offsets[-1] == len(block)
        if not right or np.any(offsets[1:] < offsets[:-1]):
            raise ModelError("a string table's offsets do not fit its bytes", where=where)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        position = range(len(self))[index]
        begin, end = self.offsets[position], self.offsets[position + 1]
        return _decode(self.block[begin:end].tobytes())

    def at(self, ids: np.ndarray) -> list[str]:
        """The strings with these ids (m,) int64."""
        try:
            return _native.strings(self.block, self.offsets, ids)
        except UnicodeDecodeError as error:
            raise ModelError("a string of the model is not UTF-8", got=error.object) from error

    def __iter__(self) -> Iterator[str]:
        for begin in range(0, len(self), _STRINGS_AT_ONCE):
            yield from self.at(np.arange(begin, min(begin + _STRINGS_AT_ONCE, len(self))))


def _decode(raw: bytes) -> str:
    try:
        return raw.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise ModelError("a string of the model is not UTF-8", got=raw) from error
