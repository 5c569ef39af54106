"""The balance of each deposit address is compared daily with deposits, sweeps and the ledger."""

from typing import Any

import pytest

from payintent.payments.model import Session
from payintent.reconciliation import deposit_comparison
from payintent.reconciliation.operations import RunDetails
from tests.support.chain_comparison import case_subjects, compare_due, newest_run, next_day
from tests.support.deposits import TOTAL, DepositGround, add_factory
from tests.support.fault_rpc import Faults, FaultyNode
from tests.support.onchain import ChainWorld

pytestmark = pytest.mark.full


@pytest.fixture
async def deposits(ground: ChainWorld) -> DepositGround:
    return await add_factory(ground, "USDT")


async def compare(deposits: DepositGround, *nodes: FaultyNode) -> RunDetails:
    await compare_due(deposits.ground, [node.url for node in nodes])
    return await newest_run(deposits.ground, deposits.account_id)


async def pay(deposits: DepositGround) -> Session:
    payment, session = await deposits.bill()
    await deposits.transfer(session)
    await deposits.ground.final()
    assert await deposits.ground.status(payment) == "PAID"
    return session


def difference(deposits: DepositGround, session: Session, there: str, here: str) -> str:
    address = deposits.address(session)
    return f"native deposit {address}: different, {there} USDT there, {here} USDT here"


async def test_a_run_matches_if_the_addresses_agree_with_the_books(
    deposits: DepositGround,
) -> None:
    await deposits.ground.world.rows("UPDATE payment_method SET fee_rate = 0.02")
    swept, _ = await pay(deposits), await pay(deposits)
    _, part = await deposits.bill()
    await deposits.transfer(part, 7)
    await deposits.sweep(swept)
    await deposits.ground.final()
    details = await compare(deposits)
    assert (details.run.status, details.run.opened) == ("matched", 0)
    [side] = [side for side in details.sums if side.currency == "USDT"]
    assert (side.type, side.lines, side.records) == ("deposit", 3, 3)
    assert side.gateway == side.service == side.ledger == "25.500000000000000007"
    assert await case_subjects(deposits.ground) == []
    assert (await compare(deposits)).run.id == details.run.id


async def test_a_stored_deposit_that_is_not_on_the_chain_opens_a_case(
    deposits: DepositGround,
) -> None:
    session = await pay(deposits)
    await deposits.ground.world.rows("ALTER TABLE chain_receipt DISABLE TRIGGER USER")
    await deposits.ground.world.rows("UPDATE chain_receipt SET amount = amount + 10^18::numeric")
    details = await compare(deposits)
    assert (details.run.status, details.run.opened) == ("differs", 1)
    expected = difference(deposits, session, "25.5", "26.5")
    assert await case_subjects(deposits.ground) == [expected]
    [case] = await deposits.ground.world.rows("SELECT * FROM money_case")
    assert case["session_id"] == session.id
    await next_day(deposits.ground)
    await deposits.ground.final()
    repeated = await compare(deposits)
    assert (repeated.run.status, repeated.run.opened) == ("differs", 0)


async def test_a_transfer_that_is_not_in_the_books_opens_a_case(deposits: DepositGround) -> None:
    session = await pay(deposits)
    await deposits.ground.pass_time(31 * 86_400)
    await deposits.transfer(session, TOTAL)
    await deposits.ground.final()
    await deposits.ground.pass_time(3_700)
    await deposits.ground.final()
    details = await compare(deposits)
    assert (details.run.status, details.run.opened) == ("differs", 1)
    assert await case_subjects(deposits.ground) == [difference(deposits, session, "51", "25.5")]


async def test_a_transfer_awaiting_the_recheck_is_not_a_difference(
    deposits: DepositGround,
) -> None:
    session = await pay(deposits)
    await deposits.ground.pass_time(2 * 86_400)
    await deposits.ground.final()
    await deposits.transfer(session, 7)
    await deposits.ground.final()
    assert (await compare(deposits)).run.status == "matched"
    await deposits.ground.pass_time(3_700)
    await deposits.ground.final()
    assert await deposits.ground.cases() == ["DOUBLE_PAYMENT"]
    await next_day(deposits.ground)
    assert (await compare(deposits)).run.status == "matched"


async def test_a_missing_sweep_opens_a_case(deposits: DepositGround) -> None:
    session = await pay(deposits)
    await deposits.sweep(session)
    await deposits.ground.mine(3)
    height = await deposits.ground.height()
    await deposits.ground.world.rows("UPDATE chain_cursor SET sweep_block = $1", height + 1)
    await deposits.ground.turn()
    details = await compare(deposits)
    assert (details.run.status, details.run.opened) == ("differs", 1)
    assert await case_subjects(deposits.ground) == [difference(deposits, session, "0", "25.5")]


async def test_an_incorrect_ledger_entry_opens_a_case(deposits: DepositGround) -> None:
    await pay(deposits)
    await deposits.ground.world.rows("ALTER TABLE ledger_entry DISABLE TRIGGER USER")
    await deposits.ground.world.rows(
        "UPDATE ledger_entry SET amount = amount - 10^18::numeric WHERE leg = 'payable'"
    )
    details = await compare(deposits)
    assert (details.run.status, details.run.opened) == ("differs", 1)
    [subject] = await case_subjects(deposits.ground)
    assert ": ledger, 24.5 USDT in the ledger, 25.5 USDT deposited and not swept" in subject


async def test_a_run_resumes_after_the_last_compared_address(
    deposits: DepositGround, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deposit_comparison, "BATCH", 2)
    for _ in range(3):
        await pay(deposits)
    async with FaultyNode(deposits.ground.chain.url) as node:
        read_batch = deposit_comparison.AddressReader.read_batch

        async def read_once(self: Any, run: Any) -> Any:
            node.faults = Faults(off=run.address_id > 0)
            return await read_batch(self, run)

        monkeypatch.setattr(deposit_comparison.AddressReader, "read_batch", read_once)
        interrupted = await compare(deposits, node)
        monkeypatch.setattr(deposit_comparison.AddressReader, "read_batch", read_batch)
        node.faults = Faults()
        await deposits.ground.world.rows("UPDATE reconciliation_run SET lease_until = clock()")
        resumed = await compare(deposits, node)
    assert (interrupted.run.status, resumed.run.status) == ("running", "matched")
    [before], [after] = (
        [side.lines for side in details.sums if side.currency == "USDT"]
        for details in (interrupted, resumed)
    )
    assert (before, after) == (2, 3)


async def test_a_difference_at_only_one_endpoint_does_not_open_a_case(
    deposits: DepositGround,
) -> None:
    await pay(deposits)
    url = deposits.ground.chain.url
    async with (
        FaultyNode(url) as honest,
        FaultyNode(url, faults=Faults(empty_calls=True)) as faulty,
    ):
        honest.faults = Faults(off=True)
        assert (await compare(deposits, honest, faulty)).run.status == "running"
        honest.faults = Faults()
        await deposits.ground.world.rows("UPDATE reconciliation_run SET lease_until = clock()")
        assert (await compare(deposits, honest, faulty)).run.status == "matched"
    assert await case_subjects(deposits.ground) == []
