"""A buyer pays by card in the provider's element, in a frame on our page."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

import aiohttp
import pytest
from playwright.async_api import Browser, BrowserContext, Error, FrameLocator, Page, expect
from pytest_asyncio import fixture

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
from tests.support.patience import PATIENCE_S
from tests.support.stripe import (
    CHALLENGES,
    DECLINED,
    PAYS,
    WEBHOOK_SECRET,
    Buyer,
    credentials,
    running_stripe,
)
from tests.support.world import World
from tests.web.till import choose, unfold

LOOP = "session"
pytestmark = [pytest.mark.asyncio(loop_scope=LOOP), pytest.mark.full]

PATIENCE_MS = PATIENCE_S * 1_000
LOOK_S = 0.05
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
class Counter:
    """A buyer's page, and the shop."""

    world: World
    page: Page
    method: int
    url: str
    troubles: list[str] = field(default_factory=list)

    @property
    def card(self) -> FrameLocator:
        return self.page.frame_locator("iframe[title='Secure payment input frame']")

    async def begin(self) -> Payment:
        """Create a payment, and select the card on its page."""
        payment = await self.world.create()
        await self.page.goto(self.address(payment))
        await choose(self.page, "Stripe")
        return payment

    def address(self, payment: Payment) -> str:
        return f"{self.world.service.settings.checkout_base}/{payment.checkout_id}"

    async def pay(self, number: str) -> None:
        await self.card.get_by_label("Card number").fill(number)
        await self.page.get_by_role("button", name="Pay 1,590.00 THB").click()

    async def says(self, text: str) -> None:
        await expect(self.page.locator("[data-card-step] [data-status]")).to_contain_text(text)

    async def shows_paid(self, payment: Payment) -> None:
        """Wait until the page shows the end, and check that the service agrees."""
        async with asyncio.timeout(PATIENCE_S):
            while await self.world.status(payment) != "PAID":
                await self.tend()
                await asyncio.sleep(LOOK_S)
        await self.hurry()
        await self.sees_paid(payment)

    async def hurry(self) -> None:
        """Make the page poll immediately, as it does when it becomes visible."""
        with suppress(Error):  # it may be on its way to another page already
            await self.page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")

    async def sees_paid(self, payment: Payment) -> None:
        await expect(self.page.get_by_role("heading", name="Paid")).to_be_visible()
        assert self.page.url == self.address(payment)
        assert await self.world.status(payment) == "PAID"
        assert await self.world.cases(payment) == []

    async def declines(self, payment: Payment, count: int) -> None:
        """Wait until the service knows this many declined attempts."""
        async with asyncio.timeout(PATIENCE_S):
            while await self._declines(payment) < count:
                await asyncio.sleep(LOOK_S)
        assert await self._declines(payment) == count

    async def tend(self) -> None:
        """Run all due inquiries of the janitor."""
        service = self.world.service
        for ask in await session_store.claim_due(service.database, 10, 60, []):
            await service.session_inquirer.inquire(ask)

    async def _declines(self, payment: Payment) -> int:
        query = "SELECT declines FROM session WHERE payment_id = $1"
        [row] = await self.world.rows(query, payment.id)
        return row["declines"]


@fixture(loop_scope=LOOP)
async def method(world: World, settings: Settings, stripe_url: str) -> int:
    """Offer a card at the Stripe emulator, which sends callbacks."""
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
async def counter(
    site: CommonHeaders, world: World, method: int, stripe_url: str, buyer: BrowserContext
) -> AsyncIterator[Counter]:
    page = await buyer.new_page()
    page.set_default_timeout(PATIENCE_MS)
    counter = Counter(world, page, method, stripe_url)
    page.on("pageerror", lambda error: counter.troubles.append(str(error)))
    page.on(
        "console",
        lambda one: counter.troubles.append(one.text) if "Security Policy" in one.text else None,
    )
    yield counter
    assert counter.troubles == []


async def test_the_providers_fields_speak_the_pages_language_and_are_dark_with_it(
    counter: Counter,
) -> None:
    await counter.page.emulate_media(color_scheme="dark")
    payment = await counter.begin()
    await counter.page.goto(f"{counter.address(payment)}?lang=zh-Hant")
    frame = counter.page.locator("iframe[title='Secure payment input frame']")
    await expect(frame).to_have_attribute("lang", "zh-TW")
    await expect(frame).to_have_attribute("data-theme", "night")


async def test_a_buyer_pays_and_the_provider_tells_us_and_the_page_shows_it(
    counter: Counter,
) -> None:
    payment = await counter.begin()
    await counter.pay(PAYS)
    await counter.sees_paid(payment)  # nobody asks anybody: Stripe calls back, the page looks


async def test_who_is_declined_twice_can_still_pay(counter: Counter) -> None:
    payment = await counter.begin()
    for count in (1, 2):
        await counter.pay(DECLINED)
        await counter.says("Your card was declined.")
        await counter.declines(payment, count)
    assert await counter.world.status(payment) == "PROCESSING"
    await counter.pay(PAYS)
    await counter.shows_paid(payment)


async def test_who_is_declined_three_times_has_had_the_tries(counter: Counter) -> None:
    payment = await counter.begin()
    for count in range(1, TOO_MANY + 1):
        await counter.pay(DECLINED)
        await counter.declines(payment, count)
    await counter.hurry()
    await expect(counter.card.get_by_label("Card number")).to_be_hidden()  # the step is over
    await counter.tend()
    await expect(counter.page.get_by_role("heading", name="did not go through")).to_be_visible()
    [row] = await counter.world.rows(
        "SELECT status, failure_reason FROM payment WHERE id = $1", payment.id
    )
    assert (row["status"], row["failure_reason"]) == ("FAILED", "DECLINED")


async def test_who_fails_the_banks_question_can_answer_it_again(counter: Counter) -> None:
    payment = await counter.begin()
    await counter.pay(CHALLENGES)
    await counter.card.get_by_role("button", name="Fail authentication").click()
    await counter.says("failed authentication")
    await counter.declines(payment, 1)
    await counter.page.get_by_role("button", name="Pay 1,590.00 THB").click()
    await counter.card.get_by_role("button", name="Complete authentication").click()
    await counter.shows_paid(payment)


async def test_a_number_that_is_none_is_told_and_is_no_attempt(counter: Counter) -> None:
    payment = await counter.begin()
    await counter.pay("1234")
    await counter.says("Your card number is invalid.")
    await counter.pay(PAYS)
    await counter.shows_paid(payment)
    await counter.declines(payment, 0)


async def test_a_payment_that_was_made_elsewhere_is_not_offered_again(counter: Counter) -> None:
    payment = await counter.begin()
    root = counter.page.locator("[data-card-step]")
    client_secret = await root.get_attribute("data-client-secret")
    await expect(counter.card.get_by_label("Card number")).to_be_visible()
    asked = {"key": "pk_test_one", "client_secret": client_secret, "number": PAYS}
    url = f"{counter.url}/element/confirm"
    async with aiohttp.ClientSession() as http, http.post(url, json=asked) as answer:
        assert answer.status == 200
    await counter.pay(PAYS)  # the provider refuses it: the page looks what has become of it
    await counter.shows_paid(payment)


async def test_the_step_allows_the_provider_alone_and_no_other_page_does(
    counter: Counter,
) -> None:
    payment = await counter.begin()
    await expect(counter.card.get_by_label("Card number")).to_be_visible()
    policy = await _policy(counter.page)
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == f"'self' {counter.url}"
    assert policy["frame-src"] == counter.url
    assert policy["connect-src"] == f"'self' {counter.url}"
    await counter.pay(PAYS)
    await counter.shows_paid(payment)
    ended = await _policy(counter.page)
    assert (ended["script-src"], ended["connect-src"]) == ("'self'", "'self'")
    assert "frame-src" not in ended


async def _policy(page: Page) -> dict[str, str]:
    answer = await page.reload()
    assert answer is not None
    told = answer.headers["content-security-policy"]
    assert "unsafe" not in told
    return dict(part.strip().partition(" ")[::2] for part in told.split(";"))


async def test_a_provider_whose_script_is_away_is_told_and_another_way_can_be_chosen(
    counter: Counter,
) -> None:
    await counter.page.route("**/element/v3.js", lambda route: route.abort())
    await counter.begin()
    await counter.says("couldn’t be loaded")
    await unfold(counter.page)
    await expect(counter.page.get_by_role("radio", name="Transfer")).to_be_visible()
    await expect(counter.page.get_by_role("button", name="Pay 1,590.00 THB")).to_be_hidden()


async def test_without_javascript_the_page_says_so_and_offers_everything_else(
    site: CommonHeaders, world: World, method: int, browser: Browser
) -> None:
    async with await browser.new_context(java_script_enabled=False) as buyer:
        page = await buyer.new_page()
        counter = Counter(world, page, method, "")
        await counter.begin()
        # By its place, since Playwright finds no text in there.
        await expect(page.locator("noscript p")).to_contain_text("requires JavaScript")
        await expect(page.locator("noscript p")).to_be_visible()
        await unfold(page)
        await expect(page.get_by_role("radio", name="Transfer")).to_be_visible()
        await expect(page.get_by_role("button", name="Pay 1,590.00 THB")).to_be_hidden()


async def test_the_step_fits_a_small_screen(counter: Counter) -> None:
    await counter.begin()
    await expect(counter.card.get_by_label("Card number")).to_be_visible()
    await counter.page.set_viewport_size({"width": SMALL_PX, "height": 2 * SMALL_PX})
    assert await counter.page.evaluate("document.documentElement.scrollWidth") <= SMALL_PX
