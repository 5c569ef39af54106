"""A payment from its creation to its end, for each possible end."""

import msgspec
import pytest

from payintent.core.errors import ErrorCode, RefusedError
from payintent.gateways.port import (
    FailureReason,
    GatewaySessionState,
    OutcomeUnknown,
    SessionRejected,
    SessionReport,
)
from payintent.payments.cancel import cancel_by_merchant
from tests.support.fakes import captured, declined
from tests.support.world import World


async def test_creating_selecting_and_paying_produces_a_single_event(world: World) -> None:
    payment = await world.create()
    selected = await world.select(payment)
    assert selected.payment.status == "PROCESSING"
    assert selected.session.quote.price.total_amount == "1590.00"
    paid = await world.report(payment, selected.session.id, captured(159000))
    assert paid.status == "PAID"
    assert paid.receipt_id is not None
    assert await world.events(payment) == ["payment.completed"]


async def test_the_event_contains_exactly_the_fields_of_the_specification(world: World) -> None:
    payment = await world.create(metadata='{"b": 1.0,"a":[ 1,2 ]}')
    selected = await world.select(payment)
    await world.report(payment, selected.session.id, captured(159000))
    [row] = await world.rows("SELECT body FROM event")
    envelope = msgspec.json.decode(row["body"])
    assert list(envelope) == ["type", "timestamp", "data"]
    assert list(envelope["data"]["payment"]) == [
        *("id", "status", "currency", "amount", "payer_uid"),
        *("receipt_id", "provider", "paid_at", "metadata"),
    ]
    assert '"metadata":{"b": 1.0,"a":[ 1,2 ]}' in row["body"]


async def test_a_decline_fails_the_payment(world: World) -> None:
    payment = await world.create()
    selected = await world.select(payment)
    failed = await world.report(payment, selected.session.id, declined())
    assert (failed.status, failed.failure_reason) == ("FAILED", FailureReason.DECLINED)
    assert await world.events(payment) == ["payment.failed"]


async def test_a_different_amount_fails_the_payment_and_opens_a_case(world: World) -> None:
    payment = await world.create()
    selected = await world.select(payment)
    failed = await world.report(payment, selected.session.id, captured(158999))
    assert (failed.status, failed.failure_reason) == ("FAILED", FailureReason.AMOUNT_MISMATCH)
    assert await world.cases(payment) == ["AMOUNT_MISMATCH"]


async def test_a_method_change_closes_the_old_session_and_a_late_capture_opens_a_case(
    world: World,
) -> None:
    payment = await world.create()
    first = await world.select(payment, world.card)
    second = await world.select(payment, world.transfer)
    assert (await world.session(first.session.id))["life"] == "closing"
    await world.report(payment, first.session.id, captured(159000, reference="late"))
    assert await world.status(payment) == "PROCESSING"
    await world.report(payment, second.session.id, captured(159000, reference="good"))
    assert await world.status(payment) == "PAID"
    assert await world.events(payment) == ["payment.completed"]
    assert await world.cases(payment) == ["ORPHAN_CAPTURE"]


async def test_a_method_change_is_refused_if_the_current_method_has_a_capture(world: World) -> None:
    payment = await world.create()
    await world.select(payment, world.card)
    world.gateway.answer_inquire = captured(159000)
    with pytest.raises(RefusedError, match="payment has been received"):
        await world.select(payment, world.transfer)
    assert await world.status(payment) == "PAID"


async def test_the_method_cannot_be_changed_during_authorisation(world: World) -> None:
    payment = await world.create()
    await world.select(payment, world.card)
    world.gateway.answer_inquire = SessionReport(state=GatewaySessionState.AUTHORISING)
    with pytest.raises(RefusedError) as refused:
        await world.select(payment, world.transfer)
    assert refused.value.code is ErrorCode.INVALID_CHECKOUT_STATE


@pytest.mark.parametrize(
    ("answer", "life"),
    [(OutcomeUnknown(detail="timeout"), "closing"), (SessionRejected(detail="no"), "ended")],
)
async def test_a_rejected_session_does_not_change_the_payment(
    world: World, answer: OutcomeUnknown | SessionRejected, life: str
) -> None:
    payment = await world.create()
    world.gateway.answer_create = lambda _: answer
    with pytest.raises(RefusedError) as refused:
        await world.select(payment)
    assert refused.value.code is ErrorCode.PG_UPSTREAM_ERROR
    assert await world.status(payment) == "PENDING"
    [row] = await world.rows("SELECT life FROM session")
    assert row["life"] == life


async def test_only_a_pending_payment_can_be_cancelled(world: World) -> None:
    payment = await world.create()
    async with world.database.transaction() as tx:
        await cancel_by_merchant(tx, payment, None)
    assert await world.events(payment) == ["payment.cancelled"]
    other = await world.create()
    await world.select(other)
    with pytest.raises(RefusedError, match="PROCESSING"):
        async with world.database.transaction() as tx:
            await cancel_by_merchant(tx, other, None)
