"""A buyer at the hosted page: the screen, and the events in the background."""

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
from tests.web.wallet import LOOK_S, PATIENCE_S

GATEWAY = "http://gateway.test"
SHOP = "http://shop.test"


@dataclass
class Desk:
    """A page that tracks a payment, and its service."""

    world: World
    app: CommonHeaders
    page: Page
    troubles: list[str] = field(default_factory=list)

    async def opened(self, query: str = "", **changes: Any) -> Payment:
        """Create a payment, and open its page."""
        payment = await self.world.create(**changes)
        await self.show(payment, query)
        return payment

    async def show(self, payment: Payment, rest: str = "") -> None:
        await self.page.goto(self.address(payment) + rest)

    def address(self, payment: Payment) -> str:
        return f"{self.world.service.settings.checkout_base}/{payment.checkout_id}"

    async def chosen(self, label: str = "Card") -> Payment:
        """Select a method on a new payment's page, and return from the gateway."""
        payment = await self.opened()
        await choose(self.page, label)
        await expect(self.page).to_have_url(f"{GATEWAY}/pay")
        await self.show(payment)
        return payment

    async def is_paid(self, payment: Payment) -> None:
        """Let the gateway report the payment."""
        seen = await self.world.read(payment)
        assert seen.session is not None
        minor = int(payment.amount * 100)
        await self.world.report(payment, seen.session.id, captured(minor))

    async def sees(self, title: str) -> None:
        """Wait until the page shows an end that has the focus, so that it is read aloud."""
        await expect(self.page.get_by_role("heading", name=title)).to_be_visible()
        await expect(self.result).to_be_focused()
        assert self.page.is_closed() is False

    async def is_heard(self, count: int = 1) -> None:
        """Wait until the service has this many open streams."""
        async with asyncio.timeout(PATIENCE_S):
            while self.lookout.count != count:
                await asyncio.sleep(LOOK_S)

    async def asked(self, event: str = "online") -> Any:
        """Let the page query the payment; return the response.

        The body is read before the page receives it, because browsers discard it on navigation.
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

    async def turns(self, *, hidden: bool) -> None:
        """Move the page to the background, or back."""
        await self.page.evaluate(
            """hidden => {
              Object.defineProperty(document, "hidden", { configurable: true, get: () => hidden });
              document.dispatchEvent(new Event("visibilitychange"));
            }""",
            hidden,
        )

    @property
    def lookout(self) -> ChangeFeed[UUID]:
        here: CheckoutContext = self.app._app.state.checkout  # type: ignore[attr-defined]
        return here.change_feed

    @property
    def result(self) -> Locator:
        return self.page.locator("[data-result]")

    def _is_view(self, url: str) -> bool:
        return "/v1/checkout/" in url and url.count("/") == 5  # scheme, host, v1, checkout, id

    def _hear(self, message: ConsoleMessage) -> None:
        if "Security Policy" in message.text:
            self.troubles.append(message.text)


@asynccontextmanager
async def other_sites() -> AsyncIterator[int]:
    """Serve empty pages of the gateway and the shop; yield the port."""

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


async def make_desk(world: World, app: CommonHeaders, buyer: BrowserContext) -> Desk:
    """Open a page."""
    page = await buyer.new_page()
    page.set_default_timeout(PATIENCE_MS)
    desk = Desk(world, app, page)
    page.on("console", desk._hear)
    page.on("pageerror", lambda error: desk.troubles.append(str(error)))
    return desk


@asynccontextmanager
async def another_tab(desk: Desk) -> AsyncIterator[Desk]:
    """Open a second page of the same buyer."""
    other = await make_desk(desk.world, desk.app, desk.page.context)
    yield other
    assert other.troubles == []
    await other.page.close()
