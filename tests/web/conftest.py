from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.async_api import Browser, BrowserContext, async_playwright
from pytest_asyncio import fixture

from payintent.evm.refund_sender import RpcRefundSender
from payintent.http.middleware import CommonHeaders
from payintent.runtime.settings import Settings
from payintent.service import Service
from payintent_sandbox.chains.anvil import Anvil
from payintent_sandbox.chains.deploy import PLANS
from tests.support import browser as programs
from tests.support.chain import fetched_anvil
from tests.support.chain_refunds import RefundWorld
from tests.support.chain_refunds import refunding as open_refunding
from tests.support.contracts import contract_service
from tests.support.fakes import FakeGateway
from tests.support.onchain import SLUG, ChainWorld, chain_world
from tests.support.ports import free_port
from tests.support.running_service import serving
from tests.support.world import Api, World, make_world
from tests.web import sdk_driver
from tests.web.buyer import GATEWAY, SHOP, other_sites
from tests.web.gallery import Gallery, open_gallery, server_url
from tests.web.sdk_driver import SdkPage
from tests.web.sdk_shop import running_shop
from tests.web.till import WalletCheckout, make_wallet_checkout
from tests.web.wallet import Wallet

# All tests of a process use the same loop because they share a browser, which is slow to start.
LOOP = "session"


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def settings(settings: Settings, port: int) -> Settings:
    base = f"http://127.0.0.1:{port}"
    return settings.model_copy(update={"checkout_base": f"{base}/c", "api_base": f"{base}/v1"})


@pytest.fixture
def refund_senders() -> dict[str, RpcRefundSender]:
    """The refund senders by chain. There are none unless a test uses `refunding`."""
    return {}


@fixture(loop_scope=LOOP)
async def service(
    settings: Settings, gateway: FakeGateway, refund_senders: dict[str, RpcRefundSender]
) -> AsyncIterator[Service]:
    """The service with the fake gateway and the contract's adapter."""
    async with contract_service(settings, gateway, refund_senders) as service:
        yield service


@fixture(loop_scope=LOOP)
async def world(service: Service, gateway: FakeGateway) -> World:
    return await make_world(service, gateway)


@pytest.fixture
def slug() -> str:
    return SLUG


@pytest.fixture
def chain_url(slug: str, tmp_path: Path) -> Iterator[str]:
    """A separate chain for each test."""
    binary = fetched_anvil()
    chain = Anvil(PLANS[slug].network_id, log=tmp_path / "anvil.log", binary=binary)
    yield chain.start()
    chain.stop()


@fixture(loop_scope=LOOP)
async def ground(world: World, chain_url: str, slug: str) -> AsyncIterator[ChainWorld]:
    async with chain_world(world, chain_url, slug) as ground:
        yield ground


@fixture(loop_scope=LOOP)
async def refunding(
    ground: ChainWorld, refund_senders: dict[str, RpcRefundSender]
) -> AsyncIterator[RefundWorld]:
    """The chain with a funded refund account."""
    async with open_refunding(ground, refund_senders) as refunding:
        yield refunding


@fixture(loop_scope=LOOP)
async def site(settings: Settings, service: Service, port: int) -> AsyncIterator[CommonHeaders]:
    async with serving(settings, service, port) as app:
        yield app


@fixture(loop_scope=LOOP, scope="session")
async def browser() -> AsyncIterator[Browser]:
    """A browser that resolves the gateway's and the shop's hosts to a local port."""
    program = programs.find_light()
    if program is None:
        pytest.fail(programs.MISSING, pytrace=False)
    async with other_sites() as port, async_playwright() as playwright:
        hosts = ",".join(f"MAP {urlsplit(url).netloc} 127.0.0.1:{port}" for url in (GATEWAY, SHOP))
        options = [f"--host-resolver-rules={hosts}", *programs.THRIFTY]
        browser = await playwright.chromium.launch(executable_path=program, args=options)
        yield browser
        await browser.close()


@fixture(loop_scope=LOOP, scope="session")
async def gallery() -> AsyncIterator[Gallery]:
    """Every checkout state, created once for all tests that only view it."""
    async with open_gallery(server_url()) as gallery:
        yield gallery


@pytest.fixture
def scripted() -> bool:
    """Whether the buyer's browser runs JavaScript."""
    return True


@fixture(loop_scope=LOOP)
async def buyer(browser: Browser, scripted: bool) -> AsyncIterator[BrowserContext]:
    """The buyer's browser context."""
    buyer = await browser.new_context(java_script_enabled=scripted)
    yield buyer
    await buyer.close()


@pytest.fixture
def wallet(ground: ChainWorld) -> Wallet:
    """A funded wallet on the payment's chain."""
    network_id = ground.deployment.network_id
    return Wallet(ground.chain, network_id, [ground.payer], {network_id}, network_id)


@fixture(loop_scope=LOOP)
async def checkout(
    site: CommonHeaders, ground: ChainWorld, buyer: BrowserContext
) -> AsyncIterator[WalletCheckout]:
    checkout = await make_wallet_checkout(ground, buyer)
    yield checkout
    assert checkout.errors == []


@fixture(loop_scope=LOOP)
async def sdk(
    site: None, settings: Settings, world: World, buyer: BrowserContext
) -> AsyncIterator[SdkPage]:
    """A shop's page, whose origin differs from the service's."""
    service = settings.checkout_base.removesuffix("/c")
    page = await buyer.new_page()
    page.set_default_timeout(sdk_driver.PATIENCE_MS)
    async with running_shop(service) as shop, Api(service, world) as api:
        yield SdkPage(api, shop, page)
