"""A chain that is not watched: an alarm at once, a case after a day, and nothing ends meanwhile."""

from collections.abc import AsyncIterator

import pytest
from structlog.testing import capture_logs

from payintent.config import Settings
from payintent.lifecycle.chain_alarm import WAITING, WATCHED, chain_alarm
from payintent.lifecycle.expire import expire_processing
from payintent.service import Service
from payintent.storage import chain_watch, sessions
from tests.support.contracts import bill, contract_service, offer_tokens, session_path
from tests.support.fakes import FakeGateway
from tests.support.world import Api, World

DAY_S = 24 * 3600
TTL_S = 1800


@pytest.fixture
async def service(settings: Settings, gateway: FakeGateway) -> AsyncIterator[Service]:
    async with contract_service(settings, gateway) as service:
        yield service


async def let_lapse(world: World) -> None:
    """Let the watcher have been gone since now."""
    await world.rows("UPDATE chain_cursor SET watched_until = clock()")


async def decide(world: World) -> None:
    """Let the expiry and the janitor do what is due."""
    service = world.service
    for _ in range(3):
        async with service.database.transaction() as tx:
            await expire_processing(tx, service.mint, 500, 0.0)
        await world.rows("UPDATE session SET inquire_at = clock() WHERE life <> 'ended'")
        for ask in await sessions.take_due(service.database, 500, 60.0, []):
            await service.janitor.inquire(ask)


async def test_a_chain_that_is_watched_no_more_alarms_at_once_and_once(world: World) -> None:
    methods = await offer_tokens(world)
    await bill(world, methods["USDT"])
    step = chain_alarm(world.service.database, world.service.mint)
    with capture_logs() as told:
        await step()
        await let_lapse(world)
        await step()
        await step()
        assert (WATCHED.labels("native")._value.get(), WAITING.labels("native")._value.get()) == (
            0,
            1,
        )
        await chain_watch.mark_watched(world.service.database, "native", 0, 60)
        await step()
    assert [(one["event"], one["chain"]) for one in told] == [
        ("chain_unwatched", "native"),
        ("chain_watched", "native"),
    ]
    assert told[0]["waiting"] == 1
    assert (WATCHED.labels("native")._value.get(), WAITING.labels("native")._value.get()) == (1, 0)


async def test_a_process_that_starts_beside_an_unwatched_chain_alarms_too(world: World) -> None:
    await offer_tokens(world)
    await let_lapse(world)
    with capture_logs() as told:
        await chain_alarm(world.service.database, world.service.mint)()
    assert [one["event"] for one in told] == ["chain_unwatched"]


async def test_a_payment_waits_for_its_watcher_and_after_a_day_is_a_case(world: World) -> None:
    methods = await offer_tokens(world)
    payment, _ = await bill(world, methods["USDT"])
    step = chain_alarm(world.service.database, world.service.mint)
    await let_lapse(world)
    for moved_s, cases in (
        (TTL_S + 60, []),
        (DAY_S - 60, []),
        (DAY_S + 60, ["RECONCILIATION"]),
        (6 * DAY_S, ["RECONCILIATION"]),
    ):
        await world.move_clock(moved_s)
        await decide(world)
        await step()
        assert await world.status(payment) == "PROCESSING"
        assert await world.cases(payment) == cases


async def test_an_open_session_says_why_it_cannot_be_paid(api: Api) -> None:
    methods = await offer_tokens(api.world)
    _, session = await bill(api.world, methods["USDT"])

    async def shown() -> tuple[bool, str | None]:
        view = (await api.send("GET", session_path(session))).json
        return view["payable"], view.get("unpayable_reason")

    assert await shown() == (True, None)
    await let_lapse(api.world)
    assert await shown() == (False, "chain_not_watched")
    await api.world.rows("UPDATE chain_cursor SET halted = 'a person must look'")
    assert await shown() == (False, "chain_halted")
    await api.world.move_clock(TTL_S - 30)
    assert await shown() == (False, "deadline_near")
