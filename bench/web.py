"""`make bench-web`: what the checkout's pages weigh and how fast they are, beside what they may."""

import argparse
import asyncio
import math
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from http import HTTPStatus
from pathlib import Path

import aiohttp
import msgspec
from playwright.async_api import Browser, async_playwright
from rich.console import Console
from rich.table import Table

from bench import web_speed
from bench.web_speed import Speed
from payintent_sandbox.postgres import Postgres
from tests.support import browser as programs
from tests.web import weight
from tests.web.gallery import Gallery, open_gallery
from tests.web.states import STATES
from tests.web.visiting import address, screen

_RUNS = 5
CHOOSE, WALLET, PAID = "choose", "wallet-found", "paid"
_PAGES = {CHOOSE: "choose a way to pay", WALLET: "pay from a wallet", PAID: "paid"}
#: What a buyer waits for on each.
_USABLE = {
    CHOOSE: "form.methods > button",
    WALLET: "[data-wallets] button",
    PAID: "[data-result]",
}


@dataclass(frozen=True, slots=True)
class Budget:
    """What one figure may be: at most `limit`, or at least where `least` says so."""

    name: str
    limit: float
    unit: str
    least: bool = False

    def met(self, value: float) -> bool:
        return value >= self.limit if self.least else value <= self.limit

    def text(self, value: float) -> str:
        """Write a figure: bytes as a person reads them, everything else as it is."""
        shown = f"{value / 1000:.2f} kB" if self.unit == "B" else f"{value:g} {self.unit}".strip()
        return shown if self.met(value) else f"{shown} (!)"


HTML = Budget("HTML", weight.HTML_BYTES_MAX, "B")
CSS = Budget("CSS", weight.CSS_BYTES_MAX, "B")
JS = Budget("JavaScript", weight.JS_BYTES_MAX, "B")
REQUESTS = Budget("requests until it is there", weight.REQUESTS_MAX, "")
USABLE = Budget("usable", 0.5, "s")
OFFERED = Budget("usable: the wallet is offered", 0.75, "s")  # it asks the wallet, then the service
LCP = Budget("largest paint (LCP)", 1.5, "s")
SHIFT = Budget("layout shift (CLS)", 0.02, "")
PERFORMANCE = Budget("Lighthouse, performance", 1.0, "", least=True)
ACCESSIBILITY = Budget("Lighthouse, accessibility", 1.0, "", least=True)
SDK = Budget("SDK, /sdk/v1.js", weight.SDK_BYTES_MAX, "B")


@dataclass(frozen=True, slots=True)
class Figure:
    """One budget, and what was measured by page; what is no page's has no name."""

    budget: Budget
    values: dict[str, float]

    @property
    def met(self) -> bool:
        return all(self.budget.met(one) for one in self.values.values())


async def measure(
    gallery: Gallery, browser: Browser, runs: int, *, lighthouse: bool
) -> list[Figure]:
    """Measure every page of `_PAGES`, one after the other."""
    weights = {name: await weight.weigh(gallery, name) for name in _PAGES}
    figures = [
        Figure(HTML, {name: one.html for name, one in weights.items()}),
        Figure(CSS, {name: one.css for name, one in weights.items()}),
        Figure(JS, {name: one.js for name, one in weights.items()}),
        Figure(REQUESTS, {name: await _requests(gallery, browser, name) for name in _PAGES}),
    ]
    speeds = {name: await _speeds(gallery, browser, name, runs) for name in _PAGES}
    usable = _medians(speeds, lambda one: one.usable_s)
    figures += [
        Figure(USABLE, {name: usable[name] for name in (CHOOSE, PAID)}),
        Figure(OFFERED, {WALLET: usable[WALLET]}),
        Figure(LCP, _medians(speeds, lambda one: one.lcp_s)),
        Figure(SHIFT, _medians(speeds, lambda one: one.shift)),
    ]
    if lighthouse:
        scores = {name: await _lighthouse(gallery, name) for name in _PAGES}
        figures.append(Figure(PERFORMANCE, {name: one[0] for name, one in scores.items()}))
        figures.append(Figure(ACCESSIBILITY, {name: one[1] for name, one in scores.items()}))
    return [*figures, Figure(SDK, {"": await _sdk(gallery)})]


async def _requests(gallery: Gallery, browser: Browser, name: str) -> int:
    async with await screen(browser) as context:
        return len((await weight.asked(context, gallery, name)).parts)


async def _speeds(gallery: Gallery, browser: Browser, name: str, runs: int) -> list[Speed]:
    visit = await STATES[name](gallery)
    url, usable = address(gallery, visit), _USABLE[name]
    return [await web_speed.visit(browser, url, visit, usable) for _ in range(runs)]


async def _lighthouse(gallery: Gallery, name: str) -> tuple[float, float]:
    visit = await STATES[name](gallery)
    return await web_speed.lighthouse(address(gallery, visit))


async def _sdk(gallery: Gallery) -> float:
    """Weigh the SDK; one that is not served weighs too much."""
    url = f"{weight.origin(gallery)}/sdk/v1.js"
    headers = {"Accept-Encoding": "gzip"}
    async with aiohttp.ClientSession(headers=headers, auto_decompress=False) as client:
        async with client.get(url) as answer:
            served = answer.status == HTTPStatus.OK
        return len(await weight.fetch(client, url)) if served else math.inf


def _medians(speeds: Mapping[str, list[Speed]], pick: Callable[[Speed], float]) -> dict[str, float]:
    return {name: round(statistics.median(map(pick, runs)), 3) for name, runs in speeds.items()}


def show(figures: list[Figure], runs: int, console: Console) -> None:
    """Print the figures, each with what it may be."""
    table = Table(
        title=f"slow 4G (150 ms, 1.6 Mbit/s) and a CPU slowed down 4 times; medians of {runs} runs",
        caption="bytes are packed by gzip; (!) is beyond the budget",
    )
    table.add_column("")
    for page in (*_PAGES.values(), "may be"):
        table.add_column(page, justify="right")
    for one in figures:
        cells = [one.budget.text(one.values[name]) if name in one.values else "" for name in _PAGES]
        if "" in one.values:
            cells[0] = one.budget.text(one.values[""])
        least = "at least" if one.budget.least else "at most"
        table.add_row(one.budget.name, *cells, f"{least} {one.budget.text(one.budget.limit)}")
    console.print(table)


async def _run(server_url: str, runs: int, *, lighthouse: bool) -> list[Figure]:
    program = programs.find()
    if program is None:
        sys.exit(programs.MISSING)
    async with open_gallery(server_url) as gallery, async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=program)
        try:
            return await measure(gallery, browser, runs, lighthouse=lighthouse)
        finally:
            await browser.close()


def main() -> None:
    """Measure, print, keep in `var/bench-web.json`; end with 1 where a budget is missed."""
    parser = argparse.ArgumentParser(prog="python -m bench.web", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one run, and without Lighthouse")
    quick: bool = parser.parse_args().quick
    runs = 1 if quick else _RUNS
    var_dir = Path(os.environ.get("VAR_DIR", "var")).resolve()
    var_dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="payintent-web-") as folder:
        Path(folder).chmod(0o711)  # so that the server's own user can reach its data
        postgres = Postgres(Path(folder) / "postgres", durable=False)
        try:
            figures = asyncio.run(_run(postgres.start(), runs, lighthouse=not quick))
        finally:
            postgres.stop()
    console = Console(width=110)
    show(figures, runs, console)
    kept = var_dir / "bench-web.json"
    kept.write_bytes(msgspec.json.encode([asdict(one) for one in figures]))
    console.print(f"written to {kept}")
    sys.exit(0 if all(one.met for one in figures) else 1)


if __name__ == "__main__":
    main()
