"""The shop's pages and webhook receiver."""

from uuid import UUID, uuid4

from django.conf import settings
from django.core.exceptions import RequestDataTooBig
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404, render
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_GET, require_POST
from payintent_sdk import webhooks
from payintent_sdk.errors import PayintentError, WebhookError
from payintent_sdk.events import UnknownEvent

from shop import payments
from shop.models import Order

IN_REVIEW = "We need to review your payment. Please do not pay again. We will contact you."
#: The order page's message and button label for each payment status.
TEXTS = {
    "PENDING": ("Your order is waiting for your payment.", "Continue to payment"),
    "PROCESSING": ("Your payment is being processed.", "Continue to payment"),
    "FAILED": ("Your payment has failed. You have not been charged.", "Pay again"),
    "EXPIRED": ("Your payment expired before it was confirmed.", "Pay again"),
    "CANCELLED": ("Your payment was cancelled. You have not been charged.", "Pay again"),
}


@require_GET
def show_book(request: HttpRequest) -> HttpResponse:
    """Show the book. Each page view uses a new order ID."""
    return render(request, "book.html", {"order_id": uuid4()})


@require_POST
def buy(_: HttpRequest, order_id: UUID) -> HttpResponse:
    """Redirect the buyer to the order's payment. Later attempts also use this route."""
    order, _created = Order.objects.get_or_create(id=order_id)
    try:
        return HttpResponseRedirect(payments.find_next_page(order), status=303)
    except PayintentError:
        return HttpResponse("The payment could not be started. Please try again.", status=502)


@require_GET
def show_order(request: HttpRequest, order_id: UUID) -> HttpResponse:
    """Show the order to the returning buyer. Ignore the query string, which anyone can forge."""
    order = get_object_or_404(Order, id=order_id)
    text, label = describe(order)
    return render(request, "order.html", {"order": order, "text": text, "label": label})


def describe(order: Order) -> tuple[str, str]:
    """Return the page's message about the order, and its button's label ("" for no button)."""
    try:
        payment = None if order.status == Order.Status.PAID else payments.refresh(order)
    except PayintentError:
        return "We cannot check your payment at the moment. Please reload this page.", ""
    if order.status == Order.Status.PAID:
        return "Your order is paid.", ""
    if payment is None:
        return TEXTS["PENDING"]
    if payment.failure_reason in payments.REVIEWED:
        return IN_REVIEW, ""
    return TEXTS.get(payment.status, ("We are confirming your payment.", ""))


@csrf_exempt  # webhooks are signed and do not come from a browser
@require_POST
def receive_webhook(request: HttpRequest) -> HttpResponse:
    """Verify the signature. Apply the event once, even if it arrives late or twice."""
    try:
        event = webhooks.verify(
            request.body, dict(request.headers), settings.PAYINTENT_WEBHOOK_SECRETS
        )
    except RequestDataTooBig:
        return HttpResponse(status=413)
    except WebhookError:
        return HttpResponse(status=401)
    if not isinstance(event, UnknownEvent):
        payment = event.data.payment
        payments.settle(payment.id, payment.status, payment.amount, payment.currency)
    return HttpResponse(status=204)
