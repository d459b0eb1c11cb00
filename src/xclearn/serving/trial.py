"""A model is tried before it serves: copied, verified, and asked for a few texts, in a process of its own.

A model that ends the process that reads it, by a fault of the native core or for want of memory, ends that one. Knows
nothing about HTTP.
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

SPAWN = multiprocessing.get_context("spawn")  # a fork would copy locks of threads that it does not copy
_MOST_LABELS = 5  # whose names are asked for
_LAST_WORDS = 1.0  # seconds that a process may take to end after it has said all


def sealed_predictor(sealed: Sealed, n_threads: int) -> Predictor:
    """A model for texts that has answered some."""
    predictor = Predictor(sealed.model(), n_threads)
    reads = predictor.model.servable.vectoriser.reads
    where = str(sealed.folder)
    if reads != TEXTS:
        raise ModelError("the server reads texts", where=where, got=reads, allowed=TEXTS)
    _ask(predictor, where)
    return predictor


def candidate(settings: Settings) -> Sealed:
    """What the folder holds now, if a process could serve it."""
    sealed = seal(settings.folder)
    try:
        _try(sealed, settings)
    except BaseException:
        sealed.close()
        raise
    return sealed


def _ask(predictor: Predictor, where: str) -> None:
    """The first texts: nothing, and what some labels are called."""
    texts = ["", *predictor.labels.names[:_MOST_LABELS], " ".join(predictor.labels.names[:_MOST_LABELS])]
    found = predictor.predict(texts, 1)
    if not np.isfinite(found.scores[found.ids >= 0]).all():
        raise ModelError("the model gives scores that are no numbers", where=where)


def _try(sealed: Sealed, settings: Settings) -> None:
    said = said_by(_attempt, (sealed, settings.n_threads), settings.trial_timeout, where=str(sealed.folder))
    if said is not None:
        raise ModelError(said)


def said_by(attempt: Callable[..., None], arguments: tuple[Any, ...], seconds: float, *, where: str) -> Any:
    """What a process of its own sends; one that sends nothing for so long is killed, as nobody could wait for it."""
    here, there = SPAWN.Pipe(duplex=False)
    process = SPAWN.Process(target=attempt, args=(*arguments, there), daemon=True)
    with here:
        with there:  # closed on this side, or its end would not be seen
            process.start()
        try:
            if here.poll(seconds):
                return here.recv()
        except EOFError:
            process.join()
            got, todo = f"exit code {process.exitcode}", "Run: xc verify MODEL"
            raise ModelError("the model ended the process that tried it", where=where, got=got, todo=todo) from None
        finally:
            _end(process)
    todo = "If it is merely large, raise --trial-timeout."
    raise ModelError("the model took too long", where=where, allowed=f"{seconds:g} s", todo=todo)


def _end(process: SpawnProcess) -> None:
    """Wait for one that has said all, and do not wait for one that hangs."""
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
    """An error in one sentence, also one that should not have come."""
    return str(error) if isinstance(error, XclearnError | OSError) else f"{type(error).__name__}: {error}"
