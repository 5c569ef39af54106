"""Refunds in the Stripe emulator: their limits and their events."""

from typing import Any, cast

from localstripe.resources import store

from payintent_sandbox.emulators.stripe.disputes import Disputes
from payintent_sandbox.emulators.stripe.events import Events
from payintent_sandbox.emulators.stripe.model import AccountRecords, Json, RefusalError

_objects = cast("dict[str, Any]", store)  # localstripe's objects, by kind and id


def check_refund(records: AccountRecords, disputes: Disputes, order: dict[str, Any]) -> int:
    """Return the remaining refundable amount; reject a larger refund."""
    intent = _objects.get(f"payment_intent:{order.get('payment_intent')}")
    if intent is None:
        return 0  # localstripe responds with its own error
    card = records.paid_with.get(intent.id)
    if (card and card.disputed) or disputes.holds(intent.id):
        raise RefusalError(400, "This charge has been charged back.", code="charge_disputed")
    left = intent.amount - refunded(intent.id)
    amount = str(order.get("amount", left))
    if left == 0:
        raise RefusalError(400, "This charge was refunded.", code="charge_already_refunded")
    if amount.isdecimal() and int(amount) > left:
        raise RefusalError(400, "The amount exceeds the remaining amount.", param="amount")
    return left


def announce_refund(records: AccountRecords, events: Events, refund: Any) -> Json:
    """Send the events of a new refund, and return the refund as it appears in them."""
    card = records.paid_with.get(refund.payment_intent)
    if card and card.pending_refunds:
        refund.status = "pending"
    exported: Json = refund._export()  # noqa: SLF001 - localstripe has no public method
    events.send("refund.created", exported)
    charge: Json = _objects[f"charge:{refund.charge}"]._export()  # noqa: SLF001
    total = refunded(refund.payment_intent)
    is_all = total == charge["amount"]
    events.send("charge.refunded", charge | {"amount_refunded": total, "refunded": is_all})
    return exported


def refunded(intent_id: str) -> int:
    """Return the sum of an intent's refunds, excluding failed refunds."""
    refunds = [stored for name, stored in _objects.items() if name.startswith("refund:")]
    return sum(
        refund.amount
        for refund in refunds
        if refund.payment_intent == intent_id and refund.status != "failed"
    )
