"""Turns at something scarce: shared among parties, of whom each has a few at a time."""

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager


class FairTurns:
    """Gives so many turns at once, and to one party fewer; parties that wait get theirs in order.

    A party with a hundred waiting is no further ahead than one with a single one.
    """

    def __init__(self, at_once: int, of_one_party: int) -> None:
        self._at_once = at_once
        self._of_one_party = of_one_party
        self._active: Counter[str] = Counter()
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    @asynccontextmanager
    async def turn(self, party: str, wait_s: float) -> AsyncGenerator[None]:
        """Have a turn inside the block; raises `TimeoutError` if none comes in time."""
        await self._wait(party, wait_s)
        try:
            yield
        finally:
            self._active[party] -= 1
            if not self._active[party]:
                del self._active[party]
            self._admit()

    async def _wait(self, party: str, wait_s: float) -> None:
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(party, deque()).append(turn)
        self._admit()
        try:
            async with asyncio.timeout(wait_s):
                await turn
        except BaseException:
            if turn.done() and not turn.cancelled():  # it came together with the timeout
                self._active[party] -= 1
                self._admit()
            raise

    def _admit(self) -> None:
        """Give free turns to the parties that have had theirs longest ago."""
        while self._active.total() < self._at_once and (party := self._next()) is not None:
            turn = self._waiting[party].popleft()
            if self._waiting[party]:
                self._waiting.move_to_end(party)
            else:
                del self._waiting[party]
            if not turn.done():
                self._active[party] += 1
                turn.set_result(None)

    def _next(self) -> str | None:
        waiting = (name for name in self._waiting if self._active[name] < self._of_one_party)
        return next(waiting, None)
