"""The page of a payment: its history, and the operations on it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID

from starlette.responses import Response

from payintent.console.access import OperatorVisit
from payintent.console.listing import link_operation, other_page, read_query
from payintent.console.page_action import PageAction, offer
from payintent.domain import ids
from payintent.domain.payment import PaymentStatus
from payintent.operations.cases import ResolveCase
from payintent.operations.payment_details import ShowTimeline, payment_summary
from payintent.operations.payment_timeline import KINDS, TimelineEntry, TimelinePage
from payintent.operations.payments import CancelPayment, EndPayment, RefundPayment
from payintent.operations.webhooks import ReplayEvent
from payintent.storage import payment_history

_REFUNDABLE = frozenset({PaymentStatus.PAID, PaymentStatus.PARTIALLY_REFUNDED})
#: Details that the page shows elsewhere.
_SHOWN_ELSEWHERE = frozenset({"body", "answer", "what"})


@dataclass(frozen=True, slots=True, kw_only=True)
class StoryEntry:
    entry: TimelineEntry
    sent: str | None
    answered: str | None
    more: Mapping[str, str]


async def get_payment_story(visit: OperatorVisit) -> Response:
    payment_id: str = visit.request.path_params["payment_id"]
    operation = read_query(visit, ShowTimeline, payment_id=payment_id)
    payment = await payment_summary(visit.context.database, payment_id)
    timeline: TimelinePage = await visit.read(operation)
    return visit.render(
        "payment.html",
        payment=payment,
        metadata=pretty(bytes(payment["metadata"]).decode()),
        actions=await _actions(visit, payment),
        entries=[_story_entry(entry) for entry in timeline.entries],
        timeline=timeline,
        kinds=list(KINDS),
        of=operation.of,
        link=partial(other_page, visit),
    )


def pretty(text: str) -> str:
    """Indent JSON; return any text that is not JSON unchanged."""
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return text


async def _actions(visit: OperatorVisit, payment: Mapping[str, Any]) -> list[PageAction]:
    payment_id, status = payment["id"], payment["status"]
    links: list[tuple[str, str | None]] = []
    if status in _REFUNDABLE:
        links.append(("Refund", link_operation(visit, RefundPayment, payment_id=payment_id)))
    if status == PaymentStatus.PENDING:
        links.append(("Cancel", link_operation(visit, CancelPayment, payment_id=payment_id)))
    if status == PaymentStatus.PROCESSING:
        links.append(("End", link_operation(visit, EndPayment, payment_id=payment_id)))
    for case in payment["cases"]:
        if case["status"] == "OPEN":
            href = link_operation(visit, ResolveCase, case_id=case["id"])
            links.append((f"Resolve {case['kind']}", href))
    links.extend(
        ("Resend event", link_operation(visit, ReplayEvent, event_id=event_id))
        for event_id in await _event_ids(visit, payment_id)
    )
    return offer(links)


async def _event_ids(visit: OperatorVisit, payment_id: str) -> list[UUID]:
    parsed = ids.parse_id(ids.PAYMENT, payment_id)
    assert parsed is not None  # noqa: S101 - the payment was read by it
    subjects = await payment_history.list_subject_ids(visit.context.database, parsed)
    return [subject_id for kind, subject_id in subjects if kind == "event"]


def _story_entry(entry: TimelineEntry) -> StoryEntry:
    details = entry.details
    return StoryEntry(
        entry=entry,
        sent=pretty(details["body"]) if "body" in details else None,
        answered=details.get("answer") or None,
        more={
            name.replace("_", " "): value if isinstance(value, str) else json.dumps(value)
            for name, value in details.items()
            if name not in _SHOWN_ELSEWHERE
        },
    )
