"""Each shop in `examples/` runs as its README describes, and passes all grader checks."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from drills.examples import SHOPS, Example, Place, copy
from drills.processes import Program
from payintent.runtime.settings import Settings
from tests.e2e.merchant import Browser
from tests.sandbox.shop.shop_setup import SECRET
from tests.sdks.broken_money import Side
from tests.sdks.test_grader import allow_returns, new_side, run_grader
from tests.support.ports import free_port
from tests.support.workers import working
from tests.support.world import Api
from tools.openapi.pack_typescript import pack

pytestmark = pytest.mark.full


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """Make the workers poll more often, because the checks wait for each refund."""
    return settings.model_copy(update={"refund_every_s": 0.05, "inquire_every_s": 0.1})


@asynccontextmanager
async def running_example(example: Example, folder: Path, side: Side) -> AsyncGenerator[str]:
    """Type-check a shop, and start it as described in its README; yield its URL."""
    port = free_port()
    secrets = {
        "PAYINTENT_URL": side.base_url,
        "PAYINTENT_API_KEY": side.key,
        "PAYINTENT_WEBHOOK_SECRET": SECRET,
        "SHOP_URL": f"http://127.0.0.1:{port}",
        "SHOP_GRADED": "1",
    }
    library = await asyncio.to_thread(pack, folder / "packed")
    target = await asyncio.to_thread(copy, example.name, folder, library)
    place = Place(example, target, port, secrets)
    for command in filter(None, (example.check, example.prepare)):
        await asyncio.to_thread(place.run, command)
    words = place.words(example.start)
    shop = Program(example.name, words, place.environment(), folder, f"{place.url}/", place.folder)
    await shop.start()
    try:
        yield place.url
    except AssertionError:
        print(shop.log.read_text(errors="replace")[-4_000:])
        raise
    finally:
        await shop.stop()


@dataclass(frozen=True)
class Buyer:
    """A buyer who does not use the checkout."""

    http: aiohttp.ClientSession
    side: Side
    shop: str

    async def page(self, path: str) -> Browser:
        browser = Browser(self.http)
        await browser.open(f"{self.shop}{path}")
        return browser

    async def click(self, browser: Browser) -> str:
        """Submit the only form of a page; return the URL of the redirect."""
        [form] = browser.forms
        url = f"{self.shop}{form.action}"
        async with self.http.post(url, data=form.fields, allow_redirects=False) as answer:
            assert answer.status == 303, await answer.text()
            return answer.headers["Location"]

    async def call(self, method: str, path: str) -> Any:
        headers = {"Authorization": f"Bearer {self.side.key}"}
        url = f"{self.side.base_url}/v1{path}"
        async with self.http.request(method, url, headers=headers) as answer:
            assert answer.ok, await answer.text()
            return await answer.json()

    async def payments(self) -> list[dict[str, Any]]:
        return (await self.call("GET", "/payments?limit=100"))["data"]


async def check_attempt_after_decline(buyer: Buyer) -> None:
    before = len(await buyer.payments())
    book_page = await buyer.page("/")
    first_checkout = await buyer.click(book_page)
    first = (await buyer.payments())[0]
    order = book_page.forms[0].action.replace("/buy/", "/orders/")
    assert {first["return_url"], first["cancel_url"]} == {f"{buyer.shop}{order}"}
    await buyer.call("POST", f"/test/payments/{first['id']}/decline")

    return_page = await buyer.page(f"{order}?payment_id={first['id']}&status=PAID")
    assert "Your payment has failed. You have not been charged." in return_page.text
    assert return_page.forms[0].label.strip() == "Pay again"
    checkouts = await asyncio.gather(buyer.click(return_page), buyer.click(return_page))
    assert len({first_checkout, *checkouts}) == 2
    second = (await buyer.payments())[0]
    assert second["checkout_url"] in checkouts
    assert second["metadata"]["order_id"] == first["metadata"]["order_id"]

    await buyer.call("POST", f"/test/payments/{second['id']}/pay")
    assert await buyer.click(book_page) == order, "the order is paid although its webhook was lost"
    paid_page = await buyer.page(f"{order}?payment_id={second['id']}&status=PROCESSING")
    assert "Your order is paid." in paid_page.text
    assert paid_page.forms == []
    assert await buyer.click(book_page) == order
    assert len(await buyer.payments()) == before + 2, "a paid order does not get another payment"


async def check_poll_after_lost_webhook(buyer: Buyer) -> None:
    book_page = await buyer.page("/")
    await buyer.click(book_page)
    [payment, *_] = await buyer.payments()
    await buyer.call("POST", f"/test/payments/{payment['id']}/pay")
    url = f"{buyer.shop}{book_page.forms[0].action.replace('/buy/', '/graded/')}"
    async with buyer.http.get(url) as answer:
        assert (await answer.json())["status"] == "waiting"
    for _ in range(2):
        async with buyer.http.post(f"{buyer.shop}/graded/poll") as answer:
            assert answer.ok
    async with buyer.http.get(url) as answer:
        order = await answer.json()
    assert (order["status"], order["handed_out"]) == ("paid", 1), "the poll has found the payment"


@pytest.mark.parametrize("example", SHOPS, ids=lambda example: example.name)
async def test_an_example_passes_every_check_and_accepts_a_new_attempt_after_a_decline(
    api: Api, tmp_path: Path, example: Example
) -> None:
    side = await new_side(api)
    async with (
        working(api.world.service),
        running_example(example, tmp_path, side) as shop,
        aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as http,
    ):
        await allow_returns(api, shop)
        await check_attempt_after_decline(Buyer(http, side, shop))
        await check_poll_after_lost_webhook(Buyer(http, side, shop))
        urls = (f"{shop}/webhooks", f"{shop}/graded", SECRET)
        status, report, error = await run_grader(
            *urls, "--key", side.key, PAYINTENT_URL=side.base_url
        )
        assert (status, error) == (0, ""), report
        assert "without a return_url" not in report
