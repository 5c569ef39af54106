"""Store a session before its gateway is called, then apply the gateway's response.

Concurrent selections share statements and commits, but each has its own outcome.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from math import ceil
from uuid import UUID

import msgspec

from payintent.core.errors import ErrorCode, RefusedError
from payintent.db.batcher import LOCK_TIMEOUT_MS, Batcher
from payintent.db.database import Database, Tx
from payintent.gateways.port import NotContacted, OutcomeUnknown, SessionCreated, SessionRejected
from payintent.merchants.model import Quote
from payintent.payment_sessions import store as settlement_store
from payintent.payment_sessions.settle import complete_selections
from payintent.payment_sessions.store import LockedRecords
from payintent.payments import sessions_store as session_store
from payintent.payments import store as payment_store
from payintent.payments.expire import require_open
from payintent.payments.model import TERMINAL, Payment, Session, SessionStatus
from payintent.payments.store import LockedPayments

SELECTIONS_MAX = 20  # per payment, because each selection calls a gateway
FIRST_INQUIRY_S = 30.0  # delay before a selection is recovered after its process has crashed
_LATE_S = 0.1  # higher than the default, because these transactions have several statements

CreateSessionResult = SessionCreated | SessionRejected | OutcomeUnknown


@dataclass(frozen=True, slots=True)
class NewSelection:
    payment_id: UUID
    quote: Quote
    return_url: str | None
    payer_email: str | None


@dataclass(frozen=True, slots=True)
class SelectedSession:
    """A selected session and its payment as stored, with the database's time."""

    payment: Payment
    session: Session
    now: datetime


@dataclass(frozen=True, slots=True)
class GatewayResponse:
    session: Session
    result: CreateSessionResult


class SessionOpener:
    """Stores and opens sessions; concurrent selections share transactions.

    Selections for the same payment run sequentially, because each must see the effects of the
    previous selection.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._counts: Batcher[UUID, int] = Batcher(
            process_batch=partial(session_store.count_batch, database),
        )
        self._inserts: Batcher[NewSelection, Session | RefusedError] = Batcher(
            process_batch=self._store_batch,
            identities=lambda selection: [selection.payment_id],
            late_s=_LATE_S,
        )
        self._responses: Batcher[GatewayResponse, SelectedSession] = Batcher(
            process_batch=self._apply_responses,
            identities=lambda response: [response.session.payment_id],
            late_s=_LATE_S,
        )

    async def check_selection_limit(self, payment: Payment, now: datetime) -> None:
        """Raise `RATE_LIMITED` after too many selections. The current session can still be paid."""
        if await self._counts.run(payment.id) >= SELECTIONS_MAX:
            raise _make_limit_error(payment, now)

    async def store(self, selection: NewSelection) -> Session:
        """Store a session as `opening`.

        Raises `CHECKOUT_EXPIRED`, `INVALID_CHECKOUT_STATE` (the payment has ended), `RATE_LIMITED`
        (too many selections) or `CONFLICT` (another selection is in progress).
        """
        outcome = await self._inserts.run(selection)
        if isinstance(outcome, RefusedError):
            raise outcome
        return outcome

    async def apply_response(
        self, session: Session, result: CreateSessionResult
    ) -> SelectedSession:
        """Apply the gateway's response, unless a callback or the deadline came first.

        Afterwards, the session is the payment's current session, is closing, or has ended.
        """
        return await self._responses.run(GatewayResponse(session, result))

    async def close(self) -> None:
        await self._counts.close()
        await self._inserts.close()
        await self._responses.close()

    async def _store_batch(self, batch: Sequence[NewSelection]) -> list[Session | RefusedError]:
        async with self._database.transaction(_lock_timeout_ms(batch)) as tx:
            locked_payments = await payment_store.lock(
                tx, [selection.payment_id for selection in batch]
            )
            outcomes = self._new_sessions(locked_payments, batch)
            await _store_sessions(tx, locked_payments, outcomes)
            emails = {
                selection.payment_id: selection.payer_email
                for selection in batch
                if selection.payer_email is not None
                and isinstance(outcomes[selection.payment_id], Session)
            }
            if emails:
                await payment_store.set_payer_emails(tx, emails)
        return [outcomes[selection.payment_id] for selection in batch]

    def _new_sessions(
        self, locked_payments: LockedPayments, batch: Sequence[NewSelection]
    ) -> dict[UUID, Session | RefusedError]:
        """Return each payment's new session, or the error if the selection is refused."""
        payments_by_id = {payment.id: payment for payment in locked_payments.payments}
        outcomes: dict[UUID, Session | RefusedError] = {}
        for selection in batch:
            payment = payments_by_id[selection.payment_id]
            try:
                require_open(payment, locked_payments.now)
            except RefusedError as refusal:
                outcomes[payment.id] = refusal
            else:
                outcomes[payment.id] = self._new_session(selection, locked_payments.now)
        return outcomes

    def _new_session(self, selection: NewSelection, now: datetime) -> Session:
        return Session(
            id=self._database.id_generator.new_session_id(),
            payment_id=selection.payment_id,
            status=SessionStatus.OPENING,
            quote=selection.quote,
            return_url=selection.return_url,
            opened_at=now,
        )

    async def _apply_responses(self, batch: Sequence[GatewayResponse]) -> list[SelectedSession]:
        async with self._database.transaction(_lock_timeout_ms(batch)) as tx:
            records = await settlement_store.lock_records(
                tx,
                [response.session.payment_id for response in batch],
                dict.fromkeys(response.session.id for response in batch),
            )
            results = await self._open_created_sessions(tx, records, batch)
            await _end_failed_sessions(tx, records, batch)
        return [
            results.get(response.session.id)
            or SelectedSession(
                records.payments[response.session.payment_id],
                records.sessions[response.session.id],
                records.now,
            )
            for response in batch
        ]

    async def _open_created_sessions(
        self, tx: Tx, records: LockedRecords, batch: Sequence[GatewayResponse]
    ) -> dict[UUID, SelectedSession]:
        """Open the sessions that gateways have created, and return their current state by id."""
        created_sessions = [
            (
                records.payments[response.session.payment_id],
                _add_response(records, response, response.result),
            )
            for response in batch
            if isinstance(response.result, SessionCreated)
        ]
        selections = [
            (payment, session)
            for payment, session in created_sessions
            if session.status is SessionStatus.OPENING
            and payment.status not in TERMINAL
            and not payment.is_past_expiry(records.now)
        ]
        changed_payments = await complete_selections(tx, selections, records.now)
        changed_by_id = {payment.id: payment for payment in changed_payments}
        late_responses = [pair for pair in created_sessions if pair[0].id not in changed_by_id]
        await _store_late_responses(tx, late_responses, records.now)
        opened_sessions = [
            (changed_by_id[payment.id], replace(session, status=SessionStatus.OPEN))
            for payment, session in selections
        ]
        return {
            session.id: SelectedSession(payment, session, records.now)
            for payment, session in (*opened_sessions, *late_responses)
        }


async def _store_sessions(
    tx: Tx, locked_payments: LockedPayments, outcomes: dict[UUID, Session | RefusedError]
) -> None:
    """Store the new sessions. A session that cannot be stored is replaced with an error."""
    sessions_to_add = [outcome for outcome in outcomes.values() if isinstance(outcome, Session)]
    if not sessions_to_add:
        return
    payments_by_id = {payment.id: payment for payment in locked_payments.payments}
    for result in await session_store.add(tx, sessions_to_add, FIRST_INQUIRY_S, SELECTIONS_MAX):
        if result.earlier_count >= SELECTIONS_MAX:
            outcomes[result.payment_id] = _make_limit_error(
                payments_by_id[result.payment_id], locked_payments.now
            )
        elif not result.is_stored:
            outcomes[result.payment_id] = RefusedError(
                ErrorCode.CONFLICT,
                "another selection for this payment is in progress",
                retry_after_s=1,
            )


async def _store_late_responses(
    tx: Tx, late_responses: Sequence[tuple[Payment, Session]], now: datetime
) -> None:
    """Store gateway responses that no longer change a payment.

    Either a callback has already made the session current, or the response arrived too late.
    """
    if not late_responses:
        return
    await session_store.mark_open(tx, [session for _, session in late_responses])
    surplus_ids = [
        session.id for payment, session in late_responses if payment.session_id != session.id
    ]
    if surplus_ids:
        await session_store.mark_closing(tx, surplus_ids, now)


async def _end_failed_sessions(
    tx: Tx, records: LockedRecords, batch: Sequence[GatewayResponse]
) -> None:
    """End sessions that the gateway did not create, so that the buyer can select again.

    Sessions that may have been created are marked as closing; the inquiry loop closes them.
    """
    outcomes: dict[UUID, str] = {}
    uncertain_ids: list[UUID] = []
    for response in batch:
        session_id, result = response.session.id, response.result
        if records.sessions[session_id].status is not SessionStatus.OPENING:
            continue
        if isinstance(result, SessionRejected):
            outcomes[session_id] = "rejected"
        elif isinstance(result, NotContacted):
            outcomes[session_id] = "not_contacted"
        elif not isinstance(result, SessionCreated):
            uncertain_ids.append(session_id)
    if outcomes:
        await session_store.mark_ended(tx, outcomes, records.now)
    if uncertain_ids:
        await session_store.mark_closing(tx, uncertain_ids, records.now)


def _lock_timeout_ms(batch: Sequence[object]) -> int | None:
    return LOCK_TIMEOUT_MS if len(batch) > 1 else None


def _make_limit_error(payment: Payment, now: datetime) -> RefusedError:
    return RefusedError(
        ErrorCode.RATE_LIMITED,
        f"a payment method can be selected at most {SELECTIONS_MAX} times per payment",
        retry_after_s=max(1, ceil((payment.expires_at - now).total_seconds())),
    )


def _add_response(
    records: LockedRecords, response: GatewayResponse, result: SessionCreated
) -> Session:
    next_action = msgspec.json.encode(result.next_action).decode()
    return replace(
        records.sessions[response.session.id], reference=result.reference, next_action=next_action
    )
