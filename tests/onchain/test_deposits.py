"""A payment to a deposit address, from its selection to its end, on a real chain."""

from dataclasses import dataclass
from decimal import Decimal

import asyncpg
import pytest

from payintent.cases.operations import ListCases
from payintent.chains.operations import SetToken
from payintent.core.errors import ErrorCode, RefusedError
from payintent.evm.abi import to_checksum_address
from payintent.evm.deposits import derive_deposit_address
from payintent.merchants.operations import SetDepositTolerance
from payintent.onchain.deposit_status_store import list_deposits
from payintent.onchain.wallet_sessions import get_chain_view
from payintent.payments.store import get_change_markers
from payintent.refunds.model import AUTO_REFUND
from payintent_sandbox.chains.contracts import DEPOSIT_FACTORY, load
from tests.support.deposits import TOTAL, DepositGround, add_factory
from tests.support.onchain import ChainWorld, pay_uuid

HALF = TOTAL // 2


@pytest.fixture
async def deposits(ground: ChainWorld) -> DepositGround:
    return await add_factory(ground, "USDT")


@pytest.fixture
async def two_tokens(ethereum: ChainWorld) -> DepositGround:
    """A factory on a chain with USDT and USDC."""
    return await add_factory(ethereum, "USDT", "USDC")


async def test_a_deposit_address_matches_the_address_derived_by_the_factory(
    deposits: DepositGround,
) -> None:
    _, session = await deposits.bill()
    call = {
        "to": deposits.factory,
        "data": load(DEPOSIT_FACTORY).call_data("address_of", pay_uuid(session)),
    }
    word = await deposits.ground.chain.ask("eth_call", call, "latest")
    assert word[-40:] == deposits.address(session)[2:]
    [row] = await deposits.ground.world.rows("SELECT * FROM deposit_address")
    assert f"0x{row['address'].hex()}" == deposits.address(session)


@dataclass(frozen=True)
class Money:
    """A capture: its token, its amount, and whether it was credited to the payment."""

    credited: bool
    currency: str
    amount: int


async def captures(deposits: DepositGround) -> list[Money]:
    rows = await deposits.ground.world.rows("SELECT * FROM capture ORDER BY captured_at, id")
    return [Money(row["credited"], row["currency"], int(row["amount_minor"])) for row in rows]


@pytest.mark.parametrize("parts", [(TOTAL,), (HALF, TOTAL - HALF)])
async def test_a_payment_is_paid_when_final_transfers_reach_its_amount(
    deposits: DepositGround, parts: tuple[int, ...]
) -> None:
    payment, session = await deposits.bill()
    for part in parts:
        assert await deposits.outcome(payment) == ("PROCESSING", None, [])
        await deposits.transfer(session, part)
        await deposits.ground.turn()
        assert await deposits.outcome(payment) == ("PROCESSING", None, [])
        await deposits.ground.final()
    assert await deposits.outcome(payment) == ("PAID", None, [])
    assert await deposits.ground.world.events(payment) == ["payment.completed"]
    assert await captures(deposits) == [Money(True, "USDT", TOTAL)]


async def test_a_shortfall_within_the_tolerance_is_accepted(deposits: DepositGround) -> None:
    merchant_id = deposits.ground.world.merchant_id
    await deposits.ground.world.perform(
        SetDepositTolerance(merchant_id=merchant_id, percent=Decimal("0.5"))
    )
    payment, session = await deposits.bill()
    await deposits.transfer(session, TOTAL - TOTAL // 200 - 1)
    await deposits.ground.final()
    assert await deposits.outcome(payment) == ("PROCESSING", None, [])
    await deposits.transfer(session, 1)
    await deposits.ground.final()
    assert await deposits.outcome(payment) == ("PAID", None, [])
    assert await captures(deposits) == [Money(True, "USDT", TOTAL - TOTAL // 200)]


async def test_a_surplus_opens_a_separate_case(deposits: DepositGround) -> None:
    payment, session = await deposits.bill()
    await deposits.transfer(session, HALF)
    await deposits.transfer(session, TOTAL)
    await deposits.ground.final()
    assert await deposits.outcome(payment) == ("PAID", None, ["SURPLUS"])
    assert await captures(deposits) == [Money(True, "USDT", TOTAL), Money(False, "USDT", HALF)]
    [case] = await deposits.ground.world.perform(ListCases())
    assert (case.chain, len(case.tx_hash or "")) == (deposits.ground.slug, 66)


async def test_a_surplus_below_the_minimum_is_credited_to_the_payment(
    deposits: DepositGround,
) -> None:
    slug = deposits.ground.slug
    await deposits.ground.world.perform(
        SetToken(chain=slug, symbol="USDT", surplus_from="0.000000000000001")
    )
    payment, session = await deposits.bill()
    await deposits.transfer(session, TOTAL + 999)
    await deposits.ground.final()
    assert await deposits.outcome(payment) == ("PAID", None, [])
    assert await captures(deposits) == [Money(True, "USDT", TOTAL + 999)]


async def test_an_underpaid_payment_fails_at_the_deadline_with_a_single_case(
    deposits: DepositGround,
) -> None:
    payment, session = await deposits.bill()
    for part in (5, 7):
        await deposits.transfer(session, part)
    await deposits.ground.final()
    assert await deposits.outcome(payment) == ("PROCESSING", None, [])
    await deposits.expire(payment)
    assert await deposits.outcome(payment) == (
        "FAILED",
        "AMOUNT_MISMATCH",
        ["AMOUNT_MISMATCH"],
    )
    assert await captures(deposits) == [Money(False, "USDT", 12)]


async def test_a_payment_in_a_different_listed_token_fails_at_the_deadline(
    two_tokens: DepositGround,
) -> None:
    payment, session = await two_tokens.bill("USDC")
    await two_tokens.transfer(session, 25_500_000, "USDT")
    await two_tokens.ground.final(40)
    assert await two_tokens.outcome(payment) == ("PROCESSING", None, [])
    await two_tokens.expire(payment)
    assert await two_tokens.outcome(payment) == ("FAILED", "TOKEN_MISMATCH", ["TOKEN_MISMATCH"])
    assert await captures(two_tokens) == [Money(False, "USDT", 25_500_000)]


async def test_a_payment_without_transfers_expires(deposits: DepositGround) -> None:
    payment, _ = await deposits.bill()
    await deposits.ground.turn()
    await deposits.expire(payment)
    assert await deposits.outcome(payment) == ("EXPIRED", None, [])


async def test_a_transfer_that_never_becomes_final_times_out(deposits: DepositGround) -> None:
    payment, session = await deposits.bill()
    await deposits.ground.mine(3)
    await deposits.transfer(session)
    await deposits.ground.turn()
    await deposits.ground.reorg(1)
    await deposits.expire(payment)
    assert await deposits.outcome(payment) == ("FAILED", "ONCHAIN_TIMEOUT", [])


async def test_a_transfer_mined_after_the_deadline_is_late(
    deposits: DepositGround,
) -> None:
    payment, session = await deposits.bill()
    await deposits.expire(payment, look=False)
    await deposits.transfer(session)
    await deposits.ground.final()
    await deposits.ground.final()
    assert await deposits.outcome(payment) == ("EXPIRED", None, ["LATE_PAYMENT"])
    assert await captures(deposits) == [Money(False, "USDT", TOTAL)]


async def test_a_transfer_long_after_the_end_of_a_payment_is_found_within_an_hour(
    deposits: DepositGround,
) -> None:
    payment, session = await deposits.bill()
    await deposits.transfer(session)
    await deposits.ground.final()
    await deposits.ground.pass_time(86_400)
    await deposits.ground.turn()
    await deposits.transfer(session, 7)
    await deposits.ground.final()
    assert await deposits.outcome(payment) == ("PAID", None, [])
    await deposits.ground.pass_time(3_601)
    await deposits.ground.turn()
    assert await deposits.outcome(payment) == ("PAID", None, ["DOUBLE_PAYMENT"])
    assert await captures(deposits) == [Money(True, "USDT", TOTAL), Money(False, "USDT", 7)]


async def test_a_deposit_for_a_replaced_method_opens_a_case(
    deposits: DepositGround,
) -> None:
    payment, first = await deposits.bill()
    second = (await deposits.ground.world.select(payment, deposits.methods["USDT"])).session
    await deposits.transfer(first)
    await deposits.ground.final()
    assert await deposits.outcome(payment) == ("PROCESSING", None, ["ORPHAN_CAPTURE"])
    await deposits.transfer(second)
    await deposits.ground.final()
    assert await deposits.outcome(payment) == ("PAID", None, ["ORPHAN_CAPTURE"])


async def test_the_method_cannot_be_changed_while_a_transfer_is_pending(
    deposits: DepositGround,
) -> None:
    payment, session = await deposits.bill()
    await deposits.transfer(session, 1)
    await deposits.ground.turn()
    with pytest.raises(RefusedError) as refused:
        await deposits.ground.world.select(payment, deposits.methods["USDT"])
    assert refused.value.code is ErrorCode.INVALID_CHECKOUT_STATE


async def test_a_session_accepts_only_the_token_of_its_quote_after_the_tokens_address_changes(
    two_tokens: DepositGround,
) -> None:
    ground, half = two_tokens.ground, 12_750_000
    payment, session = await two_tokens.bill()
    await two_tokens.transfer(session, half)
    await ground.final(40)
    await ground.world.rows(
        "UPDATE chain_token SET address = NULL WHERE symbol = 'USDC' AND chain = 'ethereum'"
    )
    new_address = ground.token("USDC")
    await ground.world.perform(SetToken(chain="ethereum", symbol="USDT", address=new_address))
    await two_tokens.transfer(session, half, "USDC")
    await ground.final(40)
    assert await two_tokens.outcome(payment) == ("PROCESSING", None, [])
    await two_tokens.transfer(session, half)
    await ground.final(40)
    await two_tokens.sweep(session)
    await ground.final(40)
    assert await two_tokens.outcome(payment) == ("PAID", None, ["DOUBLE_PAYMENT"])
    assert await captures(two_tokens) == [
        Money(True, "USDT", 2 * half),
        Money(False, new_address, half),
    ]
    [status] = await list_deposits(ground.world.database, payment.id)
    assert [(item.currency, item.amount) for item in status.transfers] == [
        ("USDT", "12.75"),
        ("USDT", "12.75"),
        ("USDT", "12.75"),
    ]
    assert await two_tokens.balances() == {
        "chain_receiver USDT": 2 * half,
        f"chain_deposits {new_address}": half,
    }


async def test_unlisted_tokens_and_zero_transfers_are_ignored(
    two_tokens: DepositGround,
) -> None:
    payment, session = await two_tokens.bill()
    await two_tokens.transfer(session, 0)
    await two_tokens.ground.world.rows(
        "UPDATE chain_token SET address = NULL WHERE symbol = 'USDC' AND chain = 'ethereum'"
    )
    await two_tokens.transfer(session, TOTAL, "USDC")
    await two_tokens.ground.final(40)
    assert await two_tokens.outcome(payment) == ("PROCESSING", None, [])
    assert await two_tokens.ground.world.rows("SELECT FROM chain_receipt") == []


async def test_the_session_view_shows_the_address_and_the_remaining_amount(
    deposits: DepositGround,
) -> None:
    _, session = await deposits.bill()
    await deposits.ground.turn()
    view = await deposits.ground.view(session)
    assert view["status"] == "awaiting_payment"
    assert view["payable"]
    assert view["deposit_address"].lower() == deposits.address(session)
    assert view["deposit_address"] == to_checksum_address(
        bytes.fromhex(deposits.address(session)[2:])
    )
    assert view["amount_smallest_unit"] == view["remaining"]["amount_smallest_unit"] == str(TOTAL)
    await deposits.transfer(session, HALF)
    await deposits.ground.turn()
    view = await deposits.ground.view(session)
    assert (view["status"], view["payable"]) == ("partial", True)
    assert view["received"] == {"amount": "0", "amount_smallest_unit": "0"}
    assert view["pending"] == {"amount": "12.75", "amount_smallest_unit": str(HALF)}
    await deposits.ground.final()
    await deposits.transfer(session, TOTAL - HALF)
    await deposits.ground.turn()
    view = await deposits.ground.view(session)
    assert (view["status"], view["remaining"]["amount"]) == ("confirming", "0")
    assert [item["state"] for item in view["transactions"]] == ["final", "sighted"]


async def test_a_transfer_that_is_final_when_first_seen_changes_the_checkout_marker(
    deposits: DepositGround,
) -> None:
    payment, session = await deposits.bill()
    database = deposits.ground.world.database
    before = await get_change_markers(database, [payment.id])
    await deposits.transfer(session, HALF)
    await deposits.ground.final()
    assert await deposits.outcome(payment) == ("PROCESSING", None, [])
    assert await get_change_markers(database, [payment.id]) != before


async def test_a_chain_publishes_the_data_needed_to_recompute_an_address(
    deposits: DepositGround,
) -> None:
    _, session = await deposits.bill()
    chain = await get_chain_view(deposits.ground.world.database, deposits.ground.slug)
    published = chain["deposits"]
    address = derive_deposit_address(
        bytes.fromhex(published["factory_address"][2:]),
        bytes.fromhex(published["init_code_hash"][2:]),
        pay_uuid(session),
    )
    assert f"0x{address.hex()}" == deposits.address(session)


async def test_deposits_are_not_refunded_automatically_or_to_their_sender(
    deposits: DepositGround,
) -> None:
    world = deposits.ground.world
    await world.rows("UPDATE merchant SET auto_refund = true")
    payment, session = await deposits.bill()
    await deposits.transfer(session)
    await deposits.transfer(session, HALF)
    await deposits.ground.final()
    assert await deposits.outcome(payment) == ("PAID", None, ["SURPLUS"])
    await deposits.transfer(session, 1)
    await deposits.ground.final()
    await deposits.ground.pass_time(601)
    await deposits.ground.turn()
    assert await deposits.outcome(payment) == ("PAID", None, ["DOUBLE_PAYMENT", "SURPLUS"])
    assert await world.rows("SELECT FROM refund") == []
    for destination, requester in ((None, "Ada"), ("0x" + "11" * 20, AUTO_REFUND)):
        with pytest.raises(
            asyncpg.CheckViolationError, match="needs an address that the buyer has entered"
        ):
            await world.rows(
                """
                INSERT INTO refund (id, capture_id, case_id, currency, amount_minor, step,
                    requested_by, destination)
                SELECT gen_random_uuid(), c.capture_id, c.id, 'USDT', 1, 'queued', $1, $2
                FROM money_case c
                LIMIT 1
                """,
                requester,
                destination,
            )
