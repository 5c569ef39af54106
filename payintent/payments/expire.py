"""Expire payments that are past their deadline."""

import asyncio
from dataclasses import dataclass
from uuid import UUID

from payintent.core.errors import ErrorCode, RefusedError
from payintent.db.database import Database, Tx
from payintent.payments import store as payment_store
from payintent.payments.model import TERMINAL, Payment, PaymentStatus, PaymentTrigger
from payintent.payments.store import PaymentSnapshot
from payintent.payments.transitions import TransitionRequest, apply_transitions
from payintent.runtime.log import get_logger

_log = get_logger("expire")
_LANES = 3  # concurrent transactions during a backlog
_BATCHES_PER_LANE = 10  # before the worker checks whether it should stop


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedPayment:
    """A payment that expired before its session ended, and the case opened for late money."""

    payment: Payment
    case_id: UUID


async def expire_due_pending(database: Database, limit: int) -> bool:
    """Expire due PENDING payments, up to `limit` per transaction; returns whether more may be due.

    A backlog is processed in several concurrent transactions, so that this process can build the
    events of one batch while the database writes another. Locked payments are skipped.
    """

    async def expire_batches(number: int) -> bool:
        for _ in range(number):
            async with database.transaction() as tx:
                if await expire_pending(tx, limit) < limit:
                    return False
        return True

    if not await expire_batches(1):
        return False
    lanes = [expire_batches(_BATCHES_PER_LANE) for _ in range(_LANES)]
    ends = await asyncio.gather(*lanes, return_exceptions=True)
    for end in ends:
        if isinstance(end, BaseException):
            raise end
    return all(ends)


async def expire_pending(tx: Tx, limit: int) -> int:
    """Expire up to `limit` due PENDING payments and return how many expired."""
    due = await payment_store.lock_due_pending(tx, limit)
    if due is None:
        return 0
    requests = [
        TransitionRequest(payment=payment, trigger=PaymentTrigger.EXPIRE, at=due.now)
        for payment in due.payments
    ]
    return len(await apply_transitions(tx, requests))


async def expire_if_due(database: Database, *payment_ids: UUID) -> None:
    """In a separate transaction, expire the PENDING payments that are past their deadline."""
    async with database.transaction() as tx:
        locked = await payment_store.lock(tx, payment_ids)
        requests = [
            TransitionRequest(payment=payment, trigger=PaymentTrigger.EXPIRE, at=locked.now)
            for payment in locked.payments
            if payment.status is PaymentStatus.PENDING and payment.is_past_expiry(locked.now)
        ]
        await apply_transitions(tx, requests)


async def require_open_checkout(database: Database, snapshot: PaymentSnapshot) -> None:
    """Expire the payment if it is past its deadline, then raise as `require_not_ended` does."""
    if snapshot.payment.is_past_expiry(snapshot.now):
        await expire_if_due(database, snapshot.payment.id)
        raise checkout_expired_error()
    require_not_ended(snapshot.payment)


def require_not_ended(payment: Payment) -> None:
    """Raise `CHECKOUT_EXPIRED` or `INVALID_CHECKOUT_STATE` if the payment has ended."""
    if payment.status is PaymentStatus.EXPIRED:
        raise checkout_expired_error()
    if payment.status in TERMINAL:
        raise RefusedError(
            ErrorCode.INVALID_CHECKOUT_STATE, f"the checkout has ended in {payment.status} status"
        )


def checkout_expired_error() -> RefusedError:
    return RefusedError(
        ErrorCode.CHECKOUT_EXPIRED, "the checkout has expired; a new payment is needed"
    )
