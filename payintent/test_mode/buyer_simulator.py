"""Simulate buyers and banks at the test gateway.

The gateway's tables are updated first, in one transaction. Then this process handles the gateway's
callback like any other callback. If the process crashes in between, an inquiry or a repeated
request completes the settlement.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from payintent.callbacks.receive import CallbackReceiver, handle_callback
from payintent.chains.store import TEST_DEPOSIT_PROVIDER
from payintent.core.errors import ErrorCode, RefusedError
from payintent.core.money import TENDER
from payintent.db.database import Tx
from payintent.fraud.policy_cache import PolicyCache
from payintent.gateways.port import DisputeState
from payintent.merchants.provisioning import TEST_PROVIDER
from payintent.payment_sessions.select_quote import QuoteSelection, SelectionContext, select_quote
from payintent.payments import idempotency_store
from payintent.payments.idempotency_store import (
    claim_or_match,
    compute_request_fingerprint,
    require_match,
)
from payintent.payments.model import OPEN, IdempotentRequest, Payment, Session, SessionStatus
from payintent.payments.store import PaymentSnapshot
from payintent.test_mode import deposits
from payintent.test_mode import store as test_mode_store
from payintent.test_mode.deposits import TestTransfer
from payintent.test_mode.gateway import write_callback
from payintent.test_mode.model import (
    DECLINED_CARDS,
    TEST_CARDS,
    TestSession,
    TestSessionStatus,
    complete_challenge,
    enter_test_card,
    list_callbacks,
    list_deposit_callbacks,
    set_dispute_state,
)

TEST_PROVIDERS = {TEST_PROVIDER, TEST_DEPOSIT_PROVIDER}
SessionAction = Callable[[TestSession, datetime], TestSession | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class TestRequest:
    """A request to a test mode route. A retry has the same `operation`, `fields` and `key`."""

    operation: str
    fields: tuple[str, ...]
    key: UUID | None
    action: SessionAction | TestTransfer

    def to_idempotent_request(self, merchant_id: int, key: UUID) -> IdempotentRequest:
        return IdempotentRequest(
            merchant_id=merchant_id,
            key=key,
            request_hash=compute_request_fingerprint(self.operation, fields=self.fields),
            raw_fields=(self.operation, *self.fields),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BuyerSimulator:
    selection: SelectionContext
    policies: PolicyCache
    receiver: CallbackReceiver

    async def pay(self, snapshot: PaymentSnapshot, request: TestRequest) -> bool:
        """Apply a buyer's action, selecting the test card method first if necessary.

        Returns False if the key has already been used for the same request. Raises
        `INVALID_PAYMENT_STATE` if the payment or its session is not waiting for the buyer. Can also
        raise `IDEMPOTENCY_CONFLICT` and the errors of `select_quote`.
        """
        payment = snapshot.payment
        if await self._is_key_used(payment, request):
            return await self._repeat_callbacks(snapshot)
        if payment.status not in OPEN or payment.is_past_expiry(snapshot.now):
            raise _make_wrong_status_error(payment)
        session = snapshot.session
        if session is None or not _is_open_at(session, TEST_PROVIDER):
            session = await self._select_test_method(snapshot, TEST_PROVIDER)
        return await self._apply(payment, session.id, request)

    async def transfer(self, snapshot: PaymentSnapshot, request: TestRequest) -> bool:
        """Send a transfer to the payment's test address, selecting the method if necessary.

        A transfer to a payment that has ended opens a case, as on a real chain. The result is the
        same as for `pay`.
        """
        payment, session = snapshot.payment, snapshot.session
        if await self._is_key_used(payment, request):
            return await self._repeat_callbacks(snapshot)
        if session is None or session.quote.provider != TEST_DEPOSIT_PROVIDER:
            if payment.status not in OPEN or payment.is_past_expiry(snapshot.now):
                raise _make_wrong_status_error(payment)
            session = await self._select_test_method(snapshot, TEST_DEPOSIT_PROVIDER)
        return await self._apply(payment, session.id, request)

    async def dispute(self, snapshot: PaymentSnapshot, request: TestRequest) -> bool:
        """Apply an action of the buyer's bank to a paid payment.

        The result is the same as for `pay`.
        """
        if await self._is_key_used(snapshot.payment, request):
            return await self._repeat_callbacks(snapshot)
        session = snapshot.session
        if session is None or session.quote.provider != TEST_PROVIDER:
            raise _make_wrong_status_error(snapshot.payment)
        return await self._apply(snapshot.payment, session.id, request)

    async def send_from_page(self, session_id: UUID, transfer: TestTransfer) -> None:
        """Send a transfer for a buyer on the deposit page, if the session still exists."""
        async with self.selection.database.transaction() as tx:
            session = await deposits.add_transfer(tx, session_id, transfer)
        if session is not None:
            await self._send_callbacks(session)

    async def apply_card_action(self, session_id: UUID, action: SessionAction) -> TestSession:
        """Apply an action on the card page.

        Raises `INVALID_CHECKOUT_STATE` if the session does not accept the action.
        """
        async with self.selection.database.transaction() as tx:
            updated_session = await _apply_action(tx, session_id, action)
            if updated_session is None:
                raise RefusedError(
                    ErrorCode.INVALID_CHECKOUT_STATE, "this session no longer accepts a card"
                )
        await self._send_callbacks(updated_session)
        return updated_session

    async def _apply(self, payment: Payment, session_id: UUID, request: TestRequest) -> bool:
        async with self.selection.database.transaction() as tx:
            is_new = request.key is None or await _claim_key(tx, payment, request, request.key)
            updated_session = await _apply_request(
                tx, session_id, request.action if is_new else _leave_unchanged
            )
            if updated_session is None:
                raise _make_wrong_status_error(payment)
        await self._send_callbacks(updated_session)
        return is_new

    async def _repeat_callbacks(self, snapshot: PaymentSnapshot) -> bool:
        """Resend the callbacks in case the first request was interrupted. Always returns False."""
        if snapshot.session is not None and snapshot.session.quote.provider in TEST_PROVIDERS:
            session = await test_mode_store.find_session(
                self.selection.database, snapshot.session.id
            )
            if session is not None:
                await self._send_callbacks(session)
        return False

    async def _is_key_used(self, payment: Payment, request: TestRequest) -> bool:
        if request.key is None:
            return False
        first_request = await idempotency_store.find_first_request(
            self.selection.database, payment.merchant_id, request.operation, request.key
        )
        if first_request is None:
            return False
        require_match(
            first_request, request.to_idempotent_request(payment.merchant_id, request.key)
        )
        return True

    async def _select_test_method(self, snapshot: PaymentSnapshot, provider: str) -> Session:
        setup = await self.selection.merchants.get(snapshot.payment.merchant_id)
        method = next(
            (method for method in setup.methods if method.provider == provider and method.enabled),
            None,
        )
        if method is None:
            raise RefusedError(
                ErrorCode.PAYMENT_METHOD_NOT_FOUND, "the test merchant has no such test method"
            )
        selection = QuoteSelection(payment_method_id=method.id)
        restrictions = await self.policies.get_restrictions()
        return (await select_quote(self.selection, snapshot, selection, restrictions)).session

    async def _send_callbacks(self, session: TestSession) -> None:
        is_deposit = TENDER[session.currency].is_crypto
        provider = TEST_DEPOSIT_PROVIDER if is_deposit else TEST_PROVIDER
        connection = await self.selection.accounts.connect(session.account_id, provider)
        assert connection is not None  # noqa: S101 - the session was opened through it
        test_callbacks = list_callbacks(session)
        if is_deposit:
            reports = await deposits.list_reports(self.selection.database, session.session_id)
            test_callbacks = list_deposit_callbacks(session, reports)
        for number, test_callback in enumerate(test_callbacks):
            callback = write_callback(connection.account, test_callback, spaces=number)
            await handle_callback(self.receiver, connection, callback)


def enter_card(number: str) -> SessionAction:
    return _build_card_action(number, approved=True)


def enter_declined_card(code: str) -> SessionAction:
    return _build_card_action(DECLINED_CARDS[code], approved=False)


def _build_card_action(number: str, *, approved: bool) -> SessionAction:
    """Return an action that enters a card and completes its challenge.

    If the challenge is already open, the action only completes it.
    """

    def action(session: TestSession, now: datetime) -> TestSession | None:
        is_challenge = session.status is TestSessionStatus.CHALLENGE
        if is_challenge and TEST_CARDS[number].requires_challenge:
            return complete_challenge(session, approved=approved)
        new_session = enter_test_card(session, number, now)
        if new_session is None or new_session.status is not TestSessionStatus.CHALLENGE:
            return new_session
        return complete_challenge(new_session, approved=approved)

    return action


def decide_dispute(state: DisputeState) -> SessionAction:
    return lambda session, _now: set_dispute_state(session, state)


def _leave_unchanged(session: TestSession, _now: datetime) -> TestSession:
    return session


async def _apply_request(
    tx: Tx, session_id: UUID, action: SessionAction | TestTransfer
) -> TestSession | None:
    if isinstance(action, TestTransfer):
        return await deposits.add_transfer(tx, session_id, action)
    return await _apply_action(tx, session_id, action)


async def _apply_action(tx: Tx, session_id: UUID, action: SessionAction) -> TestSession | None:
    locked_session = await test_mode_store.lock_session(tx, session_id)
    updated_session = action(locked_session.session, locked_session.now) if locked_session else None
    if updated_session is not None:
        await test_mode_store.update_session(tx, updated_session)
    return updated_session


async def _claim_key(tx: Tx, payment: Payment, request: TestRequest, key: UUID) -> bool:
    idempotent_request = request.to_idempotent_request(payment.merchant_id, key)
    return await claim_or_match(tx, request.operation, idempotent_request, payment.id) is None


def _is_open_at(session: Session, provider: str) -> bool:
    return session.quote.provider == provider and session.status is SessionStatus.OPEN


def _make_wrong_status_error(payment: Payment) -> RefusedError:
    return RefusedError(
        ErrorCode.INVALID_PAYMENT_STATE,
        f"this is not possible for a payment in {payment.status} status",
    )
