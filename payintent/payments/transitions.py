"""The only place a payment's status changes: lock, step, write, record the event."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from uuid import UUID

from payintent.domain.event import EventType
from payintent.domain.payment import FailureReason, Payment, Trigger, step
from payintent.domain.session import Session
from payintent.id_generator import Mint
from payintent.payments.serialization import event_body
from payintent.storage import outbox, payments
from payintent.storage.database import Tx


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One trigger for one payment, locked and read in this transaction."""

    payment: Payment
    trigger: Trigger
    at: datetime
    session: Session | None = None  # the one that is selected, or that brought the news
    reason: FailureReason | None = None
    refunded: Decimal | None = None  # what has gone back, of what was reserved


class Overtaken(Exception):  # noqa: N818
    """A payment changed between its lock and its step: it was not locked here. A bug."""


async def lock(tx: Tx, payment_ids: Sequence[UUID]) -> payments.Locked:
    """Lock payments in the order of their ids; what is read is true until the commit."""
    return await payments.lock(tx, payment_ids)


async def advance(tx: Tx, moves: Sequence[Move], mint: Mint) -> list[Payment]:
    """Step locked payments, at most one step each, and record what merchants are told of it.

    Refused (`INVALID_TRANSITION`) where the table has no such arrow; then nothing is written.
    """
    if not moves:
        return []
    arrows = {move.payment.id: step(move.payment.status, move.trigger) for move in moves}
    written = await payments.write(
        tx,
        [
            payments.Change(
                id=move.payment.id,
                version=move.payment.version,
                status=arrows[move.payment.id].to,
                at=move.at,
                session_id=_selected(move),
                receipt_id=mint.id() if move.trigger is Trigger.CONFIRM else None,
                failure_reason=move.reason,
                refunded=move.refunded,
            )
            for move in moves
        ],
    )
    after = {payment.id: payment for payment in written}
    if len(after) != len(moves):
        raise Overtaken(f"{len(moves) - len(after)} of {len(moves)} payments were not locked")
    told = [
        _event(after[move.payment.id], move, kind, mint)
        for move in moves
        if (kind := arrows[move.payment.id].event) is not None
    ]
    await outbox.add(tx, told)
    return [after[move.payment.id] for move in moves]


def _selected(move: Move) -> UUID | None:
    return move.session.id if move.trigger is Trigger.SELECT and move.session else None


def _event(payment: Payment, move: Move, kind: EventType, mint: Mint) -> outbox.Event:
    return outbox.Event(
        id=mint.id(),
        payment_id=payment.id,
        merchant_id=payment.merchant_id,
        type=kind,
        body=event_body(payment, move.session, kind, move.at),
        occurred_at=move.at,
    )
