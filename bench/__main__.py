"""`python -m bench`: measure the service and, for comparison, the database's maximum rate."""

import argparse
import asyncio
import os
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from uuid import uuid4

import asyncpg
import uvloop
from rich.console import Console

from bench import (
    callbacks,
    chain,
    cost,
    delivery_limits,
    gas,
    goals,
    lists,
    raw,
    report,
    work_rates,
)
from bench.http import request
from bench.installation import Installation, free_ports
from bench.load import CREATE_BODY, CREATE_METADATA, ID, KEY, Load, Plan, run_load
from bench.workspaces import Places, own_databases, own_servers
from payintent.core import ids
from payintent.db.database import Database
from payintent.merchants.model import TaxManager
from payintent.payments import new_store as new_payments
from payintent.payments.model import CreatePaymentRequest
from payintent.runtime.settings import Settings
from payintent_sandbox.chains.dev_chains import DevChains
from payintent_sandbox.installation import prepare_installation
from payintent_sandbox.postgres import find_binaries

CLIENTS = 32
CALLBACKS_PER_S = 100.0
_SEEDED_AT_ONCE = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """The durations and counts of a run."""

    rounds: int
    payments: int  # payments to read
    warm_s: float
    round_s: float
    callbacks: int
    lists: tuple[int, int]  # payments in the small list and in the large list
    pages: int


FULL = Extent(
    rounds=3,
    payments=2_000,
    warm_s=0.5,
    round_s=5.0,
    callbacks=1_000,
    lists=(1_000, 1_000_000),
    pages=500,
)
QUICK = Extent(
    rounds=1, payments=100, warm_s=0.05, round_s=0.1, callbacks=20, lists=(1_000, 3_000), pages=10
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """The data that all phases share."""

    installation: Installation
    bin_dir: Path
    extent: Extent
    console: Console

    @property
    def url(self) -> str:
        return self.installation.world.database_url

    def rounds(
        self, name: str, ours: Callable[[], Load], pgbench: Callable[[int], float] | None = None
    ) -> report.Operation:
        """Measure the service and its yardsticks alternately, under the same machine conditions."""
        measured: list[report.Round] = []
        for number in range(self.extent.rounds):
            load, empty = ours(), self._load_empty_app()
            one = report.Round(
                per_s=load.answers / load.seconds,
                cpu_us=load.server_cpu_s / load.answers * 1e6,
                load_cpu_us=load.own_cpu_s / load.answers * 1e6,
                empty_per_s=empty.answers / empty.seconds,
                empty_cpu_us=empty.server_cpu_s / empty.answers * 1e6,
                pgbench_per_s=None if pgbench is None else pgbench(number),
            )
            raw = "" if one.pgbench_per_s is None else f"; pgbench {one.pgbench_per_s:,.0f}/s"
            self.console.print(
                f"{name} {number + 1}: {one.per_s:,.0f}/s, {one.cpu_us:.0f} us CPU (load generator "
                f"{one.load_cpu_us:.0f} us); empty application {one.empty_per_s:,.0f}/s, "
                f"{one.empty_cpu_us:.0f} us{raw}"
            )
            measured.append(one)
        return report.operation(measured)

    def create(self, api_pid: int) -> report.Operation:
        """Create payments, each with its own idempotency key."""
        headers = {
            **self._authorization(),
            "idempotency-key": KEY.decode(),
            "content-type": "application/json",
        }
        create_request = request("POST", "/v1/payments", headers, CREATE_BODY.encode())

        def ours() -> Load:
            load = self._load(api_pid, create_request, 201, [])
            if load.distinct != load.total:
                raise RuntimeError(f"{load.total} requests created {load.distinct} payments")
            return load

        create = _create_request(self.installation.merchant_id)
        return self.rounds(
            "create",
            ours,
            lambda series: self._pgbench(asyncio.run(raw.create_script(create, series))),
        )

    def get(self, api_pid: int) -> report.Operation:
        """Read random payments."""
        payment_ids = [
            ids.format_id(ids.PAYMENT, raw.known_id(number))
            for number in range(self.extent.payments)
        ]
        get_request = request("GET", f"/v1/payments/{ID.decode()}", self._authorization())
        return self.rounds(
            "get",
            lambda: self._load(api_pid, get_request, 200, payment_ids),
            lambda _: self._pgbench(asyncio.run(raw.read_script(self.extent.payments))),
        )

    def catalog(self, api_pid: int) -> report.Operation:
        """Request a catalog that has not changed."""
        url = f"http://127.0.0.1:{self.installation.world.ports.api}/v1/catalog"
        asking = urllib.request.Request(url, headers=self._authorization())
        with urllib.request.urlopen(asking) as answer:  # noqa: S310
            tag = answer.headers["ETag"]
        catalog_request = request(
            "GET", "/v1/catalog", self._authorization() | {"if-none-match": tag}
        )
        return self.rounds("catalog", lambda: self._load(api_pid, catalog_request, 304, []))

    def quotes(self, api_pid: int) -> report.Operation:
        """Request the quotes of random checkouts."""
        quotes_request = request("GET", f"/v1/checkout/{ID.decode()}/quotes", {})
        checkouts = [_known_checkout(number) for number in range(self.extent.payments)]
        return self.rounds("quotes", lambda: self._load(api_pid, quotes_request, 200, checkouts))

    def lists(self) -> list[report.Listing]:
        """Request pages of a short and a long list."""
        merchants = asyncio.run(lists.prepare(self.installation, self.extent.lists))
        return lists.measure(self.installation, merchants, self.extent.pages)

    def callbacks(self) -> report.Callbacks:
        """Report payments as paid at a steady rate, and measure the webhook delay."""
        return uvloop.run(self._callbacks())

    async def _callbacks(self) -> report.Callbacks:
        pending = await callbacks.prepare(self.installation, self.extent.callbacks)
        latencies = await callbacks.measure(self.installation, pending, CALLBACKS_PER_S)
        return report.Callbacks(
            per_s=CALLBACKS_PER_S,
            count=len(pending),
            answered_p50_ms=report.percentile_ms(latencies.answered_s, 50),
            answered_p99_ms=report.percentile_ms(latencies.answered_s, 99),
            webhook_p50_ms=report.percentile_ms(latencies.webhook_s, 50),
            webhook_p99_ms=report.percentile_ms(latencies.webhook_s, 99),
        )

    def _pgbench(self, script: raw.Script) -> float:
        return raw.rate(self.bin_dir, self.url, script, CLIENTS, self.extent.round_s)

    def _authorization(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.installation.api_key}"}

    def _load(self, api_pid: int, request_bytes: bytes, status: int, item_ids: list[str]) -> Load:
        return self._run_load(
            self.installation.world.ports.api, api_pid, request_bytes, status, item_ids
        )

    def _load_empty_app(self) -> Load:
        """Send requests to an application that does nothing, to measure only the server's cost."""
        with self.installation.empty_app() as empty:
            return self._run_load(empty.port, empty.pid, request("GET", "/", {}), 200, [])

    def _run_load(
        self, port: int, pid: int, request_bytes: bytes, status: int, item_ids: list[str]
    ) -> Load:
        plan = Plan(
            port=port,
            pid=pid,
            clients=CLIENTS,
            warm_s=self.extent.warm_s,
            measured_s=self.extent.round_s,
            request=request_bytes,
            status=status,
            ids=item_ids,
        )
        return run_load(plan)

    async def seed(self) -> None:
        """Write the payments to read, with ids that pgbench can compute."""
        stored_settings = self.installation.world.kept
        database = Database(
            Settings.model_validate(
                {
                    "database_url": self.url,
                    "pepper": stored_settings["pepper"],
                    "keyring": stored_settings["keyring"],
                    "database_connections_max": _SEEDED_AT_ONCE,
                }
            )
        )
        await database.open()
        limit = asyncio.Semaphore(_SEEDED_AT_ONCE)

        async def one(number: int) -> None:
            async with limit:
                request = _create_request(self.installation.merchant_id)
                new = new_payments.NewPayment(
                    raw.known_id(number), _known_checkout(number), request
                )
                await new_payments.create(database, new)

        await asyncio.gather(*(one(number) for number in range(self.extent.payments)))
        await database.close()


def measure(bench: Bench) -> report.Report:
    """Run all phases, in the order in which they affect each other least."""
    with bench.installation.api() as api_pid:
        create = bench.create(api_pid)
        asyncio.run(bench.seed())
        get = bench.get(api_pid)
        quotes = bench.quotes(api_pid)
        catalog = bench.catalog(api_pid)
        with bench.installation.gateway(), bench.installation.worker():
            paid = bench.callbacks()
        list_figures = bench.lists()
    return report.Report(
        machine=report.machine(asyncio.run(_version(bench.url))),
        clients=CLIENTS,
        round_s=bench.extent.round_s,
        create=create,
        get=get,
        quotes=quotes,
        catalog=catalog,
        lists=list_figures,
        callbacks=paid,
    )


def main() -> None:
    """Run the benchmark. The results go to the terminal, `var/bench.json` and `var/bench.html`."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="a short smoke test; its figures are meaningless"
    )
    extent = QUICK if parser.parse_args().quick else FULL
    console = Console(width=100, record=True)
    var_dir = Path(os.environ.get("VAR_DIR", "var")).resolve()
    var_dir.mkdir(parents=True, exist_ok=True)
    servers = own_servers(var_dir)
    if extent is FULL:
        results, reached = _show_all(extent, console, servers)
    else:
        with servers("all") as server:
            results, reached = _show_all(extent, console, own_databases(server))
    goals.show(reached, console)
    report.keep(results, var_dir / "bench.json")
    (var_dir / "bench.html").write_text(goals.write_page(reached, console.export_text()))
    console.print(f"written to {var_dir / 'bench.json'} and {var_dir / 'bench.html'}")


def _show_all(
    extent: Extent, console: Console, places: Places
) -> tuple[report.Report, list[goals.Goal]]:
    """Measure and print every part, and return the stored figures and the results of all goals."""
    with places("requests") as place:
        chains = DevChains(place.folder, (0, 0, 0))
        preparing = prepare_installation(place.folder, free_ports(), place.url, chains)
        bench = Bench(
            installation=Installation(world=asyncio.run(preparing), log_dir=place.folder),
            bin_dir=find_binaries(),
            extent=extent,
            console=console,
        )
        results = measure(bench)
    report.show(results, console)
    gas.show(console)
    quick = extent is QUICK
    watched = chain.show(console, places, quick=quick)
    rates = work_rates.show(console, places, quick=quick)
    if not quick:
        costs = cost.measure(places, quick=False) + [r for r in rates if r.name in cost.LAST_STEPS]
        cost.show(console, costs, results.machine.cores)
    limits = delivery_limits.show(console, places, quick=quick)
    return results, goals.list_goals(results, watched, rates, limits)


def _create_request(merchant_id: int) -> CreatePaymentRequest:
    """Return the benchmark's request as the service represents it."""
    return CreatePaymentRequest(
        merchant_id=merchant_id,
        key=uuid4(),
        request_hash=os.urandom(32),
        currency="THB",
        amount=Decimal("1590.00"),
        amount_text="1590.00",
        payer_uid="buyer-1",
        payer_email="b@example.com",
        include_pegged_assets=True,
        metadata=CREATE_METADATA,
        tax_manager=TaxManager.NONE,
        expires_in_s=86_400,
        country="TH",
    )


def _known_checkout(number: int) -> str:
    return f"cs_{number:016d}"


async def _version(url: str) -> str:
    connection = await asyncpg.connect(url)
    try:
        return str(await connection.fetchval("SHOW server_version")).split()[0]
    finally:
        await connection.close()


if __name__ == "__main__":
    main()
