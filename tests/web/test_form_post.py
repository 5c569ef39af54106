"""Test the form that sends the buyer to ECPay, with and without JavaScript."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from decimal import Decimal

import pytest
from playwright.async_api import Browser, ConsoleMessage, Page, expect
from pytest_asyncio import fixture

from payintent.gateway_accounts.operations import AddAccount
from payintent.gateways.ecpay.adapter import EcpayGateway
from payintent.gateways.http_client import GatewayHttpClient
from payintent.http.middleware import CommonHeaders
from payintent.merchants.methods_operations import AddPaymentMethod
from payintent.payments.model import Payment
from payintent.runtime.settings import Settings
from payintent.service import Service, open_service
from tests.sandbox.ecpay.emulator_setup import ACCOUNT, APPROVED, DECLINED, running_ecpay
from tests.support.fakes import FakeGateway
from tests.support.timeouts import PATIENCE_S
from tests.support.world import World
from tests.web.till import choose

LOOP = "session"
pytestmark = [pytest.mark.asyncio(loop_scope=LOOP), pytest.mark.full]

PATIENCE_MS = PATIENCE_S * 1_000
POLL_S = 0.05
SMALL_PX = 320
NOWHERE = "http://127.0.0.1:9"


@pytest.fixture(scope="module")
def ecpay_url() -> Iterator[str]:
    with running_ecpay() as url:
        yield url


@fixture(loop_scope=LOOP)
async def service(settings: Settings, gateway: FakeGateway) -> AsyncIterator[Service]:
    http = GatewayHttpClient(timeout_s=PATIENCE_S, response_bytes_max=64 * 1024)
    service = await open_service(settings, {"fake": gateway, "ecpay": EcpayGateway(http)})
    yield service
    await service.close()
    await http.close()


@dataclass
class EcpayCheckout:
    """A buyer's page for payments in Taiwan dollars."""

    world: World
    page: Page
    errors: list[str] = field(default_factory=list)

    async def select_ecpay(self) -> Payment:
        """Create a payment, and select ECPay on its page."""
        payment = await self.world.create(
            currency="TWD", amount=Decimal(1590), amount_text="1590.00"
        )
        await self.page.goto(f"{self.base}/{payment.checkout_id}")
        await choose(self.page, "ECPay")
        return payment

    async def continue_to_gateway(self) -> None:
        await self.page.get_by_role("button", name="Continue to payment").click()
        await expect(self.page.get_by_role("heading", name="1590 TWD")).to_be_visible()

    async def pay(self, card: str) -> None:
        await self.page.get_by_label("Card number").fill(card)
        await self.page.get_by_role("button", name="Pay", exact=True).click()

    async def expect_status(self, payment: Payment, status: str) -> None:
        """Wait until the payment has this status, and check that the page shows it."""
        await expect(self.page).to_have_url(f"{self.base}/{payment.checkout_id}")
        async with asyncio.timeout(PATIENCE_S):
            while await self.world.status(payment) != status:
                await asyncio.sleep(POLL_S)
        await self.page.reload()
        heading = {"PAID": "Paid", "FAILED": "The payment did not go through"}[status]
        await expect(self.page.get_by_role("heading", name=heading)).to_be_visible()
        assert await self.world.cases(payment) == []

    @property
    def base(self) -> str:
        return self.world.service.settings.checkout_base

    def record_message(self, message: ConsoleMessage) -> None:
        if "Security Policy" in message.text:
            self.errors.append(message.text)


@fixture(loop_scope=LOOP)
async def method(world: World, ecpay_url: str) -> int:
    """Offer a card method at the ECPay emulator. Its API is unreachable."""
    credentials = {
        "merchant_id": ACCOUNT.merchant_id,
        "hash_key": ACCOUNT.hash_key,
        "hash_iv": ACCOUNT.hash_iv,
        "page_url": ecpay_url,
    }
    account = await world.perform(
        AddAccount(provider="ecpay", base_url=NOWHERE, credentials=credentials)
    )
    card = AddPaymentMethod(
        merchant_id=world.merchant_id,
        account_id=account.id,
        kind="card",
        label="ECPay",
        currencies=["TWD"],
    )
    return (await world.perform(card)).id


@fixture(loop_scope=LOOP, params=[True, False], ids=["javascript", "no javascript"])
async def checkout(
    request: pytest.FixtureRequest, site: CommonHeaders, world: World, method: int, browser: Browser
) -> AsyncIterator[EcpayCheckout]:
    async with await browser.new_context(java_script_enabled=request.param) as buyer:
        page = await buyer.new_page()
        page.set_default_timeout(PATIENCE_MS)
        expect.set_options(timeout=PATIENCE_MS)
        checkout = EcpayCheckout(world, page)
        page.on("console", checkout.record_message)
        yield checkout
        assert checkout.errors == []


async def return_to_shop(checkout: EcpayCheckout, request: pytest.FixtureRequest) -> None:
    """Leave ECPay. If JavaScript is disabled, the buyer must press a button."""
    if "no javascript" in request.node.name:
        await checkout.page.get_by_role("button", name="Back to the shop").click()


async def test_a_buyer_pays_at_ecpay_and_returns(
    checkout: EcpayCheckout, request: pytest.FixtureRequest
) -> None:
    payment = await checkout.select_ecpay()
    await checkout.page.set_viewport_size({"width": SMALL_PX, "height": 2 * SMALL_PX})
    box = await checkout.page.get_by_role("button", name="Continue to payment").bounding_box()
    assert box is not None
    assert box["x"] + box["width"] <= SMALL_PX
    await checkout.continue_to_gateway()
    await checkout.pay(APPROVED)
    await return_to_shop(checkout, request)
    await checkout.expect_status(payment, "PAID")


async def test_a_declined_buyer_returns_to_the_result(
    checkout: EcpayCheckout, request: pytest.FixtureRequest
) -> None:
    payment = await checkout.select_ecpay()
    await checkout.continue_to_gateway()
    await checkout.pay(DECLINED)
    await return_to_shop(checkout, request)
    await checkout.expect_status(payment, "FAILED")


async def test_the_form_still_works_after_the_method_is_disabled(
    checkout: EcpayCheckout, method: int
) -> None:
    payment = await checkout.select_ecpay()
    await checkout.world.rows("UPDATE payment_method SET enabled = false WHERE id = $1", method)
    answer = await checkout.page.goto(f"{checkout.base}/{payment.checkout_id}")
    assert answer is not None
    assert "unsafe" not in answer.headers["content-security-policy"]
    await expect(checkout.page.get_by_role("radio", name="ECPay")).to_be_hidden()
    await checkout.continue_to_gateway()
