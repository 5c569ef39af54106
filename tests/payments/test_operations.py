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
from tests.refunds.refunding import Books, books, paid, work
from tests.support.fakes import FakeGateway
from tests.support.stage import ADA, ALAN
from tests.support.world import Api, World

_BOB = Actor("Bob", "ticket 7", Role.SUPPORT)


@pytest.fixture
def gateway() -> FakeGateway:
    return RefundGateway()


def name(payment: Payment) -> str:
    return ids.format_id(ids.PAYMENT, payment.id)


async def refund(world: World, payment: Payment, who: Actor = ADA, **more: Any) -> RefundDetails:
    made = await world.service.submit(RefundPayment(payment_id=name(payment), **more), who)
    assert isinstance(made, RefundDetails)
    return made


async def audited(world: World, action: str) -> list[tuple[str, dict[str, Any]]]:
    rows = await world.rows(
        "SELECT who, details::text AS details FROM audit WHERE action = $1 ORDER BY id", action
    )
    return [(row["who"], json.loads(row["details"])) for row in rows]


async def test_cancelling_a_pending_payment_creates_its_event(world: World) -> None:
    payment = await world.create()
    done = await world.service.run_operation(CancelPayment(payment_id=name(payment)), _BOB)
    assert (done.status, await world.status(payment)) == ("CANCELLED", "CANCELLED")
    assert await world.events(payment) == ["payment.cancelled"]
    [(who, details)] = await audited(world, "payment.cancel")
    assert (who, details) == ("Bob", {"payment_id": name(payment)})


async def test_an_operator_cannot_cancel_a_payment_that_its_merchant_could_not_cancel(
    world: World,
) -> None:
    processing, elapsed = await world.create(), await world.create()
    await world.select(processing)
    await world.rows("UPDATE payment SET expires_at = clock() WHERE id = $1", elapsed.id)
    for payment, status in ((processing, "PROCESSING"), (elapsed, "EXPIRED")):
        with pytest.raises(RefusedError, match=f"cannot cancel a payment in {status}") as refused:
            await world.service.run_operation(CancelPayment(payment_id=name(payment)), _BOB)
        assert refused.value.code is ErrorCode.INVALID_PAYMENT_STATE
    assert await audited(world, "payment.cancel") == []


async def test_a_refund_by_an_operator_is_reserved_audited_and_sent(world: World) -> None:
    payment = await paid(world)
    made = await refund(world, payment, amount="590.00", reason="a page is missing")
    assert (made.status, made.step, made.amount) == ("PENDING", "queued", "590.00")
    assert (made.requested_by, made.approved_by) == ("Ada", None)
    assert await books(world, payment) == Books("PAID", "0", "590", 0, 59000)
    [(who, details)] = await audited(world, "payment.refund")
    assert (who, details["refund_id"], details["amount"]) == ("Ada", made.id, "590.00")
    await work(world)
    assert await books(world, payment) == Books("PARTIALLY_REFUNDED", "590", "0", 59000, 0)


async def test_a_refund_without_an_amount_refunds_the_remaining_amount(world: World) -> None:
    payment = await paid(world)
    await refund(world, payment, amount="0.01")
    assert (await refund(world, payment)).amount == "1589.99"
    with pytest.raises(RefusedError) as refused:
        await refund(world, payment)
    assert refused.value.code is ErrorCode.REFUND_EXCEEDS_REMAINING
    assert len(await audited(world, "payment.refund")) == 2


async def test_concurrent_refunds_by_operators_do_not_exceed_the_paid_amount(world: World) -> None:
    payment = await paid(world)
    made = await asyncio.gather(
        refund(world, payment), refund(world, payment, ALAN), return_exceptions=True
    )
    assert sum(isinstance(item, RefundDetails) for item in made) == 1
    assert await books(world, payment) == Books("PAID", "0", "1590", 0, 159000)


async def test_a_key_makes_refunds_idempotent_and_is_separate_from_the_merchants_keys(
    world: World, api: Api
) -> None:
    payment, key = await paid(world), uuid4()
    headers = api.bearer() | {"Idempotency-Key": str(key)}
    path = f"/v1/payments/{name(payment)}/refunds"
    theirs = await api.send("POST", path, json={"amount": "10.00"}, headers=headers)
    assert theirs.status == 201
    first = await refund(world, payment, amount="10.00", key=key)
    again = await refund(world, payment, amount="10.00", key=key)
    assert first.id == again.id != theirs.json["id"]
    with pytest.raises(RefusedError) as refused:
        await refund(world, payment, amount="20.00", key=key)
    assert refused.value.code is ErrorCode.IDEMPOTENCY_CONFLICT
    assert await books(world, payment) == Books("PAID", "0", "20", 0, 2000)


async def test_a_refund_with_an_unversioned_fingerprint_is_replayed(world: World) -> None:
    payment, key = await paid(world), uuid4()
    first = await refund(world, payment, amount="10.00", key=key)
    sent = ["refund", str(payment.id), "10.00", None, None, ADA.name]
    former = hashlib.sha256(json.dumps(sent, separators=(",", ":")).encode()).digest()
    await world.rows("UPDATE idempotency SET request_hash = $1 WHERE key = $2", former, key)
    again = await refund(world, payment, amount="10.00", key=key)
    assert again.id == first.id


async def test_the_support_role_cannot_refund(world: World) -> None:
    payment = await paid(world)
    with pytest.raises(RefusedError, match="requires the finance role") as refused:
        await refund(world, payment, _BOB)
    assert refused.value.code is ErrorCode.FORBIDDEN


async def test_an_operator_cannot_approve_their_own_refund(world: World) -> None:
    """The refund is put into the approval step by hand, as if it exceeded the limit of a chain."""
    payment = await paid(world)
    made = await refund(world, payment)
    await world.rows("UPDATE refund SET step = 'approval', next_at = NULL")
    with pytest.raises(RefusedError, match="an operator other than 'Ada'"):
        await world.service.run_operation(Approve(approval_id=made.id), ADA)
    approved = await world.service.run_operation(Approve(approval_id=made.id), ALAN)
    assert approved.result["approved_by"] == "Alan"


async def test_a_refund_is_refused_while_the_gateway_circuit_is_open(world: World) -> None:
    payment = await paid(world)
    await world.rows(
        "INSERT INTO gateway_outage (account_id, channel, until) "
        "VALUES ($1, 'refunds', clock() + interval '1 minute')",
        world.account_id,
    )
    with pytest.raises(RefusedError) as refused:
        await refund(world, payment)
    assert refused.value.code is ErrorCode.REFUND_PROVIDER_UNAVAILABLE
