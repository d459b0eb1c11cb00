"""One worker: the application under uvicorn, and the models that it gets while it runs."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import threading
from collections.abc import Callable, Coroutine
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import uvicorn

from xclearn.inference.predictor import Predictor
from xclearn.inference.sealed import Sealed
from xclearn.serving.app import create_app
from xclearn.serving.live import LOOK_EVERY, Folder, Live, refuse_reload
from xclearn.serving.log import log_event, log_to_stdout
from xclearn.serving.metrics import IN_FLIGHT, N_VALUES, Metrics
from xclearn.serving.settings import Settings
from xclearn.serving.supervisor import RELOAD, STOP
from xclearn.serving.trial import candidate, sealed_predictor

_Stop = Callable[[], None]
_Reloading = Callable[[_Stop], Coroutine[Any, Any, None]]


def work(
    settings: Settings, listener: socket.socket, values: Any, row: int, sealed: Sealed, models: Connection
) -> None:
    """A worker in a process of its own; the supervisor sends the next `models`."""
    if RELOAD is not None:
        signal.signal(RELOAD, signal.SIG_IGN)  # the supervisor reads the folder, for all
    log_to_stdout()
    metrics = Metrics(np.frombuffer(values).reshape(-1, N_VALUES), row)
    metrics.set(IN_FLIGHT, 0)  # those of a worker that died
    live = Live(settings, sealed, sealed_predictor(sealed, settings.n_threads), metrics)
    sealed.close()
    _answer(settings, live, listener, metrics, lambda stop: _take_from_supervisor(models, live, metrics, stop))


def work_alone(settings: Settings, listener: socket.socket, sealed: Sealed, predictor: Predictor) -> None:
    """The only worker, in this process."""
    metrics = Metrics(np.zeros((1, N_VALUES)), 0)
    live = Live(settings, sealed, predictor, metrics)
    folder = Folder(sealed, metrics)
    _answer(settings, live, listener, metrics, lambda _: _take_from_folder(settings, live, folder, metrics))


def _answer(settings: Settings, live: Live, listener: socket.socket, metrics: Metrics, reloading: _Reloading) -> None:
    server = uvicorn.Server(_uvicorn_config(settings, live, metrics))

    def stop(*_: object) -> None:
        server.should_exit = True

    async def run() -> None:
        task = asyncio.create_task(reloading(stop))
        log_event("start", version=live.now.facts["version"])
        await server.serve(sockets=[listener])
        task.cancel()
        log_event("stop")

    for number in STOP:  # uvicorn has its own handlers while it runs, and sends the signal once more to these after
        signal.signal(number, stop)
    with asyncio.Runner(loop_factory=server.config.get_loop_factory()) as runner:
        runner.run(run())


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


async def _take_from_folder(settings: Settings, live: Live, folder: Folder, metrics: Metrics) -> None:
    """Read the folder again at each SIGHUP; what cannot be served leaves the old model in place."""
    asked = asyncio.Event()
    if RELOAD is not None:
        asyncio.get_running_loop().add_signal_handler(RELOAD, asked.set)
    while True:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asked.wait(), LOOK_EVERY)
        folder.look()
        if not asked.is_set():
            continue
        asked.clear()
        try:
            sealed = await asyncio.to_thread(candidate, settings)
            await live.take(sealed)
        except Exception as error:
            refuse_reload(error, metrics)
        else:
            folder.replace(sealed)


async def _take_from_supervisor(models: Connection, live: Live, metrics: Metrics, stop: _Stop) -> None:
    """Take every model that the supervisor sends; it has tried them."""
    loop = asyncio.get_running_loop()

    async def take(sealed: Sealed) -> None:
        try:
            await live.take(sealed)
        except Exception as error:
            refuse_reload(error, metrics)
        finally:
            sealed.close()

    def receive() -> None:
        with contextlib.suppress(EOFError, OSError):
            while True:
                asyncio.run_coroutine_threadsafe(take(models.recv()), loop).result()
        stop()  # the supervisor was killed: a worker without one would hold the port for ever

    threading.Thread(target=receive, daemon=True).start()
