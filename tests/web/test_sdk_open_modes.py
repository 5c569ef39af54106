"""Test the SDK's ways to open the checkout: redirect, popup, frame and wallet."""

import asyncio
import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.async_api import BrowserContext, FrameLocator, Page, expect

from payintent.gateways.port import GatewaySessionRequest, SessionCreated
from tests.support.arrange import bring_to, callback, captured, payment_of
from tests.support.onchain import ChainWorld
from tests.support.world import Answer
from tests.web.sdk_driver import NATIVE, PATIENCE_MS, PATIENCE_S, POLL_S, SdkPage, wallet_session
from tests.web.wallet import Wallet

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.full]

expect.set_options(timeout=PATIENCE_MS)
MOUNT = """(options) => {
  if (!options.checkoutUrl) options.createCheckout = createCheckout;
  globalThis.widget = sdk.widget(options);
  for (const name of ["ready", "change", "status", "next_action", "refused", "result", "error"]) {
    widget.on(name, (event) => events.push([name, event.code ?? event.status ?? event.kind ?? ""]));
  }
  return widget.mount("#pay");
}"""


def redirect_to(**redirect: Any) -> Callable[[GatewaySessionRequest], SessionCreated]:
    """Return a gateway response that redirects buyers to this page."""

    def created(request: GatewaySessionRequest) -> SessionCreated:
        action = {"type": "redirect", "redirect": {"method": "GET", "fields": {}} | redirect}
        return SessionCreated(reference=f"ref-{request.session_id}", next_action=action)

    return created


async def pay(sdk: SdkPage, created: Answer) -> None:
    """Report the capture, as the gateway does."""
    session_id = (await payment_of(sdk.api, created)).session_id
    assert (await callback(sdk.api, session_id, captured())).status == 200


async def wait_for_event(sdk: SdkPage, name: str) -> str:
    """Wait until the page has received this event; return the value of the first."""
    await sdk.page.wait_for_function("name => events.some(([type]) => type === name)", arg=name)
    return await sdk.page.evaluate("name => events.find(([type]) => type === name)[1]", name)


async def mount(sdk: SdkPage, options: dict[str, str]) -> None:
    assert "error" not in await sdk.call(MOUNT, options)


def frame(sdk: SdkPage) -> FrameLocator:
    return sdk.page.frame_locator("#pay iframe")


# A redirect


async def test_a_redirect_opens_the_checkout_in_the_configured_language(sdk: SdkPage) -> None:
    await sdk.open()
    created = await sdk.create()
    go = "url => void PayIntent({ locale: 'th' }).redirectToCheckout({ checkoutUrl: url })"
    await sdk.call(go, created.json["checkout_url"])
    await sdk.page.wait_for_url(f"{created.json['checkout_url']}?lang=th")


# A popup


async def open_popup(sdk: SdkPage, script: str, argument: Any = None) -> Page:
    """Start the call `result`, which opens a popup; return the popup."""
    async with sdk.page.expect_popup() as popup_info:
        await sdk.start("result", script, argument)
    return await popup_info.value


async def test_a_popup_opens_the_checkout_and_closes_after_the_payment(sdk: SdkPage) -> None:
    sdk.api.world.gateway.answer_create = redirect_to(url=f"{sdk.shop.url}/gateway")
    await sdk.open()
    created = await sdk.create()
    script = "checkoutUrl => sdk.openPopup({ checkoutUrl })"
    window = await open_popup(sdk, script, created.json["checkout_url"])
    await window.wait_for_url(created.json["checkout_url"])
    await bring_to(sdk.api, created, "PROCESSING")
    async with window.expect_event("close", timeout=PATIENCE_MS):
        await pay(sdk, created)
    result = (await sdk.result_of("result"))["result"]
    assert result["status"] == "PAID"
    assert result["checkoutId"] == created.json["checkout_id"]
    assert result["paymentId"] == created.json["id"]
    assert result["receiptId"]


async def test_a_popup_may_open_before_the_payment_exists_and_be_closed_early(
    sdk: SdkPage,
) -> None:
    await sdk.open()
    created = await sdk.create()
    script = """checkoutUrl => sdk.openPopup({ createCheckout: async () => {
      await new Promise((done) => setTimeout(done, 50));
      return { checkoutUrl };
    } })"""
    window = await open_popup(sdk, script, created.json["checkout_url"])
    await window.wait_for_url(created.json["checkout_url"])
    await window.close()
    await bring_to(sdk.api, created, "PROCESSING")
    await pay(sdk, created)
    assert (await sdk.result_of("result"))["result"]["status"] == "PAID"


async def test_a_popup_closes_if_the_call_is_aborted_or_the_creation_fails(
    sdk: SdkPage,
) -> None:
    await sdk.open()
    created = await sdk.create()
    script = """checkoutUrl => {
      globalThis.aborter = new AbortController();
      return sdk.openPopup({ checkoutUrl, signal: aborter.signal });
    }"""
    window = await open_popup(sdk, script, created.json["checkout_url"])
    await window.wait_for_url(created.json["checkout_url"])
    async with window.expect_event("close", timeout=PATIENCE_MS):
        await sdk.page.evaluate("aborter.abort()")
    assert "AbortError" in (await sdk.result_of("result"))["error"]["code"]
    failing = "() => sdk.openPopup({ createCheckout: async () => { throw Error('sold out') } })"
    window = await open_popup(sdk, failing)
    assert "sold out" in (await sdk.result_of("result"))["error"]["code"]
    assert window.is_closed() or await window.wait_for_event("close")


# A frame


async def test_a_bound_widget_shows_the_checkout_and_redirects_the_whole_page(
    sdk: SdkPage,
) -> None:
    sdk.api.world.gateway.answer_create = redirect_to(url=f"{sdk.shop.url}/gateway")
    await sdk.register_origin()
    await sdk.open()
    created = await sdk.create()
    await mount(sdk, {"checkoutUrl": created.json["checkout_url"]})
    await wait_for_event(sdk, "ready")
    await frame(sdk).get_by_text("Transfer").click()
    assert await wait_for_event(sdk, "change") == "redirect"
    height = await sdk.page.locator("#pay iframe").evaluate("frame => frame.style.height")
    assert re.fullmatch(r"\d+px", height)
    await sdk.start("result", "() => widget.submit()")
    await sdk.page.wait_for_url(f"{sdk.shop.url}/gateway")
    assert await sdk.api.world.status(await payment_of(sdk.api, created)) == "PROCESSING"


async def test_a_widget_that_stays_open_reports_the_result(sdk: SdkPage) -> None:
    await sdk.register_origin()
    await sdk.open()
    created = await sdk.create()
    await bring_to(sdk.api, created, "PROCESSING")
    await mount(sdk, {"checkoutUrl": created.json["checkout_url"]})
    await sdk.start("result", "([id]) => sdk.waitForResult(id)", [created.json["checkout_id"]])
    await pay(sdk, created)
    assert await wait_for_event(sdk, "result") == "PAID"
    assert (await sdk.result_of("result"))["result"]["status"] == "PAID"
    await expect(frame(sdk).get_by_role("heading", name="Paid")).to_be_visible()


async def test_a_rejected_submission_reports_a_single_error(sdk: SdkPage) -> None:
    await sdk.register_origin()
    await sdk.open()
    created = await sdk.create()
    await mount(sdk, {"checkoutUrl": created.json["checkout_url"]})
    await sdk.api.world.rows("UPDATE payment_method SET enabled = false")
    error = await sdk.expect_error("() => widget.submit()")
    assert error["code"] == "PAYMENT_METHOD_NOT_FOUND"
    assert error["checkoutId"] == created.json["checkout_id"]
    assert error["requestId"]
    assert await wait_for_event(sdk, "error") == "PAYMENT_METHOD_NOT_FOUND"
    errors = await sdk.page.evaluate("events.filter(([name]) => name === 'error').length")
    assert errors == 1


async def test_a_deferred_widget_creates_a_single_payment_for_each_amount(
    sdk: SdkPage,
) -> None:
    await sdk.register_origin()
    requests = await sdk.expose_create()
    await sdk.open()
    await mount(sdk, {"country": "TH"})
    assert (await sdk.expect_error("() => widget.submit()"))["code"] == "AMOUNT_NOT_SET"
    await sdk.call("() => widget.setAmount({ amount: '10.00', currency: 'THB' })")
    await sdk.start("first", "() => widget.submit()")
    await sdk.start("second", "() => widget.submit()")  # a double click
    await expect(frame(sdk).get_by_text("10.00 THB").first).to_be_visible()
    assert requests == [{"amount": "10.00", "currency": "THB", "country": "TH"}]
    await sdk.call("() => widget.update({ amount: { amount: '12.00', currency: 'THB' } })")
    assert (await sdk.result_of("first"))["error"]["code"] == "WIDGET_NOT_MOUNTED"
    await sdk.start("third", "() => widget.submit()")
    await expect(frame(sdk).get_by_text("12.00 THB").first).to_be_visible()
    assert [item["amount"] for item in requests] == ["10.00", "12.00"]
    await sdk.call("async () => widget.unmount()")
    assert (await sdk.result_of("third"))["error"]["code"] == "WIDGET_NOT_MOUNTED"
    await expect(sdk.page.locator("iframe")).to_have_count(0)


async def test_a_widget_updates_language_and_country_and_detects_its_removal(sdk: SdkPage) -> None:
    await sdk.register_origin()
    await sdk.open()
    created = await sdk.create()
    await mount(sdk, {"checkoutUrl": created.json["checkout_url"]})
    await sdk.call("() => widget.update({ locale: 'th', country: 'TH' })")
    loaded = "() => frames.length && events.filter(([name]) => name === 'ready').length > 1"
    await sdk.page.wait_for_function(loaded)
    address = sdk.page.frames[1].url
    assert "lang=th" in address
    assert "country=TH" in address
    error = await sdk.expect_error("() => widget.update({ country: 'KP' })")
    assert error["code"] == "UNSUPPORTED_COUNTRY"
    await sdk.page.evaluate("document.querySelector('#pay').remove()")
    assert (await sdk.expect_error("() => widget.submit()"))["code"] == "WIDGET_NOT_MOUNTED"


async def test_messages_with_a_wrong_source_or_nonce_are_ignored(sdk: SdkPage) -> None:
    await sdk.register_origin()
    await sdk.open()
    created = await sdk.create()
    await mount(sdk, {"checkoutUrl": created.json["checkout_url"]})
    forged = {"source": "payintent", "version": 1, "type": "result", "status": "PAID"}
    nonce = await sdk.page.frames[1].evaluate("document.body.dataset.nonce")
    # A wrong window with the right nonce, then the right window with wrong fields.
    await sdk.page.evaluate("message => postMessage(message, '*')", forged | {"nonce": nonce})
    post_message = "message => parent.postMessage(message, '*')"
    for changes in (
        {"nonce": "guess"},
        {"nonce": nonce, "source": "x"},
        {"nonce": nonce, "version": 2},
    ):
        await sdk.page.frames[1].evaluate(post_message, forged | changes)
    # Messages arrive in order: when the last has arrived, the previous messages were ignored.
    last = {"source": "payintent", "version": 1, "type": "change", "kind": "x", "nonce": nonce}
    await sdk.page.frames[1].evaluate(post_message, last)
    assert await wait_for_event(sdk, "change") == "x"
    assert "result" not in await sdk.page.evaluate("events.map(([name]) => name)")


async def test_a_wallet_payment_leaves_the_frame_for_the_hosted_page(
    sdk: SdkPage, ground: ChainWorld
) -> None:
    await sdk.register_origin()
    await sdk.open()
    created = await sdk.create(currency="USD", amount="25.50")
    await mount(sdk, {"checkoutUrl": created.json["checkout_url"]})
    await frame(sdk).get_by_text("NATIVED on the chain").click()
    await sdk.start("result", "() => widget.submit()")
    await sdk.page.wait_for_url(created.json["checkout_url"])
    await expect(sdk.page.locator("[data-onchain-session]")).to_be_visible()
    assert await sdk.page.evaluate("top === self")


async def test_a_wallet_step_in_a_frame_links_to_the_hosted_page(
    sdk: SdkPage, ground: ChainWorld
) -> None:
    await sdk.register_origin()
    await sdk.open()
    payment, _ = await ground.bill(NATIVE)
    url = f"{sdk.shop.service}/c/{payment.checkout_id}"
    await mount(sdk, {"checkoutUrl": url})
    await expect(frame(sdk).locator("[data-onchain-session]")).to_have_count(0)
    await frame(sdk).get_by_role("link", name="Continue to payment").click()
    await sdk.page.wait_for_url(url)
    await expect(sdk.page.locator("[data-onchain-session]")).to_be_visible()


# Next actions


async def test_a_form_is_posted_with_its_fields_including_a_field_named_submit(
    sdk: SdkPage,
) -> None:
    fields = {"MerchantID": "3002607", "submit": "yes", "name": 'a "b" <c>'}
    url = f"{sdk.shop.url}/gateway"
    sdk.api.world.gateway.answer_create = redirect_to(url=url, method="POST", fields=fields)
    act = """async ([id, method, target]) => {
      const { next_action } = await sdk.selectQuote(id, { payment_method_id: method });
      return void sdk.handleNextAction(id, next_action, { target });
    }"""
    for target in ("_self", "popup"):
        await sdk.open()
        created = await sdk.create()
        arguments = [created.json["checkout_id"], sdk.api.world.card, target]
        if target == "popup":
            page = await open_popup(sdk, act, arguments)
        else:
            await sdk.call(act, arguments)
            page = sdk.page
        await page.wait_for_url(url)
        assert sdk.shop.posted_forms.pop() == fields


async def test_unsupported_actions_open_the_hosted_page(sdk: SdkPage) -> None:
    act = "([id, action]) => void sdk.handleNextAction(id, action)"
    for type_ in ("embedded_card", "onchain_session", "of_the_future"):
        await sdk.open()
        created = await sdk.create()
        url = created.json["checkout_url"]
        action = {"type": type_, type_: {}, "fallback_url": url}
        await sdk.call(act, [created.json["checkout_id"], action])
        await sdk.page.wait_for_url(url)


async def test_waiting_reports_each_change_and_polls_if_events_are_unavailable(
    sdk: SdkPage,
) -> None:
    await sdk.page.route("**/events", lambda route: route.abort())
    await sdk.open()
    created = await sdk.create()
    follow = """id => {
      sdk.on("status", ({ checkoutId, status }) => events.push([status, checkoutId]));
      return sdk.handleNextAction(id, { type: "wait", wait: { poll_after_ms: 1 } });
    }"""
    checkout_id = created.json["checkout_id"]
    async with sdk.page.expect_response(f"**/v1/checkout/{checkout_id}"):
        await sdk.start("result", follow, checkout_id)
    await bring_to(sdk.api, created, "PROCESSING")
    assert await wait_for_event(sdk, "PROCESSING") == checkout_id
    await pay(sdk, created)
    assert (await sdk.result_of("result"))["result"]["status"] == "PAID"


async def test_a_listener_receives_each_error_once_despite_a_failing_listener(sdk: SdkPage) -> None:
    await sdk.open()
    script = """async () => {
      const off = sdk.on("error", () => { throw new Error("a bug of the shop's"); });
      sdk.on("error", (error) => events.push([error.code, error.checkoutId]));
      const failed = await sdk.openPopup({ checkoutUrl: "x" }).catch((error) => error.code);
      off();
      return failed;
    }"""
    assert await sdk.call(script) == {"result": "INVALID_REDIRECT_URL"}
    assert await wait_for_event(sdk, "INVALID_REDIRECT_URL") is None
    assert await sdk.page.evaluate("events.length") == 1


async def test_an_unknown_status_is_never_treated_as_final(sdk: SdkPage) -> None:
    await sdk.open()
    script = """id => PayIntent({ apiBase: "/alien/v1" }).waitForResult(id, { timeoutMs: 1 })"""
    assert (await sdk.expect_error(script, "cs_0000000000000000"))["code"] == "POLLING_TIMEOUT"


# Wallets


async def test_a_wallet_pays_and_the_sdk_waits_for_the_final_status(
    sdk: SdkPage, buyer: BrowserContext, ground: ChainWorld, wallet: Wallet
) -> None:
    await wallet.install(buyer)
    await sdk.open()
    checkout_id, session_id = await wallet_session(ground, "USDT")
    act = """async ([id, sessionId]) => {
      const [{ provider, name }] = await sdk.onchain.discover();
      events.push(["wallet", name]);
      const action = { type: "onchain_session", onchain_session: { session_id: sessionId } };
      return sdk.handleNextAction(id, action, { provider });
    }"""
    await sdk.start("result", act, [checkout_id, session_id])
    async with asyncio.timeout(PATIENCE_S):
        while len(wallet.hashes) < 2:
            await asyncio.sleep(POLL_S)
    await ground.final()
    assert (await sdk.result_of("result"))["result"]["status"] == "PAID"
    assert await wait_for_event(sdk, "wallet") == "Test Wallet"
    assert len(wallet.transactions) == 2  # an approval of this amount, and the payment


async def test_a_payment_is_sent_once_for_repeated_calls(
    sdk: SdkPage, buyer: BrowserContext, ground: ChainWorld, wallet: Wallet
) -> None:
    await wallet.install(buyer)
    await sdk.open()
    arguments = await wallet_session(ground, NATIVE)
    script = """async ([checkoutId, sessionId]) => {
      const [{ provider }] = await sdk.onchain.discover();
      const session = await sdk.onchain.session(sessionId);
      const how = { checkoutId, session, provider };
      const both = await Promise.all([sdk.onchain.pay(how), sdk.onchain.pay(how)]);
      return [...both, await sdk.onchain.pay(how)].map(({ txHash }) => txHash);
    }"""
    first, second, third = (await sdk.call(script, arguments))["result"]
    assert first == second == wallet.hashes[0]
    assert third is None  # according to the contract, the session is paid
    assert len(wallet.hashes) == 1


async def test_the_sdk_adds_an_unknown_chain_to_the_wallet(
    sdk: SdkPage, buyer: BrowserContext, ground: ChainWorld, wallet: Wallet
) -> None:
    await wallet.install(buyer)
    wallet.network_id, wallet.known_chains = 4242, {4242}
    await ground.world.rows(
        "UPDATE chain SET public_rpc_urls = '{https://rpc.test}' WHERE slug = $1", ground.slug
    )
    await sdk.open()
    arguments = await wallet_session(ground, NATIVE)
    script = """async ([checkoutId, sessionId]) => {
      const [{ provider }] = await sdk.onchain.discover();
      const session = await sdk.onchain.session(sessionId);
      return sdk.onchain.pay({ checkoutId, session, provider });
    }"""
    assert (await sdk.call(script, arguments))["result"]["txHash"] == wallet.hashes[0]
    assert len(wallet.added_chains) == 1
