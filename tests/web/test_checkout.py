"""Test the hosted page from the method selection to the result, including interruptions."""

from collections.abc import AsyncIterator, Iterator
from decimal import Decimal

import pytest
from playwright.async_api import Browser, BrowserContext, Page, Route, expect
from pytest_asyncio import fixture

from payintent.fraud.operations import AddFraudRule
from payintent.gateway_accounts.operations import AddAccount
from payintent.gateways.http_client import GatewayHttpClient
from payintent.gateways.simulator import SimulatorGateway
from payintent.http.middleware import CommonHeaders
from payintent.merchants.methods_operations import AddPaymentMethod
from payintent.merchants.operations import SetMerchantProfile
from payintent.payments.cancel import cancel_by_buyer
from payintent.payments.model import Payment
from payintent.runtime.settings import Settings
from payintent.service import Service, open_service
from tests.sandbox.simulator.simulator_setup import KEY, SECRET, running_simulator
from tests.support.fakes import FakeGateway
from tests.support.world import World
from tests.web.buyer import GATEWAY, SHOP, HostedCheckout, make_hosted_checkout, open_second_tab
from tests.web.till import choose, unfold
from tests.web.wallet import PATIENCE_S

LOOP = "session"
pytestmark = [pytest.mark.asyncio(loop_scope=LOOP), pytest.mark.full]


APPROVED = "4242424242424242"
DECLINED = "4000000000000002"
CHALLENGED = "4000002500003155"
HALF_AN_HOUR_S = 1_800


@pytest.fixture(scope="module")
def simulator_url() -> Iterator[str]:
    with running_simulator() as url:
        yield url


@fixture(loop_scope=LOOP)
async def service(settings: Settings, gateway: FakeGateway) -> AsyncIterator[Service]:
    http = GatewayHttpClient(timeout_s=PATIENCE_S, response_bytes_max=64 * 1024)
    service = await open_service(settings, {"fake": gateway, "simulator": SimulatorGateway(http)})
    yield service
    await service.close()
    await http.close()


@fixture(loop_scope=LOOP)
async def checkout(
    world: World, site: CommonHeaders, buyer: BrowserContext
) -> AsyncIterator[HostedCheckout]:
    checkout = await make_hosted_checkout(world, site, buyer)
    yield checkout
    assert checkout.errors == []


@fixture(loop_scope=LOOP)
async def simulator_method(world: World, simulator_url: str) -> None:
    """Offer a card method at the simulator, which has pages and sends callbacks."""
    credentials = {"api_key": KEY, "signing_secret": SECRET}
    account = await world.perform(
        AddAccount(provider="simulator", base_url=simulator_url, credentials=credentials)
    )
    method = AddPaymentMethod(
        merchant_id=world.merchant_id,
        account_id=account.id,
        kind="redirect",
        label="Simulator",
        currencies=["THB"],
    )
    await world.perform(method)


async def pay_at_gateway(checkout: HostedCheckout, card: str) -> Payment:
    """Select the simulator, and enter a card on its page."""
    payment = await checkout.create_and_open()
    await choose(checkout.page, "Simulator")
    await checkout.page.get_by_label("Card number").fill(card)
    await checkout.page.get_by_role("button", name="Pay", exact=True).click()
    return payment


async def test_a_buyer_pays_by_card_and_opens_the_receipt(
    checkout: HostedCheckout, simulator_method: None
) -> None:
    payment = await pay_at_gateway(checkout, APPROVED)
    await expect(checkout.page).to_have_url(checkout.address(payment))
    await expect(checkout.page.get_by_role("heading", name="Paid")).to_be_visible()
    await checkout.page.get_by_role("link", name="View receipt").click()
    await expect(checkout.page.get_by_role("heading", name="Receipt")).to_be_visible()
    await expect(checkout.page.locator("dl")).to_contain_text("1,590.00")
    await expect(checkout.page.get_by_role("button", name="Print")).to_be_visible()
    assert await checkout.world.status(payment) == "PAID"


async def test_a_decline_is_explained_to_the_buyer(
    checkout: HostedCheckout, simulator_method: None
) -> None:
    payment = await pay_at_gateway(checkout, DECLINED)
    heading = checkout.page.get_by_role("heading", name="The payment did not go through")
    await expect(heading).to_be_visible()
    await expect(checkout.result).to_contain_text("Your bank or the payment provider declined")
    assert await checkout.world.status(payment) == "FAILED"


async def test_a_buyer_pays_after_a_bank_challenge(
    checkout: HostedCheckout, simulator_method: None
) -> None:
    payment = await pay_at_gateway(checkout, CHALLENGED)
    await checkout.page.get_by_role("button", name="Approve").click()
    await expect(checkout.page.get_by_role("heading", name="Paid")).to_be_visible()
    assert await checkout.world.status(payment) == "PAID"


async def test_a_buyer_completes_a_payment_without_javascript(
    world: World, site: CommonHeaders, simulator_method: None, browser: Browser
) -> None:
    await world.perform(
        SetMerchantProfile(merchant_id=world.merchant_id, return_url=f"{SHOP}/thanks")
    )
    async with await browser.new_context(java_script_enabled=False) as buyer:
        checkout = await make_hosted_checkout(world, site, buyer)
        payment = await checkout.create_and_open("?lang=ja")
        await checkout.page.locator("details.places summary").click()
        await checkout.page.locator("select[name=lang]").select_option("en")
        await checkout.page.locator("select[name=country]").select_option("TH")
        await checkout.page.locator("details.places button").click()
        await expect(checkout.page.locator("html")).to_have_attribute("lang", "en")
        await checkout.page.get_by_label("Email").fill("ann@example.com")
        await choose(checkout.page, "Simulator")
        await expect(checkout.page.get_by_label("Card number")).to_be_visible()
        await checkout.show(payment, "?lang=en")  # the buyer returns without having paid
        await expect(checkout.page.get_by_text("check the status here")).to_be_visible()
        for hidden in ("The result appears here", "Copy link", "minutes left"):
            await expect(checkout.page.get_by_text(hidden)).to_be_hidden()
        await expect(checkout.page.get_by_text("Pay by")).to_be_visible()
        await checkout.page.get_by_text("Continue on your phone").click()
        await expect(
            checkout.page.get_by_role("img", name="QR code that opens this")
        ).to_be_visible()
        await checkout.page.get_by_role("link", name="Continue to payment").click()
        await checkout.page.get_by_label("Card number").fill(APPROVED)
        await checkout.page.get_by_role("button", name="Pay", exact=True).click()
        await _check_status_until(checkout.page, "Paid")
        href = await checkout.page.get_by_role("link", name="Back to").get_attribute("href")
        assert href is not None
        assert href.startswith(f"{SHOP}/thanks?payment_id=pay_")
        await checkout.page.get_by_role("link", name="View receipt").click()
        await expect(checkout.page.get_by_text("a***@example.com")).to_be_visible()
        await expect(checkout.page.get_by_role("button", name="Print")).to_be_hidden()


async def _check_status_until(page: Page, title: str) -> None:
    """Press "Check status", as the page suggests, until it shows this heading."""
    check = page.get_by_role("link", name="Check status")
    heading = page.get_by_role("heading", name=title)
    await expect(check.or_(heading).first).to_be_visible()
    for _ in range(50):
        if await heading.is_visible():
            return
        await check.click()
    await expect(heading).to_be_visible()


async def test_a_change_of_method_closes_the_old_session(checkout: HostedCheckout) -> None:
    payment = await checkout.select_and_return("Card")
    await expect(checkout.page.get_by_role("heading", name="Card")).to_be_visible()
    await choose(checkout.page, "Transfer")
    await expect(checkout.page).to_have_url(f"{GATEWAY}/pay")
    await checkout.show(payment)
    await expect(checkout.page.get_by_role("heading", name="Transfer")).to_be_visible()
    lives = await checkout.world.rows("SELECT life FROM session ORDER BY opened_at")
    assert [row["life"] for row in lives] == ["closing", "open"]


async def test_updates_do_not_interrupt_the_redirect_to_the_gateway(
    checkout: HostedCheckout,
) -> None:
    async def respond_slowly(route: Route) -> None:
        answer = await route.fetch(max_redirects=0)
        for _ in range(3):  # enough time for the page to receive and process updates
            await checkout.page.wait_for_event(
                "response", lambda response: checkout._is_view(response.url)
            )
        await route.fulfill(response=answer)

    await checkout.page.route("**/select", respond_slowly)
    await checkout.create_and_open()
    await checkout.wait_for_streams(1)
    await checkout.page.get_by_role("radio", name="Transfer").check()
    button = checkout.page.locator("form.methods button")
    await button.evaluate(
        """button => {
          setInterval(() => dispatchEvent(new Event("online")), 50);  // makes the page poll
          button.click();
          setTimeout(() => button.click(), 50);  // a double click
        }"""
    )
    await expect(checkout.page).to_have_url(f"{GATEWAY}/pay")
    assert len(checkout.world.gateway.created) == 1


async def test_a_selection_in_another_tab_updates_the_page(checkout: HostedCheckout) -> None:
    payment = await checkout.create_and_open()
    await checkout.wait_for_streams(1)
    async with open_second_tab(checkout) as second_tab:
        await second_tab.show(payment)
        await choose(second_tab.page, "Transfer")
        await expect(second_tab.page).to_have_url(f"{GATEWAY}/pay")
    await expect(checkout.page.get_by_role("heading", name="Transfer")).to_be_visible()
    assert checkout.page.url == checkout.address(payment)


async def test_the_countdown_announces_the_remaining_time_until_expiry(
    checkout: HostedCheckout,
) -> None:
    await checkout.page.clock.install()
    payment = await checkout.create_and_open()
    countdown = checkout.page.locator("pay-countdown")
    spoken = countdown.get_by_role("status")
    await expect(countdown).to_have_text("", use_inner_text=True)  # much time remains
    await checkout.page.clock.fast_forward("20:30")
    await expect(countdown).to_contain_text("About 10 minutes left to pay")
    await expect(spoken).to_be_empty()
    for ahead, text in (("05:00", "About 5 minutes left"), ("03:50", "Less than a minute left")):
        await checkout.page.clock.fast_forward(ahead)
        await expect(spoken).to_contain_text(text)
        await expect(countdown).to_contain_text(text)
    async with checkout.page.expect_response(lambda response: checkout._is_view(response.url)):
        await checkout.page.clock.fast_forward("01:00")
    await expect(countdown).to_contain_text("We’re checking whether your payment went through")
    await expect(checkout.result).to_have_count(0)  # only the service decides the result
    await checkout.world.move_clock(HALF_AN_HOUR_S + 1)
    await checkout.poll()
    await checkout.expect_result("This payment has expired")
    await expect(checkout.page).to_have_title("This payment has expired · Nimbus Books")
    assert await checkout.world.status(payment) == "EXPIRED"


async def test_the_method_cannot_be_changed_after_the_deadline(checkout: HostedCheckout) -> None:
    await checkout.select_and_return()
    await unfold(checkout.page)
    await expect(checkout.page.get_by_role("radio", name="Transfer")).to_be_visible()
    await checkout.world.move_clock(HALF_AN_HOUR_S + 1)
    assert (await checkout.poll())["can"]["select"] is False
    await expect(checkout.page.get_by_role("radio", name="Transfer")).to_be_hidden()
    await expect(checkout.page.get_by_text("The time to pay has run out")).to_be_visible()
    await expect(checkout.result).to_have_count(0)


async def test_a_block_during_the_checkout_is_shown_without_details(
    checkout: HostedCheckout,
) -> None:
    await checkout.create_and_open()
    await checkout.world.perform(AddFraudRule(kind="PAYER", value="buyer-1", code="THE_LIST"))
    assert list(await checkout.poll()) == ["fds"]
    await expect(
        checkout.page.get_by_role("heading", name="This payment can’t be processed")
    ).to_be_visible()
    await expect(checkout.page.get_by_role("radio")).to_have_count(0)
    await expect(checkout.page.get_by_text("THE_LIST")).to_have_count(0)
    await checkout.page.reload()
    await expect(
        checkout.page.get_by_role("heading", name="This payment can’t be processed")
    ).to_be_visible()


async def test_a_buyer_who_was_offline_sees_the_result_when_online_again(
    checkout: HostedCheckout,
) -> None:
    payment = await checkout.select_and_return()
    await checkout.wait_for_streams(1)
    await checkout.page.context.set_offline(True)
    await expect(checkout.page.get_by_text("You’re offline")).to_be_visible()
    await checkout.report_paid(payment)
    # The page received the event, but cannot fetch the result page.
    await checkout.wait_for_streams(0)
    await expect(checkout.result).to_have_count(0)
    await checkout.page.context.set_offline(False)
    await checkout.expect_result("Paid")


async def test_a_hidden_page_closes_its_stream_and_updates_when_visible_again(
    checkout: HostedCheckout,
) -> None:
    payment = await checkout.select_and_return()
    await checkout.wait_for_streams(1)
    await checkout.set_visibility(hidden=True)
    await checkout.wait_for_streams(0)
    await checkout.report_paid(payment)
    await expect(checkout.result).to_have_count(0)
    await checkout.set_visibility(hidden=False)
    await checkout.expect_result("Paid")


async def test_the_page_polls_if_event_streams_are_rejected(checkout: HostedCheckout) -> None:
    async def reject_stream(route: Route) -> None:
        await route.fulfill(status=429)

    await checkout.page.route("**/events", reject_stream)
    await checkout.page.clock.install()
    payment = await checkout.select_and_return()
    async with checkout.page.expect_response(lambda response: checkout._is_view(response.url)):
        await checkout.page.clock.fast_forward("00:03")
    await checkout.report_paid(payment)
    await checkout.page.clock.fast_forward("00:05")
    await checkout.expect_result("Paid")
    assert checkout.change_feed.count == 0


async def test_updates_without_changes_preserve_the_buyers_input(checkout: HostedCheckout) -> None:
    await checkout.create_and_open()
    await checkout.page.get_by_label("Email").fill("ann@exam")
    await checkout.page.get_by_role("radio", name="Transfer").check()
    await checkout.page.get_by_label("Email").focus()
    for _ in range(2):
        assert (await checkout.poll())["status"] == "PENDING"
    await expect(checkout.page.get_by_label("Email")).to_be_focused()
    await expect(checkout.page.get_by_label("Email")).to_have_value("ann@exam")
    await expect(checkout.page.get_by_role("radio", name="Transfer")).to_be_checked()


async def test_the_result_replaces_a_rejected_form_and_a_reload_does_not_resubmit_it(
    checkout: HostedCheckout,
) -> None:
    payment = await checkout.create_and_open()
    await checkout.world.rows("UPDATE payment_method SET fee_mode = 'EXCLUSIVE', fee_rate = 0.5")
    await choose(checkout.page, "Card")
    await expect(checkout.page.get_by_role("alert")).to_contain_text("The total has changed")
    await expect(checkout.page.get_by_role("radio", name="Card")).to_be_checked()
    assert checkout.page.url.endswith("/select")
    await checkout.page.locator("details.places summary").click()
    await checkout.page.get_by_role("button", name="Show payment methods").click()
    await expect(checkout.page.get_by_text("Fee 795.00")).to_have_count(2)
    await checkout.world.rows("UPDATE payment_method SET fee_rate = 0")
    await choose(checkout.page, "Card")
    await expect(checkout.page.get_by_role("alert")).to_be_visible()
    assert "/select?" in checkout.page.url
    await checkout.wait_for_streams(1)
    async with checkout.world.database.transaction() as tx:
        await cancel_by_buyer(tx, payment.id)  # as in a second tab
    await checkout.expect_result("The payment was cancelled")
    assert "/select" not in checkout.page.url
    await checkout.page.reload()
    await expect(checkout.page.get_by_role("heading", name="was cancelled")).to_be_visible()


async def test_a_buyer_cancels_after_a_confirmation(checkout: HostedCheckout) -> None:
    payment = await checkout.create_and_open()
    await checkout.page.get_by_text("Cancel payment").click()
    await expect(checkout.page.get_by_text("Cancel this payment?")).to_be_visible()
    assert await checkout.world.status(payment) == "PENDING"  # the page asks for confirmation
    await checkout.page.get_by_role("button", name="Yes, cancel").click()
    await expect(checkout.page.get_by_role("heading", name="was cancelled")).to_be_visible()
    assert checkout.page.url == checkout.address(payment)
    assert await checkout.world.status(payment) == "CANCELLED"


class TestAutomaticReturn:
    @fixture(loop_scope=LOOP)
    async def world(self, world: World) -> World:
        """Set a return URL, and a callback URL to which the event is not delivered yet."""
        profile = SetMerchantProfile(merchant_id=world.merchant_id, return_url=f"{SHOP}/thanks?o=1")
        await world.perform(profile)
        await world.rows("UPDATE merchant SET callback_url = 'https://shop.test/hook'")
        return world

    async def test_a_buyer_returns_automatically_after_the_shop_has_received_the_event(
        self, checkout: HostedCheckout
    ) -> None:
        await checkout.page.clock.install()
        payment = await checkout.select_and_return()
        await checkout.report_paid(payment)
        await checkout.expect_result("Paid")
        await expect(checkout.page.get_by_text("Taking you back to Nimbus Books")).to_be_visible()
        async with checkout.page.expect_response(
            lambda response: checkout._is_view(response.url)
        ) as answer:
            await checkout.page.clock.fast_forward("00:04")
        assert (await (await answer.value).json())["merchant_told"] is False
        assert checkout.page.url == checkout.address(payment)
        await checkout.world.rows("UPDATE delivery SET state = 'delivered'")
        await expect(checkout.page).to_have_title("elsewhere")
        assert checkout.page.url.startswith(f"{SHOP}/thanks?o=1&payment_id=pay_")
        assert checkout.page.url.endswith("&status=PAID")
        await checkout.page.go_back()  # a buyer who navigates back wants to stay
        await expect(checkout.page.locator("html.scripted")).to_have_count(1)
        await expect(checkout.page.get_by_role("heading", name="Paid")).to_be_visible()
        assert not await checkout.page.get_by_text("Taking you back").is_visible()

    async def test_a_buyer_returns_after_a_timeout_if_the_event_is_not_delivered(
        self, checkout: HostedCheckout
    ) -> None:
        payment = await checkout.select_and_return()
        await checkout.report_paid(payment)
        await checkout.page.clock.install()
        await checkout.show(payment)
        await expect(checkout.page.get_by_text("Taking you back to Nimbus Books")).to_be_visible()
        await checkout.page.clock.fast_forward("00:16")
        await expect(checkout.page).to_have_title("elsewhere")

    async def test_a_buyer_can_stop_the_automatic_return(self, checkout: HostedCheckout) -> None:
        payment = await checkout.select_and_return()
        await checkout.report_paid(payment)
        await checkout.world.rows("UPDATE delivery SET state = 'delivered'")
        await checkout.page.clock.install()
        await checkout.show(payment)
        await checkout.page.get_by_role("button", name="Stay on this page").click()
        await expect(checkout.page.get_by_text("Taking you back")).to_be_hidden()
        await expect(checkout.result).to_be_focused()
        await checkout.page.clock.fast_forward("01:00")
        await checkout.page.reload()
        await expect(checkout.page.get_by_role("heading", name="Paid")).to_be_visible()
        await checkout.page.clock.fast_forward("01:00")
        await expect(checkout.page.get_by_text("Taking you back")).to_be_hidden()
        assert checkout.page.url == checkout.address(payment)

    async def test_a_buyer_who_left_and_goes_back_stays(self, checkout: HostedCheckout) -> None:
        payment = await checkout.select_and_return()
        await checkout.report_paid(payment)
        await checkout.page.clock.install()
        await checkout.show(payment)
        await expect(checkout.page.get_by_text("Taking you back")).to_be_visible()
        # The browser stores the page, and shows it again if the buyer goes back.
        await checkout.page.evaluate(
            "dispatchEvent(new PageTransitionEvent('pagehide', { persisted: true }))"
        )
        await expect(checkout.page.get_by_text("Taking you back")).to_be_hidden()
        await checkout.page.clock.fast_forward("01:00")
        await expect(checkout.page.get_by_role("heading", name="Paid")).to_be_visible()
        assert checkout.page.url == checkout.address(payment)


async def test_the_link_can_be_copied_for_another_device(checkout: HostedCheckout) -> None:
    await checkout.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    payment = await checkout.create_and_open()
    await checkout.page.get_by_text("Continue on your phone").click()
    await expect(checkout.page.get_by_role("img", name="QR code that opens this")).to_be_visible()
    await checkout.page.get_by_role("button", name="Copy link").click()
    await expect(checkout.page.get_by_role("button", name="Copied")).to_be_visible()
    assert await checkout.page.evaluate("navigator.clipboard.readText()") == checkout.address(
        payment
    )


async def test_a_link_is_selected_if_the_browser_refuses_to_copy_it(
    checkout: HostedCheckout,
) -> None:
    payment = await checkout.create_and_open()
    await checkout.page.evaluate("void (navigator.clipboard.writeText = () => Promise.reject())")
    await checkout.page.get_by_text("Continue on your phone").click()
    await checkout.page.get_by_role("button", name="Copy link").click()
    await expect(checkout.page.locator("pay-copy code")).to_be_visible()
    assert await checkout.page.evaluate("getSelection().toString()") == checkout.address(payment)
    assert await checkout.page.evaluate(
        "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
    )


async def test_the_displayed_total_equals_the_amount_sent_to_the_gateway(
    checkout: HostedCheckout,
) -> None:
    await checkout.world.rows("UPDATE payment_method SET fee_mode = 'EXCLUSIVE', fee_rate = 0.01")
    payment = await checkout.create_and_open(amount=Decimal("1234567.80"), amount_text="1234567.80")
    await choose(checkout.page, "Card")
    await expect(checkout.page).to_have_url(f"{GATEWAY}/pay")
    await checkout.show(payment)
    await expect(checkout.page.locator(".amount")).to_contain_text("1,246,913.48")
    [request] = checkout.world.gateway.created
    assert request.amount_minor == 124_691_348
