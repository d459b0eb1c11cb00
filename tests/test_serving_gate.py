"""The short cut past the routing: what it asks, what it passes on, and what becomes of an error."""

import asyncio
import json
from typing import Any

import numpy as np
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from xclearn.errors import DataError
from xclearn.serving.gate import ShortCut
from xclearn.serving.metrics import N_VALUES, Metrics
from xclearn.serving.turns import Busy

METRICS = Metrics(np.zeros((1, N_VALUES)), 0)


async def handler(request: Request) -> Response:
    errors = {"mistake": DataError("no text", where="text"), "load": Busy("full", 2.1), "defect": KeyError("defect")}
    error = errors.get(request.url.query)
    if error:
        raise error
    return PlainTextResponse("from the handler")


def ask(method: str, path: str, query: str = "") -> list[Any]:
    """Status and content of what is sent, and then the error that is raised, if any."""
    scope = {"type": "http", "method": method, "path": path, "query_string": query.encode(), "headers": []}
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message.get("status") or message["body"])

    async def receive() -> Any:
        return {"type": "http.disconnect"}

    app = ShortCut(PlainTextResponse("from the application"), "POST", "/short", handler, METRICS)
    try:
        asyncio.run(app({**scope, "server": ("here", 80)}, receive, send))
    except KeyError as error:
        sent.append(error)
    return sent


def test_one_path_and_method_is_asked_of_the_handler_and_the_rest_of_the_application() -> None:
    assert ask("POST", "/short") == [200, b"from the handler"]
    for method, path in (("GET", "/short"), ("POST", "/short/"), ("POST", "/other")):
        assert ask(method, path) == [200, b"from the application"]


def test_a_mistake_of_the_client_is_told() -> None:
    status, body = ask("POST", "/short", "mistake")
    assert (status, json.loads(body)) == (422, {"error": "text: no text."})


def test_a_load_that_is_too_much_is_told_and_counted() -> None:
    status, body = ask("POST", "/short", "load")
    assert (status, json.loads(body)) == (503, {"error": "full. Try again later, or with a smaller request."})
    assert 'xclearn_requests_shed_total{reason="queue"} 1\n' in METRICS.text()


def test_a_defect_is_answered_and_still_raised_for_the_log() -> None:
    status, body, error = ask("POST", "/short", "defect")
    assert (status, json.loads(body)) == (500, {"error": "internal server error. See the server's log."})
    assert isinstance(error, KeyError)
