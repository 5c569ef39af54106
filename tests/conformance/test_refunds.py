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
    inquired,
    paid,
    refund_of,
    refund_stands,
    refunded,
    refunds_are,
    told_of_refund,
    told_of_session,
)
from tests.conformance.harness import Harness, RefundOutcome
from tests.conformance.traits import Traits, where
from tests.support.patience import wait_until

pytestmark = pytest.mark.asyncio(loop_scope="module")

DONE, PENDING = GatewayRefundState.DONE, GatewayRefundState.PENDING
DECLINED, ABSENT = GatewayRefundState.DECLINED, GatewayRefundState.ABSENT


def _can_be_pending(adapter: Traits, outcome: RefundOutcome, **_: object) -> bool:
    decided = outcome is RefundOutcome.DONE or adapter.declines_refunds
    return adapter.pending_refunds and decided


async def test_a_part_goes_back_then_the_rest_and_then_no_more(harness: Harness) -> None:
    money = await paid(harness)
    whole = money.capture.amount_minor
    parts = [whole // PART, whole - whole // PART]
    if harness.gateway.capabilities.refunds is RefundSupport.FULL_ONLY:
        parts = [whole]
    for place, part in enumerate(parts, start=1):
        request = await refunded(harness, refund_of(harness, money, part), DONE)
        assert await refund_stands(harness, request) is DONE
        assert await harness.given_back(money.capture) == sum(parts[:place])
    if not harness.knows_remainder:
        return
    over = refund_of(harness, money, parts[0])
    await refunded(harness, over, DECLINED)
    assert await harness.given_back(money.capture) == whole


@where(lambda adapter, **_: adapter.refunds_parts and adapter.knows_remainder)
async def test_more_than_is_left_is_declined_and_what_is_left_can_still_go_back(
    harness: Harness,
) -> None:
    money = await paid(harness)
    whole, part = money.capture.amount_minor, money.capture.amount_minor // PART
    await refunded(harness, refund_of(harness, money, part), DONE)
    await refunded(harness, refund_of(harness, money, whole), DECLINED)
    assert await harness.given_back(money.capture) == part
    await refunded(harness, refund_of(harness, money, whole - part), DONE)
    assert await harness.given_back(money.capture) == whole


@where(lambda adapter, **_: adapter.refunds_again)
async def test_asking_again_and_at_once_gives_money_back_once(harness: Harness) -> None:
    money = await paid(harness)
    part = _part(harness, money.capture.amount_minor)
    request = refund_of(harness, money, part)
    ways = await asyncio.gather(
        *(harness.gateway.refund(harness.account, request) for _ in range(3))
    )
    under_way = {DONE} if harness.refunds_at_once else {DONE, PENDING}
    assert all(isinstance(way, OutcomeUnknown) or way.state in under_way for way in ways), ways

    async def answers() -> bool:
        return isinstance(await harness.gateway.refund(harness.account, request), RefundReport)

    await wait_until(
        answers, "an answer to a repeated refund"
    )  # a signer backs off after a timeout
    await refunded(harness, request, DONE)
    assert await harness.given_back(money.capture) == part


async def test_a_refund_is_found_without_the_gateways_own_name_for_it(harness: Harness) -> None:
    money = await paid(harness)
    request = await refunded(harness, refund_of(harness, money), DONE)
    assert await refund_stands(harness, request) is DONE
    await _stands_unreferenced(harness, request, DONE)


async def test_a_refund_leaves_the_session_captured_as_it_was(harness: Harness) -> None:
    money = await paid(harness)
    await refunded(harness, refund_of(harness, money), DONE)
    captured = SessionReport(state=GatewaySessionState.CAPTURED, capture=money.capture)
    assert await inquired(harness, money.ref) == captured


async def test_a_refund_that_nobody_asked_for_is_absent_and_asking_gives_nothing_back(
    harness: Harness,
) -> None:
    money = await paid(harness)
    request = refund_of(harness, money)
    report = await harness.gateway.inquire_refund(harness.account, request)
    if harness.finds_refunds:
        assert isinstance(report, RefundReport)
        assert report.state is ABSENT
    else:
        assert isinstance(report, OutcomeUnknown)
    assert await harness.given_back(money.capture) == 0


async def test_money_that_came_for_no_session_raises_nothing(harness: Harness) -> None:
    money = await paid(harness)
    request = replace(refund_of(harness, money), session=None)
    report = await harness.gateway.refund(harness.account, request)
    given = await harness.given_back(money.capture)
    if isinstance(report, OutcomeUnknown) or report.state is DECLINED:
        assert given == 0
    elif report.state is DONE:
        assert given == money.capture.amount_minor


@where(_can_be_pending)
@pytest.mark.parametrize(
    ("outcome", "state"), [(RefundOutcome.DONE, DONE), (RefundOutcome.DECLINED, DECLINED)]
)
async def test_a_pending_refund_is_pending_until_it_is_decided(
    harness: Harness, outcome: RefundOutcome, state: GatewayRefundState
) -> None:
    request = await pending(harness)
    assert await refund_stands(harness, request) is PENDING
    await _stands_unreferenced(harness, request, PENDING)
    await harness.settle_refund(request, outcome)
    assert await refund_stands(harness, request) is state
    given = await harness.given_back(request.capture)
    assert given == (request.amount_minor if state is DONE else 0)


@where(_can_be_pending)
@where(lambda adapter, **_: adapter.calls_back_refunds)
@pytest.mark.parametrize(
    ("outcome", "state"), [(RefundOutcome.DONE, DONE), (RefundOutcome.DECLINED, DECLINED)]
)
async def test_the_end_of_a_refund_is_called_back_under_our_own_id(
    harness: Harness, outcome: RefundOutcome, state: GatewayRefundState
) -> None:
    request = await pending(harness)
    await harness.settle_refund(request, outcome)
    raw, callback = await told_of_refund(harness, request, state)
    assert callback.refund_id == request.refund_id
    assert callback.refund is not None
    assert callback.report is None
    assert harness.gateway.parse_callback(harness.account, raw) == callback


@where(lambda adapter, **_: adapter.calls_back_refunds)
async def test_callbacks_of_a_refund_and_of_its_session_are_two(harness: Harness) -> None:
    money = await paid(harness)
    request = await refunded(harness, refund_of(harness, money), DONE)
    _, of_session = await told_of_session(harness, money, GatewaySessionState.CAPTURED)
    _, of_refund = await told_of_refund(harness, request, DONE)
    assert of_session.id != of_refund.id


@where(lambda adapter, **_: adapter.declines_refunds)
async def test_a_declined_refund_gives_nothing_back_and_stays_declined(harness: Harness) -> None:
    async with refunds_are(harness, RefundOutcome.DECLINED):
        money = await paid(harness)
    request = await refunded(harness, refund_of(harness, money), DECLINED)
    assert await refund_stands(harness, request) in {DECLINED, ABSENT}
    assert await harness.given_back(money.capture) == 0


async def _stands_unreferenced(
    harness: Harness, request: GatewayRefundRequest, state: GatewayRefundState
) -> None:
    """Check that a refund with a lost response is found, by sending it again if necessary."""
    lost, given = replace(request, reference=None), await harness.given_back(request.capture)
    if harness.finds_unreferenced_refunds:
        assert await refund_stands(harness, lost) is state
        return
    assert await refund_stands(harness, lost) is ABSENT
    report = await harness.gateway.refund(harness.account, lost)
    assert isinstance(report, RefundReport)
    assert (report.state, report.reference) == (state, request.reference)
    assert await harness.given_back(request.capture) == given


async def pending(harness: Harness) -> GatewayRefundRequest:
    """Request a refund that waits for the counterpart's decision."""
    async with refunds_are(harness, RefundOutcome.PENDING):
        money = await paid(harness)
    return await refunded(harness, refund_of(harness, money), PENDING)


def _part(harness: Harness, whole: int) -> int:
    return whole // PART if harness.gateway.capabilities.refunds is RefundSupport.PARTIAL else whole
