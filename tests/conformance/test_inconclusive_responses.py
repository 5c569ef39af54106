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
from tests.conformance.arrange import (
    PaidSession,
    create,
    inquire,
    make_refund_request,
    open_paid_session,
    open_session,
    request_refund,
)
from tests.conformance.faults import THROTTLES, UNKNOWN_OUTCOME_FAULTS, Fault
from tests.conformance.harness import Harness
from tests.conformance.traits import Call, Traits, where

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.full]

Outcome = SessionCreated | SessionRejected | SessionReport | RefundReport | OutcomeUnknown

every_call = pytest.mark.parametrize("call", list(Call))
TRIES_MAX = 12  # one for each request of an operation, and some more for slow machines
REFUNDING = frozenset({Call.REFUND, Call.INQUIRE_REFUND})


def _sends_requests(adapter: Traits, call: Call, **_: object) -> bool:
    return adapter.uses_http and call in adapter.calls


class PreparedCall:
    """A call that is prepared without faults, so that a fault affects only the call itself."""

    def __init__(self, harness: Harness, call: Call) -> None:
        self.harness = harness
        self.call = call

    async def prepare(self) -> None:
        if self.call is Call.CREATE:
            self.request = self.harness.request()
        elif self.call in REFUNDING:
            self.money = await open_paid_session(self.harness)
            self.refund = make_refund_request(
                self.harness, self.money, _part(self.harness, self.money)
            )
            if self.call is Call.INQUIRE_REFUND:
                self.refund = await request_refund(
                    self.harness, self.refund, GatewayRefundState.DONE
                )
        else:
            self.session = await open_session(self.harness)

    async def run(self, gateway: Gateway | None = None) -> Outcome:
        target, account = gateway or self.harness.gateway, self.harness.account
        if self.call is Call.CREATE:
            return await target.create_session(account, self.request)
        if self.call is Call.CLOSE:
            return await target.close_session(account, self.session.ref)
        if self.call is Call.INQUIRE:
            return await target.inquire(account, self.session.ref)
        if self.call is Call.REFUND:
            return await target.refund(account, self.refund)
        return await target.inquire_refund(account, self.refund)

    async def inquire_refund_again(self) -> RefundReport | OutcomeUnknown:
        return await self.harness.gateway.inquire_refund(self.harness.account, self.refund)

    async def check_not_refunded(self) -> None:
        """Check that nothing was refunded, because the fault preceded the refund request."""
        assert self.call is Call.REFUND
        assert await self.harness.get_refunded_minor(self.money.capture) == 0

    async def check_recovery(self) -> None:
        """Check that the lost outcome can be found, and happened at most once."""
        if self.call is Call.CREATE:
            session = await create(self.harness, self.request)
            assert await inquire(self.harness, session.ref) == SessionReport(
                state=GatewaySessionState.OPEN
            )
        elif self.call is Call.REFUND:
            await self._check_refund_recovery()
        else:
            assert isinstance(await self.run(), SessionReport | RefundReport)

    async def _check_refund_recovery(self) -> None:
        refunded_minor = await self.harness.get_refunded_minor(self.money.capture)
        assert refunded_minor in {0, self.refund.amount_minor}
        report = await self.inquire_refund_again()
        is_idempotent = self.harness.gateway.capabilities.refund_is_idempotent
        if isinstance(report, RefundReport):
            is_found = refunded_minor and self.harness.finds_unreferenced_refunds
            assert report.state is (
                GatewayRefundState.DONE if is_found else GatewayRefundState.ABSENT
            )
        else:
            assert not is_idempotent or not self.harness.finds_refunds
        if is_idempotent:
            await request_refund(self.harness, self.refund, GatewayRefundState.DONE)
            assert (
                await self.harness.get_refunded_minor(self.money.capture)
                == self.refund.amount_minor
            )


async def prepare_call(harness: Harness, call: Call) -> PreparedCall:
    prepared = PreparedCall(harness, call)
    await prepared.prepare()
    return prepared


def _part(harness: Harness, money: PaidSession) -> int:
    whole = money.capture.amount_minor
    return whole // 3 if harness.gateway.capabilities.refunds is RefundSupport.PARTIAL else whole


@where(_sends_requests)
@every_call
@pytest.mark.parametrize("fault", UNKNOWN_OUTCOME_FAULTS)
async def test_a_missing_response_to_any_request_is_unknown_and_recoverable(
    harness: Harness, call: Call, fault: Fault
) -> None:
    assert harness.faults is not None
    outcomes: list[Outcome] = []
    for _ in range(TRIES_MAX):
        prepared = await prepare_call(harness, call)
        before = harness.faults.affected_count
        async with harness.faults.fault(fault, after=len(outcomes)):
            outcome = await prepared.run(harness.hurried if fault is Fault.HANG else None)
        if harness.faults.affected_count == before and isinstance(outcome, OutcomeUnknown):
            continue  # a slow machine: the hurried client timed out before its request arrived
        if harness.faults.affected_count == before:
            break  # the call sends no further request
        assert isinstance(outcome, OutcomeUnknown), outcome
        assert not [secret for secret in harness.secrets if secret in outcome.detail]
        if isinstance(outcome, NotContacted):
            await prepared.check_not_refunded()
        outcomes.append(outcome)
        await prepared.check_recovery()
    else:
        pytest.fail("the call never succeeds")
    assert not isinstance(outcomes[-1], NotContacted), "the request was sent"


@where(_sends_requests)
@every_call
async def test_throttling_is_distinguished_from_a_missing_response(
    harness: Harness, call: Call
) -> None:
    assert harness.faults is not None
    for fault in THROTTLES:
        prepared = await prepare_call(harness, call)
        async with harness.faults.fault(fault):
            outcome = await prepared.run()
        assert isinstance(outcome, OutcomeUnknown), outcome
        assert outcome.is_throttled
    prepared = await prepare_call(harness, call)
    async with harness.faults.fault(Fault.STATUS_500):
        outcome = await prepared.run()
    assert isinstance(outcome, OutcomeUnknown)
    assert not outcome.is_throttled


@where(_sends_requests)
@every_call
async def test_a_refused_connection_is_reported_as_not_contacted(
    harness: Harness, call: Call
) -> None:
    assert harness.faults is not None
    prepared = await prepare_call(harness, call)
    async with harness.faults.fault(Fault.REFUSE):
        outcome = await prepared.run()
    assert isinstance(outcome, NotContacted), outcome
    assert not [secret for secret in harness.secrets if secret in outcome.detail]
    await prepared.check_recovery()


@where(lambda adapter, call, **_: adapter.uses_http and call not in adapter.calls)
@every_call
async def test_local_operations_work_while_the_gateway_is_down(
    harness: Harness, call: Call
) -> None:
    assert harness.faults is not None
    prepared = await prepare_call(harness, call)
    before = harness.faults.request_count
    async with harness.faults.fault(Fault.REFUSE):
        assert not isinstance(await prepared.run(), OutcomeUnknown)
    assert harness.faults.request_count == before
