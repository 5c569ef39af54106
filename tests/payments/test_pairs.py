"""The buyer switches gateways, and the abandoned gateway reports a payment.

The tests run for every ordered pair of the service's adapters, with fake gateways that have their
names, capabilities and behaviour. In any order of events, a payment has one end and at most one
credited capture. Every surplus capture opens a case, and is refunded if automatic refunds are
enabled.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from decimal import Decimal
from uuid import UUID, uuid4

import pytest

from payintent.core.errors import ErrorCode, RefusedError
from payintent.gateway_accounts.operations import AddAccount
from payintent.gateways.port import (
    Capture,
    FailureReason,
    GatewayAccount,
    GatewayCapabilities,
    GatewaySessionRef,
    GatewaySessionRequest,
    GatewaySessionState,
    OutcomeUnknown,
    RefundSupport,
    SessionCreated,
    SessionRejected,
    SessionReport,
    VerifiedCallback,
)
from payintent.merchants import methods_store as method_store
from payintent.payment_sessions.settle import settle_session
from payintent.payments import sessions_store as sessions
from payintent.payments import store as payment_store
from payintent.payments.cancel import cancel_by_merchant
from payintent.payments.model import Payment
from payintent.runtime.settings import Settings
from payintent.service import Service, open_service
from tests.payments.test_expire import TTL_S, inquire_all, sweep
from tests.refunds.refund_setup import process_due_refunds, set_auto_refund
from tests.support.fakes import FakeGateway
from tests.support.race_staging import hold_transaction, wait_until_blocked
from tests.support.world import World, make_world

pytestmark = pytest.mark.full

TOTAL_MINOR = 159000


@dataclass(frozen=True)
class Behaviour:
    """The behaviour of a gateway, as far as it affects the payment lifecycle."""

    attempts: bool = False  # the buyer can try again after a decline
    closes: bool = True  # open sessions can be closed
    calls_back: bool = True


#: The behaviour of every installed adapter.
BEHAVIOURS = {
    "simulator": Behaviour(),
    "stripe": Behaviour(attempts=True),
    "ecpay": Behaviour(closes=False),
    "2c2p": Behaviour(closes=False),
    "gateway_contract": Behaviour(closes=False, calls_back=False),
    "onchain": Behaviour(closes=False, calls_back=False),
}


class ImitatedGateway(FakeGateway):
    """A gateway that records its sessions and imitates an adapter's behaviour."""

    def __init__(self, provider: str, capabilities: GatewayCapabilities) -> None:
        super().__init__()
        self.provider = provider
        self.capabilities = replace(capabilities, credentials=frozenset({"signing_secret"}))
        self.behaviour = BEHAVIOURS[provider]
        self.reports: dict[UUID, SessionReport] = {}
        self.crashes = False

    async def create_session(
        self, account: GatewayAccount, request: GatewaySessionRequest
    ) -> SessionCreated | SessionRejected | OutcomeUnknown:
        answer = await super().create_session(account, request)
        self.reports[request.session_id] = SessionReport(state=GatewaySessionState.OPEN)
        if self.crashes:
            raise Crash
        return answer

    async def inquire(
        self, account: GatewayAccount, session: GatewaySessionRef
    ) -> SessionReport | OutcomeUnknown:
        await super().inquire(account, session)
        return self.reports[session.session_id]

    async def close_session(
        self, account: GatewayAccount, session: GatewaySessionRef
    ) -> SessionReport | OutcomeUnknown:
        await super().close_session(account, session)
        if (
            self.behaviour.closes
            and self.reports[session.session_id].state is GatewaySessionState.OPEN
        ):
            self.reports[session.session_id] = SessionReport(state=GatewaySessionState.CLOSED)
        return self.reports[session.session_id]

    def pay(self, session_id: UUID) -> SessionReport:
        """Let the buyer pay, regardless of the session's state in our database."""
        capture = Capture(reference=f"cap-{uuid4()}", amount_minor=TOTAL_MINOR, currency="TWD")
        self.reports[session_id] = SessionReport(
            state=GatewaySessionState.CAPTURED, capture=capture
        )
        return self.reports[session_id]

    def close_open_sessions(self) -> None:
        """Report that all open sessions can no longer be paid."""
        for session_id, report in self.reports.items():
            if report.state is GatewaySessionState.OPEN:
                self.reports[session_id] = SessionReport(state=GatewaySessionState.CLOSED)


class Crash(BaseException):
    """The process crashes during the gateway request."""


@dataclass
class Side:
    """A gateway of a pair: its account, and the merchant's method there."""

    gateway: ImitatedGateway
    account_id: int
    method_id: int


@dataclass
class Pair:
    """A payment, and its buyer's two selections."""

    world: World
    first: Side
    second: Side
    clock_s: float = 0.0
    sessions: dict[int, UUID] = field(default_factory=dict)  # by account

    async def create_payment(self) -> Payment:
        await self.world.move_clock(self.clock_s)
        return await self.world.create(
            currency="TWD", amount=Decimal("1590.00"), amount_text="1590.00"
        )

    async def select(self, payment: Payment, side: Side) -> None:
        selection = await self.world.select(payment, side.method_id, country="TW")
        self.sessions[side.account_id] = selection.session.id

    async def create_switched(self) -> Payment:
        """Create a payment, and switch from the first gateway to the second."""
        payment = await self.create_payment()
        await self.select(payment, self.first)
        await self.select(payment, self.second)
        return payment

    async def report(self, side: Side, report: SessionReport) -> None:
        """Deliver a callback, or run an inquiry if the gateway sends no callbacks."""
        session_id, service = self.sessions[side.account_id], self.world.service
        if side.gateway.behaviour.calls_back:
            callback = VerifiedCallback(id=uuid4().hex, session_id=session_id, report=report)
            await service.callback_receiver.receive(side.account_id, callback, b"")
        else:
            await sessions.request_inquiry(self.world.database, session_id)
            await inquire_all(self.world)
            # An ended session is not queried, but chains report transfers at any time.
            payment_id = (await self.world.session(session_id))["payment_id"]
            async with self.world.database.transaction() as tx:
                await settle_session(tx, payment_id, session_id, report)

    async def succeed(self, side: Side) -> None:
        """Let the buyer pay there, and report it twice."""
        report = side.gateway.pay(self.sessions[side.account_id])
        for _ in range(2):
            await self.report(side, report)

    async def expire(self) -> None:
        """Let the deadline pass, even for gateways that cannot close sessions."""
        self.clock_s += TTL_S
        await self.world.move_clock(self.clock_s)
        await sweep(self.world)
        await inquire_all(self.world)
        for side in (self.first, self.second):
            side.gateway.close_open_sessions()
        self.clock_s += 60
        await self.world.move_clock(self.clock_s)
        await inquire_all(self.world)
        await sweep(self.world)

    async def check_end(self, payment: Payment, status: str, *kinds: str) -> None:
        """Check that a payment has ended with an event, its cases and a refund of each surplus."""
        names = {"PAID": "completed", "FAILED": "failed", "EXPIRED": "expired"}
        events = [f"payment.{names.get(status, 'cancelled')}"]
        assert await self.world.status(payment) == status
        assert await self.world.events(payment) == events
        assert sorted(await self.world.cases(payment)) == sorted(kinds)
        await self.check_refunds(payment, len(kinds))

    async def check_refunds(self, payment: Payment, count: int) -> None:
        while await process_due_refunds(self.world):
            pass
        rows = await self.world.rows(
            "SELECT c.credited, c.amount_minor, c.refunded_minor, c.reserved_minor, m.status "
            "FROM capture c LEFT JOIN money_case m ON m.capture_id = c.id WHERE c.payment_id = $1",
            payment.id,
        )
        surplus = [row for row in rows if not row["credited"]]
        assert len(surplus) == count
        assert len(rows) - count <= 1, "two captures paid the payment"
        for row in rows:
            refunded = 0 if row["credited"] else row["amount_minor"]
            assert (row["refunded_minor"], row["reserved_minor"]) == (refunded, 0)
            assert row["status"] == (None if row["credited"] else "REFUNDED")
        references = [
            refund.capture.reference
            for gateway in {self.first.gateway, self.second.gateway}
            for refund in gateway.refunds
            if refund.session and refund.session.session_id in self.sessions.values()
        ]
        assert len(references) == len(set(references)), "a capture was refunded twice"


@dataclass
class Stage:
    """A merchant with two accounts at every gateway."""

    world: World
    sides: dict[str, tuple[Side, Side]]

    def pairs(self, first: str) -> list[Pair]:
        """Return a pair for each gateway to which the buyer can switch, including this gateway."""
        return [
            Pair(self.world, self.sides[first][0], self.sides[second][second == first])
            for second in BEHAVIOURS
        ]


async def add_side(world: World, gateway: ImitatedGateway) -> Side:
    account = AddAccount(
        provider=gateway.provider,
        base_url=f"http://{gateway.provider.replace('_', '-')}.test",
        credentials={"signing_secret": "secret"},
    )
    account_id = (await world.perform(account)).id
    async with world.database.transaction() as tx:
        payment_method = method_store.NewPaymentMethod(
            kind="redirect", label=gateway.provider, currencies=("TWD",)
        )
        method_id = await method_store.add(tx, world.merchant_id, account_id, payment_method, 0)
        return Side(gateway, account_id, method_id)


@pytest.fixture
async def installed_service(settings: Settings) -> AsyncIterator[Service]:
    """The service with its real adapters."""
    service = await open_service(settings)
    yield service
    await service.close()


@pytest.fixture
async def stage(settings: Settings, installed_service: Service) -> AsyncIterator[Stage]:
    gateways = {}
    for provider in sorted(BEHAVIOURS):
        adapter = installed_service.accounts.gateway(provider)
        assert adapter is not None
        gateways[provider] = ImitatedGateway(provider, adapter.capabilities)
    service = await open_service(settings, {"fake": FakeGateway(), **gateways})
    world = await make_world(service, FakeGateway())
    await set_auto_refund(world, on=True)
    sides = {}
    for provider, gateway in gateways.items():
        sides[provider] = (await add_side(world, gateway), await add_side(world, gateway))
    yield Stage(world, sides)
    await service.close()


FROM = pytest.mark.parametrize("first", BEHAVIOURS)


async def test_the_behaviour_of_every_installed_adapter_is_described(
    installed_service: Service,
) -> None:
    declared = {
        name: installed_service.accounts.capabilities(name)
        for name in installed_service.accounts.providers
    }
    adapters = {
        name: capabilities
        for name, capabilities in declared.items()
        if capabilities and not capabilities.test_only
    }
    assert adapters.keys() == BEHAVIOURS.keys()
    for capabilities in adapters.values():
        assert capabilities.refunds is not RefundSupport.NONE


@FROM
async def test_a_switch_is_refused_if_an_inquiry_finds_a_payment_at_the_first_gateway(
    stage: Stage, first: str
) -> None:
    for pair in stage.pairs(first):
        payment = await pair.create_payment()
        await pair.select(payment, pair.first)
        # The gateway does not report the payment.
        pair.first.gateway.pay(pair.sessions[pair.first.account_id])
        with pytest.raises(RefusedError, match="payment has been received") as error:
            await pair.select(payment, pair.second)
        assert error.value.code is ErrorCode.INVALID_CHECKOUT_STATE
        await pair.check_end(payment, "PAID")


@FROM
async def test_a_switch_is_refused_after_the_first_gateway_reported_a_payment(
    stage: Stage, first: str
) -> None:
    for pair in stage.pairs(first):
        payment = await pair.create_payment()
        await pair.select(payment, pair.first)
        await pair.succeed(pair.first)
        with pytest.raises(RefusedError) as error:
            await pair.select(payment, pair.second)
        assert error.value.code is ErrorCode.INVALID_CHECKOUT_STATE
        await pair.check_end(payment, "PAID")


@FROM
async def test_a_switch_is_refused_while_the_first_gateway_is_authorising(
    stage: Stage, first: str
) -> None:
    for pair in stage.pairs(first):
        payment = await pair.create_payment()
        await pair.select(payment, pair.first)
        session_id = pair.sessions[pair.first.account_id]
        pair.first.gateway.reports[session_id] = SessionReport(
            state=GatewaySessionState.AUTHORISING
        )
        with pytest.raises(RefusedError, match="in progress"):
            await pair.select(payment, pair.second)
        await pair.succeed(pair.first)
        await pair.check_end(payment, "PAID")


@FROM
async def test_an_early_capture_at_the_abandoned_gateway_is_refunded_and_does_not_pay(
    stage: Stage, first: str
) -> None:
    for pair in stage.pairs(first):
        payment = await pair.create_switched()
        await pair.succeed(pair.first)
        assert await stage.world.status(payment) == "PROCESSING"
        assert await stage.world.events(payment) == []
        session = (await stage.world.read(payment)).session
        assert session is not None
        assert session.quote.account_id == pair.second.account_id
        await pair.succeed(pair.second)
        await pair.check_end(payment, "PAID", "ORPHAN_CAPTURE")


@FROM
async def test_a_late_capture_at_the_abandoned_gateway_is_refunded(
    stage: Stage, first: str
) -> None:
    for pair in stage.pairs(first):
        payment = await pair.create_switched()
        await pair.succeed(pair.second)
        stored = (await stage.world.read(payment)).payment
        await pair.succeed(pair.first)
        assert (await stage.world.read(payment)).payment == stored
        await pair.check_end(payment, "PAID", "ORPHAN_CAPTURE")


@FROM
async def test_concurrent_captures_at_both_gateways_pay_with_the_current_session(
    stage: Stage, first: str
) -> None:
    for pair in stage.pairs(first):
        payment = await pair.create_switched()
        reports = []
        for side in (pair.first, pair.second):
            report = side.gateway.pay(pair.sessions[side.account_id])
            reports.append((side, report))
        async with hold_transaction(
            stage.world, lambda tx, locked=payment: payment_store.lock(tx, [locked.id])
        ) as holder:
            tasks = [asyncio.create_task(pair.report(side, report)) for side, report in reports]
            await wait_until_blocked(stage.world, *tasks)
            await holder.commit()
            await asyncio.gather(*tasks)
        await pair.check_end(payment, "PAID", "ORPHAN_CAPTURE")


@FROM
async def test_a_capture_concurrent_with_a_switch_pays_or_is_refunded(
    stage: Stage, first: str
) -> None:
    """If the capture is first, the switch is refused; otherwise the capture opens a case."""
    for pair in stage.pairs(first):
        payment = await pair.create_payment()
        await pair.select(payment, pair.first)
        side = pair.first
        async with hold_transaction(
            stage.world, lambda tx, locked=payment: payment_store.lock(tx, [locked.id])
        ) as holder:
            switch = asyncio.create_task(pair.select(payment, pair.second))
            await wait_until_blocked(stage.world, switch)
            report = side.gateway.pay(pair.sessions[side.account_id])
            capture = asyncio.create_task(pair.report(side, report))
            await wait_until_blocked(stage.world, switch, capture)
            await holder.commit()
            results = await asyncio.gather(switch, capture, return_exceptions=True)
        if isinstance(results[0], RefusedError):
            await pair.check_end(payment, "PAID")
            continue
        assert results == [None, None]
        status = await stage.world.status(payment)
        if status == "PAID":  # the capture was settled between the two transactions of the switch
            await pair.check_end(payment, "PAID")
            continue
        await pair.succeed(pair.second)
        await pair.check_end(payment, "PAID", "ORPHAN_CAPTURE")


@FROM
async def test_captures_after_the_expiry_are_refunded(stage: Stage, first: str) -> None:
    for pair in stage.pairs(first):
        payment = await pair.create_switched()
        await pair.expire()
        await pair.check_end(payment, "EXPIRED")
        await pair.succeed(pair.first)
        await pair.check_end(payment, "EXPIRED", "ORPHAN_CAPTURE")
        await pair.succeed(pair.second)
        await pair.check_end(payment, "EXPIRED", "ORPHAN_CAPTURE", "LATE_PAYMENT")


@FROM
async def test_captures_after_the_cancellation_are_refunded(stage: Stage, first: str) -> None:
    """Both selections crashed before the gateway responded, so the payment was still PENDING."""
    for pair in stage.pairs(first):
        payment = await pair.create_payment()
        for side in (pair.first, pair.second):
            await _crash_in_selection(pair, payment, side)
        async with stage.world.database.transaction() as tx:
            await cancel_by_merchant(tx, payment, None)
        await pair.succeed(pair.second)
        await pair.succeed(pair.first)
        await pair.check_end(payment, "CANCELLED", "LATE_PAYMENT", "ORPHAN_CAPTURE")


async def _crash_in_selection(pair: Pair, payment: Payment, side: Side) -> None:
    side.gateway.crashes = True
    with pytest.raises(Crash):
        await pair.select(payment, side)
    side.gateway.crashes = False
    [row] = await pair.world.rows(
        "SELECT id FROM session WHERE payment_id = $1 AND account_id = $2",
        *(payment.id, side.account_id),
    )
    pair.sessions[side.account_id] = row["id"]
    if side is pair.first:  # so that the buyer can select again
        pair.clock_s += 31
        await pair.world.move_clock(pair.clock_s)
        await inquire_all(pair.world)


@FROM
async def test_reports_without_a_capture_from_the_abandoned_gateway_have_no_effect(
    stage: Stage, first: str
) -> None:
    for pair in stage.pairs(first):
        payment = await pair.create_switched()
        stored = (await stage.world.read(payment)).payment
        reports = [SessionReport(state=GatewaySessionState.ATTEMPTED)] * 4
        reports += [
            SessionReport(state=state) for state in GatewaySessionState if state.value != "captured"
        ]
        reports += [SessionReport(state=GatewaySessionState.DECLINED, reason=FailureReason.UNKNOWN)]
        for report in reports:
            await pair.report(pair.first, report)
            assert (await stage.world.read(payment)).payment == stored
        assert await stage.world.events(payment) == []
        await pair.succeed(pair.second)
        await pair.check_end(payment, "PAID")


@FROM
async def test_a_payment_fails_after_a_decline_or_three_declined_attempts(
    stage: Stage, first: str
) -> None:
    side = stage.sides[first][0]
    pair = Pair(stage.world, side, side)
    payment = await pair.create_payment()
    await pair.select(payment, side)
    if not side.gateway.behaviour.attempts:
        await pair.report(
            side, SessionReport(state=GatewaySessionState.DECLINED, reason=FailureReason.DECLINED)
        )
    else:
        for number in range(3):
            assert await stage.world.status(payment) == "PROCESSING", number
            await pair.report(side, SessionReport(state=GatewaySessionState.ATTEMPTED))
        assert (await stage.world.session(pair.sessions[side.account_id]))["life"] == "closing"
        await inquire_all(stage.world)
    stored = (await stage.world.read(payment)).payment
    assert (stored.status, stored.failure_reason) == ("FAILED", "DECLINED")
    await pair.succeed(side)
    await pair.check_end(payment, "FAILED", "LATE_PAYMENT")


async def test_a_capture_between_the_third_attempt_and_the_close_pays_the_payment(
    stage: Stage,
) -> None:
    side = stage.sides["stripe"][0]
    pair = Pair(stage.world, side, side)
    payment = await pair.create_payment()
    await pair.select(payment, side)
    for _ in range(3):
        await pair.report(side, SessionReport(state=GatewaySessionState.ATTEMPTED))
    side.gateway.pay(pair.sessions[side.account_id])
    await inquire_all(stage.world)  # the close request finds the capture
    await pair.check_end(payment, "PAID")


async def test_surplus_captures_are_not_refunded_if_auto_refund_is_off(
    stage: Stage,
) -> None:
    await set_auto_refund(stage.world, on=False)
    for first in BEHAVIOURS:
        for pair in stage.pairs(first):
            payment = await pair.create_switched()
            await pair.succeed(pair.first)
            await pair.succeed(pair.second)
            assert await stage.world.cases(payment) == ["ORPHAN_CAPTURE"]
            assert await stage.world.events(payment) == ["payment.completed"]
    assert await process_due_refunds(stage.world) == 0
    assert await stage.world.rows("SELECT 1 FROM refund") == []
