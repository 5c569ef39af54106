"""The routes with which `payintent-cli grade` tests the shop; see docs/integrate/grader.md."""

import json
from uuid import UUID, uuid5

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404
from django.urls import path
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_GET, require_POST
from payintent_sdk.errors import ApiError

from shop import payments
from shop.models import Order


@csrf_exempt  # the grader is not a browser
@require_POST
def place_order(request: HttpRequest) -> HttpResponse:
    """Simulate a click on Buy."""
    order, _created = Order.objects.get_or_create(id=UUID(json.loads(request.body)["cart_id"]))
    payments.find_next_page(order)
    order.refresh_from_db()
    view = {
        "order_id": str(order.id),
        "payment_id": order.payment_id,
        "amount": order.amount,
        "currency": order.currency,
    }
    return JsonResponse(view, status=201)


@csrf_exempt
@require_POST
def poll(_: HttpRequest) -> HttpResponse:
    """Run the scheduled poll now."""
    payments.poll()
    return HttpResponse(status=204)


@require_GET
def show_order(_: HttpRequest, order_id: UUID) -> HttpResponse:
    """Show the order. Refunds are read from the service, because operators can refund it too."""
    order = get_object_or_404(Order, id=order_id, payment_id__isnull=False)
    refunded = payments.client.payments.get(order.payment_id).refunded_amount
    view = {"status": order.status, "handed_out": order.handed_out, "refunded": refunded}
    return JsonResponse(view)


@csrf_exempt
@require_POST
def refund(request: HttpRequest, order_id: UUID) -> HttpResponse:
    """Refund returned goods. A second click for the same return uses the same key."""
    order, content = get_object_or_404(Order, id=order_id), json.loads(request.body)
    key = str(uuid5(order.id, content["return_id"]))
    try:
        payments.client.refunds.create(
            order.payment_id, amount=content["amount"], idempotency_key=key
        )
    except ApiError as error:
        return HttpResponse(str(error), status=409)
    return HttpResponse(status=201)


@csrf_exempt
@require_POST
def refuse(_: HttpRequest, order_id: UUID, change: str) -> HttpResponse:
    """Reject a change, because an order has one price and one open payment at a time."""
    return HttpResponse(f"The order {order_id} does not allow {change}.", status=409)


urlpatterns = [
    path("", place_order),
    path("/poll", poll),
    path("/<uuid:order_id>", show_order),
    path("/<uuid:order_id>/refund", refund),
    path("/<uuid:order_id>/<str:change>", refuse),
]
