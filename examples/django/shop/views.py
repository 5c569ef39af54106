"""The shop's pages and webhook receiver."""

from uuid import UUID, uuid4, uuid5

from django.conf import settings
from django.core.exceptions import RequestDataTooBig
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404, render
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_GET, require_POST
from payintent_sdk import Client, webhooks
from payintent_sdk.errors import PayintentError, WebhookError
from payintent_sdk.events import PaymentCompleted

from shop.models import Order

ENDED_UNPAID = {"CANCELLED", "EXPIRED", "FAILED"}
client = Client(settings.PAYINTENT_API_KEY, settings.PAYINTENT_URL)


@require_GET
def show_book(request: HttpRequest) -> HttpResponse:
    """Show the book. Each page view has its own cart."""
    return render(request, "book.html", {"cart": uuid4()})


@require_POST
def buy(_: HttpRequest, cart: UUID) -> HttpResponse:
    """Redirect the buyer to the cart's payment. A second click leads to the same payment."""
    try:
        checkout_url = find_checkout(cart)
    except PayintentError:
        return HttpResponse("This cannot be paid now. Please try again.", status=502)
    answer = HttpResponseRedirect(checkout_url, status=303)
    answer.set_cookie("order", str(cart), httponly=True, samesite="Lax")
    return answer


def find_checkout(cart: UUID) -> str:
    """Return the checkout URL of the cart's open payment; create a payment if there is none.

    A cancellation on the checkout page causes no event, so the payment's status is read.
    """
    order, _ = Order.objects.get_or_create(id=cart)
    if order.payment_id is not None:
        known = client.payments.get(order.payment_id)
        if known.status not in ENDED_UNPAID:
            return known.checkout_url or "/order"
        # Of two simultaneous clicks, only the first begins the next attempt.
        Order.objects.filter(id=cart, attempt=order.attempt, status="waiting").update(
            attempt=order.attempt + 1, payment_id=None
        )
        order.refresh_from_db()
    payment = client.payments.create(
        amount="1590.00",  # the server sets the price, never the page
        currency="THB",
        payer_uid=f"guest-{cart}",
        metadata={"order_id": str(cart), "product": {"name": "Tides of the Chao Phraya"}},
        idempotency_key=str(uuid5(cart, str(order.attempt))),
    )
    Order.objects.filter(id=cart, attempt=order.attempt).update(
        payment_id=payment.id, amount=payment.amount, currency=payment.currency
    )
    return payment.checkout_url


@csrf_exempt  # webhooks are signed and do not come from a browser
@require_POST
def receive_webhook(request: HttpRequest) -> HttpResponse:
    """Verify the signature, and mark the order as paid, even if its event arrives late or twice."""
    try:
        event = webhooks.verify(
            request.body, dict(request.headers), settings.PAYINTENT_WEBHOOK_SECRETS
        )
    except RequestDataTooBig:
        return HttpResponse(status=413)
    except WebhookError:
        return HttpResponse(status=401)
    if isinstance(event, PaymentCompleted):
        paid = event.data.payment
        Order.objects.filter(
            payment_id=paid.id, amount=paid.amount, currency=paid.currency, status="waiting"
        ).update(status="paid")
    return HttpResponse(status=204)


@require_GET
def show_order(request: HttpRequest) -> HttpResponse:
    """Show the buyer's order. Only the webhook marks it as paid, not the buyer's return."""
    try:
        order_id = UUID(request.COOKIES.get("order", ""))
    except ValueError:
        return HttpResponse("You have no order.", status=404)
    return render(request, "order.html", {"order": get_object_or_404(Order, id=order_id)})
