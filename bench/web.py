"""`python -m bench.web`: compare the size and speed of pages with their budgets.

The pages are three checkout pages, and the first pages of the operator console and the merchant
portal after sign-in.
"""

import argparse
import asyncio
import math
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from http import HTTPStatus
from pathlib import Path

import aiohttp
import msgspec
from playwright.async_api import Browser, Cookie, async_playwright
from rich.console import Console
from rich.table import Table

from bench import web_speed
from bench.machine import print_machine
from bench.web_speed import Speed
from payintent.members.model import MemberRole
from payintent_sandbox.postgres import Postgres
from tests.support import browser as programs
from tests.web import weight
from tests.web.console_gallery import ConsoleGallery, open_console
from tests.web.gallery import Gallery, open_gallery
from tests.web.portal_pages import arrange_portal, sign_in_by_link
from tests.web.states import STATES
from tests.web.visiting import address, screen
from tests.web.wallet import ANNOUNCED
from tools.prepare import prepare

_RUNS = 5
CHOOSE, WALLET, PAID = "choose", "wallet-found", "paid"
TODAY, PAYMENTS = "today", "payments"
_CHECKOUT = {CHOOSE: "choose a way to pay", WALLET: "pay from a wallet", PAID: "paid"}
_SIGNED_IN = {TODAY: "console: today", PAYMENTS: "portal: payments"}
_PAGES = {**_CHECKOUT, **_SIGNED_IN}
#: The element of each page that a user waits for.
_USABLE = {
    TODAY: "#figures .tile .figure",  # pending work, below the heading
    PAYMENTS: "main h1",
    CHOOSE: "form.methods button",
    WALLET: "[data-wallets] button",
    PAID: "[data-result]",
}


@dataclass(frozen=True, slots=True)
class Budget:
    """The limit for a figure: a maximum, or a minimum if `least` is set."""

    name: str
    limit: float
    unit: str
    least: bool = False
    signed_in: float | None = None  # the limit for pages that need sign-in, if it is higher

    def limit_on(self, page: str) -> float:
        return self.limit if self.signed_in is None or page not in _SIGNED_IN else self.signed_in

    def met(self, value: float, page: str = "") -> bool:
        limit = self.limit_on(page)
        return value >= limit if self.least else value <= limit

    def text(self, value: float, page: str = "") -> str:
        """Format a figure, with (!) if it is outside the budget."""
        return self.plain(value) if self.met(value, page) else f"{self.plain(value)} (!)"

    def plain(self, value: float) -> str:
        """Format a figure with its unit; bytes are shown in kB."""
        return f"{value / 1000:.2f} kB" if self.unit == "B" else f"{value:g} {self.unit}".strip()


HTML = Budget("HTML", weight.HTML_BYTES_MAX, "B", signed_in=8_000)
CSS = Budget("CSS", weight.CSS_BYTES_MAX, "B", signed_in=6_000)
JS = Budget("JavaScript", weight.JS_BYTES_MAX, "B", signed_in=30_000)  # includes the chart library
REQUESTS = Budget("requests until usable", weight.REQUESTS_MAX, "", signed_in=8)
USABLE = Budget("usable", 0.5, "s")
OPENED_FIRST = Budget("usable with an empty cache", 0.75, "s")
LCP = Budget("largest paint (LCP)", 1.5, "s")
SHIFT = Budget("layout shift (CLS)", 0.02, "")
PERFORMANCE = Budget("Lighthouse, performance", 1.0, "", least=True)
ACCESSIBILITY = Budget("Lighthouse, accessibility", 1.0, "", least=True)
SDK = Budget("SDK, /sdk/v1.js", weight.SDK_BYTES_MAX, "B")


@dataclass(frozen=True, slots=True)
class Figure:
    """A budget, and its figures by page. The page name is empty for a figure without a page."""

    budget: Budget
    values: dict[str, float]

    @property
    def met(self) -> bool:
        return all(self.budget.met(value, page) for page, value in self.values.items())


@dataclass(frozen=True, slots=True)
class Place:
    """The URL of a page, and the browser state that it needs."""

    url: str
    usable: str
    wallet: bool
    cookies: Sequence[Cookie]
    before: str = ""  # the page that the buyer visits first


async def measure(
    gallery: Gallery, console: ConsoleGallery, browser: Browser, runs: int, *, lighthouse: bool
) -> list[Figure]:
    """Measure every page in `_PAGES`, sequentially."""
    places = {
        **{name: await _checkout(gallery, name) for name in _CHECKOUT},
        TODAY: await _today(console, browser),
        PAYMENTS: await _portal(gallery, browser),
    }
    weights = {
        name: await weight.weigh_page(place.url, place.cookies) for name, place in places.items()
    }
    figures = [
        Figure(HTML, {name: one.html for name, one in weights.items()}),
        Figure(CSS, {name: one.css for name, one in weights.items()}),
        Figure(JS, {name: one.js for name, one in weights.items()}),
        Figure(REQUESTS, {name: await _requests(browser, one) for name, one in places.items()}),
    ]
    speeds = {name: await _speeds(browser, place, runs) for name, place in places.items()}
    first = {WALLET: await _speeds(browser, replace(places[WALLET], before=""), runs)}
    figures += [
        Figure(USABLE, _medians(speeds, lambda one: one.usable_s)),
        Figure(OPENED_FIRST, _medians(first, lambda one: one.usable_s)),
        Figure(LCP, _medians(speeds, lambda one: one.lcp_s)),
        Figure(SHIFT, _medians(speeds, lambda one: one.shift)),
    ]
    if lighthouse:
        scores = {name: await web_speed.lighthouse(places[name].url) for name in _CHECKOUT}
        figures.append(Figure(PERFORMANCE, {name: one[0] for name, one in scores.items()}))
        figures.append(Figure(ACCESSIBILITY, {name: one[1] for name, one in scores.items()}))
    return [*figures, Figure(SDK, {"": await _sdk(gallery)})]


async def _checkout(gallery: Gallery, name: str) -> Place:
    visit = await STATES[name](gallery)
    before = await STATES["choose-everything"](gallery) if visit.wallet else None
    return Place(
        address(gallery, visit),
        _USABLE[name],
        visit.wallet,
        (),
        address(gallery, before) if before else "",
    )


async def _today(console: ConsoleGallery, browser: Browser) -> Place:
    async with await screen(browser) as context:
        await console.sign_in(context, "Ada")
        return Place(f"{console.base}/", _USABLE[TODAY], False, await context.cookies())


async def _portal(gallery: Gallery, browser: Browser) -> Place:
    scene = await arrange_portal(gallery.plain)
    async with await screen(browser) as context:
        await sign_in_by_link(context, scene, MemberRole.DEVELOPER, "dev@nimbus.example")
        cookies = await context.cookies()
    return Place(scene.address("payments"), _USABLE[PAYMENTS], False, cookies)


async def _requests(browser: Browser, place: Place) -> int:
    async with await screen(browser) as context:
        await context.add_cookies(place.cookies)  # type: ignore[arg-type]
        if place.wallet:
            await context.add_init_script(ANNOUNCED)
        return len((await weight.record_page_requests(context, place.url)).parts)


async def _speeds(browser: Browser, place: Place, runs: int) -> list[Speed]:
    return [
        await web_speed.visit(
            browser,
            place.url,
            place.usable,
            wallet=place.wallet,
            cookies=place.cookies,
            before=place.before,
        )
        for _ in range(runs)
    ]


async def _sdk(gallery: Gallery) -> float:
    """Return the SDK's size, or a size above the budget if it is not served."""
    url = f"{weight.origin(gallery)}/sdk/v1.js"
    headers = {"Accept-Encoding": "gzip"}
    async with aiohttp.ClientSession(headers=headers, auto_decompress=False) as client:
        async with client.get(url) as answer:
            is_served = answer.status == HTTPStatus.OK
        return len(await weight.fetch(client, url)) if is_served else math.inf


def _medians(speeds: Mapping[str, list[Speed]], pick: Callable[[Speed], float]) -> dict[str, float]:
    return {name: round(statistics.median(map(pick, runs)), 3) for name, runs in speeds.items()}


def show(figures: list[Figure], runs: int, console: Console) -> None:
    """Print the figures with their budgets."""
    table = Table(
        title=f"slow 4G (150 ms, 1.6 Mbit/s) and 4x CPU slowdown; medians of {runs} runs",
        caption="bytes are compressed with gzip; (!) is outside the budget",
    )
    table.add_column("")
    for page in (*_PAGES.values(), "budget"):
        table.add_column(page, justify="right")
    for figure in figures:
        cells = [
            figure.budget.text(figure.values[name], name) if name in figure.values else ""
            for name in _PAGES
        ]
        if "" in figure.values:
            cells[0] = figure.budget.text(figure.values[""])
        table.add_row(figure.budget.name, *cells, _may_be(figure.budget))
    console.print(table)


def _may_be(budget: Budget) -> str:
    least = "at least" if budget.least else "at most"
    more = "" if budget.signed_in is None else f"; signed in {budget.plain(budget.signed_in)}"
    return f"{least} {budget.plain(budget.limit)}{more}"


async def _run(server_url: str, runs: int, *, quick: bool) -> list[Figure]:
    program = programs.find_light() if quick else programs.find()
    if program is None:
        sys.exit(programs.MISSING)
    async with (
        open_gallery(server_url) as gallery,
        open_console(server_url) as console,
        async_playwright() as playwright,
    ):
        browser = await playwright.chromium.launch(executable_path=program)
        try:
            return await measure(gallery, console, browser, runs, lighthouse=not quick)
        finally:
            await browser.close()


def main() -> None:
    """Measure, print and store the figures, and exit with 1 if a budget is exceeded."""
    parser = argparse.ArgumentParser(prog="python -m bench.web", description=__doc__)
    parser.add_argument(
        "--quick",
        action="store_true",
        help="a single run in the headless shell, without Lighthouse",
    )
    quick: bool = parser.parse_args().quick
    prepare("web", "browser")
    runs = 1 if quick else _RUNS
    var_dir = Path(os.environ.get("VAR_DIR", "var")).resolve()
    var_dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="payintent-web-") as folder:
        Path(folder).chmod(0o711)  # so that the server's user can access its data
        postgres = Postgres(Path(folder) / "postgres", durable=False)
        try:
            figures = asyncio.run(_run(postgres.start(), runs, quick=quick))
        finally:
            postgres.stop()
    console = Console(width=160)
    show(figures, runs, console)
    print_machine(console)
    results_file = var_dir / "bench-web.json"
    results_file.write_bytes(msgspec.json.encode([asdict(figure) for figure in figures]))
    console.print(f"written to {results_file}")
    sys.exit(0 if all(figure.met for figure in figures) else 1)


if __name__ == "__main__":
    main()
