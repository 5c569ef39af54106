"""A merchant can refund a limited amount per day and currency without an approval."""

import asyncio
from typing import Any
from uuid import UUID

import pytest

from payintent.cases.model import CaseKind
from payintent.cases.operations import ListCases
from payintent.core import ids
from payintent.core.errors import ErrorCode, RefusedError
from payintent.merchants.operations import SetRefundThreshold
from payintent.operators.proposals_store import Proposal
from payintent.payments.model import Payment
from payintent.refunds.approval_operations import ApproveRefund
from payintent.refunds.operations import RefundPayment
from payintent.refunds.resolve_case import ResolveCase
from tests.callbacks.test_receive import tell as send_callback
from tests.refunds.refund_setup import (
    create_paid_payment,
    process_due_refunds,
    request_refund,
    set_auto_refund,
)
from tests.support.fakes import captured
from tests.support.operation_examples import ADA, ALAN
from tests.support.world import World

_DAY_S = 24 * 3600


async def set_threshold(world: World, above: str | None, currency: str = "THB") -> None:
    await world.perform(
        SetRefundThreshold(merchant_id=world.merchant_id, currency=currency, above=above)
    )


async def request_step(world: World, payment: Payment, amount: str) -> str:
    """Request a refund as the merchant; return its step."""
    return (await request_refund(world, payment, amount)).step.value


async def read_steps(world: World) -> list[str]:
    rows = await world.rows("SELECT step FROM refund ORDER BY id")
    return [row["step"] for row in rows]


async def test_a_refund_needs_no_approval_without_a_threshold(world: World) -> None:
    assert await request_step(world, await create_paid_payment(world), "1590.00") == "queued"


async def test_a_refund_above_the_threshold_needs_the_approval_of_an_operator(
    world: World,
) -> None:
    await set_threshold(world, "100")
    payment = await create_paid_payment(world)
    assert await request_step(world, payment, "100.01") == "approval"
    assert await process_due_refunds(world) == 0, "the refund is not sent before its approval"
    [row] = await world.rows("SELECT id, status FROM refund")
    assert row["status"] == "PENDING"
    await world.service.run_operation(ApproveRefund(refund_id=format_refund_id(row["id"])), ALAN)
    assert await process_due_refunds(world) == 1


def format_refund_id(refund_id: UUID) -> str:
    return ids.format_id(ids.REFUND, refund_id)


async def test_the_threshold_applies_to_the_daily_total(world: World) -> None:
    await set_threshold(world, "100")
    payments = [await create_paid_payment(world) for _ in range(2)]
    for payment in payments:
        assert await request_step(world, payment, "50.00") == "queued"
    assert await request_step(world, payments[0], "0.01") == "approval"
    await process_due_refunds(world)  # completed refunds count like queued refunds
    assert await request_step(world, payments[1], "0.01") == "approval"
    await world.move_clock(_DAY_S + 1)
    assert await request_step(world, payments[1], "100.00") == "queued"


async def test_approved_and_failed_refunds_do_not_count_towards_the_daily_total(
    world: World,
) -> None:
    await set_threshold(world, "100")
    payment = await create_paid_payment(world)
    await request_step(world, payment, "500.00")
    [row] = await world.rows("SELECT id FROM refund")
    await world.service.run_operation(ApproveRefund(refund_id=format_refund_id(row["id"])), ALAN)
    assert await request_step(world, payment, "60.00") == "queued"
    await world.rows(
        "UPDATE refund SET status = 'FAILED', failure_reason = 'DECLINED',"
        " step = 'ended', next_at = NULL WHERE amount = 60"
    )
    assert await request_step(world, payment, "100.00") == "queued"


async def test_concurrent_refunds_cannot_exceed_the_threshold_together(world: World) -> None:
    await set_threshold(world, "100")
    payments = [await create_paid_payment(world) for _ in range(6)]
    await asyncio.gather(*[request_step(world, payment, "40.00") for payment in payments])
    assert sorted(await read_steps(world)) == ["approval"] * 4 + ["queued"] * 2


async def test_a_threshold_applies_only_to_its_currency_and_merchant(world: World) -> None:
    await set_threshold(world, "100", "USD")
    await world.rows(
        "INSERT INTO merchant (name, refund_approval_above) VALUES ('Other', '{\"THB\": \"0\"}')"
    )
    assert await request_step(world, await create_paid_payment(world), "1590.00") == "queued"


async def test_every_refund_needs_approval_if_the_threshold_is_zero(world: World) -> None:
    await set_threshold(world, "0")
    assert await request_step(world, await create_paid_payment(world), "0.01") == "approval"


async def test_a_refund_by_an_operator_above_the_threshold_needs_a_second_operator(
    world: World,
) -> None:
    await set_threshold(world, "100")
    payment = await create_paid_payment(world)
    operation = RefundPayment(payment_id=ids.format_id(ids.PAYMENT, payment.id), amount="200.00")
    view = await world.service.run_operation(operation, ADA)
    assert (view.step, view.requested_by) == ("approval", "Ada")
    with pytest.raises(RefusedError, match="an operator other than 'Ada'"):
        await world.service.run_operation(ApproveRefund(refund_id=view.id), ADA)
    approved_refund = await world.service.run_operation(ApproveRefund(refund_id=view.id), ALAN)
    assert approved_refund.step == "queued"


async def test_an_automatic_refund_above_the_threshold_needs_approval(world: World) -> None:
    await set_auto_refund(world, on=True)
    await set_threshold(world, "10")
    payment = await create_paid_payment(world)
    [row] = await world.rows("SELECT session_id FROM capture")
    await world.report(payment, row["session_id"], captured(159_000, reference="again"))
    assert await read_steps(world) == ["approval"]


async def propose_threshold(world: World, above: str | None) -> Any:
    change = SetRefundThreshold(merchant_id=world.merchant_id, currency="THB", above=above)
    return await world.service.submit(change, ADA)


@pytest.mark.parametrize(
    ("before", "after", "needs_approval"),
    [
        (None, "1000", False),
        (None, None, False),
        ("1000", "999.99", False),
        ("1000", "1000.00", False),
        ("1000", "1000.01", True),
        ("1000", None, True),
    ],
)
async def test_raising_or_removing_the_threshold_needs_approval(
    world: World, before: str | None, after: str | None, needs_approval: bool
) -> None:
    await set_threshold(world, before)
    assert isinstance(await propose_threshold(world, after), Proposal) is needs_approval


async def test_raising_the_threshold_needs_no_approval_during_activation(world: World) -> None:
    await set_threshold(world, "1000")
    await world.rows("UPDATE merchant SET activated_at = NULL, activation = 'VALIDATED'")
    assert not isinstance(await propose_threshold(world, None), Proposal)


@pytest.mark.parametrize(
    ("currency", "above", "message"),
    [
        ("XXX", "1", "currency 'XXX' is not supported"),
        ("thb", "1", "currency 'thb' is not supported"),
        ("THB", "-1", "above must be an amount of THB"),
        ("THB", "1e3", "above must be an amount of THB"),
        ("THB", "0.001", "above must be an amount of THB"),
        ("JPY", "0.5", "above must be an amount of JPY"),
        ("THB", "", "above must be an amount of THB"),
    ],
)
async def test_an_invalid_currency_or_amount_is_refused(
    world: World, currency: str, above: str, message: str
) -> None:
    with pytest.raises(RefusedError, match=message) as error:
        await set_threshold(world, above, currency)
    assert error.value.code is ErrorCode.BAD_REQUEST


async def test_the_threshold_applies_to_unknown_money_in_a_merchants_own_account(
    world: World,
) -> None:
    await world.rows("UPDATE provider_account SET merchant_id = $1", world.merchant_id)
    await set_threshold(world, "100")
    await send_callback(world, world.id_generator.new_session_id())
    [case] = await world.perform(ListCases(kind=CaseKind.UNKNOWN_REFERENCE))
    refund = ResolveCase(case_id=case.id, resolution="refund", note="unknown")
    await world.service.run_operation(refund, ADA)
    assert await read_steps(world) == ["approval"]
