"""Test gateway pages on a different host than the API, as with 2C2P."""

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
from tests.sandbox.twoc2p.emulator_setup import MERCHANT, SECRET, pair, running_twoc2p
from tests.support.fakes import FakeGateway
from tests.support.timeouts import PATIENCE_S
from tests.support.world import World
from tests.web.till import choose

LOOP = "session"
pytestmark = [pytest.mark.asyncio(loop_scope=LOOP), pytest.mark.full]

PATIENCE_MS = PATIENCE_S * 1_000
PAGES_HOST = "localhost"  # for a browser, a different origin than 127.0.0.1


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
    """A buyer's page with a 2C2P method. The test fails if a policy blocks a request."""
    await _offer_twoc2p(world, twoc2p_url)
    policy_violations: list[str] = []

    def record_message(message: ConsoleMessage) -> None:
        if "Security Policy" in message.text:
            policy_violations.append(message.text)

    async with await browser.new_context() as buyer:
        page = await buyer.new_page()
        page.set_default_timeout(PATIENCE_MS)
        expect.set_options(timeout=PATIENCE_MS)
        page.on("console", record_message)
        yield page
        assert policy_violations == []


async def _offer_twoc2p(world: World, url: str) -> None:
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


async def test_the_form_redirects_to_the_gateways_page_on_its_own_host(
    world: World, page: Page, twoc2p: TwoC2pGateway, twoc2p_url: str, pages_url: str
) -> None:
    capabilities = replace(twoc2p.capabilities, page_origins={twoc2p_url: pages_url})
    twoc2p.capabilities = capabilities  # as in the adapter's capabilities for 2C2P's real hosts
    await _choose(world, page)
    await expect(page).to_have_url(re.compile(f"{re.escape(pages_url)}/payment/"))


async def test_a_page_on_an_unlisted_host_is_reached_by_a_link(
    world: World, page: Page, pages_url: str
) -> None:
    await _choose(world, page)
    await page.get_by_role("link", name="Continue to payment").click()
    await expect(page).to_have_url(re.compile(f"{re.escape(pages_url)}/payment/"))
