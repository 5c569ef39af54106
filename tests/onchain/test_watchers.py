"""Each log takes effect exactly once, even if several watchers run or a watcher is killed."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from payintent.chains import store as chain_store
from payintent.db.locks import hold_advisory_lock
from payintent.evm.chain_reader import RpcChainReader
from payintent.onchain.watch_loop import watch_once
from payintent.onchain.watcher import RANGES_MAX
from payintent.runtime.settings import Settings
from payintent_sandbox.chains.deploy import PLANS, deploy
from tests.support import processes
from tests.support.fault_rpc import Faults, FaultyNode
from tests.support.onchain import ChainWorld, config_of
from tests.support.timeouts import PATIENCE_S
from tests.support.world import patient

pytestmark = pytest.mark.full

POLL_INTERVAL_S = 0.05
_WAITING = """
    SELECT count(DISTINCT l.pid) FROM pg_locks l JOIN pg_stat_activity a USING (pid)
    WHERE a.datname = current_database() AND NOT l.granted
"""


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return patient(settings)


@pytest.fixture
async def raw(ground: ChainWorld) -> AsyncIterator[asyncpg.Connection]:
    connection = await ground.world.open_connection()
    yield connection
    await connection.close()


@asynccontextmanager
async def locked(raw: asyncpg.Connection, query: str, *arguments: Any) -> AsyncIterator[None]:
    """Lock rows, and commit at the end."""
    async with raw.transaction():
        await raw.execute(query, *arguments)
        yield


async def wait_until(condition: Callable[[], Awaitable[bool]]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not await condition():
        assert time.monotonic() < deadline, "the condition did not become true"
        await asyncio.sleep(POLL_INTERVAL_S)


async def wait_for_lock_waiters(raw: asyncpg.Connection, count: int) -> None:
    """Wait until this many connections wait for a lock."""

    async def are_waiting() -> bool:
        # A transaction caches the list of connections after the first query.
        await raw.execute("SELECT pg_stat_clear_snapshot()")
        return await raw.fetchval(_WAITING) == count

    await wait_until(are_waiting)


async def test_concurrent_watchers_record_each_log_once(
    ground: ChainWorld, raw: asyncpg.Connection
) -> None:
    bills = [await ground.bill("NATIVED") for _ in range(3)]
    for _, session in bills:
        await ground.pay(session)
    await ground.pay_otherwise(bills[0][1], amount=10**17)
    await ground.mine(3)
    row = await chain_store.get_chain(ground.world.database, "native")
    assert row is not None
    second_reader = RpcChainReader("native", [ground.chain.url], config_of("native"))
    async with locked(raw, "SELECT FROM chain_cursor FOR UPDATE"):
        polls = [
            asyncio.create_task(watch_once(ground.world.service, row, reader))
            for reader in (ground.reader, second_reader)
        ]
        await wait_for_lock_waiters(raw, 2)
    await asyncio.gather(*polls)
    await second_reader.close()
    assert await ground.dispositions() == ["credited"] * 3 + ["duplicate"]
    assert await ground.cases() == ["DOUBLE_PAYMENT"]
    for payment, _ in bills:
        assert await ground.status(payment) == "PAID"
        assert await ground.world.events(payment) == ["payment.completed"]


async def test_an_overtaken_watcher_does_not_move_the_cursor_back(
    ground: ChainWorld, raw: asyncpg.Connection
) -> None:
    await ground.turn()
    await ground.mine(3)
    async with locked(raw, "SELECT FROM chain_cursor FOR UPDATE"):
        poll = asyncio.create_task(ground.catch_up())
        await wait_for_lock_waiters(raw, 1)
        await raw.execute("UPDATE chain_cursor SET block = block + 10, hash = NULL")
        ahead = await raw.fetchval("SELECT block FROM chain_cursor")
    await poll
    assert (await ground.cursor()).block == ahead


async def test_a_contract_added_during_a_poll_does_not_miss_blocks(
    ground: ChainWorld, raw: asyncpg.Connection
) -> None:
    await ground.turn()
    _, session = await ground.bill("NATIVED")
    deployment = await deploy(ground.chain, PLANS["native"])
    await ground.pay_otherwise(session, contract=deployment.contract_address)
    await ground.mine(3)
    async with locked(raw, "SELECT FROM chain_cursor FOR UPDATE"):
        poll = asyncio.create_task(ground.catch_up())
        await wait_for_lock_waiters(raw, 1)
        await raw.execute(
            """
            WITH account AS (
                INSERT INTO provider_account (provider, base_url)
                VALUES ('gateway_contract', 'evm:native')
                RETURNING id
            )
            INSERT INTO chain_contract (account_id, chain, address, receiver, deployed_block)
            SELECT id, 'native', $1, $2, $3 FROM account
            """,
            bytes.fromhex(deployment.contract_address[2:]),
            bytes.fromhex(deployment.receiver[2:]),
            deployment.deployed_block,
        )
    await poll
    assert await ground.dispositions() == ["unknown_uuid"]


async def test_the_watcher_does_not_wait_for_locks_on_sessions(
    ground: ChainWorld, raw: asyncpg.Connection
) -> None:
    await ground.bill("USDT")
    await ground.pass_time(1802)
    await ground.decide()
    await ground.mine(3)
    async with locked(raw, "SELECT FROM session FOR UPDATE"):
        await asyncio.wait_for(ground.catch_up(), PATIENCE_S / 2)


async def test_a_single_process_holds_the_lock_until_its_connection_is_lost(
    settings: Settings,
) -> None:
    url = settings.database_url
    async with (
        hold_advisory_lock(url, "watch:native") as first,
        hold_advisory_lock(url, "watch:native") as second,
    ):
        assert first.is_held
        assert not second.is_held
        async with hold_advisory_lock(url, "watch:bsc") as bsc_lock:
            assert bsc_lock.is_held
        raw = await asyncpg.connect(url)
        await raw.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_locks "
            "WHERE locktype = 'advisory' AND granted AND pid <> pg_backend_pid() "
            "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
        )

        async def is_lost() -> bool:
            return not first.is_held

        async def can_acquire() -> bool:
            async with hold_advisory_lock(url, "watch:native") as third:
                return third.is_held

        await wait_until(is_lost)
        await wait_until(can_acquire)
        await raw.close()


async def test_a_lock_can_be_verified_concurrently(settings: Settings) -> None:
    async with hold_advisory_lock(settings.database_url, "watch:native", verified_for_s=0) as lock:
        await asyncio.gather(*(lock.verify() for _ in range(3)))
        assert lock.is_held


@contextmanager
def worker(settings: Settings, url: str, log: Path) -> Iterator[processes.Process]:
    """Run a real worker that watches a chain."""
    environment = {
        "DATABASE_URL": settings.database_url,
        "PAYINTENT_PEPPER": settings.pepper.get_secret_value(),
        "PAYINTENT_KEYRING": settings.keyring.get_secret_value(),
        "PAYINTENT_SANDBOX": "true",
        "PAYINTENT_RPC_NATIVE": url,
        "PAYINTENT_CHAIN_POLL_S": "0.1",
        "PAYINTENT_CHAIN_POLL_IDLE_S": "0.2",
        "PAYINTENT_DATABASE_LOCK_TIMEOUT_MS": "60000",
        "PAYINTENT_DATABASE_STATEMENT_TIMEOUT_MS": "60000",
        "PATH": os.environ["PATH"],
    }
    with log.open("ab") as output:
        process = processes.start(
            *("payintent", "worker", "--processes", "1"), output=output, env=environment
        )
        try:
            yield process
        finally:
            process.kill()
            process.wait()


@pytest.mark.e2e
async def test_a_worker_killed_during_a_poll_does_not_leave_partial_results(
    ground: ChainWorld, raw: asyncpg.Connection, settings: Settings, tmp_path: Path
) -> None:
    bills = [await ground.bill("NATIVED") for _ in range(8)]
    for _, session in bills:
        await ground.pay(session)
    await ground.pay_otherwise(bills[0][1], uuid=bytes(16))
    await ground.mine(3)
    log, url = tmp_path / "worker.log", ground.chain.url
    before = await ground.cursor()
    async with locked(raw, "SELECT FROM payment WHERE id = $1 FOR UPDATE", bills[-1][0].id):
        with worker(settings, url, log) as process:
            await wait_for_lock_waiters(
                raw, 1
            )  # in a transaction that has locked the cursor and some payments
            process.send_signal(signal.SIGKILL)
            process.wait()
        assert await ground.dispositions() == []
        assert (await ground.cursor()).block == before.block
    with worker(settings, url, log):

        async def is_complete() -> bool:
            return len(await ground.dispositions()) == 9

        await wait_until(is_complete)
    assert sorted(await ground.dispositions()) == ["credited"] * 8 + ["unknown_uuid"]
    for payment, _ in bills:
        assert await ground.status(payment) == "PAID"
        assert await ground.world.events(payment) == ["payment.completed"]


async def test_many_blocks_are_read_in_several_polls(ground: ChainWorld) -> None:
    async with FaultyNode(ground.chain.url) as node:
        node.faults = Faults(range_max=1)
        row = await chain_store.get_chain(ground.world.database, "native")
        assert row is not None
        await ground.mine(2 * RANGES_MAX)
        reader = RpcChainReader("native", [node.url], config_of("native"))
        assert await watch_once(
            ground.world.service.watch_context, row, reader
        )  # more blocks are left
        while await watch_once(ground.world.service.watch_context, row, reader):
            pass
        await reader.close()
    assert (await ground.cursor()).block == await ground.height() - 2
