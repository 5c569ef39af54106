"""A Flask shop that sells one book; see README.md."""

import os
from uuid import UUID, uuid4

import graded
import orders
from flask import Flask, abort, redirect, request
from payintent_sdk import webhooks
from payintent_sdk.errors import PayintentError, WebhookError
from payintent_sdk.events import UnknownEvent
from werkzeug.wrappers import Response

IN_REVIEW = "We need to review your payment. Please do not pay again. We will contact you."
#: The order page's message and button label for each status of the payment.
TEXTS = {
    "PENDING": ("Your order is waiting for your payment.", "Continue to payment"),
    "PROCESSING": ("Your payment is being processed.", "Continue to payment"),
    "FAILED": ("Your payment has failed. You have not been charged.", "Pay again"),
    "EXPIRED": ("Your payment expired before it was confirmed.", "Pay again"),
    "CANCELLED": ("Your payment was cancelled. You have not been charged.", "Pay again"),
}
SECRETS = os.environ["PAYINTENT_WEBHOOK_SECRET"].split()  # two secrets during a rotation
app = Flask(__name__)
app.config["MAX_CONTENT_LENGTH"] = 64 * 1024
app.cli.command("poll")(orders.poll)
if graded.is_enabled():
    app.register_blueprint(graded.routes)


@app.get("/")
def show_book() -> str:
    """Show the book. Each page view uses a new order ID."""
    return f"""
        <h1>Tides of the Chao Phraya</h1>
        <form method="post" action="/buy/{uuid4()}"><button>Buy for 1590.00 THB</button></form>
    """


@app.post("/buy/<uuid:order_id>")
def buy(order_id: UUID) -> Response:
    """Redirect the buyer to the order's payment. Later attempts also use this route."""
    try:
        return redirect(orders.find_next_page(orders.place_order(order_id)), 303)
    except PayintentError:
        abort(502, "The payment could not be started. Please try again.")


@app.get("/orders/<uuid:order_id>")
def show_order(order_id: UUID) -> str:
    """Show the order to the returning buyer. Ignore the query string, which anyone can forge."""
    order = orders.find_order(order_id)
    if order is None:
        abort(404, "This order does not exist.")
    text, label = describe(order)
    button = f'<form method="post" action="/buy/{order.id}"><button>{label}</button></form>'
    return f"<h1>Order {order.id}</h1><p>{text}</p>{button if label else ''}"


def describe(order: orders.Order) -> tuple[str, str]:
    """Return the page's message about the order, and its button's label ("" for no button)."""
    try:
        order, payment = (order, None) if order.status == "paid" else orders.refresh(order)
    except PayintentError:
        return "We cannot check your payment at the moment. Please reload this page.", ""
    if order.status == "paid":
        return "Your order is paid.", ""
    if payment is None:
        return TEXTS["PENDING"]
    if payment.failure_reason in orders.REVIEWED:
        return IN_REVIEW, ""
    return TEXTS.get(payment.status, ("We are confirming your payment.", ""))


@app.post("/webhooks")
def receive_webhook() -> tuple[str, int]:
    """Verify the signature. Apply the event once, even if it arrives late or twice."""
    try:
        event = webhooks.verify(request.get_data(), dict(request.headers), SECRETS)
    except WebhookError:
        abort(401)
    if not isinstance(event, UnknownEvent):
        payment = event.data.payment
        orders.settle(payment.id, payment.status, payment.amount, payment.currency)
    return "", 204
