"""Running the application: the socket, the worker processes and their signals.

One worker is this process. Several are processes of their own that share the socket, the mapped files of the model and
the metrics, under a supervisor that replaces one that dies. SIGTERM and Ctrl-C finish what is in flight and end; SIGHUP
reads the model folder again.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from multiprocessing import connection
from multiprocessing.context import SpawnProcess
from multiprocessing.process import BaseProcess
from typing import Any

import numpy as np
import uvicorn

from xclearn.errors import ConfigError
from xclearn.inference.predictor import Predictor
from xclearn.serving.app import create_app
from xclearn.serving.live import Live, load_verified
from xclearn.serving.log import log_event, log_to_stdout
from xclearn.serving.metrics import IN_FLIGHT, N_VALUES, Metrics
from xclearn.serving.settings import Settings

_RELOAD = getattr(signal, "SIGHUP", None)  # not on Windows
_STOP = (signal.SIGINT, signal.SIGTERM)
_BEFORE_RESTART = 1.0  # seconds, so that a worker that cannot start does not start all the time
_SPAWN = multiprocessing.get_context("spawn")  # a fork would copy locks of threads that it does not copy


def serve(settings: Settings, say: Callable[[str], None]) -> None:
    """Verify the model, listen, and answer until told to stop."""
    if _RELOAD is not None:
        signal.signal(_RELOAD, signal.SIG_IGN)  # until there is something to reload
    listener = _bound(settings.host, settings.port)
    started = time.perf_counter()
    predictor = load_verified(settings)
    seconds = time.perf_counter() - started
    say(f"verified: every byte of {settings.folder} hashed in {seconds:.2f} s, {len(predictor.labels):,} labels")
    say(f"serving: {_address(listener)} (process {os.getpid()}, workers: {settings.workers})")
    values = _SPAWN.RawArray("d", settings.workers * N_VALUES)
    if settings.workers == 1:
        _work(settings, listener, values, 0, predictor)
    else:
        _supervise(settings, listener, values, say)


def _bound(host: str, port: int) -> socket.socket:
    """A socket that will listen once the model is there."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(
        family, socket.SOCK_STREAM, socket.IPPROTO_TCP
    )  # named, or asyncio leaves Nagle's delay on
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except (OSError, OverflowError) as error:
        listener.close()
        got, todo = f"{host}:{port}: {error}", "Choose another --host or --port."
        raise ConfigError("cannot listen here", where="--host, --port", got=got, todo=todo) from error
    return listener


def _address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


def _work(settings: Settings, listener: socket.socket, values: Any, worker: int, predictor: Predictor | None) -> None:
    """One worker, from loading to the end of its last request."""
    metrics = Metrics(np.frombuffer(values).reshape(-1, N_VALUES), worker)
    metrics.clear(IN_FLIGHT)
    log_to_stdout()
    live = Live(settings, predictor or load_verified(settings), metrics)
    server = uvicorn.Server(_uvicorn_config(settings, live, metrics))

    def stop(*_: object) -> None:
        server.should_exit = True

    for number in _STOP:  # uvicorn has its own handlers while it runs, and sends the signal once more to these after
        signal.signal(number, stop)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_stop_with, args=(parent, stop), daemon=True).start()
    with asyncio.Runner(loop_factory=server.config.get_loop_factory()) as runner:
        runner.run(_answer(server, live, listener))


def _stop_with(parent: BaseProcess, stop: Callable[[], None]) -> None:
    """A worker whose supervisor was killed would hold the port for ever."""
    parent.join()
    stop()


def _uvicorn_config(settings: Settings, live: Live, metrics: Metrics) -> uvicorn.Config:
    return uvicorn.Config(
        create_app(live, metrics, settings),
        lifespan="off",
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=int(settings.limits.timeout) + 1,
    )


async def _answer(server: uvicorn.Server, live: Live, listener: socket.socket) -> None:
    tasks: set[asyncio.Task[None]] = set()  # the loop itself holds tasks only weakly

    def reload() -> None:
        task = asyncio.create_task(live.reload())
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    if _RELOAD is not None:
        asyncio.get_running_loop().add_signal_handler(_RELOAD, reload)
    log_event("start", version=live.now.facts["version"])
    await server.serve(sockets=[listener])
    log_event("stop")


def _supervise(settings: Settings, listener: socket.socket, values: Any, say: Callable[[str], None]) -> None:
    """Keep all workers running; pass signals on; end with the last worker."""
    _share_cores(settings.n_threads)
    processes: dict[int, SpawnProcess] = {}
    stopping = False

    def start(worker: int) -> None:
        processes[worker] = _SPAWN.Process(target=_work, args=(settings, listener, values, worker, None))
        processes[worker].start()
        if stopping:  # told while it started
            processes[worker].terminate()

    def pass_on(number: int, _: object) -> None:
        nonlocal stopping
        stopping = stopping or number in _STOP
        for process in processes.values():
            if process.is_alive() and process.pid:
                os.kill(process.pid, signal.SIGTERM if number in _STOP else number)

    for worker in range(settings.workers):
        start(worker)
    for number in (*_STOP, *([] if _RELOAD is None else [_RELOAD])):
        signal.signal(number, pass_on)
    while processes:
        connection.wait([process.sentinel for process in processes.values()])
        for worker, process in list(processes.items()):
            if process.is_alive():
                continue
            del processes[worker]
            if not stopping:
                say(f"worker {process.pid} ended with exit code {process.exitcode}; another one takes its place")
                time.sleep(_BEFORE_RESTART)
            if not stopping:
                start(worker)


def _share_cores(n_threads: int) -> None:
    """Matrix libraries of the workers take no more than their share, unless the user has said otherwise."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, str(n_threads))
