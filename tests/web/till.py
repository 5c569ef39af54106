"""Control a checkout on a buyer's screen, with the chain and its watcher."""

import asyncio
import re
from contextlib import suppress
from dataclasses import dataclass, field

from playwright.async_api import BrowserContext, ConsoleMessage, Error, Locator, Page, expect

from payintent.payments.model import Payment, Session
from tests.support.onchain import ChainWorld
from tests.web.wallet import PATIENCE_S, POLL_S

PATIENCE_MS = 1000 * PATIENCE_S
# Browsers log every error response, even if the page expects it.
_EXPECTED_MESSAGE = re.compile(r"Failed to load resource: .*(400|410|net::ERR_FAILED)")

expect.set_options(timeout=PATIENCE_MS)


async def choose(page: Page, label: str) -> None:
    """Select a method, even if a payment with a different method is in progress."""
    await unfold(page)
    await page.get_by_role("radio", name=label).check()
    await page.locator("form.methods button").click()


async def unfold(page: Page) -> None:
    """Expand the remaining methods if a payment is in progress."""
    if await (summary := page.locator("details.other:not([open]) > summary")).count():
        await summary.click()


@dataclass
class WalletCheckout:
    """A buyer's page with a wallet payment."""

    ground: ChainWorld
    page: Page
    errors: list[str] = field(default_factory=list)

    async def bill(self, token: str) -> tuple[Payment, Session]:
        """Select a token for a new payment of 25.50 USD, and show its page."""
        payment, session = await self.ground.bill(token)
        await self.show(payment)
        return payment, session

    async def show(self, payment: Payment) -> None:
        """Open a payment's page."""
        base = self.ground.world.service.settings.checkout_base
        await self.page.goto(f"{base}/{payment.checkout_id}")

    async def click_wallet(self) -> None:
        """Select the wallet."""
        await self.wallets.click()

    async def expect_text(self, text: str) -> None:
        """Wait until the page's status contains this text."""
        await expect(self.status).to_contain_text(text)

    async def check_width(self, width: int) -> None:
        """Check that nothing exceeds a screen of this width in pixels."""
        await self.page.set_viewport_size({"width": width, "height": 2 * width})
        assert await self.page.evaluate("document.documentElement.scrollWidth") <= width

    async def poll_now(self) -> None:
        """Make the page poll immediately, as it does when the browser is online again."""
        with suppress(Error):  # the page may already be navigating
            await self.page.evaluate("dispatchEvent(new Event('online'))")

    async def finalize(self) -> None:
        """Make all transactions final, and run the watcher."""
        await self.ground.catch_up()
        await self.ground.mine(3)
        await self.ground.catch_up()

    async def expect_paid(self, payment: Payment) -> None:
        """Wait until the page shows the result, and check the payment's status."""
        await self.poll_now()
        await expect(self.page.get_by_role("heading", name="Paid")).to_be_visible()
        assert await self.ground.status(payment) == "PAID"
        assert await self.ground.world.cases(payment) == []

    async def wait_for_posted(self, session: Session, count: int = 1) -> list[str]:
        """Wait until the page has posted this many transactions; return their hashes."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                view = await self.ground.view(session)
                hashes = [transaction["tx_hash"] for transaction in view["transactions"]]
                if len(hashes) >= count:
                    return hashes
                await asyncio.sleep(POLL_S)

    @property
    def wallets(self) -> Locator:
        return self.page.get_by_role("button", name="Pay with")

    @property
    def status(self) -> Locator:
        return self.page.locator("[data-onchain-session] [data-status]")

    def _record_message(self, message: ConsoleMessage) -> None:
        # If the page was rendered just before the payment ended, it requests the QR code too late.
        is_late = "404" in message.text and message.location["url"].endswith("/address.svg")
        if (
            message.type in {"error", "warning"}
            and not _EXPECTED_MESSAGE.search(message.text)
            and not is_late
        ):
            self.errors.append(f"{message.text} {message.location['url']}")

    def _record_error(self, error: Error) -> None:
        self.errors.append(str(error))


async def make_wallet_checkout(ground: ChainWorld, buyer: BrowserContext) -> WalletCheckout:
    """Open a page that records its console messages and script errors."""
    page = await buyer.new_page()
    page.set_default_timeout(PATIENCE_MS)
    checkout = WalletCheckout(ground, page)
    page.on("console", checkout._record_message)
    page.on("pageerror", checkout._record_error)
    return checkout
