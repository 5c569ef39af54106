"""Asks gateways for the state of unfinished sessions, and closes sessions no longer wanted.

Callbacks get lost, processes die, gateways answer late: these inquiries repair all of that.
"""

from dataclasses import dataclass, replace
from datetime import timedelta

from payintent import tracing
from payintent.domain import ids
from payintent.domain.case import CaseKind
from payintent.domain.errors import LockTimeoutError, StorageUnavailableError
from payintent.domain.gateway import (
    GatewaySessionRef,
    GatewaySessionState,
    OutcomeUnknown,
    SessionReport,
)
from payintent.domain.session import Session, SessionStatus
from payintent.log import get_logger
from payintent.payments.buyer_calls import BuyerCall
from payintent.payments.cases import open_case, session_origin
from payintent.payments.expire import expire_undecided
from payintent.payments.gateway_accounts import GatewayAccounts
from payintent.payments.gateway_calls import GatewayCall, GatewayRequestKind
from payintent.payments.settle import settle_session
from payintent.payments.transitions import lock_payments
from payintent.storage import payments, sessions
from payintent.storage.database import Database
from payintent.storage.onchain import chain_watch
from payintent.storage.payer_sealing import order_id_of
from payintent.storage.sessions import DueSession

_log = get_logger("inquire")

#: Seconds between inquiries, the last one repeated; the first comes 30 s after opening.
OPEN_WAITS_S = (120.0, 600.0, 3600.0)
#: After an answer that limits our requests, at a gateway that wants few inquiries: ECPay's limit
#: lasts half an hour. Other limits are of seconds, and an open session may be paid until it closes.
THROTTLED_WAIT_S = 1800.0
#: A payment may be waiting for its session to close, so this begins at once and at short intervals.
CLOSING_WAITS_S = (5.0, 10.0, 15.0, 30.0, 120.0, 600.0, 3600.0)
DECIDING_WAIT_S = 30.0
#: A request of ours may still be on its way when a gateway answers that it does not know a session.
ABSENT_PROVES_AFTER_S = 600
GIVE_UP_AFTER_S = 7 * 24 * 3600

_ABSENT = GatewaySessionState.ABSENT
#: States for which an elapsed payment does not wait: a gateway that cannot close leaves a session
#: open at which nothing happens, and one that does not know it may never receive it.
_SILENCE = frozenset({GatewaySessionState.OPEN, GatewaySessionState.ABSENT})


#: A buyer can reload the return page as often as he likes.
RETURN_EVERY_S = 5.0


async def ask_on_return(
    database: Database, accounts: GatewayAccounts, merchant_id: int, session: Session
) -> None:
    """Ask the gateway at once, since the buyer has come back; at most every `RETURN_EVERY_S`."""
    if not await sessions.note_return(database, session.id, RETURN_EVERY_S):
        return
    quote = session.quote
    call = BuyerCall(
        account_id=quote.account_id,
        provider=quote.provider,
        merchant_id=merchant_id,
        payment_id=session.payment_id,
    )
    if await accounts.buyer_calls.allow(call):
        await sessions.request_inquiry(database, session.id)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionInquirer:
    database: Database
    accounts: GatewayAccounts
    authorising_patience: timedelta

    async def inquire(self, ask: DueSession) -> None:
        """Ask about one session, apply the answer, and schedule the next inquiry."""
        tracing.follow_payment(ask.session.payment_id)
        try:
            await self._inquire(ask)
        except (StorageUnavailableError, LockTimeoutError):
            raise
        except Exception:  # a bug: no payment, and no buyer, may wait for its repair
            if ask.session.status is SessionStatus.OPENING:
                await self._release(ask.session)
            await self._note_silence(ask.session)
            raise

    async def _inquire(self, ask: DueSession) -> None:
        session = ask.session
        age_s = (ask.now - session.opened_at).total_seconds()
        gap_s = self._gap_s(session)
        if session.status is SessionStatus.OPEN and age_s < gap_s and not ask.has_returned:
            await sessions.schedule_inquiry(self.database, session, gap_s - age_s)
            return
        answer = await self._ask(session)
        if isinstance(answer, SessionReport):
            await self._take_in(ask, answer, age_s)
        else:
            await self._note_silence(session)
            _log.warning(
                "provider_silent",
                provider=session.quote.provider,
                account=session.quote.account_id,
                session=ids.format_id(ids.SESSION, session.id),
                why=answer.detail,
            )
        wait_s: float | None = _wait_s(session, answer, gap_s)
        if session.status is SessionStatus.OPENING:
            await self._release(session)
        elif age_s > GIVE_UP_AFTER_S and await self._hand_over(session):
            wait_s = None
        await sessions.schedule_inquiry(self.database, session, wait_s)

    async def _take_in(self, ask: DueSession, report: SessionReport, age_s: float) -> None:
        """Apply an answer; it is silence unless it decides or says that it is deciding."""
        session = ask.session
        if report.state not in _SILENCE:
            await sessions.clear_silence(self.database, session.id)
        await self._apply(session, report, age_s)
        if report.state is not GatewaySessionState.AUTHORISING:
            await self._note_silence(session)
        elif session.closing_at and ask.now - session.closing_at >= self.authorising_patience:
            async with self.database.transaction() as tx:
                patience = self.authorising_patience
                await expire_undecided(tx, session, patience)

    def _gap_s(self, session: Session) -> float:
        gateway = self.accounts.gateway(session.quote.provider)
        return gateway.capabilities.inquiry_gap_s if gateway else 0

    async def _note_silence(self, session: Session) -> None:
        if session.status is SessionStatus.CLOSING:  # no payment waits for others
            await sessions.mark_silent(self.database, session.id)

    async def _ask(self, session: Session) -> SessionReport | OutcomeUnknown:
        quote, closing = session.quote, session.status is SessionStatus.CLOSING
        call = GatewayCall(
            account_id=quote.account_id,
            provider=quote.provider,
            kind=GatewayRequestKind.CLOSE_SESSION if closing else GatewayRequestKind.INQUIRE,
            subject_id=session.id,
            payment_id=session.payment_id,
        )
        reference = await self._reference(session)
        return await self.accounts.call(
            call,
            lambda gateway, account: (gateway.close_session if closing else gateway.inquire)(
                account, reference
            ),
        )

    async def _reference(self, session: Session) -> GatewaySessionRef:
        """Return a session as its gateway identifies it, with its order if it may be unknown."""
        if session.reference is not None or session.quote.chain is not None:
            return session.gateway_ref
        snapshot = await payments.get(self.database, session.payment_id)
        order_id = order_id_of(snapshot.payment.metadata) if snapshot else None
        return replace(session.gateway_ref, order_id=order_id)

    async def _apply(self, session: Session, report: SessionReport, age_s: float) -> None:
        absent_for_good = report.state is _ABSENT and age_s > ABSENT_PROVES_AFTER_S
        if session.status is SessionStatus.CLOSING and absent_for_good:
            report = SessionReport(state=GatewaySessionState.CLOSED)
        async with self.database.transaction() as tx:
            await settle_session(tx, session.payment_id, session.id, report)

    async def _release(self, session: Session) -> None:
        """Give up a selection that was never completed, so that the buyer can make another."""
        async with self.database.transaction() as tx:
            locked = await lock_payments(tx, [session.payment_id])
            present = await sessions.lock(tx, session.id)
            if present.status is SessionStatus.OPENING:
                await sessions.mark_closing(tx, [session.id], locked.now)

    async def _hand_over(self, session: Session) -> bool:
        """Open a case after a week without a final answer; False while inquiries go on.

        A payment may still wait for this session. A session on a chain that is not watched needs no
        operator: it ends when the chain is read again.
        """
        async with self.database.transaction() as tx:
            locked = await lock_payments(tx, [session.payment_id])
            present = await sessions.lock(tx, session.id)
            if present.status is SessionStatus.ENDED:
                return True
            chain = session.quote.chain
            if chain is not None and not await chain_watch.is_watched(tx, chain):
                return False
            payment = locked.payments[0]
            origin = session_origin(payment, session.id)
            await open_case(tx, CaseKind.UNKNOWN_REFERENCE, origin)
            held_up = payment.session_id == session.id and payment.is_past_expiry(locked.now)
            return not (held_up and present.status is SessionStatus.CLOSING)


def _wait_s(session: Session, answer: SessionReport | OutcomeUnknown, gap_s: float) -> float:
    if gap_s and isinstance(answer, OutcomeUnknown) and answer.throttled:
        gap_s = max(gap_s, THROTTLED_WAIT_S)
    waits = CLOSING_WAITS_S if session.status is SessionStatus.CLOSING else OPEN_WAITS_S
    wait_s = waits[min(session.inquiries, len(waits) - 1)]
    deciding = isinstance(answer, SessionReport) and answer.state is GatewaySessionState.AUTHORISING
    # A payment may wait for the decision, so the next inquiry comes soon.
    is_urgent = deciding and session.status is SessionStatus.CLOSING
    return max(gap_s, min(wait_s, DECIDING_WAIT_S) if is_urgent else wait_s)
