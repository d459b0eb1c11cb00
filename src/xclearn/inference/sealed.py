"""A model folder's files as a private copy in memory that no process can change: what a server answers from.

A mapped file shows whatever the file holds now: copying over it changes the model, and truncating it ends the process.
The copy is sealed first and hashed afterwards, so what was verified is what is mapped. All processes that map it share
its pages; it takes the size of the file, and is freed with the last of them.
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

_Stamp = tuple[tuple[int, int, int] | None, ...]  # inode, size and time of change of each file, or None: it is gone


@final
@dataclass(frozen=True, eq=False)
class Sealed:
    """A verified copy. Pickled to another process of this machine, it is the same memory there."""

    folder: Path  # where it was read
    description: bytes  # model.json
    tensors: int  # the descriptor of the copy
    stamp: _Stamp  # of the files that were read

    @property
    def version(self) -> str:
        """The first digits of the hash of all that the model is."""
        return version_of(self.description)

    def model(self) -> Model:
        """The model, on the copy itself."""
        content = read_description(self.description, self.folder / JSON_FILE)
        return model_of(content, self.folder, _mapped(self.tensors))

    def changed(self) -> bool:
        """Whether the folder on disk is no longer what was read."""
        return _stamp(self.folder) != self.stamp

    def close(self) -> None:
        """Let go of the copy; models made of it keep what they map."""
        os.close(self.tensors)

    def __reduce__(self) -> Any:
        from multiprocessing.reduction import DupFd

        return _received, (self.folder, self.description, DupFd(self.tensors), self.stamp)


def version_of(description: bytes) -> str:
    """That of a model whose model.json holds these bytes."""
    return hashlib.sha256(description).hexdigest()[:12]


def _received(folder: Path, description: bytes, tensors: Any, stamp: _Stamp) -> Sealed:
    return Sealed(folder, description, tensors.detach(), stamp)


def seal(folder: str | Path) -> Sealed:
    """Copy, seal, and hash every byte; refuse what is not what model.json says."""
    path = Path(folder)
    stamp = _stamp(path)  # before reading: what changes meanwhile is seen as a change
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
    """A descriptor of a copy of the file that cannot be written or cut short any more."""
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
    """Where there is no memory that can be sealed, a file without a name: no other program can open it."""
    if hasattr(os, "memfd_create"):
        return open(os.memfd_create("xclearn-model", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING), "wb")
    return tempfile.TemporaryFile(prefix="xclearn-model-")


def _mapped(descriptor: int) -> np.ndarray:
    """The bytes, read-only. Privately: kernels before 6.7 refuse to share what is sealed against writing."""
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
