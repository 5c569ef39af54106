"""The event feed is ordered, has no gaps, and has the same content as the webhooks."""

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
from tests.refunds.requests import create_paid
from tests.support.arrange import cancel, refusal
from tests.support.rows import write_payments
from tests.support.running_service import serving_api
from tests.support.timeouts import PATIENCE_S
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


async def cancel_payment(api: Api) -> str:
    """Create and cancel a payment, so that an event occurs; return the payment's id."""
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
    entries = list(answer["data"])
    while answer["has_more"]:
        answer = (await read(api, f"{query}&after={answer['after']}")).json
        entries += answer["data"]
    return entries


def payments_of(entries: list[dict[str, Any]]) -> list[str]:
    return [entry["event"]["data"]["payment"]["id"] for entry in entries]


async def test_the_feed_contains_events_byte_for_byte_as_sent(api: Api) -> None:
    await api.create(metadata={"spelled": 1.50, "by": "you"})
    created = await create_paid(api)
    answer = await read(api)
    [entry] = answer.json["data"]
    [row] = await api.world.rows("SELECT id, body FROM event")
    assert row["body"].encode() in answer.body
    assert UUID(entry["id"]) == row["id"], "it equals the webhook-id"
    assert entry["event"]["type"] == "payment.completed"
    assert payments_of([entry]) == [created.json["id"]]
    assert answer.json["has_more"] is False


async def test_the_state_of_the_delivery_is_shown(api: Api) -> None:
    url = SetCallbackUrl(merchant_id=api.world.merchant_id, callback_url="http://127.0.0.1:9/hook")
    await cancel_payment(api)
    await api.world.perform(url)
    await cancel_payment(api)
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
    payment_ids = [await cancel_payment(api) for _ in range(5)]
    first = (await read(api, f"?limit=2&after={empty['after']}")).json
    assert (payments_of(first["data"]), first["has_more"]) == (payment_ids[:2], True)
    second = (await read(api, f"?after={first['after']}")).json
    assert (payments_of(second["data"]), second["has_more"]) == (payment_ids[2:], False)
    third = (await read(api, f"?after={second['after']}")).json
    assert third == {"data": [], "after": second["after"], "has_more": False}
    payment_ids.append(await cancel_payment(api))
    assert (
        payments_of((await read(api, f"?after={second['after']}")).json["data"]) == payment_ids[5:]
    )
    assert payments_of((await read(api)).json["data"]) == payment_ids, (
        "the feed can be read again from the start"
    )


@asynccontextmanager
async def open_transaction(world: World) -> AsyncIterator[asyncpg.Connection]:
    """Keep a transaction open while the block runs; commit it when the block ends."""
    connection = await world.open_connection()
    try:
        async with connection.transaction():
            yield connection
    finally:
        await connection.close()


async def hide_event(world: World, payment_id: str) -> None:
    """Move a payment's event and delivery to another table, as if they were not yet committed."""
    for statement in (
        "CREATE TABLE late_event AS SELECT * FROM event WHERE payment_id = $1",
        "CREATE TABLE late_delivery AS SELECT d.* FROM delivery d JOIN late_event ON id = event_id",
        "DELETE FROM delivery d USING event e WHERE e.id = d.event_id AND e.payment_id = $1",
        "DELETE FROM event WHERE payment_id = $1",
    ):
        await world.rows(statement.replace("$1", f"'{ids.parse_id(ids.PAYMENT, payment_id)}'"))


async def test_an_event_that_is_committed_late_is_not_skipped(api: Api) -> None:
    """When the event is committed, the reader has already read an event with a newer id."""
    slow, fast = await cancel_payment(api), await cancel_payment(api)
    await hide_event(api.world, slow)
    async with open_transaction(api.world) as connection:
        await connection.execute("INSERT INTO event SELECT * FROM late_event")
        await connection.execute("INSERT INTO delivery SELECT * FROM late_delivery")
        before = (await read(api)).json
        assert payments_of(before["data"]) == [fast], "the older event is not committed"
    after = (await read(api, f"?after={before['after']}")).json
    assert payments_of(after["data"]) == [slow], "it has an older id but a later position"
    assert payments_of((await read(api)).json["data"]) == [fast, slow]


async def test_concurrent_readers_assign_positions_one_after_the_other(api: Api) -> None:
    """A reader sees the positions of the previous reader only if it reads them under the lock."""
    payment_ids = [await cancel_payment(api)]
    first = await read(api)
    async with open_transaction(api.world) as connection:
        await connection.execute("SELECT 1 FROM event_feed FOR UPDATE")
        payment_ids.append(await cancel_payment(api))
        query = f"?after={first.json['after']}"
        tasks = [asyncio.create_task(read(api, query)) for _ in range(4)]
        await _until_blocked(api.world, 4)
        payment_ids.append(await cancel_payment(api))
    for answer in await asyncio.gather(*tasks):
        assert payments_of(answer.json["data"]) == payment_ids[1:]
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
    raise AssertionError("no connection waits for the lock")


async def test_concurrent_readers_and_writers_cause_no_gaps_or_duplicates(api: Api) -> None:
    """When three readers follow eight writers, each reader sees every event once."""
    writers_done = asyncio.Event()

    async def reader() -> list[str]:
        cursor, read_ids = "", list[str]()
        while True:
            was_done = writers_done.is_set()
            answer = (await read(api, f"?limit=3{cursor}")).json
            read_ids += payments_of(answer["data"])
            cursor = f"&after={answer['after']}"
            if was_done and not answer["has_more"] and not answer["data"]:
                return read_ids

    readers = [asyncio.create_task(reader()) for _ in range(3)]
    written_ids = await asyncio.gather(*(cancel_payment(api) for _ in range(8)))
    written_ids += await asyncio.gather(*(cancel_payment(api) for _ in range(8)))
    writers_done.set()
    read_ids = await asyncio.gather(*readers)
    assert read_ids[0] == read_ids[1] == read_ids[2]
    assert sorted(read_ids[0]) == sorted(written_ids)


async def test_more_events_than_one_numbering_batch_are_all_read(api: Api) -> None:
    await write_events(api.world, SCANNED_MAX + 30)
    entries = await read_all(api)
    assert len({entry["id"] for entry in entries}) == SCANNED_MAX + 30


async def test_events_can_be_filtered_by_type_and_the_cursor_skips_other_types(api: Api) -> None:
    cancelled = await cancel_payment(api)
    completed = (await create_paid(api)).json["id"]
    only = (await read(api, "?types=payment.completed")).json
    assert payments_of(only["data"]) == [completed]
    both = (await read(api, "?types=payment.completed,payment.cancelled")).json
    assert payments_of(both["data"]) == [cancelled, completed]
    failed_events = (await read(api, "?types=payment.failed")).json
    assert (failed_events["data"], failed_events["has_more"]) == ([], False)
    assert failed_events["after"] == both["after"], "skipped events are not read again"


async def test_a_full_batch_of_filtered_events_does_not_end_the_feed(api: Api) -> None:
    minutes_ago = (time.time_ns() // 1_000_000 >> 16) - 5
    await write_events(api.world, SCANNED_MAX + 1, id_begins=f"{minutes_ago:08x}")
    expected = (await create_paid(api)).json["id"]
    assert len(await read_all(api)) == SCANNED_MAX + 2, "this read assigns all positions"
    entries = await read_all(api, "?types=payment.completed")
    assert payments_of(entries) == [expected]


async def test_a_merchant_reads_only_its_own_events(api: Api) -> None:
    other_merchant = await api.world.add_merchant()
    payment_id = await cancel_payment(api)
    assert (await read(api, key=other_merchant.api_key)).json["data"] == []
    answer = (await read(api)).json
    assert payments_of(answer["data"]) == [payment_id]
    refused_answer = await read(api, f"?after={answer['after']}", key=other_merchant.api_key)
    assert refusal(refused_answer) == (400, "BAD_REQUEST")


async def test_a_new_reader_gets_thirty_days_and_a_continuing_reader_gets_everything(
    api: Api,
) -> None:
    await write_events(api.world, 2, id_begins="00000000")
    empty = (await read(api)).json
    assert (empty["data"], empty["has_more"]) == ([], False), "older than thirty days"
    recent = await cancel_payment(api)
    assert payments_of((await read(api)).json["data"]) == [recent]
    await api.world.move_clock(31 * DAY_S)
    assert (await read(api)).json["data"] == [], "older than thirty days for a new reader"
    assert payments_of((await read(api, f"?after={empty['after']}")).json["data"]) == [recent]


async def test_a_cursor_from_before_a_database_restore_is_refused(api: Api) -> None:
    """When the database is restored from a backup, new events get the same positions again."""
    await cancel_payment(api)
    answer = (await read(api)).json
    lost = FeedCursor(1, uuid4())
    for cursor in (write_feed_cursor(lost), write_feed_cursor(FeedCursor(7, uuid4()))):
        refused_answer = await read(api, f"?after={cursor}")
        assert refusal(refused_answer) == (400, "BAD_REQUEST")
        assert "restored" in refused_answer.json["message"]
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
    task = asyncio.create_task(read(api, f"?wait=25&after={start}"))
    await _until_subscribed(api)
    payment_id = await cancel_payment(api)
    assert payments_of((await task).json["data"]) == [payment_id]


async def test_a_request_that_waits_for_one_type_ignores_other_types(api: Api) -> None:
    task = asyncio.create_task(read(api, "?wait=25&types=payment.completed"))
    await _until_subscribed(api)
    await cancel_payment(api)
    payment_id = (await create_paid(api)).json["id"]
    assert payments_of((await task).json["data"]) == [payment_id]


async def test_a_wait_ends_early_if_more_events_of_other_types_than_one_scan_occur(
    api: Api,
) -> None:
    start = (await read(api)).json["after"]
    started_at = time.monotonic()
    task = asyncio.create_task(read(api, f"?wait=25&types=payment.completed&after={start}"))
    await _until_subscribed(api)
    await write_events(api.world, SCANNED_MAX + 1)
    page = (await task).json
    assert (page["data"], page["has_more"]) == ([], True)
    assert page["after"] != start
    assert time.monotonic() - started_at < WAIT_MAX_S - 5


async def test_a_wait_ends_after_the_requested_time(api: Api) -> None:
    answer = await read(api, "?wait=1")
    assert (answer.status, answer.json["data"], answer.json["has_more"]) == (200, [], False)


async def test_waiting_requests_hold_no_connection_and_are_limited(api: Api) -> None:
    """Further requests are served even if more requests wait than there are connections."""
    connections_max = api.world.service.settings.database_connections_max
    merchants = [
        await api.world.add_merchant(f"Shop {number}") for number in range(connections_max // 4)
    ]
    keys = [merchant.api_key for merchant in merchants for _ in range(5)]
    tasks = [asyncio.create_task(read(api, "?wait=25", key=key)) for key in keys]
    await _until_subscribed(api, len(keys))
    assert (await read(api)).status == 200
    refused_answer = await read(api, "?wait=1", key=keys[0])
    assert refusal(refused_answer) == (429, "RATE_LIMITED")
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    async with asyncio.timeout(WAIT_MAX_S / 2):  # when a client disconnects, its wait ends
        await _until_subscribed(api, 0)


async def test_waiting_requests_do_not_count_against_the_request_limit(
    settings: Settings, world: World
) -> None:
    """Four requests can wait for an event even if the limit is a single request."""
    narrow = settings.model_copy(update={"requests_max": 1, "request_wait_s": PATIENCE_S})
    async with serving_api(narrow, world) as narrow_api:
        tasks = [asyncio.create_task(read(narrow_api, "?wait=25")) for _ in range(4)]
        await _until_subscribed(narrow_api, 4)
        async with asyncio.timeout(WAIT_MAX_S / 2):
            payment_id = await cancel_payment(narrow_api)
        for answer in await asyncio.gather(*tasks):
            assert payments_of(answer.json["data"]) == [payment_id]


async def _until_subscribed(api: Api, count: int = 1) -> None:
    """Wait until this many requests wait for an event."""
    deadline = time.monotonic() + PATIENCE_S
    while api.route_context.event_changes.count != count:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


async def test_an_event_can_be_replayed(api: Api) -> None:
    await cancel_payment(api)
    [entry] = (await read(api)).json["data"]
    answer = await replay(api, entry["id"])
    assert (answer.status, answer.json) == (
        202,
        {"id": entry["id"], "delivery": {"state": "pending", "attempts": 0}},
    )
    [row] = await api.world.rows("SELECT who FROM audit WHERE action = 'webhooks.replay'")
    assert row["who"].startswith(f"merchant:{api.world.merchant_id}:")
    [entry_after] = (await read(api)).json["data"]
    assert entry_after["event"] == entry["event"], "the same event at the same position"


async def test_unknown_events_and_events_of_another_merchant_cannot_be_replayed(api: Api) -> None:
    other_merchant = await api.world.add_merchant()
    await cancel_payment(api)
    [entry] = (await read(api)).json["data"]
    for event_id, key in ((entry["id"], other_merchant.api_key), (uuid4(), None), ("x", None)):
        assert refusal(await replay(api, event_id, key)) == (404, "NOT_FOUND")
    assert await api.world.rows("SELECT FROM delivery WHERE state = 'pending'") == []


async def test_after_an_outage_the_feed_returns_every_event_once(api: Api) -> None:
    """When an outage ends, a merchant's server continues to read, and compares event ids."""
    handled: dict[str, str] = {}
    cursor = ""
    for _ in range(3):
        for _ in range(4):
            await cancel_payment(api)
        answer = (await read(api, f"?limit=3{cursor}")).json
        for entry in answer["data"]:
            assert entry["id"] not in handled
            handled[entry["id"]] = json.dumps(entry["event"])
        cursor = f"&after={answer['after']}"  # the server restarts with this cursor
    last_page = (await read(api, f"?limit=100{cursor}")).json
    handled |= {entry["id"]: json.dumps(entry["event"]) for entry in last_page["data"]}
    rows = await api.world.rows("SELECT id FROM event")
    assert set(handled) == {str(row["id"]) for row in rows}
