"""Database errors are translated, and transitions detect concurrent changes."""

import asyncio
from uuid import UUID

import pytest

from payintent.core.errors import InvalidTextError, LockTimeoutError, StorageUnavailableError
from payintent.db.database import Database, in_transaction
from payintent.payments import store as payment_store
from payintent.payments.cancel import cancel_by_merchant
from payintent.payments.model import PaymentTrigger, TransitionRequest
from payintent.payments.transitions import ConcurrentChangeError, apply_transitions
from payintent.service import open_service
from tests.support.ports import free_port
from tests.support.race_staging import open_with_short_lock_timeout
from tests.support.world import World


async def test_a_row_that_stays_locked_for_too_long_causes_a_lock_timeout(world: World) -> None:
    payment = await world.create()
    holder = await world.open_connection()
    async with open_with_short_lock_timeout(world) as service:
        async with holder.transaction():
            await holder.fetch("SELECT 1 FROM payment WHERE id = $1 FOR UPDATE", payment.id)
            with pytest.raises(LockTimeoutError):
                async with service.database.transaction() as tx:
                    await cancel_by_merchant(tx, payment, None)
        async with service.database.transaction() as tx:
            await cancel_by_merchant(tx, payment, None)
    await holder.close()


async def test_a_deadlock_is_reported_as_a_lock_timeout(world: World) -> None:
    """Migrations lock whole tables, in an order that transactions cannot know."""
    first, second = await world.create(), await world.create()
    has_locked = asyncio.Barrier(2)

    async def lock_payments(*payment_ids: UUID) -> None:
        async with world.database.transaction(lock_timeout_ms=60_000) as tx:
            await payment_store.lock(tx, payment_ids[:1])
            await has_locked.wait()
            await payment_store.lock(tx, payment_ids[1:])

    outcomes = await asyncio.gather(
        lock_payments(first.id, second.id),
        lock_payments(second.id, first.id),
        return_exceptions=True,
    )
    assert [type(outcome) for outcome in outcomes if outcome] == [LockTimeoutError]


@pytest.mark.parametrize(
    "changes",
    [
        *({"metadata": text} for text in ("{", "{'a':1}", "[1,]", '{"a":01}', "\x00", "")),
        {"metadata": '{"a":"' + "\x00" + '"}'},
        {"metadata": "[" * 100_000 + "]" * 100_000},
        {"payer_uid": "nul\x00"},
        {"amount_text": "1\x00"},
        {"payer_email": "\x00@example.com"},
    ],
    ids=repr,
)
async def test_text_that_the_database_rejects_is_reported_as_invalid(
    world: World, changes: dict[str, str]
) -> None:
    with pytest.raises(InvalidTextError):
        await world.create(**changes)
    assert await world.rows("SELECT 1 FROM idempotency") == []


async def test_an_unreachable_or_unopened_database_is_unavailable(world: World) -> None:
    url = f"postgresql://payintent@127.0.0.1:{free_port()}/payintent"
    database = Database(world.service.settings.model_copy(update={"database_url": url}))
    with pytest.raises(StorageUnavailableError):
        await database.open()
    with pytest.raises(StorageUnavailableError):
        await database.fetch("SELECT 1")


async def test_the_database_is_unavailable_if_the_pool_stays_exhausted_for_too_long(
    world: World,
) -> None:
    settings = world.service.settings.model_copy(
        update={"database_connections_max": 1, "database_acquire_timeout_s": 0.05}
    )
    service = await open_service(settings, {})
    async with service.database.transaction():
        with pytest.raises(StorageUnavailableError):
            await service.database.fetch("SELECT 1")
    assert len(await service.database.fetch("SELECT 1")) == 1
    await service.close()


async def test_after_a_terminated_connection_the_next_statement_succeeds(world: World) -> None:
    killer = await world.open_connection()

    async def run_on_terminated_connection() -> None:
        async with world.database.transaction() as tx:
            [row] = await tx.fetch("SELECT pg_backend_pid() AS pid")
            await killer.execute("SELECT pg_terminate_backend($1)", row["pid"])
            await tx.fetch("SELECT 1")

    with pytest.raises(StorageUnavailableError):
        await run_on_terminated_connection()
    assert len(await world.rows("SELECT 1")) == 1
    await killer.close()


async def test_an_exception_rolls_everything_back_and_does_not_notify_listeners(
    world: World,
) -> None:
    payment = await world.create()
    notifications: list[None] = []
    world.database.on_event = lambda: notifications.append(None)

    async def cancel_and_fail() -> None:
        async with world.database.transaction() as tx:
            await cancel_by_merchant(tx, payment, None)
            assert in_transaction.get()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await cancel_and_fail()
    assert not in_transaction.get()
    assert await world.status(payment) == "PENDING"
    assert (await world.events(payment), notifications) == ([], [])
    async with world.database.transaction() as tx:
        await cancel_by_merchant(tx, payment, None)
        assert notifications == []
    assert notifications == [None]


async def test_a_transition_fails_if_the_payment_changed_since_it_was_read(world: World) -> None:
    payment = await world.create()
    stored = await world.read(payment)
    await world.select(payment)
    transition = TransitionRequest(
        payment=stored.payment, trigger=PaymentTrigger.CANCEL, at=stored.now
    )
    with pytest.raises(ConcurrentChangeError):
        async with world.database.transaction() as tx:
            await apply_transitions(tx, [transition])
    assert await world.status(payment) == "PROCESSING"
    assert await world.events(payment) == []


async def test_a_concurrent_change_of_one_payment_rolls_back_the_whole_batch(world: World) -> None:
    good, stale = await world.create(), await world.create()
    await world.select(stale)

    async def expire_both() -> None:
        async with world.database.transaction() as tx:
            locked = await payment_store.lock(tx, [good.id])
            both = (*locked.payments, stale)
            moves = [
                TransitionRequest(payment=item, trigger=PaymentTrigger.EXPIRE, at=locked.now)
                for item in both
            ]
            await apply_transitions(tx, moves)

    with pytest.raises(ConcurrentChangeError):
        await expire_both()
    assert await world.status(good) == "PENDING"
    assert await world.events(good) == []


async def test_each_transition_increases_the_version_and_never_decreases_updated_at(
    world: World,
) -> None:
    payment = await world.create()
    await world.move_clock(60)
    selected = (await world.select(payment)).payment
    async with world.database.transaction() as tx:
        [locked] = (await payment_store.lock(tx, [payment.id])).payments
        earlier = TransitionRequest(
            payment=locked, trigger=PaymentTrigger.EXPIRE, at=payment.created_at
        )
        [expired] = await apply_transitions(tx, [earlier])
    assert (selected.version, expired.version) == (2, 3)
    assert expired.updated_at == selected.updated_at > payment.updated_at


async def test_concurrent_locks_of_the_same_payments_do_not_deadlock(world: World) -> None:
    ids = [(await world.create()).id for _ in range(4)]

    async def lock_payments(payment_ids: list[UUID]) -> int:
        async with world.database.transaction() as tx:
            return len((await payment_store.lock(tx, payment_ids)).payments)

    id_lists = [ids, ids[::-1]] * 4
    assert (
        await asyncio.gather(*(lock_payments(payment_ids) for payment_ids in id_lists)) == [4] * 8
    )


async def test_a_guarded_database_shares_the_id_generator_of_its_database(world: World) -> None:
    async def verify() -> None:
        pass

    guarded = world.database.make_guarded(verify)
    assert guarded.id_generator is world.database.id_generator
    for view in (world.database, guarded):
        async with view.transaction() as tx:
            assert tx.id_generator is world.database.id_generator


@pytest.mark.parametrize(
    "code", ["25P04", "53000", "53100", "53200", "53300", "53400", "57P04", "57P05", "58030"]
)
async def test_a_server_without_resources_or_that_ends_the_session_is_unavailable(
    world: World, code: str
) -> None:
    """For example, 53200 means out of memory, and 58030 that the disk returned an error."""
    with pytest.raises(StorageUnavailableError):
        await world.database.fetch(f"DO $$ BEGIN RAISE SQLSTATE '{code}'; END $$")


async def test_an_internal_error_in_postgresql_makes_the_database_unavailable(world: World) -> None:
    statement = """
        DO $$ BEGIN
            RAISE EXCEPTION 'server closed the connection unexpectedly' USING ERRCODE = 'XX000';
        END $$
    """
    with pytest.raises(StorageUnavailableError, match="closed the connection unexpectedly"):
        await world.database.fetch(statement)
    with pytest.raises(StorageUnavailableError, match="closed the connection unexpectedly"):
        async with world.database.transaction() as tx:
            await tx.fetch(statement)
