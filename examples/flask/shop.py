"""A shop with one book, in Flask: see README.md."""

import os
import sqlite3
from uuid import UUID, uuid4, uuid5

from flask import Flask, abort, redirect, request
from payintent_sdk import Client, webhooks
from payintent_sdk.errors import PayintentError, WebhookError
from payintent_sdk.events import PaymentCompleted
from werkzeug.wrappers import Response

ENDED_UNPAID = {"CANCELLED", "EXPIRED", "FAILED"}
SECRETS = os.environ["PAYINTENT_WEBHOOK_SECRET"].split()  # two during a rotation
client = Client(os.environ["PAYINTENT_API_KEY"], os.environ["PAYINTENT_URL"])
app = Flask(__name__)
app.config["MAX_CONTENT_LENGTH"] = 64 * 1024


def database() -> sqlite3.Connection:
    """Open the shop's database; each statement is a transaction."""
    return sqlite3.connect("orders.db", isolation_level=None)


database().execute(
    """
    CREATE TABLE IF NOT EXISTS orders (
        id TEXT PRIMARY KEY, attempt INTEGER, payment_id TEXT UNIQUE, amount TEXT, currency TEXT,
        status TEXT
    )
    """
)


@app.get("/")
def show_book() -> str:
    """Show the book. Each page view has its own cart."""
    return f"""
        <h1>Tides of the Chao Phraya</h1>
        <form method="post" action="/buy/{uuid4()}"><button>Buy for 1590.00 THB</button></form>
    """


@app.post("/buy/<uuid:cart>")
def buy(cart: UUID) -> Response:
    """Redirect the buyer to the cart's payment. A second click leads to the same payment."""
    try:
        checkout_url = find_checkout(cart)
    except PayintentError:
        abort(502, "This cannot be paid now. Please try again.")
    answer = redirect(checkout_url, 303)
    answer.set_cookie("order", str(cart), httponly=True, samesite="Lax")
    return answer


def find_checkout(cart: UUID) -> str:
    """Return the checkout URL of the cart's open payment; create a payment if there is none.

    A cancellation on the checkout page causes no event, so the payment's status is read.
    """
    connection = database()
    connection.execute(
        "INSERT OR IGNORE INTO orders (id, attempt, status) VALUES (?, 1, 'waiting')", (str(cart),)
    )
    find = "SELECT attempt, payment_id FROM orders WHERE id = ?"
    attempt, payment_id = connection.execute(find, (str(cart),)).fetchone()
    if payment_id is not None:
        known = client.payments.get(payment_id)
        if known.status not in ENDED_UNPAID:
            return known.checkout_url or "/order"
        connection.execute(  # of two simultaneous clicks, only the first begins the next attempt
            """
            UPDATE orders SET attempt = attempt + 1, payment_id = NULL
             WHERE id = ? AND attempt = ? AND status = 'waiting'
            """,
            (str(cart), attempt),
        )
        attempt, _ = connection.execute(find, (str(cart),)).fetchone()
    payment = client.payments.create(
        amount="1590.00",  # the server sets the price, never the page
        currency="THB",
        payer_uid=f"guest-{cart}",
        metadata={"order_id": str(cart), "product": {"name": "Tides of the Chao Phraya"}},
        idempotency_key=str(uuid5(cart, str(attempt))),
    )
    connection.execute(
        "UPDATE orders SET payment_id = ?, amount = ?, currency = ? WHERE id = ? AND attempt = ?",
        (payment.id, payment.amount, payment.currency, str(cart), attempt),
    )
    return payment.checkout_url


@app.post("/webhooks")
def receive_webhook() -> tuple[str, int]:
    """Verify the signature, and mark the order as paid, even if its event arrives late or twice."""
    try:
        event = webhooks.verify(request.get_data(), dict(request.headers), SECRETS)
    except WebhookError:
        abort(401)
    if isinstance(event, PaymentCompleted):
        paid = event.data.payment
        database().execute(
            """
            UPDATE orders SET status = 'paid'
             WHERE payment_id = ? AND amount = ? AND currency = ? AND status = 'waiting'
            """,
            (paid.id, paid.amount, paid.currency),
        )
    return "", 204


@app.get("/order")
def show_order() -> str:
    """Show the buyer's order. Only the webhook marks it as paid, not the buyer's return."""
    find = "SELECT id, status FROM orders WHERE id = ?"
    row = database().execute(find, (request.cookies.get("order", ""),)).fetchone()
    if row is None:
        abort(404, "You have no order.")
    return f"<h1>Order {row[0]}</h1><p>Your order is {row[1]}.</p>"
