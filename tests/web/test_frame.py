"""Test the hosted page in a frame: its messages, and the links that leave the frame."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from playwright.async_api import BrowserContext, FrameLocator, Page, Route, expect
from pytest_asyncio import fixture

from payintent.gateways.port import OutcomeUnknown
from payintent.http.middleware import CommonHeaders
from payintent.merchants.operations import SetMerchantProfile
from payintent.payments.model import Payment
from tests.support.fakes import declined
from tests.support.http_server import clean_up
from tests.support.onchain import ChainWorld
from tests.support.world import World
from tests.web.buyer import GATEWAY, HostedCheckout, make_hosted_checkout

LOOP = "session"
pytestmark = [pytest.mark.asyncio(loop_scope=LOOP), pytest.mark.full]


LISTENS = """<!doctype html><title>shop</title><h1>The shop</h1><script>
  window.messages = [];
  addEventListener("message", ({ origin, data }) => messages.push({ origin, ...data }));
</script>"""


class Shop:
    """A shop's page with the checkout in a frame."""

    def __init__(self, checkout: HostedCheckout, origin: str) -> None:
        self.checkout = checkout
        self.origin = origin
        self.embed = f"?embed_origin={origin}&nonce=n-1"

    @property
    def page(self) -> Page:
        return self.checkout.page

    @property
    def frame(self) -> FrameLocator:
        return self.page.frame_locator("iframe")

    async def show_frame(self, payment: Payment) -> None:
        """Show a payment's checkout in a frame."""
        await self.page.evaluate(
            "src => document.body.append(Object.assign(document.createElement('iframe'), { src }))",
            self.checkout.address(payment) + self.embed,
        )

    async def post_message(self, **message: Any) -> None:
        await self.page.evaluate(
            "message => document.querySelector('iframe').contentWindow.postMessage(message, '*')",
            {"source": "payintent", "version": 1, "nonce": "n-1"} | message,
        )

    async def wait_until_processed(self) -> None:
        """Wait until the frame has processed all messages."""
        frame = self.page.frames[1]
        assert await frame.evaluate("fetch('/healthz').then(({ status }) => status)") == 200

    async def wait_for_message(self, type_: str) -> dict[str, Any]:
        """Wait until the frame has sent a message of this type; return the last message."""
        handle = await self.page.wait_for_function(
            "type => messages.findLast((message) => message.type === type)", arg=type_
        )
        message = await handle.json_value()
        base = self.checkout.world.service.settings.checkout_base.removesuffix("/c")
        assert (message["origin"], message["source"], message["nonce"]) == (
            base,
            "payintent",
            "n-1",
        )
        return message


@asynccontextmanager
async def serving_shop() -> AsyncIterator[str]:
    """Serve the shop's page at a separate origin; return the origin."""

    async def page(_: web.Request) -> web.Response:
        return web.Response(text=LISTENS, content_type="text/html")

    app = web.Application()
    app.router.add_get("/{any:.*}", page)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://localhost:{runner.addresses[0][1]}"
    finally:
        await clean_up(runner)


@asynccontextmanager
async def open_shop(
    world: World, site: CommonHeaders, buyer: BrowserContext
) -> AsyncIterator[Shop]:
    async with serving_shop() as origin:
        checkout = await make_hosted_checkout(world, site, buyer)
        profile = SetMerchantProfile(
            merchant_id=world.merchant_id, allowed_origins=[origin], return_url=f"{origin}/thanks"
        )
        await world.perform(profile)
        await checkout.page.goto(f"{origin}/basket")
        yield Shop(checkout, origin)
        assert checkout.errors == []
        await checkout.page.close()


@fixture(loop_scope=LOOP)
async def shop(world: World, site: CommonHeaders, buyer: BrowserContext) -> AsyncIterator[Shop]:
    async with open_shop(world, site, buyer) as shop:
        yield shop


async def test_the_shop_submits_the_choice_and_receives_the_next_action(shop: Shop) -> None:
    world = shop.checkout.world
    payment = await world.create()
    await shop.show_frame(payment)
    assert (await shop.wait_for_message("ready"))["status"] == "PENDING"
    assert (await shop.wait_for_message("resize"))["height"] > 100
    await shop.frame.get_by_role("radio", name="Transfer").check()
    assert (await shop.wait_for_message("change"))["kind"] == "redirect"
    await shop.post_message(type="submit", nonce="wrong")
    await shop.post_message(type="submit", source="other")
    await shop.wait_until_processed()
    assert world.gateway.created == []
    await shop.post_message(type="submit")
    action = (await shop.wait_for_message("next_action"))["action"]
    assert action["redirect"]["url"] == f"{GATEWAY}/pay"
    link = shop.frame.get_by_role("link", name="Continue to payment")
    await expect(link).to_have_attribute("target", "_top")
    assert shop.page.url == f"{shop.origin}/basket"  # the frame does not navigate the page
    assert len(world.gateway.created) == 1
    await shop.checkout.report_paid((await world.read(payment)).payment)
    await expect(shop.frame.get_by_role("heading", name="Paid")).to_be_visible()
    assert (await shop.wait_for_message("result"))["status"] == "PAID"
    assert (await shop.wait_for_message("status"))["status"] == "PAID"


async def test_a_retry_in_the_frame_replaces_the_shops_page(shop: Shop) -> None:
    world = shop.checkout.world
    cancel_url = f"{shop.origin}/cart?order=1"
    payment = await world.create(cancel_url=cancel_url)
    await shop.show_frame(payment)
    await shop.wait_for_message("ready")
    session = (await world.select(payment)).session
    await world.report(payment, session.id, declined())
    await shop.frame.get_by_role("link", name="Try again").click()
    await shop.page.wait_for_url(f"{cancel_url}&payment_id=pay_*&status=FAILED")


@pytest.mark.parametrize("duration_s", [0, 40])
async def test_the_shop_receives_the_next_action_even_if_an_update_arrives_first(
    shop: Shop, duration_s: int
) -> None:
    checkout = shop.checkout

    async def respond_slowly(route: Route) -> None:
        answer = await route.fetch()
        await shop.page.frames[1].evaluate(
            """(ms) => {
              const now = performance.now();
              performance.now = () => now + ms;
            }""",
            duration_s * 1_000,
        )
        for _ in range(3):  # enough time for the page to receive and process updates
            await shop.page.wait_for_event(
                "response", lambda response: checkout._is_view(response.url)
            )
        await route.fulfill(response=answer)

    await shop.page.route("**/quotes", respond_slowly)
    await shop.show_frame(await checkout.world.create())
    await shop.wait_for_message("ready")
    await shop.page.frames[1].evaluate("setInterval(() => dispatchEvent(new Event('online')), 50)")
    await shop.post_message(type="submit")
    assert (await shop.wait_for_message("next_action"))["action"]["type"] == "redirect"


async def test_a_rejected_selection_is_reported_in_the_frame_and_to_the_shop(shop: Shop) -> None:
    world = shop.checkout.world
    payment = await world.create()
    await shop.show_frame(payment)
    await shop.frame.get_by_label("Email").fill("ann@example.com")
    world.gateway.answer_create = lambda _: OutcomeUnknown(detail="planted")
    await shop.frame.get_by_role("button", name="Pay").click()
    message = await shop.wait_for_message("refused")
    assert (message["code"], len(message["requestId"])) == ("PG_UPSTREAM_ERROR", 32)
    await expect(shop.frame.get_by_role("alert")).to_contain_text("provider did not respond")
    await world.rows("UPDATE payment_method SET fee_mode = 'EXCLUSIVE', fee_rate = 0.5")
    await shop.frame.get_by_role("button", name="Pay").click()
    await expect(shop.frame.get_by_role("alert")).to_contain_text("The total has changed")
    await expect(shop.frame.get_by_role("radio").first).to_have_value(f"{world.card}|THB|2385.00")
    await expect(shop.frame.get_by_label("Email")).to_have_value("ann@example.com")
    assert await world.status(payment) == "PENDING"


async def test_the_frame_tells_the_buyer_to_correct_the_email_address(shop: Shop) -> None:
    world = shop.checkout.world
    await shop.show_frame(await world.create())
    email, button = shop.frame.get_by_label("Email"), shop.frame.get_by_role("button", name="Pay")
    await email.fill("ann@")
    await button.click()
    await expect(shop.frame.get_by_role("alert")).to_have_text(
        "Please enter a valid email address."
    )
    await expect(email).to_have_attribute("aria-invalid", "true")
    await expect(email).to_have_attribute("aria-describedby", "problem")
    await email.fill("ann@example.com ")
    await button.click()
    await expect(shop.frame.get_by_role("link", name="Continue to payment")).to_be_visible()


async def test_the_frame_replaces_a_method_that_is_no_longer_available(shop: Shop) -> None:
    world = shop.checkout.world
    await shop.show_frame(await world.create())
    await shop.frame.get_by_label("Email").fill("ann@example.com")
    await world.rows("UPDATE payment_method SET enabled = false WHERE id = $1", world.card)
    await shop.frame.get_by_role("button", name="Pay").click()
    assert (await shop.wait_for_message("refused"))["code"] == "PAYMENT_METHOD_NOT_FOUND"
    await expect(shop.frame.get_by_role("alert")).to_have_text("Please choose a payment method.")
    await expect(shop.frame.locator(f"[value^='{world.card}|']")).to_have_count(0)
    await expect(shop.frame.get_by_label("Email")).to_have_value("ann@example.com")
    await shop.frame.get_by_role("button", name="Pay").click()
    await expect(shop.frame.get_by_role("link", name="Continue to payment")).to_be_visible()


async def test_the_shop_changes_language_and_country(shop: Shop) -> None:
    await shop.show_frame(await shop.checkout.world.create())
    await shop.wait_for_message("ready")
    await shop.post_message(type="update", locale="ar", country="US")
    await expect(shop.frame.locator("html")).to_have_attribute("dir", "rtl")
    await expect(shop.frame.locator("body")).to_have_attribute("data-embed", shop.origin)
    await expect(shop.frame.locator("select[name=country]")).to_have_value("US")


async def test_a_message_from_a_different_allowed_origin_is_ignored(shop: Shop) -> None:
    world = shop.checkout.world
    embedding_origin = "http://other.test"
    profile = SetMerchantProfile(
        merchant_id=world.merchant_id, allowed_origins=[shop.origin, embedding_origin]
    )
    await world.perform(profile)
    shop.embed = f"?embed_origin={embedding_origin}&nonce=n-1"
    await shop.show_frame(await world.create())
    await expect(shop.frame.locator("html.scripted")).to_have_count(1)
    await shop.post_message(type="submit")
    await shop.wait_until_processed()
    assert world.gateway.created == []
    assert await shop.page.evaluate("messages") == []


async def test_an_unregistered_origin_cannot_frame_the_checkout(shop: Shop) -> None:
    world = shop.checkout.world
    payment = await world.create()
    profile = SetMerchantProfile(
        merchant_id=world.merchant_id, allowed_origins=["http://other.test"]
    )
    await world.perform(profile)
    async with shop.page.expect_event("console", lambda message: "frame-ancestors" in message.text):
        await shop.show_frame(payment)
    assert await shop.page.evaluate("messages.length") == 0
    shop.checkout.errors.clear()


async def test_an_embed_url_outside_a_frame_works_like_the_hosted_page(shop: Shop) -> None:
    payment = await shop.checkout.world.create()
    await shop.checkout.show(payment, shop.embed)
    await shop.page.get_by_role("button", name="Pay").click()
    await expect(shop.page).to_have_url(f"{GATEWAY}/pay")


async def test_wallet_payments_and_the_return_link_open_outside_the_frame(
    ground: ChainWorld, site: CommonHeaders, buyer: BrowserContext
) -> None:
    async with open_shop(ground.world, site, buyer) as shop:
        payment, session = await ground.bill("NATIVED")
        await shop.show_frame(payment)
        link = shop.frame.get_by_role("link", name="Continue to payment")
        await expect(link).to_have_attribute("href", f"/c/{payment.checkout_id}")
        await expect(link).to_have_attribute("target", "_top")
        await expect(shop.frame.locator("[data-onchain-session]")).to_have_count(0)
        await ground.pay(session)
        await ground.final()
        await expect(shop.frame.get_by_role("heading", name="Paid")).to_be_visible()
        # A frame does not return automatically.
        await expect(shop.frame.locator("pay-return")).to_be_hidden()
        back = shop.frame.get_by_role("link", name="Back to")
        await expect(back).to_have_attribute("target", "_top")
