"""(new) → PENDING: one statement writes the key, the checkout and the payment."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from datetime import timedelta
from decimal import Decimal
from functools import partial
from time import monotonic
from typing import Any

import msgspec

from payintent.domain.errors import (
    CellRestsError,
    ErrorCode,
    LockTimeoutError,
    RefusedError,
    StorageFullError,
    StorageUnavailableError,
)
from payintent.domain.fraud import FraudDenial, FraudDeniedError, RiskLevel
from payintent.domain.payment import CreateAttempt, CreatePaymentRequest, Payment, PaymentStatus
from payintent.payments import write_payments
from payintent.payments.idempotency import require_match
from payintent.slot import release_slot
from payintent.storage import idempotency, payments
from payintent.storage.batcher import Batcher
from payintent.storage.cells import Cells
from payintent.storage.database import Database, Tx
from payintent.storage.merchant_cells import MerchantPlace
from payintent.storage.new_payments import NewPayment

OPERATION = "create"
_RESOLVE_S = 2.0
_RESOLVE_WAIT_S = 0.2
_MOVE_WAIT_S = 2.0  # for a merchant that is moved, as `merchant move` promises
_MOVE_LOOK_S = 0.05


@dataclass(frozen=True, slots=True)
class CreatedPayment:
    """A payment as it was when created, by this request or an earlier one."""

    payment: Payment
    country: str | None
    replayed: bool


class PaymentCreator:
    """Creates payments; requests at the same time share statements and commits."""

    def __init__(self, cells: Cells) -> None:
        self._cells = cells
        self._writes = cells.each(
            lambda database: Batcher(
                alone=partial(write_payments.write, database),
                together=partial(write_payments.write_batch, database),
                identities=lambda new: ((new.request.merchant_id, new.request.key),),
                gate=database.gate,
            )
        )

    async def create(
        self, request: CreatePaymentRequest, check: Callable[[Tx], Awaitable[None]] | None = None
    ) -> CreatedPayment:
        """Create a payment in its merchant's cell, or find the one that this key created.

        A `check` that must hold while the payment is written makes one transaction with it.

        Raises `IDEMPOTENCY_CONFLICT` where the key did something else, `CONFLICT` where another
        request holds it beyond the lock timeout, `StorageUnavailableError` where the outcome is
        unknown.
        """
        if not self._cells.are_several:
            created = await self._write(request, 0, None, check)
            if created is not None:
                return created
            raise RefusedError(  # it was deleted just now
                ErrorCode.CONFLICT, "the Idempotency-Key has just expired", retry_after_s=1
            )
        return await self._create_in_place(request, check)

    async def _create_in_place(
        self, request: CreatePaymentRequest, check: Callable[[Tx], Awaitable[None]] | None
    ) -> CreatedPayment:
        """Create where the merchant is, and wait while it is moved.

        Former cells are asked for the key only once the place is open: then no create that one of
        them let through is under way any more.
        """
        gives_up_at = monotonic() + _MOVE_WAIT_S
        while True:
            place = await self._cells.place_of_merchant(request.merchant_id)
            if place.is_open:
                found = await self._find_in(place.formers, request)
                created = found or await self._write(request, place.cell, place, check)
                if created is not None:
                    return created
            self._cells.forget_place(request.merchant_id)
            if monotonic() > gives_up_at:
                raise being_moved()
            await asyncio.sleep(_MOVE_LOOK_S)

    async def _find_in(
        self, cells: Iterable[int], request: CreatePaymentRequest
    ) -> CreatedPayment | None:
        """Find what the key created in some cells; one that is away may have it, so it raises."""
        for cell in cells:
            found = await replay_create(self._cells.at(cell), request)
            if found is not None:
                return found
        return None

    async def _write(
        self,
        request: CreatePaymentRequest,
        cell: int,
        place: MerchantPlace | None,
        check: Callable[[Tx], Awaitable[None]] | None,
    ) -> CreatedPayment | None:
        """Write a payment in a cell, or find what its key did; None where it did neither."""
        database = self._cells.at(cell)
        ids = database.id_generator
        new = NewPayment(ids.new_id(), ids.new_checkout_id(), request, place)
        try:
            if check is None:
                times = await self._writes.at(cell).run(new)
            else:
                times = await write_payments.write_checked(database, new, check)
        except LockTimeoutError as error:
            raise RefusedError(
                ErrorCode.CONFLICT,
                "a request with this Idempotency-Key is running",
                retry_after_s=1,
            ) from error
        except StorageUnavailableError as error:
            return await _resolve(database, request, error)
        if times is not None:
            payment = Payment.new(request, new.id, new.checkout_id, *times)
            return CreatedPayment(payment, request.country, replayed=False)
        return await replay_create(database, request)

    async def find(
        self, request: CreateAttempt, place: MerchantPlace | None = None
    ) -> CreatedPayment | None:
        """Find what the key of a create created, as `replay_create` does.

        Who takes the key where there is nothing names the place, which was open before.
        """
        place = place or await self._cells.place_of_merchant(request.merchant_id)
        for cell in (place.cell, *place.formers):
            found = await replay_create(self._cells.at(cell), request)
            if found is not None:
                return found
        return None

    async def close(self) -> None:
        """Wait for the writes whose callers have gone."""
        for writes in self._writes:
            await writes.close()


def being_moved() -> RefusedError:
    """Return the refusal of what cannot wait longer for the end of a merchant's move."""
    return RefusedError(
        ErrorCode.SERVICE_UNAVAILABLE,
        "the merchant is being moved to another cell",
        retry_after_s=1,
    )


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


def decode_denial(text: str) -> FraudDenial:
    """Decode a denial that was stored under a key."""
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
    """Find out whether a commit whose answer was lost took place, so that no caller guesses."""
    if isinstance(failure, StorageFullError):  # it did not; an earlier one of this key may have
        return await _earlier(database, request, failure)
    if isinstance(failure, CellRestsError):  # it was not begun
        raise failure
    if database.gate is not None:
        release_slot()  # what becomes of a cell's commit keeps no other cell's request
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
    """Return what this key created before; raise the failure where that is nothing."""
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
