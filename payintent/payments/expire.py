"""PENDING or PROCESSING → EXPIRED, once a payment's time is over."""

import asyncio
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from payintent.domain import ids
from payintent.domain.case import CaseKind
from payintent.domain.errors import ErrorCode, RefusedError
from payintent.domain.payment import TERMINAL, Payment, PaymentStatus, PaymentTrigger
from payintent.domain.session import Session, SessionStatus
from payintent.json_format import format_timestamp
from payintent.log import get_logger
from payintent.payments.cases import open_case, session_origin
from payintent.payments.transitions import TransitionRequest, apply_transitions, lock_payments
from payintent.storage import gateway_outages, payments, sessions
from payintent.storage.database import Database, Executor, Tx
from payintent.storage.onchain import chain_watch
from payintent.storage.payments import PaymentSnapshot

_log = get_logger("expire")
_LANES = 3  # transactions at a time where there is a backlog
_BATCHES_OF_A_LANE = 10  # then the worker sees whether it is to stop


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedPayment:
    """A payment that has expired while its session goes on, and the case for its money."""

    payment: Payment
    case_id: UUID


@dataclass(frozen=True, slots=True)
class StrandedSession:
    """The session of a payment that waits in vain, and why its chain or gateway counts as gone."""

    session: Session
    reason: str


async def expire_due_pending(database: Database, limit: int) -> bool:
    """Expire PENDING payments, at most `limit` in a transaction; True where there may be more.

    A backlog is expired by a few transactions at a time, which skip each other's payments: while
    the database writes one batch, this process words the events of another.
    """

    async def expire_batches(count: int) -> bool:
        for _ in range(count):
            async with database.transaction() as tx:
                if await expire_pending(tx, limit) < limit:
                    return False
        return True

    if not await expire_batches(1):
        return False
    lanes = [expire_batches(_BATCHES_OF_A_LANE) for _ in range(_LANES)]
    ends = await asyncio.gather(*lanes, return_exceptions=True)
    for end in ends:
        if isinstance(end, BaseException):
            raise end
    return all(ends)


async def expire_pending(tx: Tx, limit: int) -> int:
    """Expire PENDING payments, many in one transaction; returns how many."""
    due = await payments.lock_due_pending(tx, limit)
    if due is None:
        return 0
    requests = [
        TransitionRequest(payment=payment, trigger=PaymentTrigger.EXPIRE, at=due.now)
        for payment in due.payments
    ]
    return len(await apply_transitions(tx, requests))


async def expire_processing(tx: Tx, limit: int, patience_s: float) -> int:
    """Expire PROCESSING payments or begin to close their sessions; returns how many.

    Money may be on its way, so an open session is first closed by its gateway: here it is only
    marked, and the inquiry loop calls the gateway. A session that has ended, or a gateway that has
    been silent for `patience_s`, lets the payment expire; a silent session stays `closing`.
    """
    due = await payments.lock_due_processing(tx, limit, patience_s)
    to_close = [
        snapshot.session.id
        for snapshot in due
        if snapshot.session and snapshot.session.status is SessionStatus.OPEN
    ]
    if to_close:
        await sessions.mark_closing(tx, to_close, due[0].now)
    requests = [
        TransitionRequest(
            payment=snapshot.payment,
            trigger=PaymentTrigger.EXPIRE,
            at=snapshot.now,
            session=snapshot.session,
        )
        for snapshot in due
        if snapshot.session and snapshot.session.status is not SessionStatus.OPEN
    ]
    await apply_transitions(tx, requests)
    return len(due)


async def expire_undecided(tx: Tx, session: Session, patience: timedelta) -> None:
    """Expire a payment whose gateway has answered that it is still deciding, after `patience`.

    It opens a case, which the outcome of the session will fill or close. On a chain nothing
    expires this way unless the chain is read now, and was read past the payment's deadline.
    """
    locked = await lock_payments(tx, [session.payment_id])
    payment, now = locked.payments[0], locked.now
    session = await sessions.lock(tx, session.id)
    closing_at, chain = session.closing_at, session.quote.chain
    waits = payment.session_id == session.id and payment.status is PaymentStatus.PROCESSING
    if not waits or session.status is not SessionStatus.CLOSING or closing_at is None:
        return
    if now - max(closing_at, payment.expires_at) < patience:
        return
    if chain is not None and not await sessions.can_be_read(tx, chain, payment.expires_at):
        return
    await _expire_with_case(tx, payment, session, now)
    _log.error("payment_undecided", payment=ids.format_id(ids.PAYMENT, payment.id))


async def expire_stranded(tx: Tx, payment_id: UUID, providers: Collection[str]) -> EndedPayment:
    """Expire a payment whose chain or gateway is gone, because two operators have decided so.

    It opens a case for the money that may still come. The session stays `closing`, and ends when
    its chain is read, or its gateway answers, again. Raises `CONFLICT` as `check_stranded` does.
    """
    locked = await lock_payments(tx, [payment_id])
    payment, now = locked.payments[0], locked.now
    session = await sessions.lock(tx, payment.session_id) if payment.session_id else None
    stranded = await check_stranded(tx, PaymentSnapshot(payment, session, now), providers)
    await sessions.mark_closing(tx, [stranded.session.id], now)
    return await _expire_with_case(
        tx, payment, stranded.session, now, f"ended by hand: {stranded.reason}"
    )


async def check_stranded(
    database: Executor, snapshot: PaymentSnapshot, providers: Collection[str]
) -> StrandedSession:
    """Raise `CONFLICT` for a payment that ends without an operator; returns its session.

    `providers` are those that have an adapter here.
    """
    payment, session = snapshot.payment, snapshot.session
    if payment.status is not PaymentStatus.PROCESSING or session is None:
        raise RefusedError(ErrorCode.CONFLICT, f"the payment is {payment.status}, not PROCESSING")
    chain = session.quote.chain
    if chain is not None and not payment.is_past_expiry(snapshot.now):
        raise RefusedError(
            ErrorCode.CONFLICT,
            f"the payment's time is over at {format_timestamp(payment.expires_at)} only",
        )
    if session.status is SessionStatus.ENDED:
        raise RefusedError(
            ErrorCode.CONFLICT, "the payment's session has ended: the payment ends by itself"
        )
    if chain is None:
        return StrandedSession(session, await _why_gone(database, session, providers))
    if await chain_watch.is_watched(database, chain):
        raise RefusedError(
            ErrorCode.CONFLICT, f"{chain} is watched: the payment ends by what its blocks say"
        )
    return StrandedSession(session, f"{chain} is not watched")


async def _why_gone(database: Executor, session: Session, providers: Collection[str]) -> str:
    """Return why the session's gateway counts as gone; raise `CONFLICT` where it does not."""
    provider, account = session.quote.provider, f"account {session.quote.account_id}"
    absence = await gateway_outages.get_absence(database, session.id)
    if absence is None or provider not in providers:
        return f"{account} at {provider} cannot be asked from here"
    if not absence.provider_enabled:
        return f"{provider} is turned off"
    if not absence.account_enabled:
        return f"{account} at {provider} is turned off"
    since = absence.outage_since or absence.silent_since
    if since is None:
        raise RefusedError(
            ErrorCode.CONFLICT,
            f"{account} at {provider} answers: the payment ends by what it says; turn the account "
            "off first where the gateway is gone for good",
        )
    return f"{account} at {provider} has not answered since {format_timestamp(since)}"


async def _expire_with_case(
    tx: Tx, payment: Payment, session: Session, now: datetime, note: str = ""
) -> EndedPayment:
    """Expire a locked payment, and open a case that money of its session will fill."""
    move = TransitionRequest(
        payment=payment, trigger=PaymentTrigger.EXPIRE, at=now, session=session
    )
    [payment] = await apply_transitions(tx, [move])
    origin = session_origin(payment, session.id)
    case_id = await open_case(tx, CaseKind.UNDECIDED, origin, note=note)
    assert case_id is not None  # noqa: S101 - a payment expires once
    return EndedPayment(payment=payment, case_id=case_id)


async def expire_if_due(database: Database, *payment_ids: UUID) -> None:
    """Expire PENDING payments that a reader found past their deadline, in an own transaction."""
    async with database.transaction() as tx:
        locked = await lock_payments(tx, payment_ids)
        requests = [
            TransitionRequest(payment=payment, trigger=PaymentTrigger.EXPIRE, at=locked.now)
            for payment in locked.payments
            if payment.status is PaymentStatus.PENDING and payment.is_past_expiry(locked.now)
        ]
        await apply_transitions(tx, requests)


async def require_open_checkout(database: Database, snapshot: PaymentSnapshot) -> None:
    """Refuse what an ended checkout no longer allows; expires it first where it is due."""
    if snapshot.payment.is_past_expiry(snapshot.now):
        await expire_if_due(database, snapshot.payment.id)
        raise checkout_expired_error()
    require_not_ended(snapshot.payment)


def require_not_ended(payment: Payment) -> None:
    """Raise `CHECKOUT_EXPIRED` or `INVALID_CHECKOUT_STATE` where the payment has ended."""
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
