"""The structured log: one JSON object a line. Never holds a text or a token.

Requests are written in small batches shortly after their responses, so that none waits for the log; other events are
written at once, after pending ones. Standard logging is not used, as it would take as long as a prediction.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from datetime import UTC, datetime
from typing import Any, TextIO

from xclearn.serving.encoding import json_bytes

_SOON = 0.05  # seconds that a line may wait for others

_streams: list[TextIO] = []
_waiting: list[tuple[float, str, dict[str, Any]]] = []  # when, what, and the facts


def log_event(event: str, **facts: Any) -> None:
    """Log an event with time and process, if `log_to_stdout` was called."""
    _waiting.append((time.time(), event, facts))
    _write()


def log_soon(event: str, **facts: Any) -> None:
    """The same, but deferred in the running event loop."""
    if not _waiting:
        asyncio.get_running_loop().call_later(_SOON, _write)
    _waiting.append((time.time(), event, facts))


def log_to_stdout() -> None:
    """Enable the log, on stdout."""
    _streams.append(sys.stdout)


def _write() -> None:
    lines = "".join([_line(*one) for one in _waiting])
    _waiting.clear()
    for stream in _streams:
        with contextlib.suppress(OSError):  # the log's reader has exited or the disk is full: requests continue
            stream.write(lines)
            stream.flush()


def _line(when: float, event: str, facts: dict[str, Any]) -> str:
    shown = datetime.fromtimestamp(when, UTC).isoformat(timespec="milliseconds")
    return json_bytes({"time": shown, "event": event, "pid": os.getpid(), **facts}).decode() + "\n"
