"""Settings of a server, and its limits on requests. Imports nothing of the extra."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import final

from xclearn.errors import ConfigError, DataError

_PORT = re.compile(r":\d*$")
_NO_TEXT = re.compile("[\0\ud800-\udfff]")  # possible in JSON, but not in texts


@final
@dataclass(frozen=True)
class Limits:
    """Limits on requests."""

    max_body: int = 8 << 20  # bytes
    max_texts: int = 1000  # per request
    max_characters: int = 20_000  # per text
    max_k: int = 1000  # labels per text
    max_answer: int = 100_000  # labels for all texts of a request
    max_names: int = 1000  # label names per request
    timeout: float = 30.0  # seconds from a request's header to its response
    header_timeout: float = 10.0  # seconds from the connection, or the header's first byte, to its end
    body_timeout: float = 15.0  # seconds to receive the body, and for the client to read the response
    idle_timeout: float = 60.0  # seconds that a connection may be idle between requests
    max_connections: int = 1000  # per worker
    max_bodies: int = 64 << 20  # bytes of all bodies above 64 KiB that a worker holds
    max_wait: float = 0.25  # seconds that a short request may wait for its turn; a long one half of timeout

    def check_texts(self, texts: Sequence[str]) -> None:
        """Raise for too many texts, long texts, and invalid characters."""
        if len(texts) > self.max_texts:
            allowed = f"at most {self.max_texts:,}"
            todo = "Send them in several requests."
            raise ConfigError(
                "too many texts in one request", where="texts", got=len(texts), allowed=allowed, todo=todo
            )
        for row, text in enumerate(texts):
            if len(text) > self.max_characters:
                allowed = f"at most {self.max_characters:,} characters"
                raise DataError("the text is too long", where=f"texts[{row}]", got=len(text), allowed=allowed)
            if found := _NO_TEXT.search(text):
                what = "the text contains a NUL or a lone surrogate"
                raise DataError(what, where=f"texts[{row}], character {found.start()}", got=found.group())

    def check_k(self, k: int, n_texts: int) -> None:
        """Raise if k is out of range or the response would be too long."""
        if not 1 <= k <= self.max_k:
            raise ConfigError("out of range", where="k", got=k, allowed=f"1 to {self.max_k:,}")
        if k * n_texts > self.max_answer:
            allowed = f"at most {self.max_answer:,} labels for all texts"
            todo = "Use several requests."
            raise ConfigError("too many labels in one response", where="k", got=k, allowed=allowed, todo=todo)

    def check_names(self, names: Sequence[str], where: str) -> None:
        """Raise for too many label names."""
        if len(names) > self.max_names:
            allowed = f"at most {self.max_names:,}"
            raise ConfigError("too many labels in one request", where=where, got=len(names), allowed=allowed)


@final
@dataclass(frozen=True)
class Settings:
    """Settings of a server."""

    folder: Path
    host: str = "127.0.0.1"
    port: int = 8080
    workers: int = 1
    token: str | None = field(default=None, repr=False)  # the token that clients must send, if any
    cors_origins: tuple[str, ...] = ()  # other origins whose pages have access
    allow_hosts: tuple[str, ...] = ()  # additional host names of the server; * for any
    limits: Limits = Limits()
    trial_timeout: float = 300.0  # seconds to load and test a model, or to change its labels

    def answers_for(self, host: str) -> bool:
        """Whether the host of a request is one of ours. A page of a stranger can bind its own name to our address, and
        would then ask as one of our pages; it cannot do so with an address, or with a name that is ours.
        """
        name = _PORT.sub("", host).lower().rstrip(".")
        if name.endswith(".localhost") or name in self._names or "*" in self.allow_hosts:
            return True
        with contextlib.suppress(ValueError):
            ipaddress.ip_address(name.removeprefix("[").removesuffix("]") if name.startswith("[") else name)
            return True
        return False

    @cached_property
    def _names(self) -> frozenset[str]:
        own = socket.gethostname() if self.host in ("0.0.0.0", "::") else self.host
        return frozenset(name.lower().rstrip(".") for name in ("localhost", own, *self.allow_hosts))

    @property
    def n_threads(self) -> int:
        """A worker's share of the cores."""
        return max(1, (os.cpu_count() or 1) // self.workers)
