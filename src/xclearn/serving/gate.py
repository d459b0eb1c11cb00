"""What stands around every request: the access log and counts, the token, the size of the body, the time it may take.

Plain ASGI, so that it holds for every path. Knows nothing about models.
"""

from __future__ import annotations

import asyncio
import hmac
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, final

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from xclearn.errors import ConfigError, DataError, XclearnError
from xclearn.serving.encoding import json_bytes
from xclearn.serving.log import log_soon
from xclearn.serving.metrics import IN_FLIGHT, PATHS, REQUESTS, SECONDS, STATUSES, Metrics
from xclearn.serving.settings import Limits

OPEN = ("/", "/healthz", "/readyz")  # for everyone, and so is what begins with PAGE: probes, and a page that asks
PAGE = "/page/"
_GONE = 499  # the client left before the answer
_MOST_DRAINED = 1 << 28  # of a body that is too large: a client that is still writing does not read our answer


def json_response(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """An answer in JSON."""
    return Response(json_bytes(content), status, headers, "application/json")


def refuse(status: int, error: XclearnError, headers: Mapping[str, str] | None = None) -> Response:
    """An answer with our sentence."""
    return json_response({"error": str(error)}, status, headers)


def fail() -> Response:
    """The answer to what should not have happened."""
    return refuse(500, XclearnError("the server failed", todo="Its log says why."))


@final
class Record:
    """Counts and logs every request."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        status, started = _GONE, time.perf_counter()

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
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
    """Refuses whom it does not know, what is too large, and what takes too long; leaves the body in the state."""

    def __init__(self, app: ASGIApp, limits: Limits, token: str | None) -> None:
        self._app, self._limits, self._token = app, limits, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        if not self._knows(scope):
            error = ConfigError("this server wants a token", where="Authorization", allowed="Bearer TOKEN")
            return await refuse(401, error, {"WWW-Authenticate": "Bearer"})(scope, receive, send)
        body: bytes | None = None
        started = False

        async def watched(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            async with asyncio.timeout(self._limits.timeout):
                body = scope.setdefault("state", {})["body"] = await self._body(receive)
                await self._app(scope, receive, watched)
        except ClientDisconnect:
            return None
        except _TooLargeError:
            await self._too_large()(scope, receive, send)
        except TimeoutError:
            if started:
                raise
            await self._too_late(body)(scope, receive, send)

    def _knows(self, scope: Scope) -> bool:
        if self._token is None or scope["path"] in OPEN or scope["path"].startswith(PAGE):
            return True
        scheme, _, given = Headers(scope=scope).get("authorization", "").partition(" ")
        return scheme.lower() == "bearer" and hmac.compare_digest(given.encode("latin-1"), self._token.encode())

    async def _body(self, receive: Receive) -> bytes:
        parts, size, more = [], 0, True
        while more and size <= _MOST_DRAINED:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            size, more = size + len(message.get("body", b"")), message.get("more_body", False)
            if size <= self._limits.max_body:
                parts.append(message.get("body", b""))
        if size > self._limits.max_body:
            raise _TooLargeError
        return b"".join(parts)

    def _too_large(self) -> Response:
        allowed = f"at most {self._limits.max_body:,} bytes"
        todo = "Send fewer texts in a request."
        return refuse(413, DataError("the body is too large", where="body", allowed=allowed, todo=todo))

    def _too_late(self, body: bytes | None) -> Response:
        seconds = f"{self._limits.timeout:g} s"
        if body is None:
            return refuse(408, DataError("the body did not come in time", where="body", allowed=seconds))
        return refuse(503, XclearnError(f"no answer within {seconds}", todo="Ask again later, or for less at once."))


@final
class ShortCut:
    """Asks the handler of one path itself: the routing of FastAPI, which has it too, takes as long as a prediction."""

    def __init__(self, app: ASGIApp, method: str, path: str, handler: Callable[[Request], Awaitable[Response]]) -> None:
        self._app, self._method, self._path, self._handler = app, method, path, handler

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != self._path or scope["method"] != self._method:
            return await self._app(scope, receive, send)
        try:
            response = await self._handler(Request(scope, receive))
        except (ConfigError, DataError) as error:
            response = refuse(422, error)
        except Exception:
            await fail()(scope, receive, send)
            raise  # uvicorn logs it
        await response(scope, receive, send)


class _TooLargeError(Exception):
    """More bytes came than a body may have."""
