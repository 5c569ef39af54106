"""Each ledger entry is in exactly one statement, and the statements add up to the balance."""

import asyncio
import csv
import io
import json
import random
from collections import Counter
from collections.abc import AsyncIterator
from decimal import Decimal
from uuid import uuid4

import asyncpg
import pytest
from structlog.testing import capture_logs

from payintent.accounting import closing_store
from payintent.accounting import payouts_store as payout_store
from payintent.accounting import statements_store as statement_store
from payintent.accounting.close_statements import close_day, close_due_days
from payintent.accounting.model import Fact
from payintent.accounting.payouts_operations import RecordPayout
from payintent.accounting.statement_model import MOVEMENTS, Movement, StatementView
from payintent.accounting.statements_operations import (
    ExportStatement,
    ListStatements,
    ShowStatement,
)
from payintent.merchants.operations import SetMerchantProfile
from tests.accounting.test_ledger_operations import everything
from tests.refunds.refund_gateway import RefundGateway
from tests.support.fakes import FakeGateway
from tests.support.world import World

DAY_S = 24 * 3600
ENTER = """
    INSERT INTO ledger_entry
        (fact_id, leg, merchant_id, currency, fact, debit, credit, amount, created_at)
    VALUES ($1, 'whole', $2, 'THB', 'adjustment', 'bank', 'merchant_payable:' || $2, $3,
        clock() - $4::int * interval '1 second')
"""


@pytest.fixture
def gateway() -> FakeGateway:
    return RefundGateway()


@pytest.fixture
async def writer(world: World) -> AsyncIterator[asyncpg.Connection]:
    """A separate process that writes entries."""
    connection = await world.open_connection()
    yield connection
    await connection.close()


async def enter(writer: asyncpg.Connection, world: World, amount: int, ago_s: int = 0) -> str:
    fact_id = uuid4()
    await writer.execute(
        ENTER.replace("|| $2", f"|| {world.merchant_id}"), fact_id, world.merchant_id, amount, ago_s
    )
    return str(fact_id)


async def close(world: World) -> None:
    while await close_due_days(world.database):
        pass


async def listed(world: World, currency: str = "THB") -> list[StatementView]:
    """List the statements, oldest first."""
    return (await world.perform(ListStatements(currency=currency, limit=1000)))[::-1]


async def lines(world: World, statement: StatementView) -> list[dict[str, str]]:
    exported = await world.perform(ExportStatement(statement_id=statement.id))
    return list(csv.DictReader(io.StringIO(exported.text)))


async def owed(world: World) -> int:
    return await payout_store.get_payable(world.database, world.merchant_id, "THB", None)


async def balance(world: World) -> int:
    found = await statement_store.list_balances(world.database, world.merchant_id)
    return sum(item.amount_minor for item in found if item.currency == "THB")


async def test_a_statement_contains_every_movement_of_a_closed_day(world: World) -> None:
    await everything(world)
    transfer = RecordPayout(
        merchant_id=world.merchant_id, amount="20.00", currency="THB", reference="transfer 1"
    )
    await world.perform(transfer)
    await close(world)
    assert await listed(world) == [], "today is not over"
    assert await balance(world) == await owed(world)
    await world.move_clock(DAY_S)
    await close(world)
    [statement] = await listed(world)
    assert (statement.number, statement.opening) == (1, "0")
    assert Decimal(statement.closing) * 100 == await owed(world) == await balance(world)
    assert statement == await world.perform(ShowStatement(statement_id=statement.id))
    assert Decimal(statement.payouts) == -20
    for movement in (Movement.FEES, Movement.REFUNDS, Movement.DISPUTES):
        assert Decimal(getattr(statement, movement)) < 0, movement
    exported = await lines(world, statement)
    for movement in Movement:
        amounts = [Decimal(line["amount"]) for line in exported if line["kind"] == movement]
        taken = {Movement.FEES: "fee", Movement.TAX: "tax"}.get(movement)
        if taken:
            amounts = [-Decimal(line[taken]) for line in exported]
        assert sum(amounts) == Decimal(getattr(statement, movement)), movement
    assert sum(Decimal(line["net"]) for line in exported) == Decimal(statement.closing)
    exported_json = await world.perform(ExportStatement(statement_id=statement.id, format="jsonl"))
    assert [line["id"] for line in map(json.loads, exported_json.text.splitlines())] == [
        line["id"] for line in exported
    ]


def test_every_fact_is_a_movement_or_does_not_change_the_merchants_balance() -> None:
    assert set(Fact) - MOVEMENTS.keys() == {
        Fact.REFUND_DONE,  # from the reserve
        Fact.CASE_DISMISSED,  # from suspense
        Fact.SWEEP,  # from a deposit address to the receiver
        Fact.SWEEP_GAS,  # a cost of the operator
    }


async def test_statements_are_consecutive_and_days_without_entries_are_skipped(
    world: World, writer: asyncpg.Connection
) -> None:
    for day, amount in ((0, 100), (1, 200), (4, 400)):
        await world.move_clock(day * DAY_S)
        await enter(writer, world, amount)
    await world.move_clock(9 * DAY_S)
    await close(world)
    found = await listed(world)
    assert [(item.number, item.opening, item.closing) for item in found] == [
        (1, "0", "1.00"),
        (2, "1.00", "3.00"),
        (3, "3.00", "7.00"),
    ]
    assert [(item.day - found[0].day).days for item in found] == [0, 1, 4]


async def test_a_backdated_entry_is_in_the_next_statement(
    world: World, writer: asyncpg.Connection
) -> None:
    await enter(writer, world, 100)
    await world.move_clock(DAY_S)
    await close(world)
    late = await enter(writer, world, 30, ago_s=DAY_S)
    await world.move_clock(2 * DAY_S)
    await close(world)
    first, second = await listed(world)
    assert (first.closing, second.opening, second.closing) == ("1.00", "1.00", "1.30")
    assert (second.day - first.day).days == 1
    assert [line["id"] for line in await lines(world, second)] == [late]


async def test_a_day_is_not_closed_while_an_entry_is_uncommitted(
    world: World, writer: asyncpg.Connection
) -> None:
    await enter(writer, world, 100)
    other = await world.open_connection()
    begun = other.transaction()
    await begun.start()
    await enter(other, world, 30)
    await enter(writer, world, 1)  # a later number, committed before
    await world.move_clock(DAY_S)
    with capture_logs() as logged:
        await close(world)
    assert await listed(world) == []
    assert [event["event"] for event in logged] == ["statements_wait"]
    await begun.commit()
    await other.close()
    await close(world)
    [statement] = await listed(world)
    assert statement.closing == "1.31"
    assert len(await lines(world, statement)) == 3


async def test_concurrent_workers_close_a_day_once(
    world: World, writer: asyncpg.Connection
) -> None:
    for day in range(3):
        await world.move_clock(day * DAY_S)
        await enter(writer, world, 100)
    await world.move_clock(5 * DAY_S)
    await asyncio.gather(*(close(world) for _ in range(4)))
    assert [item.closing for item in await listed(world)] == ["1.00", "2.00", "3.00"]


async def test_a_worker_with_an_outdated_watermark_does_not_repeat_entries(
    world: World, writer: asyncpg.Connection
) -> None:
    await enter(writer, world, 100)
    seen_early = await closing_store.read_watermark(world.database)
    assert seen_early is not None
    await enter(writer, world, 200)
    await world.move_clock(DAY_S)
    await close(world)
    await world.move_clock(2 * DAY_S)
    async with world.database.transaction() as tx:
        await close_day(tx, world.merchant_id, seen_early)
    assert await balance(world) == 300
    await enter(writer, world, 400)
    await world.move_clock(3 * DAY_S)
    await close(world)
    assert [(found.opening, found.closing) for found in await listed(world)] == [
        ("0", "3.00"),
        ("3.00", "7.00"),
    ]


async def test_unnumbered_entries_are_in_exactly_one_statement(
    world: World, writer: asyncpg.Connection
) -> None:
    unnumbered = ENTER.replace("created_at)", "created_at, entry_number) OVERRIDING SYSTEM VALUE")
    unnumbered = unnumbered.replace("'1 second')", "'1 second', 0)")
    unnumbered = unnumbered.replace("|| $2", f"|| {world.merchant_id}")
    for amount, ago_s in ((100, 2 * DAY_S), (200, 0)):
        await writer.execute(unnumbered, uuid4(), world.merchant_id, amount, ago_s)
    await close(world)
    assert [found.closing for found in await listed(world)] == ["1.00"]
    assert await balance(world) == 300
    await world.move_clock(2 * DAY_S)
    await close(world)
    assert [found.closing for found in await listed(world)] == ["1.00", "3.00"]
    assert await balance(world) == 300


async def test_a_day_ends_in_the_merchants_time_zone(
    world: World, writer: asyncpg.Connection
) -> None:
    merchant = world.merchant_id
    await world.perform(SetMerchantProfile(merchant_id=merchant, time_zone="Pacific/Kiritimati"))
    [row] = await world.rows("SELECT clock() AS now, (clock() AT TIME ZONE 'UTC')::time AS time")
    at_ten = (10 * 3600 - (row["time"].hour * 3600 + row["time"].minute * 60)) % DAY_S
    await world.move_clock(at_ten - 600)  # ten minutes to midnight there: UTC+14
    await enter(writer, world, 100)
    await close(world)
    assert await listed(world) == []
    await world.move_clock(at_ten + 600)
    await enter(writer, world, 20)
    await close(world)
    [statement] = await listed(world)
    assert (statement.closing, statement.time_zone) == ("1.00", "Pacific/Kiritimati")
    await world.perform(SetMerchantProfile(merchant_id=merchant, time_zone="Pacific/Pago_Pago"))
    await world.move_clock(at_ten + 3 * DAY_S)
    await close(world)
    assert [item.closing for item in await listed(world)] == ["1.00", "1.20"]


async def test_each_entry_is_in_exactly_one_statement_after_any_order_of_events(
    world: World, writer: asyncpg.Connection
) -> None:
    chance = random.Random(20_261_124)
    entered: Counter[str] = Counter()
    moved = 0
    for _ in range(60):
        match chance.randrange(4):
            case 0:
                moved += chance.randrange(2 * DAY_S)
                await world.move_clock(moved)
            case 1:
                await close(world)
            case _:
                ago = chance.choice((0, 0, 3600, DAY_S, 5 * DAY_S))
                entered[await enter(writer, world, chance.randrange(1, 1000), ago)] += 1
        assert await balance(world) == await owed(world)
    await world.move_clock(moved + 3 * DAY_S)
    await close(world)
    found = await listed(world)
    stated = Counter([line["id"] for item in found for line in await lines(world, item)])
    assert stated == entered
    assert Decimal(found[-1].closing) * 100 == await owed(world)
    assert len(found) > 5
