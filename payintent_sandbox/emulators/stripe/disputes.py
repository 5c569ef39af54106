"""Disputes in the Stripe emulator. A tester opens and decides them, as banks do."""

import secrets
import time
from typing import Any, cast

from localstripe.resources import store

from payintent_sandbox.emulators.stripe.events import Events
from payintent_sandbox.emulators.stripe.model import Json, RefusalError, missing

_DAY_S = 24 * 3600
_HOLDING = {"needs_response", "under_review", "lost"}
_DECIDED = {"won", "lost"}
_objects = cast("dict[str, Any]", store)  # localstripe's objects, by kind and id


#: The transaction id, dispute id, reporting category, amount, currency and time of a movement.
Movement = tuple[str, str, str, int, str, int]


class Disputes:
    """The disputes of all accounts."""

    def __init__(self, events: Events) -> None:
        self._events = events
        self._disputes: dict[str, Json] = {}
        self._movements: list[Movement] = []

    def open(self, fields: dict[str, str]) -> Json:
        """Dispute a paid payment intent. The money is withdrawn immediately."""
        intent = _objects.get(f"payment_intent:{fields['payment_intent']}")
        if intent is None:
            raise missing(fields["payment_intent"])
        now = int(time.time())
        dispute: Json = {
            "id": f"du_{secrets.token_hex(12)}",
            "object": "dispute",
            "amount": intent.amount,
            "currency": intent.currency,
            "payment_intent": intent.id,
            "reason": fields.get("reason", "fraudulent"),
            "status": "needs_response",
            "is_charge_refundable": False,
            "evidence_details": {"due_by": now + 7 * _DAY_S, "has_evidence": False},
            "created": now,
        }
        self._disputes[dispute["id"]] = dispute
        self._move(dispute, "dispute", -intent.amount)
        self._events.send("charge.dispute.created", dispute)
        self._events.send("charge.dispute.funds_withdrawn", dispute)
        return dispute

    def decide(self, dispute_id: str, status: str) -> Json:
        """Set a dispute's status: `under_review`, `won` (the money is reinstated) or `lost`."""
        dispute = self._disputes.get(dispute_id)
        if dispute is None:
            raise missing(dispute_id)
        if status not in _DECIDED | {"under_review"}:
            raise RefusalError(400, "status must be under_review, won or lost", param="status")
        dispute = self._disputes[dispute_id] = dispute | {"status": status}
        decided = status in _DECIDED
        self._events.send(f"charge.dispute.{'closed' if decided else 'updated'}", dispute)
        if status == "won":
            self._move(dispute, "dispute_reversal", dispute["amount"])
            self._events.send("charge.dispute.funds_reinstated", dispute)
        return dispute

    def find(self, dispute_id: str) -> Json | None:
        """Return a dispute, or None if the id is unknown."""
        return self._disputes.get(dispute_id)

    def movements(self) -> list[Movement]:
        """List the withdrawals and reinstatements of disputes."""
        return list(self._movements)

    def _move(self, dispute: Json, category: str, amount: int) -> None:
        name, at = f"txn_{secrets.token_hex(12)}", int(time.time())
        self._movements.append((name, dispute["id"], category, amount, dispute["currency"], at))

    def holds(self, intent_id: str) -> bool:
        """Return whether an intent has a dispute that prevents refunds."""
        return any(
            dispute["payment_intent"] == intent_id and dispute["status"] in _HOLDING
            for dispute in self._disputes.values()
        )
