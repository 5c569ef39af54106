"""A shop with one book, in FastAPI: see README.md."""

import os
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Annotated
from uuid import UUID, uuid4, uuid5

from fastapi import Cookie, FastAPI, HTTPException, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from payintent_sdk import AsyncClient, webhooks
from payintent_sdk.errors import PayintentError, WebhookError
from payintent_sdk.events import PaymentCompleted

BODY_BYTES_MAX = 64 * 1024
ENDED_UNPAID = {"CANCELLED", "EXPIRED", "FAILED"}
SECRETS = os.environ["PAYINTENT_WEBHOOK_SECRET"].split()  # two during a rotation
client = AsyncClient(os.environ["PAYINTENT_API_KEY"], os.environ["PAYINTENT_URL"])
database = sqlite3.connect("orders.db", isolation_level=None)  # each statement is a transaction
database.execute(
    """
    CREATE TABLE IF NOT EXISTS orders (
        id TEXT PRIMARY KEY, attempt INTEGER, payment_id TEXT UNIQUE, amount TEXT, currency TEXT,
        status TEXT
    )
    """
)


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncGenerator[None]:
    """Close the connections to the payment service at the end."""
    yield
    await client.close()


app = FastAPI(lifespan=lifespan)


@app.get("/", response_class=HTMLResponse)
async def show_book() -> str:
    """Show the book. Each page view has its own cart."""
    return f"""
        <h1>Tides of the Chao Phraya</h1>
        <form method="post" action="/buy/{uuid4()}"><button>Buy for 1590.00 THB</button></form>
    """


@app.post("/buy/{cart}")
async def buy(cart: UUID) -> Response:
    """Redirect the buyer to the cart's payment. A second click leads to the same payment."""
    try:
        checkout_url = await find_checkout(cart)
    except PayintentError as error:
        raise HTTPException(502, "This cannot be paid now. Please try again.") from error
    answer = RedirectResponse(checkout_url, 303)
    answer.set_cookie("order", str(cart), httponly=True, samesite="lax")
    return answer


async def find_checkout(cart: UUID) -> str:
    """Return the checkout URL of the cart's open payment; create a payment if there is none.

    A cancellation on the checkout page causes no event, so the payment's status is read.
    """
    database.execute(
        "INSERT OR IGNORE INTO orders (id, attempt, status) VALUES (?, 1, 'waiting')", (str(cart),)
    )
    find = "SELECT attempt, payment_id FROM orders WHERE id = ?"
    attempt, payment_id = database.execute(find, (str(cart),)).fetchone()
    if payment_id is not None:
        known = await client.payments.get(payment_id)
        if known.status not in ENDED_UNPAID:
            return known.checkout_url or "/order"
        database.execute(  # of two simultaneous clicks, only the first begins the next attempt
            """
            UPDATE orders SET attempt = attempt + 1, payment_id = NULL
             WHERE id = ? AND attempt = ? AND status = 'waiting'
            """,
            (str(cart), attempt),
        )
        attempt, _ = database.execute(find, (str(cart),)).fetchone()
    payment = await client.payments.create(
        amount="1590.00",  # the server sets the price, never the page
        currency="THB",
        payer_uid=f"guest-{cart}",
        metadata={"order_id": str(cart), "product": {"name": "Tides of the Chao Phraya"}},
        idempotency_key=str(uuid5(cart, str(attempt))),
    )
    database.execute(
        "UPDATE orders SET payment_id = ?, amount = ?, currency = ? WHERE id = ? AND attempt = ?",
        (payment.id, payment.amount, payment.currency, str(cart), attempt),
    )
    return payment.checkout_url


@app.post("/webhooks", status_code=204)
async def receive_webhook(request: Request) -> None:
    """Verify the signature, and mark the order as paid, even if its event arrives late or twice."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > BODY_BYTES_MAX:
            raise HTTPException(413)
    try:
        event = webhooks.verify(bytes(body), request.headers, SECRETS)
    except WebhookError as error:
        raise HTTPException(401) from error
    if isinstance(event, PaymentCompleted):
        paid = event.data.payment
        database.execute(
            """
            UPDATE orders SET status = 'paid'
             WHERE payment_id = ? AND amount = ? AND currency = ? AND status = 'waiting'
            """,
            (paid.id, paid.amount, paid.currency),
        )


@app.get("/order", response_class=HTMLResponse)
async def show_order(order: Annotated[str, Cookie()] = "") -> str:
    """Show the buyer's order. Only the webhook marks it as paid, not the buyer's return."""
    row = database.execute("SELECT id, status FROM orders WHERE id = ?", (order,)).fetchone()
    if row is None:
        raise HTTPException(404, "You have no order.")
    return f"<h1>Order {row[0]}</h1><p>Your order is {row[1]}.</p>"
