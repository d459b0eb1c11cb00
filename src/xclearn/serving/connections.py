"""The connections of a worker: how long each may be silent, how many there may be, and how they end.

uvicorn closes a connection that is idle after an answer; all else about slow, silent and many clients is here. A
connection that closes sends what is written and then ignores what still comes for a moment: closing a socket with
unread bytes resets it, and the client would lose its answer. Knows nothing about what is asked.
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

SAFE = (b"x-content-type-options", b"nosniff")  # of every answer
CLOSE = (b"connection", b"close")
_QUIET = 0.25  # seconds after which a connection without a request gives way to another
_MANY = 32  # requests at hand, which is no reason to be late
_LINGER = 2.0  # seconds that a closed connection may still send
_LAST_REQUEST = 2.0  # seconds that a quiet connection is waited for when the server ends
_OTHER_FILES = 48  # descriptors of a worker that are no connections: the model, the log, a reload
_BACKLOG = 512  # connections
_FEWEST = 16  # connections
_BEAT = 0.02  # seconds between two looks at how late the event loop is


def _written(status: http.HTTPStatus, content: object, *headers: tuple[bytes, bytes]) -> bytes:
    """A whole answer, for where no request is read."""
    body = json_bytes(content)
    length = (b"content-length", str(len(body)).encode())
    lines = [b"%b: %b" % one for one in ((b"content-type", b"application/json"), length, SAFE, CLOSE, *headers)]
    return b"\r\n".join([f"HTTP/1.1 {status} {status.phrase}".encode(), *lines, b"", body])


_ALIVE = _written(http.HTTPStatus.OK, {"status": "alive"})
_NO_ROOM = _written(
    http.HTTPStatus.SERVICE_UNAVAILABLE,
    {"error": str(Busy("the server has no connection to spare"))},
    (b"retry-after", b"1"),
)


@final
@dataclass(frozen=True)
class Room:
    """How many connections a process can have, by its file descriptors."""

    most: int  # that are served
    spare: int  # that are refused with an answer
    backlog: int  # that may be accepted at once before any of them is counted


def room_for(most: int) -> Room:
    """The connection limit, lowered to what the descriptors allow: refusing a connection takes one too."""
    try:
        import resource
    except ImportError:  # not on Windows, which has no such limit
        return Room(most, most, _BACKLOG)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 3 * most + _OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    free = wanted - _OTHER_FILES if soft == resource.RLIM_INFINITY else soft - _OTHER_FILES
    if free < _FEWEST:
        allowed = f"at least {_FEWEST + _OTHER_FILES}"
        raise ConfigError("the process may open too few files", got=soft, allowed=allowed, todo="Raise ulimit -n.")
    most = min(most, free * 3 // 4)
    spare = min(most, (free - most) // 2)
    return Room(most, spare, min(spare, _BACKLOG))


@final
class Crowd:
    """All connections of a worker."""

    def __init__(self, limits: Limits, room: Room, metrics: Metrics, stopping: Callable[[], bool]) -> None:
        self.limits, self.stopping = limits, stopping
        self._late = 0.0  # seconds that the event loop was late: what is ready waits so long for its turn
        self._room, self._metrics = room, metrics
        self._all: set[Connection] = set()
        self._refused: set[_Refusal] = set()
        self._quiet: dict[Connection, float] = {}  # those without a request, and since when; the first is the earliest

    def protocol(self, **uvicorn: Any) -> asyncio.Protocol:
        """For a new connection: to answer, or where there is no room to refuse, which is cheaper by far."""
        return Connection(self, **uvicorn) if self._has_room() else _Refusal(self)

    def _has_room(self) -> bool:
        if self.behind():
            return False
        while len(self._all) >= self._room.most and self._end_quiet():
            pass
        return len(self._all) < self._room.most

    def _end_quiet(self) -> bool:
        """End the connection that has been quiet longest, unless its request may just wait to be read."""
        longest = next(iter(self._quiet), None)
        if longest is None or time.monotonic() - self._quiet[longest] < _QUIET + 4 * self._late:
            return False
        self.leave(longest)
        longest.hang_up("crowded")
        return True

    def enter(self, connection: Connection) -> None:
        """It is open, and no request has come."""
        self._all.add(connection)
        self._quiet[connection] = time.monotonic()
        self._metrics.set(CONNECTIONS, len(self._all))

    def refuse(self, refusal: _Refusal) -> bool:
        """Whether one more can be answered that there is no room."""
        self._metrics.add(SHED, series='reason="connections"')
        self._refused.add(refusal)
        return len(self._refused) <= self._room.spare

    def leave(self, connection: Connection | _Refusal) -> None:
        """It is closed."""
        if isinstance(connection, _Refusal):
            self._refused.discard(connection)
            return
        self._all.discard(connection)
        self._quiet.pop(connection, None)
        self._metrics.set(CONNECTIONS, len(self._all))

    def note(self, connection: Connection, busy: bool) -> None:
        """A request began or ended on it."""
        if busy:
            self._quiet.pop(connection, None)
        elif connection in self._all:
            self._quiet.setdefault(connection, time.monotonic())

    def behind(self) -> bool:
        """Whether requests wait for the event loop itself: it is late, and not because of something else."""
        return self._late > self.limits.max_wait and len(self._all) - len(self._quiet) > _MANY

    def count(self, reason: str) -> None:
        """A connection that the server ended."""
        self._metrics.add(ENDED, series=f'reason="{reason}"')

    async def watch(self) -> None:
        """See how late the event loop is, for ever."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + _BEAT
            await asyncio.sleep(_BEAT)
            self._late = loop.time() - due


@final
class Connection(H11Protocol):
    """uvicorn's protocol with a limit to every silence."""

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
        self._timer: asyncio.TimerHandle | None = None  # for the header
        self._reading: asyncio.TimerHandle | None = None  # for the client to read its answer

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
            return  # nobody waits for what still comes
        super().data_received(data)
        self._note()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._note()

    def shutdown(self) -> None:
        """The server ends: a quiet connection may ask once more, a busy one closes after its answer (see `Record`)."""
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
        """End the connection with whatever is on its way."""
        self._crowd.count(reason)
        self.transport.abort()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 (uvicorn's sentence; ours is another)
        self._crowd.count("malformed")
        self._refuse(400, DataError("this is not HTTP/1.1 as the server reads it", where="connection"))

    def _is_quiet(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _note(self) -> None:
        """After every event: who is quiet and has begun a request has to finish its header in time."""
        quiet = self._is_quiet()
        self._crowd.note(self, busy=not quiet)
        if not quiet:
            self._cancel()
        elif self.timeout_keep_alive_task is None:  # uvicorn waits for the first byte, we for the rest
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
            self._refuse(408, DataError("the header did not come in time", where="connection", allowed=allowed))
        else:
            self.transport.close()

    def _close_if_quiet(self) -> None:
        if self._is_quiet():
            self.transport.close()

    def _refuse(self, status: int, error: XclearnError) -> None:
        """Answer what never became a request, and close."""
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.abort()  # an answer is on its way: nothing can be said any more
            return
        self.transport.write(_written(http.HTTPStatus(status), {"error": str(error)}))
        self.transport.close()


@final
class _Refusal(asyncio.Protocol):
    """Answers whatever is asked that there is no room; a probe, that the process is alive."""

    def __init__(self, crowd: Crowd) -> None:
        self._crowd = crowd
        self._transport: _Lingering | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        loop = asyncio.get_running_loop()
        self._transport = _Lingering(transport, loop)
        if self._crowd.refuse(self):
            loop.call_later(_LINGER, self.data_received, b"")  # who sends nothing is told too
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
    """A transport that closes its own side first, and the other a moment later."""

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
