"""The copied tables of another cell are what control had at some moment, and soon what it has."""

import asyncio
from dataclasses import replace
from decimal import Decimal

import asyncpg
import pytest
from prometheus_client import REGISTRY

from payintent.domain.rate_limit import RateLimitClass
from payintent.operations.chains import SetChain
from payintent.operations.copy_tables import CellCopier, open_copiers, wait_until_copied
from payintent.operations.merchants import SetMerchantProfile
from payintent.operations.rate_limits import ClearRateLimit, SetRateLimit
from payintent.operations.tax_rates import RemoveTaxRate, SetTaxRate
from payintent.storage import configuration, copied_tables
from payintent.storage.cells import Cells
from payintent.storage.database import Database
from tests.support.copying import (
    CELL,
    Pair,
    assert_equal,
    copied_rows,
    locked_copies,
    set_tax_rate,
)
from tests.support.patience import PATIENCE_S
from tests.support.serving import serving
from tests.support.world import World, free_port


async def test_the_first_copy_is_of_whole_tables(world: World, pair: Pair) -> None:
    await world.perform(SetTaxRate(country="TH", rate=Decimal("0.07")))
    before = await configuration.get_version(pair.cell)
    await pair.copier().step()
    await assert_equal(pair)
    assert (await copied_rows(pair.cell))["merchant"]
    assert (await configuration.get_version(pair.cell)).version != before.version


async def test_what_changed_is_copied_and_nothing_else_is_written(world: World, pair: Pair) -> None:
    copier = pair.copier()
    await copier.step()
    before = await _written(pair)
    await world.other_merchant()
    await world.perform(SetMerchantProfile(merchant_id=world.merchant_id, name="Renamed"))
    await copier.step()
    await assert_equal(pair)
    written = await _written(pair)
    assert len(written - before) > 2  # a renamed merchant, and another with what it has
    assert {table for table, _ in before - written} == {"merchant"}


async def test_whole_tables_that_are_copied_again_are_written_where_they_differ(pair: Pair) -> None:
    await pair.copier().step()
    before = await _written(pair)
    await pair.control.fetch("UPDATE restriction SET active = NOT active")
    await pair.cell.fetch("UPDATE configuration_copy SET number = NULL, token = NULL")
    await pair.copier().step()
    await assert_equal(pair)
    assert {table for table, _ in before - await _written(pair)} == {"restriction"}


async def test_a_pass_without_changes_writes_nothing(pair: Pair) -> None:
    copier = pair.copier()
    await copier.step()
    before = await _written(pair), await configuration.get_version(pair.cell)
    [copied] = await pair.cell.fetch("SELECT xmin::text, * FROM configuration_copy")
    await copier.step()
    assert (await _written(pair), await configuration.get_version(pair.cell)) == before
    assert await pair.cell.fetch("SELECT xmin::text, * FROM configuration_copy") == [copied]


async def test_what_is_deleted_in_control_is_deleted_in_the_cell(world: World, pair: Pair) -> None:
    await world.perform(SetTaxRate(country="TH", rate=Decimal("0.07")))
    await world.perform(SetTaxRate(country="DE", rate=Decimal("0.19")))
    limited = (world.merchant_id, RateLimitClass.CREATE)
    await world.perform(SetRateLimit(merchant_id=limited[0], kind=limited[1], per_s=5, burst=9))
    await pair.copier().step()
    await world.perform(RemoveTaxRate(country="TH"))
    await world.perform(ClearRateLimit(merchant_id=limited[0], kind=limited[1]))
    await pair.copier().step()
    await assert_equal(pair)
    copies = await copied_rows(pair.cell)
    assert len(copies["tax_rate"]) == 1
    assert copies["rate_limit"] == []


async def test_more_changes_than_are_read_at_once_are_copied_by_whole_tables(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copied_tables, "CHANGES_MAX", 200)
    await pair.copier().step()
    await pair.control.fetch(
        """
        INSERT INTO merchant (name)
        SELECT 'Merchant ' || n FROM generate_series(1, $1) AS n
        """,
        copied_tables.CHANGES_MAX + 1,
    )
    await pair.copier().step()
    await assert_equal(pair)


_LOSE_CONTRACT = """
    DELETE FROM chain_cursor;
    DELETE FROM chain_contract;
    DELETE FROM provider_account WHERE provider = 'gateway_contract'
"""


async def test_a_contract_that_was_lost_and_added_again_is_copied_anew(pair: Pair) -> None:
    await _add_contract(pair.control, block=70, cursor=900)
    await pair.copier().step()
    for statement in _LOSE_CONTRACT.split(";"):
        await pair.control.fetch(statement)
    await _add_contract(pair.control, block=70, cursor=900)  # of another account
    await _copy_anew(pair)


async def _copy_anew(pair: Pair) -> None:
    """Let the cell's copies be made anew, of a control that has forgotten how its rows changed."""
    async with pair.cell.transaction() as tx:
        await copied_tables.forget_copy(tx)
    await pair.copier().step()
    await assert_equal(pair)


async def test_another_schema_on_either_side_has_whole_tables_copied(pair: Pair) -> None:
    await pair.copier().step()
    for database in (pair.control, pair.cell):
        async with pair.cell.transaction() as tx:  # as if its migration had other values
            await tx.fetch("SET LOCAL payintent.copied_by = 'migration'")
            await tx.fetch("UPDATE provider SET changed_at = now() - interval '1 day'")
        await pair.copier().step()
        with pytest.raises(AssertionError):
            await assert_equal(pair)
        await database.fetch("INSERT INTO schema_migration VALUES (9999, 'later', '')")
        await pair.copier().step()
        await assert_equal(pair)


async def test_control_is_never_written_by_a_copier(pair: Pair) -> None:
    before = await copied_rows(pair.control)
    with pytest.raises(asyncpg.CheckViolationError, match="of cell 0 is no copy"):
        await CellCopier(pair.control, pair.control).step()
    assert await copied_rows(pair.control) == before


async def test_an_api_copies_as_long_as_it_runs(world: World, pair: Pair) -> None:
    cells = Cells(pair.control, pair.cell)
    service = replace(world.service, cells=cells)
    async with serving(service.settings, service, free_port()):
        assert await wait_until_copied(cells, PATIENCE_S) == []
        await assert_equal(pair)


async def test_one_cell_has_no_copier_and_notes_nothing(world: World) -> None:
    database = world.service.database
    assert open_copiers(world.service.cells) == []
    await world.other_merchant()
    assert await world.rows("SELECT FROM configuration_change") == []
    [noted] = await world.rows(
        "EXPLAIN (ANALYZE, FORMAT json) UPDATE api_key SET last_used_at = clock()"
    )
    assert '"Trigger Name"' not in str(noted[0])
    assert database is world.service.cells.control


async def test_a_cell_reads_a_chain_on_from_where_control_is(pair: Pair) -> None:
    await _add_contract(pair.control, block=70, cursor=900)
    await pair.copier().step()
    await assert_equal(pair)
    assert await _cursors(pair.cell) == [("bsc", 900)]
    await pair.control.fetch("UPDATE chain_cursor SET block = 950")
    await set_tax_rate(pair, "0.05")
    await pair.copier().step()
    assert await _cursors(pair.cell) == [("bsc", 900)]


async def test_a_limit_that_is_set_fills_its_bucket_in_the_cell_and_no_other(
    world: World, pair: Pair
) -> None:
    other = (await world.other_merchant()).merchant.id
    await pair.copier().step()
    kinds = (RateLimitClass.CREATE, RateLimitClass.READ)
    buckets = {(merchant, kind) for merchant in (world.merchant_id, other) for kind in kinds}
    for bucket in buckets:
        await pair.cell.fetch("INSERT INTO rate_state VALUES ($1, $2, 4102444800, 1)", *bucket)
    limited = (world.merchant_id, RateLimitClass.CREATE)
    await world.perform(SetRateLimit(merchant_id=limited[0], kind=limited[1], per_s=5, burst=9))
    await pair.copier().step()
    buckets.remove(limited)
    assert await _buckets(pair.cell) == buckets
    await pair.cell.fetch("INSERT INTO rate_state VALUES ($1, $2, 4102444800, 1)", *limited)
    await world.perform(ClearRateLimit(merchant_id=limited[0], kind=limited[1]))
    await pair.copier().step()
    assert await _buckets(pair.cell) == buckets


async def _buckets(cell: Database) -> set[tuple[int, str]]:
    rows = await cell.fetch("SELECT merchant_id, class FROM rate_state")
    return {(row["merchant_id"], row["class"]) for row in rows}


async def test_a_new_refunder_has_each_cell_look_at_its_logs_again(
    world: World, pair: Pair
) -> None:
    await _add_contract(pair.control, block=70, cursor=900)
    await pair.copier().step()
    ours, strange = b"o" * 20, b"s" * 20
    for sender in (ours, strange):
        await pair.cell.fetch(_FOREIGN, sender)
    await world.perform(SetChain(chain="bsc", refunder=f"0x{ours.hex()}"))
    await pair.copier().step()
    rows = await pair.cell.fetch("SELECT sender, disposition FROM chain_refund")
    assert {row["sender"]: row["disposition"] for row in rows} == {ours: None, strange: "foreign"}


_FOREIGN = """
    INSERT INTO chain_refund (id, chain, account_id, block, tx_hash, log_index, uuid, refund_ref,
        token, amount, sender, disposition, final_at)
    SELECT gen_random_uuid(), chain, account_id, 80, $1, 0, $1, gen_random_uuid(), $1, 5, $1,
        'foreign', clock()
    FROM chain_contract
"""


async def test_who_waits_for_copies_is_told_which_cells_have_not_got_them(pair: Pair) -> None:
    cells = Cells(pair.control, pair.cell)
    assert await wait_until_copied(cells, 0.1) == [CELL]
    waiting = asyncio.create_task(wait_until_copied(cells, 60))
    await pair.copier().step()
    assert await waiting == []
    await set_tax_rate(pair, "0.05")
    assert await wait_until_copied(cells, 0.1) == [CELL]
    assert await wait_until_copied(Cells(pair.control), 0.1) == []


async def test_the_lag_is_the_time_since_copies_were_known_to_be_current(pair: Pair) -> None:
    now = [100.0]
    copier = CellCopier(pair.control, pair.cell, lambda: now[0])
    async with locked_copies(pair):  # another copier is at it
        now[0] += 7
        await copier.step()
        assert _lag() == 7
    await copier.step()
    assert _lag() == 0
    now[0] += 3
    await copier.step()
    assert _lag() == 0


def _lag() -> float | None:
    return REGISTRY.get_sample_value("payintent_cell_copy_lag_seconds", {"cell": str(CELL)})


async def _written(pair: Pair) -> set[tuple[str, str]]:
    """Read the versions of all rows of copies: a row that is written has another one."""
    versions: set[tuple[str, str]] = set()
    for table in copied_tables.COPIED:
        rows = await pair.cell.fetch(f"SELECT ctid::text || xmin::text AS place FROM {table}")
        versions |= {(table, row["place"]) for row in rows}
    return versions


async def _add_contract(control: Database, block: int, cursor: int) -> None:
    await control.fetch(
        """
        WITH account AS (
            INSERT INTO provider_account (provider, base_url)
            VALUES ('gateway_contract', 'http://chain.test')
            RETURNING id
        ), contract AS (
            INSERT INTO chain_contract (account_id, chain, address, receiver, deployed_block)
            SELECT id, 'bsc', decode(repeat('01', 20), 'hex'), decode(repeat('02', 20), 'hex'),
                $1
            FROM account
        )
        INSERT INTO chain_cursor (chain, block) VALUES ('bsc', $2)
        """,
        block,
        cursor,
    )


async def _cursors(database: Database) -> list[tuple[str, int]]:
    rows = await database.fetch("SELECT chain, block FROM chain_cursor ORDER BY chain")
    return [(row["chain"], row["block"]) for row in rows]
