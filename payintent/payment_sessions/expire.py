"""Expire PROCESSING payments that are overdue or whose gateway or chain is unavailable."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from payintent.cases.model import CaseKind
from payintent.cases.store import open_case
from payintent.chains import watch_store as chain_watch_store
from payintent.core import ids
from payintent.core.errors import ConflictError
from payintent.db.database import Executor, Tx
from payintent.gateway_accounts.health import get_availability
from payintent.payments import sessions_store as session_store
from payintent.payments import store as payment_store
from payintent.payments.captures_store import make_session_origin
from payintent.payments.model import (
    Payment,
    PaymentStatus,
    PaymentTrigger,
    Session,
    SessionStatus,
    TransitionRequest,
)
from payintent.payments.store import PaymentSnapshot
from payintent.payments.transitions import apply_transitions
from payintent.runtime.json_format import format_timestamp
from payintent.runtime.log import get_logger

_log = get_logger("expire")


async def expire_processing(tx: Tx, limit: int, timeout_s: float) -> int:
    """Expire due PROCESSING payments or start closing their sessions; return how many were due.

    The buyer may still be paying, so the gateway must close an open session first. This function
    marks the session as closing, and the inquiry loop calls the gateway. The payment expires when
    its session has ended, or when its gateway has not responded for `timeout_s`; in the latter
    case, the session stays `closing`.
    """
    due_snapshots = await payment_store.lock_due_processing(tx, limit, timeout_s)
    open_ids = [
        snapshot.session.id
        for snapshot in due_snapshots
        if snapshot.session and snapshot.session.status is SessionStatus.OPEN
    ]
    if open_ids:
        await session_store.mark_closing(tx, open_ids, due_snapshots[0].now)
    requests = [
        TransitionRequest(
            payment=snapshot.payment,
            trigger=PaymentTrigger.EXPIRE,
            at=snapshot.now,
            session=snapshot.session,
        )
        for snapshot in due_snapshots
        if snapshot.session and snapshot.session.status is not SessionStatus.OPEN
    ]
    await apply_transitions(tx, requests)
    return len(due_snapshots)


async def expire_undecided(tx: Tx, session: Session, decision_timeout: timedelta) -> None:
    """Expire a payment if its gateway has not decided its session within `decision_timeout`.

    Opens a case, which stays UNDECIDED until the session's outcome is known. A chain payment
    expires only if the chain is watched and has been read past the payment's deadline.
    """
    payment, now = await payment_store.lock_payment(tx, session.payment_id)
    session = await session_store.lock(tx, session.id)
    closing_at, chain = session.closing_at, session.quote.chain
    is_current = payment.session_id == session.id and payment.status is PaymentStatus.PROCESSING
    if not is_current or session.status is not SessionStatus.CLOSING or closing_at is None:
        return
    if now - max(closing_at, payment.expires_at) < decision_timeout:
        return
    if chain is not None and not await session_store.is_chain_read_past(
        tx, chain, session.id, payment.expires_at
    ):
        return
    await _expire_with_case(tx, payment, session, now)
    _log.error("payment_undecided", payment=ids.format_id(ids.PAYMENT, payment.id))


async def expire_stranded(
    tx: Tx, payment_id: UUID, providers: Collection[str]
) -> tuple[Payment, UUID]:
    """Expire a payment whose gateway or chain is unavailable, and open a case.

    The case records money that arrives later. The caller must require a second operator's approval.
    The session stays `closing` until its gateway responds or its chain is read again. Returns the
    payment and the case id. Raises `CONFLICT` as `require_stranded_session` does.
    """
    payment, now = await payment_store.lock_payment(tx, payment_id)
    session = await session_store.lock(tx, payment.session_id) if payment.session_id else None
    stranded_session = await require_stranded_session(
        tx, PaymentSnapshot(payment, session, now), providers
    )
    await session_store.mark_closing(tx, [stranded_session.session.id], now)
    return await _expire_with_case(
        tx, payment, stranded_session.session, now, f"ended manually: {stranded_session.reason}"
    )


async def _expire_with_case(
    tx: Tx, payment: Payment, session: Session, now: datetime, note: str = ""
) -> tuple[Payment, UUID]:
    """Expire a payment and open a case for money that arrives later. The payment must be locked."""
    transition = TransitionRequest(
        payment=payment, trigger=PaymentTrigger.EXPIRE, at=now, session=session
    )
    [payment] = await apply_transitions(tx, [transition])
    origin = make_session_origin(payment, session.id)
    case_id = await open_case(tx, CaseKind.UNDECIDED, origin, note=note)
    assert case_id is not None  # noqa: S101 - a payment expires once
    return payment, case_id


@dataclass(frozen=True, slots=True)
class StrandedSession:
    session: Session
    reason: str  # why its gateway or chain is considered unavailable


async def _describe_unavailability(
    database: Executor, session: Session, providers: Collection[str]
) -> str:
    """Return why the session's gateway is unavailable. Raises `CONFLICT` if it is available."""
    provider, account = session.quote.provider, f"account {session.quote.account_id}"
    availability = await get_availability(database, session.id)
    if availability is None or provider not in providers:
        return f"{account} at {provider} cannot be queried from this installation"
    if not availability.provider_enabled:
        return f"{provider} is disabled"
    if not availability.account_enabled:
        return f"{account} at {provider} is disabled"
    since = availability.outage_since or availability.silent_since
    if since is None:
        raise ConflictError(
            f"{account} at {provider} is responding, so the payment will end automatically; if the "
            "gateway is permanently unavailable, disable the account first"
        )
    return f"{account} at {provider} has not responded since {format_timestamp(since)}"


async def require_stranded_session(
    database: Executor, snapshot: PaymentSnapshot, providers: Collection[str]
) -> StrandedSession:
    """Return the session of a stranded payment. Raises `CONFLICT` if it can end automatically.

    `providers` are the providers whose adapters are installed.
    """
    payment, session = snapshot.payment, snapshot.session
    if payment.status is not PaymentStatus.PROCESSING or session is None:
        raise ConflictError(f"the payment is {payment.status}, not PROCESSING")
    chain = session.quote.chain
    if chain is not None and not payment.is_past_expiry(snapshot.now):
        raise ConflictError(
            f"the payment's deadline is {format_timestamp(payment.expires_at)}; wait until then"
        )
    if session.status is SessionStatus.ENDED:
        raise ConflictError("the payment's session has ended; the payment will end automatically")
    if chain is None:
        return StrandedSession(
            session, await _describe_unavailability(database, session, providers)
        )
    if await chain_watch_store.is_watched(database, chain):
        raise ConflictError(f"{chain} is watched, so the payment will end automatically")
    return StrandedSession(session, f"{chain} is not watched")
