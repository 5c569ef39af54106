import asyncio
import re
from pathlib import Path
from uuid import UUID, uuid4

import aiohttp
import pytest

from payintent_sandbox import shop as shop_package
from tests.sandbox.shop.shop_setup import API_KEY, Api, Visitor, event, running_shop, signed

pytestmark = pytest.mark.full


async def test_a_purchase_creates_a_payment_and_redirects_to_the_checkout(
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


async def test_each_order_has_its_own_key_and_yen_amounts_have_no_decimals(
    api: Api, visitor: Visitor
) -> None:
    await visitor.buy("kyoto", "2")
    await visitor.buy("tides")
    keys = {headers["Idempotency-Key"] for _, headers, _ in api.requests}
    assert len(keys) == 2
    assert [body["amount"] for _, _, body in api.requests] == ["4800", "1590.00"]


async def test_a_cart_submitted_twice_creates_a_single_order_and_payment(
    api: Api, visitor: Visitor
) -> None:
    cart = str(uuid4())
    responses = await asyncio.gather(visitor.buy(cart=cart), visitor.buy(cart=cart))
    assert {answer.headers["Location"] for answer in responses} == {"https://pay.example/c/cs_1"}
    created = [request for request in api.requests if request[0].startswith("POST")]
    keys = {headers["Idempotency-Key"] for _, headers, _ in created}
    assert len(keys) == 1
    await visitor.buy(cart=cart, quantity="2")
    assert (await visitor.order("A-1002"))["quantity"] == 2


@pytest.mark.parametrize("status", ["CANCELLED", "EXPIRED", "FAILED"])
@pytest.mark.parametrize(
    "receives_event", [False, True], ids=["without its event", "after its event"]
)
async def test_an_order_with_an_unpaid_payment_gets_a_single_new_attempt(
    api: Api, visitor: Visitor, status: str, *, receives_event: bool
) -> None:
    await visitor.buy()
    api.statuses["pay_1"] = status
    event_body = event("pay_1", f"payment.{status.lower()}")
    if receives_event:
        assert await visitor.tell(event_body, signed(event_body)) == 204
        assert (await visitor.order())["status"] == status.lower()
    page = await (await visitor.call("GET", "/orders/A-1001?status=PAID")).text()
    assert ("You have not been charged." in page) == (status != "EXPIRED")
    assert '<form method="post" action="/orders/A-1001/pay"><button type="submit">Pay again' in page
    responses = await asyncio.gather(visitor.pay_again(), visitor.pay_again())
    assert responses[0].headers["Location"] == responses[1].headers["Location"]
    assert responses[0].headers["Location"] != "https://pay.example/c/cs_1"
    again = await visitor.order()
    assert (again["status"], again["payment_id"] == "pay_1") == ("waiting", False)
    assert again["failure_reason"] is None
    assert await visitor.tell(event_body, signed(event_body)) == 204
    assert (await visitor.order())["status"] == "waiting", "a late event of the first attempt"
    assert (await visitor.call("GET", "/orders/A-1002")).status == 404


@pytest.mark.parametrize("status", ["PENDING", "PROCESSING"])
async def test_an_open_payment_can_be_continued(api: Api, visitor: Visitor, status: str) -> None:
    await visitor.buy()
    api.statuses["pay_1"] = status
    page = await (await visitor.call("GET", "/orders/A-1001")).text()
    assert "Continue to payment</button>" in page
    assert (await visitor.pay_again()).headers["Location"] == "https://pay.example/c/cs_1"


@pytest.mark.parametrize("status", ["REFUNDED", "ANOTHER"])
async def test_an_order_that_may_be_paid_is_not_paid_again(
    api: Api, visitor: Visitor, status: str
) -> None:
    cart = str(uuid4())
    await visitor.buy(cart=cart)
    api.statuses["pay_1"] = status
    order_page = f"{visitor.url}/orders/A-1001"
    assert (await visitor.buy(cart=cart)).headers["Location"] == order_page
    assert (await visitor.pay_again()).headers["Location"] == order_page
    page = await (await visitor.call("GET", "/orders/A-1001")).text()
    assert "We are confirming your payment." in page
    assert "<button" not in page
    assert (await visitor.order())["status"] == "waiting"


async def test_a_paid_order_redirects_to_its_page_without_an_api_request(
    api: Api, visitor: Visitor
) -> None:
    cart = str(uuid4())
    await visitor.buy(cart=cart)
    event_body = event("pay_1")
    assert await visitor.tell(event_body, signed(event_body)) == 204
    order_page = f"{visitor.url}/orders/A-1001"
    assert (await visitor.pay_again()).headers["Location"] == order_page
    assert (await visitor.buy(cart=cart)).headers["Location"] == order_page
    page = await (await visitor.call("GET", "/orders/A-1001")).text()
    assert "Thank you!" in page
    assert "<button" not in page
    assert len(api.requests) == 1


async def test_an_amount_mismatch_does_not_allow_another_attempt(
    api: Api, visitor: Visitor
) -> None:
    await visitor.buy()
    api.statuses["pay_1"], api.failure_reason = "FAILED", "AMOUNT_MISMATCH"
    page = await (await visitor.call("GET", "/orders/A-1001")).text()
    assert "Please do not pay again" in page
    assert "<button" not in page
    assert (await visitor.pay_again()).headers["Location"] == f"{visitor.url}/orders/A-1001"


async def test_a_poll_completes_orders_with_lost_webhooks(api: Api, visitor: Visitor) -> None:
    for _ in range(3):
        await visitor.buy()
    api.statuses |= {"pay_1": "PAID", "pay_2": "EXPIRED"}
    api.amount = ("49.90", "USD")
    refusal = {"code": "INTERNAL_ERROR", "message": "no"}
    api.refusals.append((500, refusal, {}))  # the first order fails, and the rest are still polled
    assert (await visitor.call("POST", "/graded/poll")).status == 204
    states = [(await visitor.order(f"A-100{number}"))["status"] for number in (1, 2, 3)]
    assert states == ["waiting", "expired", "waiting"]
    for _ in range(2):
        assert (await visitor.call("POST", "/graded/poll")).status == 204
    graded = await (await visitor.call("GET", "/graded/A-1001")).json()
    assert (graded["status"], graded["handed_out"]) == ("paid", 1)


async def test_the_product_page_works_without_scripts(visitor: Visitor) -> None:
    page = await (await visitor.call("GET", "/")).text()
    assert page.count('<form method="post" action="/buy">') == 4
    assert page.count('name="cart"') == 4
    assert all(currency in page for currency in ("THB", "USD", "JPY", "TWD"))
    assert "<script" not in page
    for cover in re.findall(r'src="([^"]+)"', page):
        assert (await visitor.call("GET", cover)).content_type == "image/svg+xml"


async def test_invalid_purchases_do_not_reach_the_payment_service(
    api: Api, visitor: Visitor
) -> None:
    assert (await visitor.buy("yacht")).status == 404
    for quantity in ("0", "10", "x", "²"):
        assert (await visitor.buy("ledgers", quantity)).status == 422, quantity
    assert api.requests == []


async def test_an_error_from_the_payment_service_is_shown_with_its_code(
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
    assert len(api.requests) == 1, "a refusal is not retried"


async def test_a_payment_blocked_by_fraud_detection_is_shown_with_its_code(
    api: Api, visitor: Visitor
) -> None:
    verdict = {"outcome": "DENY", "code": "COUNTRY_BLOCKED", "message": "blocked"}
    api.refusals.append((200, {"fds": verdict}, {}))
    answer = await visitor.buy()
    assert answer.status == 502
    assert "COUNTRY_BLOCKED" in await answer.text()


async def test_a_503_with_retry_after_is_retried_with_the_same_key(
    api: Api, visitor: Visitor
) -> None:
    busy = {"code": "SERVICE_UNAVAILABLE", "message": "temporarily unavailable"}
    api.refusals.append((503, busy, {"Retry-After": "0"}))
    assert (await visitor.buy()).status == 303
    assert len({headers["Idempotency-Key"] for _, headers, _ in api.requests}) == 1
    assert len(api.requests) == 2


async def test_an_unreachable_service_is_shown_as_an_error_page(free_port: int) -> None:
    async with (
        running_shop(f"http://127.0.0.1:{free_port}/v1") as url,
        aiohttp.ClientSession() as http,
    ):
        answer = await Visitor(http, url).buy()
        assert answer.status == 502
        assert "NO_ANSWER" in await answer.text()


async def test_the_order_page_applies_the_payment_status_and_ignores_its_query(
    api: Api, visitor: Visitor
) -> None:
    cart = str(uuid4())
    await visitor.buy(cart=cart)
    page = await (await visitor.call("GET", "/orders/A-1001?status=PAID")).text()
    assert "We are waiting for your payment." in page
    assert '<a href="/orders/A-1001">Check status</a>' in page
    assert api.requests[1][0] == "GET /v1/payments/pay_1"
    api.status = "PAID"
    assert (await visitor.buy(cart=cart)).headers["Location"] == f"{visitor.url}/orders/A-1001"
    for _ in range(2):
        page = await (await visitor.call("GET", "/orders/A-1001?status=FAILED")).text()
        assert "Thank you!" in page
    graded = await (await visitor.call("GET", "/graded/A-1001")).json()
    assert (graded["status"], graded["handed_out"]) == ("paid", 1)


async def test_the_order_page_reports_that_the_status_cannot_be_checked(
    api: Api, visitor: Visitor
) -> None:
    await visitor.buy()
    api.refusals.append((500, {"code": "INTERNAL_ERROR", "message": "no"}, {}))
    answer = await visitor.call("GET", "/orders/A-1001")
    assert (answer.status, "We cannot check your payment" in await answer.text()) == (200, True)


async def test_an_unknown_page_returns_404(visitor: Visitor) -> None:
    for path in ("/orders/A-9", "/orders/A-9.json", "/covers/yacht.svg", "/nowhere"):
        assert (await visitor.call("GET", path)).status == 404, path


def test_the_shop_does_not_import_the_service() -> None:
    for file in Path(shop_package.__path__[0]).glob("*.py"):
        imports = [
            line for line in file.read_text().splitlines() if re.match(r"\s*(from|import) ", line)
        ]
        assert not [line for line in imports if re.search(r"\bpayintent\b", line)], file.name
