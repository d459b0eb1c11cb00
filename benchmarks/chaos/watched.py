"""Run a piece of work in a fork, told of every change of files before and after it happens; fail, kill or cut it there.

The calls are watched in libc by `watched.c`, which has to be preloaded: `preloaded` is the environment for it. So what
C++ and Rust write is seen like what Python writes.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, NamedTuple

SOURCE = Path(__file__).with_name("watched.c")
STARTS = ("create", "mkdir", "rename", "exchange", "unlink", "rmdir", "fsync", "fdatasync", "link")  # all but writes


class Operation(NamedTuple):
    """A call that is about to change, or to sync, a file."""

    name: str
    path: str
    second: str = ""  # of a rename, an exchange or a link


Before = Callable[[Operation], int]
"""Told of a call: 0 lets it happen, an error number makes it fail, `Kill` ends the process."""

After = Callable[[Operation], None]
"""Told of a call that has succeeded."""


class Kill(Exception):
    """Raised by a `Before`: the process ends here, by SIGKILL."""


def preloaded(folder: Path) -> dict[str, str]:
    """The environment of a process that can be watched; the library is built into the folder."""
    library = folder / "watched.so"
    compiler = os.environ.get("CC", "cc")
    command = [compiler, "-O1", "-shared", "-fPIC", "-o", str(library), str(SOURCE), "-ldl"]
    subprocess.run(command, check=True, capture_output=True)
    return {**os.environ, "LD_PRELOAD": str(library)}


def watch(work: Callable[[], None], root: Path, before: Before, after: After) -> int:
    """How a fork that does the work ended: 0, its exit code, or minus the signal."""
    from_child, to_driver = os.pipe()
    from_driver, to_child = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(from_child)
        os.close(to_child)
        ctypes.CDLL(None).watch_files(os.fsencode(root), to_driver, from_driver)
        _work(work)
    os.close(to_driver)
    os.close(from_driver)
    try:
        with os.fdopen(from_child, "rb") as lines:
            _follow(lines, to_child, before, after)
    except Kill:
        os.kill(child, signal.SIGKILL)
    finally:
        os.close(to_child)
        status = os.waitpid(child, 0)[1]
    return os.waitstatus_to_exitcode(status)


def fork_and_wait(work: Callable[[], None], kill_after: float | None = None) -> int:
    """The same without anyone watching; killed after so many seconds if it still works then."""
    child = os.fork()
    if child == 0:
        _work(work)
    timer = threading.Timer(kill_after or 0, os.kill, (child, signal.SIGKILL))
    if kill_after is not None:
        timer.start()
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)  # it has ended, but its number is not yet free for others
    timer.cancel()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _work(work: Callable[[], None]) -> None:
    """In the fork: exit code 2 for an error of xclearn, 1 for any other."""
    code = 1
    try:
        work()
        code = 0
    except Exception as error:
        code = 2 if type(error).__module__.startswith("xclearn") else 1
        if os.environ.get("CHAOS_SHOW") or code == 1:
            traceback.print_exc()
    finally:
        os._exit(code)


def _follow(lines: BinaryIO, to_child: int, before: Before, after: After) -> None:
    for line in lines:
        operation = Operation(*os.fsdecode(line).removesuffix("\n").split("\t"))
        try:
            os.write(to_child, b"%d\n" % before(operation))
        except BrokenPipeError:
            return
        failed = next(lines, b"1")
        if int(failed) == 0:
            after(operation)
