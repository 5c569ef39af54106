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


async def value(world: World, name: str, **labels: str) -> float | None:
    await measure(world.service)
    return REGISTRY.get_sample_value(name, labels)


async def test_a_pending_payment_past_its_time_is_as_overdue_as_nobody_expires_it(
    world: World,
) -> None:
    name = "payintent_pending_overdue_seconds"
    await world.create(expires_in_s=1800)
    await world.select(await world.create(expires_in_s=60))  # PROCESSING has a metric of its own
    await world.move_clock(1700)
    assert await value(world, name) == 0
    await world.move_clock(2400)
    assert await value(world, name) == pytest.approx(600, abs=30)


async def test_a_delivery_is_overdue_from_when_it_is_due_whichever_merchant_is_first(
    world: World,
) -> None:
    name = "payintent_webhook_overdue_seconds"
    assert await value(world, name) == 0
    for _ in range(3):
        await _paid(world)
    await world.rows(
        """
        UPDATE delivery
        SET state = 'pending', next_at = clock() + interval '1 minute'
        """
    )
    assert await value(world, name) == 0
    await world.move_clock(360)
    assert await value(world, name) == pytest.approx(300, abs=30)


async def test_deliveries_that_have_not_arrived_are_counted_by_state(world: World) -> None:
    async def counted(state: str) -> float | None:
        return await value(world, "payintent_deliveries", state=state)

    assert [await counted(state) for state in ("pending", "dead", "skipped")] == [0, 0, 0]
    for _ in range(3):
        await _paid(world)
    await world.rows("UPDATE delivery SET state = 'pending', next_at = clock()")
    assert await counted("pending") == 3
    await world.rows(
        """
        UPDATE delivery
        SET state = 'dead'
        WHERE event_id = (SELECT min(event_id::text)::uuid FROM delivery)
        """
    )
    assert (await counted("pending"), await counted("dead")) == (2, 1)


async def test_open_cases_are_counted_by_kind_and_provider_until_they_are_closed(
    world: World,
) -> None:
    async def counted(kind: str) -> float | None:
        return await value(world, "payintent_cases_open", kind=kind, provider="fake")

    assert not await counted("DOUBLE_PAYMENT")
    session_id, payment = await _paid(world)
    await world.report(payment, session_id, captured(159_000, reference="again"))
    assert await counted("DOUBLE_PAYMENT") == 1
    assert not await counted("LATE_PAYMENT")
    [row] = await world.rows("SELECT id FROM money_case")
    close = ResolveCase(case_id=ids.format_id(ids.CASE, row["id"]), resolution="dismiss", note="x")
    await world.perform(close)
    assert await counted("DOUBLE_PAYMENT") == 0


async def _paid(world: World) -> tuple[UUID, Payment]:
    payment = await world.create()
    session_id = (await world.select(payment)).session.id
    capture = captured(159_000, reference=str(session_id))
    return session_id, await world.report(payment, session_id, capture)
