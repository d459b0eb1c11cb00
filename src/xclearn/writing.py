"""Atomic, durable writes: a write is complete or absent, and a power cut does not undo it.

Content is first written to a work folder beside its target, `.NAME.<12 hex digits>.tmp`. It is synced to disk and moved
into place in one step, which is synced too; only then is the replaced content removed. A writer holds a lock in its
work folder while it runs. The next write to the same target removes the work folders of dead writers.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import re
import shutil
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

from xclearn.errors import DataError

if sys.platform != "win32":
    import fcntl

_LOCK, _NEW, _OLD = "lock", "new", "old"
_WORK_FOLDER = re.compile(r"\.(?P<name>.+)\.[0-9a-f]{12}\.tmp", re.DOTALL)
_AT_WORKING_FOLDER, _EXCHANGE = -100, 2  # of linux/fcntl.h and linux/fs.h
_NO_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS)  # for folders, on some network file systems


@contextlib.contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A temporary path to write a file to; it replaces `path` if the block succeeds and is removed if it fails."""
    target = Path(os.path.realpath(path))
    with writing_to(target), _work_folder(target) as work:
        temporary = work / f"{_NEW}{target.suffix}"
        yield temporary
        sync(temporary)
        os.replace(temporary, target)
        sync(target.parent)


@contextlib.contextmanager
def atomic_folder(path: str | os.PathLike[str], *, replace: bool = False) -> Iterator[Path]:
    """A new folder to fill; it becomes `path` if the block succeeds and is removed if it fails.

    A non-empty `path` is an error before the block runs. With `replace`, files of the same name are replaced and
    everything else in the old folder stays.
    """
    target = Path(os.path.realpath(path))
    with writing_to(target):
        _refuse_occupied(target, replace)
        make_folders(target.parent)
        with _work_folder(target) as work:
            new = work / _NEW
            new.mkdir()
            yield new
            remove_leftovers_in(new)  # of files written there that could not be removed
            if target.exists() and replace:
                _bring_along(target, new)
            _sync_tree(new)
            _take_place(new, target, replace)
            sync(work)
            sync(target.parent)


@contextlib.contextmanager
def writing_to(target: Path) -> Iterator[None]:
    """Turn an `OSError` in this block into a `DataError` that names the target."""
    try:
        yield
    except OSError as error:
        raise DataError(f"writing failed ({error.strerror or error})", where=str(target)) from error


def remove_folder(path: Path) -> None:
    """Remove a folder atomically: a kill or a power cut leaves all of it or none of it."""
    target = Path(os.path.realpath(path))
    with writing_to(target), _work_folder(target) as work:
        os.rename(target, work / "removed")
        sync(work)
        sync(target.parent)


def make_folders(folder: Path) -> list[Path]:
    """Create a folder and its missing parents, durably; returns those created, deepest first."""
    with writing_to(folder):
        missing = [path for path in (folder, *folder.parents) if not path.exists()]
        folder.mkdir(parents=True, exist_ok=True)
        for made in missing:
            sync(made.parent)
        return missing


def remove_leftovers(path: Path) -> None:
    """Remove the work folders that dead writers left for this path, and restore what one of them had moved away."""
    target = Path(os.path.realpath(path))
    _remove_dead(target.parent, target.name)


def remove_leftovers_in(folder: Path) -> None:
    """`remove_leftovers` for every path in a folder."""
    _remove_dead(folder, None)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[bool]:
    """Hold a lock file, which is removed at the end; False if another process or thread holds it.

    The system releases the lock of a process that dies. On a file system without locks, nobody is kept out.
    """
    with writing_to(path):
        descriptor = _lock(path, os.O_CREAT)
    try:
        yield descriptor is not None
    finally:
        if descriptor is not None:
            _release(descriptor, path)


def sync(path: Path) -> None:
    """Wait until a file's content, or a folder's entries, are on disk."""
    if sys.platform == "win32" and path.is_dir():
        return  # folders cannot be synced on this system
    try:
        descriptor = os.open(path, os.O_RDWR if sys.platform == "win32" else os.O_RDONLY)
    except PermissionError:
        return  # not readable, so not written by us
    try:
        os.fsync(descriptor)
    except OSError as error:
        if not path.is_dir() or error.errno not in _NO_SYNC:
            raise
    finally:
        os.close(descriptor)


def _sync_tree(folder: Path) -> None:
    for path, _, names in os.walk(folder, topdown=False):
        for file in (Path(path, name) for name in names):
            if file.is_file() and not file.is_symlink():
                sync(file)
        sync(Path(path))


def _refuse_occupied(target: Path, replace: bool) -> None:
    if target.exists() and not target.is_dir():
        raise DataError("a file is in the way of the folder", where=str(target), todo="Choose another folder.")
    if not replace and target.exists() and any(target.iterdir()):
        raise DataError("the folder is not empty", where=str(target), todo="Choose another folder, or empty it.")


def _bring_along(old: Path, new: Path) -> None:
    """Link the files that are not replaced into the new folder, so that both have them until the old one is removed."""
    for entry in old.iterdir():
        if os.path.lexists(new / entry.name):
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.copytree(entry, new / entry.name, symlinks=True, copy_function=_link)
        else:
            _link(entry, new / entry.name)


def _link(source: str | Path, target: str | Path) -> None:
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:  # no hard links here, or another user's file
        shutil.copy2(source, target, follow_symlinks=False)


def _take_place(new: Path, target: Path, replace: bool) -> None:
    if not target.exists() or not replace:
        with contextlib.suppress(FileNotFoundError):
            target.rmdir()  # it was empty; if another process has since filled it, this fails
        os.rename(new, target)
    elif not _exchange(new, target):
        old = new.with_name(_OLD)  # `_remove_dead` brings it back if this process ends between the two steps
        os.rename(target, old)
        try:
            os.rename(new, target)
        except OSError:
            os.rename(old, target)
            raise


def _exchange(one: Path, other: Path) -> bool:
    """Swap two paths atomically; False if the system or the file system cannot."""
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError, TypeError):  # not Linux, or an old C library
        return False
    here = ctypes.c_int(_AT_WORKING_FOLDER)
    return bool(renameat2(here, os.fsencode(one), here, os.fsencode(other), ctypes.c_uint(_EXCHANGE)) == 0)


@contextlib.contextmanager
def _work_folder(target: Path) -> Iterator[Path]:
    """A locked folder beside the target, hence on the same file system; it is removed when the block ends."""
    remove_leftovers(target)
    while True:
        folder = target.with_name(f".{target.name}.{uuid.uuid4().hex[:12]}.tmp")
        folder.mkdir()
        with contextlib.suppress(FileNotFoundError):  # another process removed it as abandoned before it was locked
            descriptor = _lock(folder / _LOCK, os.O_CREAT)
            break
    try:
        yield folder
    finally:
        if descriptor is not None:
            _unlock(descriptor)
        _remove_if_dead(folder, target)


def _remove_dead(parent: Path, name: str | None) -> None:
    with contextlib.suppress(OSError):  # an unreadable or missing folder
        for path in list(parent.iterdir()):
            match = _WORK_FOLDER.fullmatch(path.name)
            if match and name in (None, match["name"]) and path.is_dir() and not path.is_symlink():
                _remove_if_dead(path, parent / match["name"])


def _remove_if_dead(folder: Path, target: Path) -> None:
    with contextlib.suppress(OSError):  # another user's, or removed by another process: not ours to report
        if not any(folder.iterdir()):
            folder.rmdir()  # its writer died before locking it, or will notice and make another
            return
        descriptor = _lock(folder / _LOCK, 0)
        if descriptor is None:
            return
        try:
            if (folder / _OLD).exists() and not target.exists():
                os.rename(folder / _OLD, target)
                sync(target.parent)
            _clear(folder)
        finally:
            _unlock(descriptor)


def _clear(folder: Path) -> None:
    """Remove a work folder. The lock goes last: it marks the folder as a work folder."""
    with contextlib.suppress(OSError):
        for entry in list(folder.iterdir()):
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry, ignore_errors=True)
            elif entry.name != _LOCK:
                entry.unlink(missing_ok=True)
        if [entry.name for entry in folder.iterdir()] == [_LOCK]:
            (folder / _LOCK).unlink()
        folder.rmdir()


def _lock(path: Path, flags: int) -> int | None:
    """A descriptor that holds this file's lock, or None if another process or thread holds it."""
    while True:
        descriptor = os.open(path, os.O_RDWR | flags, 0o666)
        try:
            if not _try_lock(descriptor, bool(flags & os.O_CREAT)):
                os.close(descriptor)
                return None
            if os.path.samestat(os.fstat(descriptor), os.stat(path)):
                return descriptor
        except FileNotFoundError:
            pass
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # the previous holder removed the file: open the current one


def _try_lock(descriptor: int, writer: bool) -> bool:
    """Without lock support a writer proceeds unlocked, and no work folder counts as abandoned."""
    if sys.platform == "win32":
        return writer
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return writer
    return True


def _unlock(descriptor: int) -> None:
    if sys.platform != "win32":
        fcntl.flock(descriptor, fcntl.LOCK_UN)  # closing alone would leave it with a fork that still runs
    os.close(descriptor)


def _release(descriptor: int, path: Path) -> None:
    """Remove a lock file while holding it; a process that opened it earlier sees that it is gone from this path."""
    with contextlib.suppress(OSError):
        path.unlink()
    _unlock(descriptor)
    if sys.platform == "win32":  # an open file cannot be removed on Windows
        path.unlink(missing_ok=True)
