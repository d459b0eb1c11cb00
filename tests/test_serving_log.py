"""The log of the server: JSON lines, and a reader that goes away."""

import asyncio
import io
import json
import os

import pytest

from xclearn.serving import log


@pytest.fixture(autouse=True)
def streams(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "_streams", [])
    monkeypatch.setattr(log, "_waiting", [])


def test_an_event_is_one_line_of_json(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr("sys.stdout", stream)
    log.log_event("before")
    log.log_to_stdout()
    log.log_event("request", path="/\n\ud800", status=200)
    (line,) = stream.getvalue().splitlines()
    told = json.loads(line)
    assert told.pop("time").endswith("+00:00")
    assert told == {"event": "request", "pid": os.getpid(), "path": "/\n\ud800", "status": 200}


def test_what_can_wait_comes_by_itself_and_never_after_what_came_later(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr("sys.stdout", stream)
    log.log_to_stdout()

    async def scenario() -> str:
        log.log_soon("first")
        log.log_soon("second")
        log.log_event("third")
        log.log_soon("fourth")
        written = stream.getvalue()
        while len(stream.getvalue().splitlines()) < 4:
            await asyncio.sleep(0.01)
        return written

    written = asyncio.run(asyncio.wait_for(scenario(), 30))
    assert [json.loads(line)["event"] for line in written.splitlines()] == ["first", "second", "third"]
    told = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [one["event"] for one in told] == ["first", "second", "third", "fourth"]
    assert [one["time"] for one in told] == sorted(one["time"] for one in told)


def test_a_reader_that_goes_away_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    stream = open(writing, "w")  # noqa: SIM115 (it cannot be closed: what it holds can go nowhere)
    monkeypatch.setattr("sys.stdout", stream)
    log.log_to_stdout()
    log.log_event("request")
    log.log_event("request")
    with pytest.raises(BrokenPipeError):
        stream.close()
