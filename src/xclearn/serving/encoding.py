"""JSON encoding of responses and log lines."""

from __future__ import annotations

import json
from typing import Any

from pydantic import TypeAdapter

_ANYTHING: TypeAdapter[Any] = TypeAdapter(Any)


def json_bytes(content: Any) -> bytes:
    """JSON in UTF-8, six times faster than the standard library; in ASCII if a string has lone surrogates."""
    try:
        return _ANYTHING.dump_json(content)
    except ValueError:  # UTF-8 cannot encode lone surrogates
        return json.dumps(content).encode()
