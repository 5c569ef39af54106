"""Several watchers, and a watcher that is killed: each log has its effect exactly once."""

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
from tests.support.patience import PATIENCE_S
from tests.support.world import patient

pytestmark = pytest.mark.full

LOOK_S = 0.05
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


async def until(found: Callable[[], Awaitable[bool]]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not await found():
        assert time.monotonic() < deadline, "it has not happened"
        await asyncio.sleep(LOOK_S)


async def waiting(raw: asyncpg.Connection, count: int) -> None:
    """Wait until this many connections wait for a lock."""

    async def found() -> bool:
        # Inside a transaction, who is connected is remembered from the first look on.
        await raw.execute("SELECT pg_stat_clear_snapshot()")
        return await raw.fetchval(_WAITING) == count

    await until(found)


async def test_two_watchers_at_once_keep_each_log_once(
    ground: ChainWorld, raw: asyncpg.Connection
) -> None:
    bills = [await ground.bill("NATIVED") for _ in range(3)]
    for _, session in bills:
        await ground.pay(session)
    await ground.pay_otherwise(bills[0][1], amount=10**17)
    await ground.mine(3)
    row = await chain_store.get_chain(ground.world.database, "native")
    assert row is not None
    other = RpcChainReader("native", [ground.chain.url], config_of("native"))
    async with locked(raw, "SELECT FROM chain_cursor FOR UPDATE"):
        looks = [
            asyncio.create_task(watch_once(ground.world.service, row, one))
            for one in (ground.reader, other)
        ]
        await waiting(raw, 2)
    await asyncio.gather(*looks)
    await other.close()
    assert await ground.dispositions() == ["credited"] * 3 + ["duplicate"]
    assert await ground.cases() == ["DOUBLE_PAYMENT"]
    for payment, _ in bills:
        assert await ground.status(payment) == "PAID"
        assert await ground.world.events(payment) == ["payment.completed"]


async def test_a_watcher_that_was_overtaken_takes_nothing_back(
    ground: ChainWorld, raw: asyncpg.Connection
) -> None:
    await ground.turn()
    await ground.mine(3)
    async with locked(raw, "SELECT FROM chain_cursor FOR UPDATE"):
        looking = asyncio.create_task(ground.look())
        await waiting(raw, 1)
        await raw.execute("UPDATE chain_cursor SET block = block + 10, hash = NULL")
        ahead = await raw.fetchval("SELECT block FROM chain_cursor")
    await looking
    assert (await ground.cursor()).block == ahead


async def test_a_contract_that_is_added_while_blocks_are_read_misses_none_of_them(
    ground: ChainWorld, raw: asyncpg.Connection
) -> None:
    await ground.turn()
    _, session = await ground.bill("NATIVED")
    other = await deploy(ground.chain, PLANS["native"])
    await ground.pay_otherwise(session, contract=other.contract_address)
    await ground.mine(3)
    async with locked(raw, "SELECT FROM chain_cursor FOR UPDATE"):
        looking = asyncio.create_task(ground.look())
        await waiting(raw, 1)
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
            bytes.fromhex(other.contract_address[2:]),
            bytes.fromhex(other.receiver[2:]),
            other.deployed_block,
        )
    await looking
    assert await ground.dispositions() == ["unknown_uuid"]


async def test_a_janitor_that_is_busy_with_sessions_is_not_waited_for(
    ground: ChainWorld, raw: asyncpg.Connection
) -> None:
    await ground.bill("USDT")
    await ground.pass_time(1802)
    await ground.decide()
    await ground.mine(3)
    async with locked(raw, "SELECT FROM session FOR UPDATE"):
        await asyncio.wait_for(ground.look(), PATIENCE_S / 2)


async def test_one_process_leads_until_its_connection_is_gone(settings: Settings) -> None:
    url = settings.database_url
    async with (
        hold_advisory_lock(url, "watch:native") as first,
        hold_advisory_lock(url, "watch:native") as second,
    ):
        assert first.is_held
        assert not second.is_held
        async with hold_advisory_lock(url, "watch:bsc") as elsewhere:
            assert elsewhere.is_held
        raw = await asyncpg.connect(url)
        await raw.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_locks "
            "WHERE locktype = 'advisory' AND granted AND pid <> pg_backend_pid() "
            "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
        )

        async def lost() -> bool:
            return not first.is_held

        async def taken() -> bool:
            async with hold_advisory_lock(url, "watch:native") as third:
                return third.is_held

        await until(lost)
        await until(taken)
        await raw.close()


async def test_a_lock_is_proven_for_several_at_once(settings: Settings) -> None:
    """The values that are read and written at the same time are both proven."""
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
async def test_a_worker_that_is_killed_in_the_middle_leaves_nothing_half_done(
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
            await waiting(raw, 1)  # in a transaction, with some payments locked and the cursor
            process.send_signal(signal.SIGKILL)
            process.wait()
        assert await ground.dispositions() == []
        assert (await ground.cursor()).block == before.block
    with worker(settings, url, log):

        async def done() -> bool:
            return len(await ground.dispositions()) == 9

        await until(done)
    assert sorted(await ground.dispositions()) == ["credited"] * 8 + ["unknown_uuid"]
    for payment, _ in bills:
        assert await ground.status(payment) == "PAID"
        assert await ground.world.events(payment) == ["payment.completed"]


async def test_many_blocks_are_caught_up_in_several_looks(ground: ChainWorld) -> None:
    async with FaultyNode(ground.chain.url) as node:
        node.faults = Faults(range_max=1)
        row = await chain_store.get_chain(ground.world.database, "native")
        assert row is not None
        await ground.mine(2 * RANGES_MAX)
        reader = RpcChainReader("native", [node.url], config_of("native"))
        assert await watch_once(ground.world.service.watch_context, row, reader)  # there is more
        while await watch_once(ground.world.service.watch_context, row, reader):
            pass
        await reader.close()
    assert (await ground.cursor()).block == await ground.height() - 2
