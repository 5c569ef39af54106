"""The hosted page in a frame: the pages that it talks to, and the links that leave it."""

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
from tests.web.buyer import GATEWAY, Desk, make_desk

LOOP = "session"
pytestmark = [pytest.mark.asyncio(loop_scope=LOOP), pytest.mark.full]


LISTENS = """<!doctype html><title>shop</title><h1>The shop</h1><script>
  window.told = [];
  addEventListener("message", ({ origin, data }) => told.push({ origin, ...data }));
</script>"""


class Shop:
    """A page of the shop, with the checkout in a frame."""

    def __init__(self, desk: Desk, origin: str) -> None:
        self.desk = desk
        self.origin = origin
        self.embed = f"?embed_origin={origin}&nonce=n-1"

    @property
    def page(self) -> Page:
        return self.desk.page

    @property
    def frame(self) -> FrameLocator:
        return self.page.frame_locator("iframe")

    async def frames(self, payment: Payment) -> None:
        """Show the checkout's page in a frame."""
        await self.page.evaluate(
            "src => document.body.append(Object.assign(document.createElement('iframe'), { src }))",
            self.desk.address(payment) + self.embed,
        )

    async def says(self, **message: Any) -> None:
        await self.page.evaluate(
            "message => document.querySelector('iframe').contentWindow.postMessage(message, '*')",
            {"source": "payintent", "version": 1, "nonce": "n-1"} | message,
        )

    async def was_heard(self) -> None:
        """Wait until the frame has had time to act."""
        frame = self.page.frames[1]
        assert await frame.evaluate("fetch('/healthz').then(({ status }) => status)") == 200

    async def is_told(self, type_: str) -> dict[str, Any]:
        """Wait until the frame has sent a message of a kind; return the last message."""
        handle = await self.page.wait_for_function(
            "type => told.findLast((one) => one.type === type)", arg=type_
        )
        told = await handle.json_value()
        base = self.desk.world.service.settings.checkout_base.removesuffix("/c")
        assert (told["origin"], told["source"], told["nonce"]) == (base, "payintent", "n-1")
        return told


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
        desk = await make_desk(world, site, buyer)
        profile = SetMerchantProfile(
            merchant_id=world.merchant_id, allowed_origins=[origin], return_url=f"{origin}/thanks"
        )
        await world.perform(profile)
        await desk.page.goto(f"{origin}/basket")
        yield Shop(desk, origin)
        assert desk.troubles == []
        await desk.page.close()


@fixture(loop_scope=LOOP)
async def shop(world: World, site: CommonHeaders, buyer: BrowserContext) -> AsyncIterator[Shop]:
    async with open_shop(world, site, buyer) as shop:
        yield shop


async def test_the_shop_lets_the_buyer_choose_and_is_told_what_comes_next(shop: Shop) -> None:
    world = shop.desk.world
    payment = await world.create()
    await shop.frames(payment)
    assert (await shop.is_told("ready"))["status"] == "PENDING"
    assert (await shop.is_told("resize"))["height"] > 100
    await shop.frame.get_by_role("radio", name="Transfer").check()
    assert (await shop.is_told("change"))["kind"] == "redirect"
    await shop.says(type="submit", nonce="wrong")
    await shop.says(type="submit", source="other")
    await shop.was_heard()
    assert world.gateway.created == []
    await shop.says(type="submit")
    action = (await shop.is_told("next_action"))["action"]
    assert action["redirect"]["url"] == f"{GATEWAY}/pay"
    link = shop.frame.get_by_role("link", name="Continue to payment")
    await expect(link).to_have_attribute("target", "_top")
    assert shop.page.url == f"{shop.origin}/basket"  # the frame led nobody anywhere
    assert len(world.gateway.created) == 1
    await shop.desk.is_paid((await world.read(payment)).payment)
    await expect(shop.frame.get_by_role("heading", name="Paid")).to_be_visible()
    assert (await shop.is_told("result"))["status"] == "PAID"
    assert (await shop.is_told("status"))["status"] == "PAID"  # after PROCESSING, if that was seen


async def test_a_retry_in_the_frame_replaces_the_shops_page(shop: Shop) -> None:
    world = shop.desk.world
    cancel_url = f"{shop.origin}/cart?order=1"
    payment = await world.create(cancel_url=cancel_url)
    await shop.frames(payment)
    await shop.is_told("ready")
    session = (await world.select(payment)).session
    await world.report(payment, session.id, declined())
    await shop.frame.get_by_role("link", name="Try again").click()
    await shop.page.wait_for_url(f"{cancel_url}&payment_id=pay_*&status=FAILED")


async def test_what_comes_next_is_told_though_the_change_is_heard_of_before(shop: Shop) -> None:
    desk = shop.desk

    async def slow(route: Route) -> None:
        answer = await route.fetch()
        for _ in range(3):  # time enough to hear of it, and to act on that
            await shop.page.wait_for_event("response", lambda one: desk._is_view(one.url))
        await route.fulfill(response=answer)

    await shop.page.route("**/quotes", slow)
    await shop.frames(await desk.world.create())
    await shop.is_told("ready")
    await shop.page.frames[1].evaluate("setInterval(() => dispatchEvent(new Event('online')), 50)")
    await shop.says(type="submit")
    assert (await shop.is_told("next_action"))["action"]["type"] == "redirect"


async def test_a_refused_choice_is_told_in_the_frame_and_to_the_shop(shop: Shop) -> None:
    world = shop.desk.world
    payment = await world.create()
    await shop.frames(payment)
    await shop.frame.get_by_label("Email").fill("ann@example.com")
    world.gateway.answer_create = lambda _: OutcomeUnknown(detail="planted")
    await shop.frame.get_by_role("button", name="Pay").click()
    told = await shop.is_told("refused")
    assert (told["code"], len(told["requestId"])) == ("PG_UPSTREAM_ERROR", 32)
    await expect(shop.frame.get_by_role("alert")).to_contain_text("provider did not respond")
    await world.rows("UPDATE payment_method SET fee_mode = 'EXCLUSIVE', fee_rate = 0.5")
    await shop.frame.get_by_role("button", name="Pay").click()
    await expect(shop.frame.get_by_role("alert")).to_contain_text("The total has changed")
    await expect(shop.frame.get_by_role("radio").first).to_have_value(f"{world.card}|THB|2385.00")
    await expect(shop.frame.get_by_label("Email")).to_have_value("ann@example.com")
    assert await world.status(payment) == "PENDING"


async def test_the_shop_changes_language_and_country(shop: Shop) -> None:
    await shop.frames(await shop.desk.world.create())
    await shop.is_told("ready")
    await shop.says(type="update", locale="ar", country="US")
    await expect(shop.frame.locator("html")).to_have_attribute("dir", "rtl")
    await expect(shop.frame.locator("body")).to_have_attribute("data-embed", shop.origin)
    await expect(shop.frame.locator("select[name=country]")).to_have_value("US")


async def test_one_page_of_the_shop_does_not_speak_for_another(shop: Shop) -> None:
    world = shop.desk.world
    other = "http://other.test"
    both = SetMerchantProfile(merchant_id=world.merchant_id, allowed_origins=[shop.origin, other])
    await world.perform(both)
    shop.embed = f"?embed_origin={other}&nonce=n-1"
    await shop.frames(await world.create())
    await expect(shop.frame.locator("html.scripted")).to_have_count(1)
    await shop.says(type="submit")
    await shop.was_heard()
    assert world.gateway.created == []
    assert await shop.page.evaluate("told") == []


async def test_no_other_page_frames_the_checkout(shop: Shop) -> None:
    world = shop.desk.world
    payment = await world.create()
    other = SetMerchantProfile(merchant_id=world.merchant_id, allowed_origins=["http://other.test"])
    await world.perform(other)
    async with shop.page.expect_event("console", lambda one: "frame-ancestors" in one.text):
        await shop.frames(payment)
    assert await shop.page.evaluate("told.length") == 0
    shop.desk.troubles.clear()


async def test_out_of_its_frame_the_page_is_as_any_other(shop: Shop) -> None:
    payment = await shop.desk.world.create()
    await shop.desk.show(payment, shop.embed)
    await shop.page.get_by_role("button", name="Pay").click()
    await expect(shop.page).to_have_url(f"{GATEWAY}/pay")


async def test_wallets_and_the_way_back_are_out_of_the_frame(
    ground: ChainWorld, site: CommonHeaders, buyer: BrowserContext
) -> None:
    async with open_shop(ground.world, site, buyer) as shop:
        payment, session = await ground.bill("NATIVED")
        await shop.frames(payment)
        link = shop.frame.get_by_role("link", name="Continue to payment")
        await expect(link).to_have_attribute("href", f"/c/{payment.checkout_id}")
        await expect(link).to_have_attribute("target", "_top")
        await expect(shop.frame.locator("[data-onchain-session]")).to_have_count(0)
        await ground.pay(session)
        await ground.final()
        await expect(shop.frame.get_by_role("heading", name="Paid")).to_be_visible()
        await expect(shop.frame.locator("pay-return")).to_be_hidden()  # it stays where it is
        back = shop.frame.get_by_role("link", name="Back to")
        await expect(back).to_have_attribute("target", "_top")
