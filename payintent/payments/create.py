"""Create payments, and replay earlier results for the same idempotency key."""

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
from payintent.payments.model import (
    CreateAttempt,
    CreatePaymentRequest,
    IdempotentRequest,
    Payment,
    PaymentStatus,
)
from payintent.payments.new_store import NewPayment

OPERATION = "create"
_RESOLVE_TIMEOUT_S = 2.0
_RESOLVE_INTERVAL_S = 0.2


@dataclass(frozen=True, slots=True)
class CreatedPayment:
    """A payment created by this request, or by an earlier request with the same key."""

    payment: Payment
    country: str | None
    replayed: bool


@dataclass(frozen=True, slots=True)
class InvalidCreateRequest:
    """A well-formed create request with invalid values. It can only replay an earlier result."""

    attempt: CreateAttempt
    refusal: RefusedError


class PaymentCreator:
    """Creates payments. Concurrent requests share statements and commits."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._writes = Batcher(
            process_item=partial(new_store.create, database),
            process_batch=partial(new_store.create_batch, database),
            identities=lambda new_payment: (
                (new_payment.request.merchant_id, new_payment.request.key),
            ),
        )

    async def create(
        self,
        request: CreatePaymentRequest,
        check: Callable[[Tx], Awaitable[None]] | None = None,
        attach: Callable[[Tx, UUID], Awaitable[None]] | None = None,
    ) -> CreatedPayment:
        """Create a payment, or return the payment that was already created with this key.

        `check` runs in the transaction that writes the payment. `attach` runs in the same
        transaction with the payment's id, after the payment is written. If either raises an error,
        the payment is not created.

        Raises `IDEMPOTENCY_CONFLICT` if the key was used with a different request, `CONFLICT` if
        another request holds the key beyond the lock timeout, and `StorageUnavailableError` if the
        outcome is unknown.
        """
        ids = self._database.id_generator
        new_payment = NewPayment(ids.new_id(), ids.new_checkout_id(), request)
        try:
            if check is None and attach is None:
                times = await _write_with_key(self._writes.run(new_payment))
            else:
                async with self._database.transaction() as tx:
                    if check is not None:
                        await check(tx)
                    times = await _write_with_key(new_store.create(tx, new_payment))
                    if attach is not None and times is not None:
                        await attach(tx, new_payment.id)
        except StorageUnavailableError as error:
            return await _resolve_unknown_outcome(self._database, request, error)
        if times is not None:
            payment = Payment.from_request(request, new_payment.id, new_payment.checkout_id, *times)
            return CreatedPayment(payment, request.country, replayed=False)
        return await replay_used_key(self._database, request)

    async def close(self) -> None:
        await self._writes.close()


async def _write_with_key(
    write: Awaitable[tuple[datetime, datetime] | None],
) -> tuple[datetime, datetime] | None:
    """Await a write. Raises `CONFLICT` if another request holds the key."""
    try:
        return await write
    except LockTimeoutError as error:
        raise _make_in_progress_error() from error


async def replay_used_key(database: Database, request: CreateAttempt) -> CreatedPayment:
    """Return the result of a used key. Raises `CONFLICT` if the key has since expired."""
    result = await replay_create(database, request)
    if result is None:
        raise RefusedError(
            ErrorCode.CONFLICT,
            "the Idempotency-Key has just expired; send the request again",
            retry_after_s=1,
        )
    return result


async def replay_create(database: Database, request: CreateAttempt) -> CreatedPayment | None:
    """Return the result of the first request with this key, or None if the key is new.

    Raises `IDEMPOTENCY_CONFLICT` if the key was used with a different request, and
    `FraudDeniedError` if the first request was denied.
    """
    first_request = await idempotency_store.find_first_request(
        database, request.merchant_id, OPERATION, request.key
    )
    if first_request is None:
        return None
    require_match(first_request, request)
    if first_request.denial is not None:
        denial = msgspec.json.decode(first_request.denial, type=FraudDenial)
        raise FraudDeniedError(denial, replayed=True)
    assert first_request.payment_id is not None  # noqa: S101 - guaranteed by idempotency_outcome
    snapshot = await payment_store.get(database, first_request.payment_id)
    assert snapshot is not None  # noqa: S101 - written in the same statement
    payment = reconstruct_created_payment(snapshot.payment, request.expires_in_s)
    return CreatedPayment(payment, first_request.country, replayed=True)


async def replay_invalid_request(
    database: Database, create_request: InvalidCreateRequest
) -> CreatedPayment:
    """Return the key's earlier result, or raise the validation error if the key is new."""
    result = await replay_create(database, create_request.attempt)
    if result is None:
        raise create_request.refusal
    return result


def reconstruct_created_payment(payment: Payment, expires_in_s: int) -> Payment:
    """Return a payment as it was when it was created.

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


async def _resolve_unknown_outcome(
    database: Database, request: CreatePaymentRequest, failure: StorageUnavailableError
) -> CreatedPayment:
    """Determine whether a commit whose response was lost has taken effect."""
    if isinstance(
        failure, StorageFullError
    ):  # nothing was written, but the key may have an earlier result
        result = await replay_create(database, request)
        if result is None:
            raise failure
        return result
    try:
        async with asyncio.timeout(_RESOLVE_TIMEOUT_S):
            while True:
                await asyncio.sleep(_RESOLVE_INTERVAL_S)
                with suppress(StorageUnavailableError):
                    if result := await replay_create(database, request):
                        return replace(result, replayed=False)
    except TimeoutError as error:
        raise StorageUnavailableError(f"the outcome of the commit is unknown: {failure}") from error


_WAIT_S = 2.0
_Key = tuple[int, UUID, bytes]
#: None if the request failed without a result that waiting requests can share.
_Outcome = CreatedPayment | RefusedError | FraudDeniedError | None


class ConcurrentCreateRequests:
    """Runs identical concurrent create requests once."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._running: dict[_Key, asyncio.Future[_Outcome]] = {}

    async def run_once(
        self, request: IdempotentRequest, work: Callable[[], Awaitable[CreatedPayment]]
    ) -> CreatedPayment:
        """Run `work`, or wait for the result of an identical request that is already in progress.

        Raises `CONFLICT` if the other request takes longer than two seconds.
        """
        request_key = (request.merchant_id, request.key, request.request_hash)
        deadline = self._monotonic() + _WAIT_S
        while (running_request := self._running.get(request_key)) is not None:
            outcome = await _wait_for(running_request, deadline - self._monotonic())
            if isinstance(outcome, CreatedPayment):
                return replace(outcome, replayed=True)
            if isinstance(outcome, FraudDeniedError):
                raise FraudDeniedError(outcome.denial, replayed=True)
            if outcome is not None:
                raise outcome.with_traceback(None)  # the traceback would grow with each raise
        return await self._run(request_key, work)

    async def _run(
        self, request_key: _Key, work: Callable[[], Awaitable[CreatedPayment]]
    ) -> CreatedPayment:
        outcome: _Outcome = None
        future: asyncio.Future[_Outcome] = asyncio.get_running_loop().create_future()
        self._running[request_key] = future
        try:
            result = outcome = await work()
        except (RefusedError, FraudDeniedError) as refusal:
            outcome = refusal
            raise
        finally:
            del self._running[request_key]
            future.set_result(outcome)
        return result


async def _wait_for(running_request: asyncio.Future[_Outcome], seconds: float) -> _Outcome:
    try:
        return await asyncio.wait_for(asyncio.shield(running_request), max(0.0, seconds))
    except TimeoutError:
        raise _make_in_progress_error() from None


def _make_in_progress_error() -> RefusedError:
    return RefusedError(
        ErrorCode.CONFLICT,
        "another request with this Idempotency-Key is in progress; try again",
        retry_after_s=1,
    )
