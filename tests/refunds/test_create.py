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
from tests.refunds.refund_gateway import GONE, RefundGateway, able
from tests.refunds.refunding import Books, asked, books, kept, paid, work
from tests.support.fakes import FakeGateway
from tests.support.staging import hold_transaction, wait_until_blocked
from tests.support.world import World


@pytest.fixture
def gateway() -> FakeGateway:
    return RefundGateway()


async def refusal(
    world: World, payment: Payment, amount: object = None, **more: object
) -> RefusedError:
    with pytest.raises(RefusedError) as refused:
        await asked(world, payment, amount, **more)  # type: ignore[arg-type]
    return refused.value


async def fee(world: World, rate: str) -> None:
    """Let buyers pay a fee."""
    await world.rows(
        "UPDATE payment_method SET fee_mode = 'EXCLUSIVE', fee_rate = $1", Decimal(rate)
    )


async def test_a_refund_is_reserved_at_once_on_the_payment_and_on_its_capture(world: World) -> None:
    payment = await paid(world)
    refund = await asked(world, payment, "590.00", reason="a page is missing")
    assert (refund.status, refund.step, refund.amount_text) == ("PENDING", "queued", "590.00")
    assert (refund.amount, refund.amount_minor) == (Decimal(590), 59000)
    assert await books(world, payment) == Books("PAID", "0", "590", 0, 59000)
    assert world.gateway.refunds == []


async def test_without_an_amount_all_that_is_left_goes_back(world: World) -> None:
    payment = await paid(world)
    await asked(world, payment, "0.01")
    assert (await asked(world, payment)).amount_text == "1589.99"
    assert (await refusal(world, payment)).code is ErrorCode.REFUND_EXCEEDS_REMAINING
    assert await books(world, payment) == Books("PAID", "0", "1590", 0, 159000)


async def test_no_more_is_promised_than_is_left(world: World) -> None:
    payment = await paid(world)
    await asked(world, payment, "1000")
    refused = await refusal(world, payment, "590.01")
    assert refused.code is ErrorCode.REFUND_EXCEEDS_REMAINING
    assert "590.00 THB" in refused.message
    assert (await asked(world, payment, "590.00")).amount_minor == 59000


async def test_of_many_refunds_at_once_those_that_fit_are_accepted(world: World) -> None:
    payment = await paid(world)
    asks = [asyncio.create_task(asked(world, payment, "500")) for _ in range(7)]
    done = await asyncio.gather(*asks, return_exceptions=True)
    assert sum(isinstance(item, Refund) for item in done) == 3
    refused = [item for item in done if isinstance(item, RefusedError)]
    assert {item.code for item in refused} == {ErrorCode.REFUND_EXCEEDS_REMAINING}
    assert await books(world, payment) == Books("PAID", "0", "1500", 0, 150000)


async def test_a_refund_waits_for_the_one_before_it_and_finds_nothing_left(world: World) -> None:
    payment = await paid(world)

    async with hold_transaction(world, lambda tx: payment_store.lock(tx, [payment.id])) as first:
        both = [asyncio.create_task(asked(world, payment)) for _ in range(2)]
        await wait_until_blocked(world, *both)
        await first.commit()
        done = await asyncio.gather(*both, return_exceptions=True)
    assert sorted(type(item).__name__ for item in done) == ["Refund", "RefusedError"]


async def test_the_same_key_gives_the_same_refund_and_reserves_nothing_more(world: World) -> None:
    payment, key = await paid(world), uuid4()
    first = await asked(world, payment, "100", key)
    assert await asked(world, payment, "100", key) == first
    await work(world)
    replayed = await asked(world, payment, "100", key)
    assert (replayed.id, replayed.status) == (first.id, first.status), "as it was answered"
    assert replayed.updated_at == first.updated_at
    assert (await kept(world, first)).status is RefundStatus.SUCCEEDED
    assert await books(world, payment) == Books("PARTIALLY_REFUNDED", "100", "0", 10000, 0)


async def test_one_key_is_for_one_refund_of_one_payment(world: World) -> None:
    payment, other, key = await paid(world), await paid(world), uuid4()
    await asked(world, payment, "100", key)
    for against, amount in ((payment, "100.5"), (payment, None), (other, "100")):
        refused = await refusal(world, against, amount, key=key)
        assert refused.code is ErrorCode.IDEMPOTENCY_CONFLICT
    assert (await refusal(world, payment, "100", key=key, reason="x")).code == refused.code


async def test_a_refused_refund_leaves_its_key_free(world: World) -> None:
    payment, key = await paid(world), uuid4()
    await refusal(world, payment, "2000", key=key)
    assert (await asked(world, payment, "100", key)).status is RefundStatus.PENDING


@pytest.mark.parametrize(
    ("amount", "code", "malformed"),
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
async def test_an_amount_must_be_one(
    world: World, amount: object, code: ErrorCode, malformed: bool
) -> None:
    refused = await refusal(world, await paid(world), amount)
    assert (refused.code, refused.is_malformed) == (code, malformed)


async def test_only_what_was_paid_can_be_given_back(world: World) -> None:
    pending, processing = await world.create(), await world.create()
    await world.select(processing)
    whole = await paid(world)
    await asked(world, whole)
    await work(world)
    for payment, status in ((pending, "PENDING"), (processing, "PROCESSING"), (whole, "REFUNDED")):
        refused = await refusal(world, payment)
        assert refused.code is ErrorCode.INVALID_PAYMENT_STATE
        assert status in refused.message


async def test_a_gateway_takes_no_destination(world: World) -> None:
    refused = await refusal(world, await paid(world), destination="0x" + "01" * 20)
    assert refused.code is ErrorCode.UNPROCESSABLE


@pytest.mark.parametrize(
    ("refunds", "amount", "taken"),
    [
        (RefundSupport.NONE, None, False),
        (RefundSupport.FULL_ONLY, "1589.99", False),
        (RefundSupport.FULL_ONLY, "1590", True),
        (RefundSupport.FULL_ONLY, None, True),
        (RefundSupport.PARTIAL, "0.01", True),
    ],
)
async def test_a_gateway_gives_back_what_its_kind_can(
    world: World, refunds: RefundSupport, amount: str | None, taken: bool
) -> None:
    payment = await paid(world)
    able(world, refunds=refunds)
    if taken:
        assert (await asked(world, payment, amount)).status is RefundStatus.PENDING
    else:
        assert (await refusal(world, payment, amount)).code is ErrorCode.UNPROCESSABLE


async def test_a_gateway_that_counts_whole_units_gives_back_whole_units(world: World) -> None:
    payment = await paid(world)
    able(world, decimals={"THB": 0})
    assert (await refusal(world, payment, "0.50")).code is ErrorCode.UNPROCESSABLE
    assert (await asked(world, payment, "90")).amount_minor == 9000


async def test_all_of_an_amount_that_was_no_whole_unit_can_still_go_back(world: World) -> None:
    """A fee rounded the total up: the gateway captured 1600, of which 1599.50 were the amount."""
    await fee(world, "0.0003126")
    payment = await paid(world, amount=Decimal("1599.50"), amount_text="1599.50")
    able(world, decimals={"THB": 0})
    assert (await asked(world, payment)).amount_minor == 160000
    await work(world)
    assert await books(world, payment) == Books("REFUNDED", "1599.5", "0", 160000, 0)


async def test_a_part_takes_its_share_of_the_fee_and_the_last_one_the_rest(world: World) -> None:
    await fee(world, "0.03")
    payment = await paid(world, amount=Decimal("10.00"), amount_text="10.00")
    refunds = [await asked(world, payment, amount) for amount in ("3.33", "3.33", None)]
    assert [refund.amount_minor for refund in refunds] == [342, 342, 346]
    while await work(world):
        pass
    assert await books(world, payment) == Books("REFUNDED", "10", "0", 1030, 0)


async def test_while_a_gateway_gives_nothing_back_nothing_is_promised(world: World) -> None:
    payment, key = await paid(world), uuid4()
    for _ in range(FAILURES_MAX):
        await world.health.record_result(world.account_id, GatewayChannel.REFUNDS, GONE)
    refused = await refusal(world, payment, "100", key=key)
    assert refused.code is ErrorCode.REFUND_PROVIDER_UNAVAILABLE
    assert refused.retry_after_s
    assert await books(world, payment) == Books("PAID", "0", "0", 0, 0)
    await world.health.record_result(world.account_id, GatewayChannel.REFUNDS, None)
    assert (await asked(world, payment, "100", key)).status is RefundStatus.PENDING


async def test_what_was_promised_before_an_outage_is_replayed_in_it(world: World) -> None:
    payment, key = await paid(world), uuid4()
    refund = await asked(world, payment, "100", key)
    for _ in range(FAILURES_MAX):
        await world.health.record_result(world.account_id, GatewayChannel.REFUNDS, GONE)
    assert await asked(world, payment, "100", key) == refund


async def test_without_an_adapter_nothing_is_promised(world: World) -> None:
    payment = await paid(world)
    world.service.accounts.gateways.clear()  # type: ignore[attr-defined]
    assert (await refusal(world, payment)).code is ErrorCode.REFUND_PROVIDER_UNAVAILABLE
