"""Whose turn it is: short work does not wait behind long work, and what would wait too long is refused.

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
    """There is no room for a request now."""

    def __init__(self, what: str, seconds: float = 1.0) -> None:
        super().__init__(what, todo="Ask again later, or for less at once.")
        self.seconds = seconds  # after which asking again makes sense


@final
class TwoQueues(Generic[_T]):
    """Short and long, which take turns where both wait; each in the order of coming."""

    def __init__(self) -> None:
        self.short: deque[_T] = deque()
        self.long: deque[_T] = deque()
        self._short_is_next = True

    def __len__(self) -> int:
        return len(self.short) + len(self.long)

    def next(self) -> _T:
        """The one whose turn it is."""
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
        """What the call gives, when it has had its turn."""
        if self._free:
            self._free -= 1
        else:
            await self._wait(long)
        task = self._threads.submit(call, *args, **kwargs)
        answer = asyncio.wrap_future(task)
        loop = asyncio.get_running_loop()

        def ended(_: object) -> None:  # also when whoever asked has gone
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._pass_on)

        task.add_done_callback(ended)
        return await asyncio.shield(answer)

    async def _wait(self, long: bool) -> None:
        if len(self._waiting) >= self._most:
            raise Busy("more requests wait than the server can answer")
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        (self._waiting.long if long else self._waiting.short).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # its turn came at the same moment
                self._pass_on()
            raise

    def _pass_on(self) -> None:
        """The next one that still waits has its turn."""
        while self._waiting:
            if not (turn := self._waiting.next()).done():
                turn.set_result(None)
                return
        self._free += 1
