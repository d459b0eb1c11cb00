"""Adds and removes labels of the model in service: first in its folder, in a separate process, then by a reload.

Changes of the folder are atomic and serialised over all workers; all workers then reload it, as after SIGHUP. Knows
nothing about HTTP.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple, final

from xclearn.errors import ConfigError, DataError, ModelError
from xclearn.inference.folder import JSON_FILE, load_model, read_json, save_model
from xclearn.inference.label_editing import NewLabel, with_labels, without_labels
from xclearn.inference.sealed import version_of
from xclearn.serving.live import Live
from xclearn.serving.settings import Settings
from xclearn.serving.supervisor import RELOAD
from xclearn.serving.trial import said_by, told
from xclearn.writing import locked

_LOOK_EVERY, _PATIENCE = 0.05, 20.0  # seconds between checks of the version in service, and until giving up


class Change(NamedTuple):
    """Labels to remove, then labels to add, as given in JSON."""

    remove: list[str]
    add: list[dict[str, Any]]


@final
class Editor:
    """Changes the labels of the served model."""

    def __init__(self, settings: Settings, live: Live) -> None:
        self._settings, self._live = settings, live
        self._turn = asyncio.Lock()

    def require_token(self) -> None:
        """Raise if everybody could change the model."""
        if self._settings.token is None:
            todo = "Start it with --token-file."
            raise ForbiddenError("labels can only be changed on a server with a token", where="/labels", todo=todo)
        if RELOAD is None:
            raise ForbiddenError("a server on this system cannot reload its model", where="/labels")

    async def change(self, wanted: Change) -> dict[str, Any]:
        """Write the folder and wait until this worker serves it."""
        if not (wanted.add or wanted.remove):
            raise ConfigError("no labels are given", where="add, remove")
        async with self._turn:
            version, n_labels = await asyncio.to_thread(_in_process, self._settings, wanted)
            assert RELOAD is not None
            os.kill(os.getpid() if self._settings.workers == 1 else os.getppid(), RELOAD)
            ended = time.monotonic() + _PATIENCE
            while self._live.now.facts["version"] != version and time.monotonic() < ended:
                await asyncio.sleep(_LOOK_EVERY)
        in_service = self._live.now.facts["version"] == version
        return {"n_labels": n_labels, "version": version, "in_service": in_service}


@final
class ForbiddenError(ConfigError):
    """An action that this server does not allow."""


def _in_process(settings: Settings, wanted: Change) -> tuple[str, int]:
    """Load, change and write the model in a process where no request waits; the new version and number of labels."""
    folder = settings.folder
    done, said = said_by(_attempt, (folder, wanted), settings.trial_timeout, where=str(folder))
    if not done:
        raise DataError(said)
    version, n_labels = said
    return version, n_labels


def _attempt(folder: Path, wanted: Change, answer: Connection) -> None:
    try:
        answer.send((True, _changed(folder, wanted)))
    except Exception as error:
        answer.send((False, told(error).removesuffix(".")))


def _changed(folder: Path, wanted: Change) -> tuple[str, int]:
    added = [NewLabel.of(record, f"add[{i}]") for i, record in enumerate(wanted.add)]
    with _alone(folder):
        model = load_model(folder)
        if wanted.remove:
            model = without_labels(model, wanted.remove)
        if added:
            model = with_labels(model, added)
        save_model(model, folder, replace=True)
        return version_of(read_json(folder / JSON_FILE)), len(model.labels)


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Keep other processes from changing the folder."""
    target = Path(os.path.realpath(folder))
    ended = time.monotonic() + _PATIENCE
    while True:
        with locked(target.parent / f".{target.name}.labels") as is_ours:
            if is_ours:
                yield
                return
        if time.monotonic() > ended:
            raise ModelError("another change of the labels takes too long", where=str(folder), todo="Try again later.")
        time.sleep(_LOOK_EVERY)
