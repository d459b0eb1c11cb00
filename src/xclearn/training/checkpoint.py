"""Checkpoints: every file is written whole, holds tensors, JSON and a checksum, and is tied to a run by a fingerprint.

A checkpoint folder belongs to one fingerprint (settings, data, seed); another run's folder is refused, never reused.
Random numbers need no file: they are drawn from the seed, the stage's name and the epoch. Knows nothing about stages.
"""

from __future__ import annotations

import json
import shutil
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, final

import numpy as np
import torch

from xclearn.errors import ModelError
from xclearn.files import atomic_path
from xclearn.inference.tensors import read_tensors, write_tensors

_INDEX = "checkpoint.json"


@final
class Checkpoint:
    """A folder of named tensor files. Without a folder nothing is kept and nothing found."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder

    def open(self, fingerprint: str, *, resume: bool) -> None:
        """Start the folder, or with `resume` accept the one that is there if it is of the same run."""
        if self.folder is None:
            if resume:
                raise ModelError("nothing to resume", todo="Name the checkpoint folder of the earlier run.")
            return
        index = self.folder / _INDEX
        if not resume and (index.exists() or any(self.folder.glob("*.safetensors"))):
            todo = "Add --resume (resume=True) to continue that run, or remove the folder."
            raise ModelError("a checkpoint of an earlier run is in the way", where=str(self.folder), todo=todo)
        if resume:
            self._check(index, fingerprint)
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        with atomic_path(index) as temporary:
            temporary.write_text(json.dumps({"format": "xclearn-checkpoint", "fingerprint": fingerprint}))

    def _check(self, index: Path, fingerprint: str) -> None:
        try:
            found = json.loads(index.read_text(encoding="utf-8"))["fingerprint"]
        except OSError as error:
            raise ModelError("nothing to resume", where=str(index.parent), got=error.strerror) from error
        except (ValueError, KeyError, TypeError) as error:
            raise ModelError("the checkpoint is damaged", where=str(index)) from error
        if found != fingerprint:
            todo = "Resume with the same data, settings and seed, or start anew without resume."
            raise ModelError("the checkpoint is of another run", where=str(index.parent), got=found, todo=todo)

    def save(self, name: str, tensors: Mapping[str, Any], facts: Mapping[str, Any]) -> None:
        """Keep tensors and JSON facts under a name, atomically."""
        if self.folder is not None:
            arrays = {key: _array(value) for key, value in tensors.items()}
            said = json.dumps(facts)
            write_tensors(self._path(name), arrays, {"facts": said, "checksum": _checksum(arrays, said)})

    def load(self, name: str) -> tuple[dict[str, np.ndarray], dict[str, Any]] | None:
        """What was kept under a name, copied out of the file, or None."""
        if self.folder is None or not self._path(name).exists():
            return None
        tensors, metadata = read_tensors(self._path(name))
        arrays, said = {key: np.array(value) for key, value in tensors.items()}, str(metadata.get("facts"))
        if metadata.get("checksum") != _checksum(arrays, said):
            raise ModelError("the checkpoint is damaged", where=str(self._path(name)))
        return arrays, json.loads(said)

    def forget(self, name: str) -> None:
        if self.folder is not None:
            self._path(name).unlink(missing_ok=True)

    def remove(self) -> None:
        """Delete the folder after a finished run; only files that a checkpoint writes are touched."""
        if self.folder is None:
            return
        unfinished = self.folder.glob(".*.tmp")  # of a process that was killed while it wrote
        for path in [*self.folder.glob("*.safetensors"), *unfinished, self.folder / _INDEX]:
            path.unlink(missing_ok=True)
        if not any(self.folder.iterdir()):
            shutil.rmtree(self.folder)

    def _path(self, name: str) -> Path:
        assert self.folder is not None
        return self.folder / f"{name}.safetensors"


def _checksum(arrays: Mapping[str, np.ndarray], said: str) -> str:
    """Of names, types, shapes, values and facts: a file that was written whole may still have been changed since."""
    total = zlib.crc32(said.encode())
    for name, array in sorted(arrays.items()):
        total = zlib.crc32(f"{name} {array.dtype.str} {array.shape}".encode(), total)
        total = zlib.crc32(np.ascontiguousarray(array).data, total)
    return f"{total:08x}"


def _array(value: Any) -> np.ndarray:
    return value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else np.asarray(value)
