"""Control a buyer's hosted page, and the service behind it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from aiohttp import web
from playwright.async_api import BrowserContext, ConsoleMessage, Locator, Page, Route, expect

from payintent.checkout.context import CheckoutContext
from payintent.db.notify import ChangeFeed
from payintent.http.middleware import CommonHeaders
from payintent.payments.model import Payment
from tests.support.fakes import captured
from tests.support.http_server import clean_up
from tests.support.world import World
from tests.web.till import PATIENCE_MS, choose
from tests.web.wallet import PATIENCE_S, POLL_S

GATEWAY = "http://gateway.test"
SHOP = "http://shop.test"


@dataclass
class HostedCheckout:
    """A page that tracks a payment, and its service."""

    world: World
    app: CommonHeaders
    page: Page
    errors: list[str] = field(default_factory=list)

    async def create_and_open(self, query: str = "", **changes: Any) -> Payment:
        """Create a payment, and open its page."""
        payment = await self.world.create(**changes)
        await self.show(payment, query)
        return payment

    async def show(self, payment: Payment, rest: str = "") -> None:
        await self.page.goto(self.address(payment) + rest)

    def address(self, payment: Payment) -> str:
        return f"{self.world.service.settings.checkout_base}/{payment.checkout_id}"

    async def select_and_return(self, label: str = "Card") -> Payment:
        """Select a method on a new payment's page, and return from the gateway."""
        payment = await self.create_and_open()
        await choose(self.page, label)
        await expect(self.page).to_have_url(f"{GATEWAY}/pay")
        await self.show(payment)
        return payment

    async def report_paid(self, payment: Payment) -> None:
        """Report the capture, as the gateway does."""
        view = await self.world.read(payment)
        assert view.session is not None
        minor = int(payment.amount * 100)
        await self.world.report(payment, view.session.id, captured(minor))

    async def expect_result(self, title: str) -> None:
        """Wait until the page shows the result and focuses it, so that it is read aloud."""
        await expect(self.page.get_by_role("heading", name=title)).to_be_visible()
        await expect(self.result).to_be_focused()
        assert self.page.is_closed() is False

    async def wait_for_streams(self, count: int = 1) -> None:
        """Wait until the service has this many open streams."""
        async with asyncio.timeout(PATIENCE_S):
            while self.change_feed.count != count:
                await asyncio.sleep(POLL_S)

    async def poll(self, event: str = "online") -> Any:
        """Make the page query the payment; return the response.

        The test reads the body before the page does, because browsers discard it on navigation.
        """
        view: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        async def read(route: Route) -> None:
            answer = await route.fetch()
            if not view.done():
                view.set_result(await answer.json())
            await route.fulfill(response=answer)

        await self.page.route(self._is_view, read)
        await self.page.evaluate(f"dispatchEvent(new Event('{event}'))")
        async with asyncio.timeout(PATIENCE_S):
            await view
        await self.page.unroute(self._is_view, read)
        return view.result()

    async def set_visibility(self, *, hidden: bool) -> None:
        """Hide the page, as if it were in the background, or show it again."""
        await self.page.evaluate(
            """hidden => {
              Object.defineProperty(document, "hidden", { configurable: true, get: () => hidden });
              document.dispatchEvent(new Event("visibilitychange"));
            }""",
            hidden,
        )

    @property
    def change_feed(self) -> ChangeFeed[UUID]:
        here: CheckoutContext = self.app._app.state.checkout  # type: ignore[attr-defined]
        return here.change_feed

    @property
    def result(self) -> Locator:
        return self.page.locator("[data-result]")

    def _is_view(self, url: str) -> bool:
        return "/v1/checkout/" in url and url.count("/") == 5  # scheme, host, v1, checkout, id

    def _record_message(self, message: ConsoleMessage) -> None:
        if "Security Policy" in message.text:
            self.errors.append(message.text)


@asynccontextmanager
async def other_sites() -> AsyncIterator[int]:
    """Serve empty pages for the gateway and the shop; yield the port."""

    async def page(_: web.Request) -> web.Response:
        return web.Response(
            text="<title>elsewhere</title><h1>Elsewhere</h1>", content_type="text/html"
        )

    app = web.Application()
    app.router.add_get("/{any:.*}", page)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield runner.addresses[0][1]
    finally:
        await clean_up(runner)


async def make_hosted_checkout(
    world: World, app: CommonHeaders, buyer: BrowserContext
) -> HostedCheckout:
    """Open a page that records its errors."""
    page = await buyer.new_page()
    page.set_default_timeout(PATIENCE_MS)
    checkout = HostedCheckout(world, app, page)
    page.on("console", checkout._record_message)
    page.on("pageerror", lambda error: checkout.errors.append(str(error)))
    return checkout


@asynccontextmanager
async def open_second_tab(checkout: HostedCheckout) -> AsyncIterator[HostedCheckout]:
    """Open a second page of the same buyer."""
    second_tab = await make_hosted_checkout(checkout.world, checkout.app, checkout.page.context)
    yield second_tab
    assert second_tab.errors == []
    await second_tab.page.close()
