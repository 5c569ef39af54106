"""Plays the buyer and the bank at the test gateway, which then calls back with what happened.

The gateway's own tables change first, in one transaction, as an outside gateway's would. Then it
calls back, here in this process, and the service settles as after any callback. Where the process
dies in between, the inquirer asks, and whoever repeats the request has the callback sent again.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from payintent.domain.errors import ErrorCode, RefusedError
from payintent.domain.gateway import DisputeState
from payintent.domain.payment import OPEN, IdempotentRequest, Payment
from payintent.domain.session import Session, SessionStatus
from payintent.domain.test_cards import CHALLENGE_CARD, DECLINED_CARDS, TEST_CARDS
from payintent.domain.test_gateway import (
    PROVIDER,
    TestSession,
    TestSessionStatus,
    answer_challenge,
    list_notices,
    move_dispute,
    play_card,
)
from payintent.gateways.test_gateway import write_callback
from payintent.payments.answer_callback import answer_callback
from payintent.payments.idempotency import claim_or_match, request_fingerprint, require_match
from payintent.payments.policy_cache import PolicyCache
from payintent.payments.receive_callback import CallbackReceiver
from payintent.payments.select_quote import QuoteSelection, SelectionContext, select_quote
from payintent.storage import idempotency, test_gateway
from payintent.storage.database import Tx
from payintent.storage.idempotency import FirstRequest
from payintent.storage.payments import PaymentSnapshot

Step = Callable[[TestSession, datetime], TestSession | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class TestRequest:
    """One request of a test key: its words, for its key's sake, and the step that it takes."""

    operation: str
    fields: tuple[str, ...]
    key: UUID | None
    step: Step

    def under_key(self, merchant_id: int, key: UUID) -> IdempotentRequest:
        """Return what recognises a repetition of this request under its key."""
        return IdempotentRequest(
            merchant_id=merchant_id,
            key=key,
            request_hash=request_fingerprint(self.operation, fields=self.fields),
            as_sent=(self.operation, *self.fields),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BuyerSimulator:
    """Enters cards at the test gateway, answers 3-D Secure, and disputes."""

    selection: SelectionContext
    policies: PolicyCache
    receiver: CallbackReceiver

    async def pay(self, snapshot: PaymentSnapshot, request: TestRequest) -> bool:
        """Take a step as the buyer, and select the test card first where that is not done.

        Gives False for a repetition of the same key. Raises `INVALID_PAYMENT_STATE` where the
        payment or its session waits for no buyer, `IDEMPOTENCY_CONFLICT`, and what a selection
        raises.
        """
        payment = snapshot.payment
        if await self._is_repeated(payment, request):
            return await self._again(snapshot)
        if payment.status not in OPEN or payment.is_past_expiry(snapshot.now):
            raise _wrong_status(payment)
        session = snapshot.session
        if session is None or not _is_at_test_gateway(session):
            session = await self._select(snapshot)
        return await self._take(payment, session.id, request)

    async def dispute(self, snapshot: PaymentSnapshot, request: TestRequest) -> bool:
        """Take a step as the buyer's bank, once the payment is paid; as `pay` otherwise."""
        if await self._is_repeated(snapshot.payment, request):
            return await self._again(snapshot)
        session = snapshot.session
        if session is None or session.quote.provider != PROVIDER:
            raise _wrong_status(snapshot.payment)
        return await self._take(snapshot.payment, session.id, request)

    async def enter(self, session_id: UUID, step: Step) -> TestSession:
        """Take a step at a session, from the card page; `INVALID_CHECKOUT_STATE` if too late."""
        async with self.selection.database.transaction() as tx:
            after = await _step(tx, session_id, step)
            if after is None:
                raise RefusedError(ErrorCode.INVALID_CHECKOUT_STATE, "it takes no card any more")
        await self._tell(after)
        return after

    async def _take(self, payment: Payment, session_id: UUID, request: TestRequest) -> bool:
        async with self.selection.database.transaction() as tx:
            fresh = request.key is None or await _claim(tx, payment, request, request.key)
            after = await _step(tx, session_id, request.step if fresh else _stay)
            if after is None:
                raise _wrong_status(payment)
        await self._tell(after)
        return fresh

    async def _again(self, snapshot: PaymentSnapshot) -> bool:
        """Call back once more of what a repeated request did: that may have been cut short."""
        if snapshot.session is not None and snapshot.session.quote.provider == PROVIDER:
            found = await test_gateway.find_session(self.selection.database, snapshot.session.id)
            if found is not None:
                await self._tell(found)
        return False

    async def _is_repeated(self, payment: Payment, request: TestRequest) -> bool:
        if request.key is None:
            return False
        first = await idempotency.find_first_request(
            self.selection.database, payment.merchant_id, request.operation, request.key
        )
        if first is None:
            return False
        require_match(first, request.under_key(payment.merchant_id, request.key))
        return True

    async def _select(self, snapshot: PaymentSnapshot) -> Session:
        setup = await self.selection.merchants.get(snapshot.payment.merchant_id)
        method = next((m for m in setup.methods if m.provider == PROVIDER and m.enabled), None)
        if method is None:
            raise RefusedError(
                ErrorCode.PAYMENT_METHOD_NOT_FOUND, "this test side has no method of test cards"
            )
        selection = QuoteSelection(
            payment_method_id=method.id, restrictions=await self.policies.restrictions()
        )
        return (await select_quote(self.selection, snapshot, selection)).session

    async def _tell(self, session: TestSession) -> None:
        """Call back of a session, through the same door as any gateway."""
        connection = await self.selection.accounts.connect(session.account_id, PROVIDER)
        assert connection is not None  # noqa: S101 - the session was opened through it
        for number, notice in enumerate(list_notices(session)):
            signed = write_callback(connection.account, notice, spaces=number)
            await answer_callback(self.receiver, connection, signed)


def enter_card(number: str) -> Step:
    def step(session: TestSession, now: datetime) -> TestSession | None:
        if session.status is TestSessionStatus.CHALLENGE and TEST_CARDS[number].challenge:
            return answer_challenge(session, approved=True)
        entered = play_card(session, number, now)
        if entered is None or entered.status is not TestSessionStatus.CHALLENGE:
            return entered
        return answer_challenge(entered, approved=True)

    return step


def enter_declined_card(code: str) -> Step:
    number = DECLINED_CARDS[code]

    def step(session: TestSession, now: datetime) -> TestSession | None:
        if session.status is TestSessionStatus.CHALLENGE and number == CHALLENGE_CARD:
            return answer_challenge(session, approved=False)
        entered = play_card(session, number, now)
        if entered is None or entered.status is not TestSessionStatus.CHALLENGE:
            return entered
        return answer_challenge(entered, approved=False)

    return step


def decide_dispute(state: DisputeState) -> Step:
    return lambda session, _now: move_dispute(session, state)


def _stay(session: TestSession, _now: datetime) -> TestSession:
    return session


async def _step(tx: Tx, session_id: UUID, step: Step) -> TestSession | None:
    locked = await test_gateway.lock_session(tx, session_id)
    after = step(locked.session, locked.now) if locked else None
    if after is not None:
        await test_gateway.update_session(tx, after)
    return after


async def _claim(tx: Tx, payment: Payment, request: TestRequest, key: UUID) -> bool:
    attempt = request.under_key(payment.merchant_id, key)
    first = FirstRequest(request_hash=attempt.request_hash, payment_id=payment.id, country=None)
    return await claim_or_match(tx, request.operation, attempt, first) is None


def _is_at_test_gateway(session: Session) -> bool:
    return session.quote.provider == PROVIDER and session.status is SessionStatus.OPEN


def _wrong_status(payment: Payment) -> RefusedError:
    return RefusedError(
        ErrorCode.INVALID_PAYMENT_STATE,
        f"this cannot happen to a payment in {payment.status} status, or not any more",
    )
