"""Query gateways about unfinished sessions, and close replaced or expired sessions.

Inquiries recover from lost callbacks, crashed processes and late gateway responses.
"""

from dataclasses import dataclass, replace
from datetime import timedelta
from uuid import UUID

from payintent.cases.model import CaseKind
from payintent.cases.store import open_case
from payintent.chains import watch_store as chain_watch_store
from payintent.core import ids
from payintent.core.errors import LockTimeoutError, StorageUnavailableError
from payintent.db.database import Database
from payintent.db.sealing import find_order_id
from payintent.gateway_accounts.accounts import GatewayAccounts
from payintent.gateway_accounts.buyer_calls import BuyerCall
from payintent.gateway_accounts.calls import GatewayCall, GatewayRequestKind
from payintent.gateways.port import (
    GatewaySessionRef,
    GatewaySessionState,
    OutcomeUnknown,
    SessionReport,
    SessionResult,
)
from payintent.merchants.model import Quote
from payintent.payment_sessions.expire import expire_undecided
from payintent.payment_sessions.settle import settle_session
from payintent.payments import sessions_store as session_store
from payintent.payments import store as payment_store
from payintent.payments.captures_store import make_session_origin
from payintent.payments.model import Session, SessionStatus
from payintent.payments.sessions_store import DueSession
from payintent.runtime import tracing
from payintent.runtime.log import get_logger

_log = get_logger("inquire")

#: Delays between inquiries; the last delay repeats. The first inquiry is 30 s after opening.
OPEN_INQUIRY_DELAYS_S = (120.0, 600.0, 3600.0)
#: Delay after a rate limit response from a gateway that requires gaps between inquiries, such as
#: ECPay, whose limit lasts half an hour. Other gateways are queried sooner, because their limits
#: last seconds and a session can be paid until it is closed.
THROTTLED_DELAY_S = 1800.0
#: Delays between attempts to close a session. The first delays are short, because expiry may depend
#: on the result.
CLOSING_DELAYS_S = (5.0, 10.0, 15.0, 30.0, 120.0, 600.0, 3600.0)
AUTHORISING_DELAY_S = 30.0
#: Session age after which "unknown to the gateway" proves that the session does not exist. Until
#: then, our request to create it may still be in flight.
ABSENT_FINAL_AFTER_S = 600
ESCALATE_AFTER_S = 7 * 24 * 3600

_ABSENT = GatewaySessionState.ABSENT
#: States that do not delay expiry. A gateway that cannot close sessions reports an unused session
#: as open, and a session unknown to the gateway may never be created.
_INCONCLUSIVE = frozenset({GatewaySessionState.OPEN, GatewaySessionState.ABSENT})
RETURN_INTERVAL_S = 5.0  # minimum interval between inquiries when buyers reload the return page


async def inquire_on_return(
    database: Database, accounts: GatewayAccounts, merchant_id: int, session: Session
) -> None:
    """Request an inquiry when the buyer returns, at most once every `RETURN_INTERVAL_S` seconds."""
    if not await session_store.record_return(database, session.id, RETURN_INTERVAL_S):
        return
    call = make_buyer_call(merchant_id, session.payment_id, session.quote)
    if await accounts.buyer_calls.allow(call):
        await session_store.request_inquiry(database, session.id)


def make_buyer_call(merchant_id: int, payment_id: UUID, quote: Quote) -> BuyerCall:
    return BuyerCall(
        account_id=quote.account_id,
        provider=quote.provider,
        merchant_id=merchant_id,
        payment_id=payment_id,
    )


def make_session_call(session: Session, kind: GatewayRequestKind) -> GatewayCall:
    return GatewayCall(
        account_id=session.quote.account_id,
        provider=session.quote.provider,
        kind=kind,
        subject_id=session.id,
        payment_id=session.payment_id,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionInquirer:
    database: Database
    accounts: GatewayAccounts
    authorisation_timeout: timedelta

    async def inquire(self, due_session: DueSession) -> None:
        tracing.follow_payment(due_session.session.payment_id)
        try:
            await self._inquire(due_session)
        except (StorageUnavailableError, LockTimeoutError):
            raise
        except Exception:  # a bug must not block the buyer or the payment's expiry
            if due_session.session.status is SessionStatus.OPENING:
                await self._abandon_selection(due_session.session)
            await self._record_no_response(due_session.session)
            raise

    async def _inquire(self, due_session: DueSession) -> None:
        session = due_session.session
        age_s = (due_session.now - session.opened_at).total_seconds()
        gap_s = self._get_inquiry_gap_s(session)
        if (
            session.status is SessionStatus.OPEN
            and age_s < gap_s
            and not due_session.buyer_has_returned
        ):
            await session_store.schedule_inquiry(self.database, session, gap_s - age_s)
            return
        result = await self._call_gateway(session)
        if isinstance(result, SessionReport):
            await self._apply_report(due_session, result, age_s)
        else:
            await self._record_no_response(session)
            _log.warning(
                "provider_silent",
                provider=session.quote.provider,
                account=session.quote.account_id,
                session=ids.format_id(ids.SESSION, session.id),
                why=result.detail,
            )
        delay_s: float | None = _choose_next_delay_s(session, result, gap_s)
        if session.status is SessionStatus.OPENING:
            await self._abandon_selection(session)
        elif age_s > ESCALATE_AFTER_S and await self._escalate(session):
            delay_s = None
        await session_store.schedule_inquiry(self.database, session, delay_s)

    async def _apply_report(
        self, due_session: DueSession, report: SessionReport, age_s: float
    ) -> None:
        """Apply a report. An inconclusive report is treated as a missing response."""
        session = due_session.session
        if report.state not in _INCONCLUSIVE:
            await session_store.mark_responsive(self.database, session.id)
        is_absent = report.state is _ABSENT and age_s > ABSENT_FINAL_AFTER_S
        is_closed = is_absent and session.status is SessionStatus.CLOSING
        effective_report = SessionReport(state=GatewaySessionState.CLOSED) if is_closed else report
        async with self.database.transaction() as tx:
            await settle_session(tx, session.payment_id, session.id, effective_report)
        if report.state is not GatewaySessionState.AUTHORISING:
            await self._record_no_response(session)
        elif (
            session.closing_at
            and due_session.now - session.closing_at >= self.authorisation_timeout
        ):
            async with self.database.transaction() as tx:
                await expire_undecided(tx, session, self.authorisation_timeout)

    def _get_inquiry_gap_s(self, session: Session) -> float:
        gateway = self.accounts.gateway(session.quote.provider)
        return gateway.capabilities.inquiry_gap_s if gateway else 0

    async def _record_no_response(self, session: Session) -> None:
        if session.status is SessionStatus.CLOSING:  # only closing sessions delay expiry
            await session_store.mark_unresponsive(self.database, session.id)

    async def _call_gateway(self, session: Session) -> SessionResult:
        reference = await self._make_gateway_ref(session)
        if session.status is SessionStatus.CLOSING:
            return await self.accounts.call(
                make_session_call(session, GatewayRequestKind.CLOSE_SESSION),
                lambda gateway, account: gateway.close_session(account, reference),
            )
        return await self.accounts.call(
            make_session_call(session, GatewayRequestKind.INQUIRE),
            lambda gateway, account: gateway.inquire(account, reference),
        )

    async def _make_gateway_ref(self, session: Session) -> GatewaySessionRef:
        """Return the gateway reference, with the order id if the session has no reference yet."""
        if session.reference is not None or session.quote.chain is not None:
            return session.gateway_ref
        snapshot = await payment_store.get(self.database, session.payment_id)
        order_id = find_order_id(snapshot.payment.metadata) if snapshot else None
        return replace(session.gateway_ref, order_id=order_id)

    async def _abandon_selection(self, session: Session) -> None:
        """Mark an `opening` session as closing, so that the buyer can select a method again."""
        async with self.database.transaction() as tx:
            _, now = await payment_store.lock_payment(tx, session.payment_id)
            locked_session = await session_store.lock(tx, session.id)
            if locked_session.status is SessionStatus.OPENING:
                await session_store.mark_closing(tx, [session.id], now)

    async def _escalate(self, session: Session) -> bool:
        """Open a case after a week without a final report; return whether inquiries can stop.

        Inquiries continue if the payment cannot expire before this session ends. Sessions on an
        unwatched chain do not need a case, because they end when the chain is read again.
        """
        async with self.database.transaction() as tx:
            payment, now = await payment_store.lock_payment(tx, session.payment_id)
            locked_session = await session_store.lock(tx, session.id)
            if locked_session.status is SessionStatus.ENDED:
                return True
            chain = session.quote.chain
            if chain is not None and not await chain_watch_store.is_watched(tx, chain):
                return False
            origin = make_session_origin(payment, session.id)
            await open_case(tx, CaseKind.UNKNOWN_REFERENCE, origin)
            is_due = payment.session_id == session.id and payment.is_past_expiry(now)
            return not (is_due and locked_session.status is SessionStatus.CLOSING)


def _choose_next_delay_s(session: Session, result: SessionResult, gap_s: float) -> float:
    if gap_s and isinstance(result, OutcomeUnknown) and result.is_throttled:
        gap_s = max(gap_s, THROTTLED_DELAY_S)
    delays_s = (
        CLOSING_DELAYS_S if session.status is SessionStatus.CLOSING else OPEN_INQUIRY_DELAYS_S
    )
    delay_s = delays_s[min(session.inquiries, len(delays_s) - 1)]
    is_authorising = (
        isinstance(result, SessionReport) and result.state is GatewaySessionState.AUTHORISING
    )
    # The payment's expiry may depend on this decision.
    is_urgent = is_authorising and session.status is SessionStatus.CLOSING
    return max(gap_s, min(delay_s, AUTHORISING_DELAY_S) if is_urgent else delay_s)


async def escalate_to_operator(database: Database, payment_id: UUID, session_id: UUID) -> None:
    """Open a case, at most once, for a session whose on-chain outcome is unknown.

    The payment stays open.
    """
    async with database.transaction() as tx:
        payment, _ = await payment_store.lock_payment(tx, payment_id)
        await open_case(tx, CaseKind.RECONCILIATION, make_session_origin(payment, session_id))
