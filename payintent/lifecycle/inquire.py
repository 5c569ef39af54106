"""The janitor: asks providers about sessions that have not ended, and closes unwanted ones.

Callbacks get lost, processes die, gateways answer late: what is asked here repairs all of that.
"""

from dataclasses import dataclass

from payintent.domain import ids
from payintent.domain.gateway import Report, SessionState, Unknown
from payintent.domain.session import Life, Session
from payintent.domain.settlement import CaseKind
from payintent.lifecycle.accounts import Accounts
from payintent.lifecycle.advance import lock
from payintent.lifecycle.health import Channel
from payintent.lifecycle.mint import Mint
from payintent.lifecycle.settle import settle
from payintent.log import get
from payintent.storage import captures, sessions
from payintent.storage.captures import Place
from payintent.storage.database import Database
from payintent.storage.sessions import Ask

_log = get("inquire")

#: Seconds between questions, the last one again and again; the first comes 30 s after opening.
OPEN_WAITS_S = (120.0, 600.0, 3600.0)
#: A payment may be waiting for its session to close, so this begins at once and in earnest.
CLOSING_WAITS_S = (5.0, 10.0, 15.0, 30.0, 120.0, 600.0, 3600.0)
DECIDING_WAIT_S = 30.0
#: A request of ours may still be on its way when a provider says that it knows nothing of it.
ABSENT_PROVES_AFTER_S = 600
GIVE_UP_AFTER_S = 7 * 24 * 3600

_ABSENT = SessionState.ABSENT


@dataclass(frozen=True, slots=True, kw_only=True)
class Janitor:
    """What the janitor works with."""

    database: Database
    accounts: Accounts
    mint: Mint

    async def inquire(self, ask: Ask) -> None:
        """Ask about one session, apply the answer, and set the next question."""
        session = ask.session
        age_s = (ask.now - session.opened_at).total_seconds()
        answer = await self._ask(session)
        if isinstance(answer, Report):
            if _holds_up(session, answer):
                await sessions.answered(self.database, session.id)
            else:
                await sessions.silent(self.database, session.id)
            await self._apply(session, answer, age_s)
        else:
            await sessions.silent(self.database, session.id)
            _log.warning(
                "provider_silent", session=ids.text(ids.SESSION, session.id), why=answer.detail
            )
        wait_s: float | None = _wait_s(session, answer)
        if session.life is Life.OPENING:
            await self._release(session)
        elif age_s > GIVE_UP_AFTER_S:
            await self._hand_over(session)
            wait_s = None
        await sessions.ask_again(self.database, session, wait_s)

    async def _ask(self, session: Session) -> Report | Unknown:
        account = await self.accounts.open(session.offer.account_id)
        gateway = self.accounts.gateway(session.offer.provider)
        if account is None or gateway is None:
            return Unknown(detail="no account or adapter")
        ask = gateway.close_session if session.life is Life.CLOSING else gateway.inquire
        answer = await ask(account, session.ref)
        await self.accounts.health.note(account.id, Channel.SESSIONS, answer)
        return answer

    async def _apply(self, session: Session, report: Report, age_s: float) -> None:
        absent_for_good = report.state is _ABSENT and age_s > ABSENT_PROVES_AFTER_S
        if session.life is Life.CLOSING and absent_for_good:
            report = Report(state=SessionState.CLOSED)
        async with self.database.transaction() as tx:
            await settle(tx, self.mint, session.payment_id, session.id, report)

    async def _release(self, session: Session) -> None:
        """Give up a selection that nobody finished, so that the buyer can make another."""
        async with self.database.transaction() as tx:
            locked = await lock(tx, [session.payment_id])
            present = await sessions.lock(tx, session.id)
            if present.life is Life.OPENING:
                await sessions.close(tx, [session.id], locked.now)

    async def _hand_over(self, session: Session) -> None:
        """After a week without a last word a person must look; nobody is asked any more."""
        async with self.database.transaction() as tx:
            locked = await lock(tx, [session.payment_id])
            present = await sessions.lock(tx, session.id)
            if present.life is Life.ENDED:
                return
            place = Place(
                merchant_id=locked.payments[0].merchant_id,
                payment_id=session.payment_id,
                session_id=session.id,
                account_id=session.offer.account_id,
                at=locked.now,
            )
            await captures.open_case(tx, self.mint.id(), CaseKind.UNKNOWN_REFERENCE, place, None)


def _holds_up(session: Session, report: Report) -> bool:
    """Tell whether an answer is a reason for an elapsed payment to wait.

    A gateway that cannot close leaves a session open at which nothing happens. That is no more
    than silence: the payment expires, and money that comes after all is a case.
    """
    return session.life is not Life.CLOSING or report.state is not SessionState.OPEN


def _wait_s(session: Session, answer: Report | Unknown) -> float:
    waits = CLOSING_WAITS_S if session.life is Life.CLOSING else OPEN_WAITS_S
    wait_s = waits[min(session.inquiries, len(waits) - 1)]
    deciding = isinstance(answer, Report) and answer.state is SessionState.AUTHORISING
    # A payment may be held up by what is being decided, so it is asked for again soon.
    return min(wait_s, DECIDING_WAIT_S) if deciding and session.life is Life.CLOSING else wait_s
