"""The routes with which `payintent-cli grade` tests the shop; see docs/integrate/grader.md."""

import os
from typing import Annotated, Any
from uuid import UUID, uuid5

import orders
from fastapi import APIRouter, Body, HTTPException
from payintent_sdk.errors import ApiError

routes = APIRouter(prefix="/graded")


def is_enabled() -> bool:
    """Return whether the shop serves these routes, which requires SHOP_GRADED and a test key."""
    is_test = os.environ["PAYINTENT_API_KEY"].startswith("sk_test_")
    return is_test and "SHOP_GRADED" in os.environ


@routes.post("", status_code=201)
async def place_order(cart_id: Annotated[UUID, Body(embed=True)]) -> dict[str, Any]:
    """Simulate a click on Buy."""
    order = orders.place_order(cart_id)
    await orders.find_next_page(order)
    order = orders.place_order(order.id)
    return {
        "order_id": str(order.id),
        "payment_id": order.payment_id,
        "amount": order.amount,
        "currency": order.currency,
    }


@routes.post("/poll")
async def poll() -> None:
    """Run the scheduled poll now."""
    await orders.poll()


@routes.get("/{order_id}")
async def show_order(order_id: UUID) -> dict[str, Any]:
    """Show the order. Refunds are read from the service, because operators can refund it too."""
    order = orders.find_order(order_id)
    if order is None or order.payment_id is None:
        raise HTTPException(404)
    refunded = (await orders.client.payments.get(order.payment_id)).refunded_amount
    return {"status": order.status, "handed_out": order.handed_out, "refunded": refunded}


@routes.post("/{order_id}/refund", status_code=201)
async def refund(
    order_id: UUID, return_id: Annotated[str, Body()], amount: Annotated[str, Body()]
) -> None:
    """Refund returned goods. A second click for the same return uses the same key."""
    order = orders.find_order(order_id)
    if order is None or order.payment_id is None:
        raise HTTPException(404)
    key = str(uuid5(order.id, return_id))
    try:
        await orders.client.refunds.create(order.payment_id, amount=amount, idempotency_key=key)
    except ApiError as error:
        raise HTTPException(409, str(error)) from error


@routes.post("/{order_id}/{change}")
async def refuse(order_id: UUID, change: str) -> None:
    """Reject any change to an order, which has one price and at most one open payment."""
    raise HTTPException(409, f"The order {order_id} does not allow {change}.")
