"""A buyer on the hosted page, from the selection to the end, with all interruptions."""

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
from tests.web.buyer import GATEWAY, SHOP, Desk, another_tab, make_desk
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
    assert desk.troubles == []


@fixture(loop_scope=LOOP)
async def simulated(world: World, simulator_url: str) -> None:
    """Offer a card at the simulator, which has pages and sends callbacks."""
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


async def at_the_gateway(desk: Desk, card: str) -> Payment:
    """Select the simulator, and enter a card there."""
    payment = await desk.opened()
    await choose(desk.page, "Simulator")
    await desk.page.get_by_label("Card number").fill(card)
    await desk.page.get_by_role("button", name="Pay", exact=True).click()
    return payment


async def test_a_buyer_pays_by_card_and_the_page_shows_it_by_itself(
    desk: Desk, simulated: None
) -> None:
    payment = await at_the_gateway(desk, APPROVED)
    await expect(desk.page).to_have_url(desk.address(payment))
    await expect(desk.page.get_by_role("heading", name="Paid")).to_be_visible()
    await desk.page.get_by_role("link", name="View receipt").click()
    await expect(desk.page.get_by_role("heading", name="Receipt")).to_be_visible()
    await expect(desk.page.locator("dl")).to_contain_text("1,590.00")
    await expect(desk.page.get_by_role("button", name="Print")).to_be_visible()
    assert await desk.world.status(payment) == "PAID"


async def test_a_declined_buyer_is_told_so(desk: Desk, simulated: None) -> None:
    payment = await at_the_gateway(desk, DECLINED)
    heading = desk.page.get_by_role("heading", name="The payment did not go through")
    await expect(heading).to_be_visible()
    await expect(desk.result).to_contain_text("Your bank or the payment provider declined")
    assert await desk.world.status(payment) == "FAILED"


async def test_a_buyer_whom_the_bank_asks_answers_and_has_paid(desk: Desk, simulated: None) -> None:
    payment = await at_the_gateway(desk, CHALLENGED)
    await desk.page.get_by_role("button", name="Approve").click()
    await expect(desk.page.get_by_role("heading", name="Paid")).to_be_visible()
    assert await desk.world.status(payment) == "PAID"


async def test_without_javascript_a_buyer_chooses_pays_looks_and_has_a_receipt(
    world: World, site: CommonHeaders, simulated: None, browser: Browser
) -> None:
    await world.perform(
        SetMerchantProfile(merchant_id=world.merchant_id, return_url=f"{SHOP}/thanks")
    )
    async with await browser.new_context(java_script_enabled=False) as buyer:
        desk = await make_desk(world, site, buyer)
        payment = await desk.opened("?lang=ja")
        await desk.page.locator("details.places summary").click()
        await desk.page.locator("select[name=lang]").select_option("en")
        await desk.page.locator("select[name=country]").select_option("TH")
        await desk.page.locator("details.places button").click()
        await expect(desk.page.locator("html")).to_have_attribute("lang", "en")
        await desk.page.get_by_label("Email").fill("ann@example.com")
        await choose(desk.page, "Simulator")
        await expect(desk.page.get_by_label("Card number")).to_be_visible()
        await desk.show(payment, "?lang=en")  # back, before anything was paid
        await expect(desk.page.get_by_text("check the status here")).to_be_visible()
        for hidden in ("The result appears here", "Copy link", "minutes left"):
            await expect(desk.page.get_by_text(hidden)).to_be_hidden()
        await expect(desk.page.get_by_text("Pay by")).to_be_visible()
        await desk.page.get_by_text("Continue on your phone").click()
        await expect(desk.page.get_by_role("img", name="QR code that opens this")).to_be_visible()
        await desk.page.get_by_role("link", name="Continue to payment").click()
        await desk.page.get_by_label("Card number").fill(APPROVED)
        await desk.page.get_by_role("button", name="Pay", exact=True).click()
        await _look_until(desk.page, "Paid")
        href = await desk.page.get_by_role("link", name="Back to").get_attribute("href")
        assert href is not None
        assert href.startswith(f"{SHOP}/thanks?payment_id=pay_")
        await desk.page.get_by_role("link", name="View receipt").click()
        await expect(desk.page.get_by_text("a***@example.com")).to_be_visible()
        await expect(desk.page.get_by_role("button", name="Print")).to_be_hidden()


async def _look_until(page: Page, title: str) -> None:
    """Press the button for updates, as the page suggests, until there are some."""
    check = page.get_by_role("link", name="Check status")
    heading = page.get_by_role("heading", name=title)
    await expect(check.or_(heading).first).to_be_visible()
    for _ in range(50):
        if await heading.is_visible():
            return
        await check.click()
    await expect(heading).to_be_visible()


async def test_a_buyer_changes_the_method_and_the_old_one_is_closed(desk: Desk) -> None:
    payment = await desk.chosen("Card")
    await expect(desk.page.get_by_role("heading", name="Card")).to_be_visible()
    await choose(desk.page, "Transfer")
    await expect(desk.page).to_have_url(f"{GATEWAY}/pay")
    await desk.show(payment)
    await expect(desk.page.get_by_role("heading", name="Transfer")).to_be_visible()
    lives = await desk.world.rows("SELECT life FROM session ORDER BY opened_at")
    assert [row["life"] for row in lives] == ["closing", "open"]


async def test_the_way_to_the_gateway_is_not_cut_off_by_what_is_heard_meanwhile(
    desk: Desk,
) -> None:
    async def slow(route: Route) -> None:
        answer = await route.fetch(max_redirects=0)
        for _ in range(3):  # time enough to hear of it, and to act on that
            await desk.page.wait_for_event("response", lambda one: desk._is_view(one.url))
        await route.fulfill(response=answer)

    await desk.page.route("**/select", slow)
    await desk.opened()
    await desk.is_heard(1)
    await desk.page.get_by_role("radio", name="Transfer").check()
    button = desk.page.locator("form.methods button")
    await button.evaluate(
        """button => {
          setInterval(() => dispatchEvent(new Event("online")), 50);  // whereupon the page asks
          button.click();
          setTimeout(() => button.click(), 50);  // as some people do
        }"""
    )
    await expect(desk.page).to_have_url(f"{GATEWAY}/pay")
    assert len(desk.world.gateway.created) == 1


async def test_another_tab_shows_what_was_chosen_in_this_one(desk: Desk) -> None:
    payment = await desk.opened()
    await desk.is_heard(1)
    async with another_tab(desk) as other:
        await other.show(payment)
        await choose(other.page, "Transfer")
        await expect(other.page).to_have_url(f"{GATEWAY}/pay")
    await expect(desk.page.get_by_role("heading", name="Transfer")).to_be_visible()
    assert desk.page.url == desk.address(payment)


async def test_the_time_runs_out_in_front_of_the_buyer(desk: Desk) -> None:
    await desk.page.clock.install()
    payment = await desk.opened()
    countdown = desk.page.locator("pay-countdown")
    spoken = countdown.get_by_role("status")
    await expect(countdown).to_have_text("", use_inner_text=True)  # there is time
    await desk.page.clock.fast_forward("20:30")
    await expect(countdown).to_contain_text("About 10 minutes left to pay")
    await expect(spoken).to_be_empty()
    for ahead, told in (("05:00", "About 5 minutes left"), ("03:50", "Less than a minute left")):
        await desk.page.clock.fast_forward(ahead)
        await expect(spoken).to_contain_text(told)
        await expect(countdown).to_contain_text(told)
    async with desk.page.expect_response(lambda one: desk._is_view(one.url)):
        await desk.page.clock.fast_forward("01:00")
    await expect(countdown).to_contain_text("We’re checking whether your payment went through")
    await expect(desk.result).to_have_count(0)  # the service alone says what is over
    await desk.world.move_clock(HALF_AN_HOUR_S + 1)
    await desk.asked()
    await desk.sees("This payment has expired")
    await expect(desk.page).to_have_title("This payment has expired · Nimbus Books")
    assert await desk.world.status(payment) == "EXPIRED"


async def test_the_choice_ends_with_the_time_though_a_payment_is_under_way(desk: Desk) -> None:
    await desk.chosen()
    await unfold(desk.page)
    await expect(desk.page.get_by_role("radio", name="Transfer")).to_be_visible()
    await desk.world.move_clock(HALF_AN_HOUR_S + 1)
    assert (await desk.asked())["can"]["select"] is False
    await expect(desk.page.get_by_role("radio", name="Transfer")).to_be_hidden()
    await expect(desk.page.get_by_text("The time to pay has run out")).to_be_visible()
    await expect(desk.result).to_have_count(0)


async def test_a_buyer_who_is_blocked_meanwhile_is_told_no_more_than_that(desk: Desk) -> None:
    await desk.opened()
    await desk.world.perform(AddFraudRule(kind="PAYER", value="buyer-1", code="THE_LIST"))
    assert list(await desk.asked()) == ["fds"]
    await expect(
        desk.page.get_by_role("heading", name="This payment can’t be processed")
    ).to_be_visible()
    await expect(desk.page.get_by_role("radio")).to_have_count(0)
    await expect(desk.page.get_by_text("THE_LIST")).to_have_count(0)
    await desk.page.reload()
    await expect(
        desk.page.get_by_role("heading", name="This payment can’t be processed")
    ).to_be_visible()


async def test_a_buyer_goes_offline_and_sees_the_end_when_back(desk: Desk) -> None:
    payment = await desk.chosen()
    await desk.is_heard(1)
    await desk.page.context.set_offline(True)
    await expect(desk.page.get_by_text("You’re offline")).to_be_visible()
    await desk.is_paid(payment)
    await desk.is_heard(0)  # the end was told; the page cannot fetch what it looks like
    await expect(desk.result).to_have_count(0)
    await desk.page.context.set_offline(False)
    await desk.sees("Paid")


async def test_a_page_behind_another_window_holds_no_stream_and_looks_when_it_is_back(
    desk: Desk,
) -> None:
    payment = await desk.chosen()
    await desk.is_heard(1)
    await desk.turns(hidden=True)
    await desk.is_heard(0)
    await desk.is_paid(payment)
    await expect(desk.result).to_have_count(0)
    await desk.turns(hidden=False)
    await desk.sees("Paid")


async def test_where_streams_are_refused_the_page_asks(desk: Desk) -> None:
    async def refused(route: Route) -> None:
        await route.fulfill(status=429)

    await desk.page.route("**/events", refused)
    await desk.page.clock.install()
    payment = await desk.chosen()
    async with desk.page.expect_response(lambda one: desk._is_view(one.url)):
        await desk.page.clock.fast_forward("00:03")
    await desk.is_paid(payment)
    await desk.page.clock.fast_forward("00:05")
    await desk.sees("Paid")
    assert desk.lookout.count == 0


async def test_news_that_change_nothing_take_nothing_away(desk: Desk) -> None:
    await desk.opened()
    await desk.page.get_by_label("Email").fill("ann@exam")
    await desk.page.get_by_role("radio", name="Transfer").check()
    await desk.page.get_by_label("Email").focus()
    for _ in range(2):
        assert (await desk.asked())["status"] == "PENDING"
    await expect(desk.page.get_by_label("Email")).to_be_focused()
    await expect(desk.page.get_by_label("Email")).to_have_value("ann@exam")
    await expect(desk.page.get_by_role("radio", name="Transfer")).to_be_checked()


async def test_the_end_replaces_a_form_that_was_refused_and_a_reload_sends_nothing(
    desk: Desk,
) -> None:
    payment = await desk.opened()
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
    await desk.is_heard(1)
    async with desk.world.database.transaction() as tx:
        await cancel_by_buyer(tx, payment.id)  # in another tab
    await desk.sees("The payment was cancelled")
    assert "/select" not in desk.page.url
    await desk.page.reload()
    await expect(desk.page.get_by_role("heading", name="was cancelled")).to_be_visible()


async def test_a_buyer_gives_up(desk: Desk) -> None:
    payment = await desk.opened()
    await desk.page.get_by_text("Cancel payment").click()
    await expect(desk.page.get_by_text("Cancel this payment?")).to_be_visible()
    assert await desk.world.status(payment) == "PENDING"  # it asks once
    await desk.page.get_by_role("button", name="Yes, cancel").click()
    await expect(desk.page.get_by_role("heading", name="was cancelled")).to_be_visible()
    assert desk.page.url == desk.address(payment)
    assert await desk.world.status(payment) == "CANCELLED"


class TestTheWayBack:
    @fixture(loop_scope=LOOP)
    async def world(self, world: World) -> World:
        """Give the merchant a return page, and a server that has not received the event."""
        profile = SetMerchantProfile(merchant_id=world.merchant_id, return_url=f"{SHOP}/thanks?o=1")
        await world.perform(profile)
        await world.rows("UPDATE merchant SET callback_url = 'https://shop.test/hook'")
        return world

    async def test_a_buyer_is_taken_back_once_the_shop_was_told(self, desk: Desk) -> None:
        await desk.page.clock.install()
        payment = await desk.chosen()
        await desk.is_paid(payment)
        await desk.sees("Paid")
        await expect(desk.page.get_by_text("Taking you back to Nimbus Books")).to_be_visible()
        async with desk.page.expect_response(lambda one: desk._is_view(one.url)) as answer:
            await desk.page.clock.fast_forward("00:04")
        assert (await (await answer.value).json())["merchant_told"] is False
        assert desk.page.url == desk.address(payment)
        await desk.world.rows("UPDATE delivery SET state = 'delivered'")
        await expect(desk.page).to_have_title("elsewhere")
        assert desk.page.url.startswith(f"{SHOP}/thanks?o=1&payment_id=pay_")
        assert desk.page.url.endswith("&status=PAID")
        await desk.page.go_back()  # who comes back by the button wants to stay
        await expect(desk.page.locator("html.scripted")).to_have_count(1)
        await expect(desk.page.get_by_role("heading", name="Paid")).to_be_visible()
        assert not await desk.page.get_by_text("Taking you back").is_visible()

    async def test_a_buyer_is_taken_back_after_a_while_though_nobody_told_the_shop(
        self, desk: Desk
    ) -> None:
        payment = await desk.chosen()
        await desk.is_paid(payment)
        await desk.page.clock.install()
        await desk.show(payment)
        await expect(desk.page.get_by_text("Taking you back to Nimbus Books")).to_be_visible()
        await desk.page.clock.fast_forward("00:16")
        await expect(desk.page).to_have_title("elsewhere")

    async def test_a_buyer_who_wants_to_stay_stays(self, desk: Desk) -> None:
        payment = await desk.chosen()
        await desk.is_paid(payment)
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


async def test_the_link_is_copied_for_another_device(desk: Desk) -> None:
    await desk.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    payment = await desk.opened()
    await desk.page.get_by_text("Continue on your phone").click()
    await expect(desk.page.get_by_role("img", name="QR code that opens this")).to_be_visible()
    await desk.page.get_by_role("button", name="Copy link").click()
    await expect(desk.page.get_by_role("button", name="Copied")).to_be_visible()
    assert await desk.page.evaluate("navigator.clipboard.readText()") == desk.address(payment)


async def test_the_amount_of_every_way_is_what_is_asked_for_there(desk: Desk) -> None:
    await desk.world.rows("UPDATE payment_method SET fee_mode = 'EXCLUSIVE', fee_rate = 0.01")
    payment = await desk.opened(amount=Decimal("1234567.80"), amount_text="1234567.80")
    await choose(desk.page, "Card")
    await expect(desk.page).to_have_url(f"{GATEWAY}/pay")
    await desk.show(payment)
    await expect(desk.page.locator(".amount")).to_contain_text("1,246,913.48")
    [asked] = desk.world.gateway.created
    assert asked.amount_minor == 124_691_348
