"""A checkout on a buyer's screen, and the chain and its watcher in the background."""

import asyncio
import re
from contextlib import suppress
from dataclasses import dataclass, field

from playwright.async_api import BrowserContext, ConsoleMessage, Error, Locator, Page, expect

from payintent.payments.model import Payment, Session
from tests.support.onchain import ChainWorld
from tests.web.wallet import LOOK_S, PATIENCE_S

PATIENCE_MS = 1000 * PATIENCE_S
# A browser tells of every answer that is an error, of those too that are the page's daily bread.
_DAILY = re.compile(r"Failed to load resource: .*(400|410|net::ERR_FAILED)")

expect.set_options(timeout=PATIENCE_MS)


async def choose(page: Page, label: str) -> None:
    """Select a method, even if another one is in progress."""
    await unfold(page)
    await page.get_by_role("radio", name=label).check()
    await page.locator("form.methods button").click()


async def unfold(page: Page) -> None:
    """Show the other methods while one is in progress."""
    if await (folded := page.locator("details.other:not([open]) > summary")).count():
        await folded.click()


@dataclass
class Till:
    """A buyer's page."""

    ground: ChainWorld
    page: Page
    troubles: list[str] = field(default_factory=list)

    async def bill(self, token: str) -> tuple[Payment, Session]:
        """Select a token for a new payment of 25.50 USD, and show its page."""
        payment, session = await self.ground.bill(token)
        await self.show(payment)
        return payment, session

    async def show(self, payment: Payment) -> None:
        """Open a payment's page."""
        base = self.ground.world.service.settings.checkout_base
        await self.page.goto(f"{base}/{payment.checkout_id}")

    async def press(self) -> None:
        """Select the wallet."""
        await self.wallets.click()

    async def says(self, text: str) -> None:
        """Wait until the page shows a text about the payment."""
        await expect(self.status).to_contain_text(text)

    async def fits(self, width: int) -> None:
        """Check that nothing exceeds a screen of this width in pixels."""
        await self.page.set_viewport_size({"width": width, "height": 2 * width})
        assert await self.page.evaluate("document.documentElement.scrollWidth") <= width

    async def hurry(self) -> None:
        """Make the page poll immediately, as it does when a phone is online again."""
        with suppress(Error):  # it may be on its way to another page already
            await self.page.evaluate("dispatchEvent(new Event('online'))")

    async def settle(self) -> None:
        """Make everything on the chain final, and let the watcher read it."""
        await self.ground.look()
        await self.ground.mine(3)
        await self.ground.look()

    async def shows_paid(self, payment: Payment) -> None:
        """Wait until the page shows the end, and check that the service agrees."""
        await self.hurry()
        await expect(self.page.get_by_role("heading", name="Paid")).to_be_visible()
        assert await self.ground.status(payment) == "PAID"
        assert await self.ground.world.cases(payment) == []

    async def posted(self, session: Session, count: int = 1) -> list[str]:
        """Wait until the page has posted this many payments; return their hashes."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                view = await self.ground.view(session)
                known = [transaction["tx_hash"] for transaction in view["transactions"]]
                if len(known) >= count:
                    return known
                await asyncio.sleep(LOOK_S)

    @property
    def wallets(self) -> Locator:
        return self.page.get_by_role("button", name="Pay with")

    @property
    def status(self) -> Locator:
        return self.page.locator("[data-onchain-session] [data-status]")

    def _hear(self, message: ConsoleMessage) -> None:
        # A page that was rendered just before the payment ended asks for the QR code too late.
        is_late = "404" in message.text and message.location["url"].endswith("/address.svg")
        if message.type in {"error", "warning"} and not _DAILY.search(message.text) and not is_late:
            self.troubles.append(f"{message.text} {message.location['url']}")

    def _fail(self, error: Error) -> None:
        self.troubles.append(str(error))


async def make_till(ground: ChainWorld, buyer: BrowserContext) -> Till:
    """Open a page, and record its errors: blocked by a policy, or failed."""
    page = await buyer.new_page()
    page.set_default_timeout(PATIENCE_MS)
    till = Till(ground, page)
    page.on("console", till._hear)
    page.on("pageerror", till._fail)
    return till
