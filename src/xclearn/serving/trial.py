"""Tests a model before it serves: copies it, verifies it, and predicts a few texts in a separate process.

A model that crashes its process, by a bug in the native core or lack of memory, crashes only that one. Knows nothing
about HTTP.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Any

import numpy as np

from xclearn.errors import ModelError, XclearnError
from xclearn.inference.predictor import Predictor
from xclearn.inference.sealed import Sealed, seal
from xclearn.serving.settings import Settings
from xclearn.text.documents import TEXTS

SPAWN = multiprocessing.get_context("spawn")  # a fork would copy the locks of threads but not the threads
_MOST_LABELS = 5  # labels whose names are used as texts
_LAST_WORDS = 1.0  # seconds that a process may take to exit after its result


def sealed_predictor(sealed: Sealed, n_threads: int) -> Predictor:
    """A text model that has predicted some texts."""
    predictor = Predictor(sealed.model(), n_threads)
    reads = predictor.model.servable.vectoriser.reads
    where = str(sealed.folder)
    if reads != TEXTS:
        raise ModelError("the server needs a model for texts", where=where, got=reads, allowed=TEXTS)
    _ask(predictor, where)
    return predictor


def candidate(settings: Settings) -> Sealed:
    """A copy of the folder's current model, if a test process could serve it."""
    sealed = seal(settings.folder)
    try:
        _try(sealed, settings)
    except BaseException:
        sealed.close()
        raise
    return sealed


def _ask(predictor: Predictor, where: str) -> None:
    """Predict test texts: an empty one, and the names of some labels."""
    texts = ["", *predictor.labels.names[:_MOST_LABELS], " ".join(predictor.labels.names[:_MOST_LABELS])]
    found = predictor.predict(texts, 1)
    if not np.isfinite(found.scores[found.ids >= 0]).all():
        raise ModelError("the model's scores are not numbers", where=where)


def _try(sealed: Sealed, settings: Settings) -> None:
    said = said_by(_attempt, (sealed, settings.n_threads), settings.trial_timeout, where=str(sealed.folder))
    if said is not None:
        raise ModelError(said)


def said_by(attempt: Callable[..., None], arguments: tuple[Any, ...], seconds: float, *, where: str) -> Any:
    """The result of `attempt` in a separate process, which is killed if it takes too long."""
    here, there = SPAWN.Pipe(duplex=False)
    process = SPAWN.Process(target=attempt, args=(*arguments, there), daemon=True)
    with here:
        with there:  # closed on this side, or its exit would not be noticed
            process.start()
        try:
            if here.poll(seconds):
                return here.recv()
        except EOFError:
            process.join()
            got, todo = f"exit code {process.exitcode}", "Run: xc verify MODEL"
            raise ModelError("the model crashed the process that tested it", where=where, got=got, todo=todo) from None
        finally:
            _end(process)
    todo = "If it is just large, raise --trial-timeout."
    raise ModelError("the model took too long", where=where, allowed=f"{seconds:g} s", todo=todo)


def _end(process: SpawnProcess) -> None:
    """Wait for a finished process, and kill one that hangs."""
    process.join(_LAST_WORDS)
    if process.is_alive():
        process.kill()
        process.join()


def _attempt(sealed: Sealed, n_threads: int, answer: Connection) -> None:
    try:
        sealed_predictor(sealed, n_threads)
        answer.send(None)
    except Exception as error:
        answer.send(told(error).removesuffix("."))


def told(error: Exception) -> str:
    """Any error, even an unexpected one, as one sentence."""
    return str(error) if isinstance(error, XclearnError | OSError) else f"{type(error).__name__}: {error}"
