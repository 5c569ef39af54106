"""The pages of the shop, and its receiver of webhooks."""

from uuid import UUID, uuid4

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

client = Client(settings.PAYINTENT_KEY, settings.PAYINTENT_URL)


@require_GET
def show_book(request: HttpRequest) -> HttpResponse:
    """Show the book; each page is a cart of its own."""
    return render(request, "book.html", {"cart": uuid4()})


@require_POST
def buy(_: HttpRequest, cart: UUID) -> HttpResponse:
    """Create the payment of a cart and send the buyer to it; a second click finds the first one."""
    try:
        payment = client.payments.create(
            amount="1590.00",  # the server sets the price, never the page
            currency="THB",
            payer_uid=f"guest-{cart}",
            metadata={"order_id": str(cart), "product": {"name": "Tides of the Chao Phraya"}},
            idempotency_key=str(cart),
        )
    except PayintentError:
        return HttpResponse("This cannot be paid now. Please try again.", status=502)
    known = {"payment_id": payment.id, "amount": payment.amount, "currency": payment.currency}
    Order.objects.get_or_create(id=cart, defaults=known)
    answer = HttpResponseRedirect(payment.checkout_url, status=303)
    answer.set_cookie("order", str(cart), httponly=True, samesite="Lax")
    return answer


@csrf_exempt  # the sender is no browser; it signs
@require_POST
def receive_webhook(request: HttpRequest) -> HttpResponse:
    """Believe what is signed; an order is paid once, however often and late an event comes."""
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
    """Show the buyer's order; the webhook alone makes it paid, not the buyer's coming back."""
    try:
        order_id = UUID(request.COOKIES.get("order", ""))
    except ValueError:
        return HttpResponse("You have no order.", status=404)
    return render(request, "order.html", {"order": get_object_or_404(Order, id=order_id)})
