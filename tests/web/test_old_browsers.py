"""Test the oldest supported browsers, and the messages for script errors."""

import pytest
from playwright.async_api import BrowserContext, Route, expect
from pytest_asyncio import fixture

from payintent.http.middleware import CommonHeaders
from tests.support.onchain import ChainWorld
from tests.support.world import World
from tests.web import old_browser
from tests.web.buyer import make_hosted_checkout
from tests.web.sdk_driver import SdkPage, wallet_session
from tests.web.test_frame import open_shop
from tests.web.test_sdk_open_modes import mount, redirect_to, wait_for_event
from tests.web.till import WalletCheckout, choose
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
async def test_a_buyer_pays_from_a_wallet(
    checkout: WalletCheckout, buyer: BrowserContext, wallet: Wallet
) -> None:
    await wallet.install(buyer)
    payment, _ = await checkout.bill("USDT")
    await checkout.click_wallet()
    await checkout.expect_text("is on the blockchain")
    assert len(wallet.transactions) == 2
    await checkout.finalize()
    await checkout.expect_paid(payment)


async def test_the_page_shows_a_gateway_payment(
    world: World, site: CommonHeaders, old: BrowserContext
) -> None:
    checkout = await make_hosted_checkout(world, site, old)
    payment = await checkout.select_and_return()
    await checkout.report_paid(payment)
    await checkout.expect_result("Paid")
    assert checkout.errors == []


async def test_a_shop_submits_the_page_in_its_frame(
    world: World, site: CommonHeaders, old: BrowserContext
) -> None:
    async with open_shop(world, site, old) as shop:
        await shop.show_frame(await world.create())
        await shop.frame.get_by_role("radio", name="Transfer").check()
        await shop.post_message(type="submit")
        await shop.frame.get_by_role("link", name="Continue to payment").wait_for()
        assert len(world.gateway.created) == 1


@pytest.mark.usefixtures("old")
async def test_the_sdk_mounts_its_widget_and_redirects_to_the_gateway(sdk: SdkPage) -> None:
    sdk.api.world.gateway.answer_create = redirect_to(url=f"{sdk.shop.url}/gateway")
    await sdk.register_origin()
    await sdk.open()
    created = await sdk.create()
    await mount(sdk, {"checkoutUrl": created.json["checkout_url"]})
    await wait_for_event(sdk, "ready")
    await sdk.start("result", "() => widget.submit()")
    await sdk.page.wait_for_url(f"{sdk.shop.url}/gateway")


@pytest.mark.usefixtures("old")
async def test_the_sdk_reports_a_rejected_submission_and_an_abort(sdk: SdkPage) -> None:
    await sdk.register_origin()
    await sdk.open()
    created = await sdk.create()
    await mount(sdk, {"checkoutUrl": created.json["checkout_url"]})
    await sdk.api.world.rows("UPDATE payment_method SET enabled = false")
    assert (await sdk.expect_error("() => widget.submit()"))["code"] == "PAYMENT_METHOD_NOT_FOUND"
    script = """async ([id]) => {
      const stop = new AbortController();
      setTimeout(() => stop.abort(), 50);
      return sdk.waitForResult(id, { signal: stop.signal });
    }"""
    error = await sdk.expect_error(script, [created.json["checkout_id"]])
    assert error["code"].startswith("AbortError")


@pytest.mark.usefixtures("old")
async def test_the_sdk_pays_from_a_wallet(
    sdk: SdkPage, buyer: BrowserContext, ground: ChainWorld, wallet: Wallet
) -> None:
    await wallet.install(buyer)
    await sdk.open()
    script = """async ([checkoutId, sessionId]) => {
      const [{ provider }] = await sdk.onchain.discover();
      const session = await sdk.onchain.session(sessionId);
      return sdk.onchain.pay({ checkoutId, session, provider });
    }"""
    arguments = await wallet_session(ground, "USDT")
    assert (await sdk.call(script, arguments))["result"]["txHash"] == wallet.hashes[1]


async def test_a_script_error_is_shown_as_a_page_error_and_logged(
    checkout: WalletCheckout, buyer: BrowserContext, wallet: Wallet
) -> None:
    await wallet.install(buyer)
    await checkout.bill("USDT")
    await expect(checkout.wallets).to_be_enabled()
    await checkout.page.evaluate("globalThis.AbortController = undefined")
    await checkout.click_wallet()
    await checkout.expect_text(_OWN_FAULT)
    await checkout.poll_now()
    await expect(checkout.page.locator("#problem")).to_contain_text(_OWN_FAULT)
    assert any("AbortController" in error for error in checkout.errors)
    checkout.errors.clear()


async def test_a_script_error_in_a_frame_is_reported_to_the_shop(
    world: World, site: CommonHeaders, buyer: BrowserContext
) -> None:
    async with open_shop(world, site, buyer) as shop:
        await shop.show_frame(await world.create())
        await shop.wait_for_message("ready")
        await shop.page.frames[1].evaluate("globalThis.AbortController = undefined")
        await shop.post_message(type="submit")
        assert (await shop.wait_for_message("refused"))["code"] == "WIDGET_FAILED"
        await expect(shop.frame.locator("#problem")).to_contain_text(_OWN_FAULT)


async def test_a_browser_that_cannot_run_the_scripts_explains_why_there_is_no_wallet(
    checkout: WalletCheckout,
) -> None:
    async def break_scripts(route: Route) -> None:
        answer = await route.fetch()
        await route.fulfill(response=answer, body=(await answer.text()).replace("?.", "@"))

    await checkout.bill("USDT")
    notice = checkout.page.get_by_text("This payment method requires JavaScript")
    await expect(notice).to_be_hidden()
    await checkout.page.route("**/c/**", break_scripts)
    await checkout.page.reload()
    await expect(notice).to_be_visible()
    checkout.errors.clear()


async def test_an_unreachable_service_is_named_in_the_error(
    checkout: WalletCheckout, buyer: BrowserContext, wallet: Wallet
) -> None:
    async def fail(route: Route) -> None:
        await route.abort()

    await wallet.install(buyer)
    await checkout.bill("USDT")
    await checkout.page.route("**/v1/onchain/**", fail)
    await checkout.click_wallet()
    await checkout.expect_text("We can’t reach the payment service")
    assert wallet.transactions == []


@pytest.mark.usefixtures("old")
async def test_a_method_is_selected_on_the_hosted_page(
    world: World, site: CommonHeaders, buyer: BrowserContext
) -> None:
    checkout = await make_hosted_checkout(world, site, buyer)
    await checkout.create_and_open()
    await choose(checkout.page, "Card")
    await checkout.page.wait_for_url("http://gateway.test/pay")
    assert checkout.errors == []
