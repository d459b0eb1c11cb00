"""What a disk holds after a power cut, worked out from the calls that a process made: a file system of dictionaries.

Only what was synced is sure. Of the rest two extremes are tried: nothing of it was kept, or every change of names was
kept and no content, as a journal of names does. A file whose content was lost is there and empty.
"""

from __future__ import annotations

import os
from pathlib import Path

from benchmarks.chaos.watched import Operation

LOST = b""


class File:
    """A file: what of its content is on the disk."""

    def __init__(self, synced: bytes = LOST) -> None:
        self.synced = synced


class Folder:
    """A folder: its names now, and those on the disk."""

    def __init__(self) -> None:
        self.names: dict[str, File | Folder] = {}
        self.synced: dict[str, File | Folder] = {}


class Disk:
    """A folder of the real file system, followed call by call. What is there at the start is on the disk."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.top = _synced_folder(root)

    def apply(self, operation: Operation) -> None:
        """A call that has succeeded."""
        name, path = operation.name, operation.path
        if name == "create":
            folder, base = self._place(path)
            folder.names.setdefault(base, File())
        elif name == "mkdir":
            folder, base = self._place(path)
            folder.names[base] = Folder()
        elif name in ("unlink", "rmdir"):
            folder, base = self._place(path)
            folder.names.pop(base, None)
        elif name in ("rename", "exchange", "link"):
            self._move(operation)
        elif name in ("fsync", "fdatasync"):
            self._sync(path)

    def states(self) -> list[dict[str, bytes]]:
        """What a reader may find after a cut now: every file by its path below the root."""
        found: list[dict[str, bytes]] = []
        for kept in ("synced", "names"):
            files: dict[str, bytes] = {}
            _collect(self.top, kept, "", files)
            found.append(files)
        return found

    def _place(self, path: str) -> tuple[Folder, str]:
        *parents, base = Path(path).relative_to(self.root).parts
        folder = self.top
        for part in parents:
            inner = folder.names[part]
            assert isinstance(inner, Folder), path
            folder = inner
        return folder, base

    def _move(self, operation: Operation) -> None:
        folder, base = self._place(operation.path)
        other, name = self._place(operation.second)
        moved = folder.names.setdefault(base, File())  # unknown: it came without libc, as Rust may rename
        if operation.name == "exchange":
            folder.names[base] = other.names[name]
        elif operation.name == "rename":
            del folder.names[base]
        other.names[name] = moved

    def _sync(self, path: str) -> None:
        if Path(path) == self.root:
            self.top.synced = dict(self.top.names)
            return
        if Path(path) not in self.root.parents:
            folder, base = self._place(path)
            item = folder.names.setdefault(base, File())
            if isinstance(item, Folder):
                item.synced = dict(item.names)
            else:
                item.synced = Path(path).read_bytes()


def _synced_folder(path: Path) -> Folder:
    folder = Folder()
    for entry in os.scandir(path):
        item = _synced_folder(Path(entry)) if entry.is_dir() else File(Path(entry).read_bytes())
        folder.names[entry.name] = folder.synced[entry.name] = item
    return folder


def _collect(folder: Folder, kept: str, prefix: str, files: dict[str, bytes]) -> None:
    for name, item in getattr(folder, kept).items():
        if isinstance(item, Folder):
            _collect(item, kept, f"{prefix}{name}/", files)
        else:
            files[f"{prefix}{name}"] = item.synced
