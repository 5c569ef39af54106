"""Runs the drill: starts a sandbox, simulates buyers and faults, and checks the results."""

import argparse
import asyncio
import json
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import asyncpg
from rich.console import Console

from drills.books import judge, pages
from drills.books.buyers import Market, Shop, StuckError
from drills.books.faults import Faults
from drills.books.journal import journal_of
from drills.books.kinds import KINDS, Kind
from drills.books.operator import Operator
from drills.books.receiver import Receivers, receiving
from drills.books.report import Outcome, show
from payintent.merchants.operations import CreateMerchant
from payintent.operators.operation import Actor
from payintent.runtime.settings import Settings
from payintent.service import Service, open_service
from tests.e2e.sandbox import Sandbox, running_sandbox

_BUYERS = 48
_TIME_SCALE = 20  # the simulator's speed relative to real time
_ENDED_S = 600.0
_READ_S = 120.0
_CLOSED_S = 300.0  # a worker closes days once a minute
_DAYS = 3  # the last day stays open
_LOOK_S = 1.0
_ACTOR = Actor("drill", "python -m drills.books")


@dataclass(slots=True)
class Drill:
    sandbox: Sandbox
    database: asyncpg.Connection
    receivers: Receivers
    folder: Path
    payments: int
    shops: Sequence[Shop]
    market: Market
    operator: Operator
    stuck: list[str]

    async def run(self) -> Outcome:
        """Process payments over several days, inject faults, and wait for the end of each feed.

        A day ends after all its payments have ended, because moving the clock would expire them.
        """
        begun = time.monotonic()
        faults = Faults(self.sandbox, self.folder, self.receivers, len(self.shops))
        killing = asyncio.create_task(faults.run())
        try:
            unfinished, orders = 0, list(self._orders())
            for day in range(_DAYS):
                await self._trade(orders[day::_DAYS])
                unfinished = await self._wait_ended()
                if day < _DAYS - 1:
                    await self.operator.end_day()
            unclosed = await self._wait_closed()
        finally:
            killing.cancel()
            with suppress(asyncio.CancelledError):
                await killing
        await faults.reader.stop()
        await faults.reader.start()
        await self._wait_read()
        await faults.reader.kill()
        return await self._judge(faults.kills, unfinished, unclosed, time.monotonic() - begun)

    async def _trade(self, orders: Sequence[tuple[Shop, Kind]]) -> None:
        waiting = iter(orders)

        async def buyer() -> None:
            for shop, kind in waiting:
                try:
                    await self.market.live(shop, kind)
                except (StuckError, aiohttp.ClientError, TimeoutError) as error:
                    self.stuck.append(f"{kind.name}: {error!r}")

        async with asyncio.TaskGroup() as work:
            for _ in range(_BUYERS):
                work.create_task(buyer())

    def _orders(self) -> Iterator[tuple[Shop, Kind]]:
        kinds = [KINDS[number % len(KINDS)] for number in range(self.payments)]
        random.shuffle(kinds)
        for number, kind in enumerate(kinds):
            yield self.shops[number % len(self.shops)], kind

    async def _wait_ended(self) -> int:
        """Wait for the payments to end. Return how many are still open at the deadline."""
        deadline = time.monotonic() + _ENDED_S
        while True:
            left = await self.database.fetchval(
                "SELECT count(*) FROM payment WHERE status IN ('PENDING', 'PROCESSING')"
            )
            if not left or time.monotonic() > deadline:
                return left
            await asyncio.sleep(_LOOK_S)

    async def _wait_closed(self) -> int:
        """Wait for the previous days to close. Return how many merchants still have open days."""
        deadline = time.monotonic() + _CLOSED_S
        while True:
            left = await pages.count_unclosed(self.database, [shop.id for shop in self.shops])
            if not left or time.monotonic() > deadline:
                return left
            await asyncio.sleep(_LOOK_S)

    async def _wait_read(self) -> None:
        """Wait until the journals contain as many events as the database."""
        deadline = time.monotonic() + _READ_S
        while time.monotonic() < deadline:
            have = sum(len(journal_of(self.folder, shop.id).ids()) for shop in self.shops)
            if have >= await self._count_events():
                return
            await asyncio.sleep(_LOOK_S)

    async def _count_events(self) -> int:
        merchants = [shop.id for shop in self.shops]
        return await self.database.fetchval(
            "SELECT count(*) FROM event WHERE merchant_id = ANY($1)", merchants
        )

    async def _judge(
        self, kills: Counter[str], unfinished: int, unclosed: int, seconds: float
    ) -> Outcome:
        statuses = await judge.read_statuses(self.database)
        lost, wrong = judge.judge_payments(self.market.kinds, statuses)
        feeds = [
            judge.judge_feed(
                journal_of(self.folder, shop.id).ids(),
                await judge.read_feed(self.database, shop.id),
            )
            for shop in self.shops
        ]
        return Outcome(
            shops=len(self.shops),
            payments=len(self.market.kinds),
            seconds=seconds,
            statuses=Counter(statuses.values()),
            answers=self.market.answers,
            broken=self.market.broken,
            kills=kills,
            events=await self._count_events(),
            by_webhook=sum(len(came) for came in self.receivers.came.values()),
            feeds=feeds,
            lost=lost,
            wrong=wrong,
            unfinished=unfinished,
            stuck=self.stuck,
            books=await judge.read_books(self.database),
            days=_DAYS,
            unclosed=unclosed,
            pages=await pages.read_verdict(self.database, [shop.id for shop in self.shops]),
        )


async def _shops(service: Service, receivers: Receivers, count: int) -> list[Shop]:
    """Register merchants with all sandbox methods."""
    merchants = [
        await service.run_operation(
            CreateMerchant(
                name=f"Shop {number}", callback_url=receivers.url(number), methods="all"
            ),
            _ACTOR,
        )
        for number in range(count)
    ]
    return [Shop(new.merchant.id, new.api_key) for new in merchants]


async def _run(options: argparse.Namespace, folder: Path, console: Console) -> bool:
    with running_sandbox(_TIME_SCALE) as sandbox:
        description = sandbox.dev_json
        connector = aiohttp.TCPConnector(limit=0)
        timeout = aiohttp.ClientTimeout(total=30)
        database = await asyncpg.connect(description["database_url"])
        settings = Settings(_env_file=sandbox.settings_file)  # type: ignore[call-arg]
        service = await open_service(settings)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout, connector=connector) as http,
                receiving() as receivers,
            ):
                shops = await _shops(service, receivers, options.merchants)
                _tell_reader(folder, description["api_url"], shops)
                stripe = description["gateways"]["stripe"]["url"]
                market = Market(description["api_url"], description["checkout_base"], stripe, http)
                drill = Drill(
                    sandbox=sandbox, database=database, receivers=receivers, folder=folder,
                    payments=options.payments, shops=shops, market=market, stuck=[],
                    operator=Operator(service, database, [shop.id for shop in shops]),
                )  # fmt: skip
                outcome = await drill.run()
        finally:
            await service.close()
            await database.close()
    show(outcome, console)
    return outcome.is_clean


def _tell_reader(folder: Path, api_url: str, shops: Sequence[Shop]) -> None:
    file = folder / "shops.json"
    file.touch(0o600)
    reader_shops = [{"id": shop.id, "api_key": shop.api_key} for shop in shops]
    file.write_text(json.dumps({"api_url": api_url, "shops": reader_shops}))


def main() -> None:
    """Run the drill. The exit status is 1 if the outcome is not clean."""
    parser = argparse.ArgumentParser(prog="python -m drills.books")
    parser.add_argument("--payments", type=int, default=20_000)
    parser.add_argument("--merchants", type=int, default=20)
    options = parser.parse_args()
    var_dir = Path(os.environ.get("VAR_DIR", "var")).resolve()
    var_dir.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="chaos-books-", dir=var_dir))
    try:
        sys.exit(0 if asyncio.run(_run(options, folder, Console(width=100))) else 1)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
