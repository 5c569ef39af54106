"""The shop's pages and its webhook receiver.

The shop has no accounts, so everybody can see every order; a real shop authenticates its buyers.
"""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit
from uuid import UUID, uuid4, uuid5

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from .attempts import Attempts
from .goods import PRODUCTS, QUANTITY_MAX, Product
from .orders import Order, Orders
from .payments import PaymentApi, PaymentApiError, open_http
from .webhook import verify

BODY_BYTES_MAX = 64 * 1024
_FIELDS_MAX = 10
_POLL_EVERY_S = 60
_UNAVAILABLE = 502
_REFUND_REFUSED = {"REFUND_EXCEEDS_REMAINING", "INVALID_PAYMENT_STATE"}
#: The ways in which the browser SDK can open the checkout. The shop has a page for each.
_WAYS = {
    "redirect": "The checkout replaces this page.",
    "popup": "The checkout opens in a window, and this page waits.",
    "widget": "The checkout is on this page, for a payment that already exists.",
    "deferred": "The checkout is on this page; the payment is created when you press the button.",
}

_pages = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "pages"),
    autoescape=True,
    undefined=StrictUndefined,
)
_PAGE_HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": (
        "default-src 'none'; style-src 'unsafe-inline'; img-src 'self' data:; base-uri 'none'; "
        "frame-ancestors 'none'"
    ),
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The URLs of the payment service and the shop, and the merchant's two secrets."""

    api_url: str
    public_url: str
    api_key: str = field(repr=False)
    callback_key: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class _Shop:
    config: Config
    orders: Orders
    payments: PaymentApi
    attempts: Attempts


def make_app(config: Config) -> Starlette:
    """Build the shop's application. Orders are stored in memory."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncGenerator[None]:
        async with open_http() as http:
            orders, payments = Orders(), PaymentApi(http, config.api_url, config.api_key)
            attempts = Attempts(orders, payments, config.public_url)
            app.state.shop = _Shop(config, orders, payments, attempts)
            polling = asyncio.create_task(_poll_forever(attempts))
            yield
            polling.cancel()

    return Starlette(
        routes=[
            Route("/", show_products),
            Route("/covers/{sku}.svg", show_cover),
            Route("/buy", buy, methods=["POST"]),
            Route("/buy.json", buy_json, methods=["POST"]),
            Route("/pay/{way}", show_way),
            Route("/pay.js", show_script),
            Route("/orders", show_orders),
            Route("/orders/{order_id}.json", show_order_json),
            Route("/orders/{order_id}", show_order),
            Route("/orders/{order_id}/pay", pay_again, methods=["POST"]),
            Route("/webhooks", receive_webhook, methods=["POST"]),
            Route("/webhooks.json", show_webhooks),
            Route("/graded", place_graded_order, methods=["POST"]),
            Route("/graded/poll", poll, methods=["POST"]),
            Route("/graded/{order_id}", show_graded_order),
            Route("/graded/{order_id}/refund", refund_graded_order, methods=["POST"]),
            Route("/graded/{order_id}/{change}", refuse_graded_change, methods=["POST"]),
            Route("/healthz", healthz),
        ],
        lifespan=lifespan,
        exception_handlers={HTTPException: _declined, PaymentApiError: _unpaid},
        max_body_size=BODY_BYTES_MAX,
    )


async def _poll_forever(attempts: Attempts) -> None:
    while True:
        await asyncio.sleep(_POLL_EVERY_S)
        await attempts.poll()


async def show_products(_: Request) -> Response:
    """`GET /`: the products, and the ways to open the checkout."""
    goods = PRODUCTS.values()
    choices: dict[str, Any] = {"quantity_max": QUANTITY_MAX, "ways": _WAYS, "cart": uuid4()}
    return _page("products.html", products=goods, **choices)


async def show_cover(request: Request) -> Response:
    """`GET /covers/{sku}.svg`: a product's image."""
    product = _product(request.path_params["sku"])
    text = _pages.get_template("cover.svg").render(product=product)
    return Response(text, media_type="image/svg+xml")


async def buy(request: Request) -> Response:
    """`POST /buy`: create the payment on the shop's server, and redirect to its checkout."""
    _, url = await _bought(request)
    return RedirectResponse(url, 303, {"cache-control": "no-store"})


async def buy_json(request: Request) -> Response:
    """`POST /buy.json`: `buy` for the scripts of our pages. The server sets the price here too."""
    order, url = await _bought(request)
    fields = {"order_id": order.id, "checkoutUrl": url}
    return JSONResponse(fields, 201, {"cache-control": "no-store"})


async def show_way(request: Request) -> Response:
    """`GET /pay/{way}?product=`: a page for each way to open the checkout."""
    way, product = request.path_params["way"], _product(request.query_params.get("product"))
    if way not in _WAYS:
        raise HTTPException(404, "This payment option does not exist.")
    service = _origin(_shop(request).config.api_url)
    answer = _page("pay.html", way=way, says=_WAYS[way], product=product, service=service)
    answer.headers["content-security-policy"] += (
        f"; script-src 'self' {service}; connect-src 'self' {service}; frame-src {service}"
    )
    return answer


async def show_script(_: Request) -> Response:
    """`GET /pay.js`: the script of the `/pay/` pages."""
    script = Path(__file__).parent / "pages" / "pay.js"
    return Response(script.read_bytes(), media_type="text/javascript")


async def show_orders(request: Request) -> Response:
    """`GET /orders`: all orders."""
    return _page("orders.html", orders=_shop(request).orders.newest())


async def show_order(request: Request) -> Response:
    """`GET /orders/{order_id}`: the page that the buyer returns to.

    The query is ignored, because anyone can forge it. The payment is read, and applied as its
    webhook would be.
    """
    order, text, label = await _shop(request).attempts.refresh(_order(request))
    return _page("order.html", order=order, text=text, label=label)


async def pay_again(request: Request) -> Response:
    """`POST /orders/{order_id}/pay`: continue the payment, or begin the next attempt."""
    _, url = await _shop(request).attempts.pay_again(_order(request))
    return RedirectResponse(url, 303, {"cache-control": "no-store"})


async def show_order_json(request: Request) -> Response:
    """`GET /orders/{order_id}.json`: an order, for scripts."""
    return JSONResponse(_order(request).view(), headers={"cache-control": "no-store"})


async def receive_webhook(request: Request) -> Response:
    """`POST /webhooks`: verify the raw bytes before anything in them is parsed."""
    shop = _shop(request)
    body = await request.body()
    if not verify(shop.config.callback_key, request.headers, body, time.time()):
        return Response(status_code=401)
    try:
        shop.orders.receive(request.headers, body)
    except ValueError:
        return Response(status_code=400)
    return Response(status_code=204)


async def show_webhooks(request: Request) -> Response:
    """`GET /webhooks.json?payment_id=`: every verified delivery, with duplicates marked."""
    received = _shop(request).orders.deliveries(request.query_params.get("payment_id"))
    return JSONResponse(
        [delivery.view() for delivery in received], headers={"cache-control": "no-store"}
    )


async def place_graded_order(request: Request) -> Response:
    """`POST /graded`: place an order for `payintent-cli grade`; see docs/integrate/grader.md."""
    cart = _cart((await request.json()).get("cart_id"))
    order, _ = await _shop(request).attempts.buy(cart, next(iter(PRODUCTS.values())), 1)
    return JSONResponse(order.view(), 201)


async def poll(request: Request) -> Response:
    """`POST /graded/poll`: run the scheduled poll now."""
    await _shop(request).attempts.poll()
    return Response(status_code=204)


async def show_graded_order(request: Request) -> Response:
    """`GET /graded/{order_id}`: an order's status, number of deliveries, and refunded amount.

    The refunded amount is read from the service, because operators can also refund, and refunds
    can fail.
    """
    order = _order(request)
    payment = await _shop(request).payments.read(order.payment_id)
    values = {"status": order.state.value, "handed_out": order.handed_out}
    return JSONResponse(values | {"refunded": payment.get("refunded_amount", "0")})


async def refund_graded_order(request: Request) -> Response:
    """`POST /graded/{order_id}/refund`: refund returned goods.

    A second click for the same return uses the same idempotency key, so it does not refund twice.
    """
    order, content = _order(request), await request.json()
    key = uuid5(_cart(content.get("return_id")), order.id)
    try:
        refund = await _shop(request).payments.refund(key, order.payment_id, content["amount"])
    except PaymentApiError as error:
        if error.code not in _REFUND_REFUSED:
            raise
        return JSONResponse({"code": error.code, "message": error.message}, 409)
    return JSONResponse({"refund_id": refund["id"]}, 201)


async def refuse_graded_change(_: Request) -> Response:
    """`POST /graded/{order_id}/{change}`: reject every change of an order."""
    return JSONResponse({"message": "Orders cannot be changed. Place a new order."}, 409)


async def healthz(_: Request) -> Response:
    """`GET /healthz`: answer a liveness probe."""
    return JSONResponse({"status": "ok"})


async def _bought(request: Request) -> tuple[Order, str]:
    """Place the order in a form; return it with the URL of the buyer's next page."""
    form = await request.form(max_files=0, max_fields=_FIELDS_MAX)
    product, quantity = _product(form.get("product")), _quantity(form.get("quantity", "1"))
    return await _shop(request).attempts.buy(_cart(form.get("cart")), product, quantity)


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


async def _declined(request: Request, error: Exception) -> Response:
    refused = cast("HTTPException", error)
    if request.url.path.endswith(".json"):
        return JSONResponse({"message": refused.detail}, refused.status_code)
    return _trouble(refused.status_code, str(refused.status_code), refused.detail)


async def _unpaid(request: Request, error: Exception) -> Response:
    refused = cast("PaymentApiError", error)
    if request.url.path.endswith(".json"):
        return JSONResponse({"code": refused.code, "message": refused.message}, _UNAVAILABLE)
    return _trouble(_UNAVAILABLE, refused.code, refused.message, refused.request_id)


def _trouble(status: int, code: str, message: str, request_id: str = "") -> Response:
    return _page("trouble.html", status=status, code=code, message=message, request_id=request_id)


def _page(name: str, *, status: int = 200, **values: Any) -> Response:
    return HTMLResponse(_pages.get_template(name).render(values), status, _PAGE_HEADERS)


def _shop(request: Request) -> _Shop:
    return cast("_Shop", request.app.state.shop)


def _order(request: Request) -> Order:
    order = _shop(request).orders.find(request.path_params["order_id"])
    if order is None:
        raise HTTPException(404, "This order does not exist.")
    return order


def _cart(text: object) -> UUID:
    try:
        return UUID(str(text))
    except ValueError:
        return uuid4()


def _product(sku: object) -> Product:
    product = PRODUCTS.get(sku) if isinstance(sku, str) else None
    if product is None:
        raise HTTPException(404, "We do not sell this product.")
    return product


def _quantity(text: object) -> int:
    choices = {str(number): number for number in range(1, QUANTITY_MAX + 1)}
    if not isinstance(text, str) or text not in choices:
        raise HTTPException(422, f"The quantity must be a number from 1 to {QUANTITY_MAX}.")
    return choices[text]
