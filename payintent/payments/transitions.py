"""Change the status of payments and record the events. Every status change happens here."""

import time
from collections.abc import Mapping, Sequence
from functools import partial
from uuid import UUID

from payintent.db.database import Tx
from payintent.payments import store as payment_store
from payintent.payments.model import Payment, TransitionRequest
from payintent.payments.serialization import make_event_body
from payintent.runtime import tracing
from payintent.runtime.id_generator import IdGenerator
from payintent.webhooks import outbox_store
from payintent.webhooks.model import EventType


class ConcurrentChangeError(Exception):
    """A payment has changed because it was not locked. This indicates a bug."""


async def apply_transitions(tx: Tx, requests: Sequence[TransitionRequest]) -> list[Payment]:
    """Apply at most one transition per payment and record the events. The payments must be locked.

    Raises `INVALID_TRANSITION`, without writing anything, if a transition does not exist.
    """
    if not requests:
        return []
    started_s = time.monotonic()
    changed_payments = await payment_store.write_changes(tx, requests)
    changed_by_id = {payment.id: payment for payment in changed_payments}
    if len(changed_by_id) != len(requests):
        raise ConcurrentChangeError(
            f"{len(requests) - len(changed_by_id)} of {len(requests)} payments were not locked"
        )
    events = [
        _build_event(changed_by_id[request.payment.id], request, kind, tx.id_generator)
        for request in requests
        if (kind := request.transition.event) is not None
    ]
    await outbox_store.add(tx, events)
    if tracing.is_enabled():
        tx.after_commit.append(partial(_record_trace, requests, changed_by_id, started_s))
    return [changed_by_id[request.payment.id] for request in requests]


def _record_trace(
    requests: Sequence[TransitionRequest], changed_by_id: Mapping[UUID, Payment], started_s: float
) -> None:
    duration_s = time.monotonic() - started_s
    for request in requests:
        status = changed_by_id[request.payment.id].status.value
        attributes = {
            "payintent.trigger": request.trigger.value,
            "payintent.status_before": request.payment.status.value,
        }
        tracing.record(f"payment {status}", request.payment.id, duration_s, attributes)


def _build_event(
    payment: Payment, request: TransitionRequest, kind: EventType, id_generator: IdGenerator
) -> outbox_store.EventRecord:
    return outbox_store.EventRecord(
        id=id_generator.new_id(),
        payment_id=payment.id,
        merchant_id=payment.merchant_id,
        type=kind,
        body=make_event_body(payment, request.session, kind, request.at),
        occurred_at=request.at,
    )
