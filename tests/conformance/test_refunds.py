"""Money is refunded once, at most the captured amount, with a consistent outcome."""

import asyncio
from dataclasses import replace

import pytest

from payintent.gateways.port import (
    GatewayRefundRequest,
    GatewayRefundState,
    GatewaySessionState,
    OutcomeUnknown,
    RefundReport,
    RefundSupport,
    SessionReport,
)
from tests.conformance.arrange import (
    PART,
    get_refund_state,
    inquire,
    make_refund_request,
    open_paid_session,
    refund_outcome,
    request_refund,
    wait_for_refund_callback,
    wait_for_session_callback,
)
from tests.conformance.harness import Harness, RefundOutcome
from tests.conformance.traits import Traits, where
from tests.support.timeouts import wait_until

pytestmark = pytest.mark.asyncio(loop_scope="module")

DONE, PENDING = GatewayRefundState.DONE, GatewayRefundState.PENDING
DECLINED, ABSENT = GatewayRefundState.DECLINED, GatewayRefundState.ABSENT


def _can_be_pending(adapter: Traits, outcome: RefundOutcome, **_: object) -> bool:
    decided = outcome is RefundOutcome.DONE or adapter.declines_refunds
    return adapter.pending_refunds and decided


async def test_a_capture_can_be_refunded_in_parts_up_to_its_amount(harness: Harness) -> None:
    money = await open_paid_session(harness)
    whole = money.capture.amount_minor
    parts = [whole // PART, whole - whole // PART]
    if harness.gateway.capabilities.refunds is RefundSupport.FULL_ONLY:
        parts = [whole]
    for count, part in enumerate(parts, start=1):
        request = await request_refund(harness, make_refund_request(harness, money, part), DONE)
        assert await get_refund_state(harness, request) is DONE
        assert await harness.get_refunded_minor(money.capture) == sum(parts[:count])
    if not harness.knows_remainder:
        return
    over = make_refund_request(harness, money, parts[0])
    await request_refund(harness, over, DECLINED)
    assert await harness.get_refunded_minor(money.capture) == whole


@where(lambda adapter, **_: adapter.refunds_parts and adapter.knows_remainder)
async def test_a_refund_above_the_remainder_is_declined_and_the_remainder_stays_refundable(
    harness: Harness,
) -> None:
    money = await open_paid_session(harness)
    whole, part = money.capture.amount_minor, money.capture.amount_minor // PART
    await request_refund(harness, make_refund_request(harness, money, part), DONE)
    await request_refund(harness, make_refund_request(harness, money, whole), DECLINED)
    assert await harness.get_refunded_minor(money.capture) == part
    await request_refund(harness, make_refund_request(harness, money, whole - part), DONE)
    assert await harness.get_refunded_minor(money.capture) == whole


@where(lambda adapter, **_: adapter.refunds_again)
async def test_repeated_and_concurrent_refund_requests_refund_once(harness: Harness) -> None:
    money = await open_paid_session(harness)
    part = _part(harness, money.capture.amount_minor)
    request = make_refund_request(harness, money, part)
    outcomes = await asyncio.gather(
        *(harness.gateway.refund(harness.account, request) for _ in range(3))
    )
    expected_states = {DONE} if harness.refunds_at_once else {DONE, PENDING}
    assert all(
        isinstance(outcome, OutcomeUnknown) or outcome.state in expected_states
        for outcome in outcomes
    ), outcomes

    async def answers() -> bool:
        return isinstance(await harness.gateway.refund(harness.account, request), RefundReport)

    await wait_until(
        answers, "a response to a repeated refund"
    )  # a signer backs off after a timeout
    await request_refund(harness, request, DONE)
    assert await harness.get_refunded_minor(money.capture) == part


async def test_a_refund_is_found_without_the_gateways_reference(harness: Harness) -> None:
    money = await open_paid_session(harness)
    request = await request_refund(harness, make_refund_request(harness, money), DONE)
    assert await get_refund_state(harness, request) is DONE
    await _check_found_without_reference(harness, request, DONE)


async def test_a_refund_does_not_change_the_sessions_capture(harness: Harness) -> None:
    money = await open_paid_session(harness)
    await request_refund(harness, make_refund_request(harness, money), DONE)
    captured = SessionReport(state=GatewaySessionState.CAPTURED, capture=money.capture)
    assert await inquire(harness, money.ref) == captured


async def test_an_inquiry_about_an_unrequested_refund_does_not_refund(
    harness: Harness,
) -> None:
    money = await open_paid_session(harness)
    request = make_refund_request(harness, money)
    report = await harness.gateway.inquire_refund(harness.account, request)
    if harness.finds_refunds:
        assert isinstance(report, RefundReport)
        assert report.state is ABSENT
    else:
        assert isinstance(report, OutcomeUnknown)
    assert await harness.get_refunded_minor(money.capture) == 0


async def test_a_refund_without_a_session_does_not_raise_an_error(harness: Harness) -> None:
    money = await open_paid_session(harness)
    request = replace(make_refund_request(harness, money), session=None)
    report = await harness.gateway.refund(harness.account, request)
    refunded_minor = await harness.get_refunded_minor(money.capture)
    if isinstance(report, OutcomeUnknown) or report.state is DECLINED:
        assert refunded_minor == 0
    elif report.state is DONE:
        assert refunded_minor == money.capture.amount_minor


@where(_can_be_pending)
@pytest.mark.parametrize(
    ("outcome", "state"), [(RefundOutcome.DONE, DONE), (RefundOutcome.DECLINED, DECLINED)]
)
async def test_a_refund_is_pending_until_the_gateway_decides_it(
    harness: Harness, outcome: RefundOutcome, state: GatewayRefundState
) -> None:
    request = await request_pending_refund(harness)
    assert await get_refund_state(harness, request) is PENDING
    await _check_found_without_reference(harness, request, PENDING)
    await harness.settle_refund(request, outcome)
    assert await get_refund_state(harness, request) is state
    refunded_minor = await harness.get_refunded_minor(request.capture)
    assert refunded_minor == (request.amount_minor if state is DONE else 0)


@where(_can_be_pending)
@where(lambda adapter, **_: adapter.makes_refund_callbacks)
@pytest.mark.parametrize(
    ("outcome", "state"), [(RefundOutcome.DONE, DONE), (RefundOutcome.DECLINED, DECLINED)]
)
async def test_the_outcome_of_a_refund_is_reported_by_callback_with_our_id(
    harness: Harness, outcome: RefundOutcome, state: GatewayRefundState
) -> None:
    request = await request_pending_refund(harness)
    await harness.settle_refund(request, outcome)
    raw, callback = await wait_for_refund_callback(harness, request, state)
    assert callback.refund_id == request.refund_id
    assert callback.refund is not None
    assert callback.report is None
    assert harness.gateway.parse_callback(harness.account, raw) == callback


@where(lambda adapter, **_: adapter.makes_refund_callbacks)
async def test_refund_and_session_callbacks_have_different_ids(harness: Harness) -> None:
    money = await open_paid_session(harness)
    request = await request_refund(harness, make_refund_request(harness, money), DONE)
    _, of_session = await wait_for_session_callback(harness, money, GatewaySessionState.CAPTURED)
    _, of_refund = await wait_for_refund_callback(harness, request, DONE)
    assert of_session.id != of_refund.id


@where(lambda adapter, **_: adapter.declines_refunds)
async def test_a_declined_refund_moves_no_money_and_stays_declined(harness: Harness) -> None:
    async with refund_outcome(harness, RefundOutcome.DECLINED):
        money = await open_paid_session(harness)
    request = await request_refund(harness, make_refund_request(harness, money), DECLINED)
    assert await get_refund_state(harness, request) in {DECLINED, ABSENT}
    assert await harness.get_refunded_minor(money.capture) == 0


async def _check_found_without_reference(
    harness: Harness, request: GatewayRefundRequest, state: GatewayRefundState
) -> None:
    """Check that a refund with a lost response is found, by sending it again if necessary."""
    lost, refunded_minor = (
        replace(request, reference=None),
        await harness.get_refunded_minor(request.capture),
    )
    if harness.finds_unreferenced_refunds:
        assert await get_refund_state(harness, lost) is state
        return
    assert await get_refund_state(harness, lost) is ABSENT
    report = await harness.gateway.refund(harness.account, lost)
    assert isinstance(report, RefundReport)
    assert (report.state, report.reference) == (state, request.reference)
    assert await harness.get_refunded_minor(request.capture) == refunded_minor


async def request_pending_refund(harness: Harness) -> GatewayRefundRequest:
    """Request a refund that waits for the counterpart's decision."""
    async with refund_outcome(harness, RefundOutcome.PENDING):
        money = await open_paid_session(harness)
    return await request_refund(harness, make_refund_request(harness, money), PENDING)


def _part(harness: Harness, whole: int) -> int:
    return whole // PART if harness.gateway.capabilities.refunds is RefundSupport.PARTIAL else whole
