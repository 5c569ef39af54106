"""The oldest supported browsers, and error reports of the page's own faults."""

import pytest
from playwright.async_api import BrowserContext, Route, expect
from pytest_asyncio import fixture

from payintent.http.middleware import CommonHeaders
from tests.support.onchain import ChainWorld
from tests.support.world import World
from tests.web import old_browser
from tests.web.buyer import make_desk
from tests.web.sdk_desk import Desk, wallet_session
from tests.web.test_frame import open_shop
from tests.web.test_sdk_ways import heard, leads, mounts
from tests.web.till import Till, choose
from tests.web.wallet import Wallet

LOOP = "session"
pytestmark = [pytest.mark.asyncio(loop_scope=LOOP), pytest.mark.full]

_OWN_FAULT = "Something went wrong on this page"


@fixture(loop_scope=LOOP)
async def old(buyer: BrowserContext) -> BrowserContext:
    """The buyer's browser, without the features that the oldest supported browsers lack."""
    await buyer.add_init_script(old_browser.script())
    return buyer


@pytest.mark.usefixtures("old")
async def test_a_wallet_pays_and_the_page_notices(
    till: Till, buyer: BrowserContext, wallet: Wallet
) -> None:
    await wallet.stand_in(buyer)
    payment, _ = await till.bill("USDT")
    await till.press()
    await till.says("is on the blockchain")
    assert len(wallet.sent) == 2
    await till.settle()
    await till.shows_paid(payment)


async def test_the_page_notices_a_gateways_payment(
    world: World, site: CommonHeaders, old: BrowserContext
) -> None:
    desk = await make_desk(world, site, old)
    payment = await desk.chosen()
    await desk.is_paid(payment)
    await desk.sees("Paid")
    assert desk.troubles == []


async def test_the_page_in_a_shops_frame_is_submitted_from_there(
    world: World, site: CommonHeaders, old: BrowserContext
) -> None:
    async with open_shop(world, site, old) as shop:
        await shop.frames(await world.create())
        await shop.frame.get_by_role("radio", name="Transfer").check()
        await shop.says(type="submit")
        await shop.frame.get_by_role("link", name="Continue to payment").wait_for()
        assert len(world.gateway.created) == 1


@pytest.mark.usefixtures("old")
async def test_the_sdk_mounts_its_widget_and_leads_to_the_gateway(desk: Desk) -> None:
    desk.api.world.gateway.answer_create = leads(url=f"{desk.shop.url}/gateway")
    await desk.register()
    await desk.open()
    created = await desk.create()
    await mounts(desk, {"checkoutUrl": created.json["checkout_url"]})
    await heard(desk, "ready")
    await desk.start("result", "() => widget.submit()")
    await desk.page.wait_for_url(f"{desk.shop.url}/gateway")


@pytest.mark.usefixtures("old")
async def test_the_sdk_tells_a_refused_submission_and_an_abort(desk: Desk) -> None:
    await desk.register()
    await desk.open()
    created = await desk.create()
    await mounts(desk, {"checkoutUrl": created.json["checkout_url"]})
    await desk.api.world.rows("UPDATE payment_method SET enabled = false")
    assert (await desk.fails("() => widget.submit()"))["code"] == "PAYMENT_METHOD_NOT_FOUND"
    stops = """async ([id]) => {
      const stop = new AbortController();
      setTimeout(() => stop.abort(), 50);
      return sdk.waitForResult(id, { signal: stop.signal });
    }"""
    error = await desk.fails(stops, [created.json["checkout_id"]])
    assert error["code"].startswith("AbortError")


@pytest.mark.usefixtures("old")
async def test_the_sdk_pays_from_a_wallet(
    desk: Desk, buyer: BrowserContext, ground: ChainWorld, wallet: Wallet
) -> None:
    await wallet.stand_in(buyer)
    await desk.open()
    script = """async ([checkoutId, sessionId]) => {
      const [{ provider }] = await sdk.onchain.discover();
      const session = await sdk.onchain.session(sessionId);
      return sdk.onchain.pay({ checkoutId, session, provider });
    }"""
    given = await wallet_session(ground, "USDT")
    assert (await desk.call(script, given))["result"]["txHash"] == wallet.hashes[1]


async def test_a_fault_of_the_page_is_named_as_one_and_logged(
    till: Till, buyer: BrowserContext, wallet: Wallet
) -> None:
    await wallet.stand_in(buyer)
    await till.bill("USDT")
    await expect(till.wallets).to_be_enabled()
    await till.page.evaluate("globalThis.AbortController = undefined")
    await till.press()
    await till.says(_OWN_FAULT)
    await till.hurry()
    await expect(till.page.locator("#problem")).to_contain_text(_OWN_FAULT)
    assert any("AbortController" in trouble for trouble in till.troubles)
    till.troubles.clear()


async def test_a_fault_in_a_shops_frame_is_told_to_the_shop_as_one(
    world: World, site: CommonHeaders, buyer: BrowserContext
) -> None:
    async with open_shop(world, site, buyer) as shop:
        await shop.frames(await world.create())
        await shop.is_told("ready")
        await shop.page.frames[1].evaluate("globalThis.AbortController = undefined")
        await shop.says(type="submit")
        assert (await shop.is_told("refused"))["code"] == "WIDGET_FAILED"
        await expect(shop.frame.locator("#problem")).to_contain_text(_OWN_FAULT)


async def test_a_service_that_cannot_be_reached_is_named_as_that(
    till: Till, buyer: BrowserContext, wallet: Wallet
) -> None:
    async def fail(route: Route) -> None:
        await route.abort()

    await wallet.stand_in(buyer)
    await till.bill("USDT")
    await till.page.route("**/v1/onchain/**", fail)
    await till.press()
    await till.says("We can’t reach the payment service")
    assert wallet.sent == []


@pytest.mark.usefixtures("old")
async def test_a_choice_is_made_on_the_page_itself(
    world: World, site: CommonHeaders, buyer: BrowserContext
) -> None:
    desk = await make_desk(world, site, buyer)
    await desk.opened()
    await choose(desk.page, "Card")
    await desk.page.wait_for_url("http://gateway.test/pay")
    assert desk.troubles == []
