"""The feed of a merchant's events: ordered, without gaps, and identical to the webhooks."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest

from payintent.core import ids
from payintent.merchants.operations import SetCallbackUrl
from payintent.runtime.settings import Settings
from payintent.webhooks.feed_store import SCANNED_MAX, FeedCursor
from payintent.webhooks.routes import WAIT_MAX_S, write_feed_cursor
from tests.refunds.requests import paid
from tests.support.arrange import cancel, refusal
from tests.support.patience import PATIENCE_S
from tests.support.rows import write_payments
from tests.support.serving import serving_api
from tests.support.world import Answer, Api, World

DAY_S = 86_400
TIME = "2026-11-21T08:00:00.000Z"
PAYMENT = {
    "id": "pay_0351jQhC8yGkJ1uJxV6Qw5",
    "status": "CANCELLED",
    "currency": "THB",
    "amount": "1590.00",
    "payer_uid": "buyer-17",
    "cancelled_at": TIME,
    "metadata": {},
}


async def read(api: Api, query: str = "", key: str | None = None) -> Answer:
    return await api.send("GET", f"/v1/events{query}", headers=api.bearer(key))


async def replay(api: Api, event_id: object, key: str | None = None) -> Answer:
    return await api.send("POST", f"/v1/events/{event_id}/replay", headers=api.bearer(key))


async def end(api: Api) -> str:
    """Create and cancel a payment, which is an event; return the payment's id."""
    created = await api.create()
    assert (await cancel(api, created)).status == 200
    return created.json["id"]


async def write_events(world: World, count: int, id_begins: str = "ffffffff") -> None:
    """Write this many cancelled payments with events whose ids start with this prefix."""
    await write_payments(world, count, statuses=("CANCELLED",))
    await world.rows(
        """
        WITH written AS (
            INSERT INTO event (id, payment_id, merchant_id, type, body, occurred_at)
            SELECT overlay(gen_random_uuid()::text PLACING $2 FROM 1 FOR 8)::uuid, p.id,
                p.merchant_id, 'payment.cancelled', $3, p.cancelled_at
            FROM payment p
            WHERE p.merchant_id = $1 AND p.status = 'CANCELLED'
                AND NOT EXISTS (SELECT FROM event WHERE payment_id = p.id)
            RETURNING id, merchant_id
        )
        INSERT INTO delivery (event_id, merchant_id, state, next_at)
        SELECT id, merchant_id, 'delivered', clock()
        FROM written
        """,
        world.merchant_id,
        id_begins,
        json.dumps({"type": "payment.cancelled", "timestamp": TIME, "data": {"payment": PAYMENT}}),
    )


async def read_all(api: Api, query: str = "?limit=100") -> list[dict[str, Any]]:
    """Read a feed from its start to its end."""
    answer = (await read(api, query)).json
    found = list(answer["data"])
    while answer["has_more"]:
        answer = (await read(api, f"{query}&after={answer['after']}")).json
        found += answer["data"]
    return found


def payments_of(entries: list[dict[str, Any]]) -> list[str]:
    return [entry["event"]["data"]["payment"]["id"] for entry in entries]


async def test_the_feed_contains_events_byte_for_byte_as_sent(api: Api) -> None:
    await api.create(metadata={"spelled": 1.50, "by": "you"})
    created = await paid(api)
    answer = await read(api)
    [entry] = answer.json["data"]
    [row] = await api.world.rows("SELECT id, body FROM event")
    assert row["body"].encode() in answer.body
    assert UUID(entry["id"]) == row["id"], "the webhook-id of the same event"
    assert entry["event"]["type"] == "payment.completed"
    assert payments_of([entry]) == [created.json["id"]]
    assert answer.json["has_more"] is False


async def test_the_state_of_the_delivery_is_shown(api: Api) -> None:
    url = SetCallbackUrl(merchant_id=api.world.merchant_id, callback_url="http://127.0.0.1:9/hook")
    await end(api)
    await api.world.perform(url)
    await end(api)
    skipped, pending = [entry["delivery"] for entry in (await read(api)).json["data"]]
    assert skipped == {"state": "skipped", "attempts": 0}
    assert pending.pop("next_attempt_at").endswith("Z")
    assert pending == {"state": "pending", "attempts": 0}
    await api.world.rows(
        "UPDATE delivery SET state = 'delivered', attempts = 2, delivered_at = clock()"
    )
    delivered = (await read(api)).json["data"][1]["delivery"]
    assert delivered.pop("delivered_at").endswith("Z")
    assert delivered == {"state": "delivered", "attempts": 2}


async def test_a_reader_continues_at_its_cursor(api: Api) -> None:
    empty = (await read(api)).json
    assert (empty["data"], empty["has_more"]) == ([], False)
    made = [await end(api) for _ in range(5)]
    first = (await read(api, f"?limit=2&after={empty['after']}")).json
    assert (payments_of(first["data"]), first["has_more"]) == (made[:2], True)
    rest = (await read(api, f"?after={first['after']}")).json
    assert (payments_of(rest["data"]), rest["has_more"]) == (made[2:], False)
    nothing = (await read(api, f"?after={rest['after']}")).json
    assert nothing == {"data": [], "after": rest["after"], "has_more": False}
    made.append(await end(api))
    assert payments_of((await read(api, f"?after={rest['after']}")).json["data"]) == made[5:]
    assert payments_of((await read(api)).json["data"]) == made, "from the start again"


@asynccontextmanager
async def open_transaction(world: World) -> AsyncIterator[asyncpg.Connection]:
    """Keep another process's transaction open while the block runs, and then commit it."""
    connection = await world.open_connection()
    try:
        async with connection.transaction():
            yield connection
    finally:
        await connection.close()


async def take_away(world: World, payment_id: str) -> None:
    """Move a payment's event and delivery to another table, as if they were not yet committed."""
    for statement in (
        "CREATE TABLE late_event AS SELECT * FROM event WHERE payment_id = $1",
        "CREATE TABLE late_delivery AS SELECT d.* FROM delivery d JOIN late_event ON id = event_id",
        "DELETE FROM delivery d USING event e WHERE e.id = d.event_id AND e.payment_id = $1",
        "DELETE FROM event WHERE payment_id = $1",
    ):
        await world.rows(statement.replace("$1", f"'{ids.parse_id(ids.PAYMENT, payment_id)}'"))


async def test_an_event_that_is_committed_late_is_not_skipped(api: Api) -> None:
    """Its id is older than that of an event that was read before it was committed."""
    slow, fast = await end(api), await end(api)
    await take_away(api.world, slow)
    async with open_transaction(api.world) as connection:
        await connection.execute("INSERT INTO event SELECT * FROM late_event")
        await connection.execute("INSERT INTO delivery SELECT * FROM late_delivery")
        before = (await read(api)).json
        assert payments_of(before["data"]) == [fast], "the older event is not committed"
    after = (await read(api, f"?after={before['after']}")).json
    assert payments_of(after["data"]) == [slow], "an older id, and a later place"
    assert payments_of((await read(api)).json["data"]) == [fast, slow]


async def test_concurrent_readers_assign_positions_one_after_the_other(api: Api) -> None:
    """The second sees the first's numbers only because it reads them after getting the lock."""
    made = [await end(api)]
    first = await read(api)
    async with open_transaction(api.world) as connection:
        await connection.execute("SELECT 1 FROM event_feed FOR UPDATE")
        made.append(await end(api))
        query = f"?after={first.json['after']}"
        waiting = [asyncio.create_task(read(api, query)) for _ in range(4)]
        await _until_blocked(api.world, 4)
        made.append(await end(api))
    for answer in await asyncio.gather(*waiting):
        assert payments_of(answer.json["data"]) == made[1:]
    rows = await api.world.rows("SELECT feed_position FROM event ORDER BY feed_position")
    assert [row["feed_position"] for row in rows] == [1, 2, 3]
    [row] = await api.world.rows("SELECT last_position FROM event_feed")
    assert row["last_position"] == 3


async def _until_blocked(world: World, count: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        [row] = await world.rows(
            "SELECT count(*) AS n FROM pg_stat_activity"
            " WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        if row["n"] >= count:
            return
        await asyncio.sleep(0.01)
    raise AssertionError("nobody waits for the lock")


async def test_concurrent_readers_and_writers_cause_no_gaps_or_duplicates(api: Api) -> None:
    """Eight write while three read from their own cursors; each reader sees every event once."""
    done = asyncio.Event()

    async def reader() -> list[str]:
        cursor, seen = "", list[str]()
        while True:
            was_done = done.is_set()
            answer = (await read(api, f"?limit=3{cursor}")).json
            seen += payments_of(answer["data"])
            cursor = f"&after={answer['after']}"
            if was_done and not answer["has_more"] and not answer["data"]:
                return seen

    readers = [asyncio.create_task(reader()) for _ in range(3)]
    written = await asyncio.gather(*(end(api) for _ in range(8)))
    written += await asyncio.gather(*(end(api) for _ in range(8)))
    done.set()
    seen = await asyncio.gather(*readers)
    assert seen[0] == seen[1] == seen[2]
    assert sorted(seen[0]) == sorted(written)


async def test_more_events_than_one_numbering_batch_are_all_read(api: Api) -> None:
    await write_events(api.world, SCANNED_MAX + 30)
    entries = await read_all(api)
    assert len({entry["id"] for entry in entries}) == SCANNED_MAX + 30


async def test_events_can_be_filtered_by_type_and_the_cursor_skips_other_types(api: Api) -> None:
    cancelled = await end(api)
    completed = (await paid(api)).json["id"]
    only = (await read(api, "?types=payment.completed")).json
    assert payments_of(only["data"]) == [completed]
    both = (await read(api, "?types=payment.completed,payment.cancelled")).json
    assert payments_of(both["data"]) == [cancelled, completed]
    none = (await read(api, "?types=payment.failed")).json
    assert (none["data"], none["has_more"]) == ([], False)
    assert none["after"] == both["after"], "nothing is looked at twice"


async def test_a_full_batch_of_filtered_events_does_not_end_the_feed(api: Api) -> None:
    minutes_ago = (time.time_ns() // 1_000_000 >> 16) - 5
    await write_events(api.world, SCANNED_MAX + 1, id_begins=f"{minutes_ago:08x}")
    wanted = (await paid(api)).json["id"]
    assert len(await read_all(api)) == SCANNED_MAX + 2, "and all of them have their numbers now"
    entries = await read_all(api, "?types=payment.completed")
    assert payments_of(entries) == [wanted]


async def test_a_merchant_reads_only_its_own_events(api: Api) -> None:
    other = await api.world.add_merchant()
    mine = await end(api)
    assert (await read(api, key=other.api_key)).json["data"] == []
    answer = (await read(api)).json
    assert payments_of(answer["data"]) == [mine]
    refused = await read(api, f"?after={answer['after']}", key=other.api_key)
    assert refusal(refused) == (400, "BAD_REQUEST")


async def test_a_new_reader_gets_thirty_days_and_a_continuing_reader_gets_everything(
    api: Api,
) -> None:
    await write_events(api.world, 2, id_begins="00000000")
    empty = (await read(api)).json
    assert (empty["data"], empty["has_more"]) == ([], False), "older than what a first reader gets"
    recent = await end(api)
    assert payments_of((await read(api)).json["data"]) == [recent]
    await api.world.move_clock(31 * DAY_S)
    assert (await read(api)).json["data"] == [], "a new reader"
    assert payments_of((await read(api, f"?after={empty['after']}")).json["data"]) == [recent]


async def test_a_cursor_from_before_a_database_restore_is_refused(api: Api) -> None:
    """After a restore of the database, the numbers are assigned again to other events."""
    await end(api)
    answer = (await read(api)).json
    lost = FeedCursor(1, uuid4())
    for cursor in (write_feed_cursor(lost), write_feed_cursor(FeedCursor(7, uuid4()))):
        refused = await read(api, f"?after={cursor}")
        assert refusal(refused) == (400, "BAD_REQUEST")
        assert "restored" in refused.json["message"]
    assert (await read(api, f"?after={answer['after']}")).status == 200


@pytest.mark.parametrize(
    "query",
    [
        *("after=x", "after=", f"after={'A' * 33}", f"after=_{'_' * 31}", "types=", "types=refund"),
        *("types=payment.completed,", "wait=26", "wait=-1", "wait=1.5", "wait=", "wait=٣"),
        *("limit=0", "limit=101", "limit=x"),
    ],
)
async def test_invalid_query_parameters_are_refused(api: Api, query: str) -> None:
    assert refusal(await read(api, f"?{query}")) == (400, "BAD_REQUEST")


async def test_a_waiting_request_is_answered_when_an_event_occurs(api: Api) -> None:
    start = (await read(api)).json["after"]
    waiting = asyncio.create_task(read(api, f"?wait=25&after={start}"))
    await _until_subscribed(api)
    made = await end(api)
    assert payments_of((await waiting).json["data"]) == [made]


async def test_a_request_that_waits_for_one_type_ignores_other_types(api: Api) -> None:
    waiting = asyncio.create_task(read(api, "?wait=25&types=payment.completed"))
    await _until_subscribed(api)
    await end(api)
    made = (await paid(api)).json["id"]
    assert payments_of((await waiting).json["data"]) == [made]


async def test_a_wait_ends_after_the_requested_time(api: Api) -> None:
    answer = await read(api, "?wait=1")
    assert (answer.status, answer.json["data"], answer.json["has_more"]) == (200, [], False)


async def test_waiting_requests_hold_no_connection_and_are_limited(api: Api) -> None:
    """More requests wait than there are database connections, but others are still served."""
    held = api.world.service.settings.database_connections_max
    merchants = [await api.world.add_merchant(f"Shop {number}") for number in range(held // 4)]
    keys = [merchant.api_key for merchant in merchants for _ in range(5)]
    waiting = [asyncio.create_task(read(api, "?wait=25", key=key)) for key in keys]
    await _until_subscribed(api, len(keys))
    assert (await read(api)).status == 200
    refused = await read(api, "?wait=1", key=keys[0])
    assert refusal(refused) == (429, "RATE_LIMITED")
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    async with asyncio.timeout(WAIT_MAX_S / 2):  # who has gone is not waited for to the end
        await _until_subscribed(api, 0)


async def test_waiting_requests_do_not_count_against_the_request_limit(
    settings: Settings, world: World
) -> None:
    """With a limit of one pending request, four can still wait for an event."""
    narrow = settings.model_copy(update={"requests_max": 1, "request_wait_s": PATIENCE_S})
    async with serving_api(narrow, world) as narrow_api:
        waiting = [asyncio.create_task(read(narrow_api, "?wait=25")) for _ in range(4)]
        await _until_subscribed(narrow_api, 4)
        async with asyncio.timeout(WAIT_MAX_S / 2):
            made = await end(narrow_api)
        for answer in await asyncio.gather(*waiting):
            assert payments_of(answer.json["data"]) == [made]


async def _until_subscribed(api: Api, count: int = 1) -> None:
    """Wait until this many requests wait for an event."""
    deadline = time.monotonic() + PATIENCE_S
    while api.route_context.event_changes.count != count:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


async def test_an_event_can_be_replayed(api: Api) -> None:
    await end(api)
    [entry] = (await read(api)).json["data"]
    answer = await replay(api, entry["id"])
    assert (answer.status, answer.json) == (
        202,
        {"id": entry["id"], "delivery": {"state": "pending", "attempts": 0}},
    )
    [row] = await api.world.rows("SELECT who FROM audit WHERE action = 'webhooks.replay'")
    assert row["who"].startswith(f"merchant:{api.world.merchant_id}:")
    [again] = (await read(api)).json["data"]
    assert again["event"] == entry["event"], "in its place, and not as another event"


async def test_foreign_and_unknown_events_cannot_be_replayed(api: Api) -> None:
    other = await api.world.add_merchant()
    await end(api)
    [entry] = (await read(api)).json["data"]
    for event_id, key in ((entry["id"], other.api_key), (uuid4(), None), ("x", None)):
        assert refusal(await replay(api, event_id, key)) == (404, "NOT_FOUND")
    assert await api.world.rows("SELECT FROM delivery WHERE state = 'pending'") == []


async def test_after_an_outage_the_feed_returns_every_event_once(api: Api) -> None:
    """After an outage, a merchant's server continues reading, and recognises events by their id."""
    handled: dict[str, str] = {}
    cursor = ""
    for _ in range(3):
        for _ in range(4):
            await end(api)
        answer = (await read(api, f"?limit=3{cursor}")).json
        for entry in answer["data"]:
            assert entry["id"] not in handled
            handled[entry["id"]] = json.dumps(entry["event"])
        cursor = f"&after={answer['after']}"  # the server dies here, and comes back with it
    rest = (await read(api, f"?limit=100{cursor}")).json
    handled |= {entry["id"]: json.dumps(entry["event"]) for entry in rest["data"]}
    rows = await api.world.rows("SELECT id FROM event")
    assert set(handled) == {str(row["id"]) for row in rows}
