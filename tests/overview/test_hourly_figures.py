"""Each event is counted once in its hour, even if it is late or workers count concurrently."""

import random
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

import pytest

from payintent.gateways.port import DisputedFunds, DisputeReport, DisputeState, VerifiedCallback
from payintent.overview import hourly_figures
from payintent.payments.cancel import cancel_by_buyer, cancel_by_merchant
from payintent.payments.model import Payment
from payintent.webhooks import outbox_store
from payintent.webhooks.outbox_store import AttemptRecord
from tests.payments.test_expire import sweep
from tests.refunds.refund_setup import (
    DECLINED,
    DONE,
    create_paid_payment,
    request_refund,
    send_refund_callback,
)
from tests.support.clock import StoppedClock
from tests.support.fakes import declined
from tests.support.world import World

pytestmark = pytest.mark.full

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
HOURLY_FIGURES = "SELECT kind, subject, value, hour, count, amount FROM hourly_figure"
#: The same figures, computed from the stored events.
STORED = """
    WITH happened AS (
        SELECT e.at, e.kind, p.currency, coalesce(s.provider || ' ' || s.kind, '') AS method,
            coalesce(s.country, '') AS country, p.amount
        FROM payment p
        LEFT JOIN session s ON s.id = p.session_id
        CROSS JOIN LATERAL (VALUES (p.paid_at, 'PAID'), (p.failed_at, 'FAILED'),
            (p.expired_at, 'EXPIRED'), (p.cancelled_at, 'CANCELLED')) AS e (at, kind)
        WHERE e.at IS NOT NULL
        UNION ALL
        SELECT updated_at, 'REFUNDED', currency, NULL, NULL, amount
        FROM refund
        WHERE status = 'SUCCEEDED' AND case_id IS NULL
        UNION ALL
        SELECT created_at, 'DISPUTED', currency, NULL, NULL, amount_minor
        FROM dispute
        UNION ALL
        SELECT started_at + duration_ms * interval '1 ms',
            CASE outcome WHEN 'delivered' THEN 'DELIVERED' ELSE 'UNDELIVERED' END, '', NULL, NULL, 0
        FROM attempt
    )
    SELECT kind, 'currency', currency, date_trunc('hour', at, 'UTC'), count(*), sum(amount)
    FROM happened
    GROUP BY 1, 2, 3, 4
    UNION ALL
    SELECT kind, 'method', method, date_trunc('hour', at, 'UTC'), count(*), 0
    FROM happened
    WHERE method IS NOT NULL
    GROUP BY 1, 2, 3, 4
    UNION ALL
    SELECT kind, 'country', country, date_trunc('hour', at, 'UTC'), count(*), 0
    FROM happened
    WHERE country IS NOT NULL
    GROUP BY 1, 2, 3, 4
"""


class History:
    """Payments that end, are refunded and are disputed, with a stopped clock."""

    def __init__(self, world: World, clock: StoppedClock, chance: random.Random) -> None:
        self.world = world
        self.clock = clock
        self._chance = chance
        self._paid: list[Payment] = []

    async def step(self) -> None:
        """Create an event, advance the clock, and possibly let a worker count."""
        steps = [self.pay, self.pay, self._fail, self._cancel, self._expire, self._attempt]
        if self._paid:
            steps += [self._refund, self._refund, self._dispute]
        await self._chance.choice(steps)()
        minutes = self._chance.choice((0, 0, 1, 9, 31, 75))
        await self.clock.move(minutes * MINUTE_MS + self._chance.randint(0, 9_000))
        for _ in range(self._chance.randint(0, 3)):
            await hourly_figures.count_outcomes(self.world.database)

    async def _created(self) -> Payment:
        terms: dict[str, Any] = {"currency": self._chance.choice(("THB", "USD"))}
        terms["amount"] = Decimal(self._chance.randint(1, 9_999))
        return await self.world.create(amount_text=str(terms["amount"]), **terms)

    async def pay(self) -> None:
        self._paid.append(
            await create_paid_payment(self.world, amount=Decimal(30), amount_text="30")
        )

    async def _fail(self) -> None:
        payment = await self._created()
        method = self._chance.choice((self.world.card, self.world.transfer))
        session = (await self.world.select(payment, method)).session
        await self.world.report(payment, session.id, declined())

    async def _cancel(self) -> None:
        payment = await self._created()
        async with self.world.database.transaction() as tx:
            if self._chance.random() < 0.5:
                await cancel_by_buyer(tx, payment.id)
            else:
                await cancel_by_merchant(tx, payment, None)

    async def _expire(self) -> None:
        await self._created()
        await self.clock.move(31 * MINUTE_MS)
        await sweep(self.world)

    async def _refund(self) -> None:
        payment = self._paid.pop()
        refund = await request_refund(self.world, payment, self._chance.choice(("10", None)))
        await self.clock.move(MINUTE_MS)
        await send_refund_callback(
            self.world, refund.id, self._chance.choice((DONE, DONE, DECLINED))
        )

    async def _dispute(self) -> None:
        payment = self._chance.choice(self._paid)
        report = DisputeReport(
            reference=uuid4().hex,
            capture=f"cap-{payment.id}",
            state=DisputeState.OPEN,
            funds=DisputedFunds.WITHDRAWN,
            amount_minor=1_000,
            currency="THB",
        )
        callback = VerifiedCallback(id=uuid4().hex, dispute=report)
        receiver = self.world.service.callback_receiver
        await receiver.receive(self.world.account_id, callback, b"raw")

    async def _attempt(self) -> None:
        delivered = self._chance.random() < 0.5
        [event] = await self.world.rows("SELECT id FROM event LIMIT 1") or [{"id": None}]
        if event["id"] is not None:
            await attempt(self.world, event["id"], delivered=delivered)


async def attempt(world: World, event_id: UUID, *, delivered: bool) -> None:
    """Record an attempt that took four seconds, with an id from the database's time."""
    [row] = await world.rows("SELECT (extract(epoch FROM clock()) * 1000)::bigint AS ms")
    record = AttemptRecord(
        id=UUID(int=row["ms"] << 80 | uuid4().int >> 64),
        event_id=event_id,
        number=1,
        url="https://merchant.example",
        outcome="delivered" if delivered else "timeout",
        status=200 if delivered else None,
        detail="",
        answer="",
        duration_ms=4_000,
        delivered=delivered,
        next_wait_s=60.0,
    )
    await outbox_store.record(world.database, [record])


@pytest.fixture
async def clock(world: World) -> StoppedClock:
    clock = await StoppedClock(world).stop()
    await world.rows("UPDATE figure_mark SET counted_until = clock(), closed_until = clock()")
    return clock


async def settle(world: World, clock: StoppedClock) -> None:
    """Count everything that remains, as a worker eventually does."""
    await clock.move(2 * HOUR_MS)
    while await hourly_figures.count_outcomes(world.database):
        pass
    await hourly_figures.count_outcomes(world.database)


async def figures(world: World, query: str) -> set[tuple[Any, ...]]:
    return {tuple(row.values()) for row in await world.rows(query)}


@pytest.mark.parametrize("seed", range(4))
async def test_hourly_figures_of_random_histories_match_the_stored_rows(
    world: World, clock: StoppedClock, seed: int
) -> None:
    history = History(world, clock, random.Random(seed))
    for _ in range(40):
        await history.step()
    await settle(world, clock)
    figure_rows = await figures(world, HOURLY_FIGURES)
    assert figure_rows == await figures(world, STORED)
    assert len({row[0] for row in figure_rows}) >= 6


async def test_events_are_counted_after_a_settling_delay(world: World, clock: StoppedClock) -> None:
    await create_paid_payment(world)
    await hourly_figures.count_outcomes(world.database)
    assert await figures(world, HOURLY_FIGURES) == set()
    await clock.move(int(hourly_figures.SETTLING_DELAY_S * 1000) + 1)
    await hourly_figures.count_outcomes(world.database)
    assert await figures(world, HOURLY_FIGURES) == await figures(world, STORED)
    assert await figures(world, HOURLY_FIGURES) != set()


async def test_events_committed_late_are_counted_when_their_hour_is_closed(
    world: World, clock: StoppedClock
) -> None:
    payment, database = await world.create(), world.database
    async with database.transaction() as tx:
        await cancel_by_buyer(tx, payment.id)
        await clock.move(10_000)
        await hourly_figures.count_outcomes(database)
    await clock.move(10_000)
    await hourly_figures.count_outcomes(database)
    assert await figures(world, HOURLY_FIGURES) == set()
    await settle(world, clock)
    assert await figures(world, HOURLY_FIGURES) == await figures(world, STORED)
    assert await figures(world, HOURLY_FIGURES) != set()


async def test_past_hours_are_counted_one_after_another(world: World, clock: StoppedClock) -> None:
    await create_paid_payment(world)
    await world.rows(
        """
        UPDATE figure_mark
        SET counted_until = clock() - interval '30 days',
            closed_until = clock() - interval '30 days'
        """
    )
    await settle(world, clock)
    assert await figures(world, HOURLY_FIGURES) == await figures(world, STORED)


async def test_figures_older_than_a_month_are_deleted(world: World, clock: StoppedClock) -> None:
    await create_paid_payment(world)
    await settle(world, clock)
    assert await figures(world, HOURLY_FIGURES) != set()
    await clock.move(33 * 24 * HOUR_MS)
    await settle(world, clock)
    assert await figures(world, HOURLY_FIGURES) == set()


async def test_concurrent_workers_count_each_event_once(world: World, clock: StoppedClock) -> None:
    await create_paid_payment(world)
    await clock.move(10_000)
    connection = await world.open_connection()
    try:
        async with connection.transaction():
            await connection.execute("SELECT FROM figure_mark FOR UPDATE")
            assert not await hourly_figures.count_outcomes(world.database)
            assert await figures(world, HOURLY_FIGURES) == set()
    finally:
        await connection.close()
    for _ in range(2):
        await hourly_figures.count_outcomes(world.database)
    assert await figures(world, HOURLY_FIGURES) == await figures(world, STORED)
