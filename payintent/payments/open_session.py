"""A selection's session: stored before its gateway is called, and opened by what that answers.

Selections that arrive together share the statements and the commit of each step; every one of them
has an outcome of its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from math import ceil
from uuid import UUID

import msgspec

from payintent.domain.errors import ErrorCode, RefusedError
from payintent.domain.gateway import (
    NotContacted,
    OutcomeUnknown,
    SessionCreated,
    SessionRejected,
)
from payintent.domain.payment import TERMINAL, Payment
from payintent.domain.quote import Quote
from payintent.domain.session import Session, SessionStatus
from payintent.payments.expire import checkout_expired_error, require_not_ended
from payintent.payments.settle import complete_selections
from payintent.payments.transitions import lock_payments
from payintent.storage import new_sessions, payments, sessions, settlements
from payintent.storage.batcher import LOCK_TIMEOUT_MS, Batcher
from payintent.storage.database import Database, Tx
from payintent.storage.payments import LockedPayments
from payintent.storage.settlements import LockedRecords

#: A buyer who has selected so often has made us call gateways often enough.
SELECTIONS_MAX = 20
#: A selection whose process died is inquired about, but not before this time.
FIRST_INQUIRY_S = 30.0
_LATE_S = 0.1  # of a transaction of several statements

#: What a gateway answers to the creation of a session.
SessionAnswer = SessionCreated | SessionRejected | OutcomeUnknown


@dataclass(frozen=True, slots=True)
class NewSelection:
    payment_id: UUID
    quote: Quote
    return_url: str | None
    payer_email: str | None


@dataclass(frozen=True, slots=True)
class SelectedSession:
    """The selected session as it is now, and its payment, by the database's clock."""

    payment: Payment
    session: Session
    now: datetime


@dataclass(frozen=True, slots=True)
class AnsweredSession:
    session: Session
    answer: SessionAnswer


class SessionOpener:
    """Stores sessions and opens them; those that arrive together share transactions.

    Two selections of one payment never do: the second has to see what the first has done.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._counting: Batcher[UUID, int] = Batcher(
            together=partial(new_sessions.count_batch, database),
        )
        self._storing: Batcher[NewSelection, Session | RefusedError] = Batcher(
            together=self._store,
            identities=lambda selection: [selection.payment_id],
            late_s=_LATE_S,
        )
        self._answering: Batcher[AnsweredSession, SelectedSession] = Batcher(
            together=self._answer,
            identities=lambda answered: [answered.session.payment_id],
            late_s=_LATE_S,
        )

    async def require_room(self, payment: Payment, now: datetime) -> None:
        """Raise `RATE_LIMITED` where the buyer has selected too often; it can be paid as it is."""
        if await self._counting.run(payment.id) >= SELECTIONS_MAX:
            raise _used_up(payment, now)

    async def store(self, selection: NewSelection) -> Session:
        """Store a session as `opening`.

        Raises `CHECKOUT_EXPIRED`, `INVALID_CHECKOUT_STATE` (the payment has ended), `RATE_LIMITED`
        (too many selections), `CONFLICT` (another selection runs).
        """
        stored = await self._storing.run(selection)
        if isinstance(stored, RefusedError):
            raise stored
        return stored

    async def answer(self, session: Session, answer: SessionAnswer) -> SelectedSession:
        """Apply the gateway's answer, unless a callback or the deadline was faster.

        The session is the payment's own where it was opened; else it is closed, or has ended.
        """
        return await self._answering.run(AnsweredSession(session, answer))

    async def close(self) -> None:
        await self._counting.close()
        await self._storing.close()
        await self._answering.close()

    async def _store(self, batch: Sequence[NewSelection]) -> list[Session | RefusedError]:
        async with self._database.transaction(_patience_ms(batch)) as tx:
            locked = await lock_payments(tx, [selection.payment_id for selection in batch])
            outcomes = self._judge(locked, batch)
            await _add(tx, locked, outcomes)
            stored = {item.payment_id for item in outcomes.values() if isinstance(item, Session)}
            emails = {
                selection.payment_id: selection.payer_email
                for selection in batch
                if selection.payer_email is not None and selection.payment_id in stored
            }
            if emails:
                await payments.set_payer_emails(tx, emails)
        return [outcomes[selection.payment_id] for selection in batch]

    def _judge(
        self, locked: LockedPayments, batch: Sequence[NewSelection]
    ) -> dict[UUID, Session | RefusedError]:
        """Return by payment what may be stored, or why it is refused."""
        present = {payment.id: payment for payment in locked.payments}
        outcomes: dict[UUID, Session | RefusedError] = {}
        for selection in batch:
            try:
                _require_open(present[selection.payment_id], locked.now)
            except RefusedError as refused:
                outcomes[selection.payment_id] = refused
            else:
                session_id = self._database.id_generator.new_session_id()
                outcomes[selection.payment_id] = _opening(selection, session_id, locked.now)
        return outcomes

    async def _answer(self, batch: Sequence[AnsweredSession]) -> list[SelectedSession]:
        async with self._database.transaction(_patience_ms(batch)) as tx:
            locked = await settlements.load(
                tx,
                [answered.session.payment_id for answered in batch],
                dict.fromkeys(answered.session.id for answered in batch),
            )
            opened = await self._open(tx, locked, batch)
            await _give_up(tx, locked, batch)
        return [
            opened.get(answered.session.id)
            or SelectedSession(
                locked.payments[answered.session.payment_id],
                locked.sessions[answered.session.id],
                locked.now,
            )
            for answered in batch
        ]

    async def _open(
        self, tx: Tx, locked: LockedRecords, batch: Sequence[AnsweredSession]
    ) -> dict[UUID, SelectedSession]:
        """Write what gateways have created; gives each session and its payment as they are now."""
        created = [
            (locked.payments[item.session.payment_id], _answered(locked, item, item.answer))
            for item in batch
            if isinstance(item.answer, SessionCreated)
        ]
        wanted = [
            (payment, session)
            for payment, session in created
            if session.status is SessionStatus.OPENING
            and payment.status not in TERMINAL
            and not payment.is_past_expiry(locked.now)
        ]
        changed = await complete_selections(tx, wanted, locked.now)
        present = {payment.id: payment for payment in changed}
        late = [(payment, session) for payment, session in created if payment.id not in present]
        await _mark_late(tx, late, locked.now)
        opened = [replace(session, status=SessionStatus.OPEN) for _, session in wanted]
        found = {
            session.id: SelectedSession(present[session.payment_id], session, locked.now)
            for session in opened
        }
        for payment, session in late:
            found[session.id] = SelectedSession(payment, session, locked.now)
        return found


async def _add(
    tx: Tx, locked: LockedPayments, outcomes: dict[UUID, Session | RefusedError]
) -> None:
    """Store the sessions among outcomes; one that cannot be gives way to why."""
    wanted = [item for item in outcomes.values() if isinstance(item, Session)]
    if not wanted:
        return
    present = {payment.id: payment for payment in locked.payments}
    for added in await new_sessions.add(tx, wanted, FIRST_INQUIRY_S, SELECTIONS_MAX):
        if added.earlier >= SELECTIONS_MAX:
            outcomes[added.payment_id] = _used_up(present[added.payment_id], locked.now)
        elif not added.stored:
            outcomes[added.payment_id] = RefusedError(
                ErrorCode.CONFLICT, "another selection is running", retry_after_s=1
            )


async def _mark_late(tx: Tx, late: Sequence[tuple[Payment, Session]], now: datetime) -> None:
    """Keep the answers that change no payment any more.

    A callback was faster (then the session is the payment's own), or the answer came too late.
    """
    if not late:
        return
    await sessions.mark_open(tx, [session for _, session in late])
    unwanted = [session.id for payment, session in late if payment.session_id != session.id]
    if unwanted:
        await sessions.mark_closing(tx, unwanted, now)


async def _give_up(tx: Tx, locked: LockedRecords, batch: Sequence[AnsweredSession]) -> None:
    """Let buyers select again: nothing exists there, or the inquiry loop closes the session."""
    ended: dict[UUID, str] = {}
    closing: list[UUID] = []
    for item in batch:
        session_id, answer = item.session.id, item.answer
        if locked.sessions[session_id].status is not SessionStatus.OPENING:
            continue
        if isinstance(answer, SessionRejected):
            ended[session_id] = "rejected"
        elif isinstance(answer, NotContacted):
            ended[session_id] = "not_contacted"
        elif not isinstance(answer, SessionCreated):
            closing.append(session_id)
    if ended:
        await sessions.mark_all_ended(tx, ended, locked.now)
    if closing:
        await sessions.mark_closing(tx, closing, locked.now)


def _patience_ms(batch: Sequence[object]) -> int | None:
    return LOCK_TIMEOUT_MS if len(batch) > 1 else None


def _require_open(payment: Payment, now: datetime) -> None:
    if payment.is_past_expiry(now):
        raise checkout_expired_error()
    require_not_ended(payment)


def _used_up(payment: Payment, now: datetime) -> RefusedError:
    return RefusedError(
        ErrorCode.RATE_LIMITED,
        f"this checkout has been selected {SELECTIONS_MAX} times",
        retry_after_s=max(1, ceil((payment.expires_at - now).total_seconds())),
    )


def _opening(selection: NewSelection, session_id: UUID, now: datetime) -> Session:
    return Session(
        id=session_id,
        payment_id=selection.payment_id,
        status=SessionStatus.OPENING,
        outcome=None,
        quote=selection.quote,
        reference=None,
        next_action=None,
        return_url=selection.return_url,
        inquiries=0,
        declines=0,
        opened_at=now,
        closing_at=None,
    )


def _answered(locked: LockedRecords, item: AnsweredSession, answer: SessionCreated) -> Session:
    next_action = msgspec.json.encode(answer.next_action).decode()
    return replace(
        locked.sessions[item.session.id], reference=answer.reference, next_action=next_action
    )
