"""Committed payments, captures and refunds are counted once, by provider."""

from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta

import pytest
from prometheus_client import REGISTRY

from payintent.overview import hourly_figures
from payintent.overview.hourly_figures import count_outcomes
from payintent.payments.cancel import cancel_by_buyer
from tests.refunds.refunding import DONE, asked, hear, paid
from tests.support.fakes import declined
from tests.support.world import World

_METRICS = ("payintent_payments_total", "payintent_captures_total", "payintent_refunds_total")

Counted = Callable[[], dict[str, float]]


def _now() -> dict[str, float]:
    return {
        " ".join((sample.name, *sample.labels.values())): sample.value
        for family in REGISTRY.collect()
        for sample in family.samples
        if sample.name in _METRICS
    }


@pytest.fixture
def counted() -> Counted:
    """Return the counts since the test began."""
    before = _now()
    return lambda: {
        key: value - before.get(key, 0)
        for key, value in _now().items()
        if value != before.get(key, 0)
    }


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also count very recent events."""
    monkeypatch.setattr(hourly_figures, "SETTLING_DELAY_S", -1.0)


async def _count(world: World) -> None:
    """Count until nothing is pending. A finished hour comes first."""
    while await count_outcomes(world.database):
        pass


async def _fail(world: World) -> None:
    payment = await world.create()
    session = (await world.select(payment, world.transfer)).session
    await world.report(payment, session.id, declined())


async def test_every_outcome_counts_once_under_its_provider_however_many_workers_count(
    world: World, counted: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = world.database
    payment = await paid(world)
    await paid(world)
    await _fail(world)
    refund = await asked(world, payment)
    await hear(world, refund.id, DONE)
    undecided = await world.create()
    async with database.transaction() as tx:
        await cancel_by_buyer(tx, undecided.id)
    for _ in range(3):
        await count_outcomes(database)
    assert counted() == {
        "payintent_payments_total PAID fake": 2,
        "payintent_payments_total FAILED fake": 1,
        "payintent_payments_total CANCELLED none": 1,
        "payintent_captures_total fake": 2,
        "payintent_refunds_total payment fake": 1,
    }
    monkeypatch.setattr(hourly_figures, "CLOSING_DELAY", timedelta(hours=-1))
    await world.rows("UPDATE figure_mark SET closed_until = date_trunc('hour', clock())")
    assert await count_outcomes(database)
    assert sum(counted().values()) == 7  # nothing again where its hour is closed


async def test_what_is_rolled_back_never_counts(world: World, counted: Counted) -> None:
    payment = await world.create()
    with suppress(ZeroDivisionError):
        async with world.database.transaction() as tx:
            await cancel_by_buyer(tx, payment.id)
            raise ZeroDivisionError
    await _count(world)
    assert counted() == {}


async def test_a_count_that_is_rolled_back_is_told_to_nobody(
    world: World, counted: Counted
) -> None:
    await paid(world)
    await world.rows(
        "UPDATE figure_mark SET closed_until = date_trunc('hour', clock()) - interval '2 hours'"
    )
    await world.rows("ALTER TABLE figure_mark ADD CONSTRAINT frozen CHECK (false) NOT VALID")
    with pytest.raises(Exception, match="frozen"):
        await count_outcomes(world.database)
    assert counted() == {}
    await world.rows("ALTER TABLE figure_mark DROP CONSTRAINT frozen")
    await _count(world)
    assert counted()["payintent_captures_total fake"] == 1
