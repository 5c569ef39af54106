"""Fair sharing of a limited resource among parties."""

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager


class FairTurns:
    """Grants up to `total_max` turns at once, and up to `party_max` of them to the same party.

    Waiting parties take turns, however many requests each of them has.
    """

    def __init__(self, total_max: int, party_max: int) -> None:
        self._total_max = total_max
        self._party_max = party_max
        self._active: Counter[str] = Counter()
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    @asynccontextmanager
    async def turn(self, party: str, wait_s: float) -> AsyncGenerator[None]:
        """Hold a turn inside the block; raise `TimeoutError` if none is free within `wait_s`."""
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
            if turn.done() and not turn.cancelled():  # it was granted at the moment of the timeout
                self._active[party] -= 1
                self._admit()
            raise

    def _admit(self) -> None:
        """Grant free turns to the parties that have waited longest for a turn."""
        while self._active.total() < self._total_max and (party := self._next()) is not None:
            turn = self._waiting[party].popleft()
            if self._waiting[party]:
                self._waiting.move_to_end(party)
            else:
                del self._waiting[party]
            if not turn.done():
                self._active[party] += 1
                turn.set_result(None)

    def _next(self) -> str | None:
        eligible = (name for name in self._waiting if self._active[name] < self._party_max)
        return next(eligible, None)
