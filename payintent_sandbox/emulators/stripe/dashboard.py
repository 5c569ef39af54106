"""Actions in Stripe's Dashboard, and card issuers' reports to Stripe."""

import secrets
import time
from typing import Any, cast

from localstripe.resources import Refund, store

from payintent_sandbox.emulators.stripe.disputes import Disputes
from payintent_sandbox.emulators.stripe.events import Events
from payintent_sandbox.emulators.stripe.model import AccountRecords, Json, RefusalError, missing
from payintent_sandbox.emulators.stripe.refunds import announce_refund, check_refund

_REASONS = {"duplicate", "fraudulent", "requested_by_customer", "abandoned"}
_FINAL = {"succeeded", "canceled"}
_objects = cast("dict[str, Any]", store)  # localstripe's objects, by kind and id


class Dashboard:
    """Refunds, cancellations and fraud warnings that do not come from API requests."""

    def __init__(self, records: AccountRecords, events: Events, disputes: Disputes) -> None:
        self._records = records
        self._events = events
        self._disputes = disputes

    def refund(self, intent_id: str, fields: dict[str, str]) -> Json:
        """Refund a payment without metadata. The default amount is the remainder."""
        _intent(intent_id)
        order = {"payment_intent": intent_id} | fields
        left = check_refund(self._records, self._disputes, order)
        amount = int(fields.get("amount", left))
        refund = cast("Any", Refund)(payment_intent=intent_id, amount=amount)
        self._records.owners[refund.id] = self._records.owners[intent_id]
        return announce_refund(self._records, self._events, refund)

    def cancel(self, intent_id: str, fields: dict[str, str]) -> Json:
        """Cancel a payment intent, with a reason from the Dashboard."""
        intent = _intent(intent_id)
        reason = fields.get("cancellation_reason", "requested_by_customer")
        if reason not in _REASONS:
            raise RefusalError(400, "The Dashboard does not offer this reason.")
        if intent.status in _FINAL:
            raise RefusalError(
                400,
                f"This payment is {intent.status}.",
                code="payment_intent_unexpected_state",
            )
        intent._canceled = True  # noqa: SLF001 - localstripe has no public method
        exported = intent._export() | {"cancellation_reason": reason}  # noqa: SLF001
        self._events.send("payment_intent.canceled", exported)
        return exported

    def warn_of_fraud(self, fields: dict[str, str]) -> Json:
        """Report fraud as a card's issuer does, before any dispute."""
        intent = _intent(fields["payment_intent"])
        if intent.status != "succeeded":
            raise RefusalError(400, "Only a charged payment can be reported as fraudulent.")
        warning: Json = {
            "id": f"issfr_{secrets.token_hex(12)}",
            "object": "radar.early_fraud_warning",
            "actionable": True,
            "charge": intent.latest_charge.id,
            "created": int(time.time()),
            "fraud_type": fields.get("fraud_type", "made_with_stolen_card"),
            "livemode": False,
            "payment_intent": intent.id,
        }
        self._events.send("radar.early_fraud_warning.created", warning)
        return warning


def _intent(intent_id: str) -> Any:
    intent = _objects.get(f"payment_intent:{intent_id}")
    if intent is None:
        raise missing(intent_id)
    return intent
