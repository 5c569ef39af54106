"""Test the buyer's return to the shop from each status, with and without JavaScript."""

from collections.abc import AsyncIterator

import pytest
from playwright.async_api import BrowserContext, expect
from pytest_asyncio import fixture

from payintent.core import ids
from payintent.http.middleware import CommonHeaders
from payintent.merchants.operations import SetMerchantProfile
from payintent.payments.cancel import cancel_by_buyer
from payintent.payments.expire import expire_pending
from payintent.payments.model import Payment
from tests.support.fakes import captured, declined
from tests.support.world import World
from tests.web.buyer import SHOP, HostedCheckout, make_hosted_checkout

LOOP = "session"
pytestmark = [pytest.mark.asyncio(loop_scope=LOOP), pytest.mark.full]

_RETURN, _CANCEL = f"{SHOP}/orders/1?from=checkout", f"{SHOP}/orders/1/pay?status=PAID"
_BACK, _AGAIN = "Back to Nimbus Books", "Try again"
#: For each status: a sentence on the page, the link's text, and the start of its URL.
_ENDS = {
    "PENDING": ("Nimbus Books", _BACK, f"{SHOP}/orders/1/pay?"),
    "PROCESSING": ("Nimbus Books", _BACK, f"{_RETURN}&"),
    "PAID": ("Paid", _BACK, f"{_RETURN}&"),
    "FAILED": ("declined the payment. You were not charged.", _AGAIN, f"{SHOP}/orders/1/pay?"),
    "EXPIRED": ("You were not charged.", _AGAIN, f"{SHOP}/orders/1/pay?"),
    "CANCELLED": ("You were not charged.", _BACK, f"{SHOP}/orders/1/pay?"),
}


@fixture(loop_scope=LOOP)
async def checkout(
    world: World, site: CommonHeaders, buyer: BrowserContext
) -> AsyncIterator[HostedCheckout]:
    profile = SetMerchantProfile(
        merchant_id=world.merchant_id, allowed_origins=[SHOP], return_url=f"{SHOP}/registered"
    )
    await world.perform(profile)
    checkout = await make_hosted_checkout(world, site, buyer)
    yield checkout
    assert checkout.errors == []


async def _create(world: World) -> Payment:
    return await world.create(return_url=_RETURN, cancel_url=_CANCEL)


async def _bring_to(world: World, payment: Payment, status: str) -> None:
    if status in {"PROCESSING", "PAID", "FAILED"}:
        session = (await world.select(payment)).session
        if status != "PROCESSING":
            report = captured(159_000) if status == "PAID" else declined()
            await world.report(payment, session.id, report)
    elif status != "PENDING":
        async with world.database.transaction() as tx:
            if status == "CANCELLED":
                await cancel_by_buyer(tx, payment.id)
            else:
                await expire_pending(tx, 1)
    assert await world.status(payment) == status


async def _follow_return_link(checkout: HostedCheckout, payment: Payment, status: str) -> None:
    """Check the page's text, and follow the link to the shop."""
    sentence, text, page = _ENDS[status]
    await expect(checkout.page.locator("main")).to_contain_text(sentence)
    link = checkout.page.get_by_role("link", name=text, exact=True)
    await expect(link).to_be_visible()
    await link.click()
    await expect(checkout.page).to_have_title("elsewhere")
    hint = f"payment_id={ids.format_id(ids.PAYMENT, payment.id)}&status={status}"
    assert checkout.page.url == page + hint


@pytest.mark.parametrize("scripted", [True, False], ids=["scripted", "plain"])
@pytest.mark.parametrize("status", _ENDS)
async def test_a_buyer_returns_to_the_shop_from_each_status(
    checkout: HostedCheckout, status: str
) -> None:
    payment = await _create(checkout.world)
    if status == "EXPIRED":
        await checkout.world.move_clock(1_801)
    await _bring_to(checkout.world, payment, status)
    await checkout.show(payment)
    await _follow_return_link(checkout, payment, status)


@pytest.mark.parametrize("status", ["PAID", "FAILED", "EXPIRED", "CANCELLED"])
async def test_an_open_page_updates_its_return_link_with_the_status(
    checkout: HostedCheckout, status: str
) -> None:
    payment = await _create(checkout.world)
    await checkout.show(payment)
    await checkout.wait_for_streams()
    if status == "EXPIRED":
        await checkout.world.move_clock(1_801)
    await _bring_to(checkout.world, payment, status)
    await expect(checkout.result).to_be_focused()
    await _follow_return_link(checkout, payment, status)


@pytest.mark.parametrize("blocks_storage", [False, True])
async def test_a_buyer_who_paid_returns_automatically_to_the_payments_return_url(
    checkout: HostedCheckout, *, blocks_storage: bool
) -> None:
    if blocks_storage:  # as a browser that blocks all cookies
        await checkout.page.add_init_script(
            """Object.defineProperty(window, "sessionStorage", {
              get() { throw new DOMException("denied", "SecurityError"); },
            });"""
        )
    payment = await _create(checkout.world)
    await _bring_to(checkout.world, payment, "PAID")
    await checkout.page.clock.install()
    await checkout.show(payment)
    await expect(checkout.page.get_by_text("Taking you back to Nimbus Books")).to_be_visible()
    await checkout.page.clock.fast_forward("00:16")
    await expect(checkout.page).to_have_title("elsewhere")
    hint = f"payment_id={ids.format_id(ids.PAYMENT, payment.id)}&status=PAID"
    assert checkout.page.url == f"{_RETURN}&{hint}"


async def test_a_retry_is_not_offered_after_an_amount_mismatch(checkout: HostedCheckout) -> None:
    payment = await _create(checkout.world)
    session = (await checkout.world.select(payment)).session
    await checkout.world.report(payment, session.id, captured(158_999))
    await checkout.show(payment)
    await expect(checkout.page.locator("main")).to_contain_text("We received a different amount")
    await expect(checkout.page.get_by_text(_AGAIN)).to_have_count(0)
    link = checkout.page.get_by_role("link", name=_BACK)
    assert (await link.get_attribute("href") or "").startswith(f"{_RETURN}&payment_id=")


async def test_a_return_url_from_a_removed_origin_is_not_linked(checkout: HostedCheckout) -> None:
    payment = await _create(checkout.world)
    await _bring_to(checkout.world, payment, "FAILED")
    profile = SetMerchantProfile(
        merchant_id=checkout.world.merchant_id,
        allowed_origins=[],
        return_url="https://new.example.com/registered",
    )
    await checkout.world.perform(profile)
    await checkout.show(payment)
    link = checkout.page.get_by_role("link", name=_AGAIN)
    expected = "https://new.example.com/registered?payment_id="
    assert (await link.get_attribute("href") or "").startswith(expected)
