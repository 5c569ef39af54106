"""Payouts are recorded and reversed in the ledger, and never exceed a merchant's balance."""

import asyncio
from typing import Any

import pytest

from payintent.accounting.ledger_operations import CheckLedger, ShowLedger
from payintent.accounting.payouts_operations import (
    ImportPayouts,
    ListPayouts,
    RecordPayout,
    ReversePayout,
)
from payintent.accounting.payouts_store import PayoutRecord
from payintent.core.errors import ErrorCode, RefusedError
from tests.refunds.refund_setup import create_paid_payment, request_refund
from tests.support.world import World

HEADER = "merchant,amount,currency,chain,reference,paid_on"


def payout(world: World, amount: str = "100.00", **more: Any) -> RecordPayout:
    fields = {"merchant_id": world.merchant_id, "currency": "THB", "reference": "transfer 1"}
    return RecordPayout(amount=amount, **(fields | more))


async def balance(world: World, account: str) -> int:
    lines = await world.perform(ShowLedger(currency="THB"))
    return sum(
        int(balance_line.balance_minor) for balance_line in lines if balance_line.account == account
    )


async def refusal(world: World, operation: Any) -> tuple[ErrorCode, str]:
    with pytest.raises(RefusedError) as refused:
        await world.perform(operation)
    return refused.value.code, refused.value.message


async def get_payable(world: World) -> int:
    return -await balance(world, f"merchant_payable:{world.merchant_id}")


async def test_a_payout_reduces_the_merchants_balance_until_it_is_reversed(world: World) -> None:
    await create_paid_payment(world)
    before = await get_payable(world)
    recorded: PayoutRecord = await world.perform(payout(world, paid_on="2026-11-23"))
    assert (recorded.amount, recorded.amount_minor) == ("100.00", "10000")
    assert str(recorded.paid_on) == "2026-11-23"
    assert await get_payable(world) == before - 10_000
    assert await balance(world, "bank") == -10_000
    reversed_payout = await world.perform(
        ReversePayout(payout_id=recorded.id, note="the account is closed")
    )
    assert reversed_payout.reversal_note == "the account is closed"
    assert await get_payable(world) == before
    assert await balance(world, "bank") == 0
    assert await world.perform(CheckLedger()) == []
    error = await refusal(world, ReversePayout(payout_id=recorded.id, note="again"))
    assert error == (ErrorCode.CONFLICT, "the payout has already been reversed")
    await world.perform(
        payout(world)
    )  # a reference can be reused once its payout has been reversed
    assert [item.reference for item in await world.perform(ListPayouts())] == 2 * ["transfer 1"]


async def test_concurrent_payouts_cannot_exceed_the_merchants_balance(world: World) -> None:
    await create_paid_payment(world)
    due = await get_payable(world)
    third = f"{(due // 3 + 1) / 100:.2f}"
    results = await asyncio.gather(
        *(world.perform(payout(world, third, reference=f"t {n}")) for n in range(6)),
        return_exceptions=True,
    )
    refused = [item for item in results if isinstance(item, RefusedError)]
    assert {item.code for item in refused} == {ErrorCode.UNPROCESSABLE}
    assert len(results) - len(refused) == 2
    assert 0 <= await get_payable(world) < due // 3 + 1


async def test_a_file_with_a_duplicate_payout_is_rejected(world: World) -> None:
    await create_paid_payment(world)
    line = f"{world.merchant_id},100.00,THB,,transfer 1,2026-11-23"
    refused = await refusal(world, ImportPayouts(lines=[HEADER, line, line]))
    assert refused == (ErrorCode.BAD_REQUEST, "line 3: duplicate of line 2")
    assert await world.perform(ListPayouts()) == []


async def test_concurrent_payouts_with_the_same_reference_are_recorded_once(world: World) -> None:
    await create_paid_payment(world)
    results = await asyncio.gather(
        *(world.perform(payout(world)) for _ in range(4)), return_exceptions=True
    )
    assert [item.code for item in results if isinstance(item, RefusedError)] == 3 * [
        ErrorCode.CONFLICT
    ]


async def test_a_refund_after_a_payout_makes_the_merchants_balance_negative(world: World) -> None:
    payment = await create_paid_payment(world)
    due = await get_payable(world)
    await world.perform(payout(world, f"{due / 100:.2f}"))
    await request_refund(world, payment, "1.00")
    assert await get_payable(world) == -100
    code, message = await refusal(world, payout(world, "0.01", reference="transfer 2"))
    assert code is ErrorCode.UNPROCESSABLE
    assert message == f"merchant {world.merchant_id} is owed -1.00 THB, not 0.01"


async def test_a_payout_file_is_imported_atomically_and_idempotently(world: World) -> None:
    await create_paid_payment(world)
    merchant = world.merchant_id
    lines = [HEADER, f"{merchant},10.00,THB,,a,2026-11-23", f"{merchant},20.00,THB,,b,"]
    result = await world.perform(ImportPayouts(lines=lines))
    assert (result.recorded, result.recorded_before) == (2, 0)
    more = [*lines, f"{merchant},5.00,THB,,c,"]
    result = await world.perform(ImportPayouts(lines=more))
    assert (result.recorded, result.recorded_before) == (1, 2)
    for line, code, message in (
        (f'{merchant},"1.00', ErrorCode.BAD_REQUEST, "lines: unexpected end of data"),
        (f"{merchant},99999999.00,THB,,e,", ErrorCode.UNPROCESSABLE, "line 3: merchant"),
        (f"{merchant},11.00,THB,,a,", ErrorCode.CONFLICT, "line 3: payout 'a' is already recorded"),
        ("0,11.00,THB,,f,", ErrorCode.BAD_REQUEST, "line 3 must have 6 columns"),
        (f"{merchant},11.00,THB,f", ErrorCode.BAD_REQUEST, "line 3 must have 6 columns"),
        (
            f"{merchant},11.00,THB,,f,1.2.26",
            ErrorCode.BAD_REQUEST,
            "line 3: paid_on must be a date",
        ),
    ):
        invalid_lines = [HEADER, f"{merchant},1.00,THB,,good,", line]
        error = await refusal(world, ImportPayouts(lines=invalid_lines))
        assert error[0] is code, error
        assert error[1].startswith(message), error
    assert len(await world.perform(ListPayouts())) == 3


async def test_blank_lines_are_ignored_but_counted_in_line_numbers(world: World) -> None:
    await create_paid_payment(world)
    merchant = world.merchant_id
    blank = ["", "   ", ",,,,,", "\t"]
    first, second = f"{merchant},10.00,THB,,a,", f"{merchant},20.00,THB,,b,"
    lines = [*blank, HEADER, *blank, first, *blank, second]
    result = await world.perform(ImportPayouts(lines=[*lines, *blank]))
    assert (result.recorded, result.recorded_before) == (2, 0)
    lines[-1] = f"{merchant},99999999.00,THB,,e,"
    assert (await refusal(world, ImportPayouts(lines=lines)))[1].startswith("line 15: merchant")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"amount": "0.00"}, "amount must be greater than zero"),
        ({"amount": "-1"}, "amount must be a plain decimal"),
        ({"amount": "1e3"}, "amount must be a plain decimal"),
        ({"amount": "1.001"}, "at most 2 decimals"),
        ({"currency": "XXX"}, "'XXX' is unknown"),
        ({"currency": "USDT", "chain": "nowhere"}, "'USDT' on 'nowhere' is unknown"),
        ({"reference": ""}, "reference must have 1 to 200"),
        ({"reference": "x" * 201}, "reference must have 1 to 200"),
        ({"paid_on": "2026-02-30"}, "paid_on must be a date"),
    ],
)
async def test_an_invalid_payout_is_rejected(
    world: World, changes: dict[str, str], expected: str
) -> None:
    code, message = await refusal(world, payout(world, **changes))
    assert code is ErrorCode.BAD_REQUEST
    assert expected in message
