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
    inquire,
    make_refund_request,
    open_paid_session,
    open_session,
    request_refund,
    wait_for_session_callback,
)
from tests.conformance.harness import Harness
from tests.conformance.traits import TRAITS, Scenario, Traits, where

pytestmark = pytest.mark.asyncio(loop_scope="module")

CAPTURED, CANCELLED = GatewaySessionState.CAPTURED, GatewaySessionState.CANCELLED
WRONG_PAYMENTS = (Scenario.PAYS_LESS, Scenario.PAYS_MORE, Scenario.PAYS_LATE)


def supports(scenario: Scenario) -> pytest.MarkDecorator:
    return where(lambda adapter, **_: scenario not in adapter.cannot)


def _supports(adapter: Traits, how: Scenario, **_: object) -> bool:
    return how not in adapter.cannot


async def test_every_unsupported_scenario_has_a_reason() -> None:
    exclusions = [traits.cannot for traits in TRAITS.values()]
    assert all(reason for cannot in exclusions for reason in cannot.values())
    assert not [
        scenario for scenario in Scenario if all(scenario in cannot for cannot in exclusions)
    ]


@supports(Scenario.CANCELS)
async def test_a_cancellation_by_the_buyer_ends_the_session_without_a_capture(
    harness: Harness,
) -> None:
    session = await open_session(harness)
    await harness.cancel(session.created, session.request)
    report = await inquire(harness, session.ref)
    expected_state = CANCELLED if harness.ends_on_cancel else GatewaySessionState.OPEN
    assert report == SessionReport(state=expected_state)
    assert await harness.gateway.close_session(harness.account, session.ref) == report
    if harness.makes_callbacks and harness.ends_on_cancel:
        _, callback = await wait_for_session_callback(harness, session, CANCELLED)
        assert callback.report == report


@supports(Scenario.CANCELS)
async def test_cancellations_by_buyers_do_not_count_as_an_outage(harness: Harness) -> None:
    for _ in range(5):
        session = await open_session(harness)
        await harness.cancel(session.created, session.request)
        report = await harness.gateway.inquire(harness.account, session.ref)
        assert not isinstance(report, OutcomeUnknown)


@where(_supports)
@pytest.mark.parametrize("how", WRONG_PAYMENTS)
async def test_a_wrong_payment_is_reported_immediately_and_does_not_match(
    harness: Harness, how: Scenario
) -> None:
    session = await open_session(harness)
    await harness.pay_otherwise(session.created, session.request, how)
    report = await inquire(harness, session.ref)
    assert report.state is CAPTURED
    assert report.capture is not None
    assert not report.capture.matches(session.request.amount_minor, session.request.currency)
    if harness.makes_callbacks:
        _, callback = await wait_for_session_callback(harness, session, CAPTURED)
        assert callback.report == report


@supports(Scenario.GOES_BACK)
async def test_a_buyer_who_returns_to_the_page_pays_once(harness: Harness) -> None:
    session = await open_session(harness)
    continued = await harness.go_back(session.created, session.request)
    assert await inquire(harness, session.ref) == SessionReport(state=GatewaySessionState.OPEN)
    await harness.pay(continued, session.request)
    report = await inquire(harness, session.ref)
    assert report.capture is not None
    assert report.capture.matches(session.request.amount_minor, session.request.currency)
    again = await harness.gateway.create_session(harness.account, session.request)
    if harness.creates_once and not isinstance(again, OutcomeUnknown):
        assert (await inquire(harness, session.ref)).capture == report.capture


@supports(Scenario.DASHBOARD_REFUND)
async def test_a_refund_in_the_dashboard_is_not_mistaken_for_ours(harness: Harness) -> None:
    money = await open_paid_session(harness)
    whole, part = money.capture.amount_minor, money.capture.amount_minor // PART
    await harness.refund_in_dashboard(money.capture, part)
    report = await inquire(harness, money.ref)
    assert report == SessionReport(state=CAPTURED, capture=money.capture)
    ours = make_refund_request(harness, money, part)
    answer = await harness.gateway.inquire_refund(harness.account, ours)
    if isinstance(answer, RefundReport):
        assert answer.state is GatewayRefundState.ABSENT
    assert await harness.get_refunded_minor(money.capture) == part
    await request_refund(harness, ours, GatewayRefundState.DONE)
    assert await harness.get_refunded_minor(money.capture) == 2 * part
    if harness.knows_remainder:
        await request_refund(
            harness, make_refund_request(harness, money, whole), GatewayRefundState.DECLINED
        )
        assert await harness.get_refunded_minor(money.capture) == 2 * part


@supports(Scenario.UNDECIDED)
async def test_an_inconclusive_authentic_response_does_not_count_as_an_outage(
    harness: Harness,
) -> None:
    session = await open_session(harness)
    async with harness.undecided(session.created, session.request):
        for call in (harness.gateway.inquire, harness.gateway.close_session):
            answer = await call(harness.account, session.ref)
            assert isinstance(answer, OutcomeUnknown)
            assert answer.has_responded
    next_session = await create(harness, harness.request())
    assert await inquire(harness, next_session.ref) == SessionReport(state=GatewaySessionState.OPEN)
