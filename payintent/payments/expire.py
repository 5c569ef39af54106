"""PENDING or PROCESSING → EXPIRED, after a payment's deadline."""

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
_LANES = 3  # concurrent transactions during a backlog
_BATCHES_PER_LANE = 10  # before the worker checks whether it should stop


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedPayment:
    """A payment that expired before its session ended, and the case for money that may arrive."""

    payment: Payment
    case_id: UUID


@dataclass(frozen=True, slots=True)
class StrandedSession:
    session: Session
    reason: str  # why its chain or gateway counts as gone


async def expire_due_pending(database: Database, limit: int) -> bool:
    """Expire PENDING payments, at most `limit` per transaction; returns whether more may be due.

    A backlog is processed by several concurrent transactions, which skip locked payments:
    while the database writes a batch, this process builds the events of the next.
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
    """Expire at most `limit` PENDING payments and return their number."""
    due = await payments.lock_due_pending(tx, limit)
    if due is None:
        return 0
    requests = [
        TransitionRequest(payment=payment, trigger=PaymentTrigger.EXPIRE, at=due.now)
        for payment in due.payments
    ]
    return len(await apply_transitions(tx, requests))


async def expire_processing(tx: Tx, limit: int, patience_s: float) -> int:
    """Expire PROCESSING payments or start closing their sessions; returns the number of payments.

    The buyer may be paying, so the gateway has to close an open session first: this only marks the
    session, and the inquiry loop calls the gateway. The payment expires once its session has ended
    or its gateway has not answered for `patience_s`; in that case the session stays `closing`.
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
    """Expire a payment if its gateway still reports no decision after `patience`.

    This opens a case, which the session's outcome will fill or close. A payment on a chain expires
    only if the chain is being read and has been read past the payment's deadline.
    """
    locked = await lock_payments(tx, [session.payment_id])
    payment, now = locked.payments[0], locked.now
    session = await sessions.lock(tx, session.id)
    closing_at, chain = session.closing_at, session.quote.chain
    is_current = payment.session_id == session.id and payment.status is PaymentStatus.PROCESSING
    if not is_current or session.status is not SessionStatus.CLOSING or closing_at is None:
        return
    if now - max(closing_at, payment.expires_at) < patience:
        return
    if chain is not None and not await sessions.can_be_read(tx, chain, payment.expires_at):
        return
    await _expire_with_case(tx, payment, session, now)
    _log.error("payment_undecided", payment=ids.format_id(ids.PAYMENT, payment.id))


async def expire_stranded(tx: Tx, payment_id: UUID, providers: Collection[str]) -> EndedPayment:
    """Expire a payment because its chain or gateway is gone, as decided by two operators.

    This opens a case for money that may still arrive. The session stays `closing` until its chain
    is read or its gateway answers again. Raises `CONFLICT` like `check_stranded`.
    """
    locked = await lock_payments(tx, [payment_id])
    payment, now = locked.payments[0], locked.now
    session = await sessions.lock(tx, payment.session_id) if payment.session_id else None
    stranded = await check_stranded(tx, PaymentSnapshot(payment, session, now), providers)
    await sessions.mark_closing(tx, [stranded.session.id], now)
    return await _expire_with_case(
        tx, payment, stranded.session, now, f"ended manually: {stranded.reason}"
    )


async def check_stranded(
    database: Executor, snapshot: PaymentSnapshot, providers: Collection[str]
) -> StrandedSession:
    """Return the payment's session; raises `CONFLICT` if the payment will end automatically.

    `providers` are the providers with an installed adapter.
    """
    payment, session = snapshot.payment, snapshot.session
    if payment.status is not PaymentStatus.PROCESSING or session is None:
        raise RefusedError(ErrorCode.CONFLICT, f"the payment is {payment.status}, not PROCESSING")
    chain = session.quote.chain
    if chain is not None and not payment.is_past_expiry(snapshot.now):
        raise RefusedError(
            ErrorCode.CONFLICT,
            f"the payment's deadline is {format_timestamp(payment.expires_at)}; wait until then",
        )
    if session.status is SessionStatus.ENDED:
        raise RefusedError(
            ErrorCode.CONFLICT, "the payment's session has ended, so the payment ends automatically"
        )
    if chain is None:
        return StrandedSession(session, await _absence_reason(database, session, providers))
    if await chain_watch.is_watched(database, chain):
        raise RefusedError(
            ErrorCode.CONFLICT, f"{chain} is watched, so its blocks decide how the payment ends"
        )
    return StrandedSession(session, f"{chain} is not watched")


async def _absence_reason(database: Executor, session: Session, providers: Collection[str]) -> str:
    """Return why the session's gateway counts as gone; raises `CONFLICT` if it does not."""
    provider, account = session.quote.provider, f"account {session.quote.account_id}"
    absence = await gateway_outages.get_absence(database, session.id)
    if absence is None or provider not in providers:
        return f"{account} at {provider} cannot be queried from this installation"
    if not absence.provider_enabled:
        return f"{provider} is disabled"
    if not absence.account_enabled:
        return f"{account} at {provider} is disabled"
    since = absence.outage_since or absence.silent_since
    if since is None:
        raise RefusedError(
            ErrorCode.CONFLICT,
            f"{account} at {provider} answers, so it decides how the payment ends; if the gateway "
            "is gone permanently, disable the account first",
        )
    return f"{account} at {provider} has not answered since {format_timestamp(since)}"


async def _expire_with_case(
    tx: Tx, payment: Payment, session: Session, now: datetime, note: str = ""
) -> EndedPayment:
    """Expire a locked payment, and open a case for money that its session may still receive."""
    transition = TransitionRequest(
        payment=payment, trigger=PaymentTrigger.EXPIRE, at=now, session=session
    )
    [payment] = await apply_transitions(tx, [transition])
    origin = session_origin(payment, session.id)
    case_id = await open_case(tx, CaseKind.UNDECIDED, origin, note=note)
    assert case_id is not None  # noqa: S101 - a payment expires once
    return EndedPayment(payment=payment, case_id=case_id)


async def expire_if_due(database: Database, *payment_ids: UUID) -> None:
    """Expire PENDING payments that are past their deadline, in a separate transaction."""
    async with database.transaction() as tx:
        locked = await lock_payments(tx, payment_ids)
        requests = [
            TransitionRequest(payment=payment, trigger=PaymentTrigger.EXPIRE, at=locked.now)
            for payment in locked.payments
            if payment.status is PaymentStatus.PENDING and payment.is_past_expiry(locked.now)
        ]
        await apply_transitions(tx, requests)


async def require_open_checkout(database: Database, snapshot: PaymentSnapshot) -> None:
    """Raise like `require_not_ended`, and expire the payment first if it is due."""
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
