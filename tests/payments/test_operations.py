"""Operators cancel and refund payments like merchants, but under their own names."""

import asyncio
import hashlib
import json
from typing import Any
from uuid import uuid4

import pytest

from payintent.approvals.operations import Approve
from payintent.core import ids
from payintent.core.access import Role
from payintent.core.errors import ErrorCode, RefusedError
from payintent.operators.operation import Actor
from payintent.payments.model import Payment
from payintent.payments.operations import CancelPayment
from payintent.refunds.list_store import RefundDetails
from payintent.refunds.operations import RefundPayment
from tests.refunds.refund_gateway import RefundGateway
from tests.refunds.refund_setup import Books, create_paid_payment, process_due_refunds, read_books
from tests.support.fakes import FakeGateway
from tests.support.operation_examples import ADA, ALAN
from tests.support.world import Api, World

_BOB = Actor("Bob", "ticket 7", Role.SUPPORT)


@pytest.fixture
def gateway() -> FakeGateway:
    return RefundGateway()


def public_id(payment: Payment) -> str:
    return ids.format_id(ids.PAYMENT, payment.id)


async def refund(world: World, payment: Payment, actor: Actor = ADA, **more: Any) -> RefundDetails:
    result = await world.service.submit(RefundPayment(payment_id=public_id(payment), **more), actor)
    assert isinstance(result, RefundDetails)
    return result


async def audit_entries(world: World, action: str) -> list[tuple[str, dict[str, Any]]]:
    rows = await world.rows(
        "SELECT who, details::text AS details FROM audit WHERE action = $1 ORDER BY id", action
    )
    return [(row["who"], json.loads(row["details"])) for row in rows]


async def test_cancelling_a_pending_payment_creates_its_event(world: World) -> None:
    payment = await world.create()
    result = await world.service.run_operation(CancelPayment(payment_id=public_id(payment)), _BOB)
    assert (result.status, await world.status(payment)) == ("CANCELLED", "CANCELLED")
    assert await world.events(payment) == ["payment.cancelled"]
    [(actor, details)] = await audit_entries(world, "payment.cancel")
    assert (actor, details) == ("Bob", {"payment_id": public_id(payment)})


async def test_an_operator_cannot_cancel_a_payment_that_its_merchant_could_not_cancel(
    world: World,
) -> None:
    processing, elapsed = await world.create(), await world.create()
    await world.select(processing)
    await world.rows("UPDATE payment SET expires_at = clock() WHERE id = $1", elapsed.id)
    for payment, status in ((processing, "PROCESSING"), (elapsed, "EXPIRED")):
        with pytest.raises(RefusedError, match=f"cannot cancel a payment in {status}") as error:
            await world.service.run_operation(CancelPayment(payment_id=public_id(payment)), _BOB)
        assert error.value.code is ErrorCode.INVALID_PAYMENT_STATE
    assert await audit_entries(world, "payment.cancel") == []


async def test_a_refund_by_an_operator_is_reserved_audited_and_sent(world: World) -> None:
    payment = await create_paid_payment(world)
    result = await refund(world, payment, amount="590.00", reason="a page is missing")
    assert (result.status, result.step, result.amount) == ("PENDING", "queued", "590.00")
    assert (result.requested_by, result.approved_by) == ("Ada", None)
    assert await read_books(world, payment) == Books("PAID", "0", "590", 0, 59000)
    [(actor, details)] = await audit_entries(world, "payment.refund")
    assert (actor, details["refund_id"], details["amount"]) == ("Ada", result.id, "590.00")
    await process_due_refunds(world)
    assert await read_books(world, payment) == Books("PARTIALLY_REFUNDED", "590", "0", 59000, 0)


async def test_a_refund_without_an_amount_refunds_the_remaining_amount(world: World) -> None:
    payment = await create_paid_payment(world)
    await refund(world, payment, amount="0.01")
    assert (await refund(world, payment)).amount == "1589.99"
    with pytest.raises(RefusedError) as error:
        await refund(world, payment)
    assert error.value.code is ErrorCode.REFUND_EXCEEDS_REMAINING
    assert len(await audit_entries(world, "payment.refund")) == 2


async def test_concurrent_refunds_by_operators_do_not_exceed_the_paid_amount(world: World) -> None:
    payment = await create_paid_payment(world)
    results = await asyncio.gather(
        refund(world, payment), refund(world, payment, ALAN), return_exceptions=True
    )
    assert sum(isinstance(item, RefundDetails) for item in results) == 1
    assert await read_books(world, payment) == Books("PAID", "0", "1590", 0, 159000)


async def test_a_key_makes_refunds_idempotent_and_is_separate_from_the_merchants_keys(
    world: World, api: Api
) -> None:
    payment, key = await create_paid_payment(world), uuid4()
    headers = api.bearer() | {"Idempotency-Key": str(key)}
    path = f"/v1/payments/{public_id(payment)}/refunds"
    merchant_refund = await api.send("POST", path, json={"amount": "10.00"}, headers=headers)
    assert merchant_refund.status == 201
    first = await refund(world, payment, amount="10.00", key=key)
    again = await refund(world, payment, amount="10.00", key=key)
    assert first.id == again.id != merchant_refund.json["id"]
    with pytest.raises(RefusedError) as error:
        await refund(world, payment, amount="20.00", key=key)
    assert error.value.code is ErrorCode.IDEMPOTENCY_CONFLICT
    assert await read_books(world, payment) == Books("PAID", "0", "20", 0, 2000)


async def test_a_refund_with_an_unversioned_fingerprint_is_replayed(world: World) -> None:
    payment, key = await create_paid_payment(world), uuid4()
    first = await refund(world, payment, amount="10.00", key=key)
    fields = ["refund", str(payment.id), "10.00", None, None, ADA.name]
    fingerprint = hashlib.sha256(json.dumps(fields, separators=(",", ":")).encode()).digest()
    await world.rows("UPDATE idempotency SET request_hash = $1 WHERE key = $2", fingerprint, key)
    again = await refund(world, payment, amount="10.00", key=key)
    assert again.id == first.id


async def test_the_support_role_cannot_refund(world: World) -> None:
    payment = await create_paid_payment(world)
    with pytest.raises(RefusedError, match="requires the finance role") as error:
        await refund(world, payment, _BOB)
    assert error.value.code is ErrorCode.FORBIDDEN


async def test_an_operator_cannot_approve_their_own_refund(world: World) -> None:
    """The refund is put into the approval step by hand, as if it exceeded the limit of a chain."""
    payment = await create_paid_payment(world)
    result = await refund(world, payment)
    await world.rows("UPDATE refund SET step = 'approval', next_at = NULL")
    with pytest.raises(RefusedError, match="an operator other than 'Ada'"):
        await world.service.run_operation(Approve(approval_id=result.id), ADA)
    approved = await world.service.run_operation(Approve(approval_id=result.id), ALAN)
    assert approved.result["approved_by"] == "Alan"


async def test_a_refund_is_refused_while_the_gateway_circuit_is_open(world: World) -> None:
    payment = await create_paid_payment(world)
    await world.rows(
        "INSERT INTO gateway_outage (account_id, channel, until) "
        "VALUES ($1, 'refunds', clock() + interval '1 minute')",
        world.account_id,
    )
    with pytest.raises(RefusedError) as error:
        await refund(world, payment)
    assert error.value.code is ErrorCode.REFUND_PROVIDER_UNAVAILABLE
