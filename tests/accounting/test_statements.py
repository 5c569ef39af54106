"""Each ledger entry is in exactly one statement, and the statements add up to the balance."""

import asyncio
import csv
import io
import json
import random
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from decimal import Decimal
from unittest.mock import create_autospec
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
from payintent.db.database import Executor
from payintent.merchants.operations import SetMerchantProfile
from tests.accounting.test_ledger_operations import create_every_fact
from tests.refunds.refund_gateway import RefundGateway
from tests.support.fakes import FakeGateway
from tests.support.world import World

DAY_S = 24 * 3600
INSERT_ENTRY = """
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
    """A connection of a separate process that writes entries."""
    connection = await world.open_connection()
    yield connection
    await connection.close()


async def add_entry(writer: asyncpg.Connection, world: World, amount: int, ago_s: int = 0) -> str:
    fact_id = uuid4()
    await writer.execute(
        INSERT_ENTRY.replace("|| $2", f"|| {world.merchant_id}"),
        fact_id,
        world.merchant_id,
        amount,
        ago_s,
    )
    return str(fact_id)


async def close_days(world: World) -> None:
    while await close_due_days(world.database):
        pass


async def list_statements(world: World, currency: str = "THB") -> list[StatementView]:
    """List the statements, oldest first."""
    return (await world.perform(ListStatements(currency=currency, limit=1000)))[::-1]


async def export_lines(world: World, statement: StatementView) -> list[dict[str, str]]:
    exported = await world.perform(ExportStatement(statement_id=statement.id))
    return list(csv.DictReader(io.StringIO(exported.text)))


async def get_merchant_payable(world: World) -> int:
    return await payout_store.get_payable(world.database, world.merchant_id, "THB", None)


async def balance(world: World) -> int:
    balances = await statement_store.list_balances(world.database, world.merchant_id)
    return sum(item.amount_minor for item in balances if item.currency == "THB")


async def test_a_statement_contains_every_movement_of_a_closed_day(world: World) -> None:
    await create_every_fact(world)
    transfer = RecordPayout(
        merchant_id=world.merchant_id, amount="20.00", currency="THB", reference="transfer 1"
    )
    await world.perform(transfer)
    await close_days(world)
    assert await list_statements(world) == [], "the current day was closed"
    assert await balance(world) == await get_merchant_payable(world)
    await world.move_clock(DAY_S)
    await close_days(world)
    [statement] = await list_statements(world)
    assert (statement.number, statement.opening) == (1, "0")
    assert (
        Decimal(statement.closing) * 100
        == await get_merchant_payable(world)
        == await balance(world)
    )
    assert statement == await world.perform(ShowStatement(statement_id=statement.id))
    assert Decimal(statement.payouts) == -20
    for movement in (Movement.FEES, Movement.REFUNDS, Movement.DISPUTES):
        assert Decimal(getattr(statement, movement)) < 0, movement
    exported = await export_lines(world, statement)
    for movement in Movement:
        amounts = [Decimal(line["amount"]) for line in exported if line["kind"] == movement]
        deduction = {Movement.FEES: "fee", Movement.TAX: "tax"}.get(movement)
        if deduction:
            amounts = [-Decimal(line[deduction]) for line in exported]
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
        await add_entry(writer, world, amount)
    await world.move_clock(9 * DAY_S)
    await close_days(world)
    statements = await list_statements(world)
    assert [(item.number, item.opening, item.closing) for item in statements] == [
        (1, "0", "1.00"),
        (2, "1.00", "3.00"),
        (3, "3.00", "7.00"),
    ]
    assert [(item.day - statements[0].day).days for item in statements] == [0, 1, 4]


async def test_a_backdated_entry_is_in_the_next_statement(
    world: World, writer: asyncpg.Connection
) -> None:
    await add_entry(writer, world, 100)
    await world.move_clock(DAY_S)
    await close_days(world)
    late = await add_entry(writer, world, 30, ago_s=DAY_S)
    await world.move_clock(2 * DAY_S)
    await close_days(world)
    first, second = await list_statements(world)
    assert (first.closing, second.opening, second.closing) == ("1.00", "1.00", "1.30")
    assert (second.day - first.day).days == 1
    assert [line["id"] for line in await export_lines(world, second)] == [late]


async def test_a_statement_is_exported_with_lines_that_the_replica_lacks(
    world: World, writer: asyncpg.Connection
) -> None:
    line = await add_entry(writer, world, 100)
    await world.move_clock(DAY_S)
    await close_days(world)
    [statement] = await list_statements(world)
    replica = create_autospec(Executor, instance=True)
    replica.fetch.return_value = []
    context = replace(world.service.operation_context, read_database=replica)
    exported = await ExportStatement(statement_id=statement.id).read(context)
    assert line in exported.text


async def test_a_day_is_not_closed_while_an_entry_is_uncommitted(
    world: World, writer: asyncpg.Connection
) -> None:
    await add_entry(writer, world, 100)
    connection = await world.open_connection()
    transaction = connection.transaction()
    await transaction.start()
    await add_entry(connection, world, 30)
    await add_entry(writer, world, 1)  # this later number is committed first
    await world.move_clock(DAY_S)
    with capture_logs() as events:
        await close_days(world)
    assert await list_statements(world) == []
    assert [event["event"] for event in events] == ["statements_wait"]
    await transaction.commit()
    await connection.close()
    await close_days(world)
    [statement] = await list_statements(world)
    assert statement.closing == "1.31"
    assert len(await export_lines(world, statement)) == 3


async def test_concurrent_workers_close_a_day_once(
    world: World, writer: asyncpg.Connection
) -> None:
    for day in range(3):
        await world.move_clock(day * DAY_S)
        await add_entry(writer, world, 100)
    await world.move_clock(5 * DAY_S)
    await asyncio.gather(*(close_days(world) for _ in range(4)))
    assert [item.closing for item in await list_statements(world)] == ["1.00", "2.00", "3.00"]


async def test_a_worker_with_an_outdated_watermark_does_not_repeat_entries(
    world: World, writer: asyncpg.Connection
) -> None:
    await add_entry(writer, world, 100)
    watermark = await closing_store.read_watermark(world.database)
    assert watermark is not None
    await add_entry(writer, world, 200)
    await world.move_clock(DAY_S)
    await close_days(world)
    await world.move_clock(2 * DAY_S)
    async with world.database.transaction() as tx:
        await close_day(tx, world.merchant_id, watermark)
    assert await balance(world) == 300
    await add_entry(writer, world, 400)
    await world.move_clock(3 * DAY_S)
    await close_days(world)
    assert [
        (statement.opening, statement.closing) for statement in await list_statements(world)
    ] == [
        ("0", "3.00"),
        ("3.00", "7.00"),
    ]


async def test_each_unnumbered_entry_is_in_exactly_one_statement(
    world: World, writer: asyncpg.Connection
) -> None:
    unnumbered = INSERT_ENTRY.replace(
        "created_at)", "created_at, entry_number) OVERRIDING SYSTEM VALUE"
    )
    unnumbered = unnumbered.replace("'1 second')", "'1 second', 0)")
    unnumbered = unnumbered.replace("|| $2", f"|| {world.merchant_id}")
    for amount, ago_s in ((100, 2 * DAY_S), (200, 0)):
        await writer.execute(unnumbered, uuid4(), world.merchant_id, amount, ago_s)
    await close_days(world)
    assert [statement.closing for statement in await list_statements(world)] == ["1.00"]
    assert await balance(world) == 300
    await world.move_clock(2 * DAY_S)
    await close_days(world)
    assert [statement.closing for statement in await list_statements(world)] == ["1.00", "3.00"]
    assert await balance(world) == 300


async def test_a_day_ends_in_the_merchants_time_zone(
    world: World, writer: asyncpg.Connection
) -> None:
    merchant = world.merchant_id
    await world.perform(SetMerchantProfile(merchant_id=merchant, time_zone="Pacific/Kiritimati"))
    [row] = await world.rows("SELECT clock() AS now, (clock() AT TIME ZONE 'UTC')::time AS time")
    at_ten = (10 * 3600 - (row["time"].hour * 3600 + row["time"].minute * 60)) % DAY_S
    await world.move_clock(at_ten - 600)  # ten minutes before midnight in UTC+14
    await add_entry(writer, world, 100)
    await close_days(world)
    assert await list_statements(world) == []
    await world.move_clock(at_ten + 600)
    await add_entry(writer, world, 20)
    await close_days(world)
    [statement] = await list_statements(world)
    assert (statement.closing, statement.time_zone) == ("1.00", "Pacific/Kiritimati")
    await world.perform(SetMerchantProfile(merchant_id=merchant, time_zone="Pacific/Pago_Pago"))
    await world.move_clock(at_ten + 3 * DAY_S)
    await close_days(world)
    assert [item.closing for item in await list_statements(world)] == ["1.00", "1.20"]


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
                await close_days(world)
            case _:
                ago = chance.choice((0, 0, 3600, DAY_S, 5 * DAY_S))
                entered[await add_entry(writer, world, chance.randrange(1, 1000), ago)] += 1
        assert await balance(world) == await get_merchant_payable(world)
    await world.move_clock(moved + 3 * DAY_S)
    await close_days(world)
    statements = await list_statements(world)
    stated = Counter(
        [line["id"] for item in statements for line in await export_lines(world, item)]
    )
    assert stated == entered
    assert Decimal(statements[-1].closing) * 100 == await get_merchant_payable(world)
    assert len(statements) > 5
