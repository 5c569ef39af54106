"""Staged races: the first transaction is held open, and the second waits for it."""

import asyncio
from typing import Any
from uuid import UUID, uuid4

import pytest

from payintent.callbacks.receive import CallbackResult
from payintent.core.errors import ErrorCode, RefusedError
from payintent.db.database import Tx
from payintent.gateways.port import OutcomeUnknown, SessionReport, VerifiedCallback
from payintent.payment_sessions.expire import expire_processing
from payintent.payment_sessions.open_session import SelectedSession
from payintent.payment_sessions.settle import settle_session
from payintent.payments import idempotency_store
from payintent.payments import sessions_store as session_store
from payintent.payments import store as payment_store
from payintent.payments.cancel import cancel_by_buyer, cancel_by_merchant
from payintent.payments.expire import expire_if_due, expire_pending
from payintent.payments.idempotency_store import FirstRequest
from payintent.payments.model import CreatePaymentRequest, Payment
from tests.payments.test_expire import inquire_all
from tests.support.fakes import captured, declined
from tests.support.race_staging import (
    hold_transaction,
    open_with_short_lock_timeout,
    wait_until_blocked,
)
from tests.support.world import World

EXACT = captured(159000)


async def refusal(task: asyncio.Task[Any]) -> RefusedError:
    with pytest.raises(RefusedError) as error:
        await task
    return error.value


def payment_lock(payment: Payment) -> Any:
    return lambda tx: payment_store.lock(tx, [payment.id])


def cancellation(world: World, payment: Payment, key: UUID | None = None) -> Any:
    return lambda tx: cancel_by_merchant(tx, payment, key)


def settlement(
    world: World, payment: Payment, session_id: UUID, report: SessionReport = EXACT
) -> Any:
    return lambda tx: settle_session(tx, payment.id, session_id, report)


def start(world: World, work: Any) -> asyncio.Task[Any]:
    async def run() -> Any:
        async with world.database.transaction() as tx:
            return await work(tx)

    return asyncio.create_task(run())


def start_select(world: World, payment: Payment, method: int) -> asyncio.Task[SelectedSession]:
    return asyncio.create_task(world.select(payment, method))


def start_callback(
    world: World, session_id: UUID, callback_id: str, report: SessionReport = EXACT
) -> asyncio.Task[CallbackResult]:
    callback = VerifiedCallback(id=callback_id, session_id=session_id, report=report)
    service = world.service
    return asyncio.create_task(service.callback_receiver.receive(world.account_id, callback, b""))


async def start_slow_selection(world: World, payment: Payment) -> asyncio.Task[SelectedSession]:
    """Start a selection; the gateway does not respond until `hold` is set."""
    world.gateway.hold = asyncio.Event()
    world.gateway.asked.clear()
    task = start_select(world, payment, world.card)
    await world.gateway.asked.wait()
    return task


async def test_the_second_of_two_concurrent_cancellations_waits_and_is_refused(
    world: World,
) -> None:
    payment = await world.create()
    async with hold_transaction(world, cancellation(world, payment)) as first:
        second = start(world, cancellation(world, payment))
        await wait_until_blocked(world, second)
        await first.commit()
        error = await refusal(second)
    assert error.code is ErrorCode.INVALID_PAYMENT_STATE
    assert "CANCELLED" in error.message
    assert await world.events(payment) == ["payment.cancelled"]


async def test_the_second_of_two_cancellations_with_the_same_key_waits_and_is_replayed(
    world: World,
) -> None:
    payment, key = await world.create(), uuid4()
    async with hold_transaction(world, cancellation(world, payment, key)) as first:
        second = start(world, cancellation(world, payment, key))
        await wait_until_blocked(world, second)
        await first.commit()
        assert await second is False
    assert await world.events(payment) == ["payment.cancelled"]


async def test_a_waiting_cancellation_succeeds_if_the_first_is_rolled_back(world: World) -> None:
    payment, key = await world.create(), uuid4()
    async with hold_transaction(world, cancellation(world, payment, key)) as first:
        second = start(world, cancellation(world, payment, key))
        await wait_until_blocked(world, second)
        await first.roll_back()
        assert await second is True


async def test_the_merchants_cancellation_is_refused_after_a_concurrent_buyer_cancellation(
    world: World,
) -> None:
    payment = await world.create()
    async with hold_transaction(world, lambda tx: cancel_by_buyer(tx, payment.id)) as first:
        second = start(world, cancellation(world, payment))
        await wait_until_blocked(world, second)
        await first.commit()
        assert (await refusal(second)).code is ErrorCode.INVALID_PAYMENT_STATE
    assert await world.events(payment) == []


async def test_a_selection_that_waits_for_a_cancellation_is_refused_without_a_gateway_request(
    world: World,
) -> None:
    payment = await world.create()
    async with hold_transaction(world, cancellation(world, payment)) as first:
        second = start_select(world, payment, world.card)
        await wait_until_blocked(world, second)
        await first.commit()
        assert (await refusal(second)).code is ErrorCode.INVALID_CHECKOUT_STATE
    assert world.gateway.created == []


async def test_a_cancellation_that_waits_for_a_settlement_is_refused(world: World) -> None:
    payment = await world.create()
    task = await start_slow_selection(world, payment)
    [session] = await world.rows("SELECT id FROM session")
    async with hold_transaction(
        world, settlement(world, payment, session["id"], declined())
    ) as first:
        second = start(world, cancellation(world, payment))
        await wait_until_blocked(world, second)
        await first.commit()
        assert "FAILED" in (await refusal(second)).message
    world.gateway.hold.set()  # type: ignore[union-attr]
    assert (await task).payment.status == "FAILED"
    assert await world.events(payment) == ["payment.failed"]


async def test_a_cancellation_succeeds_during_a_selection_with_a_slow_gateway(world: World) -> None:
    payment = await world.create()
    task = await start_slow_selection(world, payment)
    await start(world, cancellation(world, payment))
    world.gateway.hold.set()  # type: ignore[union-attr]
    assert (await refusal(task)).code is ErrorCode.INVALID_CHECKOUT_STATE
    [session] = await world.rows("SELECT life, reference FROM session")
    assert session["life"] == "closing"
    assert session["reference"] is not None
    assert await world.events(payment) == ["payment.cancelled"]


async def test_a_payment_expires_during_a_selection_with_a_slow_gateway(world: World) -> None:
    payment = await world.create()
    task = await start_slow_selection(world, payment)
    await world.move_clock(1801)
    assert await start(world, lambda tx: expire_pending(tx, 10)) == 1
    world.gateway.hold.set()  # type: ignore[union-attr]
    assert (await refusal(task)).code is ErrorCode.CHECKOUT_EXPIRED
    [session] = await world.rows("SELECT life FROM session")
    assert session["life"] == "closing"
    assert await world.events(payment) == ["payment.expired"]


async def test_a_selection_that_finishes_after_the_expiry_time_is_refused_as_expired(
    world: World,
) -> None:
    payment = await world.create()
    task = await start_slow_selection(world, payment)
    await world.move_clock(1801)
    world.gateway.hold.set()  # type: ignore[union-attr]
    assert (await refusal(task)).code is ErrorCode.CHECKOUT_EXPIRED
    assert await world.status(payment) == "PENDING"


async def test_the_buyer_can_select_again_after_an_inquiry_abandoned_a_selection(
    world: World,
) -> None:
    payment = await world.create()
    task = await start_slow_selection(world, payment)
    await world.move_clock(31)
    [due_session] = await session_store.claim_due(world.database, 10, 60, [])
    await world.service.session_inquirer.inquire(due_session)
    world.gateway.hold.set()  # type: ignore[union-attr]
    assert (await refusal(task)).code is ErrorCode.CONFLICT
    assert await world.status(payment) == "PENDING"
    assert (await world.select(payment)).payment.status == "PROCESSING"


async def test_a_second_selection_is_told_to_retry_while_the_first_runs(world: World) -> None:
    payment = await world.create()
    first = await start_slow_selection(world, payment)
    error = await refusal(start_select(world, payment, world.transfer))
    assert (error.code, error.retry_after_s) == (ErrorCode.CONFLICT, 1)
    world.gateway.hold.set()  # type: ignore[union-attr]
    assert (await first).payment.status == "PROCESSING"
    assert len(world.gateway.created) == 1


async def test_concurrent_selections_send_a_single_request_to_the_gateway(world: World) -> None:
    payment = await world.create()
    world.gateway.hold = asyncio.Event()
    async with hold_transaction(world, payment_lock(payment)) as first:
        tasks = [start_select(world, payment, item) for item in (world.card, world.transfer)]
        await wait_until_blocked(world, *tasks)
        await first.commit()
        finished, [winner] = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        assert (await refusal(finished.pop())).code is ErrorCode.CONFLICT
    world.gateway.hold.set()
    assert (await winner).payment.status == "PROCESSING"
    assert len(world.gateway.created) == 1


@pytest.mark.parametrize(("report", "status"), [(EXACT, "PAID"), (declined(), "FAILED")])
async def test_a_callback_before_the_gateway_response_completes_the_selection(
    world: World, report: SessionReport, status: str
) -> None:
    payment = await world.create()
    task = await start_slow_selection(world, payment)
    [session] = await world.rows("SELECT id FROM session")
    await start_callback(world, session["id"], "early", report)
    assert await world.status(payment) == status
    world.gateway.hold.set()  # type: ignore[union-attr]
    selected = await task
    assert selected.payment.status == status
    assert selected.session.id == session["id"]
    assert len(await world.events(payment)) == 1
    assert (await world.session(session["id"]))["reference"] is not None


async def test_a_callback_that_waits_for_an_expiry_opens_a_late_payment_case(world: World) -> None:
    payment = await world.create()
    session = (await world.select(payment)).session
    await world.move_clock(1801)
    await start(world, lambda tx: expire_processing(tx, 10, 30))
    world.gateway.answer_close = OutcomeUnknown(detail="silence")
    await inquire_all(world)
    await world.move_clock(1901)  # the gateway has not responded since
    expiry = hold_transaction(world, lambda tx: expire_processing(tx, 10, 30))
    async with expiry as first:
        second = start_callback(world, session.id, "one")
        await wait_until_blocked(world, second)
        await first.commit()
        assert (await second).is_new
    assert await world.status(payment) == "EXPIRED"
    assert await world.events(payment) == ["payment.expired"]
    assert await world.cases(payment) == ["LATE_PAYMENT"]


async def test_the_expiry_skips_a_payment_that_is_being_settled(world: World) -> None:
    payment = await world.create()
    session = (await world.select(payment)).session
    await world.move_clock(1801)

    async def expire() -> int:
        return await start(world, lambda tx: expire_processing(tx, 10, 30))

    async with hold_transaction(world, settlement(world, payment, session.id)) as first:
        assert await expire() == 0
        await first.commit()
    assert await expire() == 0
    assert await world.status(payment) == "PAID"
    assert await world.events(payment) == ["payment.completed"]


async def test_concurrent_readers_of_an_elapsed_payment_expire_it_once(world: World) -> None:
    payment = await world.create()
    await world.move_clock(1801)
    async with hold_transaction(world, payment_lock(payment)) as first:
        tasks = [asyncio.create_task(expire_if_due(world.database, payment.id)) for _ in range(2)]
        await wait_until_blocked(world, *tasks)
        await first.commit()
        await asyncio.gather(*tasks)
    assert await world.events(payment) == ["payment.expired"]


async def test_a_callback_that_is_delivered_twice_concurrently_is_applied_once(
    world: World,
) -> None:
    payment = await world.create()
    session = (await world.select(payment)).session
    async with hold_transaction(world, payment_lock(payment)) as first:
        tasks = [start_callback(world, session.id, "one") for _ in range(2)]
        await wait_until_blocked(world, *tasks)
        await first.commit()
        assert sorted([(await item).is_new for item in tasks]) == [False, True]
    assert await world.events(payment) == ["payment.completed"]


async def test_a_capture_in_two_concurrent_callbacks_is_credited_once(world: World) -> None:
    payment = await world.create()
    session = (await world.select(payment)).session
    async with hold_transaction(world, payment_lock(payment)) as first:
        tasks = [start_callback(world, session.id, name) for name in ("one", "two")]
        await wait_until_blocked(world, *tasks)
        await first.commit()
        assert [(await item).is_new for item in tasks] == [True, True]
    assert len(await world.rows("SELECT 1 FROM capture")) == 1
    assert await world.events(payment) == ["payment.completed"]
    assert await world.cases(payment) == []


async def test_concurrent_captures_complete_the_payment_and_open_a_case(world: World) -> None:
    payment = await world.create()
    session = (await world.select(payment)).session
    async with hold_transaction(world, settlement(world, payment, session.id)) as first:
        second = start_callback(world, session.id, "two", captured(159000, reference="cap-2"))
        await wait_until_blocked(world, second)
        await first.commit()
        await second
    assert await world.events(payment) == ["payment.completed"]
    assert await world.cases(payment) == ["DOUBLE_PAYMENT"]


def _creation(world: World, key: UUID, fingerprint: bytes) -> Any:
    """Run a creation request with this key in a transaction that blocks others."""

    async def work(tx: Tx) -> None:
        payment = await world.create()  # represents the payment of the first request
        first = FirstRequest(request_hash=fingerprint, payment_id=payment.id)
        assert await idempotency_store.claim_key(tx, world.merchant_id, "create", key, first)

    return work


async def test_the_second_of_two_creates_with_the_same_key_waits_and_is_replayed(
    world: World,
) -> None:
    key = uuid4()
    async with hold_transaction(world, _creation(world, key, b"same")) as first:
        second = asyncio.create_task(world.create(key=key, request_hash=b"same"))
        await wait_until_blocked(world, second)
        await first.commit()
        replayed = await second
    [row] = await world.rows("SELECT id FROM payment")
    assert replayed.id == row["id"]


async def test_a_create_that_waits_for_a_different_request_is_a_conflict(world: World) -> None:
    key = uuid4()
    async with hold_transaction(world, _creation(world, key, b"same")) as first:
        second = asyncio.create_task(world.create(key=key, request_hash=b"other"))
        await wait_until_blocked(world, second)
        await first.commit()
        assert (await refusal(second)).code is ErrorCode.IDEMPOTENCY_CONFLICT


async def test_a_waiting_create_succeeds_if_the_first_is_rolled_back(world: World) -> None:
    key = uuid4()
    async with hold_transaction(world, _creation(world, key, b"same")) as first:
        second = asyncio.create_task(world.create(key=key, request_hash=b"same"))
        await wait_until_blocked(world, second)
        await first.roll_back()
        created = await second
    assert await payment_store.get(world.database, created.id) is not None


async def test_a_create_that_waits_too_long_is_told_to_retry(world: World) -> None:
    key, template = uuid4(), await world.create()
    async with (
        hold_transaction(world, _creation(world, key, b"same")),
        open_with_short_lock_timeout(world) as service,
    ):
        request = CreatePaymentRequest(
            merchant_id=world.merchant_id,
            key=key,
            request_hash=b"same",
            currency=template.currency,
            amount=template.amount,
            amount_text=template.amount_text,
            payer_uid=template.payer_uid,
            payer_email=None,
            include_pegged_assets=True,
            metadata="{}",
            tax_manager=template.tax_manager,
            expires_in_s=1800,
            country=None,
        )
        waiting = asyncio.create_task(service.payment_creator.create(request))
        error = await refusal(waiting)
    assert (error.code, error.retry_after_s) == (ErrorCode.CONFLICT, 1)
