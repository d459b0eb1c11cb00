"""A private, immutable in-memory copy of a model folder's files, from which a server predicts.

A mapped file always shows the file's current content: overwriting the file changes the model, and truncating it crashes
the process. The copy is first sealed and then hashed, so the verified bytes are the mapped ones. All processes that map
it share its pages; it takes as much memory as the file, until the last process ends.
"""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, final

import numpy as np

from xclearn.errors import ModelError
from xclearn.inference.folder import (
    CARD_FILE,
    JSON_FILE,
    TENSORS_FILE,
    Model,
    check_file,
    check_fingerprint,
    model_of,
    read_description,
    read_json,
)

_Stamp = tuple[tuple[int, int, int] | None, ...]  # inode, size and change time of each file, or None if missing


@final
@dataclass(frozen=True, eq=False)
class Sealed:
    """A verified copy. Pickling it to another process on this machine shares the same memory."""

    folder: Path  # where it was read from
    description: bytes  # model.json
    tensors: int  # the descriptor of the copy
    stamp: _Stamp  # of the files read

    @property
    def version(self) -> str:
        """The first digits of a hash of the whole model."""
        return version_of(self.description)

    def model(self) -> Model:
        """The model, mapped from the copy."""
        content = read_description(self.description, self.folder / JSON_FILE)
        return model_of(content, self.folder, _mapped(self.tensors))

    def changed(self) -> bool:
        """Whether the folder on disk has changed since it was read."""
        return _stamp(self.folder) != self.stamp

    def close(self) -> None:
        """Release the copy; models made from it keep their mappings."""
        os.close(self.tensors)

    def __reduce__(self) -> Any:
        from multiprocessing.reduction import DupFd

        return _received, (self.folder, self.description, DupFd(self.tensors), self.stamp)


def version_of(description: bytes) -> str:
    """The version of a model with this model.json."""
    return hashlib.sha256(description).hexdigest()[:12]


def _received(folder: Path, description: bytes, tensors: Any, stamp: _Stamp) -> Sealed:
    return Sealed(folder, description, tensors.detach(), stamp)


def seal(folder: str | Path) -> Sealed:
    """Copy, seal and hash every byte; raises if it differs from model.json."""
    path = Path(folder)
    stamp = _stamp(path)  # before reading, so that concurrent changes are noticed
    description = read_json(path / JSON_FILE)
    files = read_description(description, path / JSON_FILE)["files"]
    check_file(path / CARD_FILE, files.get(CARD_FILE), verify=True)
    check_file(path / TENSORS_FILE, files.get(TENSORS_FILE), verify=False)
    tensors = _copied(path / TENSORS_FILE)
    try:
        check_fingerprint(path / TENSORS_FILE, _fingerprint(tensors), files[TENSORS_FILE])
    except BaseException:
        os.close(tensors)
        raise
    return Sealed(path, description, tensors, stamp)


def _copied(path: Path) -> int:
    """A descriptor of a copy of the file that can no longer be written or truncated."""
    with contextlib.ExitStack() as stack:
        try:
            source = stack.enter_context(path.open("rb"))
            target = stack.enter_context(_memory_file())
            shutil.copyfileobj(source, target, 1 << 20)
            target.flush()
        except OSError as error:
            raise ModelError("the model cannot be copied into memory", where=str(path), got=str(error)) from error
        descriptor = os.dup(target.fileno())
    if hasattr(os, "memfd_create"):
        import fcntl

        seals = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
    return descriptor


def _memory_file() -> BinaryIO:
    """An unnamed file, for systems without sealable memory; no other program can open it."""
    if hasattr(os, "memfd_create"):
        return open(os.memfd_create("xclearn-model", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING), "wb")
    return tempfile.TemporaryFile(prefix="xclearn-model-")


def _mapped(descriptor: int) -> np.ndarray:
    """The bytes, mapped read-only; privately, because kernels before 6.7 cannot share write-sealed memory."""
    if not os.fstat(descriptor).st_size:
        return np.zeros(0, np.uint8)
    if hasattr(mmap, "MAP_PRIVATE"):
        return np.frombuffer(mmap.mmap(descriptor, 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ), np.uint8)
    return np.frombuffer(mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ), np.uint8)


def _fingerprint(descriptor: int) -> dict[str, Any]:
    return {"bytes": os.fstat(descriptor).st_size, "sha256": hashlib.sha256(_mapped(descriptor).data).hexdigest()}


def _stamp(folder: Path) -> _Stamp:
    def of(path: Path) -> tuple[int, int, int] | None:
        with contextlib.suppress(OSError):
            found = path.stat()
            return found.st_ino, found.st_size, found.st_mtime_ns
        return None

    return tuple(of(folder / name) for name in (JSON_FILE, TENSORS_FILE, CARD_FILE))
