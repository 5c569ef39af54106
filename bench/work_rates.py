"""`python -m bench.work_rates`: rates of settled callbacks, delivered events and expired payments.

Each rate is the maximum of a single process, and is compared with its goal. Clients, receivers and
PostgreSQL run on the same machine. The time includes the last commit.
"""

import argparse
import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import cast

import asyncpg
import msgspec
import uvloop
from rich.console import Console
from rich.table import Table

from bench import callbacks
from bench.http import body_start
from bench.installation import Installation, free_ports
from bench.load import cpu_s, database_cpu_s
from bench.machine import print_machine
from bench.workspaces import Places, own_servers
from payintent.merchants.operations import CreateMerchant
from payintent.operators.operation import Actor
from payintent_sandbox.chains.dev_chains import DevChains
from payintent_sandbox.installation import open_installed_service, prepare_installation

CALLBACKS_GOAL, DELIVERIES_GOAL, EXPIRY_GOAL = 3_000, 2_000, 10_000  # per second
KINDS = ("settle", "deliver", "expire")
_ENDPOINTS = 50
_CAPTION = f"callbacks 32 at a time, deliveries to {_ENDPOINTS} endpoints"
_DONE_EVERY_S = 0.02
_WAIT_S = 300.0
_OK = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"

_PAYMENTS = """
INSERT INTO payment (id, merchant_id, checkout_id, currency, amount, amount_text, payer_uid,
    include_pegged_assets, metadata, tax_manager, expires_at, created_at, updated_at)
SELECT uuidv7(), $1::bigint, 'cs_' || left(md5($3 || n), 16), 'USD', 25.5, '25.50',
    'buyer-1', true, '{"order_id":"A-1009"}', 'NONE', clock() + $4::interval,
    clock() - interval '1 hour', clock() - interval '1 hour'
FROM generate_series(1, $2::int) AS n
RETURNING id
"""
#: Ends payments, and returns their events, which are due immediately.
RECORD_EVENTS = """
WITH ended AS (
    UPDATE payment
    SET status = 'CANCELLED', cancelled_at = clock()
    WHERE id = ANY($1::uuid[])
    RETURNING id, merchant_id
), told AS (
    INSERT INTO event (id, payment_id, merchant_id, type, body, occurred_at)
    SELECT uuidv7(), id, merchant_id, 'payment.cancelled', $2, clock()
    FROM ended
    RETURNING id, merchant_id
), queued AS (
    INSERT INTO delivery (event_id, merchant_id, state, next_at)
    SELECT id, merchant_id, 'pending', clock()
    FROM told
)
SELECT id, merchant_id
FROM told
"""
_TWO_HOURS_LATER = """
CREATE OR REPLACE FUNCTION clock() RETURNS timestamptz LANGUAGE sql STABLE
RETURN date_trunc('milliseconds', statement_timestamp()) + interval '2 hours'
"""
EVENT_BODY = f'{{"type":"payment.cancelled","data":{{"payment":{{"metadata":"{650 * "x"}"}}}}}}'


def payments_statement(life: str) -> str:
    """Return a statement that inserts `$2` payments for merchant `$1` in the series `$3`."""
    return _PAYMENTS.replace("$4::interval", f"interval '{life}'")


@dataclass(frozen=True, slots=True)
class Extent:
    """The number of operations of each kind."""

    first: int  # warm-up callbacks
    callbacks: int
    deliveries: int
    expired: int


FULL = Extent(first=1_000, callbacks=9_000, deliveries=10_000, expired=50_000)
QUICK = Extent(first=10, callbacks=50, deliveries=100, expired=100)


class WorkRate(msgspec.Struct, frozen=True, kw_only=True):
    """The rate of a kind of work, and its cost."""

    name: str
    count: int
    per_s: float
    goal_per_s: int
    cpu_us: float  # of the process that does the work, per operation
    database_cpu_us: float


class _Receiver(asyncio.Protocol):
    """A shop that accepts every event immediately."""

    def __init__(self) -> None:
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if body_start(self._buffer):
            self._buffer = b""
            self._transport.write(_OK)


@dataclass(frozen=True, slots=True)
class _Bench:
    """An installation, and the benchmark's connection to its database."""

    installation: Installation
    database: asyncpg.Connection
    extent: Extent

    async def settle(self) -> WorkRate:
        """Report payments as paid, with 32 concurrent callers."""
        with self.installation.api() as pid:
            with self.installation.gateway():
                pending = await callbacks.prepare_copies(
                    self.installation, self.database, self.extent.callbacks + self.extent.first
                )
            # The first callbacks replace plans that were made while the tables were empty.
            await callbacks.storm(self.installation, pending[: self.extent.first])
            pending = pending[self.extent.first :]
            rate = await self._measure(
                "callbacks to PAID",
                len(pending),
                CALLBACKS_GOAL,
                pid,
                lambda: callbacks.storm(self.installation, pending),
            )
        paid = await self.database.fetchval("SELECT count(*) FROM payment WHERE status = 'PAID'")
        if paid != len(pending) + self.extent.first:
            raise RuntimeError(f"{paid} payments are PAID, not one per callback")
        await self.database.execute("UPDATE delivery SET state = 'delivered'")
        return rate

    async def deliver(self) -> WorkRate:
        """Let a worker deliver a backlog of due events to endpoints that respond immediately."""
        loop = asyncio.get_running_loop()
        shop = await loop.create_server(_Receiver, "127.0.0.1", 0)
        port = shop.sockets[0].getsockname()[1]
        each = self.extent.deliveries // _ENDPOINTS
        urls = [f"http://127.0.0.1:{port}/{number}" for number in range(_ENDPOINTS)]
        payment_ids = [
            payment_id
            for merchant_id in await self._merchants(urls)
            for payment_id in await self._payments(merchant_id, each, "1 day")
        ]
        with self.installation.worker() as pid:
            await self._until(
                "SELECT count(*) > 0 FROM pg_stat_activity WHERE application_name = "
                "'payintent-listen'"
            )

            async def work() -> None:
                await self.database.execute(RECORD_EVENTS, payment_ids, EVENT_BODY)
                await self.database.execute("NOTIFY payintent_event")
                await self._until(
                    "SELECT NOT EXISTS (SELECT FROM delivery WHERE state = 'pending')"
                )

            rate = await self._measure("deliveries", len(payment_ids), DELIVERIES_GOAL, pid, work)
        shop.close()
        return rate

    async def expire(self) -> WorkRate:
        """Let a worker expire a backlog of payments."""
        [merchant_id] = await self._merchants([None])
        await self._payments(merchant_id, self.extent.expired, "1 hour")
        with self.installation.worker({"PAYINTENT_EXPIRE_EVERY_S": "0.05"}) as pid:
            await self._until(
                "SELECT count(*) > 0 FROM pg_stat_activity WHERE application_name = "
                "'payintent-listen'"
            )

            async def work() -> None:
                await self.database.execute(_TWO_HOURS_LATER)
                await self._until(
                    "SELECT NOT EXISTS (SELECT FROM payment WHERE status = 'PENDING' "
                    "AND expires_at <= clock())"
                )

            return await self._measure(
                "payments expired", self.extent.expired, EXPIRY_GOAL, pid, work
            )

    async def _measure(
        self, name: str, count: int, goal: int, pid: int, work: Callable[[], Awaitable[None]]
    ) -> WorkRate:
        return await measure_work(self.database, name, count, goal, pid, work)

    async def _payments(self, merchant_id: int, count: int, life: str) -> list[str]:
        rows = await self.database.fetch(
            payments_statement(life),
            merchant_id,
            count,
            f"{merchant_id}/",
        )
        return [row["id"] for row in rows]

    async def _merchants(self, callback_urls: Sequence[str | None]) -> list[int]:
        service = await open_installed_service(self.installation.world)
        actor = Actor("bench", "the benchmark's own")
        try:
            new_merchants = [
                await service.run_operation(CreateMerchant(name="bench", callback_url=url), actor)
                for url in callback_urls
            ]
        finally:
            await service.close()
        return [new.merchant.id for new in new_merchants]

    async def _until(self, query: str) -> None:
        async with asyncio.timeout(_WAIT_S):
            while not await self.database.fetchval(query):
                await asyncio.sleep(_DONE_EVERY_S)


async def measure_work(
    database: asyncpg.Connection,
    name: str,
    count: int,
    goal: int,
    pid: int,
    work: Callable[[], Awaitable[None]],
) -> WorkRate:
    """Measure the duration of the work, and the CPU time of the process and of PostgreSQL."""
    await database.execute("VACUUM ANALYZE")
    backend: int = await database.fetchval("SELECT pg_backend_pid()")
    own_before, database_before = cpu_s(pid), database_cpu_s(backend)
    began = perf_counter()
    await work()
    seconds = perf_counter() - began
    return WorkRate(
        name=name,
        count=count,
        per_s=count / seconds,
        goal_per_s=goal,
        cpu_us=(cpu_s(pid) - own_before) / count * 1e6,
        database_cpu_us=(database_cpu_s(backend) - database_before) / count * 1e6,
    )


async def _measure(folder: Path, url: str, extent: Extent, kinds: Sequence[str]) -> list[WorkRate]:
    world = await prepare_installation(folder, free_ports(), url, DevChains(folder, (0, 0, 0)))
    database = await asyncpg.connect(url)
    bench = _Bench(Installation(world=world, log_dir=folder), database, extent)
    work = {"settle": bench.settle, "deliver": bench.deliver, "expire": bench.expire}
    rates = [await work[kind]() for kind in kinds]
    await database.close()
    return rates


def measure(places: Places, extent: Extent, kinds: Sequence[str] = KINDS) -> list[WorkRate]:
    """Measure on a separate database, with fsync."""
    with places("work") as place:
        return uvloop.run(_measure(place.folder, place.url, extent, kinds))


def show(
    console: Console, places: Places, *, quick: bool = False, kinds: Sequence[str] = KINDS
) -> list[WorkRate]:
    """Measure, and print the results."""
    rates = measure(places, QUICK if quick else FULL, kinds)
    table = Table(title="maximum rates of one process on this machine", caption=_CAPTION)
    table.add_column("", no_wrap=True)
    for name in ("rate", "goal", "CPU of the process, per item", "CPU of PostgreSQL, per item"):
        table.add_column(name, justify="right")
    for rate in rates:
        missed = "" if rate.per_s >= rate.goal_per_s else " missed"
        table.add_row(
            f"{rate.count:,} {rate.name}",
            f"{rate.per_s:,.0f}/s",
            f"{rate.goal_per_s:,}/s{missed}",
            f"{rate.cpu_us:.0f} us",
            f"{rate.database_cpu_us:.0f} us",
        )
    console.print(table)
    return rates


def main() -> None:
    """Measure, and print the results."""
    parser = argparse.ArgumentParser(prog="python -m bench.work_rates", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="a short smoke test; its figures are meaningless"
    )
    parser.add_argument(
        "kinds", nargs="*", choices=[[], *KINDS], help="kinds of work to measure; default: all"
    )
    options = parser.parse_args()
    var_dir = Path(os.environ.get("VAR_DIR", "var")).resolve()
    var_dir.mkdir(parents=True, exist_ok=True)
    console = Console(width=110)
    show(console, own_servers(var_dir), quick=options.quick, kinds=options.kinds or KINDS)
    print_machine(console)


if __name__ == "__main__":
    main()
