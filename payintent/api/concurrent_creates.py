"""Concurrent creates with one key: the first one works, the others of this process share it.

So many requests with one key cost the database one request at a time. They share a refusal as
well as a payment; where the first one fails otherwise, the next one tries. Nothing is kept when
the work is done: the result of a key is in the database, where every process finds it.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from uuid import UUID

from payintent.domain.errors import ErrorCode, RefusedError
from payintent.domain.fraud import FraudDeniedError
from payintent.payments.create import CreatedPayment

_WAIT_S = 2.0

_Key = tuple[int, UUID, bytes]
_Outcome = (
    CreatedPayment | RefusedError | FraudDeniedError | None
)  # None: no result, the next caller must try


class ConcurrentCreates:
    """The creates that this process is working on."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._running: dict[_Key, asyncio.Future[_Outcome]] = {}

    async def run_once(
        self,
        merchant_id: int,
        key: UUID,
        request_hash: bytes,
        work: Callable[[], Awaitable[CreatedPayment]],
    ) -> CreatedPayment:
        """Do the work, or share the result of the same request under way.

        Raises what the work raises, and `CONFLICT` after two seconds.
        """
        name = (merchant_id, key, request_hash)
        deadline = self._monotonic() + _WAIT_S
        while (running := self._running.get(name)) is not None:
            outcome = await _wait(running, deadline - self._monotonic())
            if isinstance(outcome, CreatedPayment):
                return replace(outcome, replayed=True)
            if isinstance(outcome, FraudDeniedError):
                raise FraudDeniedError(outcome.denial, replayed=True)
            if outcome is not None:
                raise outcome.with_traceback(None)  # it would grow with each raise
        return await self._lead(name, work)

    async def _lead(
        self, name: _Key, work: Callable[[], Awaitable[CreatedPayment]]
    ) -> CreatedPayment:
        outcome: _Outcome = None
        done: asyncio.Future[_Outcome] = asyncio.get_running_loop().create_future()
        self._running[name] = done
        try:
            created = outcome = await work()
        except (RefusedError, FraudDeniedError) as declined:
            outcome = declined
            raise
        finally:
            del self._running[name]
            done.set_result(outcome)
        return created


async def _wait(running: asyncio.Future[_Outcome], seconds: float) -> _Outcome:
    try:
        return await asyncio.wait_for(asyncio.shield(running), max(0.0, seconds))
    except TimeoutError:
        raise RefusedError(
            ErrorCode.CONFLICT, "a request with this Idempotency-Key is running", retry_after_s=1
        ) from None
