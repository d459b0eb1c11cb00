"""The structured log: one JSON object a line, through the logger `xclearn.serving`. Never holds a text or a token."""

from __future__ import annotations

import json
import logging
import os
import sys
from datetime import UTC, datetime
from typing import Any

_LOGGER = logging.getLogger("xclearn.serving")


def log_event(event: str, **facts: Any) -> None:
    """Write what happened, when, and in which process."""
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    _LOGGER.info(json.dumps({"time": now, "event": event, "pid": os.getpid(), **facts}))


def log_to_stdout() -> None:
    """Where the log of a server of its own goes."""
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(logging.Formatter("%(message)s"))
    _LOGGER.addHandler(handler)
    _LOGGER.setLevel(logging.INFO)
    _LOGGER.propagate = False
