"""Missed events are made due again, in transactions of a limited size."""

import asyncio
import json

from payintent.merchants.operations import SetCallbackUrl
from payintent.operators.submit import count_changes
from payintent.webhooks.operations import BATCH, ReplayedEvents, ResendMissedEvents
from tests.support.rows import write_payments
from tests.support.world import ACTOR, World

COUNT = 2 * BATCH + 1


async def create_missed_events(world: World, count: int = COUNT) -> None:
    """Create this many undelivered events, half of them dead and half skipped."""
    await write_payments(world, count, statuses=("CANCELLED",))
    await world.rows(
        """
        WITH missed AS (
            INSERT INTO event (id, payment_id, merchant_id, type, body, occurred_at)
            SELECT gen_random_uuid(), p.id, p.merchant_id, 'payment.cancelled', '{}', p.cancelled_at
            FROM payment p
            WHERE p.merchant_id = $1 AND p.status = 'CANCELLED'
            RETURNING id, merchant_id
        )
        INSERT INTO delivery (event_id, merchant_id, state, attempts, next_at)
        SELECT id, merchant_id,
            CASE WHEN row_number() OVER () % 2 = 0 THEN 'dead' ELSE 'skipped' END, 13, clock()
        FROM missed
        """,
        world.merchant_id,
    )


async def states(world: World) -> dict[str, int]:
    rows = await world.rows("SELECT state, count(*) AS n FROM delivery GROUP BY state")
    return {row["state"]: row["n"] for row in rows}


async def test_no_transaction_makes_more_than_a_thousand_events_due(world: World) -> None:
    await create_missed_events(world)
    replayed = await world.perform(ResendMissedEvents(merchant_id=world.merchant_id))
    rows = await world.rows("SELECT event_id FROM delivery ORDER BY event_id")
    event_ids = [row["event_id"] for row in rows]
    assert replayed == ReplayedEvents(
        events=COUNT, first_event_id=event_ids[0], last_event_id=event_ids[-1]
    )
    assert await states(world) == {"pending": COUNT}
    together = await world.rows("SELECT count(*) AS n FROM delivery GROUP BY xmin::text ORDER BY n")
    assert [row["n"] for row in together] == [1, BATCH, BATCH]
    lines = await world.rows(
        "SELECT merchant_id, details::text AS details FROM audit "
        "WHERE action = 'webhooks.replay-missed' ORDER BY id"
    )
    assert {line["merchant_id"] for line in lines} == {world.merchant_id}
    assert [json.loads(line["details"]).get("after") for line in lines] == [
        *(None, str(event_ids[BATCH - 1]), str(event_ids[2 * BATCH - 1])),
    ]
    assert [json.loads(line["details"])["events"] for line in lines] == [BATCH, BATCH, 1]
    second_replay = await world.perform(ResendMissedEvents(merchant_id=world.merchant_id))
    assert second_replay == ReplayedEvents(events=0, first_event_id=None, last_event_id=None)


async def test_a_dry_run_counts_events_and_merchants_without_replaying(world: World) -> None:
    await create_missed_events(world, 5)
    [row] = await world.rows(
        "SELECT min(occurred_at) AS oldest, max(occurred_at) AS newest FROM event"
    )
    missed = ResendMissedEvents(merchant_id=world.merchant_id)
    foreseen = await count_changes(world.service.operation_context, missed, ACTOR)
    counts = {"events": 5, "merchants": 1, **row}
    assert foreseen == {"dry_run": True, "action": missed.action, **counts}
    assert "pending" not in await states(world)


async def test_concurrent_replays_replay_each_event_once(world: World) -> None:
    await create_missed_events(world)
    replay = ResendMissedEvents(merchant_id=world.merchant_id)
    first, second = await asyncio.gather(world.perform(replay), world.perform(replay))
    assert first.events + second.events == COUNT
    assert await states(world) == {"pending": COUNT}


async def test_an_event_that_is_missed_again_during_the_replay_is_replayed_only_once(
    world: World,
) -> None:
    """If a merchant has no callback URL, every event is skipped when it becomes due."""
    await create_missed_events(world)
    await world.perform(SetCallbackUrl(merchant_id=world.merchant_id))
    await world.rows(
        """
        CREATE FUNCTION skip() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            NEW.state := 'skipped';
            RETURN NEW;
        END
        $$
        """
    )
    await world.rows(
        "CREATE TRIGGER skip BEFORE UPDATE ON delivery FOR EACH ROW EXECUTE FUNCTION skip()"
    )
    replayed = await world.perform(ResendMissedEvents(merchant_id=world.merchant_id))
    assert replayed.events == COUNT
