"""Test card payments in the provider's element, which is in a frame on our page."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

import aiohttp
import pytest
from playwright.async_api import Browser, BrowserContext, Error, FrameLocator, Page, Route, expect
from pytest_asyncio import fixture

from payintent.checkout.static_files import SCRIPT_CHECK
from payintent.gateway_accounts.operations import AddAccount
from payintent.gateways.http_client import GatewayHttpClient
from payintent.gateways.stripe.adapter import StripeGateway
from payintent.http.middleware import CommonHeaders
from payintent.merchants.methods_operations import AddPaymentMethod
from payintent.payments import sessions_store as session_store
from payintent.payments.model import Payment
from payintent.runtime.settings import Settings
from payintent.service import Service, open_service
from tests.support.fakes import FakeGateway
from tests.support.stripe import (
    CHALLENGES,
    DECLINED,
    PAYS,
    WEBHOOK_SECRET,
    Buyer,
    credentials,
    running_stripe,
)
from tests.support.timeouts import PATIENCE_S
from tests.support.world import World
from tests.web.till import choose, unfold

LOOP = "session"
pytestmark = [pytest.mark.asyncio(loop_scope=LOOP), pytest.mark.full]

PATIENCE_MS = PATIENCE_S * 1_000
POLL_S = 0.05
SMALL_PX = 320
TOO_MANY = 3

expect.set_options(timeout=PATIENCE_MS)


@pytest.fixture(scope="module")
def stripe_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_stripe(tmp_path_factory.mktemp("stripe") / "log") as url:
        yield url


@fixture(loop_scope=LOOP)
async def service(settings: Settings, gateway: FakeGateway) -> AsyncIterator[Service]:
    http = GatewayHttpClient(timeout_s=PATIENCE_S, response_bytes_max=1024 * 1024)
    service = await open_service(settings, {"fake": gateway, "stripe": StripeGateway(http)})
    yield service
    await service.close()
    await http.close()


@dataclass
class CardCheckout:
    """A buyer's page with the card step."""

    world: World
    page: Page
    method: int
    url: str
    errors: list[str] = field(default_factory=list)

    @property
    def card(self) -> FrameLocator:
        return self.page.frame_locator("iframe[title='Secure payment input frame']")

    async def start_payment(self) -> Payment:
        """Create a payment, and select the card method on its page."""
        payment = await self.world.create()
        await self.page.goto(self.address(payment))
        await choose(self.page, "Stripe")
        return payment

    def address(self, payment: Payment) -> str:
        return f"{self.world.service.settings.checkout_base}/{payment.checkout_id}"

    async def pay(self, number: str) -> None:
        await self.card.get_by_label("Card number").fill(number)
        await self.page.get_by_role("button", name="Pay 1,590.00 THB").click()

    async def expect_text(self, text: str) -> None:
        await expect(self.page.locator("[data-card-step] [data-status]")).to_contain_text(text)

    async def wait_for_paid(self, payment: Payment) -> None:
        """Run inquiries until the payment is paid, and check that the page shows it."""
        async with asyncio.timeout(PATIENCE_S):
            while await self.world.status(payment) != "PAID":
                await self.run_inquiries()
                await asyncio.sleep(POLL_S)
        await self.poll_now()
        await self.expect_paid(payment)

    async def poll_now(self) -> None:
        """Make the page poll immediately, as it does when it becomes visible."""
        with suppress(Error):  # the page may already be navigating
            await self.page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")

    async def expect_paid(self, payment: Payment) -> None:
        await expect(self.page.get_by_role("heading", name="Paid")).to_be_visible()
        assert self.page.url == self.address(payment)
        assert await self.world.status(payment) == "PAID"
        assert await self.world.cases(payment) == []

    async def wait_for_declines(self, payment: Payment, count: int) -> None:
        """Wait until the service has recorded this many declined attempts."""
        async with asyncio.timeout(PATIENCE_S):
            while await self._count_declines(payment) < count:
                await asyncio.sleep(POLL_S)
        assert await self._count_declines(payment) == count

    async def run_inquiries(self) -> None:
        """Run all due inquiries, as the worker does."""
        service = self.world.service
        for ask in await session_store.claim_due(service.database, 10, 60, []):
            await service.session_inquirer.inquire(ask)

    async def _count_declines(self, payment: Payment) -> int:
        query = "SELECT declines FROM session WHERE payment_id = $1"
        [row] = await self.world.rows(query, payment.id)
        return row["declines"]


@fixture(loop_scope=LOOP)
async def method(world: World, settings: Settings, stripe_url: str) -> int:
    """Add a card method that uses the Stripe emulator, which sends callbacks."""
    account = await world.perform(
        AddAccount(provider="stripe", base_url=stripe_url, credentials=credentials(stripe_url))
    )
    async with aiohttp.ClientSession() as http:
        callbacks = f"{settings.api_base}/callbacks/stripe/{account.id}"
        await Buyer(stripe_url, http).listen(callbacks, WEBHOOK_SECRET)
    stripe = AddPaymentMethod(
        merchant_id=world.merchant_id,
        account_id=account.id,
        kind="card",
        label="Stripe",
        currencies=["THB"],
    )
    return (await world.perform(stripe)).id


@fixture(loop_scope=LOOP)
async def checkout(
    site: CommonHeaders, world: World, method: int, stripe_url: str, buyer: BrowserContext
) -> AsyncIterator[CardCheckout]:
    page = await buyer.new_page()
    page.set_default_timeout(PATIENCE_MS)
    checkout = CardCheckout(world, page, method, stripe_url)
    page.on("pageerror", lambda error: checkout.errors.append(str(error)))
    page.on(
        "console",
        lambda message: (
            checkout.errors.append(message.text) if "Security Policy" in message.text else None
        ),
    )
    yield checkout
    assert checkout.errors == []


async def test_the_providers_fields_use_the_pages_language_and_dark_theme(
    checkout: CardCheckout,
) -> None:
    await checkout.page.emulate_media(color_scheme="dark")
    payment = await checkout.start_payment()
    await checkout.page.goto(f"{checkout.address(payment)}?lang=zh-Hant")
    frame = checkout.page.locator("iframe[title='Secure payment input frame']")
    await expect(frame).to_have_attribute("lang", "zh-TW")
    await expect(frame).to_have_attribute("data-theme", "night")


async def test_the_page_shows_a_payment_after_the_providers_callback(
    checkout: CardCheckout,
) -> None:
    payment = await checkout.start_payment()
    await checkout.pay(PAYS)
    # Without an inquiry: only Stripe's callback updates the payment.
    await checkout.expect_paid(payment)


async def test_a_buyer_can_pay_after_two_declines(checkout: CardCheckout) -> None:
    payment = await checkout.start_payment()
    for count in (1, 2):
        await checkout.pay(DECLINED)
        await checkout.expect_text("Your card was declined.")
        await checkout.wait_for_declines(payment, count)
    assert await checkout.world.status(payment) == "PROCESSING"
    await checkout.pay(PAYS)
    await checkout.wait_for_paid(payment)


async def test_a_third_decline_fails_the_payment(checkout: CardCheckout) -> None:
    payment = await checkout.start_payment()
    for count in range(1, TOO_MANY + 1):
        await checkout.pay(DECLINED)
        await checkout.wait_for_declines(payment, count)
    await checkout.poll_now()
    await expect(checkout.card.get_by_label("Card number")).to_be_hidden()  # the step is over
    await checkout.run_inquiries()
    await expect(checkout.page.get_by_role("heading", name="did not go through")).to_be_visible()
    [row] = await checkout.world.rows(
        "SELECT status, failure_reason FROM payment WHERE id = $1", payment.id
    )
    assert (row["status"], row["failure_reason"]) == ("FAILED", "DECLINED")


async def test_a_buyer_can_retry_a_failed_authentication(checkout: CardCheckout) -> None:
    payment = await checkout.start_payment()
    await checkout.pay(CHALLENGES)
    await checkout.card.get_by_role("button", name="Fail authentication").click()
    await checkout.expect_text("failed authentication")
    await checkout.wait_for_declines(payment, 1)
    await checkout.page.get_by_role("button", name="Pay 1,590.00 THB").click()
    await checkout.card.get_by_role("button", name="Complete authentication").click()
    await checkout.wait_for_paid(payment)


async def test_an_invalid_card_number_shows_an_error_and_is_not_counted_as_a_decline(
    checkout: CardCheckout,
) -> None:
    payment = await checkout.start_payment()
    await checkout.pay("1234")
    await checkout.expect_text("Your card number is invalid.")
    await checkout.pay(PAYS)
    await checkout.wait_for_paid(payment)
    await checkout.wait_for_declines(payment, 0)


async def test_a_payment_that_was_confirmed_elsewhere_is_shown_as_paid(
    checkout: CardCheckout,
) -> None:
    payment = await checkout.start_payment()
    root = checkout.page.locator("[data-card-step]")
    client_secret = await root.get_attribute("data-client-secret")
    await expect(checkout.card.get_by_label("Card number")).to_be_visible()
    confirmation = {"key": "pk_test_one", "client_secret": client_secret, "number": PAYS}
    url = f"{checkout.url}/element/confirm"
    async with aiohttp.ClientSession() as http, http.post(url, json=confirmation) as answer:
        assert answer.status == 200
    await checkout.pay(PAYS)  # the provider rejects it, and the page queries the payment
    await checkout.wait_for_paid(payment)


async def test_only_the_card_step_allows_the_provider_in_its_content_security_policy(
    checkout: CardCheckout,
) -> None:
    payment = await checkout.start_payment()
    await expect(checkout.card.get_by_label("Card number")).to_be_visible()
    policy = await _policy(checkout.page)
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == f"'self' {SCRIPT_CHECK.csp_source} {checkout.url}"
    assert policy["frame-src"] == checkout.url
    assert policy["connect-src"] == f"'self' {checkout.url}"
    await checkout.pay(PAYS)
    await checkout.wait_for_paid(payment)
    final_policy = await _policy(checkout.page)
    assert (final_policy["script-src"], final_policy["connect-src"]) == ("'self'", "'self'")
    assert "frame-src" not in final_policy


async def _policy(page: Page) -> dict[str, str]:
    answer = await page.reload()
    assert answer is not None
    policy = answer.headers["content-security-policy"]
    assert "unsafe" not in policy
    return dict(part.strip().partition(" ")[::2] for part in policy.split(";"))


async def test_a_buyer_can_choose_another_method_if_the_providers_script_fails(
    checkout: CardCheckout,
) -> None:
    await checkout.page.route("**/element/v3.js", lambda route: route.abort())
    await checkout.start_payment()
    await checkout.expect_text("couldn’t be loaded")
    await unfold(checkout.page)
    await expect(checkout.page.get_by_role("radio", name="Transfer")).to_be_visible()
    await expect(checkout.page.get_by_role("button", name="Pay 1,590.00 THB")).to_be_hidden()


async def test_the_card_step_without_javascript_offers_only_other_methods(
    site: CommonHeaders, world: World, method: int, browser: Browser
) -> None:
    async with await browser.new_context(java_script_enabled=False) as buyer:
        page = await buyer.new_page()
        checkout = CardCheckout(world, page, method, "")
        await checkout.start_payment()
        await expect(page.get_by_text("requires JavaScript")).to_be_visible()
        await unfold(page)
        await expect(page.get_by_role("radio", name="Transfer")).to_be_visible()
        await expect(page.get_by_role("button", name="Pay 1,590.00 THB")).to_be_hidden()


async def test_a_browser_that_cannot_run_the_scripts_explains_why_there_is_no_card_form(
    checkout: CardCheckout,
) -> None:
    async def break_scripts(route: Route) -> None:
        answer = await route.fetch()
        await route.fulfill(response=answer, body=(await answer.text()).replace("?.", "@"))

    await checkout.start_payment()
    notice = checkout.page.get_by_text("This payment method requires JavaScript")
    await expect(checkout.card.get_by_label("Card number")).to_be_visible()
    await expect(notice).to_be_hidden()
    await checkout.page.route("**/c/**", break_scripts)
    await checkout.page.reload()
    await expect(notice).to_be_visible()
    checkout.errors.clear()


async def test_the_card_step_fits_a_small_screen(checkout: CardCheckout) -> None:
    await checkout.start_payment()
    await expect(checkout.card.get_by_label("Card number")).to_be_visible()
    await checkout.page.set_viewport_size({"width": SMALL_PX, "height": 2 * SMALL_PX})
    assert await checkout.page.evaluate("document.documentElement.scrollWidth") <= SMALL_PX
