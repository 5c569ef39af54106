"""The page of one payment: its whole story, and what can be done from here."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID

from starlette.requests import Request
from starlette.responses import Response

from payintent.console.access import signed_in
from payintent.console.context import get_console_context
from payintent.console.listing import link_operation, other_page, read_list, read_query
from payintent.console.page_action import PageAction, offer
from payintent.console.rendering import render
from payintent.console.sessions import OperatorSession
from payintent.domain import ids
from payintent.domain.payment import PaymentStatus
from payintent.operations.cases import ResolveCase
from payintent.operations.payment_details import ShowTimeline, payment_summary
from payintent.operations.payment_timeline import KINDS, TimelineEntry, TimelinePage
from payintent.operations.payments import CancelPayment, EndPayment, RefundPayment
from payintent.operations.webhooks import ReplayEvent
from payintent.storage import payment_history

_REFUNDABLE = frozenset({PaymentStatus.PAID, PaymentStatus.PARTIALLY_REFUNDED})
#: Details that are shown in words already, or beside them.
_SAID = frozenset({"body", "answer", "what"})


@dataclass(frozen=True, slots=True, kw_only=True)
class StoryEntry:
    entry: TimelineEntry
    sent: str | None
    answered: str | None
    more: Mapping[str, str]


async def get_payment_story(request: Request) -> Response:
    session = await signed_in(request)
    payment_id: str = request.path_params["payment_id"]
    wanted = read_query(request, ShowTimeline, payment_id=payment_id)
    payment = await payment_summary(get_console_context(request).database, payment_id)
    timeline: TimelinePage = await read_list(request, session, wanted)
    return render(
        request,
        "payment.html",
        payment=payment,
        metadata=pretty(bytes(payment["metadata"]).decode()),
        actions=await _actions(request, session, payment),
        entries=[_story_entry(entry) for entry in timeline.entries],
        timeline=timeline,
        kinds=list(KINDS),
        of=wanted.of,
        link=partial(other_page, request),
    )


def pretty(text: str) -> str:
    """Lay JSON out in lines; anything else stays as it is."""
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return text


async def _actions(
    request: Request, session: OperatorSession, payment: Mapping[str, Any]
) -> list[PageAction]:
    payment_id, status = payment["id"], payment["status"]
    offered: list[tuple[str, str | None]] = []
    if status in _REFUNDABLE:
        href = link_operation(session, RefundPayment, payment_id=payment_id)
        offered.append(("Refund", href))
    if status == PaymentStatus.PENDING:
        offered.append(("Cancel", link_operation(session, CancelPayment, payment_id=payment_id)))
    if status == PaymentStatus.PROCESSING:
        offered.append(("End", link_operation(session, EndPayment, payment_id=payment_id)))
    for case in payment["cases"]:
        if case["status"] == "OPEN":
            href = link_operation(session, ResolveCase, case_id=case["id"])
            offered.append((f"Resolve {case['kind']}", href))
    for event_id in await _event_ids(request, payment_id):
        href = link_operation(session, ReplayEvent, event_id=event_id)
        offered.append(("Send its event again", href))
    return offer(offered)


async def _event_ids(request: Request, payment_id: str) -> list[UUID]:
    parsed = ids.parse_id(ids.PAYMENT, payment_id)
    assert parsed is not None  # noqa: S101 - the payment was read by it
    database = get_console_context(request).database
    subjects = await payment_history.list_subject_ids(database, parsed)
    return [subject_id for what, subject_id in subjects if what == "event"]


def _story_entry(entry: TimelineEntry) -> StoryEntry:
    details = entry.details
    return StoryEntry(
        entry=entry,
        sent=pretty(details["body"]) if "body" in details else None,
        answered=details.get("answer") or None,
        more={
            name.replace("_", " "): value if isinstance(value, str) else json.dumps(value)
            for name, value in details.items()
            if name not in _SAID
        },
    )
