"""PAID → PARTIALLY_REFUNDED → REFUNDED: applies what a gateway reports of a refund."""

from datetime import datetime
from uuid import UUID

from payintent.domain import ids
from payintent.domain.case import CaseKind
from payintent.domain.gateway import RefundReport
from payintent.domain.payment import Payment, PaymentTrigger
from payintent.domain.refund import Refund, RefundEffect, RefundFailureReason, decide_refund
from payintent.log import get_logger
from payintent.payments.cases import open_case, refund_origin
from payintent.payments.transitions import TransitionRequest, apply_transitions, lock_payments
from payintent.storage import captures, cases, refund_reviews, refunds
from payintent.storage.database import Tx, current_time

_log = get_logger("settle_refund")
_NOTE_MAX = 500
_DONE_AFTER_ALL = "its gateway says now that the money has gone back"


async def settle_refund(tx: Tx, refund_id: UUID, report: RefundReport) -> RefundEffect:
    """Apply a report: however often, late or out of order it comes, it takes effect once."""
    payment, refund, now = await lock_refund(tx, refund_id)
    effect = decide_refund(refund.status, report)
    if effect is RefundEffect.SUCCEED:
        await _succeed(tx, payment, refund, report, now)
    elif effect is RefundEffect.FAIL:
        await refunds.mark_failed(tx, refund, RefundFailureReason.DECLINED, report.reference, now)
        if report.detail and not refund.note:  # an operator reads why; nobody else does
            await refund_reviews.add_note(tx, refund.id, report.detail[:_NOTE_MAX])
    elif effect is RefundEffect.CONTRADICT:
        await _contradict(tx, refund)
    elif report.reference is not None and refund.reference is None:
        await refunds.set_reference(tx, refund.id, report.reference)
    return effect


async def lock_refund(tx: Tx, refund_id: UUID) -> tuple[Payment | None, Refund, datetime]:
    """Lock the payment first, then the capture, then the refund; returns the time too."""
    refund_before = await refunds.get(tx, refund_id)
    assert refund_before is not None  # noqa: S101 - refunds are never deleted
    payment = None
    if refund_before.payment_id is not None:
        locked = await lock_payments(tx, [refund_before.payment_id])
        payment, now = locked.payments[0], locked.now
    else:
        now = await current_time(tx)
    await captures.lock(tx, refund_before.capture_id)
    return payment, await refunds.lock(tx, refund_id), now


async def _succeed(
    tx: Tx, payment: Payment | None, refund: Refund, report: RefundReport, now: datetime
) -> None:
    await refunds.mark_succeeded(tx, refund, report.reference, now)
    if refund.case_id is not None:
        note = f"{ids.format_id(ids.REFUND, refund.id)} has gone back"
        await cases.close(tx, refund.case_id, "REFUNDED", refund.requested_by, note)
        await cases.close_refunded(tx, refund.capture_id, refund.requested_by, note)
    if refund.amount is None or payment is None:
        return
    rest = payment.refunded_amount + refund.amount == payment.amount
    move = TransitionRequest(
        payment=payment,
        trigger=PaymentTrigger.REFUND_REST if rest else PaymentTrigger.REFUND_PART,
        at=now,
        refunded=refund.amount,
    )
    await apply_transitions(tx, [move])


async def _contradict(tx: Tx, refund: Refund) -> None:
    """Keep what was said, and let a person look: the money is elsewhere than we have told.

    Once, also where the refund has had a case already because nobody heard its end.
    """
    failed = refund.failure_reason is not None
    kind = CaseKind.RECONCILIATION if failed else CaseKind.REFUND_REVERSED
    note = _DONE_AFTER_ALL if failed else ""
    opened = await open_case(
        tx,
        kind,
        refund_origin(refund),
        capture_id=refund.capture_id,
        refund_id=refund.id,
        note=note,
    )
    if opened is not None or (
        failed and await cases.reopen_for_refund(tx, refund.id, note, once=True)
    ):
        _log.error("refund_contradicted", refund=ids.format_id(ids.REFUND, refund.id), case=kind)
