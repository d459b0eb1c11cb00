"""Micro-batching: requests that arrive while a prediction runs are predicted together by the next call.

An idle server predicts at once, without waiting for a batch; a busy one predicts more texts per call. Long requests are
processed in parts, alternating with short ones, so no text waits for all texts of another client. Predictions run in a
thread to keep the event loop free, except those faster than the thread switch. Knows nothing about HTTP.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np

from xclearn.data.dataset import NO_PAIRS
from xclearn.data.topk import TopK
from xclearn.inference.native import strings_at
from xclearn.inference.predictor import Predictor
from xclearn.serving.metrics import BATCH, PREDICTION, Metrics
from xclearn.serving.settings import Limits
from xclearn.serving.turns import Busy

Answers = list[list[dict[str, Any]]]  # for each text a list of {"label": …, "score": …}, best first

SHORT = 8  # texts; requests with more are long
_MOST_TEXTS = 64  # maximum texts per call
_FEWEST_TEXTS = 8  # smaller calls waste more than they save
_LONGEST_CALL = 0.05  # approximate seconds: the longest that a short request waits for a call
_QUICK = 0.0005  # seconds that the event loop may be blocked
_MEMORY = 0.8  # smoothing factor of the pace: weight of earlier measurements


@final
@dataclass(eq=False)
class _Question:
    texts: list[str]
    k: int
    exclude: np.ndarray  # (m,) excluded label ids
    answer: asyncio.Future[Answers]
    patience: float  # seconds it may wait for its first turn
    tail: float | None  # tail exponent; None: the model's own
    asked: float = field(default_factory=time.perf_counter)
    answered: Answers = field(default_factory=list)  # results of the first texts

    @property
    def left(self) -> int:
        """The number of texts without a result."""
        return len(self.texts) - len(self.answered)


_Part = tuple[_Question, int]  # a request and the number of its next texts


@final
class Batcher:
    """The queues of one predictor."""

    def __init__(self, predictor: Predictor, thread: Executor, metrics: Metrics, limits: Limits) -> None:
        self._predictor = predictor
        self._thread = thread
        self._metrics = metrics
        self._limits = limits
        self._short: deque[_Question] = deque()
        self._long: deque[_Question] = deque()
        self._task: asyncio.Task[None] | None = None
        self._seconds_per_text = (
            math.inf
        )  # CPU time per text in the last call; on a busy machine the wall time is longer
        self._pace = 0.0  # recent wall time per text, in seconds

    async def ask(self, texts: list[str], k: int, exclude: np.ndarray, tail: float | None = None) -> Answers:
        """The k best labels of each text, without the excluded ones; `tail` None uses the model's own."""
        if self._seconds_per_text * len(texts) < _QUICK:
            found = self._call(texts, k, _pairs(len(texts) * [exclude]), len(texts) * [tail])
            return name_labels(found, self._predictor.labels.names)
        queue, patience = self._queue(len(texts))
        if (wait := self._wait(queue)) > patience:
            raise _too_late(wait, patience)
        answer = asyncio.get_running_loop().create_future()
        queue.append(question := _Question(texts, k, exclude, answer, patience, tail))
        if self._task is None:
            self._task = asyncio.create_task(self._work())
        return await question.answer

    def _queue(self, n_texts: int) -> tuple[deque[_Question], float]:
        """The queue for a request with this many texts, and how many seconds it may wait."""
        if n_texts <= SHORT:
            return self._short, self._limits.max_wait
        return self._long, self._limits.timeout / 2

    def _wait(self, queue: deque[_Question]) -> float:
        """Seconds until a new request gets its turn; the other queue has half of every call."""
        both = 2 if self._short and self._long else 1
        return both * self._pace * sum(question.left for question in queue if not question.answer.done())

    async def _work(self) -> None:
        """Process the queues until they are empty."""
        while parts := self._next():
            started = time.perf_counter()
            try:
                answers = await asyncio.get_running_loop().run_in_executor(self._thread, self._predict, parts)
            except Exception as error:  # passed to the callers; the queue continues
                for question, _ in parts:
                    if not question.answer.done():
                        question.answer.set_exception(error)
                continue
            seconds = (time.perf_counter() - started) / sum(n for _, n in parts)
            self._pace = seconds if not self._pace else _MEMORY * self._pace + (1 - _MEMORY) * seconds
            for (question, _), answer in zip(parts, answers, strict=True):
                question.answered += answer
                if not question.left and not question.answer.done():  # otherwise the caller has gone
                    question.answer.set_result(question.answered)
        self._task = None

    def _next(self) -> list[_Part]:
        """Half a call for each queue, or all of it if the other is empty."""
        self._long = deque(question for question in self._long if question.left and self._waits(question))
        room = _MOST_TEXTS if not self._pace else int(_LONGEST_CALL / self._pace)
        room = min(_MOST_TEXTS, max(_FEWEST_TEXTS, room))
        parts = self._next_short(room // 2 if self._long else room)
        room -= sum(n for _, n in parts)
        for question in list(self._long):
            if room <= 0:
                break
            parts.append((question, min(room, question.left)))
            room -= question.left
            self._long.rotate(-1)  # after its turn, a request waits behind the others
        return parts

    def _next_short(self, room: int) -> list[_Part]:
        parts: list[_Part] = []
        while self._short and (not parts or self._short[0].left <= room):
            question = self._short.popleft()
            if self._waits(question):
                parts.append((question, question.left))
                room -= question.left
        return parts

    def _waits(self, question: _Question) -> bool:
        """Whether its caller is still waiting; fails requests that have waited too long for their first turn."""
        waited = time.perf_counter() - question.asked
        if not question.answered and waited > question.patience and not question.answer.done():
            question.answer.set_exception(_too_late(waited, question.patience))
        return not question.answer.done()

    def _predict(self, parts: list[_Part]) -> list[Answers]:
        places = [slice(len(question.answered), len(question.answered) + n) for question, n in parts]
        texts = [text for (question, _), place in zip(parts, places, strict=True) for text in question.texts[place]]
        pairs = _pairs([question.exclude for question, n in parts for _ in range(n)])
        tails = [question.tail for question, n in parts for _ in range(n)]
        found = self._call(texts, max(question.k for question, _ in parts), pairs, tails)
        answers, row = [], 0
        for question, n in parts:
            rows, row = slice(row, row + n), row + n
            own = TopK(found.ids[rows, : question.k], found.scores[rows, : question.k])
            answers.append(name_labels(own, self._predictor.labels.names))
        return answers

    def _call(self, texts: list[str], k: int, pairs: np.ndarray, tails: list[float | None]) -> TopK:
        started, computed = time.perf_counter(), time.thread_time()
        found = self._predictor.predict(texts, k, pairs, self._tails(tails))
        seconds = time.perf_counter() - started
        self._seconds_per_text = (time.thread_time() - computed) / len(texts)
        self._metrics.observe(PREDICTION, seconds)
        self._metrics.observe(BATCH, len(texts))
        return found

    def _tails(self, asked: list[float | None]) -> np.ndarray | None:
        """The tail exponent of each text; None if all use the model's own."""
        if all(tail is None for tail in asked):
            return None
        own = self._predictor.tail or 0.0
        return np.array([own if tail is None else tail for tail in asked], dtype=np.float64)


def _too_late(wait: float, patience: float) -> Busy:
    return Busy(f"requests wait {wait:.1f} s for their turn, longer than {patience:g} s", wait)


def name_labels(found: TopK, names: Sequence[str]) -> Answers:
    """Replace ids by names, dropping missing ones."""
    name = iter(strings_at(names, found.ids[found.ids >= 0]))
    return [
        [{"label": next(name), "score": score} for label, score in zip(ids, scores, strict=True) if label >= 0]
        for ids, scores in zip(found.ids.tolist(), found.scores.tolist(), strict=True)
    ]


def _pairs(exclude: list[np.ndarray]) -> np.ndarray:
    """The excluded (row, label) pairs (m, 2), from the labels of each row."""
    lengths = [len(labels) for labels in exclude]
    if not any(lengths):
        return NO_PAIRS
    return np.column_stack([np.repeat(np.arange(len(exclude)), lengths), np.concatenate(exclude)])
