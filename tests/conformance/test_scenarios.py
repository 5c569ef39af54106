"""Buyers cancel, pay a wrong amount, pay late or go back; merchants refund at the gateway."""

import pytest

from payintent.gateways.port import (
    GatewayRefundState,
    GatewaySessionState,
    OutcomeUnknown,
    RefundReport,
    SessionReport,
)
from tests.conformance.arrange import (
    PART,
    create,
    inquired,
    opened,
    paid,
    refund_of,
    refunded,
    told_of_session,
)
from tests.conformance.harness import Harness
from tests.conformance.traits import TRAITS, Scenario, Traits, where

pytestmark = pytest.mark.asyncio(loop_scope="module")

CAPTURED, CANCELLED = GatewaySessionState.CAPTURED, GatewaySessionState.CANCELLED
OTHERWISE = (Scenario.PAYS_LESS, Scenario.PAYS_MORE, Scenario.PAYS_LATE)


def plays(scenario: Scenario) -> pytest.MarkDecorator:
    return where(lambda adapter, **_: scenario not in adapter.cannot)


def _plays(adapter: Traits, how: Scenario, **_: object) -> bool:
    return how not in adapter.cannot


async def test_a_scenario_that_is_left_out_has_its_reason() -> None:
    left_out = [traits.cannot for traits in TRAITS.values()]
    assert all(reason for cannot in left_out for reason in cannot.values())
    assert not [scenario for scenario in Scenario if all(scenario in cannot for cannot in left_out)]


@plays(Scenario.CANCELS)
async def test_a_buyer_who_cancels_ends_the_session_without_money(harness: Harness) -> None:
    session = await opened(harness)
    await harness.cancel(session.created, session.request)
    report = await inquired(harness, session.ref)
    ended = CANCELLED if harness.ends_on_cancel else GatewaySessionState.OPEN
    assert report == SessionReport(state=ended)
    assert await harness.gateway.close_session(harness.account, session.ref) == report
    if harness.makes_callbacks and harness.ends_on_cancel:
        _, callback = await told_of_session(harness, session, CANCELLED)
        assert callback.report == report


@plays(Scenario.CANCELS)
async def test_cancelling_buyers_are_no_outage(harness: Harness) -> None:
    for _ in range(5):
        session = await opened(harness)
        await harness.cancel(session.created, session.request)
        report = await harness.gateway.inquire(harness.account, session.ref)
        assert not isinstance(report, OutcomeUnknown)


@where(_plays)
@pytest.mark.parametrize("how", OTHERWISE)
async def test_money_that_came_otherwise_than_ordered_is_told_at_once_and_pays_nothing(
    harness: Harness, how: Scenario
) -> None:
    session = await opened(harness)
    await harness.pay_otherwise(session.created, session.request, how)
    report = await inquired(harness, session.ref)
    assert report.state is CAPTURED
    assert report.capture is not None
    assert not report.capture.matches(session.request.amount_minor, session.request.currency)
    if harness.makes_callbacks:
        _, callback = await told_of_session(harness, session, CAPTURED)
        assert callback.report == report


@plays(Scenario.GOES_BACK)
async def test_a_buyer_who_goes_back_and_continues_pays_once(harness: Harness) -> None:
    session = await opened(harness)
    continued = await harness.go_back(session.created, session.request)
    assert await inquired(harness, session.ref) == SessionReport(state=GatewaySessionState.OPEN)
    await harness.pay(continued, session.request)
    report = await inquired(harness, session.ref)
    assert report.capture is not None
    assert report.capture.matches(session.request.amount_minor, session.request.currency)
    again = await harness.gateway.create_session(harness.account, session.request)
    if harness.creates_once and not isinstance(again, OutcomeUnknown):
        assert (await inquired(harness, session.ref)).capture == report.capture


@plays(Scenario.DASHBOARD_REFUND)
async def test_a_refund_in_the_dashboard_is_not_taken_for_ours(harness: Harness) -> None:
    money = await paid(harness)
    whole, part = money.capture.amount_minor, money.capture.amount_minor // PART
    await harness.refund_in_dashboard(money.capture, part)
    report = await inquired(harness, money.ref)
    assert report == SessionReport(state=CAPTURED, capture=money.capture)
    ours = refund_of(harness, money, part)
    answer = await harness.gateway.inquire_refund(harness.account, ours)
    if isinstance(answer, RefundReport):
        assert answer.state is GatewayRefundState.ABSENT
    assert await harness.given_back(money.capture) == part
    await refunded(harness, ours, GatewayRefundState.DONE)
    assert await harness.given_back(money.capture) == 2 * part
    if harness.knows_remainder:
        await refunded(harness, refund_of(harness, money, whole), GatewayRefundState.DECLINED)
        assert await harness.given_back(money.capture) == 2 * part


@plays(Scenario.UNDECIDED)
async def test_an_authentic_answer_that_decides_nothing_is_no_outage(harness: Harness) -> None:
    session = await opened(harness)
    async with harness.undecided(session.created, session.request):
        for ask in (harness.gateway.inquire, harness.gateway.close_session):
            answer = await ask(harness.account, session.ref)
            assert isinstance(answer, OutcomeUnknown)
            assert answer.has_responded
    other = await create(harness, harness.request())
    assert await inquired(harness, other.ref) == SessionReport(state=GatewaySessionState.OPEN)
