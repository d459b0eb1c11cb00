"""JSON of answers and of the log. Knows nothing about either."""

from __future__ import annotations

import json
from typing import Any

from pydantic import TypeAdapter

_ANYTHING: TypeAdapter[Any] = TypeAdapter(Any)


def json_bytes(content: Any) -> bytes:
    """JSON in UTF-8, six times as quick as the standard library's; in ASCII where a string holds half a character."""
    try:
        return _ANYTHING.dump_json(content)
    except ValueError:  # UTF-8 has no such half
        return json.dumps(content).encode()
