"""A model is tried before it serves: copied, verified, and asked for a few texts, in a process of its own.

A model that ends the process that reads it, by a fault of the native core or for want of memory, ends that one. Knows
nothing about HTTP.
"""

from __future__ import annotations

import multiprocessing
from multiprocessing.connection import Connection

import numpy as np

from xclearn.errors import ModelError, XclearnError
from xclearn.inference.predictor import Predictor
from xclearn.inference.sealed import Sealed, seal
from xclearn.serving.settings import Settings
from xclearn.text.documents import TEXTS

SPAWN = multiprocessing.get_context("spawn")  # a fork would copy locks of threads that it does not copy
_MOST_LABELS = 5  # whose names are asked for


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
    here, there = SPAWN.Pipe(duplex=False)
    process = SPAWN.Process(target=_attempt, args=(sealed, settings.n_threads, there), daemon=True)
    try:
        process.start()
        there.close()  # or its end would not be seen
        said: str | None = here.recv()
    except EOFError:
        process.join()
        got = f"exit code {process.exitcode}"
        what = "the model ended the process that tried it"
        raise ModelError(what, where=str(sealed.folder), got=got, todo="Run: xc verify MODEL") from None
    finally:
        here.close()
    process.join()
    if said is not None:
        raise ModelError(said)


def _attempt(sealed: Sealed, n_threads: int, answer: Connection) -> None:
    try:
        sealed_predictor(sealed, n_threads)
        answer.send(None)
    except Exception as error:
        answer.send(told(error).removesuffix("."))


def told(error: Exception) -> str:
    """An error in one sentence, also one that should not have come."""
    return str(error) if isinstance(error, XclearnError | OSError) else f"{type(error).__name__}: {error}"
