"""(new) → PENDING: one statement writes the key, the checkout and the payment."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any

import msgspec

from payintent.domain.errors import (
    ErrorCode,
    LockTimeoutError,
    RefusedError,
    StorageFullError,
    StorageUnavailableError,
)
from payintent.domain.fraud import FraudDenial, FraudDeniedError, RiskLevel
from payintent.domain.payment import CreateAttempt, CreatePaymentRequest, Payment, PaymentStatus
from payintent.payments.idempotency import require_match
from payintent.storage import idempotency, new_payments, payments
from payintent.storage.batcher import Batcher
from payintent.storage.database import Database, Tx
from payintent.storage.new_payments import NewPayment

OPERATION = "create"
_RESOLVE_S = 2.0
_RESOLVE_WAIT_S = 0.2


@dataclass(frozen=True, slots=True)
class CreatedPayment:
    """A payment as it was when created, by this request or an earlier one."""

    payment: Payment
    country: str | None
    replayed: bool


@dataclass(frozen=True, slots=True)
class RefusedCreate:
    """A well-formed create with unacceptable values; only an earlier result of its key counts."""

    attempt: CreateAttempt
    refusal: RefusedError


class PaymentCreator:
    """Creates payments; concurrent requests share statements and commits."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._writes = Batcher(
            alone=partial(new_payments.create, database),
            together=partial(new_payments.create_batch, database),
            identities=lambda new: ((new.request.merchant_id, new.request.key),),
        )

    async def create(
        self, request: CreatePaymentRequest, check: Callable[[Tx], Awaitable[None]] | None = None
    ) -> CreatedPayment:
        """Create a payment, or find the payment that this key created.

        A `check` that must hold while the payment is written shares its transaction.

        Raises `IDEMPOTENCY_CONFLICT` if the key was used with another request, `CONFLICT` if a
        request holds it beyond the lock timeout, `StorageUnavailableError` if the outcome is
        unknown.
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
            raise expired_key_error()  # it was deleted just now
        return earlier

    async def _write_checked(
        self, new: NewPayment, check: Callable[[Tx], Awaitable[None]]
    ) -> tuple[datetime, datetime] | None:
        async with self._database.transaction() as tx:
            await check(tx)
            return await new_payments.create(tx, new)

    async def close(self) -> None:
        await self._writes.close()


def expired_key_error() -> RefusedError:
    """Return the refusal for a key that expired between the write and the read."""
    return RefusedError(ErrorCode.CONFLICT, "the Idempotency-Key has just expired", retry_after_s=1)


async def replay_create(database: Database, request: CreateAttempt) -> CreatedPayment | None:
    """Return what the key created, as its first response showed it; None if the key is free.

    Raises `IDEMPOTENCY_CONFLICT` if the key was used with another request, `FraudDeniedError` if
    its first request was denied.
    """
    first = await idempotency.find_first_request(
        database, request.merchant_id, OPERATION, request.key
    )
    if first is None:
        return None
    require_match(first, request)
    if first.denial is not None:
        raise FraudDeniedError(decode_denial(first.denial), replayed=True)
    assert first.payment_id is not None  # noqa: S101 - idempotency_outcome: one of both is there
    snapshot = await payments.get(database, first.payment_id)
    assert snapshot is not None  # noqa: S101 - the key and its payment are one statement
    created = as_originally_created(snapshot.payment, request.expires_in_s)
    return CreatedPayment(created, first.country, replayed=True)


async def replay_refused(database: Database, create: RefusedCreate) -> CreatedPayment:
    """Return the key's earlier result; raises the refusal if the key has none."""
    created = await replay_create(database, create.attempt)
    if created is None:
        raise create.refusal
    return created


def decode_denial(text: str) -> FraudDenial:
    kept: dict[str, Any] = msgspec.json.decode(text)
    level = RiskLevel(kept.pop("level"))
    return FraudDenial(level=level, **kept)


def as_originally_created(payment: Payment, expires_in_s: int) -> Payment:
    """Return a payment as its create answered it: from columns that never change.

    `expires_at` is not one of them (a test clock moves it), so it is computed from the request.
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
    """Find out whether a commit took effect although its answer was lost."""
    if isinstance(
        failure, StorageFullError
    ):  # it did not, but an earlier commit of this key may have
        return await _earlier(database, request, failure)
    found = None
    try:
        async with asyncio.timeout(_RESOLVE_S):
            while found is None:
                found = await _look(database, request)
    except TimeoutError as error:
        unknown = f"the outcome of the commit is not known: {failure}"
        raise StorageUnavailableError(unknown) from error
    return replace(found, replayed=False)


async def _earlier(
    database: Database, request: CreatePaymentRequest, failure: StorageUnavailableError
) -> CreatedPayment:
    found = await replay_create(database, request)
    if found is None:
        raise failure
    return found


async def _look(database: Database, request: CreatePaymentRequest) -> CreatedPayment | None:
    await asyncio.sleep(_RESOLVE_WAIT_S)
    try:
        return await replay_create(database, request)
    except StorageUnavailableError:
        return None
