"""A FastAPI shop that sells one book; see README.md."""

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from uuid import UUID, uuid4

import graded
import orders
from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from payintent_sdk import webhooks
from payintent_sdk.errors import PayintentError, WebhookError
from payintent_sdk.events import UnknownEvent

BODY_BYTES_MAX = 64 * 1024
POLL_EVERY_S = 60
SECRETS = os.environ["PAYINTENT_WEBHOOK_SECRET"].split()  # two secrets during a rotation
IN_REVIEW = "We need to review your payment. Please do not pay again. We will contact you."
#: The order page's message and button label for each status of the payment.
TEXTS = {
    "PENDING": ("Your order is waiting for your payment.", "Continue to payment"),
    "PROCESSING": ("Your payment is being processed.", "Continue to payment"),
    "FAILED": ("Your payment has failed. You have not been charged.", "Pay again"),
    "EXPIRED": ("Your payment expired before it was confirmed.", "Pay again"),
    "CANCELLED": ("Your payment was cancelled. You have not been charged.", "Pay again"),
}


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncGenerator[None]:
    """Poll until the shop stops. Then close the connections to the payment service."""
    polling = asyncio.create_task(poll_forever())
    yield
    polling.cancel()
    await orders.client.close()


async def poll_forever() -> None:
    """Poll when the shop starts, and then once a minute."""
    while True:
        await orders.poll()
        await asyncio.sleep(POLL_EVERY_S)


app = FastAPI(lifespan=lifespan)
if graded.is_enabled():
    app.include_router(graded.routes)


@app.get("/", response_class=HTMLResponse)
async def show_book() -> str:
    """Show the book. Each page view uses a new order ID."""
    return f"""
        <h1>Tides of the Chao Phraya</h1>
        <form method="post" action="/buy/{uuid4()}"><button>Buy for 1590.00 THB</button></form>
    """


@app.post("/buy/{order_id}")
async def buy(order_id: UUID) -> Response:
    """Redirect the buyer to the order's payment. Later attempts also use this route."""
    try:
        return RedirectResponse(await orders.find_next_page(orders.place_order(order_id)), 303)
    except PayintentError as error:
        raise HTTPException(502, "The payment could not be started. Please try again.") from error


@app.get("/orders/{order_id}", response_class=HTMLResponse)
async def show_order(order_id: UUID) -> str:
    """Show the order to the returning buyer. Ignore the query string, which anyone can forge."""
    order = orders.find_order(order_id)
    if order is None:
        raise HTTPException(404, "This order does not exist.")
    text, label = await describe(order)
    button = f'<form method="post" action="/buy/{order.id}"><button>{label}</button></form>'
    return f"<h1>Order {order.id}</h1><p>{text}</p>{button if label else ''}"


async def describe(order: orders.Order) -> tuple[str, str]:
    """Return the page's message about the order, and its button's label ("" for no button)."""
    try:
        order, payment = (order, None) if order.status == "paid" else await orders.refresh(order)
    except PayintentError:
        return "We cannot check your payment at the moment. Please reload this page.", ""
    if order.status == "paid":
        return "Your order is paid.", ""
    if payment is None:
        return TEXTS["PENDING"]
    if payment.failure_reason in orders.REVIEWED:
        return IN_REVIEW, ""
    return TEXTS.get(payment.status, ("We are confirming your payment.", ""))


@app.post("/webhooks", status_code=204)
async def receive_webhook(request: Request) -> None:
    """Verify the signature. Apply the event once, even if it arrives late or twice."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > BODY_BYTES_MAX:
            raise HTTPException(413)
    try:
        event = webhooks.verify(bytes(body), request.headers, SECRETS)
    except WebhookError as error:
        raise HTTPException(401) from error
    if not isinstance(event, UnknownEvent):
        payment = event.data.payment
        orders.settle(payment.id, payment.status, payment.amount, payment.currency)
