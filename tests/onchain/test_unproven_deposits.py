"""A deposit that only one endpoint reports is set aside, and does not delay other payments."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from payintent.accounting.ledger_check_store import find_differences
from payintent.core.errors import ChainUnavailableError
from payintent.onchain import pending_transfers
from payintent.onchain.pending_transfers import SET_ASIDE
from payintent.payments.model import Session
from tests.support.deposits import TOTAL, DepositGround, add_factory
from tests.support.fault_rpc import Faults, FaultyNode
from tests.support.onchain import chain_world
from tests.support.world import World

pytestmark = pytest.mark.full

HONEST = Faults()
Pair = tuple[DepositGround, FaultyNode, FaultyNode]


@pytest.fixture
async def pair(world: World, chain_url: str) -> AsyncIterator[Pair]:
    """A chain with a deposit factory that is read through two endpoints."""
    async with AsyncExitStack() as stack:
        nodes = [await stack.enter_async_context(FaultyNode(chain_url)) for _ in range(2)]
        ground = await stack.enter_async_context(
            chain_world(world, chain_url, endpoints=[node.url for node in nodes])
        )
        deposits = await add_factory(ground, "USDT")
        await ground.final()
        yield deposits, nodes[0], nodes[1]


async def open_cases(deposits: DepositGround) -> list[str]:
    rows = await deposits.ground.world.rows("SELECT * FROM money_case WHERE status = 'OPEN'")
    return sorted(row["kind"] for row in rows)


async def list_captured_amounts(deposits: DepositGround, session: Session) -> list[int]:
    rows = await deposits.ground.world.rows(
        "SELECT amount_minor FROM capture WHERE session_id = $1", session.id
    )
    return [int(row["amount_minor"]) for row in rows]


async def forge_deposit(deposits: DepositGround, session: Session, pattern: str) -> dict[str, Any]:
    """Forge a deposit for a session in the block of a real deposit."""
    receipt = await deposits.ground.chain.ask("eth_getTransactionReceipt", pattern)
    [log] = receipt["logs"]
    recipient = f"0x{deposits.address(session)[2:].rjust(64, '0')}"
    return {
        **log,
        "topics": [*log["topics"][:2], recipient],
        "transactionHash": f"0x{'77' * 32}",
        "logIndex": "0x7",
    }


async def test_a_deposit_omitted_by_one_endpoint_does_not_delay_other_payments(pair: Pair) -> None:
    deposits, faulty, _ = pair
    ground = deposits.ground
    before = SET_ASIDE.labels(ground.slug)._value.get()
    (stuck, stuck_session), (timely, session) = await deposits.bill(), await deposits.bill()
    faulty.faults = Faults(hidden=[await deposits.transfer(stuck_session)])
    await deposits.transfer(session)
    await ground.final()
    assert (await ground.status(stuck), await ground.status(timely)) == ("PROCESSING", "PAID")
    assert await open_cases(deposits) == ["RECONCILIATION"]
    await deposits.expire(stuck)
    new_payment, new_session = await deposits.bill()
    await deposits.transfer(new_session)
    await ground.final()
    assert (await ground.status(stuck), await ground.status(new_payment)) == ("PROCESSING", "PAID")
    assert await open_cases(deposits) == ["RECONCILIATION"]
    assert SET_ASIDE.labels(ground.slug)._value.get() == before + 1
    faulty.faults = HONEST
    await ground.final()
    assert await ground.status(stuck) == "PAID"
    assert await open_cases(deposits) == []
    await ground.pass_time(3_601)
    await ground.final()
    assert await list_captured_amounts(deposits, stuck_session) == [TOTAL]
    assert await find_differences(ground.world.database) == []


async def test_a_deposit_invented_by_one_endpoint_does_not_complete_its_payment(
    pair: Pair,
) -> None:
    deposits, faulty, _ = pair
    ground = deposits.ground
    (unpaid, unpaid_session), (timely, session) = await deposits.bill(), await deposits.bill()
    true_hash = await deposits.transfer(session)
    faulty.faults = Faults(invented=[await forge_deposit(deposits, unpaid_session, true_hash)])
    await ground.final()
    assert (await ground.status(unpaid), await ground.status(timely)) == ("PROCESSING", "PAID")
    assert await open_cases(deposits) == ["RECONCILIATION"]
    await deposits.expire(unpaid)
    new_payment, new_session = await deposits.bill()
    await deposits.transfer(new_session)
    await ground.final()
    assert (await ground.status(unpaid), await ground.status(new_payment)) == ("PROCESSING", "PAID")
    faulty.faults = HONEST
    await ground.final()
    assert await ground.status(unpaid) == "FAILED"
    assert await list_captured_amounts(deposits, unpaid_session) == []
    assert len(await ground.dispositions()) == 2


async def test_a_deposit_is_captured_once_if_an_endpoint_changes_its_amount(
    pair: Pair,
) -> None:
    deposits, faulty, _ = pair
    ground = deposits.ground
    payment, session = await deposits.bill()
    tx_hash = await deposits.transfer(session)
    receipt = await ground.chain.ask("eth_getTransactionReceipt", tx_hash)
    [log] = receipt["logs"]
    faulty.faults = Faults(hidden=[tx_hash], invented=[{**log, "data": f"0x{TOTAL - 1:064x}"}])
    await ground.final()
    assert await ground.status(payment) == "PROCESSING"
    assert await open_cases(deposits) == ["RECONCILIATION"]
    faulty.faults = HONEST
    await ground.final()
    assert await ground.status(payment) == "PAID"
    assert await list_captured_amounts(deposits, session) == [TOTAL]
    assert await open_cases(deposits) == []


async def test_a_sweep_omitted_by_one_endpoint_is_found_later_without_blocking(
    pair: Pair,
) -> None:
    deposits, faulty, _ = pair
    ground = deposits.ground
    _, session = await deposits.bill()
    await deposits.transfer(session)
    await ground.final()
    faulty.faults = Faults(hidden=[await deposits.sweep(session)])
    payment, second_session = await deposits.bill()
    await deposits.transfer(second_session)
    await ground.final()
    assert await ground.status(payment) == "PAID"
    assert await deposits.balances() == {"chain_deposits USDT": 2 * TOTAL}
    faulty.faults = HONEST
    await ground.pass_time(601)
    await ground.final()
    assert await deposits.balances() == {
        "chain_deposits USDT": TOTAL,
        "chain_receiver USDT": TOTAL,
    }
    assert await find_differences(ground.world.database) == []


async def test_too_many_unproven_deposits_stop_the_chain(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    deposits, faulty, _ = pair
    ground = deposits.ground
    monkeypatch.setattr(pending_transfers, "OPEN_CASES_MAX", 0)
    payment, session = await deposits.bill()
    faulty.faults = Faults(hidden=[await deposits.transfer(session)])
    await ground.mine(3)
    with pytest.raises(ChainUnavailableError):
        await ground.turn()
    assert await ground.cases() == []
    faulty.faults = HONEST
    await ground.turn()
    assert await ground.status(payment) == "PAID"
