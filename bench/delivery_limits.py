"""`python -m bench.delivery_limits`: how long healthy merchants' webhooks are delayed while other
endpoints hang, and how much a delivery backlog slows down payment creation.

The dispatcher, the endpoints and PostgreSQL run on the same machine.
"""

import argparse
import asyncio
import math
import os
import random
import statistics
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import cast

import asyncpg
import msgspec
import uvloop
from rich.console import Console
from rich.table import Table

from bench.http import body_start, request
from bench.installation import Installation, free_ports
from bench.load import KEY, Plan, run_load
from bench.machine import print_machine
from bench.report import percentile_ms
from bench.work_rates import EVENT_BODY, RECORD_EVENTS, payments_statement
from bench.workspaces import Places, own_servers
from payintent.merchants.operations import CreateMerchant
from payintent.operators.operation import Actor
from payintent_sandbox.chains.dev_chains import DevChains
from payintent_sandbox.installation import open_installed_service, prepare_installation

P99_MS_MAX = 1_000
BACKLOG_RATIO_MIN = 0.9
_ACTOR = Actor("bench", "the benchmark's own")
_EVENTS_PER_S = 200
_TICK_S = 0.05
_ARRIVAL_WAIT_S = 30.0
_CLIENTS = 32
_OK = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"
_BACKLOG = """
WITH told AS (
    INSERT INTO event (id, payment_id, merchant_id, type, body, occurred_at)
    SELECT uuidv7(), id, merchant_id, 'payment.cancelled', $2, clock()
    FROM payment
    WHERE merchant_id = $1
    RETURNING id
)
INSERT INTO delivery (event_id, merchant_id, state, next_at)
SELECT id, $1, 'pending', clock()
FROM told
"""
_CREATE = (
    '{"currency":"THB","amount":"1590.00","payer_uid":"buyer-1","expires_in":86400,'
    '"metadata":{"product":"The Sea, the Sea"}}'
)


@dataclass(frozen=True, slots=True)
class Extent:
    """The numbers of endpoints and events, and the durations."""

    hanging: tuple[float, ...]  # shares of hanging endpoints, measured in this order
    endpoints: int
    lasting_s: float
    backlog: int
    rounds: int
    round_s: float


FULL = Extent(
    hanging=(0.1, 0.5, 0.9),
    endpoints=200,
    lasting_s=30.0,
    backlog=1_000_000,
    rounds=5,
    round_s=4.0,
)
QUICK = Extent(hanging=(0.5,), endpoints=4, lasting_s=1.0, backlog=200, rounds=1, round_s=0.1)


class Waits(msgspec.Struct, frozen=True, kw_only=True):
    """The time from a healthy merchant's event to the first byte at its endpoint."""

    hanging: float  # the share of hanging endpoints
    events: int
    p50_ms: float
    p99_ms: float


class Backlog(msgspec.Struct, frozen=True, kw_only=True):
    """Creation rates relative to an empty app's request rate, which is measured afterwards."""

    events: int
    before: float
    after: float

    @property
    def ratio(self) -> float:
        """Return the share of the creation rate that remains with a backlog."""
        return self.after / self.before


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """All results of this benchmark."""

    waits: list[Waits]
    backlog: Backlog


class _Shop(asyncio.Protocol):
    """An endpoint that accepts every event immediately, and records its arrival."""

    def __init__(self, arrivals: dict[str, float]) -> None:
        self._arrivals = arrivals
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if not body_start(self._buffer):
            return
        _, _, after = self._buffer.lower().partition(b"webhook-id: ")
        self._buffer = b""
        self._arrivals.setdefault(after[:36].decode(), perf_counter())
        self._transport.write(_OK)


class _Hanging(asyncio.Protocol):
    """An endpoint that reads requests and never responds."""


@dataclass(frozen=True, slots=True)
class _Bench:
    installation: Installation
    database: asyncpg.Connection
    extent: Extent

    async def waits(self, hanging: float, merchant_ids: list[int]) -> Waits:
        """Record events at a steady rate while a share of the endpoints hangs."""
        arrivals: dict[str, float] = {}
        count = round(_EVENTS_PER_S * self.extent.lasting_s)
        each = math.ceil(count / len(merchant_ids))
        payment_ids = [
            payment_id
            for merchant_id in merchant_ids
            for payment_id in await self._payments(merchant_id, each)
        ]
        random.Random(1).shuffle(payment_ids)
        silent = merchant_ids[: round(len(merchant_ids) * hanging)]
        async with self._endpoints(arrivals, silent):
            with self.installation.worker():
                await self._until_listening()
                due = await self._emit(payment_ids[:count], {*silent})
                await _until(lambda: due.keys() <= arrivals.keys(), _ARRIVAL_WAIT_S)
        await self.database.execute("UPDATE delivery SET state = 'dead' WHERE state = 'pending'")
        waited = [arrivals.get(name, math.inf) - at for name, at in due.items()]
        return Waits(
            hanging=hanging,
            events=len(waited),
            p50_ms=percentile_ms(waited, 50),
            p99_ms=percentile_ms(waited, 99),
        )

    async def backlog(self) -> Backlog:
        """Measure the creation rate with and without a backlog.

        The backlog's endpoint refuses connections.
        """
        [merchant_id] = await self.merchants(1)
        with self.installation.api() as pid, self.installation.worker():
            before = self._creates(pid)
            statement = f"WITH made AS ({payments_statement('1 day')}) SELECT count(*) FROM made"  # noqa: S608
            await self.database.fetch(
                statement, merchant_id, self.extent.backlog, "backlog", timeout=3_600
            )
            await self.database.execute(_BACKLOG, merchant_id, EVENT_BODY, timeout=3_600)
            await self.database.execute("VACUUM ANALYZE")
            after = self._creates(pid)
        return Backlog(events=self.extent.backlog, before=before, after=after)

    def _creates(self, pid: int) -> float:
        headers = {
            "authorization": f"Bearer {self.installation.api_key}",
            "idempotency-key": KEY.decode(),
            "content-type": "application/json",
        }
        create = request("POST", "/v1/payments", headers, _CREATE.encode())
        nothing = request("GET", "/", {})
        api_port = self.installation.world.ports.api
        with self.installation.empty_app() as empty:
            return statistics.median(
                self._rate(api_port, pid, create, 201)
                / self._rate(empty.port, empty.pid, nothing, 200)
                for _ in range(self.extent.rounds)
            )

    def _rate(self, port: int, pid: int, request_bytes: bytes, status: int) -> float:
        plan = Plan(
            port=port,
            pid=pid,
            clients=_CLIENTS,
            warm_s=self.extent.round_s / 4,
            measured_s=self.extent.round_s,
            request=request_bytes,
            status=status,
            ids=[],
        )
        load = run_load(plan)
        return load.answers / load.seconds

    async def _emit(self, payment_ids: list[str], silent: set[int]) -> dict[str, float]:
        """Record events at a steady rate; return the time of each healthy merchant's event."""
        due: dict[str, float] = {}
        at_once = round(_EVENTS_PER_S * _TICK_S)
        began = perf_counter()
        for tick, start in enumerate(range(0, len(payment_ids), at_once)):
            await asyncio.sleep(max(0.0, began + tick * _TICK_S - perf_counter()))
            now = perf_counter()
            some = payment_ids[start : start + at_once]
            rows = await self.database.fetch(RECORD_EVENTS, some, EVENT_BODY)
            await self.database.execute("NOTIFY payintent_event")
            due |= {str(row["id"]): now for row in rows if row["merchant_id"] not in silent}
        return due

    @asynccontextmanager
    async def _endpoints(
        self, arrivals: dict[str, float], silent: list[int]
    ) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()
        servers = [
            await loop.create_server(kind, "127.0.0.1", 0, backlog=4_096)
            for kind in (lambda: _Shop(arrivals), _Hanging)
        ]
        shop, hanging = (server.sockets[0].getsockname()[1] for server in servers)
        await self.database.execute(
            """
            UPDATE merchant
            SET callback_url = 'http://127.0.0.1:'
                || CASE WHEN id = ANY($1::bigint[]) THEN $2::text ELSE $3::text END || '/' || id
            WHERE callback_url IS NOT NULL
            """,
            silent,
            str(hanging),
            str(shop),
        )
        try:
            yield
        finally:
            for server in servers:
                server.close()

    async def merchants(self, count: int) -> list[int]:
        """Create merchants whose endpoints refuse connections until they are replaced."""
        service = await open_installed_service(self.installation.world)
        operation = CreateMerchant(name="bench", callback_url="http://127.0.0.1:9/refused")
        try:
            new_merchants = [await service.run_operation(operation, _ACTOR) for _ in range(count)]
        finally:
            await service.close()
        return [new.merchant.id for new in new_merchants]

    async def _payments(self, merchant_id: int, count: int) -> list[str]:
        series = f"{merchant_id}/{random.random()}"
        rows = await self.database.fetch(payments_statement("1 day"), merchant_id, count, series)
        return [row["id"] for row in rows]

    async def _until_listening(self) -> None:
        query = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'payintent-listen'"
        async with asyncio.timeout(_ARRIVAL_WAIT_S):
            while not await self.database.fetchval(query):
                await asyncio.sleep(_TICK_S)


async def _until(condition: Callable[[], bool], patience_s: float) -> None:
    """Wait until `condition` returns True, but for at most `patience_s`."""
    until = perf_counter() + patience_s
    while not condition() and perf_counter() < until:
        await asyncio.sleep(_TICK_S)


async def _measure(folder: Path, url: str, extent: Extent) -> Limits:
    world = await prepare_installation(folder, free_ports(), url, DevChains(folder, (0, 0, 0)))
    database = await asyncpg.connect(url)
    bench = _Bench(Installation(world=world, log_dir=folder), database, extent)
    merchant_ids = await bench.merchants(extent.endpoints)
    waits = [await bench.waits(share, merchant_ids) for share in extent.hanging]
    backlog = await bench.backlog()
    await database.close()
    return Limits(waits=waits, backlog=backlog)


def measure(places: Places, extent: Extent) -> Limits:
    """Measure on a separate database, with fsync."""
    with places("limits") as place:
        return uvloop.run(_measure(place.folder, place.url, extent))


def show(console: Console, places: Places, *, quick: bool = False) -> Limits:
    """Measure, and print the results."""
    extent = QUICK if quick else FULL
    limits = measure(places, extent)
    table = Table(title=f"{_EVENTS_PER_S} events per second for {extent.endpoints} endpoints")
    for name in ("hanging endpoints", "other endpoints' events", "p50", "p99", "goal"):
        table.add_column(name, justify="right")
    for waits in limits.waits:
        missed = "" if waits.p99_ms <= P99_MS_MAX else " missed"
        table.add_row(
            f"{waits.hanging:.0%}",
            f"{waits.events:,}",
            f"{waits.p50_ms:,.0f} ms",
            f"{waits.p99_ms:,.0f} ms",
            f"{P99_MS_MAX:,} ms{missed}",
        )
    console.print(table)
    backlog = limits.backlog
    missed = "" if backlog.ratio >= BACKLOG_RATIO_MIN else ", missed"
    console.print(
        f"creation rate with a backlog of {backlog.events:,} events: {backlog.ratio:.2f} "
        f"of the rate without it (goal {BACKLOG_RATIO_MIN}{missed})"
    )
    return limits


def main() -> None:
    """Measure, and print the results."""
    parser = argparse.ArgumentParser(prog="python -m bench.delivery_limits", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="a short smoke test; its figures are meaningless"
    )
    var_dir = Path(os.environ.get("VAR_DIR", "var")).resolve()
    var_dir.mkdir(parents=True, exist_ok=True)
    console = Console(width=100)
    show(console, own_servers(var_dir), quick=parser.parse_args().quick)
    print_machine(console)


if __name__ == "__main__":
    main()
