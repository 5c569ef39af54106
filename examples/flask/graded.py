"""The routes with which `payintent-cli grade` tests the shop; see docs/integrate/grader.md."""

import os
from typing import Any
from uuid import UUID, uuid5

import orders
from flask import Blueprint, abort, request
from payintent_sdk.errors import ApiError

routes = Blueprint("graded", __name__, url_prefix="/graded")


def is_enabled() -> bool:
    """Return whether the shop serves these routes, which requires SHOP_GRADED and a test key."""
    is_test = os.environ["PAYINTENT_API_KEY"].startswith("sk_test_")
    return is_test and "SHOP_GRADED" in os.environ


@routes.post("")
def place_order() -> tuple[dict[str, Any], int]:
    """Simulate a click on Buy."""
    order = orders.place_order(UUID(request.get_json()["cart_id"]))
    orders.find_next_page(order)
    order = orders.place_order(order.id)
    return {
        "order_id": str(order.id),
        "payment_id": order.payment_id,
        "amount": order.amount,
        "currency": order.currency,
    }, 201


@routes.post("/poll")
def poll() -> dict[str, Any]:
    """Run the scheduled poll now."""
    orders.poll()
    return {}


@routes.get("/<uuid:order_id>")
def show_order(order_id: UUID) -> dict[str, Any]:
    """Show the order. Refunds are read from the service, because operators can refund it too."""
    order = orders.find_order(order_id)
    if order is None or order.payment_id is None:
        abort(404)
    refunded = orders.client.payments.get(order.payment_id).refunded_amount
    return {"status": order.status, "handed_out": order.handed_out, "refunded": refunded}


@routes.post("/<uuid:order_id>/refund")
def refund(order_id: UUID) -> tuple[dict[str, Any], int]:
    """Refund returned goods. A second click for the same return uses the same key."""
    order, content = orders.find_order(order_id), request.get_json()
    if order is None or order.payment_id is None:
        abort(404)
    key = str(uuid5(order.id, content["return_id"]))
    try:
        orders.client.refunds.create(
            order.payment_id, amount=content["amount"], idempotency_key=key
        )
    except ApiError as error:
        return {"message": str(error)}, 409
    return {}, 201


@routes.post("/<uuid:order_id>/<change>")
def refuse(order_id: UUID, change: str) -> tuple[dict[str, Any], int]:
    """Reject a change, because an order has one price and one open payment at a time."""
    return {"message": f"The order {order_id} does not allow {change}."}, 409
