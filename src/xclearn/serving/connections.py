"""The connections of a worker: their time-outs, their number, and how they are closed.

uvicorn closes connections that are idle after a response; everything else about slow, silent and too many clients is
here. A closing connection sends what is written and then ignores input for a moment, because closing a socket with
unread bytes resets it and the client would lose its response. Knows nothing about the content of requests.
"""

from __future__ import annotations

import asyncio
import contextlib
import http
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import h11
from uvicorn import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from xclearn.errors import ConfigError, DataError, XclearnError
from xclearn.serving.encoding import json_bytes
from xclearn.serving.metrics import CONNECTIONS, ENDED, SHED, Metrics
from xclearn.serving.settings import Limits
from xclearn.serving.turns import Busy

SAFE = (b"x-content-type-options", b"nosniff")  # header of every response
CLOSE = (b"connection", b"close")
_QUIET = 0.25  # seconds after which an idle connection may be closed for a new one
_MANY = 32  # with this many requests, the event loop may be late
_LINGER = 2.0  # seconds during which input of a closed connection is ignored
_LAST_REQUEST = 2.0  # seconds to wait for idle connections when the server stops
_OTHER_FILES = 48  # descriptors for other uses: the model, the log, a reload
_BACKLOG = 512  # accepted at once
_FEWEST = 16  # minimum connections
_BEAT = 0.02  # seconds between measurements of the event loop's delay


def _written(status: http.HTTPStatus, content: object, *headers: tuple[bytes, bytes]) -> bytes:
    """A complete response, for connections whose request is not read."""
    body = json_bytes(content)
    length = (b"content-length", str(len(body)).encode())
    lines = [b"%b: %b" % one for one in ((b"content-type", b"application/json"), length, SAFE, CLOSE, *headers)]
    return b"\r\n".join([f"HTTP/1.1 {status} {status.phrase}".encode(), *lines, b"", body])


_ALIVE = _written(http.HTTPStatus.OK, {"status": "alive"})
_NO_ROOM = _written(
    http.HTTPStatus.SERVICE_UNAVAILABLE,
    {"error": str(Busy("the server has too many connections"))},
    (b"retry-after", b"1"),
)


@final
@dataclass(frozen=True)
class Room:
    """How many connections a process can have, given its file descriptors."""

    most: int  # connections served
    spare: int  # connections rejected with a response
    backlog: int  # connections accepted at once before they are counted


def room_for(most: int) -> Room:
    """The connection limit, lowered to what the descriptors allow; rejecting a connection takes one too."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return Room(most, most, _BACKLOG)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 3 * most + _OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    free = wanted - _OTHER_FILES if soft == resource.RLIM_INFINITY else soft - _OTHER_FILES
    if free < _FEWEST:
        allowed = f"at least {_FEWEST + _OTHER_FILES}"
        raise ConfigError("the limit on open files is too low", got=soft, allowed=allowed, todo="Raise ulimit -n.")
    most = min(most, free * 3 // 4)
    spare = min(most, (free - most) // 2)
    return Room(most, spare, min(spare, _BACKLOG))


@final
class Crowd:
    """All connections of a worker."""

    def __init__(self, limits: Limits, room: Room, metrics: Metrics, stopping: Callable[[], bool]) -> None:
        self.limits, self.stopping = limits, stopping
        self._late = 0.0  # delay of the event loop, in seconds
        self._room, self._metrics = room, metrics
        self._all: set[Connection] = set()
        self._refused: set[_Refusal] = set()
        self._quiet: dict[Connection, float] = {}  # idle connections and since when, earliest first

    def protocol(self, **uvicorn: Any) -> asyncio.Protocol:
        """The protocol for a new connection: serve it or, if there is no room, reject it cheaply."""
        return Connection(self, **uvicorn) if self._has_room() else _Refusal(self)

    def _has_room(self) -> bool:
        if self.behind():
            return False
        while len(self._all) >= self._room.most and self._end_quiet():
            pass
        return len(self._all) < self._room.most

    def _end_quiet(self) -> bool:
        """Close the connection that has been idle longest, unless its request may be waiting to be read."""
        longest = next(iter(self._quiet), None)
        if longest is None or time.monotonic() - self._quiet[longest] < _QUIET + 4 * self._late:
            return False
        self.leave(longest)
        longest.hang_up("crowded")
        return True

    def enter(self, connection: Connection) -> None:
        """Register an open connection without a request."""
        self._all.add(connection)
        self._quiet[connection] = time.monotonic()
        self._metrics.set(CONNECTIONS, len(self._all))

    def refuse(self, refusal: _Refusal) -> bool:
        """Whether one more connection can be rejected with a response."""
        self._metrics.add(SHED, series='reason="connections"')
        self._refused.add(refusal)
        return len(self._refused) <= self._room.spare

    def leave(self, connection: Connection | _Refusal) -> None:
        """Unregister a closed connection."""
        if isinstance(connection, _Refusal):
            self._refused.discard(connection)
            return
        self._all.discard(connection)
        self._quiet.pop(connection, None)
        self._metrics.set(CONNECTIONS, len(self._all))

    def note(self, connection: Connection, busy: bool) -> None:
        """Note that a request began or ended on a connection."""
        if busy:
            self._quiet.pop(connection, None)
        elif connection in self._all:
            self._quiet.setdefault(connection, time.monotonic())

    def behind(self) -> bool:
        """Whether requests wait for the event loop: it is late because of their number."""
        return self._late > self.limits.max_wait and len(self._all) - len(self._quiet) > _MANY

    def count(self, reason: str) -> None:
        """Count a connection closed by the server."""
        self._metrics.add(ENDED, series=f'reason="{reason}"')

    async def watch(self) -> None:
        """Measure the delay of the event loop, forever."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + _BEAT
            await asyncio.sleep(_BEAT)
            self._late = loop.time() - due


@final
class Connection(H11Protocol):
    """uvicorn's protocol with time-outs for every kind of silence."""

    def __init__(
        self,
        crowd: Crowd,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._crowd = crowd
        self._timer: asyncio.TimerHandle | None = None  # for receiving the header
        self._reading: asyncio.TimerHandle | None = None  # for the client to read its response

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(_Lingering(transport, self.loop))  # type: ignore[arg-type]
        self._crowd.enter(self)
        if self._crowd.stopping():
            self.shutdown()
        else:
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._crowd.leave(self)
        self._cancel()
        self.resume_writing()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return  # ignore further input
        super().data_received(data)
        self._note()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._note()

    def shutdown(self) -> None:
        """On shutdown, idle connections may send a last request; busy ones close after it (see `Record`)."""
        if self._is_quiet():
            self._cancel()
            self._timer = self.loop.call_later(_LAST_REQUEST, self._close_if_quiet)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._reading = self.loop.call_later(self._crowd.limits.body_timeout, self.hang_up, "late")

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None

    def hang_up(self, reason: str) -> None:
        """Close the connection, dropping what is in flight."""
        self._crowd.count(reason)
        self.transport.abort()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 (uvicorn's sentence; ours is another)
        self._crowd.count("malformed")
        self._refuse(400, DataError("not a valid HTTP/1.1 request", where="connection"))

    def _is_quiet(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _note(self) -> None:
        """After every event: a connection that has begun a request must finish its header in time."""
        quiet = self._is_quiet()
        self._crowd.note(self, busy=not quiet)
        if not quiet:
            self._cancel()
        elif self.timeout_keep_alive_task is None:  # uvicorn times the first byte, we the rest
            self._wait()

    def _wait(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(self._crowd.limits.header_timeout, self._late)

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _late(self) -> None:
        self._crowd.count("late")
        if self.conn.our_state is h11.IDLE and self.conn.trailing_data[0]:
            allowed = f"{self._crowd.limits.header_timeout:g} s"
            self._refuse(408, DataError("the header did not arrive in time", where="connection", allowed=allowed))
        else:
            self.transport.close()

    def _close_if_quiet(self) -> None:
        if self._is_quiet():
            self.transport.close()

    def _refuse(self, status: int, error: XclearnError) -> None:
        """Respond to an incomplete request, and close."""
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.abort()  # a response is in flight, so no error can be sent
            return
        self.transport.write(_written(http.HTTPStatus(status), {"error": str(error)}))
        self.transport.close()


@final
class _Refusal(asyncio.Protocol):
    """Responds that there is no room, or to a health probe that the process is alive."""

    def __init__(self, crowd: Crowd) -> None:
        self._crowd = crowd
        self._transport: _Lingering | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        loop = asyncio.get_running_loop()
        self._transport = _Lingering(transport, loop)
        if self._crowd.refuse(self):
            loop.call_later(_LINGER, self.data_received, b"")  # silent clients get the response too
        else:
            transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(_ALIVE if data.startswith(b"GET /healthz ") else _NO_ROOM)
            self._transport.close()

    def connection_lost(self, _: Exception | None) -> None:
        self._crowd.leave(self)


@final
class _Lingering:
    """A transport that closes its write side first, and its read side a moment later."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop, self._closing = transport, loop, False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def is_closing(self) -> bool:
        return self._closing or self._transport.is_closing()

    def write(self, data: bytes) -> None:
        if not self._closing:
            self._transport.write(data)

    def close(self) -> None:
        if self.is_closing():
            return
        self._closing = True
        self._transport.resume_reading()
        with contextlib.suppress(OSError):  # the client has gone
            self._transport.write_eof()
        self._loop.call_later(_LINGER, self._transport.abort)
