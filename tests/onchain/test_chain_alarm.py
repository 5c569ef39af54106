"""An unwatched chain raises an alarm immediately and a case after a day; payments stay open."""

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


async def stop_watching(world: World) -> None:
    await world.rows("UPDATE chain_cursor SET watched_until = clock()")


async def decide(world: World) -> None:
    """Run all due expiries and inquiries."""
    for _ in range(3):
        async with world.database.transaction() as tx:
            await expire_processing(tx, 500, 0.0)
        await world.rows("UPDATE session SET inquire_at = clock() WHERE life <> 'ended'")
        for inquiry in await session_store.claim_due(world.database, 500, 60.0, []):
            await world.service.session_inquirer.inquire(inquiry)


async def test_an_unwatched_chain_is_reported_immediately_and_only_once(world: World) -> None:
    methods = await offer_tokens(world)
    await bill(world, methods["USDT"])
    step = make_chain_alarm(world.database)
    with capture_logs() as events:
        await step()
        await stop_watching(world)
        await step()
        await step()
        assert _figures() == (
            0,
            1,
        )
        await chain_watch_store.mark_watched(world.database, "native", 0, 60)
        await step()
    assert [(event["event"], event["chain"]) for event in events] == [
        ("chain_unwatched", "native"),
        ("chain_watched", "native"),
    ]
    assert events[0]["waiting"] == 1
    assert _figures() == (1, 0)


async def test_a_new_process_reports_a_chain_that_is_already_unwatched(world: World) -> None:
    await offer_tokens(world)
    await stop_watching(world)
    with capture_logs() as events:
        await make_chain_alarm(world.database)()
    assert [event["event"] for event in events] == ["chain_unwatched"]


async def test_a_payment_on_an_unwatched_chain_stays_open_and_gets_a_case_after_a_day(
    world: World,
) -> None:
    methods = await offer_tokens(world)
    payment, _ = await bill(world, methods["USDT"])
    step = make_chain_alarm(world.database)
    await stop_watching(world)
    reports: list[Any] = []
    for moved_s, cases in (
        (TTL_S + 60, []),
        (DAY_S - 60, []),
        (DAY_S + 60, ["RECONCILIATION"]),
        (6 * DAY_S, ["RECONCILIATION"]),
    ):
        await world.move_clock(moved_s)
        await decide(world)
        with capture_logs() as events:
            await step()
        reports += [event for event in events if event["event"] == "payment_stranded"]
        assert await world.status(payment) == "PROCESSING"
        assert await world.cases(payment) == cases
    assert len(reports) == 1, "it is reported only once, with its case"


async def run_chain_alarm(world: World) -> None:
    """Run the worker's check of all chains once."""
    await make_chain_alarm(world.database)()


@pytest.fixture
async def stranded_payment(world: World) -> tuple[Payment, Session]:
    """A payment that has waited for its chain for more than a day, with a case."""
    methods = await offer_tokens(world)
    payment, session = await bill(world, methods["NATIVED"])
    await stop_watching(world)
    await world.move_clock(TTL_S + DAY_S + 60)
    await decide(world)
    await run_chain_alarm(world)
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


async def read_past_deadline(world: World) -> None:
    """Watch the chain again, and read past the deadline of every payment."""
    await chain_watch_store.mark_watched(world.database, "native", 0, 60)
    await world.rows("UPDATE chain_cursor SET at = clock()")
    await decide(world)


def dismissed_case(status: str) -> tuple[str, str, str]:
    return "DISMISSED", "policy:chain_read", f"its chain was read again: the payment is {status}"


async def test_the_case_closes_when_the_chain_shows_the_money(
    world: World, stranded_payment: tuple[Payment, Session]
) -> None:
    payment, session = stranded_payment
    await record_final_logs(world, log_of(session))
    assert await world.status(payment) == "PAID"
    await run_chain_alarm(world)
    assert await case_of(world, payment) == dismissed_case("PAID")


async def test_the_case_closes_when_the_chain_is_read_and_the_payment_expires(
    world: World, stranded_payment: tuple[Payment, Session]
) -> None:
    payment, _ = stranded_payment
    await chain_watch_store.mark_watched(world.database, "native", 0, 60)
    await run_chain_alarm(world)
    assert await case_of(world, payment) == ("OPEN", None, ""), (
        "blocks past the deadline were not read"
    )
    await read_past_deadline(world)
    assert await world.status(payment) == "EXPIRED"
    with capture_logs() as events:
        await run_chain_alarm(world)
        await run_chain_alarm(world)
    assert await case_of(world, payment) == dismissed_case("EXPIRED")
    assert [event["event"] for event in events if event["event"] == "stranded_cases_closed"] != []


async def test_the_case_stays_open_if_the_outcome_of_a_sighted_transaction_is_unknown(
    world: World, stranded_payment: tuple[Payment, Session]
) -> None:
    payment, session = stranded_payment
    await world.rows(
        """
        INSERT INTO chain_sighting (chain, tx_hash, log_index, session_id, exact, block, seen_at,
            gone_at)
        VALUES ('native', $1, 0, $2, true, 7, clock(), clock())
        """,
        bytes(32),
        session.id,
    )
    await read_past_deadline(world)
    assert await world.status(payment) == "FAILED"
    await run_chain_alarm(world)
    assert await case_of(world, payment) == ("OPEN", None, "")


async def test_the_case_stays_open_if_a_posted_transaction_never_appeared(
    world: World, stranded_payment: tuple[Payment, Session]
) -> None:
    payment, session = stranded_payment
    await world.rows(
        "INSERT INTO chain_hint (session_id, tx_hash, step) VALUES ($1, $2, 'pay')",
        session.id,
        bytes(32),
    )
    await read_past_deadline(world)
    assert await world.status(payment) == "FAILED"
    await run_chain_alarm(world)
    assert await case_of(world, payment) == ("OPEN", None, "")


async def test_the_case_stays_open_while_the_session_has_a_second_open_case(
    world: World, stranded_payment: tuple[Payment, Session]
) -> None:
    """For example, if only one endpoint reports a log."""
    payment, session = stranded_payment
    await add_case(world, payment, session.id)
    await read_past_deadline(world)
    await run_chain_alarm(world)
    assert await case_of(world, payment) == ("OPEN", None, "")
    await world.rows(
        """
        UPDATE money_case
        SET status = 'DISMISSED', closed_at = clock(), closed_by = 'Ada'
        WHERE subject IS NOT NULL
        """
    )
    await run_chain_alarm(world)
    assert await case_of(world, payment) == dismissed_case("EXPIRED")


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


async def test_an_open_session_reports_why_it_cannot_be_paid(api: Api) -> None:
    methods = await offer_tokens(api.world)
    _, session = await bill(api.world, methods["USDT"])

    async def read_payability() -> tuple[bool, str | None]:
        view = (await api.send("GET", session_path(session))).json
        return view["payable"], view.get("unpayable_reason")

    assert await read_payability() == (True, None)
    await stop_watching(api.world)
    assert await read_payability() == (False, "chain_not_watched")
    await api.world.rows("UPDATE chain_cursor SET halted = 'a person must look'")
    assert await read_payability() == (False, "chain_halted")
    await api.world.move_clock(TTL_S - 30)
    assert await read_payability() == (False, "deadline_near")


def _figures() -> tuple[float, float]:
    """Return whether the chain is watched, and the number of waiting sessions."""
    values = [gauge.labels("native")._value.get() for gauge in (WATCHED, WAITING)]
    return values[0], values[1]
