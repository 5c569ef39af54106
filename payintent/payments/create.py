"""Create payments, and replay the result of earlier requests with the same key."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from functools import partial
from uuid import UUID

import msgspec

from payintent.core.errors import (
    ErrorCode,
    LockTimeoutError,
    RefusedError,
    StorageFullError,
    StorageUnavailableError,
)
from payintent.db.batcher import Batcher
from payintent.db.database import Database, Tx
from payintent.fraud.model import FraudDenial, FraudDeniedError
from payintent.payments import idempotency_store, new_store
from payintent.payments import store as payment_store
from payintent.payments.idempotency_store import require_match
from payintent.payments.model import CreateAttempt, CreatePaymentRequest, Payment, PaymentStatus
from payintent.payments.new_store import NewPayment

OPERATION = "create"
_RESOLVE_S = 2.0
_RESOLVE_WAIT_S = 0.2


@dataclass(frozen=True, slots=True)
class CreatedPayment:
    """A payment created by this request, or by an earlier request with the same key."""

    payment: Payment
    country: str | None
    replayed: bool


@dataclass(frozen=True, slots=True)
class RefusedCreate:
    """A well-formed create request with invalid values; it can only replay an earlier result."""

    attempt: CreateAttempt
    refusal: RefusedError


class PaymentCreator:
    """Creates payments; concurrent requests share statements and commits."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._writes = Batcher(
            alone=partial(new_store.create, database),
            together=partial(new_store.create_batch, database),
            identities=lambda new: ((new.request.merchant_id, new.request.key),),
        )

    async def create(
        self, request: CreatePaymentRequest, check: Callable[[Tx], Awaitable[None]] | None = None
    ) -> CreatedPayment:
        """Create a payment, or return the payment that this key has already created.

        `check` runs in the transaction that writes the payment.

        Raises `IDEMPOTENCY_CONFLICT` if the key was used with a different request, `CONFLICT` if
        the key stays locked for longer than the lock timeout, and `StorageUnavailableError` if the
        outcome is unknown.
        """
        ids = self._database.id_generator
        new = NewPayment(ids.new_id(), ids.new_checkout_id(), request)
        try:
            times = await (self._write_checked(new, check) if check else self._writes.run(new))
        except LockTimeoutError as error:
            raise RefusedError(
                ErrorCode.CONFLICT,
                "a request with this Idempotency-Key is running",
                retry_after_s=1,
            ) from error
        except StorageUnavailableError as error:
            return await _resolve(self._database, request, error)
        if times is not None:
            payment = Payment.new(request, new.id, new.checkout_id, *times)
            return CreatedPayment(payment, request.country, replayed=False)
        earlier = await replay_create(self._database, request)
        if earlier is None:
            raise expired_key_error()
        return earlier

    async def _write_checked(
        self, new: NewPayment, check: Callable[[Tx], Awaitable[None]]
    ) -> tuple[datetime, datetime] | None:
        async with self._database.transaction() as tx:
            await check(tx)
            return await new_store.create(tx, new)

    async def close(self) -> None:
        await self._writes.close()


def expired_key_error() -> RefusedError:
    """Return the error for a key that expired between the write and the read."""
    return RefusedError(ErrorCode.CONFLICT, "the Idempotency-Key has just expired", retry_after_s=1)


async def replay_create(database: Database, request: CreateAttempt) -> CreatedPayment | None:
    """Return the result of the first request with this key, or None if the key is new.

    Raises `IDEMPOTENCY_CONFLICT` if the key was used with a different request, and
    `FraudDeniedError` if the first request was denied.
    """
    first = await idempotency_store.find_first_request(
        database, request.merchant_id, OPERATION, request.key
    )
    if first is None:
        return None
    require_match(first, request)
    if first.denial is not None:
        denial = msgspec.json.decode(first.denial, type=FraudDenial)
        raise FraudDeniedError(denial, replayed=True)
    assert first.payment_id is not None  # noqa: S101 - guaranteed by idempotency_outcome
    snapshot = await payment_store.get(database, first.payment_id)
    assert snapshot is not None  # noqa: S101 - written in the same statement
    payment = as_originally_created(snapshot.payment, request.expires_in_s)
    return CreatedPayment(payment, first.country, replayed=True)


async def replay_refused(database: Database, create: RefusedCreate) -> CreatedPayment:
    """Return the key's earlier result; raises the refusal if the key is new."""
    result = await replay_create(database, create.attempt)
    if result is None:
        raise create.refusal
    return result


def as_originally_created(payment: Payment, expires_in_s: int) -> Payment:
    """Return a payment as it was when it was created, using columns that never change.

    `expires_at` is computed from the request, because advancing a test clock changes the column.
    """
    return replace(
        payment,
        expires_at=payment.created_at + timedelta(seconds=expires_in_s),
        status=PaymentStatus.PENDING,
        version=1,
        updated_at=payment.created_at,
        session_id=None,
        receipt_id=None,
        failure_reason=None,
        refunded_amount=Decimal(0),
        paid_at=None,
        failed_at=None,
        expired_at=None,
        cancelled_at=None,
    )


async def _resolve(
    database: Database, request: CreatePaymentRequest, failure: StorageUnavailableError
) -> CreatedPayment:
    """Determine whether a commit whose response was lost took effect."""
    if isinstance(failure, StorageFullError):  # the key may have an earlier result
        result = await replay_create(database, request)
        if result is None:
            raise failure
        return result
    try:
        async with asyncio.timeout(_RESOLVE_S):
            while True:
                await asyncio.sleep(_RESOLVE_WAIT_S)
                with suppress(StorageUnavailableError):
                    if result := await replay_create(database, request):
                        return replace(result, replayed=False)
    except TimeoutError as error:
        raise StorageUnavailableError(f"the outcome of the commit is unknown: {failure}") from error


_WAIT_S = 2.0

_Key = tuple[int, UUID, bytes]
#: None: the request failed without a result that waiting requests can share.
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
        """Run `work`, or wait for the result of an identical request that is already running.

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
