"""The inquiries of the worker: their schedule, their retries, and their repairs."""

from dataclasses import replace
from uuid import UUID

import pytest
from structlog.testing import capture_logs

from payintent.core import ids
from payintent.core.errors import ErrorCode, RefusedError
from payintent.gateway_accounts.health import GatewayChannel, GatewayHealth, open_circuit
from payintent.gateways.port import (
    GatewayAccount,
    GatewaySessionRef,
    GatewaySessionState,
    OutcomeUnknown,
    SessionReport,
)
from payintent.payment_sessions.inquire import (
    CLOSING_DELAYS_S,
    ESCALATE_AFTER_S,
    OPEN_INQUIRY_DELAYS_S,
    inquire_on_return,
)
from payintent.payments import sessions_store as session_store
from payintent.payments.model import Payment
from tests.payments.test_expire import inquire_all
from tests.support.fakes import FakeGateway, captured, declined
from tests.support.world import World

SILENT = OutcomeUnknown(detail="timeout")
ABSENT = SessionReport(state=GatewaySessionState.ABSENT)
DAY_S = 24 * 3600


class _Crash(BaseException):
    """The process dies."""


async def wait_s(world: World, session_id: UUID) -> float | None:
    """Return the delay before the next inquiry about a session."""
    [row] = await world.rows(
        "SELECT extract(epoch FROM inquire_at - clock())::float8 AS wait FROM session "
        "WHERE id = $1",
        session_id,
    )
    return row["wait"]


async def crash_in_selection(world: World) -> tuple[Payment, UUID]:
    """Select a method, and die during the gateway request: the session stays `opening`."""

    def crash(_: object) -> None:
        raise _Crash

    payment = await world.create(expires_in_s=86_400)
    accept, world.gateway.answer_create = world.gateway.answer_create, crash  # type: ignore[assignment]
    with pytest.raises(_Crash):
        await world.select(payment)
    world.gateway.answer_create = accept
    [row] = await world.rows("SELECT id FROM session WHERE payment_id = $1", payment.id)
    return payment, row["id"]


async def test_an_open_session_is_queried_at_growing_intervals(world: World) -> None:
    session = (await world.select(await world.create(expires_in_s=86_400))).session
    assert await inquire_all(world) == 0
    assert await wait_s(world, session.id) == pytest.approx(30, abs=2)
    moved = 0.0
    for expected in (*OPEN_INQUIRY_DELAYS_S, OPEN_INQUIRY_DELAYS_S[-1]):
        wait = await wait_s(world, session.id)
        assert wait is not None
        moved += wait + 1
        await world.move_clock(moved)
        assert await inquire_all(world) == 1
        assert await wait_s(world, session.id) == pytest.approx(expected, abs=2)
    assert world.gateway.inquired == [session.id] * 4
    assert OPEN_INQUIRY_DELAYS_S == (120, 600, 3600)


async def test_a_closing_session_is_queried_immediately_and_closed_at_the_gateway(
    world: World,
) -> None:
    payment = await world.create(expires_in_s=86_400)
    first = (await world.select(payment, world.card)).session
    await world.select(payment, world.transfer)
    world.gateway.answer_close = SILENT
    moved = 0.0
    for expected in CLOSING_DELAYS_S:
        await world.move_clock(moved)
        await inquire_all(world)
        assert await wait_s(world, first.id) == pytest.approx(expected, abs=2)
        moved += expected + 1
    assert world.gateway.closed == [first.id] * len(CLOSING_DELAYS_S)
    assert set(world.gateway.inquired) <= {first.id, (await world.read(payment)).payment.session_id}


async def test_inquiries_respect_the_gateways_interval_unless_the_buyer_returns(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    patient = replace(FakeGateway.capabilities, inquiry_gap_s=600.0)
    monkeypatch.setattr(world.gateway, "capabilities", patient)
    session = (await world.select(await world.create(expires_in_s=86_400))).session
    await world.move_clock(31)
    await inquire_all(world)
    assert world.gateway.inquired == []
    assert await wait_s(world, session.id) == pytest.approx(569, abs=3)
    await world.move_clock(601)
    await inquire_all(world)
    assert world.gateway.inquired == [session.id]
    assert await wait_s(world, session.id) == pytest.approx(600, abs=3)
    returning = (await world.select(await world.create(expires_in_s=86_400))).session
    await inquire_on_return(world.database, world.service.accounts, world.merchant_id, returning)
    await inquire_all(world)
    assert world.gateway.inquired == [session.id, returning.id]


async def test_a_rate_limit_response_stops_inquiries_for_half_an_hour(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    patient = replace(FakeGateway.capabilities, inquiry_gap_s=600)
    monkeypatch.setattr(world.gateway, "capabilities", patient)
    session = (await world.select(await world.create(expires_in_s=86_400))).session
    world.gateway.answer_inquire = OutcomeUnknown(detail="status 403", is_throttled=True)
    await world.move_clock(601)
    await inquire_all(world)
    assert await wait_s(world, session.id) == pytest.approx(1800, abs=3)


async def test_a_session_is_closed_soon_after_a_single_rate_limit_response(
    world: World,
) -> None:
    """Until the session is closed, the buyer could pay twice: with the old and the new method."""
    payment = await world.create(expires_in_s=86_400)
    first = (await world.select(payment, world.card)).session
    await world.select(payment, world.transfer)
    world.gateway.answer_close = OutcomeUnknown(detail="status 429", is_throttled=True)
    await inquire_all(world)
    assert await wait_s(world, first.id) == pytest.approx(CLOSING_DELAYS_S[0], abs=2)


async def test_a_timeout_is_logged_with_its_account(world: World) -> None:
    session = (await world.select(await world.create())).session
    world.gateway.answer_inquire = SILENT
    await world.move_clock(31)
    with capture_logs() as logged:
        await inquire_all(world)
    assert [event for event in logged if event["event"] == "provider_silent"] == [
        {
            "event": "provider_silent",
            "log_level": "warning",
            "part": "inquire",
            "provider": "fake",
            "account": world.account_id,
            "session": ids.format_id(ids.SESSION, session.id),
            "why": "timeout",
        }
    ]


async def test_an_ended_session_is_never_queried(world: World) -> None:
    payment = await world.create()
    session = (await world.select(payment)).session
    await world.report(payment, session.id, captured(159000))
    await world.move_clock(DAY_S)
    assert await inquire_all(world) == 0
    assert await wait_s(world, session.id) is None


async def test_a_leased_session_is_not_claimed_again_until_the_lease_ends(world: World) -> None:
    await world.select(await world.create())
    database = world.database
    await world.move_clock(31)
    assert len(await session_store.claim_due(database, 10, 60, [])) == 1
    assert await session_store.claim_due(database, 10, 60, []) == []
    await world.move_clock(100)
    assert len(await session_store.claim_due(database, 10, 60, [])) == 1


async def test_sessions_of_a_busy_account_are_not_claimed(world: World) -> None:
    await world.select(await world.create())
    await world.move_clock(31)
    assert await session_store.claim_due(world.database, 10, 60, [world.account_id]) == []


async def test_an_inquiry_pays_a_payment_whose_callback_was_lost(world: World) -> None:
    payment = await world.create()
    await world.select(payment)
    world.gateway.answer_inquire = captured(159000)
    await world.move_clock(31)
    await inquire_all(world)
    assert await world.status(payment) == "PAID"
    assert await world.events(payment) == ["payment.completed"]


async def test_a_returning_buyer_triggers_an_immediate_inquiry(world: World) -> None:
    payment = await world.create()
    session = (await world.select(payment)).session
    world.gateway.answer_inquire = captured(159000)
    await session_store.request_inquiry(world.database, session.id)
    assert await inquire_all(world) == 1
    assert await world.status(payment) == "PAID"


async def test_a_buyer_who_returns_during_an_inquiry_triggers_another_inquiry(
    world: World,
) -> None:
    payment = await world.create()
    session = (await world.select(payment)).session
    await world.move_clock(31)
    [due] = await session_store.claim_due(world.database, 10, 60, [])
    inquire = world.gateway.inquire

    async def pay_after_the_response(account: GatewayAccount, ref: GatewaySessionRef) -> object:
        response = await inquire(account, ref)
        world.gateway.answer_inquire = captured(159000)
        await inquire_on_return(world.database, world.service.accounts, world.merchant_id, session)
        return response

    world.gateway.inquire = pay_after_the_response  # type: ignore[assignment]
    await world.service.session_inquirer.inquire(due)
    assert await inquire_all(world) == 1
    assert await world.status(payment) == "PAID"


async def test_a_buyer_leaves_a_gateway_during_its_outage_without_waiting_for_it(
    world: World,
) -> None:
    payment = await world.create()
    first = (await world.select(payment, world.card)).session
    account_id = await world.add_account("http://other.test", signing_secret="another")
    await world.rows(
        "UPDATE payment_method SET account_id = $1 WHERE id = $2", account_id, world.transfer
    )
    await open_circuit(world.database, world.account_id, GatewayChannel.SESSIONS, "timeout")
    world.service.accounts.health = GatewayHealth(world.database)
    assert (await world.select(payment, world.transfer)).payment.session_id != first.id
    assert world.gateway.inquired == []
    await inquire_all(world)
    assert world.gateway.closed == [first.id]


async def test_an_interrupted_selection_is_abandoned_so_that_the_buyer_can_select_again(
    world: World,
) -> None:
    payment, session_id = await crash_in_selection(world)
    with pytest.raises(RefusedError) as refused:
        await world.select(payment)
    assert refused.value.code is ErrorCode.CONFLICT
    await world.move_clock(31)
    await inquire_all(world)
    assert (await world.session(session_id))["life"] == "closing"
    assert (await world.select(payment)).payment.status == "PROCESSING"
    await inquire_all(world)
    assert world.gateway.closed == [session_id]
    assert (await world.session(session_id))["life"] == "ended"


async def test_an_interrupted_selection_is_abandoned_even_if_the_adapter_fails(
    world: World,
) -> None:
    payment, session_id = await crash_in_selection(world)

    async def broken(*_: object) -> SessionReport:
        raise KeyError("a bug of its own")

    world.gateway.inquire = broken  # type: ignore[method-assign]
    await world.move_clock(31)
    with pytest.raises(KeyError):
        await inquire_all(world)
    assert (await world.session(session_id))["life"] == "closing"
    assert (await world.select(payment)).payment.status == "PROCESSING"


@pytest.mark.parametrize(("answer", "status"), [(captured(159000), "PAID"), (declined(), "FAILED")])
async def test_an_interrupted_selection_is_completed_if_the_gateway_has_the_session(
    world: World, answer: SessionReport, status: str
) -> None:
    payment, session_id = await crash_in_selection(world)
    world.gateway.answer_inquire = answer
    await world.move_clock(31)
    await inquire_all(world)
    stored_payment = (await world.read(payment)).payment
    assert (stored_payment.status, stored_payment.session_id) == (status, session_id)
    assert len(await world.events(payment)) == 1


async def test_an_absent_closing_session_ends_only_when_no_request_can_be_in_flight(
    world: World,
) -> None:
    _, session_id = await crash_in_selection(world)
    world.gateway.answer_inquire = world.gateway.answer_close = ABSENT
    await world.move_clock(31)
    await inquire_all(world)
    await inquire_all(world)
    assert (await world.session(session_id))["life"] == "closing"
    await world.move_clock(601)
    await inquire_all(world)
    assert (await world.session(session_id))["life"] == "ended"


async def test_an_absent_open_session_does_not_end(world: World) -> None:
    session = (await world.select(await world.create(expires_in_s=86_400))).session
    world.gateway.answer_inquire = ABSENT
    await world.move_clock(3600)
    await inquire_all(world)
    assert (await world.session(session.id))["life"] == "open"


async def test_after_a_week_without_a_response_a_case_is_opened(world: World) -> None:
    payment = await world.create(expires_in_s=86_400)
    session = (await world.select(payment)).session
    world.gateway.answer_inquire = SILENT
    await world.move_clock(ESCALATE_AFTER_S + 60)
    await inquire_all(world)
    assert await world.cases(payment) == ["UNKNOWN_REFERENCE"]
    assert await wait_s(world, session.id) is None
    assert (await world.session(session.id))["life"] == "open"
    await world.move_clock(2 * ESCALATE_AFTER_S)
    assert await inquire_all(world) == 0


async def test_a_week_of_our_own_downtime_does_not_count_as_gateway_timeouts(world: World) -> None:
    payment = await world.create(expires_in_s=86_400)
    await world.select(payment)
    world.gateway.answer_inquire = captured(159000)
    await world.move_clock(ESCALATE_AFTER_S + 60)
    await inquire_all(world)
    assert await world.status(payment) == "PAID"
    assert await world.cases(payment) == []


async def test_a_capture_reported_after_the_timeout_case_still_counts(world: World) -> None:
    payment = await world.create(expires_in_s=86_400)
    session = (await world.select(payment)).session
    world.gateway.answer_inquire = SILENT
    await world.move_clock(ESCALATE_AFTER_S + 60)
    await inquire_all(world)
    await world.report(payment, session.id, captured(159000))
    assert await world.status(payment) == "PAID"


async def test_a_session_without_an_adapter_waits_until_the_adapter_is_installed(
    world: World,
) -> None:
    session = (await world.select(await world.create())).session
    world.service.accounts.gateways.clear()  # type: ignore[attr-defined]
    await world.move_clock(31)
    await inquire_all(world)
    assert await wait_s(world, session.id) == pytest.approx(120, abs=2)
