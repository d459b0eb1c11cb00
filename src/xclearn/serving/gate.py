"""Middleware for every request: log, metrics, host, token, body size, time-outs, and load shedding.

Plain ASGI, so that it applies to every path. Knows nothing about models.
"""

from __future__ import annotations

import asyncio
import hmac
import math
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, final

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from xclearn.errors import ConfigError, DataError, XclearnError
from xclearn.serving.connections import CLOSE, SAFE, Crowd
from xclearn.serving.encoding import json_bytes
from xclearn.serving.log import log_soon
from xclearn.serving.metrics import IN_FLIGHT, PATHS, REQUESTS, SECONDS, SHED, STATUSES, Metrics
from xclearn.serving.settings import Settings
from xclearn.serving.turns import Busy

OPEN = ("/", "/healthz", "/readyz")  # open without a token, like paths under PAGE: probes, and the web page
PAGE = "/page/"
ALWAYS = "/healthz"  # served under any load
_GONE = 499  # the client disconnected before the response
_SMALL = 1 << 16  # bytes of a body that is always accepted: one read of a connection
_MOST_DRAINED = 1 << 28  # bytes of an oversized body to read: a client that is still writing does not read our response


def json_response(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A JSON response."""
    return Response(json_bytes(content), status, headers, "application/json")


def refuse(status: int, error: XclearnError, headers: Mapping[str, str] | None = None) -> Response:
    """A response with an error."""
    return json_response({"error": str(error)}, status, headers)


def fail() -> Response:
    """The response to an internal error."""
    return refuse(500, XclearnError("internal server error", todo="See the server's log."))


def shed(reason: str, error: Busy, metrics: Metrics) -> Response:
    """The response under overload."""
    metrics.add(SHED, series=f'reason="{reason}"')
    return refuse(503, error, {"Retry-After": str(math.ceil(error.seconds))})


@final
class Recorder:
    """Counts and logs every request, and sets the headers of every response."""

    def __init__(self, app: ASGIApp, metrics: Metrics, crowd: Crowd) -> None:
        self._app, self._metrics, self._crowd = app, metrics, crowd

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        status, started = _GONE, time.perf_counter()

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], SAFE, *([CLOSE] if self._crowd.stopping() else [])]
            await send(message)

        self._metrics.add(IN_FLIGHT)
        try:
            await self._app(scope, receive, watched)
        finally:
            self._metrics.add(IN_FLIGHT, -1)
            self._note(scope, status, time.perf_counter() - started)

    def _note(self, scope: Scope, status: int, seconds: float) -> None:
        path = scope["path"] if scope["path"] in PATHS else "other"
        shown = str(status) if str(status) in STATUSES else "other"
        self._metrics.add(REQUESTS, series=f'path="{path}",status="{shown}"')
        self._metrics.observe(SECONDS, seconds, f'path="{path}"')
        log_soon(
            "request",
            client=(scope["client"] or ("",))[0],
            method=scope["method"],
            path=scope["path"],
            status=status,
            ms=round(1000 * seconds, 3),
            **{name: value for name, value in scope.get("state", {}).items() if name == "texts"},
        )


@final
class Guard:
    """Rejects requests that are unauthorised, too large, too slow or in excess; puts the body into the state."""

    def __init__(self, app: ASGIApp, settings: Settings, metrics: Metrics, crowd: Crowd) -> None:
        self._app = app
        self._settings = settings
        self._metrics = metrics
        self._crowd = crowd
        self._limits = settings.limits
        self._held = 0  # bytes of large bodies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        if refusal := self._refusal(scope):
            return await refusal(scope, receive, send)
        body = _Body(self._limits.max_body)
        timer = asyncio.timeout(self._limits.timeout)

        async def watched(message: Message) -> None:
            timer.reschedule(None)  # from here on the client is timed, see `Connection`
            await send(message)

        try:
            async with timer:
                async with asyncio.timeout(self._limits.body_timeout):
                    scope.setdefault("state", {})["body"] = await self._read(body, receive)
                await self._app(scope, receive, watched)
        except ClientDisconnect:
            return None
        except _TooLargeError:
            await self._too_large()(scope, receive, send)
        except Busy as error:
            await _closing(shed("bodies", error, self._metrics))(scope, receive, send)
        except TimeoutError:
            await self._too_late(body)(scope, receive, send)
        finally:
            self._held -= body.held

    def _refusal(self, scope: Scope) -> Response | None:
        """The response to a request that is rejected unread."""
        headers = Headers(scope=scope)
        if "host" in headers and not self._settings.answers_for(headers["host"]):
            what = "this server does not serve this host name"
            todo = "Add it with xc serve --allow-host NAME."
            return refuse(421, ConfigError(what, where="Host", got=headers["host"], todo=todo))
        if not self._knows(scope, headers):
            error = ConfigError("this server requires a token", where="Authorization", allowed="Bearer TOKEN")
            return refuse(401, error, {"WWW-Authenticate": "Bearer"})
        if scope["path"] == ALWAYS:
            return None
        if self._crowd.behind():
            return shed("late", Busy("the server has more requests than it can handle"), self._metrics)
        return None

    def _knows(self, scope: Scope, headers: Headers) -> bool:
        token = self._settings.token
        if token is None or scope["path"] in OPEN or scope["path"].startswith(PAGE):
            return True
        scheme, _, given = headers.get("authorization", "").partition(" ")
        return scheme.lower() == "bearer" and hmac.compare_digest(given.encode("latin-1"), token.encode())

    async def _read(self, body: _Body, receive: Receive) -> bytes:
        while body.more and body.size <= _MOST_DRAINED:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            self._held += body.add(message.get("body", b""), message.get("more_body", False))
            if self._held > self._limits.max_bodies:
                raise Busy("the server has no memory left for a body of this size")
        if body.size > self._limits.max_body:
            raise _TooLargeError
        return body.take()

    def _too_large(self) -> Response:
        allowed = f"at most {self._limits.max_body:,} bytes"
        todo = "Send fewer texts per request."
        return _closing(refuse(413, DataError("the body is too large", where="body", allowed=allowed, todo=todo)))

    def _too_late(self, body: _Body) -> Response:
        if body.more:
            seconds = f"{min(self._limits.body_timeout, self._limits.timeout):g} s"
            return _closing(refuse(408, DataError("the body did not arrive in time", where="body", allowed=seconds)))
        seconds = f"{self._limits.timeout:g} s"
        error = XclearnError(f"no response within {seconds}", todo="Try again later, or with a smaller request.")
        return refuse(503, error, {"Retry-After": "1"})


@final
class _Body:
    """The part of a body received so far."""

    def __init__(self, most: int) -> None:
        self.size, self.held, self.more = 0, 0, True
        self._most = most
        self._parts: list[bytes] = []

    def add(self, part: bytes, more: bool) -> int:
        """Add a part; returns the additional bytes held. Oversized bodies are not kept, small ones not counted."""
        self.size, self.more = self.size + len(part), more
        if self.size <= self._most:
            self._parts.append(part)
        else:
            self._parts.clear()
        before = self.held
        self.held = self.size if _SMALL < self.size <= self._most else 0
        return self.held - before

    def take(self) -> bytes:
        """The whole body; can be called once."""
        joined = b"".join(self._parts)
        self._parts.clear()
        return joined


def _closing(response: Response) -> Response:
    """The response, after which the connection closes, as further input belongs to no request."""
    response.headers["Connection"] = "close"
    return response


@final
class ShortCut:
    """Calls the handler of one path directly, as FastAPI's routing takes as long as a prediction."""

    def __init__(
        self, app: ASGIApp, method: str, path: str, handler: Callable[[Request], Awaitable[Response]], metrics: Metrics
    ) -> None:
        self._app = app
        self._method = method
        self._path = path
        self._handler = handler
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != self._path or scope["method"] != self._method:
            return await self._app(scope, receive, send)
        try:
            response = await self._handler(Request(scope, receive))
        except (ConfigError, DataError) as error:
            response = refuse(422, error)
        except Busy as error:
            response = shed("queue", error, self._metrics)
        except Exception:
            await fail()(scope, receive, send)
            raise  # uvicorn logs it
        await response(scope, receive, send)


class _TooLargeError(Exception):
    """A body has more bytes than allowed."""
