"""Describe everything that happened to a payment, for operators."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from payintent.core import ids
from payintent.core.money import format_display_amount, format_smallest_units, group_thousands
from payintent.core.texts import format_count
from payintent.db.database import Executor
from payintent.operators.audit_store import AuditEntry
from payintent.payment_history import store as history_store
from payintent.payment_history.store import HistoryEntry, HistoryPage
from payintent.payments.model import Payment

Details = dict[str, Any]
#: Tolerated clock skew between hosts; an audit entry's id starts with its host's clock time.
_SKEW_MS = 3_600_000
_BODY_FIELDS = frozenset({"body", "answer"})


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineEntry:
    at: datetime
    what: str
    id: str | None  # of the session, refund, case or event
    who: str | None  # the operator, merchant or rule that caused it
    text: str
    details: Details


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelinePage:
    entries: list[TimelineEntry]
    page: int  # starting at 1
    pages: int


#: The kinds of entries that each timeline filter selects.
KINDS: Mapping[str, tuple[str, ...]] = {
    "payment": ("created", "paid", "failed", "expired", "cancelled", "denied"),
    "gateway": (
        *("selected", "returned", "closing", "silent", "session-ended", "callback"),
        *("gateway-call", "captured"),
    ),
    "chain": ("posted", "posted-settled", "seen", "gone", "final"),
    "events": ("event", "attempt"),
    "refunds": (
        *("refund", "refund-callback", "refund-sent", "refund-ended", "refund-signed"),
        *("refund-call", "refund-final"),
    ),
    "cases": ("case", "case-closed", "dispute", "dispute-now"),
    "operators": (),  # read from the audit log
}
#: Entries per page, not counting audit entries.
PAGE_ENTRIES = 100


async def read_timeline(database: Executor, payment: Payment) -> list[TimelineEntry]:
    """Return the whole timeline without the bodies of requests and responses."""
    history = await history_store.list_entries(database, payment.id)
    entries = [_describe(_without_bodies(entry)) for entry in history.entries]
    object_ids = {ids.format_id(ids.PAYMENT, payment.id)}
    object_ids |= {entry.id for entry in entries if entry.id is not None}
    entries += [
        _describe_audit_entry(entry) for entry in await _read_audit(database, payment, object_ids)
    ]
    return sorted(entries, key=lambda entry: entry.at)  # stable: at equal times, causes stay first


async def read_timeline_page(
    database: Executor, payment: Payment, subject: str | None, page: int
) -> TimelinePage:
    """Return a page of the timeline. `subject` is a key of `KINDS`, or None for all entries.

    Audit entries are added to the page that covers their time.
    """
    kinds = None if subject is None else KINDS[subject]
    history = HistoryPage(entries=[], total=0, starts_at=None, ends_at=None)
    if kinds is None or kinds:
        offset = (page - 1) * PAGE_ENTRIES
        history = await history_store.list_entries(
            database, payment.id, kinds, offset, PAGE_ENTRIES, history_store.PAGED_KIND_MAX
        )
    entries = [_describe(entry) for entry in history.entries]
    if subject in {None, "operators"} and (entries or page == 1):
        subjects = await history_store.list_subject_ids(database, payment.id)
        object_ids = {ids.format_id(ids.PAYMENT, payment.id)}
        object_ids |= {_format_id(kind, subject_id) for kind, subject_id in subjects}
        entries += [
            _describe_audit_entry(entry)
            for entry in await _read_audit(database, payment, object_ids)
            if (history.starts_at is None or entry.at >= history.starts_at)
            and (history.ends_at is None or entry.at < history.ends_at)
        ]
    return TimelinePage(
        entries=sorted(entries, key=lambda entry: entry.at),
        page=page,
        pages=max(1, -(-history.total // PAGE_ENTRIES)),
    )


async def _read_audit(
    database: Executor, payment: Payment, object_ids: Iterable[str]
) -> list[AuditEntry]:
    """Read the audit entries that mention these ids, and the entries about their approvals."""
    since = ids.make_timed_id(max(0, ids.get_unix_ms(payment.id) - _SKEW_MS), 0)
    entries: dict[UUID, AuditEntry] = {}
    texts = list(object_ids)
    while texts:
        matches = await history_store.list_audit_entries(
            database, payment.merchant_id, since, texts
        )
        new_entries = [entry for entry in matches if entry.id not in entries]
        entries |= {entry.id: entry for entry in new_entries}
        texts = [
            entry.details["approval_id"]
            for entry in new_entries
            if entry.action == "approval.propose"
        ]
    return [entries[entry_id] for entry_id in sorted(entries)]


def _without_bodies(entry: HistoryEntry) -> HistoryEntry:
    details = {name: entry.details[name] for name in entry.details if name not in _BODY_FIELDS}
    return replace(entry, details=details)


def _describe(entry: HistoryEntry) -> TimelineEntry:
    details = entry.details
    if entry.kind == "callback":
        details = _without_report(details)
    return TimelineEntry(
        at=entry.at,
        what=entry.kind,
        id=entry.id and _format_id(entry.kind, entry.id),
        who=details.get("requested_by") or details.get("closed_by"),
        text=_DESCRIPTIONS[entry.kind](details),
        details=details,
    )


def _describe_audit_entry(entry: AuditEntry) -> TimelineEntry:
    return TimelineEntry(
        at=entry.at,
        what="operator",
        id=None,
        who=entry.who,
        text=f"{entry.action}: {entry.why}" if entry.why else entry.action,
        details={"action": entry.action, "why": entry.why, "fields": entry.details},
    )


def _format_id(kind: str, value: UUID) -> str:
    if kind in {"event", "attempt"}:
        return str(value)
    return ids.format_id(_PREFIXES.get(kind.partition("-")[0], ids.SESSION), value)


_PREFIXES = {"refund": ids.REFUND, "case": ids.CASE, "dispute": ids.CASE}


def _without_report(details: Details) -> Details:
    """Replace a callback's report with the state that it reports."""
    details = dict(details)
    report = details.pop("report", None)
    if report is None:
        return details
    fields = msgspec.json.decode(report, type=dict[str, Any])
    return details | {"state": fields.get("state")}


def join_texts(*texts: str | None) -> str:
    return ", ".join(text for text in texts if text)


def _format_positive(count: int, noun: str, plural: str = "") -> str | None:
    return format_count(count, noun, plural) if count else None


def _describe_amount(details: Details, currency: str = "currency") -> str:
    minor, code = details["amount_minor"], details[currency]
    on_chain = "chain" in details
    amount = format_smallest_units(int(minor), code, details.get("decimals"), on_chain=on_chain)
    return (
        group_thousands(f"{amount} {code}")
        if amount is not None
        else f"{format_count(int(minor), 'smallest unit')} of {code}"
    )


def describe_payment_amount(details: Details) -> str:
    return format_display_amount(details["amount"], details["currency"])


def _describe_account(details: Details) -> str:
    return f"at {details['provider']}, account {details['account_id']}"


def _describe_selection(details: Details) -> str:
    fees = [
        f"{name} {details[field]}"
        for name, field in (("fee", "fee_amount"), ("tax", "estimated_tax"))
        if details[field] != "0"
    ]
    chain = f"{details['token']} on {details['chain']}" if "chain" in details else None
    return join_texts(
        f"{details['label']} {_describe_account(details)}",
        group_thousands(f"{details['total_amount']} {details['currency']}"),
        *fees,
        chain,
        _format_positive(details["inquiries"], "inquiry", "inquiries"),
        f"reference {details['reference']}" if "reference" in details else None,
    )


def _describe_callback(details: Details) -> str:
    return join_texts(
        f"from account {details['account_id']}",
        f"reports {details['state']}" if "state" in details else None,
        None if details["applied"] else "not applied",
        f"callback {details['callback_id']}",
    )


def _describe_gateway_call(details: Details) -> str:
    return join_texts(
        f"{details['request']} at account {details['account_id']}: {details['outcome']}",
        details["gateway_detail"] or None,
        f"{details['duration_ms']} ms",
    )


def _describe_transaction(details: Details) -> str:
    block = f"in block {details['block']}" if "block" in details else None
    tx_hash = f"0x{details['tx_hash']}" if "tx_hash" in details else "no transaction yet"
    return join_texts(f"{tx_hash} on {details.get('chain', 'unknown chain')}", block)


def _describe_transfer(details: Details) -> str:
    token = details.get("symbol") or f"0x{details['token']}"
    amount = _describe_amount(details | {"currency": token})
    payer = f"from 0x{details['payer']}" if "payer" in details else None
    return join_texts(details["disposition"], amount, payer, _describe_transaction(details))


def _describe_event(details: Details) -> str:
    attempts = _format_positive(details["attempts"], "attempt")
    state = f"{details['state']} after {attempts}" if attempts else details["state"]
    return join_texts(details["type"], state)


def describe_attempt(details: Details) -> str:
    return join_texts(
        f"attempt {details['number']}: {details['outcome']}",
        f"HTTP {details['status']}" if "status" in details else details["detail"] or None,
        f"{details['duration_ms']} ms",
        details.get("url"),
    )


def _describe_refund(details: Details) -> str:
    amount = _describe_amount(details, "capture_currency")
    if "amount" in details:
        amount = describe_payment_amount(details)
    recipient = f"to {details['destination']}" if "destination" in details else None
    return join_texts(
        amount, "for a case" if "case_id" in details else None, recipient, details.get("reason")
    )


def _describe_refund_end(details: Details) -> str:
    return join_texts(
        details["status"],
        details.get("failure_reason"),
        f"reference {details['reference']}" if "reference" in details else None,
        details["note"] or None,
    )


_DESCRIPTIONS: Mapping[str, Callable[[Details], str]] = {
    "created": lambda details: (
        f"{describe_payment_amount(details)} from payer {details['payer_uid']}"
    ),
    "paid": describe_payment_amount,
    "failed": lambda details: details["failure_reason"],
    "expired": lambda _: "expired without payment",
    "cancelled": lambda details: (
        "the merchant was notified" if details["has_event"] else "by the buyer"
    ),
    "denied": lambda details: (
        f"{details['code']} by rule {details['rule_id']}, "
        f"{details['level']}, score {details['score']}"
    ),
    "selected": _describe_selection,
    "returned": lambda _: "the buyer returned from the gateway",
    "closing": lambda details: f"closing {_describe_account(details)}",
    "silent": lambda details: f"no response to the close request {_describe_account(details)}",
    "session-ended": lambda details: f"{details['outcome']} {_describe_account(details)}",
    "gateway-call": _describe_gateway_call,
    "refund-call": _describe_gateway_call,
    "callback": _describe_callback,
    "refund-callback": _describe_callback,
    "captured": lambda details: join_texts(
        _describe_amount(details),
        "credited" if details["credited"] else "not credited",
        f"account {details['account_id']}",
        f"reference {details['reference']}",
    ),
    "posted": lambda details: join_texts(details["step"], _describe_transaction(details)),
    "posted-settled": lambda details: join_texts(
        details["state"], details["reason"] or None, _describe_transaction(details)
    ),
    "seen": lambda details: join_texts(
        "exact" if details["exact"] else "not exact", _describe_transaction(details)
    ),
    "gone": lambda details: join_texts("block replaced", _describe_transaction(details)),
    "final": _describe_transfer,
    "event": _describe_event,
    "attempt": describe_attempt,
    "refund": _describe_refund,
    "refund-sent": lambda details: join_texts(
        "sent", _format_positive(details["inquiries"], "inquiry", "inquiries")
    ),
    "refund-ended": _describe_refund_end,
    "refund-signed": lambda details: join_texts(
        _describe_transaction(details),
        _format_positive(details["reverts"], "revert"),
    ),
    "refund-final": lambda details: join_texts(
        details.get("disposition"), _describe_transaction(details)
    ),
    "case": lambda details: details["kind"],
    "case-closed": lambda details: join_texts(details["status"], details["note"] or None),
    "dispute": lambda details: join_texts(
        _describe_amount(details), details["reason"] or None, f"reference {details['reference']}"
    ),
    "dispute-now": lambda details: f"{details['state']}, funds {details['funds']}",
}
