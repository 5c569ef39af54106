"""Deposits that disappear, fall short or are missed at first, on a real chain."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from decimal import Decimal

import pytest

from payintent.accounting.ledger_check_store import find_differences
from payintent.accounting.ledger_store import list_balances
from payintent.chains.operations import ResumeChain
from payintent.core import ids
from payintent.onchain.wallet_sessions import get_chain_view
from payintent.payments.model import Session
from payintent.refunds.resolve_case import ResolveCase
from tests.support.deposits import TOTAL, DepositGround, add_factory
from tests.support.fault_rpc import Faults, FaultyNode
from tests.support.onchain import ChainWorld, chain_world
from tests.support.world import World

pytestmark = pytest.mark.full

HALF = TOTAL // 2
USDT_TOTAL = 25_500_000  # 25.50 with 6 decimals


@pytest.fixture
async def deposits(ground: ChainWorld) -> DepositGround:
    return await add_factory(ground, "USDT")


@pytest.fixture
async def usdt(ethereum: ChainWorld) -> DepositGround:
    """A factory on a chain with a USDT that can charge a fee."""
    return await add_factory(ethereum, "USDT")


@pytest.fixture
async def omitting(world: World, chain_url: str) -> AsyncIterator[tuple[DepositGround, FaultyNode]]:
    """A factory on a chain that is read through a single endpoint."""
    async with AsyncExitStack() as stack:
        node = await stack.enter_async_context(FaultyNode(chain_url))
        ground = await stack.enter_async_context(
            chain_world(world, chain_url, endpoints=[node.url])
        )
        yield await add_factory(ground, "USDT"), node


async def states(deposits: DepositGround, session: Session) -> list[str]:
    view = await deposits.ground.view(session)
    return [item["state"] for item in view["transactions"]]


async def books(deposits: DepositGround) -> dict[str, int]:
    """Return the nonzero account balances by kind, as credits minus debits."""
    database = deposits.ground.world.database
    assert await find_differences(database) == []
    balances = await list_balances(database, None, None)
    return {
        item.account.split(":")[0]: -int(item.balance_minor)
        for item in balances
        if item.balance_minor != "0"
    }


async def test_a_transfer_removed_by_a_reorg_does_not_count(
    deposits: DepositGround,
) -> None:
    ground = deposits.ground
    payment, session = await deposits.bill()
    await deposits.transfer(session, HALF)
    await ground.final()
    await deposits.transfer(session, TOTAL - HALF)
    await ground.turn()
    assert await states(deposits, session) == ["final", "sighted"]
    await ground.reorg(1)
    await ground.turn()
    assert await states(deposits, session) == ["final"]
    view = await ground.view(session)
    assert (view["status"], view["remaining"]["amount"]) == ("partial", "12.75")
    await ground.final()
    assert await deposits.outcome(payment) == ("PROCESSING", None, [])
    await deposits.transfer(session, TOTAL - HALF)
    await ground.final()
    assert await deposits.outcome(payment) == ("PAID", None, [])
    assert await books(deposits) == {"chain_deposits": -TOTAL, "merchant_payable": TOTAL}


async def test_a_token_fee_leaves_a_deposit_short_unless_the_tolerance_covers_it(
    usdt: DepositGround,
) -> None:
    fee = USDT_TOTAL // 100
    await usdt.call_token("set_fee", 100)  # 1 %
    payment, session = await usdt.bill()
    await usdt.transfer(session, USDT_TOTAL)
    await usdt.ground.final(40)
    assert await usdt.outcome(payment) == ("PROCESSING", None, [])
    view = await usdt.ground.view(session)
    assert view["remaining"]["amount_smallest_unit"] == str(fee)
    await usdt.ground.world.rows("UPDATE merchant SET deposit_tolerance = 1")
    second_payment, session = await usdt.bill()
    await usdt.transfer(session, USDT_TOTAL)
    await usdt.ground.final(40)
    assert await usdt.ground.status(second_payment) == "PAID"


async def test_a_tolerance_is_rounded_down(usdt: DepositGround) -> None:
    await usdt.ground.world.rows("UPDATE merchant SET deposit_tolerance = 0.001")
    payment, session = await usdt.bill(amount=Decimal("25.55"), amount_text="25.55")
    tolerance = 255  # rounded down from 255.5
    await usdt.transfer(session, session.quote.total_minor - tolerance - 1)
    await usdt.ground.final(40)
    assert await usdt.outcome(payment) == ("PROCESSING", None, [])
    await usdt.transfer(session, 1)
    await usdt.ground.final(40)
    assert await usdt.outcome(payment) == ("PAID", None, [])


async def test_an_omitted_transfer_is_found_by_the_recheck(
    omitting: tuple[DepositGround, FaultyNode],
) -> None:
    deposits, node = omitting
    payment, session = await deposits.bill()
    node.faults = Faults(drop_logs=1.0)
    await deposits.transfer(session)
    await deposits.ground.final()
    await deposits.ground.final()
    assert node.done["dropped"]
    node.faults = Faults()
    await deposits.ground.final()
    assert await deposits.outcome(payment) == ("PROCESSING", None, [])
    await deposits.ground.pass_time(601)
    await deposits.ground.final()
    assert await deposits.outcome(payment) == ("PAID", None, [])
    assert await books(deposits) == {"chain_deposits": -TOTAL, "merchant_payable": TOTAL}


async def test_a_pending_transfer_stays_while_its_block_cannot_be_read(
    world: World, chain_url: str
) -> None:
    """Otherwise the buyer would be asked to pay again, and could change the method."""
    async with AsyncExitStack() as stack:
        nodes = [await stack.enter_async_context(FaultyNode(chain_url)) for _ in range(3)]
        ground = await stack.enter_async_context(
            chain_world(world, chain_url, endpoints=[node.url for node in nodes])
        )
        deposits = await add_factory(ground, "USDT")
        await ground.final()
        for late_node in nodes[1:]:
            late_node.faults = Faults(lag=1)
        _, session = await deposits.bill()
        await deposits.transfer(session)
        await ground.turn()
        assert await states(deposits, session) == ["sighted"]
        nodes[0].faults = Faults(range_max=0)
        await ground.turn()
        assert await states(deposits, session) == ["sighted"]


async def test_a_chain_resumed_at_an_earlier_block_rereads_its_deposits(
    omitting: tuple[DepositGround, FaultyNode],
) -> None:
    deposits, node = omitting
    ground = deposits.ground
    await ground.world.rows("UPDATE chain SET block_time_ms = 60000")
    payment, session = await deposits.bill(expires_in_s=86_400)
    await ground.final()
    before = (await ground.cursor()).block
    node.faults = Faults(drop_logs=1.0)
    await deposits.transfer(session)
    for _ in range(2):  # until the rechecks begin at later blocks
        await ground.mine(100)
        await ground.pass_time(3_601)
        await ground.turn()
    node.faults = Faults()
    await ground.pass_time(3_601)
    await ground.turn()
    assert await deposits.outcome(payment) == ("PROCESSING", None, [])
    await ground.world.perform(ResumeChain(chain="native", block=before))
    await ground.turn()
    assert await deposits.outcome(payment) == ("PAID", None, [])


async def test_a_final_transfer_that_a_reorg_removed_no_longer_counts(
    deposits: DepositGround,
) -> None:
    ground = deposits.ground
    payment, session = await deposits.bill()
    await ground.final()
    before = (await ground.cursor()).block
    await deposits.transfer(session, HALF)
    await ground.final()
    await ground.reorg(await ground.height() - before)
    await ground.final()
    assert (await ground.cursor()).halted is not None
    await ground.world.perform(ResumeChain(chain="native", block=before))
    await deposits.transfer(session, TOTAL - HALF)
    await ground.final()
    assert await deposits.outcome(payment) == ("PROCESSING", None, [])
    assert await states(deposits, session) == ["final"]


async def test_a_transfer_that_moved_to_a_different_block_counts_once(
    deposits: DepositGround,
) -> None:
    """The log has a new position in its new block."""
    ground = deposits.ground
    payment, session = await deposits.bill()
    await ground.final()
    before = (await ground.cursor()).block
    await deposits.transfer(session)
    await ground.final()
    await ground.world.rows(
        "UPDATE chain_receipt SET log_index = log_index + 9, block_hash = sha256('')"
    )
    await ground.world.rows("UPDATE capture SET reference = reference || '0'")
    await ground.world.perform(ResumeChain(chain="native", block=before))
    await ground.pass_time(601)  # until the next recheck
    await ground.final()
    assert await deposits.outcome(payment) == ("PAID", None, [])
    assert await books(deposits) == {"chain_deposits": -TOTAL, "merchant_payable": TOTAL}


async def test_a_transfer_in_blocks_read_before_its_address_was_stored_is_found(
    deposits: DepositGround,
) -> None:
    payment, session = await deposits.bill()
    await deposits.transfer(session)
    await deposits.ground.mine(5)
    # A watcher has read these blocks before the address was stored.
    await deposits.ground.world.rows(
        "UPDATE chain_cursor SET deposit_block = $1", await deposits.ground.height() - 2
    )
    await deposits.ground.turn()
    assert await deposits.outcome(payment) == ("PAID", None, [])


async def test_addresses_of_a_replaced_factory_stay_payable(deposits: DepositGround) -> None:
    old_payment, old_session = await deposits.bill()
    newer = await add_factory(deposits.ground, "USDT")
    payment, session = await newer.bill()
    database = deposits.ground.world.database
    published = (await get_chain_view(database, deposits.ground.slug))["deposits"]
    assert published["factory_address"].lower() == newer.factory
    view = await deposits.ground.view(old_session)
    assert view["factory_address"].lower() == deposits.factory
    assert view["deposit_address"].lower() == deposits.address(old_session)
    await deposits.transfer(old_session)
    await newer.transfer(session)
    await deposits.ground.final()
    assert await deposits.outcome(old_payment) == ("PAID", None, [])
    assert await deposits.outcome(payment) == ("PAID", None, [])
    assert await books(deposits)


async def test_merchants_are_notified_of_a_partial_payment_only_when_it_ends(
    deposits: DepositGround,
) -> None:
    world = deposits.ground.world
    payment, session = await deposits.bill()
    await deposits.transfer(session, 5)
    await deposits.ground.final()
    assert await world.events(payment) == []
    await deposits.expire(payment)
    assert await world.events(payment) == ["payment.failed"]
    [row] = await world.rows("SELECT body FROM event")
    assert "AMOUNT_MISMATCH" in row["body"]
    assert deposits.address(session) not in row["body"].lower()


async def test_the_books_show_the_received_amounts(deposits: DepositGround) -> None:
    world = deposits.ground.world
    await world.rows("UPDATE merchant SET deposit_tolerance = 1")
    missing = TOTAL // 200
    _, short = await deposits.bill()
    await deposits.transfer(short, TOTAL - missing)
    await deposits.ground.final()
    received = TOTAL - missing
    assert await books(deposits) == {"chain_deposits": -received, "merchant_payable": received}
    _, long = await deposits.bill()
    await deposits.transfer(long, TOTAL + HALF)
    await deposits.ground.final()
    received += TOTAL
    assert await books(deposits) == {
        "chain_deposits": -received - HALF,
        "merchant_payable": received,
        "suspense": HALF,
    }
    [case] = await world.rows("SELECT id FROM money_case")
    await world.perform(
        ResolveCase(case_id=ids.format_id(ids.CASE, case["id"]), resolution="accept", note="kept")
    )
    received += HALF
    assert await books(deposits) == {"chain_deposits": -received, "merchant_payable": received}
