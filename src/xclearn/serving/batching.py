"""Micro-batching: what is asked while a prediction runs is answered together by the next one.

An idle server predicts at once, so nothing waits for company; a busy one predicts more texts a call. Predictions run in
a thread, so that the event loop stays free; those that take less time than going there and back are made on the spot.
Knows nothing about HTTP.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from xclearn.data.dataset import NO_PAIRS
from xclearn.data.topk import TopK
from xclearn.inference.native import strings_at
from xclearn.inference.predictor import Predictor
from xclearn.serving.metrics import BATCH, PREDICTION, Metrics

Answers = list[list[dict[str, Any]]]  # one list a text of {"label": …, "score": …}, best first

_MOST_TEXTS = 64  # joined into one call; a larger question is a call of its own
_QUICK = 0.0005  # seconds that the event loop may be kept waiting


@final
@dataclass(frozen=True, eq=False)
class _Question:
    texts: list[str]
    k: int
    exclude: np.ndarray  # (m,) label ids that none of its texts gets
    answer: asyncio.Future[Answers]


@final
class Batcher:
    """The queue in front of one predictor."""

    def __init__(self, predictor: Predictor, thread: Executor, metrics: Metrics) -> None:
        self._predictor, self._thread, self._metrics = predictor, thread, metrics
        self._waiting: deque[_Question] = deque()
        self._task: asyncio.Task[None] | None = None
        self._seconds_per_text = math.inf  # of computing, in the last call: on a busy machine it may take much longer

    async def ask(self, texts: list[str], k: int, exclude: np.ndarray) -> Answers:
        """The k best labels of each text, without the excluded ones."""
        if self._seconds_per_text * len(texts) < _QUICK:
            return name_labels(self._call(texts, k, _pairs(len(texts) * [exclude])), self._predictor.labels.names)
        question = _Question(texts, k, exclude, asyncio.get_running_loop().create_future())
        self._waiting.append(question)
        if self._task is None:
            self._task = asyncio.create_task(self._work())
        return await question.answer

    async def _work(self) -> None:
        """Answer until nobody waits."""
        while batch := self._next():
            try:
                answers = await asyncio.get_running_loop().run_in_executor(self._thread, self._predict, batch)
            except Exception as error:  # those who asked get it; the queue goes on
                for question in batch:
                    if not question.answer.done():
                        question.answer.set_exception(error)
                continue
            for question, answer in zip(batch, answers, strict=True):
                if not question.answer.done():  # else whoever asked has gone
                    question.answer.set_result(answer)
        self._task = None

    def _next(self) -> list[_Question]:
        """The questions that wait longest, as many as fit into a call."""
        batch: list[_Question] = []
        room = _MOST_TEXTS
        while self._waiting and (not batch or len(self._waiting[0].texts) <= room):
            question = self._waiting.popleft()
            if not question.answer.done():
                batch.append(question)
                room -= len(question.texts)
        return batch

    def _predict(self, batch: list[_Question]) -> list[Answers]:
        texts = [text for question in batch for text in question.texts]
        pairs = _pairs([question.exclude for question in batch for _ in question.texts])
        found = self._call(texts, max(question.k for question in batch), pairs)
        answers, row = [], 0
        for question in batch:
            rows, row = slice(row, row + len(question.texts)), row + len(question.texts)
            own = TopK(found.ids[rows, : question.k], found.scores[rows, : question.k])
            answers.append(name_labels(own, self._predictor.labels.names))
        return answers

    def _call(self, texts: list[str], k: int, pairs: np.ndarray) -> TopK:
        started, computed = time.perf_counter(), time.thread_time()
        found = self._predictor.predict(texts, k, pairs)
        seconds = time.perf_counter() - started
        self._seconds_per_text = (time.thread_time() - computed) / len(texts)
        self._metrics.observe(PREDICTION, seconds)
        self._metrics.observe(BATCH, len(texts))
        return found


def name_labels(found: TopK, names: Sequence[str]) -> Answers:
    """Names in place of ids; what is missing is left out."""
    name = iter(strings_at(names, found.ids[found.ids >= 0]))
    return [
        [{"label": next(name), "score": score} for label, score in zip(ids, scores, strict=True) if label >= 0]
        for ids, scores in zip(found.ids.tolist(), found.scores.tolist(), strict=True)
    ]


def _pairs(exclude: list[np.ndarray]) -> np.ndarray:
    """The (row, label) pairs (m, 2) that are not to be predicted, from the labels of each row."""
    lengths = [len(labels) for labels in exclude]
    if not any(lengths):
        return NO_PAIRS
    return np.column_stack([np.repeat(np.arange(len(exclude)), lengths), np.concatenate(exclude)])
