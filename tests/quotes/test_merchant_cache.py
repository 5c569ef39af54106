"""Cached merchants match the database, and are read again only if they have changed."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest

from payintent.merchants import methods_store as method_store
from payintent.quotes.merchant_cache import MerchantCache
from tests.support.world import World

_ROWS = """
    INSERT INTO chain_token (chain, symbol, decimals, address)
        VALUES ('ethereum', 'ONE', 6, decode(repeat('11', 20), 'hex'));
    INSERT INTO tax_rate (country, rate) VALUES ('FR', 0.2);
    INSERT INTO catalog_shown (merchant_id, viewer, content_hash, since)
        SELECT id, '', '', clock() FROM merchant;
"""
#: Changes to every table that a merchant's setup or catalog depends on.
CHANGES = (
    "INSERT INTO merchant (name) VALUES ('another')",
    "UPDATE merchant SET name = 'renamed'",
    "UPDATE payment_method SET label = 'renamed'",
    "UPDATE provider SET enabled = NOT enabled",
    "UPDATE provider_account SET enabled = NOT enabled",
    "INSERT INTO chain_token (chain, symbol, decimals) VALUES ('ethereum', 'TWO', 6)",
    "UPDATE chain_token SET enabled = NOT enabled",
    "INSERT INTO tax_rate (country, rate) VALUES ('DE', 0.19)",
    "UPDATE tax_rate SET rate = 0.1",
    "DELETE FROM tax_rate",
    "UPDATE catalog_shown SET since = clock()",
)


@asynccontextmanager
async def connect_as_process(world: World) -> AsyncIterator[asyncpg.Connection]:
    connection = await world.open_connection()
    try:
        yield connection
    finally:
        await connection.close()


def make_cache(world: World) -> MerchantCache:
    return MerchantCache(world.database, world.service.accounts)


async def test_an_unchanged_merchant_is_not_read_again(world: World) -> None:
    cache = make_cache(world)
    first = await cache.get(world.merchant_id)
    async with connect_as_process(world) as connection:
        await connection.execute("SET session_replication_role = replica")  # triggers do not run
        await connection.execute("UPDATE merchant SET name = 'seen by a read alone'")
    assert await cache.get(world.merchant_id) is first


@pytest.mark.parametrize("change", CHANGES)
async def test_a_change_by_another_process_is_visible_to_the_next_call(
    world: World, change: str
) -> None:
    cache = make_cache(world)
    async with connect_as_process(world) as connection:
        await connection.execute(_ROWS)
        before = await cache.get(world.merchant_id)
        await connection.execute(change)
    after = await cache.get(world.merchant_id)
    assert after.version.version != before.version.version
    fresh = await make_cache(world).get(world.merchant_id)
    assert (after.merchant, after.methods, after.tax_rates) == (
        fresh.merchant,
        fresh.methods,
        fresh.tax_rates,
    )


async def test_an_uncommitted_change_is_invisible_and_does_not_block_other_changes(
    world: World,
) -> None:
    cache = make_cache(world)
    before = await cache.get(world.merchant_id)
    async with connect_as_process(world) as slow, connect_as_process(world) as quick:
        transaction = slow.transaction()
        await transaction.start()
        await slow.execute("UPDATE merchant SET name = 'slow'")
        assert await cache.get(world.merchant_id) is before
        await quick.execute("SET lock_timeout = '20s'; UPDATE payment_method SET label = 'quick'")
        between = await cache.get(world.merchant_id)
        assert {method.label for method in between.methods} == {"quick"}
        assert between.merchant.name == before.merchant.name
        await transaction.commit()
    assert (await cache.get(world.merchant_id)).merchant.name == "slow"


async def test_a_rolled_back_change_does_not_change_the_version(world: World) -> None:
    before = await method_store.get_version(world.database)
    async with connect_as_process(world) as connection:
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute("UPDATE merchant SET name = 'never'")
        await transaction.rollback()
    assert await method_store.get_version(world.database) == before


async def test_a_version_is_never_reused(world: World) -> None:
    versions = set[object]()
    async with connect_as_process(world) as connection:
        for name in ("a", "b", "a", "b"):
            await connection.execute("UPDATE merchant SET name = $1", name)
            versions.add((await method_store.get_version(world.database)).version)
    assert len(versions) == 4


async def test_methods_of_a_chain_are_offered_again_once_it_is_watched_again(world: World) -> None:
    cache = make_cache(world)
    async with connect_as_process(world) as connection:
        await connection.execute(_ROWS)
        await connection.execute(
            "INSERT INTO chain_cursor (chain, block) VALUES ('ethereum', 1);"
            "UPDATE payment_method SET chain = 'ethereum', token = 'ONE'"
        )
        for watched in (False, True, False, True):
            until = "clock() + interval '1 hour'" if watched else "clock()"
            await connection.execute(
                f"UPDATE chain_cursor SET watched_since = clock(), watched_until = {until}"
            )
            setup = await cache.get(world.merchant_id)
            assert setup.version.watched_chains == (("ethereum",) if watched else ())
            assert {method.account_enabled for method in setup.methods} == {watched}


async def test_concurrent_callers_all_see_an_earlier_change(
    world: World,
) -> None:
    cache = make_cache(world)
    async with connect_as_process(world) as connection:
        for number in range(20):
            await connection.execute("UPDATE merchant SET name = $1", f"name {number}")
            setups = await asyncio.gather(*(cache.get(world.merchant_id) for _ in range(50)))
            assert {setup.merchant.name for setup in setups} == {f"name {number}"}
