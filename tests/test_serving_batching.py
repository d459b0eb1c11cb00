"""The queue in front of the predictor, with a real model and a thread that a test can hold up."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
import pytest
from served import NAMES, model_folder

from xclearn.errors import ConfigError
from xclearn.inference import Predictor
from xclearn.serving.batching import Answers, Batcher
from xclearn.serving.metrics import N_VALUES, Metrics
from xclearn.serving.settings import Limits
from xclearn.serving.turns import Busy

NOTHING = np.empty(0, np.int64)
TEXTS = [f"a {name.lower()}" for name in NAMES]


@pytest.fixture(scope="module")
def predictor() -> Predictor:
    return Predictor.load(model_folder())


def new_metrics() -> Metrics:
    return Metrics(np.zeros((1, N_VALUES)), 0)


def value(metrics: Metrics, name: str) -> float:
    samples = dict(line.rsplit(" ", 1) for line in metrics.text().splitlines())
    return float(samples.get(name, 0))


def names_of(answers: Answers) -> list[list[str]]:
    return [[one["label"] for one in row] for row in answers]


@contextmanager
def held(thread: ThreadPoolExecutor) -> Iterator[None]:
    """The thread does nothing until the end of the block."""
    release = threading.Event()
    thread.submit(release.wait)
    try:
        yield
    finally:
        release.set()


PATIENT = Limits(max_wait=60, timeout=600)
Question = tuple[list[str], int, np.ndarray]


async def ask_all(
    batcher: Batcher, thread: ThreadPoolExecutor, questions: list[Question]
) -> list[asyncio.Task[Answers]]:
    """The first question is in the predictor's hands when the others come, until the block of `held` ends."""
    asked = []
    with held(thread):
        for question in questions:
            asked.append(asyncio.create_task(batcher.ask(*question)))
            await asyncio.sleep(0.05 if len(asked) == 1 else 0)
        await asyncio.sleep(0.05)
    return asked


def run(predictor: Predictor, scenario, limits: Limits = PATIENT) -> Metrics:
    async def main() -> Metrics:
        metrics = new_metrics()
        with ThreadPoolExecutor(1) as thread:
            await scenario(Batcher(predictor, thread, metrics, limits), thread)
        return metrics

    return asyncio.run(main())


def test_what_is_asked_while_a_prediction_runs_is_answered_together_and_as_if_alone(predictor: Predictor) -> None:
    questions = [([text], 1 + i % 3, NOTHING) for i, text in enumerate(TEXTS)]
    questions += [(["a dog", "a cat"], 2, np.array([0]))]

    async def scenario(batcher: Batcher, thread: ThreadPoolExecutor) -> None:
        asked = await ask_all(batcher, thread, questions)
        for task, (texts, k, exclude) in zip(asked, questions, strict=True):
            pairs = np.array([(row, label) for row in range(len(texts)) for label in exclude]).reshape(-1, 2)
            expected = predictor.predict(texts, k, pairs.astype(np.int64)).ids.tolist() if texts else []
            assert names_of(await task) == [[NAMES[label] for label in row] for row in expected]

    metrics = run(predictor, scenario)
    assert value(metrics, "xclearn_batch_texts_count") <= 3  # the first alone, then at least eight at a time
    assert value(metrics, "xclearn_batch_texts_sum") == len(TEXTS) + 2


def test_one_call_takes_at_most_64_texts_and_long_questions_are_answered_in_parts_as_if_alone(
    predictor: Predictor,
) -> None:
    sizes = [1, 60, 4, 1, 200, 1]
    questions = [([TEXTS[i % 10] for i in range(size)], 3, NOTHING) for size in sizes]

    async def scenario(batcher: Batcher, thread: ThreadPoolExecutor) -> None:
        asked = await ask_all(batcher, thread, questions)
        for task, (texts, k, _) in zip(asked, questions, strict=True):
            expected = predictor.predict(texts, k).ids.tolist()
            assert names_of(await task) == [[NAMES[label] for label in row] for row in expected]

    metrics = run(predictor, scenario)
    assert value(metrics, 'xclearn_batch_texts_bucket{le="64"}') == value(metrics, "xclearn_batch_texts_count")
    assert value(metrics, "xclearn_batch_texts_sum") == sum(sizes)


def test_short_questions_and_long_ones_take_turns(predictor: Predictor) -> None:
    """Three long ones of three parts each came first; the short ones are answered with their first parts."""
    order: list[str] = []

    async def scenario(batcher: Batcher, thread: ThreadPoolExecutor) -> None:
        sizes = [1, 150, 150, 150, 2, 2]
        asked = await ask_all(batcher, thread, [(size * ["a dog"], 1, NOTHING) for size in sizes])
        for i, task in enumerate(asked):
            task.add_done_callback(lambda _, i=i: order.append(f"{sizes[i]} {i}"))
        await asyncio.gather(*asked)

    run(predictor, scenario)
    assert order[:3] == ["1 0", "2 4", "2 5"]
    assert sorted(order[3:]) == ["150 1", "150 2", "150 3"]


def test_no_long_question_waits_for_all_of_another(predictor: Predictor) -> None:
    """The second came later and has a tenth of the texts: it is answered long before the first."""
    order: list[int] = []

    async def scenario(batcher: Batcher, thread: ThreadPoolExecutor) -> None:
        asked = await ask_all(batcher, thread, [(size * ["a dog"], 1, NOTHING) for size in (1, 1000, 100)])
        for i, task in enumerate(asked):
            task.add_done_callback(lambda _, i=i: order.append(i))
        await asyncio.gather(*asked)

    run(predictor, scenario)
    assert order == [0, 2, 1]


def test_who_would_wait_too_long_is_told_at_once_and_when_to_come_again(predictor: Predictor) -> None:
    async def scenario(batcher: Batcher, thread: ThreadPoolExecutor) -> None:
        await batcher.ask(["a dog"], 1, NOTHING)
        with held(thread):
            asked = [asyncio.create_task(batcher.ask(10_000 * ["a dog"], 1, NOTHING))]
            await asyncio.sleep(0.05)
            with pytest.raises(Busy, match=r"requests wait .* for their turn, longer than") as caught:
                await batcher.ask(10_000 * ["a dog"], 1, NOTHING)
            short = asyncio.create_task(batcher.ask(["a dog"], 1, NOTHING))  # its queue is empty
            await asyncio.sleep(0)
        assert caught.value.seconds > 0
        assert [len(await one) for one in [*asked, short]] == [10_000, 1]

    run(predictor, scenario, Limits(timeout=0.4, max_wait=60))


def test_whoever_has_gone_is_not_predicted(predictor: Predictor) -> None:
    async def scenario(batcher: Batcher, thread: ThreadPoolExecutor) -> None:
        with held(thread):
            asked = asyncio.create_task(ask_all(batcher, thread, 3 * [(["a dog"], 1, NOTHING)]))
            await asyncio.sleep(0.2)
            first, gone, last = await asked
            gone.cancel()
            await asyncio.sleep(0)
        assert names_of(await first) == names_of(await last) == [["Dog"]]
        assert gone.cancelled()

    assert value(run(predictor, scenario), "xclearn_batch_texts_sum") == 2


def test_an_error_reaches_who_asked_and_the_queue_goes_on(predictor: Predictor) -> None:
    async def scenario(batcher: Batcher, _: ThreadPoolExecutor) -> None:
        with pytest.raises(ConfigError, match="k must be at least 1"):
            await batcher.ask(["a dog"], 0, NOTHING)
        assert names_of(await batcher.ask(["a cat"], 1, NOTHING)) == [["Cat"]]

    run(predictor, scenario)


def test_an_idle_queue_asks_at_once(predictor: Predictor) -> None:
    async def scenario(batcher: Batcher, _: ThreadPoolExecutor) -> None:
        for text, name in zip(TEXTS, NAMES, strict=True):
            assert names_of(await batcher.ask([text], 1, NOTHING)) == [[name]]

    assert value(run(predictor, scenario), "xclearn_batch_texts_count") == len(TEXTS)
