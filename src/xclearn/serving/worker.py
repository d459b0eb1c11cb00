"""One worker: the application under uvicorn, and the models it receives while it runs."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import threading
from collections.abc import Callable, Coroutine, Generator
from multiprocessing.connection import Connection
from typing import Any, final

import numpy as np
import uvicorn

from xclearn.inference.sealed import Sealed
from xclearn.serving.app import create_app
from xclearn.serving.connections import Crowd, room_for
from xclearn.serving.listening import HANDSHAKE, LONGEST_HANDSHAKE, half_open, refuse_new
from xclearn.serving.live import LOOK_EVERY, Folder, Live, refuse_reload
from xclearn.serving.log import log_event, log_to_stdout
from xclearn.serving.metrics import IN_FLIGHT, N_VALUES, Metrics
from xclearn.serving.settings import Settings
from xclearn.serving.supervisor import RELOAD, STOP
from xclearn.serving.trial import candidate

_Stop = Callable[[], None]
_Reloading = Callable[[_Stop], Coroutine[Any, Any, None]]


def work(
    settings: Settings, listener: socket.socket, values: Any, row: int, sealed: Sealed, models: Connection
) -> None:
    """A worker in its own process; the supervisor sends new `models`."""
    if RELOAD is not None:
        signal.signal(RELOAD, signal.SIG_IGN)  # the supervisor reloads for all
    log_to_stdout()
    metrics = Metrics(np.frombuffer(values).reshape(-1, N_VALUES), row)
    metrics.set(IN_FLIGHT, 0)  # left over from a worker that died
    live = Live(settings, sealed, metrics)
    sealed.close()
    _answer(settings, live, listener, metrics, lambda stop: _take_from_supervisor(models, live, metrics, stop))


def work_alone(settings: Settings, listener: socket.socket, sealed: Sealed, live: Live) -> None:
    """A single worker, in this process."""
    folder, metrics = Folder(sealed, live.metrics), live.metrics
    _answer(settings, live, listener, metrics, lambda _: _take_from_folder(settings, live, folder, metrics))


def _answer(settings: Settings, live: Live, listener: socket.socket, metrics: Metrics, reloading: _Reloading) -> None:
    room = room_for(settings.limits.max_connections)
    told_to_stop = threading.Event()
    crowd = Crowd(settings.limits, room, metrics, told_to_stop.is_set)
    config = uvicorn.Config(
        create_app(live, metrics, settings, crowd),
        http=crowd.protocol,  # type: ignore[arg-type]
        timeout_keep_alive=settings.limits.idle_timeout,  # type: ignore[arg-type]
        timeout_graceful_shutdown=int(settings.limits.timeout) + 1,
        backlog=room.backlog,
        lifespan="off",
        ws="none",
        log_config=None,
        log_level="error",  # malformed requests are counted; logging each would fill the disk
        access_log=False,
        server_header=False,
    )
    server = _Server(config)

    def stop(number: int = signal.SIGTERM, _: object = None) -> None:
        server.force_exit = told_to_stop.is_set() and number == signal.SIGINT  # a second Ctrl-C exits at once
        told_to_stop.set()
        server.should_exit = True

    async def run() -> None:
        tasks = [asyncio.create_task(reloading(stop)), asyncio.create_task(crowd.watch())]
        log_event("start", version=live.now.facts["version"], connections=room.most)
        await server.serve(sockets=[listener])
        for task in tasks:
            task.cancel()
        log_event("stop")

    for number in STOP:
        signal.signal(number, stop)
    with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
        runner.run(run())


@final
class _Server(uvicorn.Server):
    """uvicorn's server, without its signal handling, and without resetting connections on shutdown."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept pending connections, which closing the socket would reset."""
        loop = asyncio.get_running_loop()
        for listener in sockets or []:
            if refuse_new(listener):
                await _handshakes_end(listener)
        tasks = []
        for listener in sockets or []:
            with contextlib.suppress(BlockingIOError):
                while True:
                    tasks.append(loop.create_task(loop.connect_accepted_socket(self._protocol, listener.accept()[0])))
        await super().shutdown(sockets)

    def _protocol(self) -> asyncio.Protocol:
        factory: Any = self.config.http_protocol_class
        return factory(config=self.config, server_state=self.server_state, app_state=self.lifespan.state)


async def _handshakes_end(listener: socket.socket) -> None:
    """Wait until no handshake is in progress, with a limit for handshakes that never end."""
    loop = asyncio.get_running_loop()
    end = loop.time() + LONGEST_HANDSHAKE
    await asyncio.sleep(HANDSHAKE)  # a first packet that came before is by now seen as a handshake
    while loop.time() < end and half_open(listener):
        await asyncio.sleep(HANDSHAKE)


async def _take_from_folder(settings: Settings, live: Live, folder: Folder, metrics: Metrics) -> None:
    """Reload the folder at each SIGHUP; a model that cannot be served leaves the old one in place."""
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
    """Serve every model that the supervisor sends, which it has tested."""
    came, loop = asyncio.Event(), asyncio.get_running_loop()
    while True:
        loop.add_reader(models.fileno(), came.set)
        await came.wait()
        loop.remove_reader(models.fileno())
        came.clear()
        try:
            sealed = models.recv()
        except (EOFError, OSError):
            stop()  # the supervisor was killed: an orphaned worker would hold the port forever
            return
        try:
            await live.take(sealed)
        except Exception as error:
            refuse_reload(error, metrics)
        finally:
            sealed.close()
