"""Callbacks that share a transaction have separate outcomes."""

import asyncio
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest

from payintent.callbacks import receive as receive_callback
from payintent.callbacks.receive import CallbackReceiver, CallbackResult
from payintent.callbacks.store import NewCallback, add
from payintent.core.errors import StorageUnavailableError
from payintent.db import batcher
from payintent.db.database import Database
from payintent.db.driver import connect_as
from payintent.db.pool import ConnectionPool
from payintent.gateways.port import GatewaySessionState, SessionReport, VerifiedCallback
from payintent.payments import store as payment_store
from payintent.payments.model import Payment
from tests.callbacks.test_receive import selected
from tests.support.database_proxy import open_freezable_proxy
from tests.support.fakes import captured, declined
from tests.support.race_staging import hold_transaction, wait_until_blocked
from tests.support.timeouts import PATIENCE_S
from tests.support.world import World, patient

_BLOCKERS = """
    SELECT DISTINCT pg_blocking_pids(pid)
    FROM pg_stat_activity
    WHERE datname = current_database() AND cardinality(pg_blocking_pids(pid)) > 0
"""
Tasks = list[asyncio.Task[CallbackResult]]


def paid(session_id: UUID, minor: int = 159000, name: str | None = None) -> VerifiedCallback:
    """Return a callback about a capture of its own session."""
    report = captured(minor, reference=f"cap-{session_id}")
    return VerifiedCallback(id=name or uuid4().hex, session_id=session_id, report=report)


def told(session_id: UUID, report: SessionReport) -> VerifiedCallback:
    return VerifiedCallback(id=uuid4().hex, session_id=session_id, report=report)


def start(world: World, receiver: CallbackReceiver, *callbacks: VerifiedCallback) -> Tasks:
    """Start callbacks in one batch, which fills while the leading callback runs."""
    nobodys = world.id_generator.new_session_id()
    leading = VerifiedCallback(id=f"leads {uuid4()}", session_id=nobodys)
    return [
        asyncio.create_task(receiver.receive(world.account_id, callback, b"{}"))
        for callback in (leading, *callbacks)
    ]


async def receive(world: World, *callbacks: VerifiedCallback) -> list[Any]:
    """Process callbacks in one batch, and return the outcome of each."""
    leading, *tasks = start(world, world.service.callback_receiver, *callbacks)
    await leading
    return await asyncio.gather(*tasks, return_exceptions=True)


async def transactions(world: World, *callbacks: VerifiedCallback) -> int:
    """Count the transactions that stored callbacks."""
    rows = await world.rows(
        "SELECT DISTINCT xmin::text FROM callback WHERE callback_id = ANY($1::text[])",
        [callback.id for callback in callbacks],
    )
    return len(rows)


async def are_paid(world: World, *payments: Payment) -> None:
    for payment in payments:
        assert await world.status(payment) == "PAID"
        assert await world.events(payment) == ["payment.completed"]
        assert await world.cases(payment) == []


async def test_a_batch_is_one_transaction_with_the_same_results_as_separate_callbacks(
    world: World,
) -> None:
    selections = [await selected(world) for _ in range(5)]
    callbacks = [paid(session_id) for _, session_id in selections]
    results = await receive(world, *callbacks)
    assert results == [CallbackResult(True, payment.id) for payment, _ in selections]
    await are_paid(world, *(payment for payment, _ in selections))
    assert await transactions(world, *callbacks) == 1
    rows = await world.rows("SELECT payment_id, reference, credited FROM capture")
    assert {(row["payment_id"], row["reference"], row["credited"]) for row in rows} == {
        (payment.id, f"cap-{session_id}", True) for payment, session_id in selections
    }
    sessions = await world.rows("SELECT DISTINCT life, outcome FROM session")
    assert [dict(row) for row in sessions] == [{"life": "ended", "outcome": "captured"}]


async def test_each_callback_of_a_batch_has_its_own_result(world: World) -> None:
    """A mismatch, a decline and unassigned money do not affect other payments."""
    (right, a), (wrong, b), (refused, c) = [await selected(world) for _ in range(3)]
    callbacks = [
        paid(a),
        paid(b, 1),
        told(c, declined()),
        paid(world.id_generator.new_session_id()),
    ]
    results = await receive(world, *callbacks)
    assert all(result.is_new for result in results)
    assert await transactions(world, *callbacks) == 1
    await are_paid(world, right)
    assert await world.status(wrong) == await world.status(refused) == "FAILED"
    assert await world.cases(wrong) == ["AMOUNT_MISMATCH"]
    assert await world.cases(refused) == []
    [case] = await world.rows("SELECT kind FROM money_case WHERE payment_id IS NULL")
    assert case["kind"] == "UNKNOWN_REFERENCE"


async def test_a_bad_row_in_a_batch_does_not_affect_the_rest(world: World) -> None:
    selections = [await selected(world) for _ in range(3)]
    amounts = (159000, -1, 159000)  # the constraint rejects the second
    callbacks = [
        paid(session_id, minor) for (_, session_id), minor in zip(selections, amounts, strict=True)
    ]
    results = await receive(world, *callbacks)
    assert isinstance(results[1], asyncpg.CheckViolationError)
    assert results[0].is_new
    assert results[2].is_new
    await are_paid(world, selections[0][0], selections[2][0])
    assert await world.status(selections[1][0]) == "PROCESSING"
    assert await world.rows("SELECT FROM callback WHERE callback_id = $1", callbacks[1].id) == []


async def test_duplicates_in_a_batch_are_stored_and_applied_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batcher, "_RUNNING_MAX", 1)  # so that no batch overtakes the first
    (payment, session_id), (other, other_session) = [await selected(world) for _ in range(2)]
    stored = told(session_id, SessionReport(state=GatewaySessionState.OPEN))
    await receive(world, stored)
    callback = paid(session_id, name="one")
    another = paid(other_session)
    results = await receive(world, callback, stored, callback, another, callback)
    assert [result.is_new for result in results[1::2]] == [False, True]
    assert sum(result.is_new for result in results[::2]) == 1
    assert await transactions(world, callback, another) == 1
    assert await world.events(payment) == await world.events(other) == ["payment.completed"]
    assert len(await world.rows("SELECT FROM callback WHERE callback_id = 'one'")) == 1


async def test_callbacks_for_two_sessions_of_a_payment_see_each_others_changes(
    world: World,
) -> None:
    payment, first = await selected(world)
    second = (await world.select(payment, world.transfer)).session.id
    (other, other_session) = await selected(world)
    callbacks = [paid(first), paid(second), paid(other_session)]
    results = await receive(world, *callbacks)
    assert all(result.is_new for result in results)
    assert await transactions(world, *callbacks) == 3  # the batch was split
    assert await world.status(payment) == "PAID"
    assert await world.events(payment) == ["payment.completed"]
    assert await world.cases(payment) == ["ORPHAN_CAPTURE"]
    await are_paid(world, other)


async def test_a_capture_reported_for_two_sessions_pays_only_one_session(world: World) -> None:
    """A capture arrived for an unknown session, and two callbacks of a batch could claim it."""
    (first, session_id), (second, two) = [await selected(world) for _ in range(2)]
    report = captured(159000, reference="claimed twice")
    await receive(world, told(world.id_generator.new_session_id(), report))
    results = await receive(world, told(session_id, report), told(two, report))
    assert all(result.is_new for result in results)
    statuses = sorted([await world.status(first), await world.status(second)])
    assert statuses == ["PAID", "PROCESSING"]
    rows = await world.rows("SELECT payment_id FROM capture WHERE credited")
    assert [row["payment_id"] for row in rows] == [
        payment.id for payment in (first, second) if await world.status(payment) == "PAID"
    ]


async def test_a_locked_payment_does_not_delay_other_payments(
    world: World,
) -> None:
    selections = [await selected(world) for _ in range(3)]
    callbacks = [paid(session_id) for _, session_id in selections]
    database = Database(patient(world.database.settings), id_generator=world.id_generator)
    receiver = CallbackReceiver(database)
    async with hold_transaction(
        world, lambda tx: payment_store.lock(tx, [selections[1][0].id])
    ) as first:
        leading, *tasks = start(world, receiver, *callbacks)
        await asyncio.gather(leading, tasks[0], tasks[2])
        await wait_until_blocked(world, tasks[1])
        await first.commit()
        assert (await tasks[1]).is_new
    await are_paid(world, *(payment for payment, _ in selections))
    await database.close()


async def test_batches_of_two_processes_store_their_callbacks_in_the_same_order(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise, the batches could deadlock."""
    monkeypatch.setattr(receive_callback, "LOCK_TIMEOUT_MS", 60_000)
    selections = [await selected(world) for _ in range(3)]
    callbacks = [paid(session_id, name=f"{n}") for n, (_, session_id) in enumerate(selections)]
    other = CallbackReceiver(world.database)
    key = NewCallback(
        account_id=world.account_id,
        callback_id="1",
        session_id=None,
        refund_id=None,
        report=None,
        body=b"",
    )
    async with hold_transaction(world, lambda tx: add(tx, [key])) as first:
        tasks = start(world, world.service.callback_receiver, *callbacks)[1:]
        await wait_until_blocked(world, tasks[0])
        tasks += start(world, other, *reversed(callbacks))[1:]
        await wait_until_blocked(world, tasks[0], tasks[-1])
        assert len(await world.rows(_BLOCKERS)) == 2  # the second waits for the first
        await first.roll_back()
        results = await asyncio.gather(*tasks)
    assert [result.is_new for result in results] == [True] * 3 + [False] * 3
    assert await transactions(world, *callbacks) == 1
    await are_paid(world, *(payment for payment, _ in selections))


async def test_a_lost_commit_response_fails_every_caller_but_keeps_the_commit(
    world: World,
) -> None:
    selections = [await selected(world) for _ in range(3)]
    callbacks = [paid(session_id) for _, session_id in selections]
    async with (
        open_freezable_proxy(world.database.settings.database_url) as proxy,
        hold_transaction(world, lambda tx: payment_store.lock(tx, [selections[0][0].id])) as first,
    ):
        pool = ConnectionPool(lambda: connect_as(proxy.url, {}, pooled=False), 2, PATIENCE_S)
        settings, ids = world.database.settings, world.id_generator
        receiver = CallbackReceiver(Database(settings, pool=pool, id_generator=ids))
        tasks = [
            asyncio.create_task(receiver.receive(world.account_id, callback, b"{}"))
            for callback in callbacks
        ]
        proxy.freeze_after(b"COMMIT")
        await proxy.holding()
        await first.commit()
        pool.terminate()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(result) for result in results] == [StorageUnavailableError] * 3
        proxy.thaw()
        await pool.close()
    again = await receive(world, *callbacks)
    assert [result.is_new for result in again] == [True, False, False]
    await are_paid(world, *(payment for payment, _ in selections))


async def test_a_sender_that_disconnects_during_its_batch_does_not_affect_the_rest(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receive_callback, "LOCK_TIMEOUT_MS", 60_000)  # still a single batch
    selections = [await selected(world) for _ in range(3)]
    callbacks = [paid(session_id) for _, session_id in selections]
    async with hold_transaction(
        world, lambda tx: payment_store.lock(tx, [selections[0][0].id])
    ) as first:
        leading, *tasks = start(world, world.service.callback_receiver, *callbacks)
        await leading
        await wait_until_blocked(world, tasks[2])
        tasks[1].cancel()
        with pytest.raises(asyncio.CancelledError):
            await tasks[1]
        await first.commit()
        assert [(await task).is_new for task in (tasks[0], tasks[2])] == [True, True]
    assert await transactions(world, *callbacks) == 1
    await are_paid(world, *(payment for payment, _ in selections))


async def test_a_sender_that_disconnected_before_its_batch_is_not_served(world: World) -> None:
    selections = [await selected(world) for _ in range(2)]
    callbacks = [paid(session_id) for _, session_id in selections]
    tasks = start(world, world.service.callback_receiver, *callbacks)
    await asyncio.sleep(0)
    tasks[1].cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(results[1], asyncio.CancelledError)
    assert results[2].is_new
    assert await world.status(selections[0][0]) == "PROCESSING"
    assert (await receive(world, callbacks[0]))[0].is_new
