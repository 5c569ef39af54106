"""Share the result of concurrent creates that have the same idempotency key.

Within a process, only the first request runs and the rest wait for its result, which is a payment
or a refusal. If it fails without such a result, the next request runs. Nothing is cached: later
requests find the result in the database.
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
#: None if the request failed without a result to share.
_Outcome = CreatedPayment | RefusedError | FraudDeniedError | None


class ConcurrentCreates:
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
        """Run `work`, or wait for the result of an identical request that is running.

        Raises `CONFLICT` if that request takes longer than two seconds.
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
                raise outcome.with_traceback(None)  # the traceback would grow with each raise
        return await self._run(name, work)

    async def _run(
        self, name: _Key, work: Callable[[], Awaitable[CreatedPayment]]
    ) -> CreatedPayment:
        outcome: _Outcome = None
        future: asyncio.Future[_Outcome] = asyncio.get_running_loop().create_future()
        self._running[name] = future
        try:
            result = outcome = await work()
        except (RefusedError, FraudDeniedError) as refusal:
            outcome = refusal
            raise
        finally:
            del self._running[name]
            future.set_result(outcome)
        return result


async def _wait(running: asyncio.Future[_Outcome], seconds: float) -> _Outcome:
    try:
        return await asyncio.wait_for(asyncio.shield(running), max(0.0, seconds))
    except TimeoutError:
        raise RefusedError(
            ErrorCode.CONFLICT, "a request with this Idempotency-Key is running", retry_after_s=1
        ) from None
