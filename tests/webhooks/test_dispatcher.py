"""The dispatcher with the real outbox in PostgreSQL and real receivers."""

import asyncio
import json
import os
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from standardwebhooks import Webhook

from payintent.core.errors import StorageUnavailableError
from payintent.merchants.callback_secrets import ListCallbackSecrets, RotateCallbackSecret
from payintent.merchants.operations import SetCallbackUrl
from payintent.payments.cancel import cancel_by_merchant
from payintent.payments.model import Payment
from payintent.runtime.settings import Settings
from payintent.webhooks.dispatcher import DatabaseOutbox, Dispatcher, to_record
from payintent.webhooks.model import AttemptOutcome, AttemptResult
from payintent.webhooks.operations import ResendMissedEvents
from payintent.webhooks.outbox_store import AttemptRecord
from payintent.webhooks.retry_schedule import ATTEMPTS_MAX, WAITS_S
from payintent.webhooks.sender import WebhookSender
from payintent.webhooks.windows import OPEN_AFTER_FAILURES, OPEN_S, WINDOW_MAX, EndpointWindows
from tests.support import processes
from tests.support.http_server import clean_up
from tests.support.rows import write_payments
from tests.support.timeouts import PATIENCE_S
from tests.support.world import World

pytestmark = pytest.mark.slow

POLL_S = 0.02
DAY_S = 24 * 3600
_OUTAGES = "SELECT until - since AS lasts, trips, detail FROM endpoint_outage"
#: Add $1 merchants, each with a delivery that has been due for an hour.
_DEAD_MERCHANTS = """
WITH shop AS (
    INSERT INTO merchant (name, callback_url)
    SELECT 'dead ' || n, 'https://dead.example/hook'
    FROM generate_series(1, $1::int) AS n
    RETURNING id
), told AS (
    INSERT INTO event (id, payment_id, merchant_id, type, body, occurred_at)
    SELECT gen_random_uuid(), p.id, s.id, 'payment.cancelled', '{}', clock()
    FROM (SELECT id, row_number() OVER () AS n FROM shop) s
    JOIN (SELECT id, row_number() OVER () AS n FROM payment WHERE status = 'PENDING') p USING (n)
    RETURNING id, merchant_id
)
INSERT INTO delivery (event_id, merchant_id, state, next_at)
SELECT id, merchant_id, 'pending', clock() - interval '1 hour'
FROM told
"""

Answering = Callable[[], Awaitable[int]]


async def accept() -> int:
    return 200


async def fail() -> int:
    return 500


@dataclass
class Shop:
    """A receiver that counts its concurrent requests."""

    answer: Answering = accept
    secrets: list[str] = field(default_factory=list)
    received: list[tuple[str, bytes, dict[str, str]]] = field(default_factory=list)
    in_flight: Counter[str] = field(default_factory=Counter)  # requests in flight, by webhook-id
    concurrent_max: int = 0
    concurrent_max_by_event: int = 0
    url: str = ""

    @property
    def ids(self) -> list[str]:
        return [webhook_id for webhook_id, _, _ in self.received]

    async def receive(self, request: web.Request) -> web.Response:
        body = await request.read()
        headers = {name.lower(): value for name, value in request.headers.items()}
        for secret in self.secrets:
            Webhook(secret).verify(body, headers)
        name = headers["webhook-id"]
        self.received.append((name, body, headers))
        self.in_flight[name] += 1
        self.concurrent_max = max(self.concurrent_max, self.in_flight.total())
        self.concurrent_max_by_event = max(self.concurrent_max_by_event, self.in_flight[name])
        try:
            return web.Response(status=await self.answer())
        finally:
            self.in_flight[name] -= 1


@asynccontextmanager
async def serve_shop(shop: Shop) -> AsyncIterator[Shop]:
    app = web.Application()
    app.router.add_post("/hook", shop.receive)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    shop.url = f"http://127.0.0.1:{runner.addresses[0][1]}/hook"
    try:
        yield shop
    finally:
        await clean_up(runner)


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"database_lock_timeout_ms": 200})


@pytest.fixture
async def shop(world: World) -> AsyncIterator[Shop]:
    """The world's merchant, with a webhook URL."""
    async with serve_shop(Shop(secrets=[world.callback_secret])) as shop:
        await world.perform(SetCallbackUrl(merchant_id=world.merchant_id, callback_url=shop.url))
        yield shop


@dataclass
class Time:
    """The monotonic clock of a dispatcher's windows, which the test advances."""

    moved_s: float = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.moved_s


def outbox_of(world: World) -> DatabaseOutbox:
    service = world.service
    return DatabaseOutbox(
        database=world.database,
        encryption=service.encryption,
        lease_s=service.settings.webhook_lease_s,
    )


@asynccontextmanager
async def run_dispatcher(
    world: World,
    clock: Callable[[], float] = time.monotonic,
    *,
    poll_s: float = POLL_S,
    chance: float = 0.5,
    windows: EndpointWindows | None = None,
) -> AsyncIterator[Dispatcher]:
    """Run a dispatcher like a worker; `chance` determines the jitter."""
    settings = world.service.settings
    sender = WebhookSender(settings, time.time)
    windows = windows or EndpointWindows(settings.webhook_sockets_max, clock)
    dispatcher = Dispatcher(outbox_of(world), sender, windows, poll_s, lambda: chance)
    stop = asyncio.Event()
    running = asyncio.create_task(dispatcher.run(stop))
    try:
        yield dispatcher
    finally:
        stop.set()
        dispatcher.wake()
        await running
        await sender.close()


async def create_events(world: World, count: int = 1, **changes: Any) -> list[Payment]:
    """Cancel payments, which is the fastest way to create events."""
    payments = [await world.create(**changes) for _ in range(count)]
    for payment in payments:
        async with world.database.transaction() as tx:
            await cancel_by_merchant(tx, payment, None)
    return payments


async def poll_until(condition: Callable[[], Any], description: str) -> Any:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        result = condition()
        if asyncio.iscoroutine(result):
            result = await result
        if result:
            return result
        assert time.monotonic() < deadline, f"not in time: {description}"
        await asyncio.sleep(0.01)


async def states(world: World) -> Counter[str]:
    rows = await world.rows("SELECT state FROM delivery")
    return Counter(row["state"] for row in rows)


async def wait_for_states(world: World, **expected: int) -> None:
    """Wait until the deliveries are in these states."""

    async def have_expected_states() -> bool:
        return await states(world) == Counter(expected)

    await poll_until(have_expected_states, f"deliveries are {expected}")


async def attempts(world: World, count: int) -> list[Any]:
    """Wait until exactly this many attempts are stored."""

    async def read_attempts() -> list[Any] | None:
        rows = await world.rows("SELECT * FROM attempt ORDER BY id")
        assert len(rows) <= count
        return rows if len(rows) == count else None

    return await poll_until(read_attempts, f"{count} attempts")


async def test_an_event_is_delivered_once_and_its_attempt_is_recorded(
    world: World, shop: Shop
) -> None:
    await create_events(world)
    async with run_dispatcher(world):
        await wait_for_states(world, delivered=1)
        [attempt] = await attempts(world, 1)
        [row] = await world.rows("SELECT * FROM event")
        [(webhook_id, body, _)] = shop.received
    assert (webhook_id, body) == (str(row["id"]), row["body"].encode())
    assert (attempt["number"], attempt["outcome"], attempt["status"]) == (1, "delivered", 200)
    assert json.loads(body)["type"] == "payment.cancelled"


async def test_a_notification_triggers_delivery_before_the_next_poll(
    world: World, shop: Shop
) -> None:
    async with run_dispatcher(world, poll_s=3600) as dispatcher:
        await create_events(world)
        dispatcher.wake()
        await wait_for_states(world, delivered=1)
        await create_events(world)
        dispatcher.wake()
        await wait_for_states(world, delivered=2)


async def test_a_410_response_ends_only_its_own_event(world: World, shop: Shop) -> None:
    async def respond_gone() -> int:
        return 410

    shop.answer = respond_gone
    async with run_dispatcher(world):
        await create_events(world)
        await wait_for_states(world, dead=1)
        shop.answer = accept
        await create_events(world)
        await wait_for_states(world, dead=1, delivered=1)
        await world.perform(ResendMissedEvents(merchant_id=world.merchant_id))
        await wait_for_states(world, delivered=2)


async def test_a_secret_that_cannot_be_decrypted_delays_only_its_own_merchant(
    world: World, shop: Shop
) -> None:
    async with serve_shop(Shop()) as other_shop:
        new = await world.add_merchant("Harbour Tea", callback_url=other_shop.url)
        other_shop.secrets.append(new.callback_secret)
        await world.rows(
            "UPDATE callback_secret SET sealed = set_byte(sealed, octet_length(sealed) - 1, "
            "get_byte(sealed, octet_length(sealed) - 1) # 1) WHERE merchant_id = $1",
            world.merchant_id,
        )
        await create_events(world)
        await create_events(world, merchant_id=new.merchant.id)
        async with run_dispatcher(world):
            await wait_for_states(world, pending=1, delivered=1)
        assert len(other_shop.received) == 1
    [row] = await world.rows("SELECT attempts FROM delivery WHERE state = 'pending'")
    assert (row["attempts"], shop.received) == (0, [])


async def test_a_delivery_of_a_killed_worker_is_resent_when_its_lease_expires(
    world: World, shop: Shop, tmp_path: Path
) -> None:
    release = asyncio.Event()

    async def hold() -> int:
        await release.wait()
        return 200

    shop.answer = hold
    await create_events(world)
    with (tmp_path / "worker.log").open("wb") as log:
        worker = processes.start(
            *("payintent", "worker", "--processes", "1"),
            env=os.environ | environment(world),
            output=log,
        )
    try:
        await poll_until(lambda: shop.received, "the worker's attempt")
    finally:
        worker.send_signal(signal.SIGKILL)
        worker.wait()
    release.set()
    shop.answer = accept
    async with run_dispatcher(world):
        new_payments = await create_events(world)
        await wait_for_states(world, pending=1, delivered=1)  # the lease is respected
        assert len(shop.ids) == 2
        await world.move_clock(world.service.settings.webhook_lease_s + 1)
        await wait_for_states(world, delivered=2)
    assert len(new_payments) == 1
    assert Counter(shop.ids)[shop.ids[0]] == 2
    assert len({body for webhook_id, body, _ in shop.received if webhook_id == shop.ids[0]}) == 1


def environment(world: World) -> dict[str, str]:
    settings = world.service.settings
    return {
        "DATABASE_URL": settings.database_url,
        "PAYINTENT_PEPPER": settings.pepper.get_secret_value(),
        "PAYINTENT_KEYRING": settings.keyring.get_secret_value(),
        "PAYINTENT_SANDBOX": "true",
    }


async def test_a_locked_delivery_loses_only_its_own_attempt_record(
    world: World, shop: Shop
) -> None:
    gate = asyncio.Event()

    async def hold() -> int:
        await gate.wait()
        return 200

    shop.answer = hold
    await create_events(world)
    locking_connection = await world.open_connection()
    async with run_dispatcher(world):
        await poll_until(lambda: shop.received, "the attempt")
        async with locking_connection.transaction():
            await locking_connection.execute("SELECT FROM delivery FOR UPDATE")
            gate.set()
            await poll_until(lambda: count_waiting(world), "the update waits for the lock")
            await poll_until(lambda: is_not_waiting(world), "the update times out")
        await create_events(world)
        await wait_for_states(world, pending=1, delivered=1)
        await world.move_clock(world.service.settings.webhook_lease_s + 1)
        await wait_for_states(world, delivered=2)
    await locking_connection.close()
    assert Counter(shop.ids).most_common(1) == [(shop.ids[0], 2)]


async def claim_results(world: World, count: int) -> list[AttemptRecord]:
    """Claim deliveries of the world's merchant, and return successful attempts to store."""
    deliveries = await outbox_of(world).claim([(world.merchant_id, count)])
    assert len(deliveries) == count
    return [
        to_record(
            world.id_generator.new_id(),
            delivery,
            AttemptResult(outcome=AttemptOutcome.DELIVERED, status=200, duration_ms=1),
            next_wait_s=None,
        )
        for delivery in deliveries
    ]


def make_idle_dispatcher(world: World, outbox: DatabaseOutbox) -> Dispatcher:
    """Create a dispatcher without running it."""
    settings = world.service.settings
    windows = EndpointWindows(settings.webhook_sockets_max, time.monotonic)
    return Dispatcher(outbox, WebhookSender(settings, time.time), windows, POLL_S)


async def test_only_the_invalid_record_of_a_batch_is_lost(world: World, shop: Shop) -> None:
    assert shop.url
    await create_events(world, 4)
    results = await claim_results(world, 4)
    results[1] = replace(results[1], detail="\0")  # PostgreSQL does not accept this text
    await make_idle_dispatcher(world, outbox_of(world))._record(results)
    assert await states(world) == {"delivered": 3, "pending": 1}
    assert len(await attempts(world, 3)) == 3


async def test_a_locked_delivery_does_not_affect_other_records_of_its_batch(
    world: World, shop: Shop
) -> None:
    assert shop.url
    await create_events(world, 4)
    results = await claim_results(world, 4)
    locking_connection = await world.open_connection()
    async with locking_connection.transaction():
        await locking_connection.execute(
            "SELECT FROM delivery WHERE event_id = $1 FOR UPDATE", results[2].event_id
        )
        await make_idle_dispatcher(world, outbox_of(world))._record(results)
    await locking_connection.close()
    assert await states(world) == {"delivered": 3, "pending": 1}


async def test_records_are_not_stored_again_if_the_result_of_the_commit_is_unknown(
    world: World, shop: Shop
) -> None:
    assert shop.url
    await create_events(world, 3)
    results = await claim_results(world, 3)

    class Unanswered(DatabaseOutbox):
        """A store that commits its writes but loses the response."""

        async def record(self, attempts: Sequence[AttemptRecord]) -> None:
            await super().record(attempts)
            raise StorageUnavailableError("the answer was lost")

    outbox = outbox_of(world)
    unanswered = Unanswered(
        database=outbox.database,
        encryption=outbox.encryption,
        lease_s=outbox.lease_s,
    )
    await make_idle_dispatcher(world, unanswered)._record(results)
    assert await states(world) == {"delivered": 3}
    assert len(await attempts(world, 3)) == 3


async def count_waiting(world: World) -> int:
    """Count the connections that wait for a lock in this test's database.

    `pg_stat_activity` is not used, because it shows no wait when a waiter wakes up briefly.
    """
    [row] = await world.rows(
        "SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid) "
        "WHERE NOT l.granted AND a.datname = current_database()"
    )
    return row["count"]


async def is_not_waiting(world: World) -> bool:
    return await count_waiting(world) == 0


async def test_concurrent_dispatchers_never_send_the_same_event(world: World, shop: Shop) -> None:
    async def linger() -> int:
        await asyncio.sleep(0.005)
        return 200

    shop.answer = linger
    async with run_dispatcher(world), run_dispatcher(world), run_dispatcher(world):
        await create_events(world, 60)
        await wait_for_states(world, delivered=60)
    assert len(shop.ids) == len(set(shop.ids)) == 60
    assert shop.concurrent_max_by_event == 1


async def test_an_endpoint_gets_two_concurrent_requests_at_first_and_at_most_sixteen(
    world: World, shop: Shop
) -> None:
    gate = asyncio.Event()

    async def hold() -> int:
        await gate.wait()
        await asyncio.sleep(0.02)
        return 200

    shop.answer = hold
    await create_events(world, 60)
    async with run_dispatcher(world):
        await poll_until(lambda: shop.in_flight.total() == 2, "the first window")
        async with serve_shop(Shop()) as other_shop:
            # When this event is delivered, the loop has completed a round without a third request.
            await deliver_to_other_merchant(world, other_shop)
        assert shop.concurrent_max == 2
        gate.set()
        await wait_for_states(world, delivered=61)
    assert 2 < shop.concurrent_max <= WINDOW_MAX


async def deliver_to_other_merchant(world: World, other_shop: Shop) -> None:
    """Deliver an event to another merchant."""
    before = len(other_shop.received)
    new = await world.add_merchant(callback_url=other_shop.url)
    payment = await world.create(merchant_id=new.merchant.id)
    async with world.database.transaction() as tx:
        await cancel_by_merchant(tx, payment, None)
    await poll_until(lambda: len(other_shop.received) > before, "the other merchant's event")


async def test_an_open_circuit_prevents_attempts_and_recovery_releases_pending_events(
    world: World, shop: Shop
) -> None:
    shop.answer = fail
    event_count = OPEN_AFTER_FAILURES + 3
    clock = Time()
    async with run_dispatcher(world, clock, chance=0.999), serve_shop(Shop()) as other_shop:
        await create_events(world, event_count)
        await poll_until(lambda: len(shop.received) >= OPEN_AFTER_FAILURES, "the failures")
        [outage] = await poll_until(lambda: world.rows(_OUTAGES), "the outage is stored")
        assert (outage["lasts"], outage["trips"]) == (timedelta(seconds=OPEN_S), 1)
        assert outage["detail"].startswith("http_error")
        await deliver_to_other_merchant(
            world, other_shop
        )  # the dispatcher has completed a round when this is delivered
        attempt_count = len(shop.received)
        assert attempt_count < event_count
        await deliver_to_other_merchant(world, other_shop)
        assert len(shop.received) == attempt_count, "deliveries are due, but the circuit is open"
        shop.answer = accept
        began = time.monotonic()
        clock.moved_s = OPEN_S + 1
        await wait_for_states(world, delivered=event_count + 2)
        assert time.monotonic() - began < WAITS_S[1] / 2, (
            "failed deliveries are retried immediately"
        )
    assert await world.rows(_OUTAGES) == []
    assert len(set(shop.ids)) == event_count
    assert len(shop.ids) == event_count + attempt_count


async def test_a_corrected_callback_url_receives_all_pending_events_immediately(
    world: World, shop: Shop
) -> None:
    shop.answer = fail
    event_count = OPEN_AFTER_FAILURES + 3
    async with run_dispatcher(world, chance=0.999), serve_shop(Shop()) as correct_shop:
        await create_events(world, event_count)
        await poll_until(lambda: world.rows(_OUTAGES), "the circuit is open")
        began = time.monotonic()
        await world.perform(
            SetCallbackUrl(merchant_id=world.merchant_id, callback_url=correct_shop.url)
        )
        await wait_for_states(world, delivered=event_count)
        assert time.monotonic() - began < WAITS_S[1] / 2
    assert len(set(correct_shop.ids)) == event_count
    assert await world.rows(_OUTAGES) == []


async def test_an_event_is_dead_after_thirteen_attempts_and_can_be_replayed(
    world: World, shop: Shop
) -> None:
    shop.answer = fail
    clock = Time()
    await create_events(world)
    async with run_dispatcher(world, clock):
        for number in range(1, ATTEMPTS_MAX + 1):
            stored_attempts = await attempts(world, number)
            clock.moved_s = number * 1.2 * DAY_S
            await world.move_clock(number * 1.2 * DAY_S)
        await wait_for_states(world, dead=1)
        assert [item["number"] for item in stored_attempts] == list(range(1, ATTEMPTS_MAX + 1))
        starts = [item["started_at"] for item in stored_attempts]
        assert all(start < next_start for start, next_start in pairwise(starts))
        shop.answer = accept
        missed = await world.perform(ResendMissedEvents(merchant_id=world.merchant_id))
        await wait_for_states(world, delivered=1)
        stored_attempts = await attempts(world, ATTEMPTS_MAX + 1)
    assert stored_attempts[-1]["number"] == 1
    assert set(shop.ids) == {str(missed.first_event_id)}
    assert len({body for _, body, _ in shop.received}) == 1


async def test_an_event_without_a_callback_url_is_skipped_until_it_is_replayed(
    world: World,
) -> None:
    async with run_dispatcher(world), serve_shop(Shop(secrets=[world.callback_secret])) as shop:
        await create_events(world)
        assert await states(world) == Counter(skipped=1)
        await world.perform(SetCallbackUrl(merchant_id=world.merchant_id, callback_url=shop.url))
        missed = await world.perform(ResendMissedEvents(merchant_id=world.merchant_id))
        await wait_for_states(world, delivered=1)
        assert shop.ids == [str(missed.first_event_id)]


async def test_pending_events_are_skipped_after_the_callback_url_has_been_removed(
    world: World, shop: Shop
) -> None:
    shop.answer = fail
    clock = Time()
    await create_events(world, 3)
    async with run_dispatcher(world, clock):
        await attempts(world, 3)
        await world.perform(SetCallbackUrl(merchant_id=world.merchant_id))
        await world.move_clock(DAY_S)
        clock.moved_s = DAY_S
        await wait_for_states(world, skipped=3)
        await attempts(world, 3)  # no attempt without a URL
        shop.answer = accept
        await world.perform(SetCallbackUrl(merchant_id=world.merchant_id, callback_url=shop.url))
        await world.perform(ResendMissedEvents(merchant_id=world.merchant_id))
        await wait_for_states(world, delivered=3)


async def test_both_secrets_verify_events_during_a_rotation(world: World, shop: Shop) -> None:
    old = world.callback_secret
    rotated = RotateCallbackSecret(merchant_id=world.merchant_id, overlap_s=3600)
    new = (await world.perform(rotated)).callback_secret
    shop.secrets = [old, new]  # every event must verify with each secret
    async with run_dispatcher(world):
        await create_events(world)
        await wait_for_states(world, delivered=1)
        assert len(shop.received[0][2]["webhook-signature"].split()) == 2
        await world.move_clock(3601)
        shop.secrets = [new]
        await create_events(world)
        await wait_for_states(world, delivered=2)
    assert len(shop.received[1][2]["webhook-signature"].split()) == 1


async def test_only_secrets_that_sign_webhooks_are_listed_as_signing(
    world: World, shop: Shop
) -> None:
    rotation = RotateCallbackSecret(merchant_id=world.merchant_id, overlap_s=3600)
    for _ in range(4):
        await world.perform(rotation)
    shop.secrets = []
    async with run_dispatcher(world):
        await create_events(world)
        await wait_for_states(world, delivered=1)
    secrets = await world.perform(ListCallbackSecrets(merchant_id=world.merchant_id))
    signature_count = len(shop.received[0][2]["webhook-signature"].split())
    assert [secret.signs for secret in secrets] == [True] * signature_count + [False] * 2


async def test_missed_events_can_be_resent_by_time_range(world: World) -> None:
    [first] = await create_events(world)
    await world.move_clock(3600)
    [second] = await create_events(world)
    times = {
        row["payment_id"]: row["occurred_at"] for row in await world.rows("SELECT * FROM event")
    }
    between = times[second.id]
    assert await states(world) == Counter(skipped=2)
    assert (await world.perform(ResendMissedEvents(until=between))).events == 1
    assert await states(world) == Counter(pending=1, skipped=1)
    [row] = await world.rows("SELECT payment_id FROM delivery d JOIN event e ON e.id = d.event_id "
                             "WHERE state = 'pending'")  # fmt: skip
    assert row["payment_id"] == first.id
    other_merchant_id = (await world.add_merchant()).merchant.id
    assert (await world.perform(ResendMissedEvents(merchant_id=other_merchant_id))).events == 0
    assert (await world.perform(ResendMissedEvents(since=between))).events == 1


async def test_many_unresponsive_merchants_do_not_block_a_healthy_merchant(
    world: World, shop: Shop
) -> None:
    await create_events(world)
    await write_payments(world, 2_100, statuses=("PENDING",))
    await world.rows(_DEAD_MERCHANTS, 2_100)
    windows = EndpointWindows(world.service.settings.webhook_sockets_max, time.monotonic)
    for row in await world.rows("SELECT merchant_id FROM delivery"):
        if row["merchant_id"] != world.merchant_id:
            attempt = windows.start(row["merchant_id"], "https://dead.example/hook")
            windows.pause(attempt, 3_600)
            windows.finish(attempt, succeeded=False)
    async with run_dispatcher(world, windows=windows):
        await wait_for_states(world, delivered=1, pending=2_100)
