"""Expire payments that are past their deadline."""

import asyncio
from datetime import datetime
from uuid import UUID

from payintent.core.errors import ErrorCode, RefusedError
from payintent.db.database import Database, Tx
from payintent.payments import store as payment_store
from payintent.payments.model import (
    TERMINAL,
    Payment,
    PaymentStatus,
    PaymentTrigger,
    TransitionRequest,
)
from payintent.payments.store import PaymentSnapshot
from payintent.payments.transitions import apply_transitions
from payintent.runtime.log import get_logger

_log = get_logger("expire")
_CONCURRENT_TRANSACTIONS = 3  # during a backlog
_BATCHES_PER_TASK = 10  # afterwards, the worker checks whether it should stop


async def expire_due_pending(database: Database, limit: int) -> bool:
    """Expire due PENDING payments, up to `limit` per transaction. Returns whether more may be due.

    During a backlog, several transactions run concurrently, so that this process builds the events
    of one batch while the database writes another. Locked payments are skipped.
    """

    async def expire_batches(count: int) -> bool:
        for _ in range(count):
            async with database.transaction() as tx:
                if await expire_pending(tx, limit) < limit:
                    return False
        return True

    if not await expire_batches(1):
        return False
    tasks = [expire_batches(_BATCHES_PER_TASK) for _ in range(_CONCURRENT_TRANSACTIONS)]
    results = await asyncio.gather(*tasks, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return all(results)


async def expire_pending(tx: Tx, limit: int) -> int:
    """Expire up to `limit` due PENDING payments and return how many expired."""
    due_payments = await payment_store.lock_due_pending(tx, limit)
    if due_payments is None:
        return 0
    requests = [
        TransitionRequest(payment=payment, trigger=PaymentTrigger.EXPIRE, at=due_payments.now)
        for payment in due_payments.payments
    ]
    return len(await apply_transitions(tx, requests))


async def expire_if_due(database: Database, *payment_ids: UUID) -> None:
    """Expire the payments that are PENDING and past their deadline, in a separate transaction."""
    async with database.transaction() as tx:
        locked_payments = await payment_store.lock(tx, payment_ids)
        requests = [
            TransitionRequest(
                payment=payment, trigger=PaymentTrigger.EXPIRE, at=locked_payments.now
            )
            for payment in locked_payments.payments
            if payment.status is PaymentStatus.PENDING
            and payment.is_past_expiry(locked_payments.now)
        ]
        await apply_transitions(tx, requests)


async def require_open_checkout(database: Database, snapshot: PaymentSnapshot) -> None:
    """Expire the payment if it is past its deadline, and raise the errors of `require_open`."""
    if snapshot.payment.is_past_expiry(snapshot.now):
        await expire_if_due(database, snapshot.payment.id)
    require_open(snapshot.payment, snapshot.now)


def require_open(payment: Payment, now: datetime) -> None:
    """Raise `CHECKOUT_EXPIRED` or `INVALID_CHECKOUT_STATE` unless the payment can be paid."""
    if payment.status is PaymentStatus.EXPIRED or payment.is_past_expiry(now):
        raise RefusedError(
            ErrorCode.CHECKOUT_EXPIRED, "the checkout has expired; create a new payment"
        )
    if payment.status in TERMINAL:
        raise RefusedError(
            ErrorCode.INVALID_CHECKOUT_STATE, f"the payment has ended and is {payment.status}"
        )
