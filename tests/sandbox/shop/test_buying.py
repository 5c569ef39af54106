import asyncio
import re
from pathlib import Path
from uuid import UUID, uuid4

import aiohttp
import pytest

from payintent_sandbox import shop as shop_package
from tests.sandbox.shop.running import API_KEY, Api, Visitor, event, running_shop, signed

pytestmark = pytest.mark.full


async def test_buying_creates_the_payment_on_the_server_and_sends_the_buyer_to_the_checkout(
    api: Api, visitor: Visitor
) -> None:
    answer = await visitor.buy("ledgers", "3")
    assert (answer.status, answer.headers["Location"]) == (303, "https://pay.example/c/cs_1")
    [(route, headers, body)] = api.requests
    assert route == "POST /v1/payments"
    assert headers["Authorization"] == f"Bearer {API_KEY}"
    assert UUID(headers["Idempotency-Key"])
    assert (body["amount"], body["currency"], body["payer_uid"]) == (
        "149.70",
        "USD",
        "guest-A-1001",
    )
    assert body["metadata"]["order_id"] == "A-1001"
    assert body["metadata"]["product"]["quantity"] == 3
    order = await visitor.order()
    assert (order["status"], order["payment_id"]) == ("waiting", "pay_1")


async def test_every_order_has_a_key_of_its_own_and_yen_have_no_decimals(
    api: Api, visitor: Visitor
) -> None:
    await visitor.buy("kyoto", "2")
    await visitor.buy("tides")
    keys = {headers["Idempotency-Key"] for _, headers, _ in api.requests}
    assert len(keys) == 2
    assert [body["amount"] for _, _, body in api.requests] == ["4800", "1590.00"]


async def test_a_cart_that_is_bought_twice_has_one_order_until_that_has_ended(
    api: Api, visitor: Visitor
) -> None:
    cart = str(uuid4())
    both = await asyncio.gather(visitor.buy(cart=cart), visitor.buy(cart=cart))
    assert {answer.headers["Location"] for answer in both} == {"https://pay.example/c/cs_1"}
    [(_, first, body), (_, second, again)] = api.requests
    assert (first["Idempotency-Key"], body) == (second["Idempotency-Key"], again)
    await visitor.buy(cart=cart, quantity="2")
    assert (await visitor.order("A-1002"))["quantity"] == 2
    told = event("pay_1", "payment.failed")
    assert await visitor.tell(told, signed(told)) == 204
    await visitor.buy(cart=cart)
    assert (await visitor.order("A-1003"))["payment_id"] == "pay_4"
    assert (await visitor.order("A-1001"))["status"] == "failed"


@pytest.mark.parametrize("status", ["CANCELLED", "EXPIRED", "FAILED"])
async def test_a_cart_whose_payment_has_ended_unpaid_gets_one_new_payment_without_any_event(
    api: Api, visitor: Visitor, status: str
) -> None:
    cart = str(uuid4())
    await visitor.buy(cart=cart)
    api.ended["pay_1"] = status
    both = await asyncio.gather(visitor.buy(cart=cart), visitor.buy(cart=cart))
    assert len({answer.headers["Location"] for answer in both}) == 1
    assert both[0].headers["Location"] != "https://pay.example/c/cs_1"
    assert (await visitor.order("A-1001"))["status"] == status.lower()
    assert (await visitor.order("A-1002"))["status"] == "waiting"


@pytest.mark.parametrize("status", ["PENDING", "PROCESSING", "PAID", "REFUNDED", "ANOTHER"])
async def test_a_payment_that_may_still_bring_money_is_not_replaced(
    api: Api, visitor: Visitor, status: str
) -> None:
    cart = str(uuid4())
    await visitor.buy(cart=cart)
    api.ended["pay_1"] = status
    assert (await visitor.buy(cart=cart)).headers["Location"] == "https://pay.example/c/cs_1"
    assert (await visitor.order("A-1001"))["status"] == "waiting"


async def test_the_product_page_offers_forms_that_work_without_script(visitor: Visitor) -> None:
    page = await (await visitor.call("GET", "/")).text()
    assert page.count('<form method="post" action="/buy">') == 4
    assert page.count('name="cart"') == 4
    assert all(currency in page for currency in ("THB", "USD", "JPY", "TWD"))
    assert "<script" not in page
    for cover in re.findall(r'src="([^"]+)"', page):
        assert (await visitor.call("GET", cover)).content_type == "image/svg+xml"


async def test_what_is_not_for_sale_never_reaches_the_payment_service(
    api: Api, visitor: Visitor
) -> None:
    assert (await visitor.buy("yacht")).status == 404
    for quantity in ("0", "10", "x", "²"):
        assert (await visitor.buy("ledgers", quantity)).status == 422, quantity
    assert api.requests == []


async def test_a_refusal_of_the_payment_service_is_a_friendly_page_with_its_code(
    api: Api, visitor: Visitor
) -> None:
    refusal = {"code": "UNSUPPORTED_CURRENCY", "message": "no <b>method</b>"}
    api.refusals.append((422, refusal, {"X-Request-Id": "req-17"}))
    answer = await visitor.buy()
    page = await answer.text()
    assert answer.status == 502
    assert "UNSUPPORTED_CURRENCY" in page
    assert "req-17" in page
    assert "no &lt;b&gt;method" in page
    assert API_KEY not in page
    assert len(api.requests) == 1, "a refusal is not asked again"


async def test_a_payment_blocked_by_fraud_detection_is_told_by_its_code(
    api: Api, visitor: Visitor
) -> None:
    verdict = {"outcome": "DENY", "code": "COUNTRY_BLOCKED", "message": "blocked"}
    api.refusals.append((200, {"fds": verdict}, {}))
    answer = await visitor.buy()
    assert answer.status == 502
    assert "COUNTRY_BLOCKED" in await answer.text()


async def test_a_service_that_says_when_to_come_back_is_asked_again_under_the_same_key(
    api: Api, visitor: Visitor
) -> None:
    busy = {"code": "SERVICE_UNAVAILABLE", "message": "temporarily unavailable"}
    api.refusals.append((503, busy, {"Retry-After": "0"}))
    assert (await visitor.buy()).status == 303
    assert len({headers["Idempotency-Key"] for _, headers, _ in api.requests}) == 1
    assert len(api.requests) == 2


async def test_a_service_that_does_not_answer_is_a_friendly_page(free_port: int) -> None:
    async with (
        running_shop(f"http://127.0.0.1:{free_port}/v1") as url,
        aiohttp.ClientSession() as http,
    ):
        answer = await Visitor(http, url).buy()
        assert answer.status == 502
        assert "NO_ANSWER" in await answer.text()


async def test_check_status_asks_the_payment_service_and_the_goods_stay_here(
    api: Api, visitor: Visitor
) -> None:
    await visitor.buy()
    api.status = "CANCELLED"
    page = await (await visitor.call("GET", "/orders/A-1001")).text()
    assert '<a href="/orders/A-1001?check=now">Check status</a>' in page
    assert len(api.requests) == 1, "looking at the page asks nobody"
    page = await (await visitor.call("GET", "/orders/A-1001?check=now")).text()
    assert "<dd>CANCELLED</dd>" in page
    assert api.requests[1][0] == "GET /v1/payments/pay_1"
    assert (await visitor.order())["status"] == "waiting"


async def test_an_unknown_page_is_404(visitor: Visitor) -> None:
    for path in ("/orders/A-9", "/orders/A-9.json", "/covers/yacht.svg", "/nowhere"):
        assert (await visitor.call("GET", path)).status == 404, path


def test_the_shop_knows_nothing_of_the_service() -> None:
    for file in Path(shop_package.__path__[0]).glob("*.py"):
        imports = [
            line for line in file.read_text().splitlines() if re.match(r"\s*(from|import) ", line)
        ]
        assert not [line for line in imports if re.search(r"\bpayintent\b", line)], file.name
