"""Checkpoints: atomic files of tensors, JSON and a checksum, tied to a run by a fingerprint.

A checkpoint folder belongs to one fingerprint (settings, data, seed) and is never used by another run. Random numbers
need no file, as they depend only on the seed, the stage's name and the epoch. Knows nothing about stages.
"""

from __future__ import annotations

import contextlib
import json
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, final

import numpy as np

from xclearn.errors import ModelError
from xclearn.inference.tensors import read_tensors, write_tensors
from xclearn.parts.label_rows import LabelRows
from xclearn.parts.ranks import ALONE, here
from xclearn.training.sharding import Kept, handed_out
from xclearn.writing import atomic_path, locked, make_folders, remove_folder, remove_leftovers_in, sync, writing_to

_INDEX, _LOCK = "checkpoint.json", "checkpoint.lock"
_NO_ROWS: Mapping[str, LabelRows] = {}
_UNFINISHED = re.compile(r"\..+\.[0-9a-f]{12}\.tmp|\.tmp[A-Za-z0-9]{6}")


@final
class Checkpoint:
    """A folder of named tensor files. Without a folder, nothing is stored or found.

    With `replace`, files of an earlier run are removed instead of raising an error. Of several processes, only the
    first uses the folder.
    """

    def __init__(self, folder: Path | None, *, replace: bool = False) -> None:
        self.folder, self._replace = folder, replace
        self._is_held = False
        self._ranks = here()

    @classmethod
    def of(cls, folder: str | Path | Checkpoint | None) -> Checkpoint:
        """The checkpoint itself, or the one in a folder."""
        return folder if isinstance(folder, Checkpoint) else cls(Path(folder) if folder else None)

    def leave_others(self) -> None:
        """What follows is done by this process alone: nothing is handed to the others, who are gone."""
        self._ranks = ALONE

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Keep other runs from using the folder within this block; re-entrant."""
        if self.folder is None or self._is_held or not self._ranks.is_first:
            yield
            return
        made = make_folders(self.folder)
        try:
            with locked(self.folder / _LOCK) as is_ours:
                if not is_ours:
                    raise ModelError("another run is using the checkpoint", where=str(self.folder))
                self._is_held = True
                yield
        finally:
            self._is_held = False
            _remove_empty(made)

    def open(self, fingerprint: str, *, resume: bool, threads: int | None = None) -> None:
        """Start the folder or, with `resume`, accept an existing one of the same run.

        `threads` is torch's number of threads, if it affects the last bits of results.
        """
        if self.folder is not None:
            self._ranks.by_first(lambda: self._open(fingerprint, resume, threads))
        elif resume:
            raise ModelError("nothing to resume", todo="Give the checkpoint folder of the earlier run.")

    def _open(self, fingerprint: str, resume: bool, threads: int | None) -> None:
        assert self.folder is not None
        index = self.folder / _INDEX
        remove_leftovers_in(self.folder)
        if resume:
            self._check(fingerprint, threads)
            return
        make_folders(self.folder)
        if self._replace:
            self._remove_files()
            with writing_to(self.folder):
                sync(self.folder)  # before the new index, so that another run's tensors never reappear beside it
        if index.exists() or any(self.folder.glob("*.safetensors")):
            todo = "Add --resume (resume=True) to continue that run, --overwrite to start again, or remove the folder."
            raise ModelError("a checkpoint of an earlier run is in the way", where=str(self.folder), todo=todo)
        with atomic_path(index) as temporary:
            facts = {"format": "xclearn-checkpoint", "fingerprint": fingerprint, "threads": threads}
            temporary.write_text(json.dumps(facts))

    def fingerprint(self) -> str:
        """The fingerprint of the folder's run."""
        return str(self._facts()["fingerprint"])

    def _check(self, fingerprint: str, threads: int | None) -> None:
        facts = self._facts()
        if facts["fingerprint"] != fingerprint:
            todo = "Resume with the same data, settings and seed, or start again without resume."
            raise ModelError(
                "the checkpoint belongs to another run", where=str(self.folder), got=facts["fingerprint"], todo=todo
            )
        before = facts.get("threads")  # missing before 2026-11-18
        if None not in (before, threads) and before != threads:
            what = "the run began with another number of threads, which may change the last bits of its results"
            todo = f"Set OMP_NUM_THREADS={before}, and MKL_DYNAMIC=FALSE if there are fewer cores, and resume."
            raise ModelError(what, where=str(self.folder), got=threads, allowed=str(before), todo=todo)

    def _facts(self) -> dict[str, Any]:
        assert self.folder is not None
        index = self.folder / _INDEX
        try:
            facts: dict[str, Any] = json.loads(index.read_text(encoding="utf-8"))
            str(facts["fingerprint"])
        except OSError as error:
            raise ModelError("nothing to resume", where=str(self.folder), got=error.strerror) from error
        except (ValueError, KeyError, TypeError) as error:
            raise ModelError("the checkpoint is damaged", where=str(index)) from error
        return facts

    def save(
        self, name: str, tensors: Mapping[str, Any], facts: Mapping[str, Any], rows: Mapping[str, LabelRows] = _NO_ROWS
    ) -> None:
        """Store tensors and JSON facts under a name, atomically; `rows` are the tensors with one row per label."""
        if self.folder is None:
            return
        whole = {key: rows[key].of_all(value) if key in rows else value for key, value in tensors.items()}
        if self._ranks.is_first:
            arrays = {key: _array(value) for key, value in whole.items()}
            said = json.dumps(facts)
            write_tensors(self._path(name), arrays, {"facts": said, "checksum": _checksum(arrays, said)})

    def load(self, name: str, rows: Mapping[str, LabelRows] = _NO_ROWS) -> Kept | None:
        """The tensors and facts stored under a name, or None; of `rows`, only those of this process."""
        return None if self.folder is None else handed_out(self._ranks, lambda: self._read(name), rows)

    def _read(self, name: str) -> Kept | None:
        if not self._path(name).exists():
            return None
        tensors, metadata = read_tensors(self._path(name))
        arrays = {key: np.array(value) for key, value in tensors.items()}
        said = str(metadata.get("facts"))
        if metadata.get("checksum") != _checksum(arrays, said):
            raise ModelError("the checkpoint is damaged", where=str(self._path(name)))
        return arrays, json.loads(said)

    def forget(self, name: str) -> None:
        if self.folder is not None and self._ranks.is_first:
            with writing_to(self._path(name)):
                self._path(name).unlink(missing_ok=True)

    def remove(self) -> None:
        """Delete the folder after a finished run; only removes files that a checkpoint writes."""
        if self.folder is None or not self.folder.exists():
            return
        remove_leftovers_in(self.folder)
        if set(self.folder.iterdir()) <= {*self._files(), self.folder / _LOCK}:
            remove_folder(self.folder)
        else:
            self._remove_files()

    def _remove_files(self) -> None:
        for path in self._files():
            with writing_to(path):
                path.unlink(missing_ok=True)

    def _files(self) -> list[Path]:
        """The files that a checkpoint writes, the index last, and leftovers of versions before 2026-11-18."""
        assert self.folder is not None
        unfinished = [path for path in self.folder.glob(".*") if _UNFINISHED.fullmatch(path.name) and path.is_file()]
        return [*self.folder.glob("*.safetensors"), *unfinished, self.folder / _INDEX]

    def _path(self, name: str) -> Path:
        assert self.folder is not None
        return self.folder / f"{name}.safetensors"


def _remove_empty(folders: Iterable[Path]) -> None:
    """Remove those of the created folders that are still empty."""
    with contextlib.suppress(OSError):
        for folder in folders:
            folder.rmdir()


def _checksum(arrays: Mapping[str, np.ndarray], said: str) -> str:
    """A checksum of names, types, shapes, values and facts, as an intact file may still have been modified."""
    total = zlib.crc32(said.encode())
    for name, array in sorted(arrays.items()):
        total = zlib.crc32(f"{name} {array.dtype.str} {array.shape}".encode(), total)
        total = zlib.crc32(np.ascontiguousarray(array).data, total)
    return f"{total:08x}"


def _array(value: Any) -> np.ndarray:
    return value.detach().cpu().numpy() if hasattr(value, "detach") else np.asarray(value)  # of torch or NumPy
