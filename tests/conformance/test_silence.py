"""A missing or invalid response is never taken for a failure or a missing session."""

import pytest

from payintent.gateways.port import (
    Gateway,
    GatewayRefundState,
    GatewaySessionState,
    NotContacted,
    OutcomeUnknown,
    RefundReport,
    RefundSupport,
    SessionCreated,
    SessionRejected,
    SessionReport,
)
from tests.conformance.arrange import Paid, create, inquired, opened, paid, refund_of, refunded
from tests.conformance.faults import SILENCES, THROTTLES, Fault
from tests.conformance.harness import Harness
from tests.conformance.traits import Call, Traits, where

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.full]

Outcome = SessionCreated | SessionRejected | SessionReport | RefundReport | OutcomeUnknown

every_call = pytest.mark.parametrize("call", list(Call))
TRIES_MAX = 12  # one for each request of an operation, and some for a slow machine
REFUNDING = frozenset({Call.REFUND, Call.INQUIRE_REFUND})


def _goes_out(adapter: Traits, call: Call, **_: object) -> bool:
    return adapter.uses_http and call in adapter.calls


class Staged:
    """A call whose preparations are done, so that only the call itself can be disturbed."""

    def __init__(self, harness: Harness, call: Call) -> None:
        self.harness = harness
        self.call = call

    async def prepare(self) -> None:
        if self.call is Call.CREATE:
            self.request = self.harness.request()
        elif self.call in REFUNDING:
            self.money = await paid(self.harness)
            self.refund = refund_of(self.harness, self.money, _part(self.harness, self.money))
            if self.call is Call.INQUIRE_REFUND:
                self.refund = await refunded(self.harness, self.refund, GatewayRefundState.DONE)
        else:
            self.session = await opened(self.harness)

    async def ask(self, gateway: Gateway | None = None) -> Outcome:
        asked, account = gateway or self.harness.gateway, self.harness.account
        if self.call is Call.CREATE:
            return await asked.create_session(account, self.request)
        if self.call is Call.CLOSE:
            return await asked.close_session(account, self.session.ref)
        if self.call is Call.INQUIRE:
            return await asked.inquire(account, self.session.ref)
        if self.call is Call.REFUND:
            return await asked.refund(account, self.refund)
        return await asked.inquire_refund(account, self.refund)

    async def ask_of_refund(self) -> RefundReport | OutcomeUnknown:
        return await self.harness.gateway.inquire_refund(self.harness.account, self.refund)

    async def was_only_asked_about(self) -> None:
        """Check that nothing was refunded: a check before the order is not an order."""
        assert self.call is Call.REFUND
        assert await self.harness.given_back(self.money.capture) == 0

    async def recovers(self) -> None:
        """Check that the lost outcome can be found, and happened at most once."""
        if self.call is Call.CREATE:
            session = await create(self.harness, self.request)
            assert await inquired(self.harness, session.ref) == SessionReport(
                state=GatewaySessionState.OPEN
            )
        elif self.call is Call.REFUND:
            await self._refund_recovers()
        else:
            assert isinstance(await self.ask(), SessionReport | RefundReport)

    async def _refund_recovers(self) -> None:
        given = await self.harness.given_back(self.money.capture)
        assert given in {0, self.refund.amount_minor}
        told = await self.ask_of_refund()
        again = self.harness.gateway.capabilities.refund_is_idempotent
        if isinstance(told, RefundReport):
            found = given and self.harness.finds_unreferenced_refunds
            assert told.state is (GatewayRefundState.DONE if found else GatewayRefundState.ABSENT)
        else:
            assert not again or not self.harness.finds_refunds
        if again:
            await refunded(self.harness, self.refund, GatewayRefundState.DONE)
            assert await self.harness.given_back(self.money.capture) == self.refund.amount_minor


async def staged(harness: Harness, call: Call) -> Staged:
    ready = Staged(harness, call)
    await ready.prepare()
    return ready


def _part(harness: Harness, money: Paid) -> int:
    whole = money.capture.amount_minor
    return whole // 3 if harness.gateway.capabilities.refunds is RefundSupport.PARTIAL else whole


@where(_goes_out)
@every_call
@pytest.mark.parametrize("fault", SILENCES)
async def test_silence_at_any_request_is_unknown_and_what_happened_is_found_out_later(
    harness: Harness, call: Call, fault: Fault
) -> None:
    assert harness.faults is not None
    outcomes: list[Outcome] = []
    for _ in range(TRIES_MAX):
        ready = await staged(harness, call)
        before = harness.faults.disturbed
        async with harness.faults.fault(fault, after=len(outcomes)):
            outcome = await ready.ask(harness.hurried if fault is Fault.HANG else None)
        if harness.faults.disturbed == before and isinstance(outcome, OutcomeUnknown):
            continue  # a slow machine: the hurried client gave up before its request came in
        if harness.faults.disturbed == before:
            break  # it has no request so late
        assert isinstance(outcome, OutcomeUnknown), outcome
        assert not [secret for secret in harness.secrets if secret in outcome.detail]
        if isinstance(outcome, NotContacted):
            await ready.was_only_asked_about()
        outcomes.append(outcome)
        await ready.recovers()
    else:
        pytest.fail("it never comes through")
    assert not isinstance(outcomes[-1], NotContacted), "it was sent"


@where(_goes_out)
@every_call
async def test_who_holds_us_back_is_not_taken_for_silent(harness: Harness, call: Call) -> None:
    assert harness.faults is not None
    for fault in THROTTLES:
        ready = await staged(harness, call)
        async with harness.faults.fault(fault):
            outcome = await ready.ask()
        assert isinstance(outcome, OutcomeUnknown), outcome
        assert outcome.is_throttled
    ready = await staged(harness, call)
    async with harness.faults.fault(Fault.STATUS_500):
        outcome = await ready.ask()
    assert isinstance(outcome, OutcomeUnknown)
    assert not outcome.is_throttled


@where(_goes_out)
@every_call
async def test_a_gateway_that_cannot_be_reached_is_not_contacted(
    harness: Harness, call: Call
) -> None:
    assert harness.faults is not None
    ready = await staged(harness, call)
    async with harness.faults.fault(Fault.REFUSE):
        outcome = await ready.ask()
    assert isinstance(outcome, NotContacted), outcome
    assert not [secret for secret in harness.secrets if secret in outcome.detail]
    await ready.recovers()


@where(lambda adapter, call, **_: adapter.uses_http and call not in adapter.calls)
@every_call
async def test_what_asks_nobody_works_while_nobody_listens(harness: Harness, call: Call) -> None:
    assert harness.faults is not None
    ready = await staged(harness, call)
    before = harness.faults.asked
    async with harness.faults.fault(Fault.REFUSE):
        assert not isinstance(await ready.ask(), OutcomeUnknown)
    assert harness.faults.asked == before
