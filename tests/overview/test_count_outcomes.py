"""Committed payments, captures and refunds are counted once, by provider."""

from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta

import pytest
from prometheus_client import REGISTRY

from payintent.overview import hourly_figures
from payintent.overview.hourly_figures import count_outcomes
from payintent.payments.cancel import cancel_by_buyer
from tests.refunds.refund_setup import (
    DONE,
    create_paid_payment,
    request_refund,
    send_refund_callback,
)
from tests.support.fakes import declined
from tests.support.world import World

_METRICS = ("payintent_payments_total", "payintent_captures_total", "payintent_refunds_total")

CountChanges = Callable[[], dict[str, float]]


def _read_metrics() -> dict[str, float]:
    return {
        " ".join((sample.name, *sample.labels.values())): sample.value
        for family in REGISTRY.collect()
        for sample in family.samples
        if sample.name in _METRICS
    }


@pytest.fixture
def count_changes() -> CountChanges:
    """Return the counts since the test began."""
    before = _read_metrics()
    return lambda: {
        key: value - before.get(key, 0)
        for key, value in _read_metrics().items()
        if value != before.get(key, 0)
    }


@pytest.fixture(autouse=True)
def _no_settling_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also count very recent events."""
    monkeypatch.setattr(hourly_figures, "SETTLING_DELAY_S", -1.0)


async def _count(world: World) -> None:
    """Count until nothing is pending, because one call may only recount an hour that has ended."""
    while await count_outcomes(world.database):
        pass


async def _fail(world: World) -> None:
    payment = await world.create()
    session = (await world.select(payment, world.transfer)).session
    await world.report(payment, session.id, declined())


async def test_every_outcome_is_counted_once_by_provider(
    world: World, count_changes: CountChanges, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = world.database
    payment = await create_paid_payment(world)
    await create_paid_payment(world)
    await _fail(world)
    refund = await request_refund(world, payment)
    await send_refund_callback(world, refund.id, DONE)
    open_payment = await world.create()
    async with database.transaction() as tx:
        await cancel_by_buyer(tx, open_payment.id)
    for _ in range(3):
        await count_outcomes(database)
    assert count_changes() == {
        "payintent_payments_total PAID fake": 2,
        "payintent_payments_total FAILED fake": 1,
        "payintent_payments_total CANCELLED none": 1,
        "payintent_captures_total fake": 2,
        "payintent_refunds_total payment fake": 1,
    }
    monkeypatch.setattr(hourly_figures, "CLOSING_DELAY", timedelta(hours=-1))
    await world.rows("UPDATE figure_mark SET closed_until = date_trunc('hour', clock())")
    assert await count_outcomes(database)
    assert sum(count_changes().values()) == 7  # events of a closed hour are not counted again


async def test_a_rolled_back_outcome_is_not_counted(
    world: World, count_changes: CountChanges
) -> None:
    payment = await world.create()
    with suppress(ZeroDivisionError):
        async with world.database.transaction() as tx:
            await cancel_by_buyer(tx, payment.id)
            raise ZeroDivisionError
    await _count(world)
    assert count_changes() == {}


async def test_a_rolled_back_count_does_not_change_the_metrics(
    world: World, count_changes: CountChanges
) -> None:
    await create_paid_payment(world)
    await world.rows(
        "UPDATE figure_mark SET closed_until = date_trunc('hour', clock()) - interval '2 hours'"
    )
    await world.rows("ALTER TABLE figure_mark ADD CONSTRAINT frozen CHECK (false) NOT VALID")
    with pytest.raises(Exception, match="frozen"):
        await count_outcomes(world.database)
    assert count_changes() == {}
    await world.rows("ALTER TABLE figure_mark DROP CONSTRAINT frozen")
    await _count(world)
    assert count_changes()["payintent_captures_total fake"] == 1
