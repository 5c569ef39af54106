"""Test the demo shop's pages, which use the browser SDK in each supported way."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
import uvicorn
from playwright.async_api import BrowserContext, Page, expect
from pytest_asyncio import fixture

from payintent.payments import store as payment_store
from payintent.runtime.settings import Settings
from payintent_sandbox.shop.app import Config, make_app
from payintent_sandbox.shop.webhook import read_secret
from tests.support.arrange import callback
from tests.support.ports import free_port
from tests.support.world import Api, World
from tests.web.sdk_driver import PATIENCE_MS

LOOP = "session"
pytestmark = [pytest.mark.asyncio(loop_scope=LOOP), pytest.mark.full]

expect.set_options(timeout=PATIENCE_MS)


@dataclass
class Visit:
    """A buyer in the shop."""

    url: str
    page: Page
    api: Api

    async def choose(self, way: str) -> None:
        """Follow the link for a way to pay next to the first book."""
        await self.page.goto(self.url)
        await self.page.get_by_role("link", name=way).first.click()

    async def pay(self) -> None:
        """Select and pay the only payment."""
        [row] = await self.api.world.rows("SELECT id, checkout_id FROM payment")
        path = f"/v1/checkout/{row['checkout_id']}/quotes"
        body = {"payment_method_id": self.api.world.card}
        assert (await self.api.send("POST", path, json=body)).status == 200
        view = await payment_store.get(self.api.world.database, row["id"])
        assert view is not None
        capture = {"reference": "cap-1", "amount_minor": 159000, "currency": "THB"}
        report = {"state": "captured", "capture": capture}
        assert (await callback(self.api, view.payment.session_id, report)).status == 200

    async def wait_for_order_page(self) -> None:
        """Wait for the order page, which opens when the webhook has marked the order as paid."""
        await self.page.wait_for_url(f"{self.url}/orders/A-1001")


def _is_error(text: str) -> bool:
    """Return whether a policy has blocked a part of the page, and not a whole frame."""
    return "Policy" in text and "frame-ancestors" not in text


@fixture(loop_scope=LOOP)
async def visit(
    site: None, settings: Settings, world: World, buyer: BrowserContext
) -> AsyncIterator[Visit]:
    service = settings.checkout_base.removesuffix("/c")
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    config = Config(
        api_url=settings.api_base,
        public_url=url,
        api_key=world.api_key,
        callback_key=read_secret(world.callback_secret),
    )
    serving = uvicorn.Config(make_app(config), port=port, ws="none", log_config=None)
    serving.load()
    server = uvicorn.Server(serving)
    server.lifespan = serving.lifespan_class(serving)
    await server.startup()
    await world.rows("UPDATE merchant SET allowed_origins = ARRAY[$1]::text[]", url)
    page = await buyer.new_page()
    page.set_default_timeout(PATIENCE_MS)
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on(
        "console", lambda message: errors.append(message.text) if _is_error(message.text) else None
    )
    async with Api(service, world) as api:
        yield Visit(url, page, api)
    await page.close()
    server.should_exit = True
    await server.shutdown()
    assert errors == []


async def test_a_buyer_is_redirected_to_the_checkout(visit: Visit) -> None:
    await visit.choose("redirect")
    await visit.page.get_by_role("button", name="Pay").click()
    await visit.page.wait_for_url("**/c/cs_*")
    await expect(visit.page.get_by_text("Tides of the Chao Phraya").first).to_be_visible()


async def test_a_buyer_pays_in_a_popup(visit: Visit) -> None:
    await visit.choose("popup")
    async with visit.page.expect_popup() as popup:
        await visit.page.get_by_role("button", name="Pay").click()
    window = await popup.value
    await window.wait_for_url("**/c/cs_*")
    await visit.pay()
    await visit.wait_for_order_page()


async def test_a_buyer_pays_an_existing_payment_in_a_widget(visit: Visit) -> None:
    await visit.choose("widget")
    frame = visit.page.frame_locator("iframe[title=Checkout]")
    await expect(frame.get_by_text("Transfer")).to_be_visible()
    await visit.pay()
    await visit.wait_for_order_page()


async def test_a_buyer_pays_in_a_widget_that_creates_the_payment_on_submit(
    visit: Visit,
) -> None:
    await visit.choose("deferred")
    await visit.page.get_by_role("button", name="Pay").click()
    frame = visit.page.frame_locator("iframe[title=Checkout]")
    await expect(frame.get_by_text("Transfer")).to_be_visible()
    await visit.pay()
    await visit.wait_for_order_page()


async def test_a_widget_that_fails_to_load_is_reported_on_the_page(visit: Visit) -> None:
    # The checkout may return to the shop, but the shop may not embed it.
    await visit.api.world.rows(
        "UPDATE merchant SET allowed_origins = '{}', return_url = $1", f"{visit.url}/orders"
    )
    await visit.page.clock.install()  # skips the frame's load timeout
    await visit.choose("widget")
    await expect(visit.page.locator("iframe")).to_be_attached()
    await visit.page.clock.fast_forward(20_000)
    await expect(visit.page.get_by_role("status")).to_contain_text("WIDGET_LOAD_FAILED")
