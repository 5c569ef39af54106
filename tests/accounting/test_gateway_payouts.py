"""Gateway payouts are recorded in the ledger once for each reference, and can be reversed."""

import asyncio
from typing import Any

import pytest

from payintent.accounting import ledger_check_store
from payintent.accounting.gateway_payouts_store import (
    GatewayPayoutRecord,
    reverse_gateway_payout,
)
from payintent.accounting.ledger_operations import CheckLedger
from payintent.accounting.payouts_operations import (
    ListGatewayPayouts,
    RecordGatewayPayout,
    ReverseGatewayPayout,
)
from payintent.core.errors import ErrorCode, RefusedError
from payintent.db.database import Tx
from payintent.gateway_accounts import store as account_store
from payintent.gateway_accounts.store import NewAccount
from tests.accounting.test_payouts import balance, get_payable, refusal
from tests.refunds.refund_setup import create_paid_payment
from tests.support.race_staging import hold_transaction, wait_until_blocked
from tests.support.world import World


def gateway_payout(world: World, amount: str = "1500.00", **more: Any) -> RecordGatewayPayout:
    fields = {"account_id": world.account_id, "currency": "THB", "reference": "po_1"}
    return RecordGatewayPayout(amount=amount, **(fields | more))


async def get_clearing_balance(world: World) -> int:
    return await balance(world, f"gateway_clearing:{world.account_id}")


async def test_a_gateway_payout_credits_the_bank_until_it_is_reversed(world: World) -> None:
    await create_paid_payment(world)
    clearing, income = await get_clearing_balance(world), await balance(world, "fee_income")
    recorded: GatewayPayoutRecord = await world.perform(
        gateway_payout(world, fee="30.00", paid_on="2026-11-23")
    )
    assert (recorded.amount, recorded.amount_minor, recorded.fee_minor) == (
        "1500.00",
        "150000",
        "3000",
    )
    assert (recorded.merchant_id, str(recorded.paid_on)) == (None, "2026-11-23")
    assert await get_clearing_balance(world) == clearing - 153_000
    assert await balance(world, "bank") == 150_000
    assert await balance(world, "fee_income") == income + 3_000
    assert await world.perform(CheckLedger()) == []
    reversed_payout = await world.perform(
        ReverseGatewayPayout(payout_id=recorded.id, note="a wrong line")
    )
    assert reversed_payout.reversal_note == "a wrong line"
    assert (await get_clearing_balance(world), await balance(world, "bank")) == (clearing, 0)
    assert await balance(world, "fee_income") == income
    assert await world.perform(CheckLedger()) == []
    error = await refusal(world, ReverseGatewayPayout(payout_id=recorded.id, note="again"))
    assert error == (ErrorCode.CONFLICT, "the payout has already been reversed")
    # a reference can be reused when its payout is reversed
    await world.perform(gateway_payout(world))
    payouts = await world.perform(ListGatewayPayouts(account_id=world.account_id, currency="THB"))
    assert [item.reversed_at is None for item in payouts] == [True, False]
    assert await world.perform(ListGatewayPayouts(before=payouts[1].id)) == []


async def test_a_negative_gateway_payout_is_recorded_in_reverse(
    world: World,
) -> None:
    await create_paid_payment(world)
    clearing = await get_clearing_balance(world)
    assert (await world.perform(gateway_payout(world, "-12.50"))).amount == "-12.50"
    assert await get_clearing_balance(world) == clearing + 1_250
    assert await balance(world, "bank") == -1_250
    assert await world.perform(CheckLedger()) == []


async def test_a_payout_of_a_merchants_own_account_reduces_its_balance(world: World) -> None:
    await create_paid_payment(world)
    await world.rows("UPDATE provider_account SET merchant_id = $1", world.merchant_id)
    due = await get_payable(world)
    assert (await world.perform(gateway_payout(world, "1000.00", fee="1.00"))).merchant_id == (
        world.merchant_id
    )
    assert await get_payable(world) == due - 100_100
    assert await balance(world, "bank") == 0
    assert await world.perform(CheckLedger()) == []


async def test_concurrent_payouts_with_the_same_reference_are_recorded_once(world: World) -> None:
    await create_paid_payment(world)
    results = await asyncio.gather(
        *(world.perform(gateway_payout(world)) for _ in range(4)), return_exceptions=True
    )
    assert [item.code for item in results if isinstance(item, RefusedError)] == 3 * [
        ErrorCode.CONFLICT
    ]
    assert await balance(world, "bank") == 150_000


async def reverse_as_the_gateway_reports(world: World) -> bool:
    async with world.database.transaction() as tx:
        return await reverse_gateway_payout(tx, world.account_id, "po_1", "reconciliation")


async def test_concurrent_reports_that_a_payout_was_returned_reverse_it_once(world: World) -> None:
    await world.perform(gateway_payout(world))
    results = await asyncio.gather(*(reverse_as_the_gateway_reports(world) for _ in range(4)))
    assert sorted(results) == [False, False, False, True]
    assert await balance(world, "bank") == 0
    assert await world.perform(CheckLedger()) == []


async def test_a_payout_that_an_operator_reverses_and_records_again_concurrently_is_not_reversed(
    world: World,
) -> None:
    payout = await world.perform(gateway_payout(world))

    async def record_again(tx: Tx) -> None:
        context = world.service.operation_context
        await ReverseGatewayPayout(payout_id=payout.id, note="a typo").apply(context, tx)
        await gateway_payout(world, "1600.00").apply(context, tx)

    async with hold_transaction(world, record_again) as first:
        reversal = asyncio.create_task(reverse_as_the_gateway_reports(world))
        await wait_until_blocked(world, reversal)
        await first.commit()
        assert not await reversal
    payouts = await world.perform(ListGatewayPayouts())
    assert [(item.amount, item.reversal_note) for item in payouts] == [
        ("1600.00", None),
        ("1500.00", "a typo"),
    ]
    assert await balance(world, "bank") == 160_000


async def test_payouts_of_a_test_account_are_rejected(world: World) -> None:
    new = NewAccount(provider="simulator", merchant_id=None, name="", base_url="-", livemode=False)
    async with world.database.transaction() as tx:
        account_id = await account_store.add(tx, new)
    code, message = await refusal(world, gateway_payout(world, account_id=account_id))
    assert (code, message) == (
        ErrorCode.UNPROCESSABLE,
        "payouts from test accounts cannot be recorded",
    )


@pytest.mark.parametrize("column", ["amount_minor", "fee_minor"])
async def test_the_ledger_check_reports_a_payout_that_was_changed_directly(
    world: World, column: str
) -> None:
    await world.perform(gateway_payout(world))
    await world.rows("ALTER TABLE gateway_payout DISABLE TRIGGER gateway_payout_stands")
    await world.rows(f"UPDATE gateway_payout SET {column} = {column} + 1")
    differences = await ledger_check_store.find_differences(world.database)
    counter_account = "bank" if column == "amount_minor" else "fee_income"
    assert {difference.account for difference in differences} == {
        f"gateway_clearing:{world.account_id}",
        counter_account,
    }
