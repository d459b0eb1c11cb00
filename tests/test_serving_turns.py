"""Whose turn it is: real threads, held up by the test."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from xclearn.serving.turns import Busy, Turns, TwoQueues


def test_short_and_long_alternate_while_both_wait_and_each_keeps_its_order() -> None:
    queues: TwoQueues[str] = TwoQueues()
    queues.long.extend(["L1", "L2", "L3"])
    queues.short.extend(["s1", "s2", "s3", "s4", "s5"])
    assert [queues.next() for _ in range(len(queues))] == ["s1", "L1", "s2", "L2", "s3", "L3", "s4", "s5"]


def run(scenario) -> None:
    async def main() -> None:
        with ThreadPoolExecutor(4) as threads:
            await scenario(threads)

    asyncio.run(asyncio.wait_for(main(), 60))


def test_so_many_run_at_once_so_many_wait_and_the_next_is_refused() -> None:
    release, running, most = threading.Event(), [0, 0], []

    def call() -> None:
        running[0] += 1
        most.append(running[0])
        release.wait(30)
        running[0] -= 1

    async def scenario(threads: ThreadPoolExecutor) -> None:
        turns = Turns(threads, at_once=2, most_waiting=3)
        asked = [asyncio.create_task(turns.run(False, call)) for _ in range(5)]
        await asyncio.sleep(0.05)
        with pytest.raises(Busy, match="more requests are waiting than the server can handle"):
            await turns.run(False, call)
        release.set()
        await asyncio.gather(*asked)
        await asyncio.sleep(0.05)
        await turns.run(True, call)  # there is room again

    run(scenario)
    assert max(most) == 2


def test_who_has_gone_gives_up_the_turn_and_one_that_runs_keeps_its_place_until_it_ends() -> None:
    release, order = threading.Event(), []

    async def scenario(threads: ThreadPoolExecutor) -> None:
        turns = Turns(threads, at_once=1, most_waiting=9)
        first, gone, last = (asyncio.create_task(turns.run(False, call, name)) for name in ("first", "gone", "last"))
        await asyncio.sleep(0.05)
        first.cancel()
        gone.cancel()
        await asyncio.sleep(0.05)
        assert not last.done()  # the thread of the first is busy still
        release.set()
        await last

    def call(name: str) -> None:
        release.wait(30)
        order.append(name)

    run(scenario)
    assert order == ["first", "last"]
