"""The expiry of PENDING and PROCESSING payments."""

import asyncio
from functools import partial
from typing import Any
from uuid import UUID

import pytest

from payintent.cases.operations import ListCases
from payintent.core.errors import ErrorCode, RefusedError
from payintent.gateways.port import GatewaySessionState, OutcomeUnknown, SessionReport
from payintent.merchants.payable import Restrictions
from payintent.payment_sessions.expire import expire_processing
from payintent.payment_sessions.settle import settle_session
from payintent.payments import sessions_store as session_store
from payintent.payments.cancel import cancel_by_buyer, cancel_by_merchant
from payintent.payments.expire import expire_due_pending, expire_pending
from payintent.payments.model import Payment
from payintent.quotes.list_quotes import QuoteQuery, list_quotes
from payintent.refunds.resolve_case import ResolveCase
from payintent.runtime.id_generator import IdGenerator
from payintent.runtime.settings import Settings
from payintent.worker import expire, make_inquiry_runner
from payintent.worker_metrics import OLDEST_PROCESSING, measure
from tests.support.clock import StoppedClock
from tests.support.fakes import captured, declined
from tests.support.race_staging import hold_transaction, wait_until_blocked
from tests.support.world import World

TTL_S = 1800
PATIENCE_S = 30.0
DAY_S = 24 * 3600
CLOSED = SessionReport(state=GatewaySessionState.CLOSED)


async def sweep(world: World, limit: int = 500) -> int:
    """Run the expiry step of the worker once; return the number of affected payments."""
    async with world.database.transaction() as tx:
        pending = await expire_pending(tx, limit)
    async with world.database.transaction() as tx:
        return pending + await expire_processing(tx, limit, PATIENCE_S)


async def inquire_all(world: World) -> int:
    """Run an inquiry about every due session."""
    due = await session_store.claim_due(world.database, 100, 60, [])
    for session in due:
        await world.service.session_inquirer.inquire(session)
    return len(due)


async def create_elapsed_processing(world: World) -> Payment:
    payment = await world.create()
    await world.select(payment)
    await world.move_clock(TTL_S)
    return payment


async def test_a_payment_does_not_expire_early(world: World) -> None:
    payment = await world.create()
    await world.move_clock(TTL_S - 5)
    assert await sweep(world) == 0
    assert await world.status(payment) == "PENDING"


async def test_pending_payments_expire_in_batches_with_a_single_event_each(world: World) -> None:
    payments = [await world.create() for _ in range(5)]
    new_payment = await world.create(expires_in_s=86_400)
    await world.move_clock(TTL_S)
    assert [await sweep(world, limit=2) for _ in range(4)] == [2, 2, 1, 0]
    for payment in payments:
        stored = (await world.read(payment)).payment
        assert (stored.status, stored.expired_at is None) == ("EXPIRED", False)
        assert await world.events(payment) == ["payment.expired"]
    assert await world.status(new_payment) == "PENDING"


async def test_concurrent_workers_expire_each_payment_of_a_backlog_once(world: World) -> None:
    payments = [await world.create() for _ in range(60)]
    new_payment = await world.create(expires_in_s=86_400)
    await world.move_clock(TTL_S)
    has_more = [True]
    while any(has_more):
        has_more = await asyncio.gather(*(expire_due_pending(world.database, 1) for _ in range(2)))
    for payment in payments:
        assert await world.status(payment) == "EXPIRED"
        assert await world.events(payment) == ["payment.expired"]
    assert await world.status(new_payment) == "PENDING"


async def test_a_step_expires_part_of_a_backlog_and_reports_that_more_remains(
    world: World,
) -> None:
    for _ in range(40):
        await world.create()
    await world.move_clock(TTL_S)
    steps = [await expire_due_pending(world.database, 1) for _ in "123"]
    assert steps == [True, False, False]
    [row] = await world.rows("SELECT count(*) FROM payment WHERE status = 'EXPIRED'")
    assert row["count"] == 40


async def test_a_failed_transaction_does_not_undo_the_other_expiries_in_a_backlog(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    payments = [await world.create() for _ in range(6)]
    await world.move_clock(TTL_S)
    times = [1, 1]  # generating the id of the third event fails
    with monkeypatch.context() as patch:
        patch.setattr(world.database, "id_generator", IdGenerator(times.pop))
        with pytest.raises(IndexError):
            await expire_due_pending(world.database, 1)
    [row] = await world.rows("SELECT count(*) FROM payment WHERE status = 'EXPIRED'")
    assert row["count"] == 2
    assert not await expire_due_pending(world.database, 1)
    for payment in payments:
        assert await world.events(payment) == ["payment.expired"]


async def test_reading_an_elapsed_pending_payment_expires_it(world: World) -> None:
    service = world.service
    for_merchant, for_buyer = await world.create(), await world.create()
    await world.move_clock(TTL_S)
    result = await service.payment_lookup.get_merchant_payment(world.merchant_id, for_merchant.id)
    assert result.payment.status == "EXPIRED"
    result = await service.payment_lookup.find_checkout_payment(for_buyer.checkout_id)
    assert result.payment.status == "EXPIRED"
    for payment in (for_merchant, for_buyer):
        assert await world.events(payment) == ["payment.expired"]
    assert await sweep(world) == 0


@pytest.mark.parametrize("by_buyer", [False, True])
async def test_an_elapsed_payment_cannot_be_cancelled_even_if_it_is_not_yet_expired(
    world: World, by_buyer: bool
) -> None:
    payment = await world.create()
    await world.move_clock(TTL_S)
    with pytest.raises(RefusedError, match="EXPIRED") as error:
        async with world.database.transaction() as tx:
            await (
                cancel_by_buyer(tx, payment.id)
                if by_buyer
                else cancel_by_merchant(tx, payment, None)
            )
    assert error.value.code is ErrorCode.INVALID_PAYMENT_STATE
    assert await world.events(payment) == []


async def test_an_elapsed_checkout_refuses_quotes_and_selections(world: World) -> None:
    service = world.service
    for payment in (await world.create(), await create_elapsed_processing(world)):
        checkout = await service.payment_lookup.find_checkout_payment(payment.checkout_id)
        query = QuoteQuery(restrictions=Restrictions())
        with pytest.raises(RefusedError) as error:
            await list_quotes(
                service.database,
                service.merchants,
                service.accounts,
                checkout,
                query,
            )
        assert error.value.code is ErrorCode.CHECKOUT_EXPIRED
        with pytest.raises(RefusedError) as error:
            await world.select(payment)
        assert error.value.code is ErrorCode.CHECKOUT_EXPIRED
    assert len(world.gateway.created) == 1


async def test_a_payment_that_elapses_during_a_selection_is_refused(world: World) -> None:
    """The payment was still open when it was read, so only the check under the lock detects it."""
    payment = await world.create()
    world.gateway.answer_inquire = SessionReport(state=GatewaySessionState.OPEN)
    await world.select(payment)
    inquire = world.gateway.inquire

    async def inquire_slowly(*args: object) -> SessionReport | OutcomeUnknown:
        await world.move_clock(TTL_S)
        return await inquire(*args)  # type: ignore[arg-type]

    world.gateway.inquire = inquire_slowly  # type: ignore[method-assign]
    with pytest.raises(RefusedError) as error:
        await world.select(payment, world.transfer)
    assert error.value.code is ErrorCode.CHECKOUT_EXPIRED
    assert len(world.gateway.created) == 1


async def test_reading_an_elapsed_processing_payment_does_not_change_it(world: World) -> None:
    payment = await create_elapsed_processing(world)
    service = world.service
    result = await service.payment_lookup.get_merchant_payment(world.merchant_id, payment.id)
    assert result.payment.status == "PROCESSING"
    with pytest.raises(RefusedError, match="PROCESSING"):
        async with world.database.transaction() as tx:
            await cancel_by_merchant(tx, payment, None)
    assert await world.events(payment) == []


async def test_a_processing_payment_expires_when_its_gateway_session_is_closed(
    world: World,
) -> None:
    payment = await create_elapsed_processing(world)
    assert await sweep(world) == 1
    assert await world.status(payment) == "PROCESSING"
    assert await sweep(world) == 0  # the session is already being closed
    assert await inquire_all(world) == 1
    assert len(world.gateway.closed) == 1
    assert await world.status(payment) == "EXPIRED"
    assert await world.events(payment) == ["payment.expired"]
    assert await world.cases(payment) == []


async def test_a_capture_found_when_closing_the_session_completes_the_payment(world: World) -> None:
    payment = await create_elapsed_processing(world)
    world.gateway.answer_close = captured(159000)
    await sweep(world)
    await inquire_all(world)
    assert await world.status(payment) == "PAID"
    assert await world.events(payment) == ["payment.completed"]
    await world.move_clock(TTL_S + 1000)
    assert await sweep(world) == 0


async def test_a_decline_found_when_closing_the_session_fails_the_payment(world: World) -> None:
    payment = await create_elapsed_processing(world)
    world.gateway.answer_close = declined()
    await sweep(world)
    await inquire_all(world)
    assert await world.events(payment) == ["payment.failed"]


async def test_an_unresponsive_gateway_delays_an_expiry_only_for_the_closing_patience(
    world: World,
) -> None:
    payment = await create_elapsed_processing(world)
    session_id = (await world.read(payment)).payment.session_id
    assert session_id is not None
    world.gateway.answer_close = OutcomeUnknown(detail="timeout")
    await sweep(world)
    await inquire_all(world)
    await world.move_clock(TTL_S + PATIENCE_S - 5)
    assert await sweep(world) == 0
    await world.move_clock(TTL_S + PATIENCE_S + 5)
    assert await sweep(world) == 1
    assert await world.status(payment) == "EXPIRED"
    assert await world.events(payment) == ["payment.expired"]
    assert (await world.session(session_id))["life"] == "closing"
    world.gateway.answer_close = CLOSED
    await inquire_all(world)
    assert (await world.session(session_id))["life"] == "ended"
    assert await world.events(payment) == ["payment.expired"]


async def create_elapsed_short_payment(world: World) -> Payment:
    """Create a PROCESSING payment that lives for a minute, and let it elapse."""
    payment = await world.create(expires_in_s=60)
    await world.select(payment)
    await world.move_clock(60)
    return payment


@pytest.mark.parametrize("state", [GatewaySessionState.ABSENT, GatewaySessionState.OPEN])
async def test_an_absent_or_unclosable_session_delays_an_expiry_only_for_the_patience(
    world: World, state: GatewaySessionState
) -> None:
    payment = await create_elapsed_short_payment(world)
    world.gateway.answer_close = SessionReport(state=state)
    await sweep(world)
    await inquire_all(world)
    await world.move_clock(60 + PATIENCE_S - 5)
    await inquire_all(world)
    assert await sweep(world) == 0
    assert await world.status(payment) == "PROCESSING"
    await world.move_clock(60 + PATIENCE_S + 1)
    await inquire_all(world)
    await sweep(world)
    assert await world.events(payment) == ["payment.expired"]
    assert await world.cases(payment) == []


async def test_by_default_a_payment_with_an_absent_session_expires_within_30_seconds(
    world: World,
) -> None:
    """The method is selected in the last minute, and the gateway responds after a second."""
    clock = await StoppedClock(world).stop()
    payment = await world.create()
    await clock.move((TTL_S - 60) * 1_000)
    await world.select(payment)
    world.gateway.answer_inquire = world.gateway.answer_close = SessionReport(
        state=GatewaySessionState.ABSENT
    )
    close_session = world.gateway.close_session

    async def close_late(*args: Any) -> SessionReport | OutcomeUnknown:
        await clock.move(1_000)
        return await close_session(*args)

    world.gateway.close_session = close_late  # type: ignore[method-assign]
    await clock.move(60 * 1_000 - 1)  # the next sweep starts just before the expiry time
    expired_at_ms = await work_until(world, clock, payment, (TTL_S + 60) * 1_000)
    assert TTL_S * 1_000 < expired_at_ms <= (TTL_S + 30) * 1_000
    assert await world.events(payment) == ["payment.expired"]


async def work_until(world: World, clock: StoppedClock, payment: Payment, latest_ms: int) -> int:
    """Run the workers' steps at default intervals until a payment is EXPIRED; return the time.

    The inquiries run just before the sweep, so that each waits for the other.
    """
    service, settings = world.service, Settings.model_fields
    expire_ms, inquire_ms = (
        round(settings[name].default * 1_000) for name in ("expire_every_s", "inquire_every_s")
    )
    assert service.settings.closing_patience_s == settings["closing_patience_s"].default
    inquiry_runner = make_inquiry_runner(service)
    now_ms = round(clock.monotonic() * 1_000)
    expire_at, inquire_at = now_ms, now_ms
    while now_ms < latest_ms:
        if inquire_at <= expire_at:
            await inquiry_runner.step()
            await inquiry_runner.finish()
            inquire_at = round(clock.monotonic() * 1_000) + inquire_ms
        else:
            await expire(service.database, service.settings)
            expire_at += expire_ms
        if await world.status(payment) == "EXPIRED":
            break
        now_ms = round(clock.monotonic() * 1_000)
        await clock.move(max(0, min(expire_at, inquire_at) - now_ms))
    return round(clock.monotonic() * 1_000)


async def test_a_capture_already_reported_for_another_session_does_not_delay_an_expiry(
    world: World,
) -> None:
    """A capture is credited once, so this report does not end the session."""
    first = await world.create()
    first_session = (await world.select(first)).session
    await world.report(first, first_session.id, captured(159000, reference="of both"))
    payment = await create_elapsed_short_payment(world)
    world.gateway.answer_close = captured(159000, reference="of both")
    await sweep(world)
    await inquire_all(world)
    await world.move_clock(60 + PATIENCE_S + 1)
    await inquire_all(world)
    await world.move_clock(60 + 2 * PATIENCE_S + 2)
    await sweep(world)
    assert await world.status(payment) == "EXPIRED"


async def test_a_failing_adapter_does_not_prevent_an_expiry(world: World) -> None:
    payment = await create_elapsed_short_payment(world)

    async def fail(*_: object) -> SessionReport:
        raise KeyError("a bug of the adapter")

    world.gateway.close_session = fail  # type: ignore[method-assign]
    await sweep(world)
    with pytest.raises(KeyError):
        await inquire_all(world)
    await world.move_clock(60 + PATIENCE_S + 1)
    await sweep(world)
    assert await world.status(payment) == "EXPIRED"


async def stay_undecided_for_a_day(world: World, payment: Payment) -> UUID:
    """Let the gateway report for a day that the payment is undecided."""
    session_id = (await world.read(payment)).payment.session_id
    assert session_id is not None
    world.gateway.answer_close = SessionReport(state=GatewaySessionState.AUTHORISING)
    await sweep(world)
    await inquire_all(world)
    await world.move_clock(60 + DAY_S - 5)
    await inquire_all(world)
    await sweep(world)
    assert await world.status(payment) == "PROCESSING"
    await world.move_clock(60 + DAY_S + 60)
    await sweep(world)
    # The gateway is queried again before the payment expires.
    assert await world.status(payment) == "PROCESSING"
    await inquire_all(world)
    return session_id


async def test_a_gateway_that_stays_undecided_delays_an_expiry_for_a_day(world: World) -> None:
    payment = await create_elapsed_short_payment(world)
    session_id = await stay_undecided_for_a_day(world, payment)
    assert await world.events(payment) == ["payment.expired"]
    assert await world.cases(payment) == ["UNDECIDED"]
    assert (await world.session(session_id))["life"] == "closing"
    await world.move_clock(60 + DAY_S + 120)
    await inquire_all(world)
    assert await world.cases(payment) == ["UNDECIDED"]


async def test_a_capture_after_the_wait_belongs_to_the_same_case(world: World) -> None:
    payment = await create_elapsed_short_payment(world)
    session_id = await stay_undecided_for_a_day(world, payment)
    world.gateway.answer_close = captured(159000)
    await world.move_clock(60 + DAY_S + 120)
    await inquire_all(world)
    [case] = await world.rows("SELECT kind, status, capture_id FROM money_case")
    [capture] = await world.rows("SELECT id, credited FROM capture")
    assert dict(case) == {"kind": "LATE_PAYMENT", "status": "OPEN", "capture_id": capture["id"]}
    assert not capture["credited"]
    assert await world.events(payment) == ["payment.expired"]
    assert (await world.session(session_id))["life"] == "ended"


async def test_a_case_is_not_dismissed_if_a_capture_arrives_concurrently(
    world: World,
) -> None:
    payment = await create_elapsed_short_payment(world)
    session_id = await stay_undecided_for_a_day(world, payment)
    [case] = await world.perform(ListCases())
    dismissal = ResolveCase(case_id=case.id, resolution="dismiss", note="it never came")
    settle = partial(settle_session, payment_id=payment.id, session_id=session_id)
    async with hold_transaction(world, lambda tx: settle(tx, report=captured(159000))) as first:
        task = asyncio.create_task(world.perform(dismissal))
        await wait_until_blocked(world, task)
        await first.commit()
        with pytest.raises(RefusedError, match="money has just arrived for this case"):
            await task
    [case] = await world.perform(ListCases())
    assert (case.kind, case.status) == ("LATE_PAYMENT", "OPEN")


async def test_an_undecided_case_is_dismissed_if_the_gateway_reports_a_decline(
    world: World,
) -> None:
    payment = await create_elapsed_short_payment(world)
    await stay_undecided_for_a_day(world, payment)
    world.gateway.answer_close = declined()
    await world.move_clock(60 + DAY_S + 120)
    await inquire_all(world)
    [case] = await world.rows("SELECT kind, status, closed_by, note FROM money_case")
    assert (case["kind"], case["status"]) == ("UNDECIDED", "DISMISSED")
    assert "declined" in case["note"]
    assert await world.events(payment) == ["payment.expired"]


async def test_a_payment_is_paid_if_the_gateway_decides_before_it_expires(world: World) -> None:
    payment = await create_elapsed_short_payment(world)
    world.gateway.answer_close = SessionReport(state=GatewaySessionState.AUTHORISING)
    await sweep(world)
    await inquire_all(world)
    await world.move_clock(60 + 3 * DAY_S)  # the worker was down, so the outcome is unknown
    await sweep(world)
    world.gateway.answer_close = captured(159000)
    await inquire_all(world)
    assert await world.status(payment) == "PAID"
    assert await world.cases(payment) == []


async def test_a_metric_shows_the_age_of_the_oldest_processing_payment(world: World) -> None:
    await world.create()
    await measure(world.service)
    assert OLDEST_PROCESSING._value.get() == 0
    await create_elapsed_short_payment(world)
    await world.move_clock(600)
    await world.select(await world.create())
    await measure(world.service)
    assert OLDEST_PROCESSING._value.get() == pytest.approx(600, abs=5)


async def test_a_payment_does_not_expire_while_its_gateway_is_authorising(world: World) -> None:
    payment = await create_elapsed_processing(world)
    world.gateway.answer_close = SessionReport(state=GatewaySessionState.AUTHORISING)
    await sweep(world)
    for hours in range(1, 6):
        await inquire_all(world)
        await world.move_clock(TTL_S + hours * 3600)
        assert await sweep(world) == 0
    assert await world.status(payment) == "PROCESSING"
    world.gateway.answer_close = CLOSED
    await inquire_all(world)
    assert await world.status(payment) == "EXPIRED"


async def test_a_gateway_that_was_not_queried_does_not_count_as_unresponsive(world: World) -> None:
    payment = await create_elapsed_processing(world)
    await sweep(world)
    await world.move_clock(TTL_S + 24 * 3600)  # the worker was down, so there was no inquiry
    assert await sweep(world) == 0
    await inquire_all(world)
    assert await world.status(payment) == "EXPIRED"


async def test_a_gateway_that_responds_again_does_not_count_as_unresponsive(world: World) -> None:
    payment = await create_elapsed_processing(world)
    world.gateway.answer_close = OutcomeUnknown(detail="timeout")
    await sweep(world)
    await inquire_all(world)
    world.gateway.answer_close = SessionReport(state=GatewaySessionState.AUTHORISING)
    await world.move_clock(TTL_S + 10)
    await inquire_all(world)
    await world.move_clock(TTL_S + 24 * 3600)
    assert await sweep(world) == 0
    assert await world.status(payment) == "PROCESSING"


async def test_a_payment_whose_buyer_cancelled_at_the_gateway_expires_immediately(
    world: World,
) -> None:
    payment = await world.create()
    selected = await world.select(payment)
    await world.report(
        payment, selected.session.id, SessionReport(state=GatewaySessionState.CANCELLED)
    )
    assert await world.status(payment) == "PROCESSING"
    await world.move_clock(TTL_S)
    assert await sweep(world) == 1
    assert await world.events(payment) == ["payment.expired"]
    assert world.gateway.closed == []
