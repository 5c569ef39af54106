"""Test the wallet step without a wallet, without JavaScript, and on a small screen."""

import re
from base64 import b64encode
from hashlib import sha256

import pytest
from playwright.async_api import Browser, BrowserContext, expect

from payintent.http.middleware import CommonHeaders
from tests.support.onchain import ChainWorld
from tests.web.till import WalletCheckout, make_wallet_checkout, unfold

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.full]

_SMALL_PX = 320


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_a_browser_without_a_wallet_offers_the_wallet_app_and_other_methods(
    checkout: WalletCheckout, scheme: str
) -> None:
    await checkout.page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    payment, _ = await checkout.bill("USDT")
    await expect(checkout.page.get_by_text("No wallet found in this browser")).to_be_visible()
    link = checkout.page.get_by_role("link", name="Open in the MetaMask app")
    base = checkout.ground.world.service.settings.checkout_base.removeprefix("http://")
    href = await link.get_attribute("href")
    assert href is not None
    assert href.startswith(f"https://link.metamask.io/dapp/{base}/wallet/open/")
    assert payment.checkout_id not in href
    await unfold(checkout.page)
    await expect(checkout.page.get_by_role("radio", name="Card")).to_be_visible()
    await checkout.check_width(_SMALL_PX)


async def test_the_wallet_step_without_javascript_shows_updates_on_request(
    site: CommonHeaders, ground: ChainWorld, browser: Browser
) -> None:
    async with await browser.new_context(java_script_enabled=False) as buyer:
        checkout = await make_wallet_checkout(ground, buyer)
        payment, session = await checkout.bill("NATIVED")
        await expect(checkout.page.get_by_text("requires JavaScript")).to_be_visible()
        for text in ("No wallet found", "Pay again"):
            await expect(checkout.page.get_by_text(text)).to_be_hidden()
        await ground.pay(session)
        await ground.catch_up()
        await checkout.page.get_by_role("link", name="Check status").click()
        await checkout.expect_text("Payment detected on")
        for text in ("left to pay", "Pay by", "After you pay"):
            await expect(checkout.page.get_by_text(text)).to_have_count(0)
        await checkout.finalize()
        await checkout.page.get_by_role("link", name="Check status").click()
        await checkout.expect_paid(payment)
        await checkout.check_width(_SMALL_PX)


async def test_the_wallet_step_allows_only_its_own_scripts(
    checkout: WalletCheckout, buyer: BrowserContext
) -> None:
    _, session = await checkout.bill("USDT")
    answer = await checkout.page.reload()
    assert answer is not None
    policy = dict(
        part.strip().partition(" ")[::2]
        for part in answer.headers["content-security-policy"].split(";")
    )
    assert policy["default-src"] == "'none'"
    [inline] = re.findall(r"<script>(.*?)</script>", await answer.text(), re.DOTALL)
    digest = b64encode(sha256(inline.encode()).digest()).decode()
    assert policy["script-src"] == f"'self' 'sha256-{digest}'"
    assert policy["connect-src"] == "'self'"
    assert "unsafe" not in answer.headers["content-security-policy"]
    scripts = await checkout.page.locator("script[src]").all()
    assert len(scripts) == 2
    for item in scripts:
        path = await item.get_attribute("src")
        script = await buyer.request.get(f"{checkout.page.url.partition('/c/')[0]}{path}")
        assert script.headers["content-type"] == "text/javascript; charset=utf-8"
        assert script.headers["x-content-type-options"] == "nosniff"
        assert script.headers["cache-control"] == "public, max-age=31536000, immutable"
    path = await checkout.page.locator("[data-onchain-session]").get_attribute(
        "data-onchain-session"
    )
    assert path == (await checkout.ground.view(session))["id"].join(("/v1/onchain/sessions/", ""))
