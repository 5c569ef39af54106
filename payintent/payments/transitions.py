"""Apply every payment status change and record its event."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from functools import partial
from uuid import UUID

from payintent.db.database import Tx
from payintent.gateways.port import FailureReason
from payintent.payments import store as payment_store
from payintent.payments.model import Payment, PaymentTrigger, Session, find_transition
from payintent.payments.serialization import event_body
from payintent.runtime import tracing
from payintent.runtime.id_generator import IdGenerator
from payintent.webhooks import outbox_store
from payintent.webhooks.model import EventType


@dataclass(frozen=True, slots=True, kw_only=True)
class TransitionRequest:
    """A trigger to apply to a payment. The payment must be locked."""

    payment: Payment
    trigger: PaymentTrigger
    at: datetime
    session: Session | None = None  # the selected or reported session
    reason: FailureReason | None = None
    refunded: Decimal | None = None  # the refunded part of the reserved amount


class ConcurrentChangeError(Exception):
    """A payment changed concurrently because it was not locked. This indicates a bug."""


async def apply_transitions(tx: Tx, requests: Sequence[TransitionRequest]) -> list[Payment]:
    """Apply at most one transition to each payment, and record the events.

    The payments must be locked. Raises `INVALID_TRANSITION`, without writing anything, if a
    transition does not exist.
    """
    if not requests:
        return []
    started_s = time.monotonic()
    transitions = {
        move.payment.id: find_transition(move.payment.status, move.trigger) for move in requests
    }
    changed_payments = await payment_store.write_changes(
        tx,
        [
            payment_store.PaymentChange(
                id=move.payment.id,
                version=move.payment.version,
                status=transitions[move.payment.id].to,
                at=move.at,
                session_id=move.session.id
                if move.trigger is PaymentTrigger.SELECT and move.session
                else None,
                receipt_id=tx.id_generator.new_id()
                if move.trigger is PaymentTrigger.CONFIRM
                else None,
                failure_reason=move.reason,
                refunded=move.refunded,
            )
            for move in requests
        ],
    )
    after = {payment.id: payment for payment in changed_payments}
    if len(after) != len(requests):
        raise ConcurrentChangeError(
            f"{len(requests) - len(after)} of {len(requests)} payments were not locked"
        )
    events = [
        _event(after[move.payment.id], move, kind, tx.id_generator)
        for move in requests
        if (kind := transitions[move.payment.id].event) is not None
    ]
    await outbox_store.add(tx, events)
    if tracing.is_enabled():
        tx.after_commit.append(partial(_trace, requests, after, started_s))
    return [after[move.payment.id] for move in requests]


def _trace(
    requests: Sequence[TransitionRequest], after: Mapping[UUID, Payment], started_s: float
) -> None:
    duration_s = time.monotonic() - started_s
    for move in requests:
        status = after[move.payment.id].status.value
        attributes = {
            "payintent.trigger": move.trigger.value,
            "payintent.status_before": move.payment.status.value,
        }
        tracing.record(f"payment {status}", move.payment.id, duration_s, attributes)


def _event(
    payment: Payment, move: TransitionRequest, kind: EventType, id_generator: IdGenerator
) -> outbox_store.EventRecord:
    return outbox_store.EventRecord(
        id=id_generator.new_id(),
        payment_id=payment.id,
        merchant_id=payment.merchant_id,
        type=kind,
        body=event_body(payment, move.session, kind, move.at),
        occurred_at=move.at,
    )
