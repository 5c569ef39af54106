"""A gateway's page on a different host than its API, as with 2C2P."""

import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from decimal import Decimal

import pytest
from playwright.async_api import Browser, ConsoleMessage, Page, expect
from pytest_asyncio import fixture

from payintent.gateway_accounts.operations import AddAccount
from payintent.gateways.http_client import GatewayHttpClient
from payintent.gateways.twoc2p.adapter import TwoC2pGateway
from payintent.http.middleware import CommonHeaders
from payintent.merchants.methods_operations import AddPaymentMethod
from payintent.runtime.settings import Settings
from payintent.service import Service, open_service
from tests.sandbox.twoc2p.running import MERCHANT, SECRET, pair, running_twoc2p
from tests.support.fakes import FakeGateway
from tests.support.patience import PATIENCE_S
from tests.support.world import World
from tests.web.till import choose

LOOP = "session"
pytestmark = [pytest.mark.asyncio(loop_scope=LOOP), pytest.mark.full]

PATIENCE_MS = PATIENCE_S * 1_000
PAGES_HOST = "localhost"  # to a browser another origin than 127.0.0.1


@pytest.fixture(scope="module")
def twoc2p_url() -> Iterator[str]:
    with running_twoc2p(pages_host=PAGES_HOST) as url:
        yield url


@pytest.fixture
def pages_url(twoc2p_url: str) -> str:
    return twoc2p_url.replace("127.0.0.1", PAGES_HOST)


@fixture(loop_scope=LOOP)
async def twoc2p() -> AsyncIterator[TwoC2pGateway]:
    http = GatewayHttpClient(timeout_s=PATIENCE_S, response_bytes_max=64 * 1024)
    yield TwoC2pGateway(http)
    await http.close()


@fixture(loop_scope=LOOP)
async def service(
    settings: Settings, gateway: FakeGateway, twoc2p: TwoC2pGateway
) -> AsyncIterator[Service]:
    service = await open_service(settings, {"fake": gateway, "2c2p": twoc2p})
    yield service
    await service.close()


@fixture(loop_scope=LOOP)
async def page(
    site: CommonHeaders, world: World, twoc2p_url: str, browser: Browser
) -> AsyncIterator[Page]:
    """A buyer's page, and a 2C2P method. The browser must not block anything."""
    await _sell_through_twoc2p(world, twoc2p_url)
    blocked: list[str] = []

    def hear(message: ConsoleMessage) -> None:
        if "Security Policy" in message.text:
            blocked.append(message.text)

    async with await browser.new_context() as buyer:
        page = await buyer.new_page()
        page.set_default_timeout(PATIENCE_MS)
        expect.set_options(timeout=PATIENCE_MS)
        page.on("console", hear)
        yield page
        assert blocked == []


async def _sell_through_twoc2p(world: World, url: str) -> None:
    credentials = {
        "merchant_id": MERCHANT,
        "secret_key": SECRET,
        "merchant_private_key": pair(MERCHANT)[0],
        "gateway_public_key": pair("gateway")[1],
        "utc_offset": "+08:00",
    }
    account = await world.perform(
        AddAccount(provider="2c2p", base_url=url, credentials=credentials)
    )
    method = AddPaymentMethod(
        merchant_id=world.merchant_id,
        account_id=account.id,
        kind="redirect",
        label="2C2P",
        currencies=["THB"],
    )
    await world.perform(method)


async def _choose(world: World, page: Page) -> None:
    payment = await world.create(currency="THB", amount=Decimal(1590), amount_text="1590.00")
    await page.goto(f"{world.service.settings.checkout_base}/{payment.checkout_id}?country=TH")
    await choose(page, "2C2P")


async def test_the_answer_to_the_form_leads_to_the_gateways_page_at_its_own_host(
    world: World, page: Page, twoc2p: TwoC2pGateway, twoc2p_url: str, pages_url: str
) -> None:
    known = replace(twoc2p.capabilities, page_origins={twoc2p_url: pages_url})
    twoc2p.capabilities = known  # as the adapter has it of 2C2P's own hosts
    await _choose(world, page)
    await expect(page).to_have_url(re.compile(f"{re.escape(pages_url)}/payment/"))


async def test_a_page_at_a_host_that_the_adapter_does_not_name_is_reached_by_a_press(
    world: World, page: Page, pages_url: str
) -> None:
    await _choose(world, page)
    await page.get_by_role("link", name="Continue to payment").click()
    await expect(page).to_have_url(re.compile(f"{re.escape(pages_url)}/payment/"))
