"""The history of a payment as its merchant may see it.

It contains nothing internal: no gateway responses and references, no fraud rules and decisions, no
accounts, no operators and none of their notes. Only the kinds of entries in `_FORMATS` are shown,
with the details that their format uses.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from payintent.domain.money import format_smallest_units
from payintent.domain.payment import Payment
from payintent.storage import payment_history
from payintent.storage.database import Executor
from payintent.storage.payment_history import HistoryEntry

Details = Mapping[str, Any]
_MEMBER_PARTS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class MerchantStoryEntry:
    at: datetime
    title: str
    text: str
    event_id: UUID | None  # to link to, for an event or an attempt


async def read_story(database: Executor, payment: Payment) -> list[MerchantStoryEntry]:
    history = await payment_history.list_entries(database, payment.id)
    return [_story_entry(entry) for entry in history if entry.what in _FORMATS]


def requester(requested_by: str) -> str:
    """Describe the requester of a refund; only the merchant's keys and members are named."""
    parts = requested_by.split(":", _MEMBER_PARTS - 1)
    if parts[0] == "policy":
        return "automatically"
    if parts[0] != "merchant":
        return "by the operator"
    if len(parts) < _MEMBER_PARTS:
        return "with an API key"
    return f"by {parts[2]}" if "@" in parts[2] else f"with the API key {parts[2]}"


def _story_entry(entry: HistoryEntry) -> MerchantStoryEntry:
    title, format_details = _FORMATS[entry.what]
    details = {name: value for name, value in entry.details.items() if value is not None}
    return MerchantStoryEntry(
        at=entry.at,
        title=title,
        text=format_details(details),
        event_id=entry.id if entry.what in {"event", "attempt"} else None,
    )


def _join(*parts: str | None) -> str:
    return ", ".join(part for part in parts if part)


def _payment_amount(details: Details) -> str:
    return f"{details['amount']} {details['currency']}"


def _amount(details: Details) -> str | None:
    code = details["currency"]
    amount = format_smallest_units(
        int(details["amount_minor"]), code, details.get("decimals"), on_chain="chain" in details
    )
    return None if amount is None else f"{amount} {code}"


def _selected(details: Details) -> str:
    fee, tax = details["fee_amount"], details["estimated_tax"]
    return _join(
        f"{details['label']} in {details['country']}",
        f"{details['total_amount']} {details['currency']}",
        None if fee == "0" else f"fee {fee}",
        None if tax == "0" else f"tax {tax}",
        f"{details['token']} on {details['chain']}" if "chain" in details else None,
    )


def _transaction(details: Details) -> str:
    block = f"in block {details['block']}" if "block" in details else None
    tx_hash = f"0x{details['tx_hash']}" if "tx_hash" in details else None
    return _join(tx_hash, block, f"on {details['chain']}" if "chain" in details else None)


def _refund(details: Details) -> str:
    amount = _payment_amount(details) if "amount" in details else "money from a case"
    to = f"to {details['destination']}" if "destination" in details else None
    return _join(amount, to, requester(details["requested_by"]), details.get("reason"))


def _attempt(details: Details) -> str:
    return _join(
        f"attempt {details['number']}: {details['outcome']}",
        f"HTTP {details['status']}" if "status" in details else details["detail"] or None,
        f"{details['duration_ms']} ms",
        details.get("url"),
    )


def _nothing(_: Details) -> str:
    return ""


_FORMATS: Mapping[str, tuple[str, Callable[[Details], str]]] = {
    "created": (
        "Created",
        lambda details: f"{_payment_amount(details)} for the buyer {details['payer_uid']}",
    ),
    "selected": ("Payment method selected", _selected),
    "returned": ("Buyer returned from the gateway", _nothing),
    "posted": ("Transaction submitted", _transaction),
    "seen": ("Transaction seen, not final yet", _transaction),
    "gone": ("Block replaced", _transaction),
    "final": ("Transaction final", _transaction),
    "captured": ("Money received", lambda details: _amount(details) or ""),
    "paid": ("Paid", _payment_amount),
    "failed": ("Failed", lambda details: details["failure_reason"]),
    "expired": ("Expired", _nothing),
    "cancelled": ("Cancelled", _nothing),
    "event": ("Event", lambda details: _join(details["type"], details["state"])),
    "attempt": ("Webhook", _attempt),
    "refund": ("Refund requested", _refund),
    "refund-ended": (
        "Refund ended",
        lambda details: _join(details["status"], details.get("failure_reason")),
    ),
    "refund-final": ("Refund final", _transaction),
    "case": ("Case opened", lambda details: details["kind"]),
    "case-closed": ("Case closed", lambda details: _join(details["kind"], details["status"])),
    "dispute": (
        "Disputed by the buyer",
        lambda details: _join(_amount(details), details["reason"] or None),
    ),
    "dispute-now": (
        "Dispute updated",
        lambda details: f"{details['state']}, funds {details['funds']}",
    ),
}
