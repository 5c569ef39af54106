"""A shop with one book, in Flask: see README.md."""

import os
from uuid import UUID, uuid4

import graded
import orders
from flask import Flask, abort, redirect, request
from payintent_sdk import webhooks
from payintent_sdk.errors import PayintentError, WebhookError
from payintent_sdk.events import UnknownEvent
from werkzeug.wrappers import Response

IN_REVIEW = "Your payment needs a review. Please do not pay again: we will contact you."
#: What the order page says for each status of the payment, and the label of its button.
TEXTS = {
    "PENDING": ("Your order is waiting for your payment.", "Continue to payment"),
    "PROCESSING": ("Your payment is being processed.", "Continue to payment"),
    "FAILED": ("Your payment has failed. You have not been charged.", "Pay again"),
    "EXPIRED": ("Your payment has expired before it was confirmed.", "Pay again"),
    "CANCELLED": ("Your payment was cancelled. You have not been charged.", "Pay again"),
}
SECRETS = os.environ["PAYINTENT_WEBHOOK_SECRET"].split()  # two during a rotation
app = Flask(__name__)
app.config["MAX_CONTENT_LENGTH"] = 64 * 1024
app.cli.command("poll")(orders.poll)
if graded.is_enabled():
    app.register_blueprint(graded.routes)


@app.get("/")
def show_book() -> str:
    """Show the book. Each page view has its own order."""
    return f"""
        <h1>Tides of the Chao Phraya</h1>
        <form method="post" action="/buy/{uuid4()}"><button>Buy for 1590.00 THB</button></form>
    """


@app.post("/buy/<uuid:order_id>")
def buy(order_id: UUID) -> Response:
    """Redirect the buyer to the order's payment: the first time, and to pay again."""
    try:
        return redirect(orders.find_next_page(orders.place_order(order_id)), 303)
    except PayintentError:
        abort(502, "This cannot be paid now. Please try again.")


@app.get("/orders/<uuid:order_id>")
def show_order(order_id: UUID) -> str:
    """Show the order to the buyer who returns. Ignore the query: anyone can write it."""
    order = orders.find_order(order_id)
    if order is None:
        abort(404, "We know no such order.")
    text, label = describe(order)
    button = f'<form method="post" action="/buy/{order.id}"><button>{label}</button></form>'
    return f"<h1>Order {order.id}</h1><p>{text}</p>{button if label else ''}"


def describe(order: orders.Order) -> tuple[str, str]:
    """Return what the page says about the order, and the label of its button, if any."""
    try:
        order, payment = (order, None) if order.status == "paid" else orders.refresh(order)
    except PayintentError:
        return "We cannot read your payment now. Please reload this page.", ""
    if order.status == "paid":
        return "Your order is paid.", ""
    if payment is None:
        return TEXTS["PENDING"]
    if payment.failure_reason in orders.REVIEWED:
        return IN_REVIEW, ""
    return TEXTS.get(payment.status, ("We are confirming your payment.", ""))


@app.post("/webhooks")
def receive_webhook() -> tuple[str, int]:
    """Verify the signature, and apply the event, even if it arrives late or twice."""
    try:
        event = webhooks.verify(request.get_data(), dict(request.headers), SECRETS)
    except WebhookError:
        abort(401)
    if not isinstance(event, UnknownEvent):
        payment = event.data.payment
        orders.settle(payment.id, payment.status, payment.amount, payment.currency)
    return "", 204
