"""Attacks on deposits: dust, impossible amounts, and concurrent actions."""

import asyncio
import json
import os
import random
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import timedelta
from uuid import UUID

import asyncpg
import pytest

from payintent.accounting.ledger_check_store import find_differences
from payintent.chains import store as chain_store
from payintent.core.errors import ChainUnavailableError, RefusedError
from payintent.onchain.deposit_watcher import DepositWatcher
from payintent.payment_sessions.expire import expire_processing, expire_undecided
from payintent.payments.cancel import cancel_by_buyer
from payintent.payments.model import Payment, Session
from payintent.payments.store import get_change_markers
from tests.onchain.test_watchers import locked, wait_for_lock_waiters
from tests.support.deposits import TOTAL, DepositGround, add_factory
from tests.support.onchain import ChainWorld

pytestmark = pytest.mark.full

HALF = TOTAL // 2
SHOWN_MAX = 100
LARGEST = 2**256 - 1


@pytest.fixture
async def deposits(ground: ChainWorld) -> DepositGround:
    return await add_factory(ground, "USDT")


@pytest.fixture
async def raw(ground: ChainWorld) -> AsyncIterator[asyncpg.Connection]:
    connection = await ground.world.open_connection()
    yield connection
    await connection.close()


async def find_faults(deposits: DepositGround, *session_ids: UUID) -> list[str]:
    """Find units that are not in exactly one capture, and books that differ from captures."""
    world = deposits.ground.world
    faults = [str(item) for item in await find_differences(world.database)]
    for session_id in session_ids:
        [row] = await world.rows(
            """
            SELECT (SELECT coalesce(sum(amount), 0) FROM chain_receipt WHERE session_id = $1)
                    = (SELECT coalesce(sum(amount_minor), 0) FROM capture WHERE session_id = $1)
                    AS is_captured,
                EXISTS (SELECT FROM chain_receipt
                    WHERE session_id = $1 AND deposit_capture_id IS NULL) AS is_loose,
                (SELECT count(*) FROM capture c WHERE session_id = $1 AND NOT credited
                    AND NOT EXISTS (SELECT FROM money_case k WHERE k.capture_id = c.id)) AS caseless
            """,
            session_id,
        )
        if not row["is_captured"] or row["is_loose"] or row["caseless"]:
            faults.append(f"{session_id}: {dict(row)}")
    return faults


async def run_recheck(deposits: DepositGround) -> None:
    await deposits.ground.world.rows("UPDATE chain_cursor SET looked_at = '-infinity'")
    await deposits.ground.final()


async def test_dust_does_not_hide_the_received_amount(deposits: DepositGround) -> None:
    payment, session = await deposits.bill()
    await deposits.transfer(session, HALF)
    await deposits.flood(session, 1, 2 * SHOWN_MAX)
    for final in (0, HALF + 2 * SHOWN_MAX):
        await deposits.ground.turn()
        view = await deposits.ground.view(session)
        assert view["status"] == "partial"
        assert view["received"]["amount_smallest_unit"] == str(final)
        remaining = TOTAL - HALF - 2 * SHOWN_MAX
        assert view["remaining"]["amount_smallest_unit"] == str(remaining)
        assert len(view["transactions"]) == SHOWN_MAX
        markers = await get_change_markers(deposits.ground.world.database, [payment.id])
        assert len(markers[payment.id]) < 100
        await deposits.ground.mine()


async def test_ten_thousand_transfers_to_one_address_are_processed_within_a_minute(
    deposits: DepositGround,
) -> None:
    payment, session = await deposits.bill()
    _, second_session = await deposits.bill()
    await deposits.transfer(session)
    await deposits.transfer(second_session)
    for _ in range(5):
        await deposits.flood(session, 1, 1_000)
    start = time.monotonic()
    await deposits.ground.final()
    assert await deposits.outcome(payment) == ("PAID", None, ["SURPLUS"])
    for _ in range(5):
        await deposits.flood(session, 1, 1_000)
    await run_recheck(deposits)
    print(f"\n10,000 transfers: {time.monotonic() - start:.1f} s")
    assert time.monotonic() - start < 60
    assert await deposits.outcome(payment) == ("PAID", None, ["DOUBLE_PAYMENT", "SURPLUS"])
    view = await deposits.ground.view((await deposits.bill())[1])
    assert len(json.dumps(view)) < 10_000
    assert await find_faults(deposits, session.id, second_session.id) == []


async def test_transfers_of_impossible_amounts_are_ignored(deposits: DepositGround) -> None:
    attacked, (payment, honest) = (await deposits.bill())[1], await deposits.bill()
    await deposits.transfer(honest)
    await deposits.flood(attacked, LARGEST, 1)
    await deposits.ground.turn()
    assert (await deposits.ground.view(attacked))["status"] == "awaiting_payment"
    for count in (1, 20):
        await deposits.flood(attacked, LARGEST, count)
        await deposits.ground.final()
        await run_recheck(deposits)
    assert await deposits.ground.status(payment) == "PAID"
    assert await find_faults(deposits, attacked.id, honest.id) == []


async def test_a_watcher_locks_payments_before_sessions(
    deposits: DepositGround, raw: asyncpg.Connection
) -> None:
    payment, session = await deposits.bill()
    await deposits.transfer(session)
    await deposits.ground.mine()
    async with locked(raw, "SELECT FROM payment WHERE id = $1 FOR UPDATE", payment.id):
        poll = asyncio.create_task(deposits.ground.catch_up())
        await wait_for_lock_waiters(raw, 1)
        await raw.execute("SELECT FROM session WHERE id = $1 FOR UPDATE", session.id)
    await poll
    assert await deposits.ground.status(payment) == "PAID"


async def test_a_slow_watcher_does_not_restore_pending_transfers_that_are_final(
    deposits: DepositGround, raw: asyncpg.Connection
) -> None:
    payment, session = await deposits.bill()
    await deposits.ground.turn()
    await deposits.transfer(session, HALF)
    async with locked(raw, "LOCK TABLE chain_sighting IN EXCLUSIVE MODE"):
        slow = asyncio.create_task(deposits.ground.catch_up())
        await wait_for_lock_waiters(raw, 1)
        await deposits.ground.mine()
        fast = asyncio.create_task(deposits.ground.catch_up())
        await asyncio.sleep(0.5)
    with suppress(ChainUnavailableError):  # the fast watcher is ahead of the endpoints
        await slow
    await fast
    await deposits.ground.catch_up()
    assert await deposits.ground.world.rows("SELECT FROM chain_sighting") == []
    view = await deposits.ground.view(session)
    assert (view["pending"]["amount"], view["remaining"]["amount"]) == ("0", "12.75")
    assert await deposits.ground.status(payment) == "PROCESSING"


async def test_a_payment_does_not_expire_before_its_address_is_read_past_its_deadline(
    deposits: DepositGround,
) -> None:
    ground = deposits.ground
    payment, session = await deposits.bill()
    await ground.turn()
    await deposits.transfer(session)
    await deposits.expire(payment, look=False)
    await ground.decide()
    # The chain itself has been read, but its deposits are still being read.
    await ground.world.rows(
        "UPDATE chain_cursor SET at = clock(), watched_until = clock() + interval '1 hour'"
    )
    async with ground.world.database.transaction() as tx:
        await expire_undecided(tx, session, timedelta(0))
    assert await deposits.outcome(payment) == ("PROCESSING", None, [])
    await ground.final()
    assert await deposits.outcome(payment) == ("PAID", None, [])


async def storm(deposits: DepositGround, payment: Payment, chance: random.Random) -> None:
    """Run watchers, workers and the buyer concurrently."""
    ground = deposits.ground
    database = ground.world.database
    chain = await chain_store.get_chain(database, ground.slug)
    assert chain is not None
    watcher = DepositWatcher(database=database, reader=ground.reader, chain=chain)

    async def select() -> None:
        with suppress(RefusedError):
            await ground.world.select(payment, deposits.methods["USDT"])

    async def cancel_as_buyer() -> None:
        with suppress(RefusedError):
            async with database.transaction() as tx:
                await cancel_by_buyer(tx, payment.id)

    async def look() -> None:
        await watcher.read_deposits(await ground.cursor(), await ground.reader.fetch_heads())

    async def recheck() -> None:
        await ground.world.rows("UPDATE chain_cursor SET looked_at = '-infinity'")
        await look()

    async def expire() -> None:
        async with database.transaction() as tx:
            await expire_processing(tx, 500, 0)

    steps = [select, cancel_as_buyer, look, recheck, ground.catch_up, ground.decide, expire]
    chance.shuffle(steps)
    await asyncio.gather(*(step() for step in steps))


@pytest.mark.parametrize("seed", range(int(os.environ.get("CHAIN_SEEDS", "3"))))
async def test_every_unit_is_captured_once_under_concurrent_actions(
    deposits: DepositGround, seed: int
) -> None:
    chance, ground = random.Random(seed), deposits.ground
    bills: list[tuple[Payment, Session]] = []
    for _ in range(6):
        payment, session = await deposits.bill(expires_in_s=chance.choice([1_800, 3_600]))
        bills.append((payment, session))
        for part in chance.choice([(TOTAL,), (HALF, TOTAL - HALF), (HALF,), (TOTAL, 7), ()]):
            await deposits.transfer(session, part)
            if chance.random() < 0.3:
                await ground.catch_up()
        if chance.random() < 0.4:
            await ground.pass_time(1_000)
        await ground.mine(chance.randint(0, 3))
        await storm(deposits, payment, chance)
    await ground.pass_time(4_000)
    await ground.mine(5)
    await storm(deposits, bills[0][0], chance)
    await ground.turn()
    await run_recheck(deposits)
    rows = await ground.world.rows("SELECT session_id, address FROM deposit_address")
    assert {session.id for _, session in bills} <= {row["session_id"] for row in rows}
    assert await find_faults(deposits, *[row["session_id"] for row in rows]) == []
    statuses = [await ground.status(payment) for payment, _ in bills]
    assert "PROCESSING" not in statuses
    received = await ground.world.rows("SELECT amount FROM chain_receipt")
    assert received
