"""The endpoint health that a merchant sees."""

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from payintent.webhooks import endpoints_store, outbox_store
from payintent.webhooks.endpoints_store import (
    EndpointHealth,
    RecentAttempt,
    describe_endpoint_health,
)
from payintent.webhooks.model import CircuitReport
from payintent.webhooks.outbox_store import AttemptRecord
from tests.support.fakes import captured
from tests.support.world import World

_NOW = datetime(2026, 11, 29, tzinfo=UTC)


def _attempt(minutes_ago: int, outcome: str = "http_error") -> RecentAttempt:
    return RecentAttempt(
        at=_NOW - timedelta(minutes=minutes_ago), outcome=outcome, status=500, detail=""
    )


def _health(
    last_success_at: datetime | None = None, failing_since: datetime | None = None
) -> EndpointHealth:
    return EndpointHealth(
        callback_url="https://shop.test/hook",
        pending=0,
        dead=0,
        next_at=None,
        last_success_at=last_success_at,
        failing_since=failing_since,
        last_failure=None,
    )


def test_an_endpoint_without_attempts_is_not_failing() -> None:
    assert describe_endpoint_health(_health(), []) == _health()


def test_an_endpoint_has_been_failing_since_the_first_failure_after_its_last_success() -> None:
    attempts = [_attempt(1), _attempt(2), _attempt(3, "delivered"), _attempt(9)]
    health = describe_endpoint_health(_health(), attempts)
    assert health.failing_since == attempts[1].at
    assert health.last_failure == attempts[0]
    assert health.last_success_at == attempts[2].at


def test_an_endpoint_is_healthy_after_a_success_even_if_its_circuit_was_open() -> None:
    attempts = [_attempt(1, "delivered"), _attempt(2)]
    health = describe_endpoint_health(_health(failing_since=_NOW), attempts)
    assert (health.failing_since, health.last_failure) == (None, None)


@pytest.mark.parametrize("minutes", [1, 60])
def test_failing_since_is_the_earlier_of_first_failure_and_open_circuit(minutes: int) -> None:
    opened_at = _NOW - timedelta(minutes=minutes)
    health = describe_endpoint_health(_health(failing_since=opened_at), [_attempt(5)])
    assert health.failing_since == min(opened_at, _NOW - timedelta(minutes=5))


def test_a_success_older_than_the_recent_attempts_is_reported() -> None:
    earlier = _NOW - timedelta(days=3)
    assert describe_endpoint_health(_health(earlier), [_attempt(1)]).last_success_at == earlier


async def record_attempt(world: World, *, delivered: bool, wait_s: float | None = 60.0) -> None:
    [row] = await world.rows("SELECT event_id, attempts FROM delivery LIMIT 1")
    attempt = AttemptRecord(
        id=uuid4(),
        event_id=row["event_id"],
        number=row["attempts"] + 1,
        url="https://shop.test/hook",
        outcome="delivered" if delivered else "timeout",
        status=200 if delivered else None,
        detail="",
        answer="",
        duration_ms=1,
        delivered=delivered,
        next_wait_s=None if delivered else wait_s,
    )
    await outbox_store.record(world.database, [attempt])


async def give_endpoint(world: World) -> None:
    await world.rows("UPDATE merchant SET callback_url = 'https://shop.test/hook'")


async def pay(world: World) -> None:
    """Create a payment and capture it."""
    payment = await world.create()
    selected = await world.select(payment)
    total = selected.session.quote.total_minor
    await world.report(payment, selected.session.id, captured(total, reference=str(payment.id)))


async def test_the_health_is_read_from_deliveries_attempts_and_circuit(world: World) -> None:
    async def read() -> EndpointHealth:
        return await endpoints_store.get_endpoint_health(world.database, world.merchant_id)

    assert (await read()).next_at is None
    await give_endpoint(world)
    await pay(world)
    health = await read()
    assert (health.pending, health.dead, health.failing_since) == (1, 0, None)
    assert health.next_at is not None
    await record_attempt(world, delivered=False)
    failing = await read()
    assert failing.failing_since is not None
    assert failing.last_failure is not None
    assert (failing.last_failure.outcome, failing.last_success_at) == ("timeout", None)
    assert failing.next_at is not None
    assert failing.next_at > health.next_at
    report = CircuitReport(merchant_id=world.merchant_id, open_s=3_600.0, detail="timeout")
    await endpoints_store.open_circuit(world.database, report)
    paused = await read()
    assert paused.next_at is not None
    assert paused.next_at - failing.next_at > timedelta(minutes=30)
    await record_attempt(world, delivered=True)
    healthy = await read()
    assert (healthy.pending, healthy.failing_since, healthy.next_at) == (0, None, None)
    assert healthy.last_success_at is not None


async def test_an_event_that_is_no_longer_retried_is_dead(world: World) -> None:
    await give_endpoint(world)
    await pay(world)
    await record_attempt(world, delivered=False, wait_s=None)
    health = await endpoints_store.get_endpoint_health(world.database, world.merchant_id)
    assert (health.pending, health.dead, health.next_at) == (0, 1, None)
