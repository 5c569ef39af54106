"""Expire PROCESSING payments after their deadline, or if their chain or gateway is gone."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from payintent.cases.model import CaseKind
from payintent.cases.store import open_case
from payintent.chains import watch_store as chain_watch_store
from payintent.core import ids
from payintent.core.errors import ErrorCode, RefusedError
from payintent.db.database import Executor, Tx
from payintent.gateway_accounts.health import get_absence
from payintent.payments import sessions_store as session_store
from payintent.payments import store as payment_store
from payintent.payments.captures_store import session_origin
from payintent.payments.expire import EndedPayment
from payintent.payments.model import Payment, PaymentStatus, PaymentTrigger, Session, SessionStatus
from payintent.payments.store import PaymentSnapshot
from payintent.payments.transitions import TransitionRequest, apply_transitions
from payintent.runtime.json_format import format_timestamp
from payintent.runtime.log import get_logger

_log = get_logger("expire")


async def expire_processing(tx: Tx, limit: int, patience_s: float) -> int:
    """Expire due PROCESSING payments or start closing their sessions; returns how many were due.

    The buyer may still be paying, so the gateway must close an open session first. This only marks
    the session; the inquiry loop calls the gateway. The payment expires once its session has ended,
    or once its gateway has not responded for `patience_s`. The session then stays `closing`.
    """
    due = await payment_store.lock_due_processing(tx, limit, patience_s)
    to_close = [
        snapshot.session.id
        for snapshot in due
        if snapshot.session and snapshot.session.status is SessionStatus.OPEN
    ]
    if to_close:
        await session_store.mark_closing(tx, to_close, due[0].now)
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
    """Expire a payment if its gateway is still undecided after `patience`.

    Opens a case that stays undecided until the session's outcome is known. A chain payment expires
    only if the chain is watched and has been read past the payment's deadline.
    """
    locked = await payment_store.lock(tx, [session.payment_id])
    payment, now = locked.payments[0], locked.now
    session = await session_store.lock(tx, session.id)
    closing_at, chain = session.closing_at, session.quote.chain
    is_current = payment.session_id == session.id and payment.status is PaymentStatus.PROCESSING
    if not is_current or session.status is not SessionStatus.CLOSING or closing_at is None:
        return
    if now - max(closing_at, payment.expires_at) < patience:
        return
    if chain is not None and not await session_store.is_read_past(tx, chain, payment.expires_at):
        return
    await _expire_with_case(tx, payment, session, now)
    _log.error("payment_undecided", payment=ids.format_id(ids.PAYMENT, payment.id))


async def expire_stranded(tx: Tx, payment_id: UUID, providers: Collection[str]) -> EndedPayment:
    """Expire a payment whose chain or gateway is gone; two operators must have agreed to this.

    Opens a case for money that may still arrive. The session stays `closing` until its chain is
    read again or its gateway responds again. Raises `CONFLICT` as `check_stranded` does.
    """
    locked = await payment_store.lock(tx, [payment_id])
    payment, now = locked.payments[0], locked.now
    session = await session_store.lock(tx, payment.session_id) if payment.session_id else None
    stranded = await check_stranded(tx, PaymentSnapshot(payment, session, now), providers)
    await session_store.mark_closing(tx, [stranded.session.id], now)
    return await _expire_with_case(
        tx, payment, stranded.session, now, f"ended manually: {stranded.reason}"
    )


async def _expire_with_case(
    tx: Tx, payment: Payment, session: Session, now: datetime, note: str = ""
) -> EndedPayment:
    """Expire a payment, and open a case for late money. The payment must be locked."""
    transition = TransitionRequest(
        payment=payment, trigger=PaymentTrigger.EXPIRE, at=now, session=session
    )
    [payment] = await apply_transitions(tx, [transition])
    origin = session_origin(payment, session.id)
    case_id = await open_case(tx, CaseKind.UNDECIDED, origin, note=note)
    assert case_id is not None  # noqa: S101 - a payment expires once
    return EndedPayment(payment=payment, case_id=case_id)


@dataclass(frozen=True, slots=True)
class StrandedSession:
    session: Session
    reason: str  # why its chain or gateway is considered gone


async def _absence_reason(database: Executor, session: Session, providers: Collection[str]) -> str:
    """Return why the session's gateway is considered gone; raises `CONFLICT` if it is not."""
    provider, account = session.quote.provider, f"account {session.quote.account_id}"
    absence = await get_absence(database, session.id)
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


async def check_stranded(
    database: Executor, snapshot: PaymentSnapshot, providers: Collection[str]
) -> StrandedSession:
    """Return the session of a stranded payment; raises `CONFLICT` if it will end automatically.

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
    if await chain_watch_store.is_watched(database, chain):
        raise RefusedError(
            ErrorCode.CONFLICT, f"{chain} is watched, so its blocks decide how the payment ends"
        )
    return StrandedSession(session, f"{chain} is not watched")
