"""The browser SDK opens the checkout by redirect, in a window, in a frame, or with a wallet."""

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
from tests.web.sdk_desk import LOOK_S, NATIVE, PATIENCE_MS, PATIENCE_S, Desk, wallet_session
from tests.web.wallet import Wallet

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.full]

expect.set_options(timeout=PATIENCE_MS)
MOUNT = """(options) => {
  if (!options.checkoutUrl) options.createCheckout = createCheckout;
  globalThis.widget = sdk.widget(options);
  for (const name of ["ready", "change", "status", "next_action", "refused", "result", "error"]) {
    widget.on(name, (told) => said.push([name, told.code ?? told.status ?? told.kind ?? ""]));
  }
  return widget.mount("#pay");
}"""


def leads(**redirect: Any) -> Callable[[GatewaySessionRequest], SessionCreated]:
    """Let the gateway redirect buyers to its own page."""

    def created(request: GatewaySessionRequest) -> SessionCreated:
        action = {"type": "redirect", "redirect": {"method": "GET", "fields": {}} | redirect}
        return SessionCreated(reference=f"ref-{request.session_id}", next_action=action)

    return created


async def pay(desk: Desk, created: Answer) -> None:
    """Let the gateway report the payment."""
    session_id = (await payment_of(desk.api, created)).session_id
    assert (await callback(desk.api, session_id, captured())).status == 200


async def heard(desk: Desk, name: str) -> str:
    """Wait until the page receives an event; return the first event."""
    await desk.page.wait_for_function("name => said.some(([one]) => one === name)", arg=name)
    return await desk.page.evaluate("name => said.find(([one]) => one === name)[1]", name)


async def mounts(desk: Desk, options: dict[str, str]) -> None:
    assert "error" not in await desk.call(MOUNT, options)


def frame(desk: Desk) -> FrameLocator:
    return desk.page.frame_locator("#pay iframe")


# A redirect


async def test_a_redirect_leaves_for_the_checkout_in_the_language_that_is_set(desk: Desk) -> None:
    await desk.open()
    created = await desk.create()
    go = "url => void PayIntent({ locale: 'th' }).redirectToCheckout({ checkoutUrl: url })"
    await desk.call(go, created.json["checkout_url"])
    await desk.page.wait_for_url(f"{created.json['checkout_url']}?lang=th")


# A window


async def popup(desk: Desk, script: str, given: Any = None) -> Page:
    """Start `result`, which opens a window; return the window."""
    async with desk.page.expect_popup() as opened:
        await desk.start("result", script, given)
    return await opened.value


async def test_a_window_is_opened_paid_in_and_closed(desk: Desk) -> None:
    desk.api.world.gateway.answer_create = leads(url=f"{desk.shop.url}/gateway")
    await desk.open()
    created = await desk.create()
    script = "checkoutUrl => sdk.openPopup({ checkoutUrl })"
    window = await popup(desk, script, created.json["checkout_url"])
    await window.wait_for_url(created.json["checkout_url"])
    await bring_to(desk.api, created, "PROCESSING")
    async with window.expect_event("close", timeout=PATIENCE_MS):
        await pay(desk, created)
    result = (await desk.ends("result"))["result"]
    assert result["status"] == "PAID"
    assert result["checkoutId"] == created.json["checkout_id"]
    assert result["paymentId"] == created.json["id"]
    assert result["receiptId"]


async def test_a_window_may_open_before_the_payment_is_created_and_closing_it_ends_nothing(
    desk: Desk,
) -> None:
    await desk.open()
    created = await desk.create()
    script = """checkoutUrl => sdk.openPopup({ createCheckout: async () => {
      await new Promise((done) => setTimeout(done, 50));
      return { checkoutUrl };
    } })"""
    window = await popup(desk, script, created.json["checkout_url"])
    await window.wait_for_url(created.json["checkout_url"])
    await window.close()
    await bring_to(desk.api, created, "PROCESSING")
    await pay(desk, created)
    assert (await desk.ends("result"))["result"]["status"] == "PAID"


async def test_a_window_is_closed_when_waiting_is_given_up_or_nothing_could_be_created(
    desk: Desk,
) -> None:
    await desk.open()
    created = await desk.create()
    script = """checkoutUrl => {
      globalThis.aborter = new AbortController();
      return sdk.openPopup({ checkoutUrl, signal: aborter.signal });
    }"""
    window = await popup(desk, script, created.json["checkout_url"])
    await window.wait_for_url(created.json["checkout_url"])
    async with window.expect_event("close", timeout=PATIENCE_MS):
        await desk.page.evaluate("aborter.abort()")
    assert "AbortError" in (await desk.ends("result"))["error"]["code"]
    failing = "() => sdk.openPopup({ createCheckout: async () => { throw Error('sold out') } })"
    window = await popup(desk, failing)
    assert "sold out" in (await desk.ends("result"))["error"]["code"]
    assert window.is_closed() or await window.wait_for_event("close")


# A frame


async def test_a_bound_widget_shows_the_checkout_and_leaves_for_the_gateway_at_the_top(
    desk: Desk,
) -> None:
    desk.api.world.gateway.answer_create = leads(url=f"{desk.shop.url}/gateway")
    await desk.register()
    await desk.open()
    created = await desk.create()
    await mounts(desk, {"checkoutUrl": created.json["checkout_url"]})
    await heard(desk, "ready")
    await frame(desk).get_by_text("Transfer").click()
    assert await heard(desk, "change") == "redirect"
    height = await desk.page.locator("#pay iframe").evaluate("frame => frame.style.height")
    assert re.fullmatch(r"\d+px", height)
    await desk.start("result", "() => widget.submit()")
    await desk.page.wait_for_url(f"{desk.shop.url}/gateway")
    assert await desk.api.world.status(await payment_of(desk.api, created)) == "PROCESSING"


async def test_a_widget_that_stays_tells_how_it_ends(desk: Desk) -> None:
    await desk.register()
    await desk.open()
    created = await desk.create()
    await bring_to(desk.api, created, "PROCESSING")
    await mounts(desk, {"checkoutUrl": created.json["checkout_url"]})
    await desk.start("result", "([id]) => sdk.waitForResult(id)", [created.json["checkout_id"]])
    await pay(desk, created)
    assert await heard(desk, "result") == "PAID"
    assert (await desk.ends("result"))["result"]["status"] == "PAID"
    await expect(frame(desk).get_by_role("heading", name="Paid")).to_be_visible()


async def test_a_refused_submission_is_the_callers_error_and_can_be_made_again(desk: Desk) -> None:
    await desk.register()
    await desk.open()
    created = await desk.create()
    await mounts(desk, {"checkoutUrl": created.json["checkout_url"]})
    await desk.api.world.rows("UPDATE payment_method SET enabled = false")
    error = await desk.fails("() => widget.submit()")
    assert error["code"] == "PAYMENT_METHOD_NOT_FOUND"
    assert error["checkoutId"] == created.json["checkout_id"]
    assert error["requestId"]
    assert await heard(desk, "error") == "PAYMENT_METHOD_NOT_FOUND"
    errors = await desk.page.evaluate("said.filter(([name]) => name === 'error').length")
    assert errors == 1


async def test_a_deferred_widget_creates_one_payment_for_the_amount_that_was_set(
    desk: Desk,
) -> None:
    await desk.register()
    wanted = await desk.expose_create()
    await desk.open()
    await mounts(desk, {"country": "TH"})
    assert (await desk.fails("() => widget.submit()"))["code"] == "AMOUNT_NOT_SET"
    await desk.call("() => widget.setAmount({ amount: '10.00', currency: 'THB' })")
    await desk.start("first", "() => widget.submit()")
    await desk.start("second", "() => widget.submit()")  # a double click
    await expect(frame(desk).get_by_text("10.00 THB").first).to_be_visible()
    assert wanted == [{"amount": "10.00", "currency": "THB", "country": "TH"}]
    await desk.call("() => widget.update({ amount: { amount: '12.00', currency: 'THB' } })")
    assert (await desk.ends("first"))["error"]["code"] == "WIDGET_NOT_MOUNTED"
    await desk.start("third", "() => widget.submit()")
    await expect(frame(desk).get_by_text("12.00 THB").first).to_be_visible()
    assert [item["amount"] for item in wanted] == ["10.00", "12.00"]
    await desk.call("async () => widget.unmount()")
    assert (await desk.ends("third"))["error"]["code"] == "WIDGET_NOT_MOUNTED"
    await expect(desk.page.locator("iframe")).to_have_count(0)


async def test_a_widget_follows_language_and_country_and_knows_when_it_is_gone(desk: Desk) -> None:
    await desk.register()
    await desk.open()
    created = await desk.create()
    await mounts(desk, {"checkoutUrl": created.json["checkout_url"]})
    await desk.call("() => widget.update({ locale: 'th', country: 'TH' })")
    loaded = "() => frames.length && said.filter(([name]) => name === 'ready').length > 1"
    await desk.page.wait_for_function(loaded)
    address = desk.page.frames[1].url
    assert "lang=th" in address
    assert "country=TH" in address
    error = await desk.fails("() => widget.update({ country: 'KP' })")
    assert error["code"] == "UNSUPPORTED_COUNTRY"
    await desk.page.evaluate("document.querySelector('#pay').remove()")
    assert (await desk.fails("() => widget.submit()"))["code"] == "WIDGET_NOT_MOUNTED"


async def test_messages_of_others_and_of_other_nonces_are_not_heard(desk: Desk) -> None:
    await desk.register()
    await desk.open()
    created = await desk.create()
    await mounts(desk, {"checkoutUrl": created.json["checkout_url"]})
    forged = {"source": "payintent", "version": 1, "type": "result", "status": "PAID"}
    nonce = await desk.page.frames[1].evaluate("document.body.dataset.nonce")
    # Another window with the right word, and the right window with another word.
    await desk.page.evaluate("told => postMessage(told, '*')", forged | {"nonce": nonce})
    tell = "told => parent.postMessage(told, '*')"
    for wrong in (
        {"nonce": "guess"},
        {"nonce": nonce, "source": "x"},
        {"nonce": nonce, "version": 2},
    ):
        await desk.page.frames[1].evaluate(tell, forged | wrong)
    # Messages keep their order: when the last is heard, the others were not.
    last = {"source": "payintent", "version": 1, "type": "change", "kind": "x", "nonce": nonce}
    await desk.page.frames[1].evaluate(tell, last)
    assert await heard(desk, "change") == "x"
    assert "result" not in await desk.page.evaluate("said.map(([name]) => name)")


async def test_a_wallets_payment_leaves_the_frame_for_the_hosted_page(
    desk: Desk, ground: ChainWorld
) -> None:
    await desk.register()
    await desk.open()
    created = await desk.create(currency="USD", amount="25.50")
    await mounts(desk, {"checkoutUrl": created.json["checkout_url"]})
    await frame(desk).get_by_text("NATIVED on the chain").click()
    await desk.start("result", "() => widget.submit()")
    await desk.page.wait_for_url(created.json["checkout_url"])
    await expect(desk.page.locator("[data-onchain-session]")).to_be_visible()
    assert await desk.page.evaluate("top === self")


async def test_a_wallets_step_that_is_come_back_to_in_a_frame_leads_to_the_top(
    desk: Desk, ground: ChainWorld
) -> None:
    await desk.register()
    await desk.open()
    payment, _ = await ground.bill(NATIVE)
    url = f"{desk.shop.service}/c/{payment.checkout_id}"
    await mounts(desk, {"checkoutUrl": url})
    await expect(frame(desk).locator("[data-onchain-session]")).to_have_count(0)
    await frame(desk).get_by_role("link", name="Continue to payment").click()
    await desk.page.wait_for_url(url)
    await expect(desk.page.locator("[data-onchain-session]")).to_be_visible()


# Next actions


async def test_a_form_is_posted_with_its_fields_also_one_that_is_named_submit(desk: Desk) -> None:
    fields = {"MerchantID": "3002607", "submit": "yes", "name": 'a "b" <c>'}
    url = f"{desk.shop.url}/gateway"
    desk.api.world.gateway.answer_create = leads(url=url, method="POST", fields=fields)
    act = """async ([id, method, target]) => {
      const { next_action } = await sdk.selectQuote(id, { payment_method_id: method });
      return void sdk.handleNextAction(id, next_action, { target });
    }"""
    for target in ("_self", "popup"):
        await desk.open()
        created = await desk.create()
        given = [created.json["checkout_id"], desk.api.world.card, target]
        if target == "popup":
            page = await popup(desk, act, given)
        else:
            await desk.call(act, given)
            page = desk.page
        await page.wait_for_url(url)
        assert desk.shop.posted.pop() == fields


async def test_what_is_not_known_here_is_done_by_the_hosted_page(desk: Desk) -> None:
    act = "([id, action]) => void sdk.handleNextAction(id, action)"
    for type_ in ("embedded_card", "onchain_session", "of_the_future"):
        await desk.open()
        created = await desk.create()
        url = created.json["checkout_url"]
        action = {"type": type_, type_: {}, "fallback_url": url}
        await desk.call(act, [created.json["checkout_id"], action])
        await desk.page.wait_for_url(url)


async def test_waiting_tells_each_change_and_asks_on_where_events_do_not_come(desk: Desk) -> None:
    await desk.page.route("**/events", lambda route: route.abort())
    await desk.open()
    created = await desk.create()
    follow = """id => {
      sdk.on("status", ({ checkoutId, status }) => said.push([status, checkoutId]));
      return sdk.handleNextAction(id, { type: "wait", wait: { poll_after_ms: 1 } });
    }"""
    checkout_id = created.json["checkout_id"]
    async with desk.page.expect_response(f"**/v1/checkout/{checkout_id}"):
        await desk.start("result", follow, checkout_id)
    await bring_to(desk.api, created, "PROCESSING")
    assert await heard(desk, "PROCESSING") == checkout_id
    await pay(desk, created)
    assert (await desk.ends("result"))["result"]["status"] == "PAID"


async def test_a_listener_hears_each_error_once_and_one_that_fails_hurts_nobody(desk: Desk) -> None:
    await desk.open()
    script = """async () => {
      const off = sdk.on("error", () => { throw new Error("a bug of the shop's"); });
      sdk.on("error", (error) => said.push([error.code, error.checkoutId]));
      const failed = await sdk.openPopup({ checkoutUrl: "x" }).catch((error) => error.code);
      off();
      return failed;
    }"""
    assert await desk.call(script) == {"result": "INVALID_REDIRECT_URL"}
    assert await heard(desk, "INVALID_REDIRECT_URL") is None
    assert await desk.page.evaluate("said.length") == 1


async def test_a_state_of_the_future_is_waited_on_and_never_taken_for_an_end(desk: Desk) -> None:
    await desk.open()
    script = """id => PayIntent({ apiBase: "/alien/v1" }).waitForResult(id, { timeoutMs: 1 })"""
    assert (await desk.fails(script, "cs_0000000000000000"))["code"] == "POLLING_TIMEOUT"


# Wallets


async def test_a_wallet_pays_and_the_chain_is_followed_to_the_end(
    desk: Desk, buyer: BrowserContext, ground: ChainWorld, wallet: Wallet
) -> None:
    await wallet.stand_in(buyer)
    await desk.open()
    checkout_id, session_id = await wallet_session(ground, "USDT")
    act = """async ([id, sessionId]) => {
      const [{ provider, name }] = await sdk.onchain.discover();
      said.push(["wallet", name]);
      const action = { type: "onchain_session", onchain_session: { session_id: sessionId } };
      return sdk.handleNextAction(id, action, { provider });
    }"""
    await desk.start("result", act, [checkout_id, session_id])
    async with asyncio.timeout(PATIENCE_S):
        while len(wallet.hashes) < 2:
            await asyncio.sleep(LOOK_S)
    await ground.final()
    assert (await desk.ends("result"))["result"]["status"] == "PAID"
    assert await heard(desk, "wallet") == "Test Wallet"
    assert len(wallet.sent) == 2  # a permission for this amount, and the payment


async def test_a_payment_is_sent_once_however_often_it_is_asked_for(
    desk: Desk, buyer: BrowserContext, ground: ChainWorld, wallet: Wallet
) -> None:
    await wallet.stand_in(buyer)
    await desk.open()
    given = await wallet_session(ground, NATIVE)
    script = """async ([checkoutId, sessionId]) => {
      const [{ provider }] = await sdk.onchain.discover();
      const session = await sdk.onchain.session(sessionId);
      const how = { checkoutId, session, provider };
      const both = await Promise.all([sdk.onchain.pay(how), sdk.onchain.pay(how)]);
      return [...both, await sdk.onchain.pay(how)].map(({ txHash }) => txHash);
    }"""
    first, second, third = (await desk.call(script, given))["result"]
    assert first == second == wallet.hashes[0]
    assert third is None  # the contract says that it was paid
    assert len(wallet.hashes) == 1


async def test_a_wallet_learns_the_chain_and_what_lies_on_it(
    desk: Desk, buyer: BrowserContext, ground: ChainWorld, wallet: Wallet
) -> None:
    await wallet.stand_in(buyer)
    wallet.network_id, wallet.known = 4242, {4242}
    await ground.world.rows(
        "UPDATE chain SET public_rpc_urls = '{https://rpc.test}' WHERE slug = $1", ground.slug
    )
    await desk.open()
    given = await wallet_session(ground, NATIVE)
    script = """async ([checkoutId, sessionId]) => {
      const [{ provider }] = await sdk.onchain.discover();
      const session = await sdk.onchain.session(sessionId);
      return sdk.onchain.pay({ checkoutId, session, provider });
    }"""
    assert (await desk.call(script, given))["result"]["txHash"] == wallet.hashes[0]
    assert len(wallet.added) == 1
