"""Supervises several workers, which share the socket, the copy of the model and the metrics.

A worker that dies is replaced, after a pause that doubles each time one dies soon after its start; after too many such
deaths it is given up. SIGHUP makes one new copy of the folder for all. Knows nothing about HTTP.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import connection
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Any, final

import numpy as np

from xclearn.errors import XclearnError
from xclearn.inference.sealed import Sealed
from xclearn.serving.live import LOOK_EVERY, Folder, refuse_reload
from xclearn.serving.metrics import N_VALUES, Metrics
from xclearn.serving.settings import Settings
from xclearn.serving.trial import SPAWN, candidate

RELOAD = getattr(signal, "SIGHUP", None)  # not on Windows
STOP = (signal.SIGINT, signal.SIGTERM)
_SOON = 10.0  # seconds; a worker that dies sooner after its start may never be able to serve
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0  # seconds before the next start
_MOST_ENDS = 5  # consecutive, each soon after the start

Work = Callable[[Settings, socket.socket, Any, int, Sealed, Connection], None]


@final
@dataclass(eq=False)
class _Place:
    """A worker and its replacements."""

    number: int
    process: SpawnProcess | None = None
    models: Connection | None = None  # the pipe that sends it new models
    started: float = 0.0
    due: float = 0.0  # when the next one starts, if none runs
    ends: int = 0  # consecutive deaths soon after the start
    given_up: bool = False


@final
class Supervisor:
    """Runs `work` in processes until told to stop."""

    def __init__(
        self, settings: Settings, listener: socket.socket, values: Any, sealed: Sealed, say: Callable[[str], None]
    ) -> None:
        self._settings = settings
        self._listener = listener
        self._values = values
        self._say = say
        self._metrics = Metrics(np.frombuffer(values).reshape(-1, N_VALUES), settings.workers)  # the last row
        self._folder = Folder(sealed, self._metrics)
        self._places = [_Place(number) for number in range(settings.workers)]
        self._stopping = False
        self._loading: threading.Thread | None = None
        self._asked_to_load = False
        self._loaded: Sealed | None = None
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)

    def run(self, work: Work) -> None:
        """Run until the last worker has ended; raises if nobody requested it."""
        for number in (*STOP, *([] if RELOAD is None else [RELOAD])):
            signal.signal(number, self._signalled)
        while self._running() or not (self._stopping or all(place.given_up for place in self._places)):
            now = time.monotonic()
            for place in self._places:
                if place.process is None and not (place.given_up or self._stopping) and place.due <= now:
                    self._start(place, work)
            connection.wait([*(one.sentinel for one in self._running()), self._wake_read], self._patience(now))
            with contextlib.suppress(BlockingIOError):
                os.read(self._wake_read, 1 << 10)
            for place in self._places:
                if place.process is not None and not place.process.is_alive():
                    self._bury(place)
            self._reload()
            self._folder.look()
        if not self._stopping:
            what = f"every worker died within {_SOON:g} s of its start, {_MOST_ENDS} times in a row"
            raise XclearnError(what, where=str(self._settings.folder), todo="Run with --workers 1 to see why.")

    def _running(self) -> list[SpawnProcess]:
        return [place.process for place in self._places if place.process is not None]

    def _patience(self, now: float) -> float:
        """Seconds until the next start is due."""
        due = [place.due - now for place in self._places if place.process is None and not place.given_up]
        return max(0.0, min([LOOK_EVERY, *([] if self._stopping else due)]))

    def _signalled(self, number: int, _: object) -> None:
        if number in STOP:
            self._stopping = True
            self._listener.close()  # it would keep queueing connections that nobody accepts
            for process in self._running():
                process.terminate()
        else:
            self._asked_to_load = True
        self._wake()

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError):  # it is already awake
            os.write(self._wake_write, b"\0")

    def _start(self, place: _Place, work: Work) -> None:
        theirs, place.models = SPAWN.Pipe(duplex=False)
        arguments = (self._settings, self._listener, self._values, place.number, self._folder.sealed, theirs)
        place.process = SPAWN.Process(target=work, args=arguments)
        place.started = time.monotonic()
        place.process.start()
        theirs.close()
        if self._stopping:  # stopped while it started
            place.process.terminate()

    def _bury(self, place: _Place) -> None:
        """Report that a worker died, and when it is replaced, if it is."""
        process, place.process = place.process, None
        if place.models is not None:
            place.models.close()
        if self._stopping or process is None:
            return
        now = time.monotonic()
        place.ends = place.ends + 1 if now - place.started < _SOON else 0
        said = f"worker {process.pid} died with exit code {process.exitcode}"
        if place.ends >= _MOST_ENDS:
            place.given_up = True
            self._say(f"{said} within {_SOON:g} s of its start, {place.ends} times in a row; giving it up")
            return
        pause = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** max(0, place.ends - 1))
        place.due = now + pause
        self._say(f"{said}; replacing it in {pause:g} s")

    def _reload(self) -> None:
        """Copy and test the folder in the background, then send the copy to all workers."""
        if self._loading is not None and not self._loading.is_alive():
            self._loading = None
            if self._loaded is not None:
                self._hand_over(self._loaded)
        if self._asked_to_load and self._loading is None and not self._stopping:
            self._asked_to_load, self._loaded = False, None
            self._loading = threading.Thread(target=self._load, daemon=True)
            self._loading.start()

    def _load(self) -> None:
        try:
            self._loaded = candidate(self._settings)
        except Exception as error:
            refuse_reload(error, self._metrics)
        self._wake()

    def _hand_over(self, sealed: Sealed) -> None:
        self._folder.replace(sealed)
        for place in self._places:
            place.ends, place.given_up = 0, False  # a new model is a new chance
            if place.process is not None and place.models is not None:
                with contextlib.suppress(OSError):  # it has died: the next one starts with this model
                    place.models.send(sealed)
