"""The lifetime and deletion of idempotency keys."""

from typing import Any
from uuid import UUID, uuid4

import pytest

from payintent.core.errors import ErrorCode, RefusedError
from payintent.payments import idempotency_store
from payintent.payments.cancel import cancel_by_merchant
from payintent.payments.model import Payment
from tests.support.world import World

DAY_S = 24 * 3600
SAME: dict[str, Any] = {"request_hash": b"the same request"}


async def _cancel(world: World, payment: Payment, key: UUID) -> bool:
    async with world.database.transaction() as tx:
        return await cancel_by_merchant(tx, payment, key)


async def test_a_key_returns_the_same_payment_for_a_day(world: World) -> None:
    key = uuid4()
    first = await world.create(key=key, **SAME)
    await world.move_clock(DAY_S - 60)
    again = await world.create(key=key, **SAME)
    assert again == first


async def test_a_key_can_be_reused_for_any_request_after_a_day(world: World) -> None:
    key = uuid4()
    first = await world.create(key=key, **SAME)
    await world.move_clock(DAY_S + 1)
    second = await world.create(key=key, request_hash=b"another request")
    assert second.id != first.id
    assert await world.create(key=key, request_hash=b"another request") == second


async def test_an_expired_key_is_not_found_even_before_it_is_pruned(world: World) -> None:
    key, database = uuid4(), world.database
    await world.create(key=key, **SAME)
    assert (
        await idempotency_store.find_first_request(database, world.merchant_id, "create", key)
        is not None
    )
    await world.move_clock(DAY_S + 1)
    assert (
        await idempotency_store.find_first_request(database, world.merchant_id, "create", key)
        is None
    )


async def test_reusing_a_key_for_another_request_is_a_conflict(world: World) -> None:
    key = uuid4()
    await world.create(key=key, **SAME)
    with pytest.raises(RefusedError) as error:
        await world.create(key=key, request_hash=b"another request")
    assert error.value.code is ErrorCode.IDEMPOTENCY_CONFLICT
    [row] = await world.rows("SELECT count(*) AS found FROM payment")
    assert row["found"] == 1


async def test_a_replay_returns_the_payment_as_it_was_created(world: World) -> None:
    key = uuid4()
    first = await world.create(key=key, **SAME)
    await _cancel(world, first, uuid4())
    assert await world.create(key=key, **SAME) == first


async def test_the_same_key_can_be_used_for_a_creation_and_a_cancellation(world: World) -> None:
    key = uuid4()
    payment = await world.create(key=key, **SAME)
    assert await _cancel(world, payment, key)
    assert not await _cancel(world, payment, key)
    assert await world.events(payment) == ["payment.cancelled"]


async def test_a_key_that_cancelled_a_payment_cannot_cancel_another_payment(world: World) -> None:
    key, first, second = uuid4(), await world.create(), await world.create()
    await _cancel(world, first, key)
    with pytest.raises(RefusedError) as error:
        await _cancel(world, second, key)
    assert error.value.code is ErrorCode.IDEMPOTENCY_CONFLICT
    assert await world.status(second) == "PENDING"


async def test_a_key_can_be_reused_after_a_refused_cancellation(world: World) -> None:
    key, selected, pending = uuid4(), await world.create(), await world.create()
    await world.select(selected)
    with pytest.raises(RefusedError, match="PROCESSING"):
        await _cancel(world, selected, key)
    assert await _cancel(world, pending, key)


async def test_merchants_have_separate_keys(world: World) -> None:
    key = uuid4()
    first = await world.create(key=key, **SAME)
    other_merchant = await world.add_merchant()
    second = await world.create(key=key, merchant_id=other_merchant.merchant.id, **SAME)
    assert second.id != first.id


async def test_old_keys_are_pruned_in_batches(world: World) -> None:
    database = world.database
    for _ in range(3):
        await world.create()
    await world.move_clock(DAY_S + 1)
    recent_key = uuid4()
    payment = await world.create(key=recent_key, **SAME)
    assert await idempotency_store.delete_old_keys(database, 2) == 2
    assert await idempotency_store.delete_old_keys(database, 2) == 1
    assert await idempotency_store.delete_old_keys(database, 2) == 0
    assert await world.create(key=recent_key, **SAME) == payment
