"""`python -m bench.cost`: the cost of each step of a payment, from its creation to its webhook.

The benchmark measures the processor time of the service's process and of PostgreSQL for each step.
It computes the rates that one core, a host that runs everything, and a primary on a separate host
can handle.
"""

import argparse
import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import aiohttp
import asyncpg
import uvloop
from rich.console import Console
from rich.table import Table

from bench import work_rates
from bench.installation import Installation, free_ports
from bench.machine import print_machine
from bench.work_rates import WorkRate, measure_work
from bench.workspaces import Places, own_servers
from payintent_sandbox.chains.dev_chains import DevChains
from payintent_sandbox.installation import prepare_installation

LAST_STEPS = ("callbacks to PAID", "deliveries")  # as named in `bench.work_rates`
_CLIENTS = 32
_FIRST, _COUNT = 200, 3_000  # warm-up payments, and measured payments
_PRIMARY_CORES = 16
_BODY = {
    "currency": "THB",
    "amount": "1590.00",
    "payer_uid": "buyer-1",
    "payer_email": "b@example.com",
    "expires_in": 86_400,
    "metadata": {"order_id": "A-1009", "cart": "8f14e45f"},
}


@dataclass(slots=True)
class _Shop:
    """A merchant and its buyers, who continue the payments from the previous step."""

    base: str
    api_key: str
    http: aiohttp.ClientSession
    payments: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    cards: dict[str, int] = field(default_factory=dict[str, int])

    async def create(self, count: int) -> None:
        """Create payments, each with its own idempotency key."""
        self.payments = await _each([{}] * count, self._create)

    async def read(self) -> None:
        """Read each payment once."""
        await _each(self.payments, self._read)

    async def quote(self) -> None:
        """Request each payment's quotes once."""
        await _each(self.payments, self._quote)

    async def select(self) -> None:
        """Select a card for each payment."""
        await _each(self.payments, self._select)

    async def _create(self, _: dict[str, Any]) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {self.api_key}", "Idempotency-Key": str(uuid4())}
        url = f"{self.base}/payments"
        async with self.http.post(url, json=_BODY, headers=headers) as answer:
            assert answer.status == 201, await answer.text()
            return await answer.json()

    async def _read(self, payment: dict[str, Any]) -> None:
        headers = {"Authorization": f"Bearer {self.api_key}"}
        url = f"{self.base}/payments/{payment['id']}"
        async with self.http.get(url, headers=headers) as answer:
            assert answer.status == 200, await answer.text()
            await answer.read()

    async def _quote(self, payment: dict[str, Any]) -> None:
        async with self.http.get(self._quotes_url(payment)) as answer:
            assert answer.status == 200, await answer.text()
            [card, *_] = (await answer.json())["quotes"]
            self.cards[payment["id"]] = card["payment_method_id"]

    async def _select(self, payment: dict[str, Any]) -> None:
        selection = {"payment_method_id": self.cards[payment["id"]]}
        async with self.http.post(self._quotes_url(payment), json=selection) as answer:
            assert answer.status in {200, 201}, await answer.text()
            await answer.read()

    def _quotes_url(self, payment: dict[str, Any]) -> str:
        return f"{self.base}/checkout/{payment['checkout_id']}/quotes"


async def _each(items: Sequence[Any], work: Callable[[Any], Awaitable[Any]]) -> list[Any]:
    """Run work for each payment, with a limited number of concurrent clients."""
    limit = asyncio.Semaphore(_CLIENTS)

    async def one(item: Any) -> Any:
        async with limit:
            return await work(item)

    return list(await asyncio.gather(*map(one, items)))


async def _measure(folder: Path, url: str, first: int, count: int) -> list[WorkRate]:
    world = await prepare_installation(folder, free_ports(), url, DevChains(folder, (0, 0, 0)))
    installation = Installation(world=world, log_dir=folder)
    database = await asyncpg.connect(url)
    with installation.api() as pid, installation.gateway():
        async with aiohttp.ClientSession() as http:
            shop = _Shop(world.api_url, installation.api_key, http)
            steps = (
                ("create", lambda: shop.create(count)),
                ("read", shop.read),
                ("quotes", shop.quote),
                ("select", shop.select),
            )
            await shop.create(first)
            for _, step in steps[1:]:
                await step()
            costs = [
                await measure_work(database, name, count, 0, pid, step) for name, step in steps
            ]
    await database.close()
    return costs


def measure(places: Places, *, quick: bool) -> list[WorkRate]:
    """Measure a payment's requests on a separate database, with fsync."""
    first, count = (5, 20) if quick else (_FIRST, _COUNT)
    with places("cost") as place:
        return uvloop.run(_measure(place.folder, place.url, first, count))


def show(console: Console, costs: Sequence[WorkRate], cores: int) -> None:
    """Print the cost of each step, the total cost, and the resulting rates."""
    table = Table(title="a payment, from its creation to its webhook")
    table.add_column("", no_wrap=True)
    for name in ("CPU of the service", "CPU of PostgreSQL"):
        table.add_column(name, justify="right")
    for cost in costs:
        table.add_row(cost.name, f"{cost.cpu_us:,.0f} us", f"{cost.database_cpu_us:,.0f} us")
    service, database = sum(c.cpu_us for c in costs), sum(c.database_cpu_us for c in costs)
    table.add_row("total", f"{service:,.0f} us", f"{database:,.0f} us", style="bold")
    console.print(table)
    both = service + database
    console.print(
        f"one core of the service handles 1,000,000 / {service:,.0f} = "
        f"{1e6 / service:,.0f} such payments per second\n"
        f"one host with {cores} cores for everything: {cores} x 1,000,000 / ({service:,.0f} + "
        f"{database:,.0f}) = {cores * 1e6 / both:,.0f}/s\n"
        f"a primary with {_PRIMARY_CORES} cores: {_PRIMARY_CORES} x 1,000,000 / {database:,.0f} = "
        f"{_PRIMARY_CORES * 1e6 / database:,.0f}/s, with {service / database:.1f} service cores "
        f"per database core",
        highlight=False,
        soft_wrap=True,
    )


def main() -> None:
    """Measure, and print the results."""
    parser = argparse.ArgumentParser(prog="python -m bench.cost", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="a short smoke test; its figures are meaningless"
    )
    quick = parser.parse_args().quick
    var_dir = Path(os.environ.get("VAR_DIR", "var")).resolve()
    var_dir.mkdir(parents=True, exist_ok=True)
    places = own_servers(var_dir)
    costs = measure(places, quick=quick)
    extent = work_rates.QUICK if quick else work_rates.FULL
    costs += work_rates.measure(places, extent, ("settle", "deliver"))
    console = Console(width=110)
    show(console, costs, len(os.sched_getaffinity(0)))
    print_machine(console)


if __name__ == "__main__":
    main()
