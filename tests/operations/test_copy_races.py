"""Copies miss nothing and take nothing back: changes at once, kills, and other histories."""

import asyncio
from decimal import Decimal

import pytest

from payintent.domain.errors import StorageUnavailableError
from payintent.id_generator import IdGenerator
from payintent.operations.copy_tables import open_copiers, wait_until_copied
from payintent.operations.merchants import SetMerchantProfile
from payintent.operations.tax_rates import SetTaxRate
from payintent.storage.cells import Cells
from payintent.storage.database import Database
from tests.support.copying import (
    Held,
    Pair,
    assert_equal,
    copied_number,
    copied_rows,
    held_at_tax_rates,
    set_tax_rate,
    until_waiting,
)
from tests.support.world import World


async def test_a_change_that_was_begun_before_another_and_ends_after_it_is_not_missed(
    world: World, pair: Pair
) -> None:
    copier = pair.copier()
    await copier.step()
    slow = await world.other_connection()
    async with slow.transaction():
        await slow.execute("UPDATE merchant SET name = 'Slow' WHERE id = $1", world.merchant_id)
        await world.perform(SetTaxRate(country="TH", rate=Decimal("0.07")))
        await copier.step()
        assert len((await copied_rows(pair.cell))["tax_rate"]) == 1
        assert not await _merchant_named(pair, "Slow")
    await copier.step()
    assert await _merchant_named(pair, "Slow")
    await assert_equal(pair)
    await slow.close()


async def test_no_change_gets_its_number_while_one_that_has_a_lower_one_may_not_be_seen(
    world: World, pair: Pair
) -> None:
    copier = pair.copier()
    await copier.step()
    first, second = await world.other_connection(), await world.other_connection()
    under_way = first.transaction()
    await under_way.start()
    await first.execute("UPDATE merchant SET name = 'First' WHERE id = $1", world.merchant_id)
    await first.execute("SET CONSTRAINTS ALL IMMEDIATE")  # as if its commit took long
    waiting = asyncio.create_task(second.execute("INSERT INTO tax_rate VALUES ('TH', 0.07)"))
    await until_waiting(first)
    await copier.step()
    await under_way.commit()
    await waiting
    await copier.step()
    assert await _merchant_named(pair, "First")
    await assert_equal(pair)
    for connection in (first, second):
        await connection.close()


async def test_a_copier_that_is_killed_halfway_leaves_the_old_copies_and_the_next_pass_goes_on(
    world: World, pair: Pair
) -> None:
    await set_tax_rate(pair, "0.05")
    copier = pair.copier()
    await copier.step()
    before, number = await copied_rows(pair.cell), await copied_number(pair)
    await world.other_merchant()
    await set_tax_rate(pair, "0.07")
    async with held_at_tax_rates(pair) as holder:
        step = asyncio.create_task(copier.step())
        await until_waiting(holder)  # merchants are written, and tax rates are not
        await holder.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        with pytest.raises(StorageUnavailableError):
            await step
    assert await copied_rows(pair.cell) == before
    assert await copied_number(pair) == number
    await copier.step()
    await assert_equal(pair)


async def test_a_second_copier_leaves_a_cell_alone_while_the_first_is_at_it(
    world: World, pair: Pair
) -> None:
    await set_tax_rate(pair, "0.05")
    await pair.copier().step()
    await set_tax_rate(pair, "0.07")
    async with held_at_tax_rates(pair) as holder:
        first = asyncio.create_task(pair.copier().step())
        await until_waiting(holder)
        # What the first has read is older than this. The second may not write it before the first.
        await set_tax_rate(pair, "0.09")
        await pair.copier().step()
    await first
    await pair.copier().step()
    await assert_equal(pair)


async def test_many_copiers_at_once_do_no_harm(world: World, pair: Pair) -> None:
    for rate in range(1, 6):
        await set_tax_rate(pair, f"0.0{rate}")
        await asyncio.gather(*(pair.copier().step() for _ in range(4)))
    await pair.copier().step()
    await assert_equal(pair)


async def test_a_key_is_the_same_in_the_time_zone_of_whoever_changes_a_row(
    world: World, pair: Pair
) -> None:
    copier = pair.copier()
    await copier.step()
    for zone in ("UTC", "Asia/Kathmandu", "America/New_York"):
        async with pair.control.transaction() as tx:
            await tx.fetch("SELECT set_config('timezone', $1, true)", zone)
            await tx.fetch(
                """
                INSERT INTO merchant_cell (merchant_id, cell, since)
                VALUES ($1, 1, '2026-01-01T00:00:00Z')
                ON CONFLICT (merchant_id, since) DO UPDATE SET until = clock()
                """,
                world.merchant_id,
            )
    await copier.step()
    await assert_equal(pair)


async def test_a_pass_copies_what_control_had_at_one_moment(world: World, pair: Pair) -> None:
    await pair.copier().step()
    await pair.control.fetch("UPDATE provider SET enabled = false")
    await pair.control.fetch("DELETE FROM configuration_change")  # so that it is of whole tables
    before = await copied_rows(pair.control)
    async with Held(pair, "SELECT FROM provider FOR UPDATE") as holder:
        step = asyncio.create_task(pair.copier().step())
        await until_waiting(holder)  # merchants were not read yet
        await world.other_merchant()
    await step
    assert await copied_rows(pair.cell) == before
    await pair.copier().step()
    await assert_equal(pair)


async def test_a_copied_account_does_not_wait_for_payments_that_refer_to_it(
    world: World, pair: Pair
) -> None:
    await pair.copier().step()
    await pair.control.fetch("UPDATE provider_account SET enabled = false")
    await pair.control.fetch("UPDATE merchant SET name = 'Renamed'")
    # As a payment under way holds what it refers to.
    async with (
        Held(pair, "SELECT FROM provider_account FOR KEY SHARE"),
        Held(pair, "SELECT FROM merchant FOR KEY SHARE"),
    ):
        await pair.copier().step()
    await assert_equal(pair)


async def test_a_cell_that_is_away_delays_itself_alone(world: World, pair: Pair) -> None:
    nowhere = {"database_url": "postgresql://127.0.0.1:1/none"}
    settings = world.service.settings.model_copy(update=nowhere)
    away = Database(settings, id_generator=IdGenerator(cell=2))
    cells = Cells(pair.control, pair.cell, away)
    steps = [copier.step() for copier in open_copiers(cells)]
    present, absent = await asyncio.gather(*steps, return_exceptions=True)
    assert present is None
    assert isinstance(absent, StorageUnavailableError)
    await assert_equal(pair)
    assert await wait_until_copied(cells, 0.2) == [2]
    await away.close()


async def test_copies_of_a_change_that_control_does_not_know_are_left_as_they_are(
    world: World, pair: Pair
) -> None:
    copier = pair.copier()
    await copier.step()
    [before] = await pair.control.fetch("SELECT number, token FROM configuration_version")
    await set_tax_rate(pair, "0.05")
    await copier.step()
    copies = await copied_rows(pair.cell)
    await pair.control.fetch("DELETE FROM tax_rate")  # a restore leaves nothing of the change
    await pair.control.fetch("DELETE FROM configuration_change WHERE number > $1", before["number"])
    await pair.control.fetch(
        "UPDATE configuration_version SET number = $1, token = $2", *before.values()
    )
    await copier.step()
    assert await copied_rows(pair.cell) == copies
    for name in ("One", "Two", "Three"):  # nor once its numbers have passed the cell's
        await world.perform(SetMerchantProfile(merchant_id=world.merchant_id, name=name))
        await copier.step()
        assert await copied_rows(pair.cell) == copies


async def test_copies_that_are_too_old_for_what_control_has_noted_are_made_anew(
    world: World, pair: Pair
) -> None:
    await pair.copier().step()
    await set_tax_rate(pair, "0.05")
    await pair.control.fetch("DELETE FROM configuration_change")
    await world.other_merchant()
    await pair.copier().step()
    await assert_equal(pair)


async def _merchant_named(pair: Pair, name: str) -> bool:
    return bool(await pair.cell.fetch("SELECT FROM merchant WHERE name = $1", name))
