"""A refund is sent once and queried until the provider reports its final state."""

import asyncio

import pytest
from structlog.testing import capture_logs

from payintent.cases.operations import ListCases
from payintent.db.database import get_current_time
from payintent.gateway_accounts.health import GatewayChannel
from payintent.gateways.port import GatewayRefundRequest
from payintent.payments import store as payment_store
from payintent.refunds import list_store as refund_lists
from payintent.refunds.model import RefundStatus, RefundStep
from payintent.refunds.resolve_case import ResolveCase
from payintent.refunds.send import ABSENT_FINAL_AFTER_S, HAND_OVER_AFTER_S, INQUIRY_DELAYS_S
from payintent.refunds.settle import settle_refund
from tests.refunds.refund_gateway import NOT_CONTACTED, TIMED_OUT, RefundGateway, set_capabilities
from tests.refunds.refund_setup import (
    ABSENT,
    DECLINED,
    DONE,
    PENDING,
    Books,
    claim_due_refunds,
    create_paid_payment,
    process_due_refunds,
    read_books,
    read_refund,
    request_refund,
    seconds_until_due,
    send_refund_callback,
)
from tests.support.fakes import FakeGateway
from tests.support.race_staging import hold_transaction, wait_until_blocked
from tests.support.world import World

_LEASE_S = 61


class _Crash(BaseException):
    """The process dies."""


@pytest.fixture
def gateway() -> FakeGateway:
    return RefundGateway()


async def count_events(world: World) -> int:
    [row] = await world.rows("SELECT count(*) AS n FROM event")
    return row["n"]


async def test_a_completed_refund_is_settled_without_an_event(world: World) -> None:
    payment = await create_paid_payment(world)
    event_count = await count_events(world)
    refund = await request_refund(world, payment, "590.00", reason="late")
    assert await process_due_refunds(world) == 1
    [request] = world.gateway.refunds
    assert (request.refund_id, request.amount_minor, request.reason) == (refund.id, 59000, "late")
    assert request.capture.reference == f"cap-{payment.id}"
    assert (request.capture.amount_minor, request.capture.currency) == (159000, "THB")
    assert request.session is not None
    assert request.session.session_id == payment.session_id
    assert request.callback_url == f"http://pay.test/v1/callbacks/fake/{world.account_id}"
    assert await read_books(world, payment) == Books("PARTIALLY_REFUNDED", "590", "0", 59000, 0)
    await request_refund(world, payment)
    assert await process_due_refunds(world) == 1
    assert await read_books(world, payment) == Books("REFUNDED", "1590", "0", 159000, 0)
    assert await process_due_refunds(world) == 0
    assert await count_events(world) == event_count


async def test_the_payment_is_refunded_only_by_its_last_partial_refund(world: World) -> None:
    payment = await create_paid_payment(world)
    versions = [(await world.read(payment)).payment.version]
    for amount, status in (
        ("500", "PARTIALLY_REFUNDED"),
        ("500", "PARTIALLY_REFUNDED"),
        ("590", "REFUNDED"),
    ):
        await request_refund(world, payment, amount)
        await process_due_refunds(world)
        stored_payment = (await world.read(payment)).payment
        assert stored_payment.status == status
        assert stored_payment.paid_at == payment.paid_at
        versions.append(stored_payment.version)
    assert versions == sorted(set(versions))


async def test_a_declined_refund_releases_its_reservation(world: World) -> None:
    payment = await create_paid_payment(world)
    world.gateway.answer_refund = DECLINED
    refund = await request_refund(world, payment)
    await process_due_refunds(world)
    stored_refund = await read_refund(world, refund)
    assert (stored_refund.status, stored_refund.failure_reason, stored_refund.step) == (
        "FAILED",
        "DECLINED",
        "ended",
    )
    assert await read_books(world, payment) == Books("PAID", "0", "0", 0, 0)
    world.gateway.answer_refund = DONE
    await request_refund(world, payment)
    await process_due_refunds(world)
    assert await world.status(payment) == "REFUNDED"


async def test_a_pending_refund_is_settled_by_a_callback(world: World) -> None:
    payment = await create_paid_payment(world)
    world.gateway.answer_refund = PENDING
    refund = await request_refund(world, payment)
    await process_due_refunds(world)
    stored_refund = await read_refund(world, refund)
    assert (stored_refund.status, stored_refund.step, stored_refund.reference) == (
        "PENDING",
        "sent",
        "re_1",
    )
    assert await read_books(world, payment) == Books("PAID", "0", "1590", 0, 159000)
    receipt = await send_refund_callback(world, refund.id)
    assert (receipt.is_new, receipt.payment_id) == (True, payment.id)
    assert await read_books(world, payment) == Books("REFUNDED", "1590", "0", 159000, 0)


async def test_the_delay_between_inquiries_about_a_pending_refund_increases_until_it_ends(
    world: World,
) -> None:
    payment = await create_paid_payment(world)
    world.gateway.answer_refund = world.gateway.answer_inquire_refund = PENDING
    refund = await request_refund(world, payment)
    await process_due_refunds(world)
    elapsed_s, waits = 0.0, []
    for _ in range(len(INQUIRY_DELAYS_S) + 2):
        wait = await seconds_until_due(world, refund)
        assert wait is not None
        waits.append(round(wait))
        elapsed_s += wait + 1
        await world.move_clock(elapsed_s)
        assert await process_due_refunds(world) == 1
    assert waits == [
        5,
        *(round(delay_s) for delay_s in INQUIRY_DELAYS_S),
        round(INQUIRY_DELAYS_S[-1]),
    ]
    assert len(world.gateway.refunds) == 1
    assert {item.reference for item in world.gateway.refunds_inquired} == {"re_1"}
    world.gateway.answer_inquire_refund = DONE
    await world.move_clock(elapsed_s + 3601)
    await process_due_refunds(world)
    assert await world.status(payment) == "REFUNDED"
    assert await process_due_refunds(world) == 0


@pytest.mark.parametrize("is_idempotent", [True, False])
async def test_a_refund_with_an_unknown_outcome_is_queried_and_not_sent_again(
    world: World, is_idempotent: bool
) -> None:
    payment = await create_paid_payment(world)
    set_capabilities(world, refund_is_idempotent=is_idempotent)
    world.gateway.answer_refund = TIMED_OUT
    world.gateway.answer_inquire_refund = TIMED_OUT
    await request_refund(world, payment)
    for moment in range(8):
        await world.move_clock(moment * 4000)
        await process_due_refunds(world)
    assert (len(world.gateway.refunds), len(world.gateway.refunds_inquired)) == (1, 7)
    world.gateway.answer_inquire_refund = DONE
    await world.move_clock(9 * 4000)
    await process_due_refunds(world)
    assert await read_books(world, payment) == Books("REFUNDED", "1590", "0", 159000, 0)
    assert len(world.gateway.refunds) == 1


async def test_an_unknown_refund_is_sent_again_to_an_idempotent_gateway(world: World) -> None:
    payment = await create_paid_payment(world)
    world.gateway.answer_refund, world.gateway.answer_inquire_refund = TIMED_OUT, ABSENT
    refund = await request_refund(world, payment)
    for moment in range(4):
        await world.move_clock(moment * 100)
        await process_due_refunds(world)
    assert [item.refund_id for item in world.gateway.refunds] == [refund.id] * 2
    assert [item.was_sent_before for item in world.gateway.refunds] == [False, True]
    assert len(world.gateway.refunds_inquired) == 2
    assert (await read_refund(world, refund)).step is RefundStep.QUEUED


async def test_an_unknown_refund_is_never_sent_again_to_a_non_idempotent_gateway(
    world: World,
) -> None:
    payment = await create_paid_payment(world)
    set_capabilities(world, refund_is_idempotent=False)
    world.gateway.answer_refund, world.gateway.answer_inquire_refund = TIMED_OUT, ABSENT
    refund = await request_refund(world, payment)
    await process_due_refunds(world)
    await world.move_clock(ABSENT_FINAL_AFTER_S - 30)
    assert await process_due_refunds(world) == 1
    assert (await read_refund(world, refund)).status is RefundStatus.PENDING  # it may still arrive
    await world.move_clock(ABSENT_FINAL_AFTER_S + 60)
    await process_due_refunds(world)
    assert (await read_refund(world, refund)).status is RefundStatus.FAILED
    assert len(world.gateway.refunds) == 1
    assert await read_books(world, payment) == Books("PAID", "0", "0", 0, 0)


@pytest.mark.parametrize("is_idempotent", [True, False])
async def test_a_refund_is_queried_if_the_process_died_before_the_response(
    world: World, is_idempotent: bool
) -> None:
    payment = await create_paid_payment(world)
    set_capabilities(world, refund_is_idempotent=is_idempotent)
    refund = await request_refund(world, payment)
    await _die_while_sending(world)
    assert (await read_refund(world, refund)).step is RefundStep.SENT
    assert await process_due_refunds(world) == 0  # until the lease expires
    await world.move_clock(_LEASE_S)
    assert await process_due_refunds(world) == 1
    assert len(world.gateway.refunds) == 1
    assert len(world.gateway.refunds_inquired) == 1
    assert await world.status(payment) == "REFUNDED"


async def _die_while_sending(world: World) -> None:
    def crash(_: GatewayRefundRequest) -> None:
        raise _Crash

    assert isinstance(world.gateway, RefundGateway)
    world.gateway.during = crash
    [due_refund] = await claim_due_refunds(world)
    with pytest.raises(_Crash):
        await world.service.refund_sender.process(due_refund)
    world.gateway.during = None


async def test_a_refund_is_sent_later_if_the_process_died_before_sending_it(world: World) -> None:
    payment = await create_paid_payment(world)
    await request_refund(world, payment)
    assert len(await claim_due_refunds(world)) == 1  # and the process dies
    assert await process_due_refunds(world) == 0
    await world.move_clock(_LEASE_S)
    await process_due_refunds(world)
    assert len(world.gateway.refunds) == 1
    assert await world.status(payment) == "REFUNDED"


async def test_two_workers_that_claimed_the_same_refund_send_it_once(world: World) -> None:
    payment = await create_paid_payment(world)
    set_capabilities(world, refund_is_idempotent=False)
    world.gateway.answer_refund = PENDING
    await request_refund(world, payment)
    [slow_claim] = await claim_due_refunds(world)
    await world.move_clock(_LEASE_S)
    assert await process_due_refunds(world) == 1
    await world.service.refund_sender.process(slow_claim)
    assert len(world.gateway.refunds) == 1


@pytest.mark.parametrize("is_idempotent", [True, False])
async def test_a_refund_that_was_not_sent_is_sent_later(world: World, is_idempotent: bool) -> None:
    payment = await create_paid_payment(world)
    set_capabilities(world, refund_is_idempotent=is_idempotent)
    world.gateway.answer_refund = NOT_CONTACTED
    refund = await request_refund(world, payment)
    await process_due_refunds(world)
    stored_refund = await read_refund(world, refund)
    assert (stored_refund.step, stored_refund.status) == (RefundStep.QUEUED, RefundStatus.PENDING)
    assert await seconds_until_due(world, refund) == pytest.approx(INQUIRY_DELAYS_S[0], abs=2)
    world.gateway.answer_refund = DONE
    await world.move_clock(INQUIRY_DELAYS_S[0] + 1)
    await process_due_refunds(world)
    assert len(world.gateway.refunds) == 2
    assert world.gateway.refunds_inquired == []
    assert await world.status(payment) == "REFUNDED"


async def test_a_refund_that_was_not_sent_is_retried_after_a_minute_at_most(world: World) -> None:
    payment = await create_paid_payment(world)
    world.gateway.answer_refund = NOT_CONTACTED
    refund = await request_refund(world, payment)
    waits = []
    for moment in range(6):
        await world.move_clock(moment * 61)
        await world.health.record_result(world.account_id, GatewayChannel.REFUNDS, None)
        assert await process_due_refunds(world) == 1
        waits.append(round(await seconds_until_due(world, refund) or 0))
    assert waits == [5, 15, 30, 60, 60, 60]


# Contradictory, repeated and late reports


async def test_a_refund_that_is_declined_after_its_success_opens_a_case(world: World) -> None:
    payment = await create_paid_payment(world)
    refund = await request_refund(world, payment)
    await process_due_refunds(world)
    before = (await world.read(payment)).payment
    for _ in range(2):
        await send_refund_callback(world, refund.id, DECLINED)
    assert await world.cases(payment) == ["REFUND_REVERSED"]
    assert (await world.read(payment)).payment == before
    assert await read_books(world, payment) == Books("REFUNDED", "1590", "0", 159000, 0)
    [case] = await world.rows("SELECT refund_id, capture_id, status FROM money_case")
    assert (case["refund_id"], case["status"]) == (refund.id, "OPEN")
    assert len(await world.rows("SELECT 1 FROM refund")) == 1  # no refund is created automatically


async def test_a_refund_that_succeeds_after_its_failure_opens_a_case(world: World) -> None:
    payment = await create_paid_payment(world)
    world.gateway.answer_refund = DECLINED
    refund = await request_refund(world, payment)
    await process_due_refunds(world)
    for _ in range(2):
        await send_refund_callback(world, refund.id, DONE)
    assert await world.cases(payment) == ["RECONCILIATION"]
    assert await read_books(world, payment) == Books("PAID", "0", "0", 0, 0)


WORDS = {"done": DONE, "pending": PENDING, "absent": ABSENT}
LATE_WORDS = ("done pending", "done done", "pending done", "absent done", "done absent")


@pytest.mark.parametrize("order", LATE_WORDS)
async def test_repeated_reports_in_any_order_settle_a_refund_once(world: World, order: str) -> None:
    payment = await create_paid_payment(world)
    world.gateway.answer_refund = PENDING
    refund = await request_refund(world, payment)
    await process_due_refunds(world)
    for name in order.split():
        await send_refund_callback(world, refund.id, WORDS[name], name=name)
        assert (await send_refund_callback(world, refund.id, WORDS[name])).is_new
    assert not (
        await send_refund_callback(world, refund.id, DECLINED, name=order.split(maxsplit=1)[0])
    ).is_new
    assert await read_books(world, payment) == Books("REFUNDED", "1590", "0", 159000, 0)
    assert await world.cases(payment) == []


async def test_a_refund_settled_by_a_callback_is_not_sent(world: World) -> None:
    payment = await create_paid_payment(world)
    refund = await request_refund(world, payment)
    [due_refund] = await claim_due_refunds(world)
    await send_refund_callback(world, refund.id)
    await world.service.refund_sender.process(due_refund)
    assert world.gateway.refunds == []  # the refund had ended before it was sent
    assert await read_books(world, payment) == Books("REFUNDED", "1590", "0", 159000, 0)


async def test_a_callback_and_a_concurrent_response_settle_a_refund_once(world: World) -> None:
    payment = await create_paid_payment(world)
    refund = await request_refund(world, payment)
    [due_refund] = await claim_due_refunds(world)
    async with hold_transaction(world, lambda tx: payment_store.lock(tx, [payment.id])) as holder:
        response = asyncio.create_task(world.service.refund_sender.process(due_refund))
        callback = asyncio.create_task(send_refund_callback(world, refund.id))
        await wait_until_blocked(world, response, callback)
        await holder.commit()
        await asyncio.gather(response, callback)
    assert await read_books(world, payment) == Books("REFUNDED", "1590", "0", 159000, 0)


async def test_a_report_from_another_account_is_ignored(world: World) -> None:
    payment = await create_paid_payment(world)
    world.gateway.answer_refund = PENDING
    refund = await request_refund(world, payment)
    await process_due_refunds(world)
    account_id = await world.add_account("http://other.test", signing_secret="another")
    for report in (DONE, DECLINED):
        receipt = await send_refund_callback(world, refund.id, report, account_id=account_id)
        assert (receipt.is_new, receipt.payment_id) == (True, None)
    assert (await read_refund(world, refund)).status is RefundStatus.PENDING
    await send_refund_callback(world, refund.id, DONE)
    assert await world.status(payment) == "REFUNDED"


async def test_a_callback_about_an_unknown_refund_is_accepted_without_effect(world: World) -> None:
    receipt = await send_refund_callback(world, world.id_generator.new_id())
    assert (receipt.is_new, receipt.payment_id) == (True, None)
    [row] = await world.rows("SELECT applied_at FROM callback")
    assert row["applied_at"] is not None


# Refunds without a final report for a week


async def test_a_refund_without_a_final_report_is_handed_over_to_an_operator_after_a_week(
    world: World,
) -> None:
    payment = await create_paid_payment(world)
    world.gateway.answer_refund = world.gateway.answer_inquire_refund = TIMED_OUT
    refund = await request_refund(world, payment)
    await process_due_refunds(world)
    await world.move_clock(HAND_OVER_AFTER_S + 60)
    await process_due_refunds(world)
    assert await world.cases(payment) == ["RECONCILIATION"]
    assert await seconds_until_due(world, refund) is None
    assert await read_books(world, payment) == Books("PAID", "0", "1590", 0, 159000)
    await world.move_clock(3 * HAND_OVER_AFTER_S)
    assert await process_due_refunds(world) == 0
    await send_refund_callback(world, refund.id, DONE)
    assert await world.status(payment) == "REFUNDED"


@pytest.mark.parametrize("is_closed", [True, False])
async def test_a_contradiction_is_added_to_the_case_that_the_timeout_opened(
    world: World, is_closed: bool
) -> None:
    payment = await create_paid_payment(world)
    world.gateway.answer_refund = world.gateway.answer_inquire_refund = TIMED_OUT
    refund = await request_refund(world, payment)
    await process_due_refunds(world)
    await world.move_clock(HAND_OVER_AFTER_S + 60)
    await process_due_refunds(world)
    [case] = await world.perform(ListCases())
    await send_refund_callback(world, refund.id, DECLINED)
    if is_closed:
        await world.move_clock(HAND_OVER_AFTER_S + 120)
        await send_refund_callback(world, refund.id, DECLINED)
        await world.perform(ResolveCase(case_id=case.id, resolution="dismiss", note="not done"))
    with capture_logs() as lines:
        await send_refund_callback(world, refund.id, DONE)
        await send_refund_callback(world, refund.id, DONE)
    assert [line["event"] for line in lines] == ["refund_contradicted"]
    [updated_case] = await world.perform(ListCases())
    assert updated_case.id == case.id
    assert updated_case.note.endswith("the gateway now reports that the money was refunded")


async def test_a_failing_adapter_is_retried_with_increasing_delays_for_a_week(
    world: World,
) -> None:
    payment = await create_paid_payment(world)

    async def fail(*_: object) -> None:
        raise KeyError("a bug of its own")

    world.gateway.refund = fail  # type: ignore[assignment, method-assign]
    world.gateway.inquire_refund = fail  # type: ignore[assignment, method-assign]
    refund = await request_refund(world, payment)
    for wait in (INQUIRY_DELAYS_S[0], INQUIRY_DELAYS_S[1]):
        with pytest.raises(KeyError):
            await process_due_refunds(world)
        assert await seconds_until_due(world, refund) == pytest.approx(wait, abs=2)
        await world.move_clock(wait + 1)
    await world.move_clock(HAND_OVER_AFTER_S + 60)
    with pytest.raises(KeyError):
        await process_due_refunds(world)
    assert await world.cases(payment) == ["RECONCILIATION"]
    assert await seconds_until_due(world, refund) is None
    assert await read_books(world, payment) == Books("PAID", "0", "1590", 0, 159000)


async def test_a_final_report_after_a_week_does_not_open_a_case(world: World) -> None:
    payment = await create_paid_payment(world)
    world.gateway.answer_refund = TIMED_OUT
    await request_refund(world, payment)
    await process_due_refunds(world)
    await world.move_clock(HAND_OVER_AFTER_S + 60)
    await process_due_refunds(
        world
    )  # the service was down, and the gateway responds to the first inquiry
    assert await world.status(payment) == "REFUNDED"
    assert await world.cases(payment) == []


async def test_the_week_without_a_report_does_not_include_the_wait_for_approval(
    world: World,
) -> None:
    payment = await create_paid_payment(world)
    world.gateway.answer_refund = PENDING
    refund = await request_refund(world, payment)
    await world.rows("UPDATE refund SET step = 'approval', next_at = NULL")
    await world.move_clock(HAND_OVER_AFTER_S + 60)
    async with world.database.transaction() as tx:
        at = await get_current_time(tx)
        await refund_lists.approve(tx, refund.id, "bob", "it is theirs", at)
    assert await process_due_refunds(world) == 1
    assert await world.cases(payment) == []
    assert await seconds_until_due(world, refund) == pytest.approx(INQUIRY_DELAYS_S[0], abs=2)


async def test_the_handover_of_a_refund_waits_for_a_transaction_that_settles_it(
    world: World,
) -> None:
    payment = await create_paid_payment(world)
    world.gateway.answer_refund, world.gateway.answer_inquire_refund = PENDING, TIMED_OUT
    refund = await request_refund(world, payment)
    await process_due_refunds(world)
    await world.move_clock(HAND_OVER_AFTER_S + 61)
    [due_refund] = await claim_due_refunds(world)
    locked, can_settle = asyncio.Event(), asyncio.Event()

    async def settle() -> None:
        async with world.database.transaction() as tx:
            await payment_store.lock(tx, [payment.id])
            locked.set()
            await can_settle.wait()
            await settle_refund(tx, refund.id, DONE)

    settlement = asyncio.create_task(settle())
    await locked.wait()
    handover = asyncio.create_task(world.service.refund_sender.process(due_refund))
    await wait_until_blocked(world, handover)
    can_settle.set()
    await asyncio.gather(settlement, handover)
    assert await world.status(payment) == "REFUNDED"
    assert await world.perform(ListCases()) == []
