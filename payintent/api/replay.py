"""Creates with one key at once: the first one works, the others of this process wait and share.

A storm of one key so costs the database one request at a time. Nothing is remembered when the work
is done: what a key did is in the database, where every process finds it.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from uuid import UUID

from payintent.domain.errors import Code, Refused
from payintent.lifecycle.create import Created

_WAIT_S = 2.0

_Key = tuple[int, UUID, bytes]


class Replays:
    """What this process is creating just now."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._running: dict[_Key, asyncio.Future[Created | None]] = {}

    async def once(
        self,
        merchant_id: int,
        key: UUID,
        request_hash: bytes,
        work: Callable[[], Awaitable[Created]],
    ) -> Created:
        """Do the work, or share what the very same request is doing already.

        Where that one fails, the next one tries. Refused (`CONFLICT`) after two seconds.
        """
        name = (merchant_id, key, request_hash)
        deadline = self._monotonic() + _WAIT_S
        while (running := self._running.get(name)) is not None:
            created = await _wait(running, deadline - self._monotonic())
            if created is not None:
                return replace(created, replayed=True)
        return await self._lead(name, work)

    async def _lead(self, name: _Key, work: Callable[[], Awaitable[Created]]) -> Created:
        done = asyncio.get_running_loop().create_future()
        self._running[name] = done
        try:
            created = await work()
            done.set_result(created)
        finally:
            del self._running[name]
            if not done.done():
                done.set_result(None)
        return created


async def _wait(running: asyncio.Future[Created | None], seconds: float) -> Created | None:
    try:
        return await asyncio.wait_for(asyncio.shield(running), max(0.0, seconds))
    except TimeoutError:
        raise Refused(
            Code.CONFLICT, "a request with this Idempotency-Key is running", retry_after_s=1
        ) from None
