"""`xc serve`: a model folder over HTTP."""

from __future__ import annotations

import dataclasses
import os
import re
from pathlib import Path

from xclearn.cli.progress import say
from xclearn.errors import ConfigError
from xclearn.extras import require
from xclearn.serving.settings import Settings

TOKEN_VARIABLE = "XCLEARN_TOKEN"
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


def serve_model(settings: Settings, token_file: Path | None) -> None:
    """Check the options, then serve until told to stop."""
    for package in ("fastapi", "uvicorn"):
        require(package, "xc serve")
    _check(settings)
    token = _read_token(token_file)
    if token is None and settings.host not in _LOOPBACK:
        say(
            f"warning: anyone who can reach {settings.host} has access; set a token by --token-file or {TOKEN_VARIABLE}"
        )
    from xclearn.serving.server import serve

    serve(dataclasses.replace(settings, token=token), say)


def _check(settings: Settings) -> None:
    own = {"workers": settings.workers, "trial_timeout": settings.trial_timeout}
    for name, value in {**own, **dataclasses.asdict(settings.limits)}.items():
        if value <= 0:
            raise ConfigError("must be above 0", where=f"--{name.replace('_', '-')}", got=value)


def _read_token(file: Path | None) -> str | None:
    """The token from the file, else from the environment, if any."""
    source = str(file) if file else TOKEN_VARIABLE
    token = file.read_bytes().decode("latin-1").strip() if file else os.environ.get(TOKEN_VARIABLE)
    if token is not None and not re.fullmatch(r"[!-~]{16,}", token):
        raise ConfigError(
            "the token is invalid", where=source, allowed="16 or more visible ASCII characters, no spaces"
        )
    return token
