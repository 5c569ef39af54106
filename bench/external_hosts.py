"""`python -m bench.external_hosts` measures how hanging external hosts affect other requests.

The benchmark uses a single API process. In each round, a crowd selects a payment method at a
gateway and requests a shop's product images, at the rates below, while other buyers read their
checkouts and quotes. In half of the rounds, the gateway and the image host accept connections but
never respond; in the other half, they respond immediately. The result is the other buyers'
median p99 in the hanging rounds, divided by their median p99 in the responsive rounds.
"""

import argparse
import asyncio
import os
import statistics
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

import aiohttp
import asyncpg
from rich.console import Console

from bench.installation import Installation, free_ports
from bench.machine import print_machine
from bench.workspaces import own_servers
from payintent_sandbox.chains.dev_chains import DevChains
from payintent_sandbox.installation import prepare_installation

RATIO_MAX = 1.2
SELECTIONS_PER_S = 40
PICTURES_PER_S = 48
OTHERS_PER_S = 60
_REFUSAL = b'HTTP/1.1 404 Not Found\r\nContent-Length: 20\r\n\r\n{"error": "no such"}'
_KNOWN = 50  # number of other buyers' payments
_PICTURES = 240
_SETTLE_S = 6.0  # pause after a round, until the hanging image requests have ended
_SIMULATOR = """
SELECT m.id FROM payment_method m JOIN provider_account a ON a.id = m.account_id
WHERE m.merchant_id = $1 AND a.provider = 'simulator' AND m.enabled ORDER BY m.id LIMIT 1
"""


class Outsider:
    """A gateway and image host that responds with 404 immediately, or never responds."""

    def __init__(self) -> None:
        self.hangs = False
        self._open: set[asyncio.StreamWriter] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Respond to the requests on a connection, unless `hangs` is set."""
        self._open.add(writer)
        try:
            while await reader.readline():
                length = 0
                while (line := await reader.readline()).strip():
                    if line.lower().startswith(b"content-length:"):
                        length = int(line.split(b":")[1])
                await reader.readexactly(length)
                if self.hangs:
                    await reader.read()
                    return
                writer.write(_REFUSAL)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self._open.discard(writer)
            writer.close()

    def drop(self) -> None:
        """Close all connections, like a restarted host."""
        for writer in self._open:
            writer.transport.abort()


@dataclass(slots=True)
class Round:
    """The other buyers' latencies and statuses in a round, and the crowd's statuses."""

    hangs: bool
    seconds: list[float] = field(default_factory=list[float])
    statuses: Counter[int] = field(default_factory=Counter[int])
    crowd: Counter[int] = field(default_factory=Counter[int])


@dataclass(frozen=True, slots=True)
class Bench:
    """The data that all rounds share."""

    installation: Installation
    client: aiohttp.ClientSession
    outsider: Outsider
    database: "asyncpg.Connection[asyncpg.Record]"
    method_id: int
    share: float  # factor for all rates

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.installation.world.ports.api}"

    async def measure(
        self, checkout_ids: list[str], hangs: bool, seconds: float, number: int
    ) -> Round:
        """Run a round. Except for the known checkouts, everything that it requests is new."""
        selected = await self._create(round(SELECTIONS_PER_S * self.share * seconds))
        pictures = await self._pictures(number)
        self.outsider.hangs = hangs
        result = Round(hangs)
        await asyncio.gather(
            _at_rate(
                OTHERS_PER_S * self.share, seconds, lambda n: self._read(result, checkout_ids, n)
            ),
            _at_rate(
                SELECTIONS_PER_S * self.share, seconds, lambda n: self._select(result, selected[n])
            ),
            _at_rate(
                PICTURES_PER_S * self.share, seconds, lambda n: self._picture(result, pictures, n)
            ),
        )
        self.outsider.hangs = False
        self.outsider.drop()
        await asyncio.sleep(_SETTLE_S)
        await self.database.execute(
            "DELETE FROM gateway_outage"
        )  # the dropped connections are recorded as an outage
        return result

    async def create_known(self) -> list[str]:
        """Create the other buyers' payments."""
        return await self._create(_KNOWN)

    async def _create(self, count: int, image: str = "") -> list[str]:
        metadata = {"product": {"name": "Book", "image": image}} if image else {}
        fields = {"currency": "THB", "amount": "1590.00", "payer_uid": "b", "metadata": metadata}
        created: list[str] = []
        for _ in range(count):
            headers = {
                "Authorization": f"Bearer {self.installation.api_key}",
                "Idempotency-Key": str(uuid4()),
            }
            url = f"{self.base}/v1/payments"
            async with self.client.post(url, json=fields, headers=headers) as answer:
                answer.raise_for_status()
                created.append((await answer.json())["checkout_id"])
        return created

    async def _pictures(self, number: int) -> list[str]:
        """Return the service's paths for outsider images that have never been requested."""
        port = self.installation.world.ports.simulator
        paths: list[str] = []
        for picture in range(round(_PICTURES * self.share)):
            image = f"http://127.0.0.1:{port}/{number}/{picture}.png"
            [checkout_id] = await self._create(1, image)
            async with self.client.get(f"{self.base}/c/{checkout_id}") as answer:
                page = await answer.text()
            paths.append("/c/static/pictures/" + page.split("/c/static/pictures/")[1].split('"')[0])
        return paths

    async def _read(self, result: Round, checkout_ids: list[str], number: int) -> None:
        path = f"/v1/checkout/{checkout_ids[number % len(checkout_ids)]}{'/quotes' * (number % 2)}"
        began = time.perf_counter()
        async with self.client.get(self.base + path) as answer:
            await answer.read()
        result.seconds.append(time.perf_counter() - began)
        result.statuses[answer.status] += 1

    async def _select(self, result: Round, checkout_id: str) -> None:
        url = f"{self.base}/v1/checkout/{checkout_id}/quotes"
        async with self.client.post(url, json={"payment_method_id": self.method_id}) as answer:
            result.crowd[answer.status] += 1

    async def _picture(self, result: Round, paths: list[str], number: int) -> None:
        async with self.client.get(self.base + paths[number % len(paths)]) as answer:
            result.crowd[answer.status] += 1


async def _at_rate(
    per_s: float, seconds: float, send: Callable[[int], Coroutine[None, None, None]]
) -> None:
    """Send requests at this rate without waiting for the responses."""
    began, tasks = time.perf_counter(), list[asyncio.Task[None]]()
    for number in range(round(per_s * seconds)):
        await asyncio.sleep(began + number / per_s - time.perf_counter())
        tasks.append(asyncio.create_task(send(number)))
    await asyncio.wait(tasks)


def p99(seconds: list[float]) -> float:
    """Return the 99th percentile."""
    return statistics.quantiles(seconds, n=100)[98]


async def _run(
    installation: Installation, rounds: int, seconds: float, share: float, console: Console
) -> float:
    outsider = Outsider()
    server = await asyncio.start_server(
        outsider.serve, "127.0.0.1", installation.world.ports.simulator
    )
    database = await asyncpg.connect(installation.world.database_url)
    method_id = await database.fetchval(_SIMULATOR, installation.merchant_id)
    connector = aiohttp.TCPConnector(limit=0)
    async with server, aiohttp.ClientSession(connector=connector) as client:
        bench = Bench(installation, client, outsider, database, method_id, share)
        checkout_ids = await bench.create_known()
        await bench.measure(checkout_ids, hangs=False, seconds=seconds, number=-1)  # warm-up
        results: list[Round] = []
        for number in range(2 * rounds):
            measured = await bench.measure(checkout_ids, number % 4 in {1, 2}, seconds, number)
            results.append(measured)
            console.print(
                f"{number}: {'hangs' if measured.hangs else 'answers'},"
                f" others p50 {statistics.median(measured.seconds) * 1000:.1f} ms,"
                f" p99 {p99(measured.seconds) * 1000:.1f} ms {dict(measured.statuses)},"
                f" crowd {dict(measured.crowd)}"
            )
    await database.close()
    # The median of all rounds is not affected by other load in a single round.
    with_it = statistics.median(p99(item.seconds) for item in results if item.hangs)
    without = statistics.median(p99(item.seconds) for item in results if not item.hangs)
    shed = sum(
        count for item in results for status, count in item.statuses.items() if status != 200
    )
    console.print(
        f"others' p99: {without * 1000:.1f} ms while the hosts respond,"
        f" {with_it * 1000:.1f} ms while they hang; ratio {with_it / without:.2f}"
        f" (at most {RATIO_MAX}); {shed} of their requests did not return 200"
    )
    return with_it / without if not shed else float("inf")


def main() -> None:
    """Measure, print the results, and exit with 1 if the ratio exceeds the limit."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=6.0, help="duration of a round, below 15")
    parser.add_argument(
        "--share", type=float, default=1.0, help="factor for all rates, for slow machines"
    )
    options = parser.parse_args()
    var_dir = Path(os.environ.get("VAR_DIR", "var")).resolve()
    var_dir.mkdir(parents=True, exist_ok=True)
    console = Console()
    with own_servers(var_dir)("external_hosts") as place:
        chains = DevChains(place.folder, (0, 0, 0))
        preparing = prepare_installation(place.folder, free_ports(), place.url, chains)
        installation = Installation(world=asyncio.run(preparing), log_dir=place.folder)
        with installation.api():
            ratio = asyncio.run(
                _run(installation, options.rounds, options.seconds, options.share, console)
            )
    print_machine(console)
    raise SystemExit(int(ratio > RATIO_MAX))


if __name__ == "__main__":
    main()
