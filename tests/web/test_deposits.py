"""Test payments to an address: the page follows the transfers, and hides a wrong address."""

import re
from collections.abc import Callable
from decimal import Decimal

import pytest
from playwright.async_api import Browser, Page, Route, expect
from pytest_asyncio import fixture

from payintent.evm.abi import to_checksum_address
from payintent.payments.model import Payment, Session
from tests.support.deposits import TOTAL, DepositGround, add_factory
from tests.support.onchain import ChainWorld
from tests.web.till import WalletCheckout, choose

LOOP = "session"
pytestmark = pytest.mark.asyncio(loop_scope=LOOP)

_HALF = TOTAL // 2
_WRONG = "could not be verified"
_ATTACKER = "0x" + "Ab" * 20


@fixture(loop_scope=LOOP)
async def deposits(ground: ChainWorld) -> DepositGround:
    return await add_factory(ground, "USDT")


async def _bill(checkout: WalletCheckout, deposits: DepositGround) -> tuple[Payment, Session, str]:
    """Show a new payment's page; return the displayed address."""
    payment, session = await deposits.bill()
    await checkout.show(payment)
    address = to_checksum_address(bytes.fromhex(deposits.address(session)[2:]))
    return payment, session, address


async def _expect_text(page: Page, *texts: str) -> None:
    for text in texts:
        await expect(page.locator("[data-deposit] [data-status]")).to_contain_text(text)


async def test_the_page_follows_a_payment_in_two_transfers(
    checkout: WalletCheckout, deposits: DepositGround
) -> None:
    world, page = deposits.ground.world, checkout.page
    await checkout.show(
        await world.create(currency="USD", amount_text="25.50", amount=Decimal("25.5"))
    )
    await choose(page, "Pay from an exchange or any wallet")
    await expect(page.locator(".figure")).to_have_text("25.5\u00a0USDT")
    await _expect_text(page, "No payment received yet.")
    address = await page.locator(".address").text_content()
    assert address is not None
    await page.locator(".address").click()
    assert await page.evaluate("getSelection().toString()") == address  # without spaces
    await page.locator("details", has_text="EIP-681").locator("summary").click()

    await _send(deposits, address, _HALF)
    await deposits.ground.turn()
    await _expect_text(
        page, "12.75\u00a0USDT of 25.5", "still being confirmed", "Send the remaining 12.75"
    )
    await expect(page.locator(".figure")).to_have_text("12.75\u00a0USDT")
    await expect(page.locator("pay-copy").first).to_have_attribute("data-text", "12.75")
    await expect(page.locator(".address")).to_have_text(address)
    link = page.get_by_role("link", name="Open in a wallet")  # the details are still expanded
    assert f"uint256={_HALF}" in (await link.get_attribute("href") or "")
    await expect(page.locator("form.methods")).to_have_count(0)

    await deposits.ground.final()
    await checkout.poll_now()
    await expect(page.locator("[data-deposit]")).not_to_contain_text("still being confirmed")
    await _send(deposits, address, TOTAL - _HALF)
    await deposits.ground.turn()
    await _expect_text(page, "The full amount of 25.5")
    await expect(page.locator(".address")).to_have_count(0)
    await deposits.ground.final()
    await expect(page.get_by_role("heading", name="Paid")).to_be_visible()
    assert [row["kind"] for row in await world.rows("SELECT kind FROM money_case")] == []


async def _send(deposits: DepositGround, address: str, amount: int) -> None:
    """Send tokens to the displayed address, as from a wallet outside our page."""
    recipient = bytes.fromhex(address[2:]).rjust(32, b"\0")
    data = bytes.fromhex("a9059cbb") + recipient + amount.to_bytes(32, "big")
    token = deposits.ground.token("USDT")
    await deposits.ground.send({"to": token, "value": "0x0", "data": f"0x{data.hex()}"})


@pytest.mark.full
async def test_the_onchain_event_reports_received_and_remaining_amounts(
    checkout: WalletCheckout, deposits: DepositGround
) -> None:
    await checkout.page.add_init_script(
        """window.onchainEvent = new Promise((done) => {
          addEventListener("pay:onchain", ({ detail }) => done(detail));
        })"""
    )
    _, session, _ = await _bill(checkout, deposits)
    await deposits.transfer(session, _HALF)
    await deposits.ground.turn()
    event = await checkout.page.evaluate("window.onchainEvent")
    assert event["pending"] == {"amount": "12.75", "amount_smallest_unit": str(_HALF)}
    assert (event["status"], event["step"]) == ("partial", "deposit")
    assert event["received"]["amount_smallest_unit"] == "0"
    assert event["remaining"]["amount_smallest_unit"] == str(TOTAL - _HALF)


_TAMPERING: dict[str, Callable[[str, str], str]] = {
    "everywhere": lambda html, address: re.sub(
        r'(<code class="address" dir="ltr">).*?</code>',
        rf"\g<1>{_ATTACKER}</code>",
        html.replace(address, _ATTACKER),
    ),
    "shown": lambda html, address: html.replace(f">{address[-4:]}<", ">AbAb<"),
    "copied": lambda html, address: html.replace(f'text="{address}', f'text="{_ATTACKER}'),
    "linked": lambda html, address: html.replace(f"address={address}", f"address={_ATTACKER}"),
}


async def _tamper(checkout: WalletCheckout, address: str, way: str) -> None:
    """Replace the address in every page response."""

    async def answer(route: Route) -> None:
        response = await route.fetch()
        html = await response.text()
        tampered = _TAMPERING[way](html, address)
        assert tampered != html
        await route.fulfill(response=response, body=tampered)

    await checkout.page.route(lambda url: "/c/cs_" in url and not url.endswith(".svg"), answer)


@pytest.mark.full
@pytest.mark.parametrize("way", _TAMPERING)
async def test_an_address_that_does_not_belong_to_the_payment_is_hidden(
    checkout: WalletCheckout, deposits: DepositGround, way: str
) -> None:
    payment, session = await deposits.bill()
    address = to_checksum_address(bytes.fromhex(deposits.address(session)[2:]))
    await _tamper(checkout, address, way)
    await checkout.show(payment)
    await _expect_text(checkout.page, _WRONG)
    for selector in (".address", ".figure", "[data-deposit] img", "[data-deposit] a"):
        await expect(checkout.page.locator(selector)).to_have_count(0)


@pytest.mark.full
async def test_an_address_that_changes_while_the_page_is_open_is_hidden(
    checkout: WalletCheckout, deposits: DepositGround
) -> None:
    _, session, address = await _bill(checkout, deposits)
    await expect(checkout.page.locator(".address")).to_have_text(address)
    await _tamper(checkout, address, "everywhere")
    await deposits.transfer(session, _HALF)
    await deposits.ground.turn()
    await checkout.poll_now()
    await _expect_text(checkout.page, _WRONG)
    await expect(checkout.page.locator(".address")).to_have_count(0)


@pytest.mark.full
async def test_a_buyer_pays_to_an_address_without_javascript(
    site: object, browser: Browser, deposits: DepositGround
) -> None:
    payment, session = await deposits.bill()
    base = deposits.ground.world.service.settings.checkout_base
    context = await browser.new_context(java_script_enabled=False)
    page = await context.new_page()
    await page.goto(f"{base}/{payment.checkout_id}")
    await _expect_text(page, "No payment received yet.")
    await expect(page.locator(".address")).to_be_visible()
    await expect(page.locator(".script").first).to_be_hidden()
    await expect(page.locator(".no-script").first).to_be_visible()
    assert await page.locator("img.qr").first.evaluate("element => element.naturalWidth") > 0
    await deposits.transfer(session, _HALF)
    await deposits.ground.turn()
    await page.get_by_role("link", name="Check status").click()
    await _expect_text(page, "12.75\u00a0USDT of 25.5", "Send the remaining 12.75")
    await expect(page.locator(".figure")).to_have_text("12.75\u00a0USDT")
    await deposits.transfer(session, TOTAL - _HALF)
    await deposits.ground.final()
    await page.get_by_role("link", name="Check status").click()
    await expect(page.get_by_role("heading", name="Paid")).to_be_visible()
    await context.close()
