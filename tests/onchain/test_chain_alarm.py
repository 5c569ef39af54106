"""An unwatched chain: an alarm immediately, a case after a day, and no payment ends."""

from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID, uuid4

import pytest
from structlog.testing import capture_logs

from payintent.chains import watch_store as chain_watch_store
from payintent.onchain.watch_loop import WAITING, WATCHED, make_chain_alarm
from payintent.payment_sessions.expire import expire_processing
from payintent.payments import sessions_store as session_store
from payintent.payments.model import Payment, Session
from payintent.runtime.settings import Settings
from payintent.service import Service
from tests.support.contracts import (
    bill,
    contract_service,
    log_of,
    offer_tokens,
    record_final_logs,
    session_path,
)
from tests.support.fakes import FakeGateway
from tests.support.world import Api, World

pytestmark = pytest.mark.full

DAY_S = 24 * 3600
TTL_S = 1800


@pytest.fixture
async def service(settings: Settings, gateway: FakeGateway) -> AsyncIterator[Service]:
    async with contract_service(settings, gateway) as service:
        yield service


async def let_lapse(world: World) -> None:
    """Stop the watcher as of now."""
    await world.rows("UPDATE chain_cursor SET watched_until = clock()")


async def decide(world: World) -> None:
    """Run all due expiries and inquiries."""
    for _ in range(3):
        async with world.database.transaction() as tx:
            await expire_processing(tx, 500, 0.0)
        await world.rows("UPDATE session SET inquire_at = clock() WHERE life <> 'ended'")
        for ask in await session_store.claim_due(world.database, 500, 60.0, []):
            await world.service.session_inquirer.inquire(ask)


async def test_a_chain_that_is_watched_no_more_alarms_at_once_and_once(world: World) -> None:
    methods = await offer_tokens(world)
    await bill(world, methods["USDT"])
    step = make_chain_alarm(world.database)
    with capture_logs() as told:
        await step()
        await let_lapse(world)
        await step()
        await step()
        assert _figures() == (
            0,
            1,
        )
        await chain_watch_store.mark_watched(world.database, "native", 0, 60)
        await step()
    assert [(one["event"], one["chain"]) for one in told] == [
        ("chain_unwatched", "native"),
        ("chain_watched", "native"),
    ]
    assert told[0]["waiting"] == 1
    assert _figures() == (1, 0)


async def test_a_process_that_starts_beside_an_unwatched_chain_alarms_too(world: World) -> None:
    await offer_tokens(world)
    await let_lapse(world)
    with capture_logs() as told:
        await make_chain_alarm(world.database)()
    assert [one["event"] for one in told] == ["chain_unwatched"]


async def test_a_payment_waits_for_its_watcher_and_after_a_day_is_a_case(world: World) -> None:
    methods = await offer_tokens(world)
    payment, _ = await bill(world, methods["USDT"])
    step = make_chain_alarm(world.database)
    await let_lapse(world)
    cases_told: list[Any] = []
    for moved_s, cases in (
        (TTL_S + 60, []),
        (DAY_S - 60, []),
        (DAY_S + 60, ["RECONCILIATION"]),
        (6 * DAY_S, ["RECONCILIATION"]),
    ):
        await world.move_clock(moved_s)
        await decide(world)
        with capture_logs() as told:
            await step()
        cases_told += [one for one in told if one["event"] == "payment_stranded"]
        assert await world.status(payment) == "PROCESSING"
        assert await world.cases(payment) == cases
    assert len(cases_told) == 1, "it is told once, with its case"


async def look(world: World) -> None:
    """Run the worker's check of all chains once."""
    await make_chain_alarm(world.database)()


@pytest.fixture
async def stranded(world: World) -> tuple[Payment, Session]:
    """A payment that has waited for its chain for more than a day, with a case."""
    methods = await offer_tokens(world)
    payment, session = await bill(world, methods["NATIVED"])
    await let_lapse(world)
    await world.move_clock(TTL_S + DAY_S + 60)
    await decide(world)
    await look(world)
    assert await case_of(world, payment) == ("OPEN", None, "")
    return payment, session


async def case_of(world: World, payment: Payment) -> tuple[str, str | None, str]:
    [case] = await world.rows(
        """
        SELECT status, closed_by, note
        FROM money_case
        WHERE payment_id = $1 AND kind = 'RECONCILIATION' AND subject IS NULL
        """,
        payment.id,
    )
    return case["status"], case["closed_by"], case["note"]


async def read_to_the_end(world: World) -> None:
    """Watch the chain again, and read past the deadline of every payment."""
    await chain_watch_store.mark_watched(world.database, "native", 0, 60)
    await world.rows("UPDATE chain_cursor SET at = clock()")
    await decide(world)


def closed(status: str) -> tuple[str, str, str]:
    return "DISMISSED", "policy:chain_read", f"its chain was read again: the payment is {status}"


async def test_the_case_of_a_payment_closes_once_its_chain_has_shown_the_money(
    world: World, stranded: tuple[Payment, Session]
) -> None:
    payment, session = stranded
    await record_final_logs(world, log_of(session))
    assert await world.status(payment) == "PAID"
    await look(world)
    assert await case_of(world, payment) == closed("PAID")


async def test_the_case_of_a_payment_closes_once_its_chain_has_shown_no_money(
    world: World, stranded: tuple[Payment, Session]
) -> None:
    payment, _ = stranded
    await chain_watch_store.mark_watched(world.database, "native", 0, 60)
    await look(world)
    assert await case_of(world, payment) == ("OPEN", None, ""), "nothing was read past its time"
    await read_to_the_end(world)
    assert await world.status(payment) == "EXPIRED"
    with capture_logs() as told:
        await look(world)
        await look(world)
    assert await case_of(world, payment) == closed("EXPIRED")
    assert [one["event"] for one in told if one["event"] == "stranded_cases_closed"] != []


async def test_the_case_stays_where_a_transaction_was_seen_that_nobody_knows_the_end_of(
    world: World, stranded: tuple[Payment, Session]
) -> None:
    payment, session = stranded
    await world.rows(
        """
        INSERT INTO chain_sighting (chain, tx_hash, log_index, session_id, exact, block, seen_at,
            gone_at)
        VALUES ('native', $1, 0, $2, true, 7, clock(), clock())
        """,
        bytes(32),
        session.id,
    )
    await read_to_the_end(world)
    assert await world.status(payment) == "FAILED"
    await look(world)
    assert await case_of(world, payment) == ("OPEN", None, "")


async def test_the_case_stays_where_the_page_has_posted_a_transaction_that_never_came(
    world: World, stranded: tuple[Payment, Session]
) -> None:
    payment, session = stranded
    await world.rows(
        "INSERT INTO chain_hint (session_id, tx_hash, step) VALUES ($1, $2, 'pay')",
        session.id,
        bytes(32),
    )
    await read_to_the_end(world)
    assert await world.status(payment) == "FAILED"
    await look(world)
    assert await case_of(world, payment) == ("OPEN", None, "")


async def test_the_case_stays_while_another_one_of_the_session_is_open(
    world: World, stranded: tuple[Payment, Session]
) -> None:
    """For example, a log that one endpoint reports and no other proves."""
    payment, session = stranded
    await add_case(world, payment, session.id)
    await read_to_the_end(world)
    await look(world)
    assert await case_of(world, payment) == ("OPEN", None, "")
    await world.rows(
        """
        UPDATE money_case
        SET status = 'DISMISSED', closed_at = clock(), closed_by = 'Ada'
        WHERE subject IS NOT NULL
        """
    )
    await look(world)
    assert await case_of(world, payment) == closed("EXPIRED")


async def add_case(world: World, payment: Payment, session_id: UUID) -> None:
    await world.rows(
        """
        INSERT INTO money_case (id, kind, subject, merchant_id, payment_id, session_id, opened_at)
        VALUES ($1, 'RECONCILIATION', 'unproven log on native', $2, $3, $4, clock())
        """,
        uuid4(),
        payment.merchant_id,
        payment.id,
        session_id,
    )


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


def _figures() -> tuple[float, float]:
    """Return whether the chain is watched, and the number of waiting sessions."""
    shown = [gauge.labels("native")._value.get() for gauge in (WATCHED, WAITING)]
    return shown[0], shown[1]
