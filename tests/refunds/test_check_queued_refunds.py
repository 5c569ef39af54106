"""After a restore, gateways are queried about refunds that may already have been sent."""

import pytest

from payintent.refunds.operations import CheckQueuedRefunds
from payintent.refunds.send import ABSENT_FINAL_AFTER_S
from tests.refunds.refund_gateway import RefundGateway, set_capabilities
from tests.refunds.refund_setup import (
    ABSENT,
    DONE,
    create_paid_payment,
    process_due_refunds,
    read_refund,
    request_refund,
    seconds_until_due,
)
from tests.support.fakes import FakeGateway
from tests.support.world import World


@pytest.fixture
def gateway() -> FakeGateway:
    return RefundGateway()


async def check_queued_refunds(world: World) -> int:
    return (await world.perform(CheckQueuedRefunds())).refunds


async def test_a_queued_refund_that_the_gateway_has_already_executed_is_not_sent_again(
    world: World,
) -> None:
    payment = await create_paid_payment(world)
    refund = await request_refund(world, payment)
    world.gateway.answer_inquire_refund = DONE
    assert await check_queued_refunds(world) == 1
    assert await process_due_refunds(world) == 1
    assert world.gateway.refunds == []
    assert (await read_refund(world, refund)).status == "SUCCEEDED"
    assert await world.status(payment) == "REFUNDED"


async def test_an_unknown_refund_is_sent_to_an_idempotent_gateway(world: World) -> None:
    refund = await request_refund(world, await create_paid_payment(world))
    world.gateway.answer_inquire_refund = ABSENT
    await check_queued_refunds(world)
    await process_due_refunds(world)
    await world.move_clock(60)
    await process_due_refunds(world)
    assert [request.refund_id for request in world.gateway.refunds] == [refund.id]
    assert (await read_refund(world, refund)).status == "SUCCEEDED"


async def test_an_unknown_refund_to_a_non_idempotent_gateway_fails_after_ten_minutes(
    world: World,
) -> None:
    set_capabilities(world, refund_is_idempotent=False)
    payment = await create_paid_payment(world)
    refund = await request_refund(world, payment)
    world.gateway.answer_inquire_refund = ABSENT
    await check_queued_refunds(world)
    await process_due_refunds(world)
    assert (await read_refund(world, refund)).status == "PENDING"
    await world.move_clock(ABSENT_FINAL_AFTER_S + 60)
    await process_due_refunds(world)
    assert world.gateway.refunds == []
    assert (await read_refund(world, refund)).status == "FAILED"
    assert await world.status(payment) == "PAID"


async def test_refunds_that_were_handed_over_or_have_ended_are_not_checked(
    world: World,
) -> None:
    ended_refund = await request_refund(world, await create_paid_payment(world))
    await process_due_refunds(world)
    handed_over_refund = await request_refund(world, await create_paid_payment(world))
    await world.rows("UPDATE refund SET next_at = NULL WHERE id = $1", handed_over_refund.id)
    assert await check_queued_refunds(world) == 1
    assert (await read_refund(world, handed_over_refund)).step == "sent"
    assert await seconds_until_due(world, handed_over_refund) is None
    assert (await read_refund(world, ended_refund)).step == "ended"
    assert await check_queued_refunds(world) == 0
