"""A refund is reserved immediately, never exceeds the remainder, and is created once per key."""

import asyncio
from decimal import Decimal
from uuid import uuid4

import pytest

from payintent.core.errors import ErrorCode, RefusedError
from payintent.gateway_accounts.health import FAILURES_MAX, GatewayChannel
from payintent.gateways.port import RefundSupport
from payintent.payments import store as payment_store
from payintent.payments.model import Payment
from payintent.refunds.model import Refund, RefundStatus
from tests.refunds.refund_gateway import NOT_CONTACTED, RefundGateway, set_capabilities
from tests.refunds.refund_setup import (
    Books,
    create_paid_payment,
    process_due_refunds,
    read_books,
    read_refund,
    request_refund,
)
from tests.support.fakes import FakeGateway
from tests.support.race_staging import hold_transaction, wait_until_blocked
from tests.support.world import World


@pytest.fixture
def gateway() -> FakeGateway:
    return RefundGateway()


async def request_refused(
    world: World, payment: Payment, amount: object = None, **more: object
) -> RefusedError:
    with pytest.raises(RefusedError) as error:
        await request_refund(world, payment, amount, **more)  # type: ignore[arg-type]
    return error.value


async def set_fee(world: World, rate: str) -> None:
    """Charge buyers a fee at this rate."""
    await world.rows(
        "UPDATE payment_method SET fee_mode = 'EXCLUSIVE', fee_rate = $1", Decimal(rate)
    )


async def test_a_refund_is_reserved_immediately_on_the_payment_and_its_capture(
    world: World,
) -> None:
    payment = await create_paid_payment(world)
    refund = await request_refund(world, payment, "590.00", reason="a page is missing")
    assert (refund.status, refund.step, refund.amount_text) == ("PENDING", "queued", "590.00")
    assert (refund.amount, refund.amount_minor) == (Decimal(590), 59000)
    assert await read_books(world, payment) == Books("PAID", "0", "590", 0, 59000)
    assert world.gateway.refunds == []


async def test_a_refund_without_an_amount_is_for_the_whole_remainder(world: World) -> None:
    payment = await create_paid_payment(world)
    await request_refund(world, payment, "0.01")
    assert (await request_refund(world, payment)).amount_text == "1589.99"
    assert (await request_refused(world, payment)).code is ErrorCode.REFUND_EXCEEDS_REMAINING
    assert await read_books(world, payment) == Books("PAID", "0", "1590", 0, 159000)


async def test_a_refund_cannot_exceed_the_remaining_amount(world: World) -> None:
    payment = await create_paid_payment(world)
    await request_refund(world, payment, "1000")
    error = await request_refused(world, payment, "590.01")
    assert error.code is ErrorCode.REFUND_EXCEEDS_REMAINING
    assert "590.00 THB" in error.message
    assert (await request_refund(world, payment, "590.00")).amount_minor == 59000


async def test_concurrent_refunds_are_accepted_only_up_to_the_remaining_amount(
    world: World,
) -> None:
    payment = await create_paid_payment(world)
    tasks = [asyncio.create_task(request_refund(world, payment, "500")) for _ in range(7)]
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert sum(isinstance(item, Refund) for item in results) == 3
    errors = [item for item in results if isinstance(item, RefusedError)]
    assert {item.code for item in errors} == {ErrorCode.REFUND_EXCEEDS_REMAINING}
    assert await read_books(world, payment) == Books("PAID", "0", "1500", 0, 150000)


async def test_only_one_of_two_concurrent_full_refunds_is_accepted(world: World) -> None:
    payment = await create_paid_payment(world)

    async with hold_transaction(world, lambda tx: payment_store.lock(tx, [payment.id])) as holder:
        tasks = [asyncio.create_task(request_refund(world, payment)) for _ in range(2)]
        await wait_until_blocked(world, *tasks)
        await holder.commit()
        results = await asyncio.gather(*tasks, return_exceptions=True)
    assert sorted(type(item).__name__ for item in results) == ["Refund", "RefusedError"]


async def test_a_repeated_key_returns_the_same_refund_without_another_reservation(
    world: World,
) -> None:
    payment, key = await create_paid_payment(world), uuid4()
    first = await request_refund(world, payment, "100", key)
    assert await request_refund(world, payment, "100", key) == first
    await process_due_refunds(world)
    replayed = await request_refund(world, payment, "100", key)
    assert (replayed.id, replayed.status) == (first.id, first.status), "the original response"
    assert replayed.updated_at == first.updated_at
    assert (await read_refund(world, first)).status is RefundStatus.SUCCEEDED
    assert await read_books(world, payment) == Books("PARTIALLY_REFUNDED", "100", "0", 10000, 0)


async def test_a_key_cannot_be_reused_for_a_different_refund(world: World) -> None:
    payment, second_payment, key = (
        await create_paid_payment(world),
        await create_paid_payment(world),
        uuid4(),
    )
    await request_refund(world, payment, "100", key)
    for conflicting_payment, amount in (
        (payment, "100.5"),
        (payment, None),
        (second_payment, "100"),
    ):
        error = await request_refused(world, conflicting_payment, amount, key=key)
        assert error.code is ErrorCode.IDEMPOTENCY_CONFLICT
    assert (await request_refused(world, payment, "100", key=key, reason="x")).code == error.code


async def test_a_refused_refund_leaves_its_key_free(world: World) -> None:
    payment, key = await create_paid_payment(world), uuid4()
    await request_refused(world, payment, "2000", key=key)
    assert (await request_refund(world, payment, "100", key)).status is RefundStatus.PENDING


@pytest.mark.parametrize(
    ("amount", "code", "is_malformed"),
    [
        ("0", ErrorCode.INVALID_AMOUNT, False),
        ("0.00", ErrorCode.INVALID_AMOUNT, False),
        ("0..0", ErrorCode.INVALID_AMOUNT, True),
        ("00", ErrorCode.INVALID_AMOUNT, True),
        (".", ErrorCode.INVALID_AMOUNT, True),
        ("", ErrorCode.INVALID_AMOUNT, True),
        ("1e2", ErrorCode.INVALID_AMOUNT, True),
        (100, ErrorCode.INVALID_AMOUNT, True),
        ("-1", ErrorCode.INVALID_AMOUNT, False),
        ("1.001", ErrorCode.INVALID_AMOUNT, False),
    ],
)
async def test_an_invalid_amount_is_refused(
    world: World, amount: object, code: ErrorCode, is_malformed: bool
) -> None:
    error = await request_refused(world, await create_paid_payment(world), amount)
    assert (error.code, error.is_malformed) == (code, is_malformed)


async def test_only_a_paid_payment_can_be_refunded(world: World) -> None:
    pending, processing = await world.create(), await world.create()
    await world.select(processing)
    refunded_payment = await create_paid_payment(world)
    await request_refund(world, refunded_payment)
    await process_due_refunds(world)
    for payment, status in (
        (pending, "PENDING"),
        (processing, "PROCESSING"),
        (refunded_payment, "REFUNDED"),
    ):
        error = await request_refused(world, payment)
        assert error.code is ErrorCode.INVALID_PAYMENT_STATE
        assert status in error.message


async def test_a_destination_is_refused_for_a_gateway_payment(world: World) -> None:
    error = await request_refused(
        world, await create_paid_payment(world), destination="0x" + "01" * 20
    )
    assert error.code is ErrorCode.UNPROCESSABLE


@pytest.mark.parametrize(
    ("refunds", "amount", "is_accepted"),
    [
        (RefundSupport.NONE, None, False),
        (RefundSupport.FULL_ONLY, "1589.99", False),
        (RefundSupport.FULL_ONLY, "1590", True),
        (RefundSupport.FULL_ONLY, None, True),
        (RefundSupport.PARTIAL, "0.01", True),
    ],
)
async def test_a_refund_must_be_supported_by_the_gateway(
    world: World, refunds: RefundSupport, amount: str | None, is_accepted: bool
) -> None:
    payment = await create_paid_payment(world)
    set_capabilities(world, refunds=refunds)
    if is_accepted:
        assert (await request_refund(world, payment, amount)).status is RefundStatus.PENDING
    else:
        assert (await request_refused(world, payment, amount)).code is ErrorCode.UNPROCESSABLE


async def test_a_fractional_refund_is_refused_by_a_gateway_without_decimals(world: World) -> None:
    payment = await create_paid_payment(world)
    set_capabilities(world, decimals={"THB": 0})
    assert (await request_refused(world, payment, "0.50")).code is ErrorCode.UNPROCESSABLE
    assert (await request_refund(world, payment, "90")).amount_minor == 9000


async def test_a_fractional_amount_can_be_refunded_in_full_by_a_gateway_without_decimals(
    world: World,
) -> None:
    """The gateway captured 1600: the amount of 1599.50 and a fee that rounds the total up."""
    await set_fee(world, "0.0003126")
    payment = await create_paid_payment(world, amount=Decimal("1599.50"), amount_text="1599.50")
    set_capabilities(world, decimals={"THB": 0})
    assert (await request_refund(world, payment)).amount_minor == 160000
    await process_due_refunds(world)
    assert await read_books(world, payment) == Books("REFUNDED", "1599.5", "0", 160000, 0)


async def test_a_partial_refund_includes_its_share_of_the_fee_and_the_last_includes_the_rest(
    world: World,
) -> None:
    await set_fee(world, "0.03")
    payment = await create_paid_payment(world, amount=Decimal("10.00"), amount_text="10.00")
    refunds = [await request_refund(world, payment, amount) for amount in ("3.33", "3.33", None)]
    assert [refund.amount_minor for refund in refunds] == [342, 342, 346]
    while await process_due_refunds(world):
        pass
    assert await read_books(world, payment) == Books("REFUNDED", "10", "0", 1030, 0)


async def test_a_refund_is_refused_during_an_outage_of_the_gateway(world: World) -> None:
    payment, key = await create_paid_payment(world), uuid4()
    for _ in range(FAILURES_MAX):
        await world.health.record_result(world.account_id, GatewayChannel.REFUNDS, NOT_CONTACTED)
    error = await request_refused(world, payment, "100", key=key)
    assert error.code is ErrorCode.REFUND_PROVIDER_UNAVAILABLE
    assert error.retry_after_s
    assert await read_books(world, payment) == Books("PAID", "0", "0", 0, 0)
    await world.health.record_result(world.account_id, GatewayChannel.REFUNDS, None)
    assert (await request_refund(world, payment, "100", key)).status is RefundStatus.PENDING


async def test_a_refund_accepted_before_an_outage_is_replayed_during_the_outage(
    world: World,
) -> None:
    payment, key = await create_paid_payment(world), uuid4()
    refund = await request_refund(world, payment, "100", key)
    for _ in range(FAILURES_MAX):
        await world.health.record_result(world.account_id, GatewayChannel.REFUNDS, NOT_CONTACTED)
    assert await request_refund(world, payment, "100", key) == refund


async def test_a_refund_is_refused_if_the_adapter_is_not_installed(world: World) -> None:
    payment = await create_paid_payment(world)
    world.service.accounts.gateways.clear()  # type: ignore[attr-defined]
    assert (await request_refused(world, payment)).code is ErrorCode.REFUND_PROVIDER_UNAVAILABLE
