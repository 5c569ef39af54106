"""The metrics of pending work: overdue payments, due deliveries and open cases."""

from uuid import UUID

import pytest
from prometheus_client import REGISTRY

from payintent.core import ids
from payintent.payments.model import Payment
from payintent.refunds.resolve_case import ResolveCase
from payintent.worker_metrics import measure
from tests.support.fakes import captured
from tests.support.world import World


async def read_metric(world: World, name: str, **labels: str) -> float | None:
    await measure(world.service)
    return REGISTRY.get_sample_value(name, labels)


async def test_a_pending_payment_is_overdue_from_its_expiry_time(
    world: World,
) -> None:
    name = "payintent_pending_overdue_seconds"
    await world.create(expires_in_s=1800)
    await world.select(await world.create(expires_in_s=60))  # PROCESSING has a metric of its own
    await world.move_clock(1700)
    assert await read_metric(world, name) == 0
    await world.move_clock(2400)
    assert await read_metric(world, name) == pytest.approx(600, abs=30)


async def test_a_delivery_is_overdue_from_its_due_time(
    world: World,
) -> None:
    name = "payintent_webhook_overdue_seconds"
    assert await read_metric(world, name) == 0
    for _ in range(3):
        await _paid(world)
    await world.rows(
        """
        UPDATE delivery
        SET state = 'pending', next_at = clock() + interval '1 minute'
        """
    )
    assert await read_metric(world, name) == 0
    await world.move_clock(360)
    assert await read_metric(world, name) == pytest.approx(300, abs=30)


async def test_undelivered_webhooks_are_counted_by_state(world: World) -> None:
    async def count(state: str) -> float | None:
        return await read_metric(world, "payintent_deliveries", state=state)

    assert [await count(state) for state in ("pending", "dead", "skipped")] == [0, 0, 0]
    for _ in range(3):
        await _paid(world)
    await world.rows("UPDATE delivery SET state = 'pending', next_at = clock()")
    assert await count("pending") == 3
    await world.rows(
        """
        UPDATE delivery
        SET state = 'dead'
        WHERE event_id = (SELECT min(event_id::text)::uuid FROM delivery)
        """
    )
    assert (await count("pending"), await count("dead")) == (2, 1)


async def test_open_cases_are_counted_by_kind_and_provider(
    world: World,
) -> None:
    async def count(kind: str) -> float | None:
        return await read_metric(world, "payintent_cases_open", kind=kind, provider="fake")

    assert not await count("DOUBLE_PAYMENT")
    session_id, payment = await _paid(world)
    await world.report(payment, session_id, captured(159_000, reference="again"))
    assert await count("DOUBLE_PAYMENT") == 1
    assert not await count("LATE_PAYMENT")
    [row] = await world.rows("SELECT id FROM money_case")
    labels = {"kind": "DOUBLE_PAYMENT", "provider": "fake"}
    await world.move_clock(3600)
    age_s = await read_metric(world, "payintent_case_oldest_seconds", **labels)
    assert age_s == pytest.approx(3600, abs=30)
    close = ResolveCase(case_id=ids.format_id(ids.CASE, row["id"]), resolution="dismiss", note="x")
    await world.perform(close)
    assert await count("DOUBLE_PAYMENT") == 0
    assert await read_metric(world, "payintent_case_oldest_seconds", **labels) == 0


async def _paid(world: World) -> tuple[UUID, Payment]:
    payment = await world.create()
    session_id = (await world.select(payment)).session.id
    capture = captured(159_000, reference=str(session_id))
    return session_id, await world.report(payment, session_id, capture)
