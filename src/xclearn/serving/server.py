"""`xc serve` from the socket to the last response: one worker in this process, or a supervisor of several.

SIGTERM and Ctrl-C finish requests in flight and exit; SIGHUP reloads the model folder.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable

import numpy as np

from xclearn.errors import ConfigError
from xclearn.inference.sealed import seal
from xclearn.serving.live import Live
from xclearn.serving.log import log_to_stdout
from xclearn.serving.metrics import N_VALUES, Metrics
from xclearn.serving.settings import Settings
from xclearn.serving.supervisor import RELOAD, Supervisor
from xclearn.serving.trial import SPAWN
from xclearn.serving.worker import work, work_alone


def serve(settings: Settings, say: Callable[[str], None]) -> None:
    """Verify the model, listen, and serve until told to stop."""
    if RELOAD is not None:
        signal.signal(RELOAD, signal.SIG_IGN)  # until there is something to reload
    listener = _bound(settings.host, settings.port)
    started = time.perf_counter()
    sealed = seal(settings.folder)
    seconds = time.perf_counter() - started
    live = Live(settings, sealed, Metrics(np.zeros((1, N_VALUES)), 0))  # a model that cannot predict does not start
    n_labels = live.now.facts["n_labels"]
    say(f"verified: every byte of {settings.folder} hashed in {seconds:.2f} s, {n_labels:,} labels")
    say(f"serving: {_address(listener)} (process {os.getpid()}, workers: {settings.workers})")
    log_to_stdout()
    if settings.workers == 1:
        work_alone(settings, listener, sealed, live)
        return
    del live
    _share_cores(settings.n_threads)
    values = SPAWN.RawArray("d", (settings.workers + 1) * N_VALUES)  # the last row is the supervisor's
    Supervisor(settings, listener, values, sealed, say).run(work)


def _bound(host: str, port: int) -> socket.socket:
    """A bound socket, which will listen once the model is ready."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(
        family, socket.SOCK_STREAM, socket.IPPROTO_TCP
    )  # named, as asyncio would otherwise not disable Nagle's algorithm
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except (OSError, OverflowError) as error:
        listener.close()
        got = f"{host}:{port}: {error}"
        todo = "Choose another --host or --port."
        raise ConfigError("cannot listen here", where="--host, --port", got=got, todo=todo) from error
    return listener


def _address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


def _share_cores(n_threads: int) -> None:
    """Limit the threads of matrix libraries to a worker's share, unless set by the user."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, str(n_threads))
