"""Runs cases one after the other in a forked child with bounded memory and time, and says how each of them ended.

A case that ends the child (a signal, a hang) is named, and the next child goes on behind it. Knows nothing about what
the cases do.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from xclearn.errors import XclearnError

Case = Callable[[], Any]

SECONDS = 20  # of CPU time that a case may take
_PATIENCE = 10  # times as many by the clock, of a machine that is busy with other work
MEMORY = 2 * 2**30  # bytes that a case may take beyond what the process has
SANITIZED = "libasan" in os.environ.get("LD_PRELOAD", "")  # it takes terabytes of addresses, of which few are used
_CLOCKS = (signal.SIGPROF, signal.SIGALRM)


class Outcome(NamedTuple):
    """How a case ended: `done`, `refused` (an error of our tree), `foreign` (any other), `crash` or `hang`."""

    kind: str
    detail: str = ""
    peak_mib: int = 0  # resident, beyond what the process had before

    @property
    def good(self) -> bool:
        return self.kind in ("done", "refused")


def judge(cases: Sequence[Case], *, seconds: int = SECONDS, memory: int = MEMORY) -> list[Outcome]:
    """The outcome of each case, in order."""
    outcomes: list[Outcome] = []
    while len(outcomes) < len(cases):
        reading, writing = os.pipe()
        sys.stdout.flush()
        child = os.fork()
        if not child:
            os.close(reading)
            _run_all(cases[len(outcomes) :], writing, seconds, memory)
        os.close(writing)
        with os.fdopen(reading) as lines:
            outcomes += [Outcome(*json.loads(line)) for line in lines]
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status):
            number = os.WTERMSIG(status)
            kind = "hang" if number in _CLOCKS else "crash"
            outcomes.append(Outcome(kind, signal.Signals(number).name))
    return outcomes


def _run_all(cases: Sequence[Case], writing: int, seconds: int, memory: int) -> None:
    """In the child: never returns."""
    for number in _CLOCKS:
        signal.signal(number, signal.SIG_DFL)  # ends the child, in whatever language it hangs
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    limit = resource.RLIM_INFINITY if SANITIZED else _status("VmSize") + memory
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    for case in cases:
        _forget_peak()
        before = _status("VmRSS")
        signal.setitimer(signal.ITIMER_PROF, seconds)
        signal.alarm(_PATIENCE * seconds)
        outcome = _outcome(case)
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.alarm(0)
        peak = max(0, _status("VmHWM") - before) >> 20
        os.write(writing, json.dumps(outcome._replace(peak_mib=peak)).encode() + b"\n")
    os._exit(0)


def _outcome(case: Case) -> Outcome:
    try:
        case()
    except XclearnError as error:
        return Outcome("refused", f"{type(error).__name__}: {ascii(str(error))[:300]}")
    except BaseException as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        return Outcome(
            "foreign", f"{type(error).__name__}: {ascii(str(error))[:200]} ({place.filename}:{place.lineno})"
        )
    return Outcome("done")


def _status(name: str) -> int:
    """Bytes, from what Linux says about this process."""
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith(name)) << 10


def _forget_peak() -> None:
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
