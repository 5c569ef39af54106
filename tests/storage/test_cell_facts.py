"""What a cell says of itself: what is open there, what waits, and how far its chains are."""

from payintent.operations.merchants import SetCallbackUrl
from payintent.payments.cancel import cancel_by_merchant
from payintent.storage import payments
from payintent.storage.cell_facts import CellFacts, list_places, read_cell
from tests.support.world import World

CURSORS = """
    INSERT INTO chain_cursor AS k (chain, block, head, halted, watched_since, watched_until)
    SELECT slug, 100, 100 + $2, $3, clock(), clock() + interval '1 hour'
    FROM chain
    WHERE slug = $1
    ON CONFLICT (chain) DO UPDATE
    SET block = excluded.block, head = excluded.head, halted = excluded.halted,
        watched_since = excluded.watched_since, watched_until = excluded.watched_until
"""


async def _read(world: World) -> CellFacts:
    return await read_cell(world.database, await payments.now(world.database))


async def test_a_cell_counts_what_is_open_and_what_is_new(world: World) -> None:
    made = [await world.create() for _ in range(3)]
    async with world.database.transaction() as tx:
        await cancel_by_merchant(tx, made[0], None)
    facts = await _read(world)
    assert (facts.open_payments, facts.created) == (2, 3)
    await world.move_clock(61)
    facts = await _read(world)
    assert (facts.open_payments, facts.created) == (2, 0)


async def test_a_cell_says_what_its_server_is(world: World) -> None:
    facts = await _read(world)
    assert int(facts.version.partition(".")[0]) >= 15
    assert 0 < facts.connections <= facts.server_connections < facts.connections_max
    assert (facts.is_standby, facts.is_read_only, facts.standbys) == (False, False, 0)
    assert facts.database_bytes > 1_000_000
    assert abs(facts.clock_ahead_s) < 60


async def test_a_cell_says_what_has_waited_longest(world: World) -> None:
    facts = await _read(world)
    assert (facts.webhook_due_at, facts.callback_at) == (None, None)
    url = "https://93.184.216.34/hooks"
    await world.perform(SetCallbackUrl(merchant_id=world.merchant_id, callback_url=url))
    for _ in range(2):
        payment = await world.create()
        async with world.database.transaction() as tx:
            await cancel_by_merchant(tx, payment, None)
        await world.rows(
            "INSERT INTO callback (account_id, callback_id, report) VALUES ($1, $2, '{}')",
            world.account_id,
            str(payment.id),
        )
    [waits] = await world.rows("SELECT min(next_at) AS at FROM delivery WHERE state = 'pending'")
    [came] = await world.rows("SELECT min(received_at) AS at FROM callback")
    facts = await _read(world)
    assert (facts.webhook_due_at, facts.callback_at) == (waits["at"], came["at"])
    await world.rows("UPDATE delivery SET next_at = clock() + interval '1 hour'")
    assert (await _read(world)).webhook_due_at is None, "it is not due"


async def test_a_cell_names_the_chain_that_needs_a_look_most(world: World) -> None:
    await world.rows("DELETE FROM chain_cursor")
    assert ((await _read(world)).chains, (await _read(world)).chain) == (0, None)
    slugs = [row["slug"] for row in await world.rows("SELECT slug FROM chain ORDER BY slug")]
    for slug, behind in zip(slugs, (3, 12, 7), strict=False):
        await world.rows(CURSORS, slug, behind, None)
    facts = await _read(world)
    assert (facts.chain, facts.chain_behind, facts.chain_watched) == (slugs[1], 12, True)
    await world.rows(CURSORS, slugs[0], 1, "a reorganisation")
    facts = await _read(world)
    assert (facts.chain, facts.chain_behind, facts.chain_halted) == (slugs[0], 1, True)
    assert facts.chains == 3


async def test_control_knows_how_many_merchants_are_in_each_cell(world: World) -> None:
    before = sum(place.merchants for place in await list_places(world.service.database))
    await world.other_merchant()
    places = await list_places(world.service.database)
    assert sum(place.merchants for place in places) > before
    assert [place.number for place in places] == world.service.cells.numbers()
