"""The WooCommerce plugin in PHP, with the service and a fake WordPress."""

import asyncio
import fcntl
import html
import json
import os
import re
import signal
import subprocess
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import aiohttp
import pytest
from aiohttp import web

from drills.plugins import AGAIN, WOOCOMMERCE
from drills.processes import Program
from tests.sandbox.shop.shop_setup import SECRET, Visitor, event, signed
from tests.sdks.broken_money import Side
from tests.sdks.test_grader import allow_returns, new_side, run_grader
from tests.support.http_server import clean_up
from tests.support.ports import free_port
from tests.support.timeouts import wait_until
from tests.support.tools import tool
from tests.support.workers import working
from tests.support.world import Api

pytestmark = pytest.mark.full

_LOCK_NAME_CHARS_MAX = 64  # in MySQL; MariaDB allows more
_WORKERS = "4"  # each worker of PHP's server handles one request at a time


@dataclass(frozen=True, kw_only=True)
class ShopSide(Side):
    """The test merchant and the port of a shop. The shop's origin is registered."""

    port: int


@pytest.fixture
async def side(api: Api) -> ShopSide:
    side, port = await new_side(api), free_port()
    await allow_returns(api, f"http://127.0.0.1:{port}")
    return ShopSide(base_url=side.base_url, key=side.key, port=port)


@asynccontextmanager
async def running_plugin(folder: Path, side: ShopSide, **stub: str) -> AsyncGenerator[str]:
    """Serve the shop of the fake WordPress; yield its URL."""
    url = f"http://127.0.0.1:{side.port}"
    (folder / "orders").mkdir(exist_ok=True)
    environment = {
        "PAYINTENT_URL": side.base_url,
        "PAYINTENT_API_KEY": side.key,
        "PAYINTENT_WEBHOOK_SECRET": SECRET,
        "STUB_FOLDER": str(folder / "orders"),
        "PHP_CLI_SERVER_WORKERS": _WORKERS,
        **stub,
    }
    router = str(WOOCOMMERCE / "stub" / "router.php")
    command = [tool("php"), "-d", "display_errors=stderr", "-S", f"127.0.0.1:{side.port}", router]
    shop = Program("woocommerce", command, environment, folder, f"{url}/healthz")
    await shop.start()
    try:
        yield url
    finally:
        if shop.process is not None:
            os.killpg(shop.process.pid, signal.SIGTERM)  # PHP does not stop its workers
        await shop.stop()


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as http:
        yield http


async def click(
    http: aiohttp.ClientSession, shop: str, cart: str, **buyer: int
) -> tuple[int, dict[str, Any]]:
    async with http.post(f"{shop}/graded", json={"cart_id": cart, **buyer}) as answer:
        return answer.status, await answer.json()


async def read(http: aiohttp.ClientSession, side: Side, order: dict[str, Any]) -> dict[str, Any]:
    headers = {"Authorization": f"Bearer {side.key}"}
    url = f"{side.base_url}/v1/payments/{order['payment_id']}"
    async with http.get(url, headers=headers) as answer:
        return await answer.json()


async def test_an_order_can_be_paid_again_after_its_payment_ended_unpaid(
    api: Api, side: ShopSide, tmp_path: Path
) -> None:
    async with working(api.world.service), running_plugin(tmp_path, side) as shop:
        urls = (f"{shop}/?wc-api=payintent", f"{shop}/graded", SECRET)
        options = ("--key", side.key, "--only", AGAIN)
        status, report, error = await run_grader(*urls, *options, PAYINTENT_URL=side.base_url)
    assert (status, error, report[-16:]) == (0, "", "10 of 10 passed\n"), report
    assert "without a return_url" not in report


async def test_a_declined_buyer_returns_to_a_page_that_offers_to_pay_again(
    side: ShopSide, tmp_path: Path, http: aiohttp.ClientSession
) -> None:
    async with running_plugin(tmp_path, side) as shop:
        _, order = await click(http, shop, str(uuid4()))
        first = await read(http, side, order)
        assert first["return_url"].startswith(f"{shop}/received/1?key=")
        assert first["cancel_url"].startswith(f"{shop}/order-pay/1?pay_for_order=true&key=")
        assert "Your order is waiting for your payment." in await page(http, first)
        await call_api(http, side, "POST", f"/test/payments/{first['id']}/decline")
        text = await page(http, first)
        assert "Your payment has failed. You have not been charged." in text
        [pay_page, label] = re.findall(r'href="([^"]+)">([^<]+)<', text)[0]
        assert (html.unescape(pay_page), label) == (first["cancel_url"], "Pay again")
        urls = await asyncio.gather(*(pay(http, first["cancel_url"]) for _ in range(2)))
        assert len({first["checkout_url"], *urls}) == 2
        [second, *_] = (await call_api(http, side, "GET", "/payments?limit=100"))["data"]
        await call_api(http, side, "POST", f"/test/payments/{second['id']}/pay")
        assert await pay(http, first["cancel_url"]) == second["return_url"]
        assert await page(http, second) == "", "WooCommerce itself confirms a paid order"
        async with http.get(f"{shop}/graded/1") as answer:
            assert await answer.json() == {"status": "paid", "handed_out": 1}, "without a webhook"


async def test_a_payment_refused_by_the_service_is_explained_in_the_log(
    api: Api, side: ShopSide, tmp_path: Path, http: aiohttp.ClientSession
) -> None:
    await allow_returns(api, "https://another.example")
    async with running_plugin(tmp_path, side) as shop:
        assert (await click(http, shop, str(uuid4())))[0] == 502
    log = (tmp_path / "woocommerce.log").read_text()
    assert "payintent: The payment service responded 400: return_url must use one of" in log
    assert side.key not in log


async def test_the_plugin_declares_the_features_of_woocommerce_that_it_supports(
    side: ShopSide, tmp_path: Path, http: aiohttp.ClientSession
) -> None:
    async with running_plugin(tmp_path, side) as shop, http.get(f"{shop}/features") as answer:
        assert await answer.json() == {"custom_order_tables": True, "cart_checkout_blocks": False}


@pytest.mark.parametrize("path", [None, "/another-service"])
async def test_a_wrong_url_of_the_service_is_explained_in_the_log(
    side: ShopSide, tmp_path: Path, http: aiohttp.ClientSession, path: str | None
) -> None:
    wrong_url = f"http://127.0.0.1:{free_port()}" if path is None else side.base_url + path
    async with running_plugin(tmp_path, replace(side, base_url=wrong_url)) as shop:
        assert (await click(http, shop, str(uuid4())))[0] == 502
    log = (tmp_path / "woocommerce.log").read_text()
    reason = "did not respond: Connection refused" if path is None else "responded 404: "
    assert f"payintent: The payment service {reason}" in log
    assert side.key not in log


async def test_a_proxys_404_does_not_mean_that_a_payment_does_not_exist(
    side: ShopSide, tmp_path: Path, http: aiohttp.ClientSession
) -> None:
    cart, methods = str(uuid4()), list[str]()

    async def answer(request: web.Request) -> web.Response:
        methods.append(request.method)
        return web.Response(status=404, text="<h1>Not found</h1>", content_type="text/html")

    async with running_plugin(tmp_path, side) as shop:
        assert (await click(http, shop, cart))[0] == 201
    async with (
        serving(answer) as proxy,
        running_plugin(tmp_path, replace(side, base_url=proxy)) as shop,
    ):
        assert (await click(http, shop, cart))[0] == 502
    assert methods == ["GET"], "a second payment could be a duplicate"


@asynccontextmanager
async def serving(
    answer: Callable[[web.Request], Awaitable[web.Response]],
) -> AsyncGenerator[str]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await clean_up(runner)


async def test_a_return_page_does_not_complete_an_order_that_a_webhook_is_completing(
    side: ShopSide, tmp_path: Path, http: aiohttp.ClientSession
) -> None:
    async with running_plugin(tmp_path, side) as shop:
        _, order = await click(http, shop, str(uuid4()))
        payment = await read(http, side, order)
        await call_api(http, side, "POST", f"/test/payments/{payment['id']}/pay")
        orders = tmp_path / "orders"
        [path] = orders.glob("payintent_*_1.lock")
        with path.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # the webhook has the order's lock
            returning = asyncio.create_task(page(http, payment))
            waits = path.with_suffix(".waits")
            await wait_until(waits.exists, "the page has read the unpaid order")
            stored = json.loads((orders / "1.json").read_text())
            stored |= {"status": "paid", "transaction_id": payment["id"]}
            (orders / "1.json").write_text(json.dumps(stored))
            (orders / "1.handed_out").write_text(".")
        assert await returning == "", "WooCommerce itself confirms a paid order"
        async with http.get(f"{shop}/graded/1") as answer:
            assert await answer.json() == {"status": "paid", "handed_out": 1}


async def test_shops_on_one_database_server_do_not_share_locks(
    side: ShopSide, tmp_path: Path, http: aiohttp.ClientSession
) -> None:
    locks: set[str] = set()
    for database in ("shop_a", "shop_b"):
        folder = tmp_path / database
        folder.mkdir()
        async with running_plugin(folder, side, STUB_DATABASE=database) as shop:
            await click(http, shop, str(uuid4()))
        [path] = (folder / "orders").glob("payintent_*.lock")
        assert len(path.stem) <= _LOCK_NAME_CHARS_MAX
        locks.add(path.name)
    assert len(locks) == 2


def test_deleting_the_plugin_deletes_its_settings() -> None:
    script = """
        function delete_option(string $name): void { echo $name; }
        if ($argc > 2) { define('WP_UNINSTALL_PLUGIN', 'payintent/payintent.php'); }
        require $argv[1];
    """
    command = [tool("php"), "-r", script, str(WOOCOMMERCE / "payintent" / "uninstall.php")]
    outputs = [
        subprocess.run([*command, *argument], capture_output=True, check=True).stdout
        for argument in ([], ["delete"])
    ]
    assert outputs == [b"", b"woocommerce_payintent_settings"]


async def page(http: aiohttp.ClientSession, payment: dict[str, Any]) -> str:
    """Open the return page with status=PAID, regardless of the real status."""
    url = f"{payment['return_url']}&payment_id={payment['id']}&status=PAID"
    async with http.get(url) as answer:
        assert answer.ok, await answer.text()
        return await answer.text()


async def pay(http: aiohttp.ClientSession, url: str) -> str:
    """Submit the page that pays an order; return the URL of the redirect."""
    async with http.post(url, allow_redirects=False) as answer:
        assert answer.status == 303, await answer.text()
        return answer.headers["Location"]


async def call_api(http: aiohttp.ClientSession, side: Side, method: str, path: str) -> Any:
    headers = {"Authorization": f"Bearer {side.key}"}
    async with http.request(method, f"{side.base_url}/v1{path}", headers=headers) as answer:
        assert answer.ok, await answer.text()
        return await answer.json()


async def test_a_guest_who_signs_in_between_two_clicks_gets_the_same_payment(
    side: ShopSide, tmp_path: Path, http: aiohttp.ClientSession
) -> None:
    cart = str(uuid4())
    async with running_plugin(tmp_path, side) as shop:
        status, guest_order = await click(http, shop, cart)
        assert status == 201
        assert await click(http, shop, cart, customer_id=7) == (201, guest_order)
    assert (await read(http, side, guest_order))["payer_uid"] == "guest-1"


async def test_a_guest_who_signs_in_after_a_lost_response_gets_the_existing_payment(
    side: ShopSide, tmp_path: Path, http: aiohttp.ClientSession
) -> None:
    cart = str(uuid4())
    async with (
        lose_first_response(http, side) as (lossy, created),
        running_plugin(tmp_path, lossy) as shop,
    ):
        assert (await click(http, shop, cart))[0] == 502
        status, order = await click(http, shop, cart, customer_id=7)
    assert (status, [order["payment_id"]]) == (201, list(dict.fromkeys(created)))


@asynccontextmanager
async def lose_first_response(
    http: aiohttp.ClientSession, side: ShopSide
) -> AsyncGenerator[tuple[ShopSide, list[str]]]:
    """Relay calls to the service, but drop the first response; yield the created payments' ids."""
    created = list[str]()

    async def relay(request: web.Request) -> web.Response:
        headers = {
            name: request.headers[name]
            for name in ("Authorization", "Idempotency-Key", "Content-Type")
            if name in request.headers
        }
        url = f"{side.base_url}{request.path}"
        async with http.request(
            request.method, url, headers=headers, data=await request.read()
        ) as answer:
            body = await answer.read()
            if request.method == "POST":
                created.append((await answer.json())["id"])
            if len(created) == 1:
                created.append(created[0])
                return web.Response(status=504)
            return web.Response(body=body, status=answer.status)

    async with serving(relay) as url:
        yield replace(side, base_url=url), created


@pytest.mark.parametrize(
    ("currency", "total", "amount"),
    [
        ("JPY", "2000.00", "2000"),  # two decimals in the shop, none in the currency
        ("JPY", "1999.50", "2000"),  # an amount that yen cannot represent
        ("JPY", "2000", "2000"),
        ("THB", "50", "50.00"),  # no decimals in the shop, two in the currency
        ("TWD", "1200", "1200.00"),
    ],
)
async def test_amounts_have_the_decimals_of_their_currency_whatever_the_shop_uses(
    side: ShopSide,
    tmp_path: Path,
    http: aiohttp.ClientSession,
    currency: str,
    total: str,
    amount: str,
) -> None:
    stub = {"STUB_CURRENCY": currency, "STUB_AMOUNT": total}
    async with running_plugin(tmp_path, side, **stub) as shop:
        status, order = await click(http, shop, str(uuid4()))
        assert status == 201
        assert (await read(http, side, order))["amount"] == amount
        body = event(order["payment_id"], amount=amount, currency=currency)
        visitor = Visitor(http, f"{shop}/?wc-api=payintent#")
        assert await visitor.tell(body, signed(body)) == 204
        async with http.get(f"{shop}/graded/{order['order_id']}") as answer:
            assert await answer.json() == {"status": "paid", "handed_out": 1}


async def test_concurrent_clicks_create_one_payment(
    side: ShopSide, tmp_path: Path, http: aiohttp.ClientSession
) -> None:
    cart = str(uuid4())
    async with running_plugin(tmp_path, side) as shop:
        clicks = await asyncio.gather(*(click(http, shop, cart) for _ in range(4)))
    assert [status for status, _ in clicks] == [201] * 4
    assert len({order["payment_id"] for _, order in clicks}) == 1
