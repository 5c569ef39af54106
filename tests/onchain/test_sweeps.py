"""Sweeps by any account are read from the chain, and move money in the ledger."""

import json

import pytest

from payintent.accounting.ledger_check_store import find_differences
from payintent.chains.operations import ListChains
from payintent.evm.port import SweepLog, TransferLog
from payintent.onchain.sweeps.store import FinalSweep
from payintent.onchain.sweeps.watcher import match_transfers
from payintent.operators.operation import to_json_value
from payintent.payments.model import Session
from payintent_sandbox.chains.contracts import DEPOSIT_FORWARDER, load
from tests.support.deposits import TOTAL, DepositGround, add_factory
from tests.support.onchain import ChainWorld

USDT_TOTAL = 25_500_000  # 25.50 with 6 decimals


@pytest.fixture
async def deposits(ground: ChainWorld) -> DepositGround:
    return await add_factory(ground, "USDT")


@pytest.fixture
async def usdt(ethereum: ChainWorld) -> DepositGround:
    """A factory on a chain with a USDT that can charge a fee and block an account."""
    return await add_factory(ethereum, "USDT")


async def pay(deposits: DepositGround, amount: int, blocks: int = 3) -> Session:
    payment, session = await deposits.bill()
    await deposits.transfer(session, amount)
    await deposits.ground.final(blocks)
    assert await deposits.ground.status(payment) == "PAID"
    return session


async def sweeps(deposits: DepositGround) -> list[tuple[bool, int, int]]:
    rows = await deposits.ground.world.rows("SELECT * FROM deposit_sweep ORDER BY block, log_index")
    return [(row["succeeded"], int(row["amount"]), int(row["received"])) for row in rows]


async def is_balanced(deposits: DepositGround) -> bool:
    return await find_differences(deposits.ground.world.database) == []


async def test_money_is_at_deposit_addresses_until_a_final_sweep(deposits: DepositGround) -> None:
    session = await pay(deposits, TOTAL)
    assert await deposits.balances() == {"chain_deposits USDT": TOTAL}
    await deposits.sweep(session)
    await deposits.ground.turn()
    assert await sweeps(deposits) == []
    assert await deposits.balances() == {"chain_deposits USDT": TOTAL}
    await deposits.ground.final()
    assert await sweeps(deposits) == [(True, TOTAL, TOTAL)]
    assert await deposits.balances() == {"chain_receiver USDT": TOTAL}
    assert await is_balanced(deposits)


async def test_a_sweep_before_the_payment_is_complete_does_not_change_the_payment(
    deposits: DepositGround,
) -> None:
    payment, session = await deposits.bill()
    await deposits.transfer(session, 7)
    await deposits.sweep(session)
    await deposits.ground.final()
    assert await deposits.outcome(payment) == ("PROCESSING", None, [])
    assert await sweeps(deposits) == [(True, 7, 7)]
    await deposits.transfer(session, TOTAL - 7)
    await deposits.ground.final()
    assert await deposits.outcome(payment) == ("PAID", None, [])
    assert await deposits.balances() == {
        "chain_receiver USDT": 7,
        "chain_deposits USDT": TOTAL - 7,
    }
    await deposits.sweep(session)
    await deposits.ground.final()
    assert await deposits.balances() == {"chain_receiver USDT": TOTAL}
    assert await is_balanced(deposits)


async def test_a_sweep_of_an_empty_address_is_stored_as_failed(deposits: DepositGround) -> None:
    session = await pay(deposits, TOTAL)
    await deposits.sweep(session, session)
    await deposits.ground.final()
    assert await sweeps(deposits) == [(True, TOTAL, TOTAL), (False, 0, 0)]
    assert await is_balanced(deposits)


async def test_a_sweep_of_a_different_token_does_not_move_the_deposit(
    deposits: DepositGround,
) -> None:
    session = await pay(deposits, TOTAL)
    await deposits.sweep(session, token="NATIVED")
    await deposits.ground.final()
    assert await sweeps(deposits) == [(False, 0, 0)]
    assert await deposits.balances() == {"chain_deposits USDT": TOTAL}


async def test_a_deposit_that_is_found_after_its_sweep_is_recorded(deposits: DepositGround) -> None:
    payment, session = await deposits.bill()
    await deposits.transfer(session)
    await deposits.sweep(session)
    # The endpoints omit the transfer at first, but the blocks count as read.
    await deposits.ground.mine(3)
    height = await deposits.ground.height()
    await deposits.ground.world.rows("UPDATE deposit_address SET covered = true")
    await deposits.ground.world.rows(
        "UPDATE chain_cursor SET deposit_block = $1, deposit_at = clock(), sweep_block = 0,"
        " looked_at = clock(), long_looked_at = clock()",
        height - 2,
    )
    await deposits.ground.turn()
    assert await deposits.outcome(payment) == ("PROCESSING", None, [])
    assert await sweeps(deposits) == [(True, TOTAL, TOTAL)]
    assert await deposits.balances() == {}
    await deposits.ground.world.rows("UPDATE chain_cursor SET looked_at = '-infinity'")
    await deposits.ground.final()
    assert await deposits.outcome(payment) == ("PAID", None, [])
    assert await deposits.balances() == {"chain_receiver USDT": TOTAL}
    assert await is_balanced(deposits)


async def test_a_sweep_that_was_omitted_at_first_is_found_later(deposits: DepositGround) -> None:
    session = await pay(deposits, TOTAL)
    await deposits.sweep(session)
    await deposits.ground.mine(3)
    height = await deposits.ground.height()
    await deposits.ground.world.rows("UPDATE chain_cursor SET sweep_block = $1", height + 1)
    await deposits.ground.turn()
    await deposits.transfer(session, 5)
    await deposits.sweep(session)
    await deposits.ground.final()
    assert await sweeps(deposits) == [(True, 5, 5)]
    await deposits.ground.world.rows("UPDATE chain_cursor SET looked_at = '-infinity'")
    await deposits.ground.final()
    assert await sweeps(deposits) == [(True, TOTAL, TOTAL), (True, 5, 5)]
    assert await deposits.balances() == {"chain_receiver USDT": TOTAL + 5}
    assert await is_balanced(deposits)


async def test_a_token_fee_is_recorded_as_a_cost(usdt: DepositGround) -> None:
    session = await pay(usdt, USDT_TOTAL, 40)
    await usdt.call_token("set_fee", 100)  # 1 %
    await usdt.sweep(session)
    await usdt.ground.final(40)
    fee = USDT_TOTAL // 100
    assert await sweeps(usdt) == [(True, USDT_TOTAL, USDT_TOTAL - fee)]
    assert await usdt.balances() == {
        "chain_receiver USDT": USDT_TOTAL - fee,
        "chain_gas USDT": fee,
    }
    assert await is_balanced(usdt)


async def test_a_blocked_address_does_not_stop_the_batch(usdt: DepositGround) -> None:
    blocked, swept = await pay(usdt, USDT_TOTAL, 40), await pay(usdt, USDT_TOTAL, 40)
    await usdt.call_token("set_blocked", usdt.address(blocked), True)
    await usdt.sweep(blocked, swept)
    await usdt.ground.final(40)
    assert await sweeps(usdt) == [(False, 0, 0), (True, USDT_TOTAL, USDT_TOTAL)]
    assert await usdt.balances() == {
        "chain_receiver USDT": USDT_TOTAL,
        "chain_deposits USDT": USDT_TOTAL,
    }
    assert await is_balanced(usdt)


async def test_a_direct_flush_of_an_address_is_recorded_as_a_sweep(deposits: DepositGround) -> None:
    """The factory does not log a flush, so only the token's transfer shows the recipient."""
    payment, session = await deposits.bill()
    await deposits.transfer(session, 5)
    await deposits.sweep(session)  # deploys the proxy
    await deposits.transfer(session, 7)
    data = load(DEPOSIT_FORWARDER).call_data("flush", deposits.ground.token("USDT")[2:])
    flush = {"to": deposits.address(session), "value": "0x0", "data": data}
    await deposits.ground.send(flush)
    await deposits.transfer(session, TOTAL - 12)
    await deposits.ground.final()
    assert await deposits.ground.status(payment) == "PAID"
    assert await sweeps(deposits) == [(True, 5, 5), (True, 7, 7)]
    assert await deposits.balances() == {
        "chain_receiver USDT": 12,
        "chain_deposits USDT": TOTAL - 12,
    }
    await deposits.ground.send(flush)
    await deposits.ground.final()
    assert await deposits.balances() == {"chain_receiver USDT": TOTAL}
    assert await is_balanced(deposits)


def test_a_flush_before_a_sweep_in_the_same_transaction_is_a_separate_sweep() -> None:
    factory, receiver, address, token = (bytes([number]) * 20 for number in range(4))
    transfers = [
        TransferLog(
            token=token,
            sender=address,
            recipient=receiver,
            amount=amount,
            block_number=9,
            block_hash=bytes(32),
            tx_hash=bytes(32),
            log_index=index,
        )
        for index, amount in enumerate((30, 9, 90))  # 1 of 100 is a fee
    ]
    log = SweepLog(
        factory=factory,
        uuid=bytes(16),
        token=token,
        deposit_address=address,
        amount=100,
        succeeded=True,
        block_number=9,
        block_hash=bytes(32),
        tx_hash=bytes(32),
        log_index=3,
    )
    with_transfers = match_transfers([log], transfers, {factory: receiver}, [token])
    assert with_transfers == ([FinalSweep(log, 99)], transfers[:1])
    without_transfers = match_transfers([log], [], {factory: receiver}, [])
    assert without_transfers == ([FinalSweep(log, 100)], [])


async def test_chains_with_unswept_deposits_can_be_listed_as_json(deposits: DepositGround) -> None:
    await pay(deposits, TOTAL)
    chains = await deposits.ground.world.perform(ListChains())
    listed_chains = json.loads(json.dumps(to_json_value(chains)))
    [unswept] = [item for chain in listed_chains for item in chain["unswept"]]
    assert (unswept["deposits"], unswept["amount"]) == (1, "25.5")
