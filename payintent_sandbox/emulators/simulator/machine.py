"""The simulator's state: sessions from creation to their end, captures, and their callbacks."""

import secrets
from collections.abc import Sequence

from payintent_sandbox.emulators.clock import ScaledClock
from payintent_sandbox.emulators.notifier import Notifier
from payintent_sandbox.emulators.simulator.callbacks import RETRY_WAITS_S, Callbacks
from payintent_sandbox.emulators.simulator.cards import Card, Late
from payintent_sandbox.emulators.simulator.journal import Journal
from payintent_sandbox.emulators.simulator.model import (
    DECIMALS,
    Account,
    Capture,
    Order,
    RefusalError,
    Session,
    Status,
    utc_now,
)
from payintent_sandbox.emulators.simulator.refunds import Refunds
from payintent_sandbox.emulators.simulator.rules import Rules

SESSIONS_MAX = 200_000
LATE_CAPTURE_S = 60
CONTRADICTION_S = 2  # between a decline and the capture that contradicts it
HANG_S = 35


class SimulatorEmulator:
    """All sessions of the simulator. State changes do not await, so each is atomic."""

    def __init__(self, accounts: Sequence[Account], time_scale: float) -> None:
        self.rules = Rules()
        self.journal = Journal()
        self._accounts = {account.api_key: account for account in accounts}
        self._sessions: dict[str, Session] = {}
        self._by_reference: dict[tuple[str, str], Session] = {}
        self._clock = ScaledClock(time_scale)
        self.notifier = Notifier(self._clock, RETRY_WAITS_S)
        self._callbacks = Callbacks(self.notifier, self.journal)
        self._captured: dict[str, Session] = {}  # by the capture's id
        self.refunds = Refunds(self._clock, self._callbacks)

    async def hang(self) -> None:
        """Wait longer than any caller's timeout."""
        await self._clock.wait(HANG_S)

    def account(self, authorization: str) -> Account:
        """Find the account for an `Authorization` header."""
        scheme, _, key = authorization.partition(" ")
        account = self._accounts.get(key.strip()) if scheme.lower() == "bearer" else None
        if account is None:
            raise RefusalError(401, "unknown API key")
        return account

    def create(self, account: Account, order: Order, pages_url: str) -> tuple[Session, bool]:
        """Open a session, or return the existing session; the flag is True for a new session."""
        if order.currency not in DECIMALS:
            raise RefusalError(422, f"unsupported currency: {order.currency}")
        existing = self.find(account, order.reference)
        if existing:
            if _price(existing.order) != _price(order):
                raise RefusalError(409, "this reference was used with a different amount")
            return existing, False
        if order.expires_at <= utc_now():
            raise RefusalError(422, "expires_at is in the past")
        if len(self._sessions) >= SESSIONS_MAX:
            raise RefusalError(503, f"{SESSIONS_MAX} sessions are stored; restart the simulator")
        return self._add(account, order, pages_url), True

    def find(self, account: Account, name: str) -> Session | None:
        """Find an account's session by its id or by the merchant's reference."""
        session = self._sessions.get(name) or self._by_reference.get((account.api_key, name))
        if session is None or session.account is not account:
            return None
        return _fresh(session)

    def captured(self, account: Account, capture_id: str) -> Session | None:
        """Find an account's session by the id of its capture."""
        session = self._captured.get(capture_id)
        return session if session and session.account is account else None

    def page(self, session_id: str) -> Session:
        """Find a payment page's session; the session id is a capability."""
        session = self._sessions.get(session_id)
        if session is None:
            raise RefusalError(404, "no such session")
        return _fresh(session)

    def close(self, session: Session) -> bool:
        """Close a session for the merchant; return False if it is paid or in a challenge."""
        if session.status in {Status.PAID, Status.AUTHORISING}:
            return False
        if session.status is Status.OPEN:
            session.status = Status.CLOSED
            if session.card and session.card.late:
                self._clock.start(self._capture_late(session))
        return True

    def pay(self, session: Session, card: Card) -> bool:
        """Accept the buyer's card; return False if the session no longer accepts one."""
        if not session.payable:
            return False
        session.card = card
        if card.challenge:
            session.status = Status.AUTHORISING
        elif card.late:
            if card.late is Late.AFTER_EXPIRY:
                self._clock.start(self._capture_after_expiry(session))
        elif card.decline_code:
            self._decline(session, card.decline_code)
        else:
            self._capture(session)
            self._clock.start(self._callbacks.send(session, card.calling))
        return True

    def answer_challenge(self, session: Session, *, approved: bool) -> bool:
        """End the challenge with the buyer's answer; return False if there is no challenge."""
        if session.status is not Status.AUTHORISING:
            return False
        if approved:
            self._capture(session)
            self._clock.start(self._callbacks.send(session))
        else:
            self._decline(session, "authentication_failed")
        return True

    def give_up(self, session: Session) -> bool:
        """Cancel a session for the buyer; return False if it has ended or has a card."""
        if not session.payable:
            return False
        session.status = Status.CANCELLED
        self._clock.start(self._callbacks.send(session))
        return True

    async def pay_before_answer(self, session: Session) -> None:
        """Capture the money, and send the callback before the response to the create request."""
        if session.payable:
            self._capture(session)
            await self._callbacks.send(session)

    def _add(self, account: Account, order: Order, pages_url: str) -> Session:
        session_id = f"ps_{secrets.token_hex(16)}"
        session = Session(
            id=session_id, account=account, order=order, pay_url=f"{pages_url}/pay/{session_id}"
        )
        self._sessions[session_id] = session
        self._by_reference[account.api_key, order.reference] = session
        return session

    def _capture(self, session: Session) -> None:
        order, card = session.order, session.card
        session.capture = Capture(
            id=f"cap_{secrets.token_hex(12)}",
            amount_minor=order.amount_minor + (card.extra_minor if card else 0),
            currency=_other(order.currency) if card and card.other_currency else order.currency,
            at=utc_now(),
        )
        self._captured[session.capture.id] = session
        session.status = Status.PAID
        session.decline_code = None

    def _decline(self, session: Session, code: str) -> None:
        session.status = Status.DECLINED
        session.decline_code = code
        self._clock.start(self._report_decline(session))

    async def _report_decline(self, session: Session) -> None:
        await self._callbacks.send(session)
        if session.card and session.card.paid_after_decline:
            await self._clock.wait(CONTRADICTION_S)
            self._capture(session)
            await self._callbacks.send(session)

    async def _capture_after_expiry(self, session: Session) -> None:
        await self._clock.wait_until(session.order.expires_at)
        await self._capture_late(session)

    async def _capture_late(self, session: Session) -> None:
        await self._clock.wait(LATE_CAPTURE_S)
        if session.capture is None:  # both a close and an expiry lead here
            self._capture(session)
            await self._callbacks.send(session)


def _fresh(session: Session) -> Session:
    if session.live and session.order.expires_at <= utc_now():
        session.status = Status.EXPIRED
    return session


def _price(order: Order) -> tuple[int, str]:
    return order.amount_minor, order.currency


def _other(currency: str) -> str:
    return "THB" if currency == "USD" else "USD"
