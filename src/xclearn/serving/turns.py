"""Scheduling: short work does not wait behind long work, and work that would wait too long is rejected.

Knows nothing about models or HTTP.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Generic, ParamSpec, TypeVar, final

from xclearn.errors import XclearnError

_P = ParamSpec("_P")
_T = TypeVar("_T")


@final
class Busy(XclearnError):
    """The server is overloaded."""

    def __init__(self, what: str, seconds: float = 1.0) -> None:
        super().__init__(what, todo="Try again later, or with a smaller request.")
        self.seconds = seconds  # when to try again


@final
class TwoQueues(Generic[_T]):
    """Queues for short and long work, which alternate if both wait; each is first in, first out."""

    def __init__(self) -> None:
        self.short: deque[_T] = deque()
        self.long: deque[_T] = deque()
        self._short_is_next = True

    def __len__(self) -> int:
        return len(self.short) + len(self.long)

    def next(self) -> _T:
        """The next item."""
        short = bool(self.short) and (self._short_is_next or not self.long)
        self._short_is_next = not short
        return (self.short if short else self.long).popleft()


@final
class Turns:
    """Runs calls in a fixed number of threads; further calls wait in two bounded queues."""

    def __init__(self, threads: Executor, at_once: int, most_waiting: int) -> None:
        self._threads = threads
        self._free = at_once
        self._most = most_waiting
        self._waiting: TwoQueues[asyncio.Future[None]] = TwoQueues()

    async def run(self, long: bool, call: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """The result of the call, after waiting for its turn."""
        if self._free:
            self._free -= 1
        else:
            await self._wait(long)
        task = self._threads.submit(call, *args, **kwargs)
        answer = asyncio.wrap_future(task)
        loop = asyncio.get_running_loop()

        def ended(_: object) -> None:  # also if the caller has gone
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._pass_on)

        task.add_done_callback(ended)
        return await asyncio.shield(answer)

    async def _wait(self, long: bool) -> None:
        if len(self._waiting) >= self._most:
            raise Busy("more requests are waiting than the server can handle")
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        (self._waiting.long if long else self._waiting.short).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # cancelled just as its turn came
                self._pass_on()
            raise

    def _pass_on(self) -> None:
        """Start the next call that is still waiting."""
        while self._waiting:
            if not (turn := self._waiting.next()).done():
                turn.set_result(None)
                return
        self._free += 1
