"""Payments that are created by the same statement have separate outcomes."""

import asyncio
from decimal import Decimal
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from payintent.core.errors import ErrorCode, RefusedError
from payintent.payments import new_store as new_payments
from payintent.payments import store as payment_store
from payintent.payments.create import CreatedPayment
from payintent.payments.model import CreatePaymentRequest
from payintent.payments.new_store import NewPayment
from tests.support.race_staging import hold_transaction, wait_until_blocked
from tests.support.world import World


async def create_together(
    world: World, *requests: CreatePaymentRequest
) -> list[asyncio.Task[CreatedPayment]]:
    """Start creation requests in one batch: they queue behind a request that runs alone."""
    creator = world.service.payment_creator
    leading = asyncio.create_task(creator.create(world.request()))
    tasks = [asyncio.create_task(creator.create(request)) for request in requests]
    await leading
    return tasks


def new_payment(world: World, request: CreatePaymentRequest) -> NewPayment:
    ids = world.id_generator
    return NewPayment(ids.new_id(), ids.new_checkout_id(), request)


async def outcome(creation: asyncio.Task[CreatedPayment]) -> Any:
    try:
        return await creation
    except (RefusedError, asyncpg.PostgresError) as error:
        return error


async def test_a_batch_writes_the_same_rows_as_single_creates(world: World) -> None:
    alone = await world.service.payment_creator.create(world.request(country="TH"))
    requests = [world.request(country=country) for country in ("TH", None, "JP")]
    results = [await task for task in await create_together(world, *requests)]
    for result, request in zip(results, requests, strict=True):
        assert result.country == request.country
        assert not result.replayed
        stored = await payment_store.get(world.database, result.payment.id)
        assert stored is not None
        assert stored.payment == result.payment
        by_checkout = await payment_store.find_by_checkout(
            world.database, result.payment.checkout_id
        )
        assert by_checkout is not None
        assert by_checkout.payment == result.payment
        lifetime = result.payment.expires_at - result.payment.created_at
        assert lifetime == alone.payment.expires_at - alone.payment.created_at
    assert len({item.payment.created_at for item in results}) == 1  # a single statement
    rows = await world.rows("SELECT * FROM payment")
    own_columns = {"id", "checkout_id", "created_at", "updated_at", "expires_at"}
    assert len({str({k: v for k, v in row.items() if k not in own_columns}) for row in rows}) == 1


async def test_an_invalid_row_in_a_batch_does_not_fail_the_other_rows(world: World) -> None:
    invalid = world.request(amount=Decimal(0))  # refused by the table's constraint
    requests = [world.request(), invalid, world.request()]
    first, second, third = await create_together(world, *requests)
    assert isinstance(await outcome(second), asyncpg.CheckViolationError)
    for task in (first, third):
        assert not (await task).replayed
    for table in ("payment", "idempotency", "checkout"):
        assert len(await world.rows(f"SELECT FROM {table}")) == 3


async def test_used_keys_in_a_batch_are_replayed_or_refused_individually(world: World) -> None:
    first = world.request()
    original = await world.service.payment_creator.create(first)
    changed = world.request(key=first.key)  # the same key with a different body
    again, fresh, conflict = await create_together(world, first, world.request(), changed)
    replayed = await again
    assert (replayed.payment, replayed.replayed) == (original.payment, True)
    assert not (await fresh).replayed
    error = await outcome(conflict)
    assert error.code is ErrorCode.IDEMPOTENCY_CONFLICT
    assert len(await world.rows("SELECT FROM payment")) == 3


async def test_different_bodies_with_the_same_new_key_create_a_single_payment(world: World) -> None:
    key = uuid4()
    requests = [world.request(key=key) for _ in range(3)] + [world.request()]
    results = [await outcome(task) for task in await create_together(world, *requests)]
    assert sum(isinstance(result, CreatedPayment) for result in results[:3]) == 1
    assert {result.code for result in results if isinstance(result, RefusedError)} == {
        ErrorCode.IDEMPOTENCY_CONFLICT
    }
    assert isinstance(results[3], CreatedPayment)


async def test_a_key_locked_by_another_transaction_does_not_block_the_rest_of_a_batch(
    world: World,
) -> None:
    request = world.request()
    payment = new_payment(world, request)
    async with hold_transaction(world, lambda tx: new_payments.create(tx, payment)) as first:
        requests = [world.request(), request, world.request()]
        before, waiting, after = await create_together(world, *requests)
        assert not (await before).replayed
        assert not (await after).replayed
        await wait_until_blocked(world, waiting)
        await first.commit()
        result = await waiting
    assert (result.payment.id, result.replayed) == (payment.id, True)


async def test_concurrent_batches_claim_their_keys_in_the_same_order(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the order differed, the batches could deadlock."""
    # A batch that waits for 50 ms is split by the batcher, which is not part of this test.
    monkeypatch.setattr(new_payments, "_BATCH_LOCK_TIMEOUT", "60s")
    requests = [world.request() for _ in range(40)]
    database = world.database
    batches = [[new_payment(world, request) for request in requests] for _ in range(2)]
    batches[1].reverse()
    results = await asyncio.gather(
        *(new_payments.create_batch(database, batch) for batch in batches)
    )
    assert sorted(sum(times is not None for times in result) for result in results) == [0, 40]


async def test_a_batch_creates_the_payment_of_a_cancelled_caller_and_its_key_is_replayed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    # This prevents the batcher from splitting the batch.
    monkeypatch.setattr(new_payments, "_BATCH_LOCK_TIMEOUT", "60s")
    requests = [world.request() for _ in range(3)]
    async with hold_transaction(
        world, lambda tx: new_payments.create(tx, new_payment(world, requests[0]))
    ) as key:
        first, second, third = await create_together(world, *requests)
        await wait_until_blocked(world, third)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        await key.roll_back()
        assert [(await task).replayed for task in (first, third)] == [False, False]
    assert (await world.service.payment_creator.create(requests[1])).replayed


async def test_a_caller_cancelled_before_its_batch_starts_does_not_create_a_payment(
    world: World,
) -> None:
    creator = world.service.payment_creator
    requests = [world.request() for _ in range(4)]
    first, second, third, fourth = (asyncio.create_task(creator.create(r)) for r in requests)
    await asyncio.sleep(0)
    third.cancel()
    await asyncio.gather(first, second, third, fourth, return_exceptions=True)
    assert not (await creator.create(requests[2])).replayed
