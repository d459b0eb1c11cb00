"""The model in service, and its replacement while requests continue.

A request keeps the model it started with; an old model is freed after its last request. A private copy of the folder is
served, so changes to the folder have no effect before a reload. Knows nothing about HTTP.
"""

from __future__ import annotations

import asyncio
import json
import textwrap
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any, NamedTuple, final

import numpy as np

from xclearn.inference.explain import Explanation, explain, unknown_words
from xclearn.inference.folder import Model
from xclearn.inference.labels import LabelIndex, predict_among
from xclearn.inference.neighbours import near_labels
from xclearn.inference.predictor import Predictor
from xclearn.inference.sealed import Sealed
from xclearn.inference.thresholds import Threshold, knows_thresholds
from xclearn.inference.train_texts import Near
from xclearn.serving.batching import SHORT, Answers, Batcher, name_labels
from xclearn.serving.log import log_event
from xclearn.serving.metrics import RELOADS, STALE, Metrics
from xclearn.serving.settings import Settings
from xclearn.serving.trial import sealed_predictor, told
from xclearn.serving.turns import Turns

_NONE = np.empty(0, np.int64)
_TEXTS_A_TURN = 16  # texts per turn for requests with `include`
_AT_ONCE = 2  # concurrent explanations, searches, and predictions among given labels
_MOST_WAITING = 256  # maximum waiting
_MOST_NEAR = 3  # training texts shown with a label
_N_EXAMPLES = 3  # example texts
_LONGEST_EXAMPLE = 500  # characters
LOOK_EVERY = 2.0  # seconds between checks of the folder


class Wanted(NamedTuple):
    """Options for every text."""

    k: int
    include: list[str] | None = None  # if given, only these labels
    exclude: Sequence[str] = ()
    threshold: Threshold = Threshold()
    tail: float | None = None


@final
class Service:
    """One model and its operations."""

    def __init__(self, predictor: Predictor, facts: dict[str, Any], queue: Batcher, turns: Turns) -> None:
        self.facts = facts
        self._predictor = predictor
        self._index = LabelIndex(predictor.labels, predictor.model.label_counts)
        self._queue, self._turns = queue, turns

    async def predict(self, texts: list[str], wanted: Wanted) -> Answers:
        """The best labels of each text, only from `include` if given, without `exclude`; unknown names raise."""
        least = wanted.threshold.least(self._predictor.model.servable)
        if wanted.tail is not None:
            self._predictor.require_tail(wanted.tail)
        found = await self._ranked(texts, wanted) if texts else []
        if np.ndim(least) == 0:
            return [[one for one in row if one["score"] >= least] for row in found]
        return await self._turns.run(len(texts) > SHORT, self._at_least, found, np.asarray(least))

    async def _ranked(self, texts: list[str], wanted: Wanted) -> Answers:
        long = len(texts) > SHORT
        if wanted.include is not None:
            return await self._predict_among(texts, wanted, wanted.include)
        exclude = wanted.exclude
        left_out = await self._turns.run(long, self._index.ids, exclude, "exclude") if exclude else _NONE
        return await self._queue.ask(texts, wanted.k, left_out, wanted.tail)

    def _at_least(self, found: Answers, least: np.ndarray) -> Answers:
        """Keep predictions with at least the minimum score of their label (L,)."""
        names = [[one["label"] for one in row] for row in found]
        ids = [self._index.ids(row, "labels").tolist() for row in names]
        return [
            [one for one, label in zip(row, own, strict=True) if one["score"] >= least[label]]
            for row, own in zip(found, ids, strict=True)
        ]

    async def explain(self, text: str, names: list[str]) -> dict[str, Any]:
        """Explain the scores of these labels for this text, and list its unknown words."""
        return await self._turns.run(len(names) > SHORT, self._explain, text, names)

    async def search(self, query: str, limit: int) -> dict[str, Any]:
        """Search labels by part of their name or text."""
        labels, total = await self._turns.run(False, self._index.search, query, limit)
        return {"labels": [self._label(label) for label in labels], "more": total > len(labels), "total": total}

    async def near(self, name: str, limit: int) -> dict[str, Any]:
        """The labels nearest to the label with this name."""
        labels = await self._turns.run(False, self._near, name, limit)
        return {"labels": [self._label(label) for label in labels], "more": False, "total": len(labels)}

    async def _predict_among(self, texts: list[str], wanted: Wanted, include: list[str]) -> Answers:
        """Process some texts per turn, so that other requests need not wait for all."""
        long = len(texts) > SHORT
        labels = await self._turns.run(long, self._included, include, wanted.exclude)
        if not len(labels):
            return [[] for _ in texts]
        answers: Answers = []
        for start in range(0, len(texts), _TEXTS_A_TURN):
            part = texts[start : start + _TEXTS_A_TURN]
            asked = self._predictor, part, labels, wanted.k, wanted.tail
            found = await self._turns.run(long, predict_among, *asked)
            answers += name_labels(found, self._predictor.labels.names)
        return answers

    def _included(self, include: list[str], exclude: Sequence[str]) -> np.ndarray:
        return np.setdiff1d(self._index.ids(include, "include"), self._index.ids(exclude, "exclude"))

    def _near(self, name: str, limit: int) -> list[int]:
        return near_labels(self._predictor.model.servable, int(self._index.ids([name], "near")[0]), limit)

    def _explain(self, text: str, names: list[str]) -> dict[str, Any]:
        found = explain(self._predictor, text, self._index.ids(names, "labels"))
        unknown = unknown_words(self._predictor.model.servable, text)
        return {"explanations": [self._told(part, text) for part in found], "unknown": unknown}

    def _told(self, found: Explanation, text: str) -> dict[str, Any]:
        tokens = sorted(found.tokens, key=lambda part: -abs(part[1]))
        return {
            **self._label(found.label),
            "exact": found.exact,
            "value": found.value,
            "rest": found.rest,
            "tokens": [{"token": token, "part": part} for token, part in tokens],
            "unread": found.unread,
            "votes": [
                {**vote._asdict(), "tokens": [{"token": token, "part": part} for token, part in vote.tokens]}
                for vote in found.votes
            ],
            "nearest": [near._asdict() for near in self._nearest(text, found.label)],
        }

    def _nearest(self, text: str, label: int) -> list[Near]:
        """Training texts of a label, if the model has them."""
        model = self._predictor.model
        return [] if model.train_texts is None else model.train_texts.nearest(model.servable, text, label, _MOST_NEAR)

    def _label(self, label: int) -> dict[str, Any]:
        names = self._predictor.labels.names
        texts = self._predictor.labels.texts
        counts = self._predictor.model.label_counts
        count = None if counts is None else int(counts[label])
        return {"label": names[label], "text": texts[label] if isinstance(texts, Sequence) else None, "count": count}


def refuse_reload(error: Exception, metrics: Metrics) -> None:
    """Count and log a model that cannot be served; the old one stays in service."""
    metrics.add(RELOADS, series='result="refused"')
    log_event("reload refused", error=told(error))


@final
class Folder:
    """The served copy of a folder, and whether the folder has changed since."""

    def __init__(self, sealed: Sealed, metrics: Metrics) -> None:
        self.sealed = sealed
        self._metrics = metrics
        self._stale = False
        self._looked = time.monotonic()

    def look(self) -> None:
        """Check periodically whether the folder has changed, and log it once."""
        if self._stale or time.monotonic() < self._looked + LOOK_EVERY:
            return
        self._looked = time.monotonic()
        if self.sealed.changed():
            self._stale = True
            self._metrics.set(STALE, 1)
            todo = "The old model stays in service; SIGHUP reloads the folder."
            log_event("folder changed", folder=str(self.sealed.folder), serving=self.sealed.version, todo=todo)

    def replace(self, sealed: Sealed) -> None:
        """Switch to another copy."""
        self.sealed.close()
        self.sealed, self._stale = sealed, False
        self._metrics.set(STALE, 0)


@final
class Live:
    """The current service; `take` replaces it."""

    def __init__(self, settings: Settings, sealed: Sealed, metrics: Metrics) -> None:
        self._settings, self.metrics = settings, metrics
        self._thread = ThreadPoolExecutor(1, "predict")
        self._turns = Turns(ThreadPoolExecutor(_AT_ONCE, "answer"), _AT_ONCE, _MOST_WAITING)
        self._taking = asyncio.Lock()
        self.now = self._service(sealed)

    async def take(self, sealed: Sealed) -> None:
        """Serve another model from the next request on."""
        async with self._taking:
            started = time.perf_counter()
            self.now = await asyncio.to_thread(self._service, sealed)
            self.metrics.add(RELOADS, series='result="done"')
            log_event("reload", version=sealed.version, seconds=round(time.perf_counter() - started, 3))

    @property
    def stale(self) -> bool:
        """Whether the folder has changed since the model in service was read."""
        return self.metrics.total(STALE) > 0

    def _service(self, sealed: Sealed) -> Service:
        predictor = sealed_predictor(sealed, self._settings.n_threads)
        queue = Batcher(predictor, self._thread, self.metrics, self._settings.limits)
        return Service(predictor, _facts(sealed, predictor), queue, self._turns)


def _facts(sealed: Sealed, predictor: Predictor) -> dict[str, Any]:
    about = json.loads(json.dumps(predictor.about), parse_constant=lambda _: None)  # NaN is not JSON
    return {
        "version": sealed.version,
        "loaded": datetime.now(UTC).isoformat(timespec="seconds"),
        "n_labels": len(predictor.labels),
        "thresholds": knows_thresholds(predictor.model.servable),
        "tail": predictor.tail,
        "examples": _examples(predictor.model),
        "about": about,
    }


def _examples(model: Model) -> list[str]:
    """Example texts: training texts if the model has them, else texts or names of frequent labels."""
    if model.train_texts is not None:
        kept = model.train_texts.texts
        first = kept.at(np.arange(min(_N_EXAMPLES, len(kept))))
        return [textwrap.shorten(text, _LONGEST_EXAMPLE, placeholder=" …") for text in first]
    counts = model.label_counts
    labels = np.arange(len(model.labels)) if counts is None else np.argsort(-counts, kind="stable")
    texts = model.labels.texts if isinstance(model.labels.texts, Sequence) else model.labels.names
    return [texts[label] for label in labels[:_N_EXAMPLES].tolist()]
