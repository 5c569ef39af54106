"""A backlog of deliveries does not increase the number of rows that the dispatcher reads."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import asyncpg
import pytest

from payintent.overview.store import COUNT_MAX, WaitingFigures, read_overview
from payintent.webhooks import outbox_store
from tests.support.plans import Recorder, nodes, pages_read, plan
from tests.support.world import World

ROWS = 3_000
PAGES_MAX = 20_000  # a release writes 1,000 rows
_SEED = """
WITH made AS (
    INSERT INTO payment (id, merchant_id, checkout_id, currency, amount, amount_text, payer_uid,
        include_pegged_assets, metadata, tax_manager, expires_at, created_at, updated_at)
    SELECT gen_random_uuid(), $1::bigint, 'cs_' || left(md5($1::bigint || '/' || n), 16), 'THB',
        1590, '1590.00', 'buyer-1', true, '{}', 'NONE', clock() + interval '1 day', clock(), clock()
    FROM generate_series(1, $2::int) AS n
    RETURNING id
), told AS (
    INSERT INTO event (id, payment_id, merchant_id, type, body, occurred_at)
    SELECT gen_random_uuid(), id, $1::bigint, 'payment.cancelled', '{}', clock()
    FROM made
    RETURNING id
)
INSERT INTO delivery (event_id, merchant_id, state, next_at)
SELECT id, $1::bigint, 'pending', clock() + $3::int * interval '1 second'
FROM told
"""


@pytest.fixture
async def raw(world: World) -> AsyncIterator[asyncpg.Connection]:
    """A merchant with a due backlog, and another with failed deliveries."""
    connection = await world.open_connection()
    await connection.execute(_SEED, world.merchant_id, ROWS, -1)
    await connection.execute("VACUUM ANALYZE")
    await connection.execute("SET plan_cache_mode = force_generic_plan")
    yield connection
    await connection.close()


async def _explain(
    raw: asyncpg.Connection, query: Callable[[Any], Awaitable[object]]
) -> dict[str, Any]:
    recorder = Recorder()
    await query(recorder)
    return await plan(raw, recorder)


async def test_dispatcher_queries_do_not_scan_a_backlog(
    world: World, raw: asyncpg.Connection
) -> None:
    """The planner expects the correct number of rows. Otherwise, it would scan whole tables."""
    other_id = (await world.add_merchant()).merchant.id
    await raw.execute(_SEED, other_id, ROWS, 3600)
    limits = [(world.merchant_id, 16), (other_id, 16)]
    queries: dict[str, tuple[int, Callable[[Any], Awaitable[object]]]] = {
        "merchants": (2_000, lambda database: outbox_store.list_due_endpoints(database, 100_000)),
        "claim": (500, lambda database: outbox_store.claim_due(database, limits, 45.0)),
        "release": (1_000, lambda database: outbox_store.release(database, other_id)),
    }
    for name, (rows, query) in queries.items():
        query_plan = await _explain(raw, query)
        writes = [node for node in nodes(query_plan) if node["Node Type"] == "ModifyTable"]
        assert (*writes, query_plan)[0]["Plan Rows"] <= rows, name
        assert pages_read(query_plan) < PAGES_MAX, name


async def test_a_merchants_backlog_does_not_hide_late_webhooks_of_another_merchant(
    world: World, raw: asyncpg.Connection
) -> None:
    other_id = (await world.add_merchant()).merchant.id
    await raw.execute(_SEED, other_id, 5, 3600)
    for attempted, late in ((True, 5), (False, 0)):
        await raw.execute(
            "UPDATE delivery SET attempts = $2::bool::int WHERE merchant_id = $1",
            other_id,
            attempted,
        )
        waiting = await _read_waiting(world.database)
        assert (waiting.deliveries_waiting, waiting.deliveries_late) == (COUNT_MAX, late)
    recorder = Recorder()
    with pytest.raises(AssertionError):  # it returns no row
        await _read_waiting(recorder)
    assert pages_read(await plan(raw, recorder)) < PAGES_MAX


async def test_webhooks_due_for_retry_are_late_and_counted_up_to_a_limit(
    world: World,
) -> None:
    for name, rows, due_in_s, late in (
        ("A", 2, -1, 2),
        ("B", 3, 3600, 5),
        ("C", COUNT_MAX, 3600, COUNT_MAX),
    ):
        merchant_id = (await world.add_merchant(name)).merchant.id
        await world.rows(_SEED, merchant_id, rows, due_in_s)
        await world.rows("UPDATE delivery SET attempts = 1")
        assert (await _read_waiting(world.database)).deliveries_late == late


async def _read_waiting(database: Any) -> WaitingFigures:
    return (await read_overview(database, None, with_conversion=False)).waiting


async def test_failed_deliveries_are_released_in_batches(
    world: World,
) -> None:
    await world.rows(_SEED, world.merchant_id, 1_005, 3600)
    database = world.database
    assert [await outbox_store.release(database, world.merchant_id) for _ in "123"] == [
        True,
        False,
        False,
    ]
    [row] = await world.rows("SELECT count(*) FROM delivery WHERE next_at <= clock()")
    assert row["count"] == 1_005
