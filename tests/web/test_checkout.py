"""Test the hosted page from the method selection to the result, with interruptions."""

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
from tests.sandbox.simulator.running import KEY, SECRET, running_simulator
from tests.support.fakes import FakeGateway
from tests.support.world import World
from tests.web.buyer import GATEWAY, SHOP, Desk, make_desk, open_second_tab
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
async def desk(world: World, site: CommonHeaders, buyer: BrowserContext) -> AsyncIterator[Desk]:
    desk = await make_desk(world, site, buyer)
    yield desk
    assert desk.errors == []


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


async def pay_at_gateway(desk: Desk, card: str) -> Payment:
    """Select the simulator, and enter a card on its page."""
    payment = await desk.create_and_open()
    await choose(desk.page, "Simulator")
    await desk.page.get_by_label("Card number").fill(card)
    await desk.page.get_by_role("button", name="Pay", exact=True).click()
    return payment


async def test_a_buyer_pays_by_card_and_opens_the_receipt(
    desk: Desk, simulator_method: None
) -> None:
    payment = await pay_at_gateway(desk, APPROVED)
    await expect(desk.page).to_have_url(desk.address(payment))
    await expect(desk.page.get_by_role("heading", name="Paid")).to_be_visible()
    await desk.page.get_by_role("link", name="View receipt").click()
    await expect(desk.page.get_by_role("heading", name="Receipt")).to_be_visible()
    await expect(desk.page.locator("dl")).to_contain_text("1,590.00")
    await expect(desk.page.get_by_role("button", name="Print")).to_be_visible()
    assert await desk.world.status(payment) == "PAID"


async def test_a_decline_is_explained_to_the_buyer(desk: Desk, simulator_method: None) -> None:
    payment = await pay_at_gateway(desk, DECLINED)
    heading = desk.page.get_by_role("heading", name="The payment did not go through")
    await expect(heading).to_be_visible()
    await expect(desk.result).to_contain_text("Your bank or the payment provider declined")
    assert await desk.world.status(payment) == "FAILED"


async def test_a_buyer_pays_after_a_bank_challenge(desk: Desk, simulator_method: None) -> None:
    payment = await pay_at_gateway(desk, CHALLENGED)
    await desk.page.get_by_role("button", name="Approve").click()
    await expect(desk.page.get_by_role("heading", name="Paid")).to_be_visible()
    assert await desk.world.status(payment) == "PAID"


async def test_a_buyer_completes_a_payment_without_javascript(
    world: World, site: CommonHeaders, simulator_method: None, browser: Browser
) -> None:
    await world.perform(
        SetMerchantProfile(merchant_id=world.merchant_id, return_url=f"{SHOP}/thanks")
    )
    async with await browser.new_context(java_script_enabled=False) as buyer:
        desk = await make_desk(world, site, buyer)
        payment = await desk.create_and_open("?lang=ja")
        await desk.page.locator("details.places summary").click()
        await desk.page.locator("select[name=lang]").select_option("en")
        await desk.page.locator("select[name=country]").select_option("TH")
        await desk.page.locator("details.places button").click()
        await expect(desk.page.locator("html")).to_have_attribute("lang", "en")
        await desk.page.get_by_label("Email").fill("ann@example.com")
        await choose(desk.page, "Simulator")
        await expect(desk.page.get_by_label("Card number")).to_be_visible()
        await desk.show(payment, "?lang=en")  # the buyer returns without having paid
        await expect(desk.page.get_by_text("check the status here")).to_be_visible()
        for hidden in ("The result appears here", "Copy link", "minutes left"):
            await expect(desk.page.get_by_text(hidden)).to_be_hidden()
        await expect(desk.page.get_by_text("Pay by")).to_be_visible()
        await desk.page.get_by_text("Continue on your phone").click()
        await expect(desk.page.get_by_role("img", name="QR code that opens this")).to_be_visible()
        await desk.page.get_by_role("link", name="Continue to payment").click()
        await desk.page.get_by_label("Card number").fill(APPROVED)
        await desk.page.get_by_role("button", name="Pay", exact=True).click()
        await _check_status_until(desk.page, "Paid")
        href = await desk.page.get_by_role("link", name="Back to").get_attribute("href")
        assert href is not None
        assert href.startswith(f"{SHOP}/thanks?payment_id=pay_")
        await desk.page.get_by_role("link", name="View receipt").click()
        await expect(desk.page.get_by_text("a***@example.com")).to_be_visible()
        await expect(desk.page.get_by_role("button", name="Print")).to_be_hidden()


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


async def test_a_change_of_method_closes_the_old_session(desk: Desk) -> None:
    payment = await desk.select_and_return("Card")
    await expect(desk.page.get_by_role("heading", name="Card")).to_be_visible()
    await choose(desk.page, "Transfer")
    await expect(desk.page).to_have_url(f"{GATEWAY}/pay")
    await desk.show(payment)
    await expect(desk.page.get_by_role("heading", name="Transfer")).to_be_visible()
    lives = await desk.world.rows("SELECT life FROM session ORDER BY opened_at")
    assert [row["life"] for row in lives] == ["closing", "open"]


async def test_updates_do_not_interrupt_the_redirect_to_the_gateway(
    desk: Desk,
) -> None:
    async def respond_slowly(route: Route) -> None:
        answer = await route.fetch(max_redirects=0)
        for _ in range(3):  # enough time for the page to receive and process updates
            await desk.page.wait_for_event("response", lambda response: desk._is_view(response.url))
        await route.fulfill(response=answer)

    await desk.page.route("**/select", respond_slowly)
    await desk.create_and_open()
    await desk.wait_for_streams(1)
    await desk.page.get_by_role("radio", name="Transfer").check()
    button = desk.page.locator("form.methods button")
    await button.evaluate(
        """button => {
          setInterval(() => dispatchEvent(new Event("online")), 50);  // makes the page poll
          button.click();
          setTimeout(() => button.click(), 50);  // a double click
        }"""
    )
    await expect(desk.page).to_have_url(f"{GATEWAY}/pay")
    assert len(desk.world.gateway.created) == 1


async def test_a_selection_in_another_tab_updates_the_page(desk: Desk) -> None:
    payment = await desk.create_and_open()
    await desk.wait_for_streams(1)
    async with open_second_tab(desk) as second_tab:
        await second_tab.show(payment)
        await choose(second_tab.page, "Transfer")
        await expect(second_tab.page).to_have_url(f"{GATEWAY}/pay")
    await expect(desk.page.get_by_role("heading", name="Transfer")).to_be_visible()
    assert desk.page.url == desk.address(payment)


async def test_the_countdown_announces_the_remaining_time_until_expiry(desk: Desk) -> None:
    await desk.page.clock.install()
    payment = await desk.create_and_open()
    countdown = desk.page.locator("pay-countdown")
    spoken = countdown.get_by_role("status")
    await expect(countdown).to_have_text("", use_inner_text=True)  # much time remains
    await desk.page.clock.fast_forward("20:30")
    await expect(countdown).to_contain_text("About 10 minutes left to pay")
    await expect(spoken).to_be_empty()
    for ahead, text in (("05:00", "About 5 minutes left"), ("03:50", "Less than a minute left")):
        await desk.page.clock.fast_forward(ahead)
        await expect(spoken).to_contain_text(text)
        await expect(countdown).to_contain_text(text)
    async with desk.page.expect_response(lambda response: desk._is_view(response.url)):
        await desk.page.clock.fast_forward("01:00")
    await expect(countdown).to_contain_text("We’re checking whether your payment went through")
    await expect(desk.result).to_have_count(0)  # only the service decides the result
    await desk.world.move_clock(HALF_AN_HOUR_S + 1)
    await desk.poll()
    await desk.expect_result("This payment has expired")
    await expect(desk.page).to_have_title("This payment has expired · Nimbus Books")
    assert await desk.world.status(payment) == "EXPIRED"


async def test_the_method_cannot_be_changed_after_the_deadline(desk: Desk) -> None:
    await desk.select_and_return()
    await unfold(desk.page)
    await expect(desk.page.get_by_role("radio", name="Transfer")).to_be_visible()
    await desk.world.move_clock(HALF_AN_HOUR_S + 1)
    assert (await desk.poll())["can"]["select"] is False
    await expect(desk.page.get_by_role("radio", name="Transfer")).to_be_hidden()
    await expect(desk.page.get_by_text("The time to pay has run out")).to_be_visible()
    await expect(desk.result).to_have_count(0)


async def test_a_block_during_the_checkout_is_shown_without_details(desk: Desk) -> None:
    await desk.create_and_open()
    await desk.world.perform(AddFraudRule(kind="PAYER", value="buyer-1", code="THE_LIST"))
    assert list(await desk.poll()) == ["fds"]
    await expect(
        desk.page.get_by_role("heading", name="This payment can’t be processed")
    ).to_be_visible()
    await expect(desk.page.get_by_role("radio")).to_have_count(0)
    await expect(desk.page.get_by_text("THE_LIST")).to_have_count(0)
    await desk.page.reload()
    await expect(
        desk.page.get_by_role("heading", name="This payment can’t be processed")
    ).to_be_visible()


async def test_a_buyer_who_was_offline_sees_the_result_when_online_again(desk: Desk) -> None:
    payment = await desk.select_and_return()
    await desk.wait_for_streams(1)
    await desk.page.context.set_offline(True)
    await expect(desk.page.get_by_text("You’re offline")).to_be_visible()
    await desk.report_paid(payment)
    await desk.wait_for_streams(0)  # the page received the event, but cannot fetch the result page
    await expect(desk.result).to_have_count(0)
    await desk.page.context.set_offline(False)
    await desk.expect_result("Paid")


async def test_a_hidden_page_closes_its_stream_and_updates_when_visible_again(
    desk: Desk,
) -> None:
    payment = await desk.select_and_return()
    await desk.wait_for_streams(1)
    await desk.set_visibility(hidden=True)
    await desk.wait_for_streams(0)
    await desk.report_paid(payment)
    await expect(desk.result).to_have_count(0)
    await desk.set_visibility(hidden=False)
    await desk.expect_result("Paid")


async def test_the_page_polls_if_event_streams_are_rejected(desk: Desk) -> None:
    async def reject_stream(route: Route) -> None:
        await route.fulfill(status=429)

    await desk.page.route("**/events", reject_stream)
    await desk.page.clock.install()
    payment = await desk.select_and_return()
    async with desk.page.expect_response(lambda response: desk._is_view(response.url)):
        await desk.page.clock.fast_forward("00:03")
    await desk.report_paid(payment)
    await desk.page.clock.fast_forward("00:05")
    await desk.expect_result("Paid")
    assert desk.change_feed.count == 0


async def test_updates_without_changes_preserve_the_buyers_input(desk: Desk) -> None:
    await desk.create_and_open()
    await desk.page.get_by_label("Email").fill("ann@exam")
    await desk.page.get_by_role("radio", name="Transfer").check()
    await desk.page.get_by_label("Email").focus()
    for _ in range(2):
        assert (await desk.poll())["status"] == "PENDING"
    await expect(desk.page.get_by_label("Email")).to_be_focused()
    await expect(desk.page.get_by_label("Email")).to_have_value("ann@exam")
    await expect(desk.page.get_by_role("radio", name="Transfer")).to_be_checked()


async def test_the_result_replaces_a_rejected_form_and_a_reload_does_not_resubmit_it(
    desk: Desk,
) -> None:
    payment = await desk.create_and_open()
    await desk.world.rows("UPDATE payment_method SET fee_mode = 'EXCLUSIVE', fee_rate = 0.5")
    await choose(desk.page, "Card")
    await expect(desk.page.get_by_role("alert")).to_contain_text("The total has changed")
    await expect(desk.page.get_by_role("radio", name="Card")).to_be_checked()
    assert desk.page.url.endswith("/select")
    await desk.page.locator("details.places summary").click()
    await desk.page.get_by_role("button", name="Show payment methods").click()
    await expect(desk.page.get_by_text("Fee 795.00")).to_have_count(2)
    await desk.world.rows("UPDATE payment_method SET fee_rate = 0")
    await choose(desk.page, "Card")
    await expect(desk.page.get_by_role("alert")).to_be_visible()
    assert "/select?" in desk.page.url
    await desk.wait_for_streams(1)
    async with desk.world.database.transaction() as tx:
        await cancel_by_buyer(tx, payment.id)  # as in a second tab
    await desk.expect_result("The payment was cancelled")
    assert "/select" not in desk.page.url
    await desk.page.reload()
    await expect(desk.page.get_by_role("heading", name="was cancelled")).to_be_visible()


async def test_a_buyer_cancels_after_a_confirmation(desk: Desk) -> None:
    payment = await desk.create_and_open()
    await desk.page.get_by_text("Cancel payment").click()
    await expect(desk.page.get_by_text("Cancel this payment?")).to_be_visible()
    assert await desk.world.status(payment) == "PENDING"  # the page asks for confirmation
    await desk.page.get_by_role("button", name="Yes, cancel").click()
    await expect(desk.page.get_by_role("heading", name="was cancelled")).to_be_visible()
    assert desk.page.url == desk.address(payment)
    assert await desk.world.status(payment) == "CANCELLED"


class TestTheWayBack:
    @fixture(loop_scope=LOOP)
    async def world(self, world: World) -> World:
        """Set a return URL, and a callback URL to which the event is not delivered yet."""
        profile = SetMerchantProfile(merchant_id=world.merchant_id, return_url=f"{SHOP}/thanks?o=1")
        await world.perform(profile)
        await world.rows("UPDATE merchant SET callback_url = 'https://shop.test/hook'")
        return world

    async def test_a_buyer_returns_automatically_after_the_shop_has_received_the_event(
        self, desk: Desk
    ) -> None:
        await desk.page.clock.install()
        payment = await desk.select_and_return()
        await desk.report_paid(payment)
        await desk.expect_result("Paid")
        await expect(desk.page.get_by_text("Taking you back to Nimbus Books")).to_be_visible()
        async with desk.page.expect_response(
            lambda response: desk._is_view(response.url)
        ) as answer:
            await desk.page.clock.fast_forward("00:04")
        assert (await (await answer.value).json())["merchant_told"] is False
        assert desk.page.url == desk.address(payment)
        await desk.world.rows("UPDATE delivery SET state = 'delivered'")
        await expect(desk.page).to_have_title("elsewhere")
        assert desk.page.url.startswith(f"{SHOP}/thanks?o=1&payment_id=pay_")
        assert desk.page.url.endswith("&status=PAID")
        await desk.page.go_back()  # a buyer who navigates back wants to stay
        await expect(desk.page.locator("html.scripted")).to_have_count(1)
        await expect(desk.page.get_by_role("heading", name="Paid")).to_be_visible()
        assert not await desk.page.get_by_text("Taking you back").is_visible()

    async def test_a_buyer_returns_after_a_timeout_if_the_event_is_not_delivered(
        self, desk: Desk
    ) -> None:
        payment = await desk.select_and_return()
        await desk.report_paid(payment)
        await desk.page.clock.install()
        await desk.show(payment)
        await expect(desk.page.get_by_text("Taking you back to Nimbus Books")).to_be_visible()
        await desk.page.clock.fast_forward("00:16")
        await expect(desk.page).to_have_title("elsewhere")

    async def test_a_buyer_can_stop_the_automatic_return(self, desk: Desk) -> None:
        payment = await desk.select_and_return()
        await desk.report_paid(payment)
        await desk.world.rows("UPDATE delivery SET state = 'delivered'")
        await desk.page.clock.install()
        await desk.show(payment)
        await desk.page.get_by_role("button", name="Stay on this page").click()
        await expect(desk.page.get_by_text("Taking you back")).to_be_hidden()
        await expect(desk.result).to_be_focused()
        await desk.page.clock.fast_forward("01:00")
        await desk.page.reload()
        await expect(desk.page.get_by_role("heading", name="Paid")).to_be_visible()
        await desk.page.clock.fast_forward("01:00")
        await expect(desk.page.get_by_text("Taking you back")).to_be_hidden()
        assert desk.page.url == desk.address(payment)


async def test_the_link_can_be_copied_for_another_device(desk: Desk) -> None:
    await desk.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    payment = await desk.create_and_open()
    await desk.page.get_by_text("Continue on your phone").click()
    await expect(desk.page.get_by_role("img", name="QR code that opens this")).to_be_visible()
    await desk.page.get_by_role("button", name="Copy link").click()
    await expect(desk.page.get_by_role("button", name="Copied")).to_be_visible()
    assert await desk.page.evaluate("navigator.clipboard.readText()") == desk.address(payment)


async def test_the_displayed_total_equals_the_amount_sent_to_the_gateway(desk: Desk) -> None:
    await desk.world.rows("UPDATE payment_method SET fee_mode = 'EXCLUSIVE', fee_rate = 0.01")
    payment = await desk.create_and_open(amount=Decimal("1234567.80"), amount_text="1234567.80")
    await choose(desk.page, "Card")
    await expect(desk.page).to_have_url(f"{GATEWAY}/pay")
    await desk.show(payment)
    await expect(desk.page.locator(".amount")).to_contain_text("1,246,913.48")
    [request] = desk.world.gateway.created
    assert request.amount_minor == 124_691_348
