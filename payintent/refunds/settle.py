"""Settle refunds from gateway reports and update the status of their payments."""

from datetime import datetime
from uuid import UUID

from payintent.cases import store as case_store
from payintent.cases.model import CaseKind
from payintent.cases.store import open_case
from payintent.core import ids
from payintent.db.database import Tx, get_current_time
from payintent.gateways.port import RefundReport
from payintent.payments import captures_store as capture_store
from payintent.payments import store as payment_store
from payintent.payments.captures_store import MoneyOrigin
from payintent.payments.model import Payment, PaymentTrigger, TransitionRequest
from payintent.payments.transitions import apply_transitions
from payintent.refunds import list_store as refund_lists
from payintent.refunds import store as refund_store
from payintent.refunds.model import Refund, RefundEffect, RefundFailureReason, decide_refund
from payintent.runtime.log import get_logger

_log = get_logger("settle_refund")
_NOTE_MAX = 500
_REFUNDED_LATER = "the gateway now reports that the money was refunded"


async def settle_refund(tx: Tx, refund_id: UUID, report: RefundReport) -> RefundEffect:
    """Apply a gateway report. Duplicate, late and out-of-order reports are safe."""
    payment, refund, now = await lock_refund(tx, refund_id)
    effect = decide_refund(refund.status, report)
    if effect is RefundEffect.SUCCEED:
        await _apply_success(tx, payment, refund, report, now)
    elif effect is RefundEffect.FAIL:
        await refund_store.mark_failed(
            tx, refund, RefundFailureReason.DECLINED, report.reference, now
        )
        if report.detail:  # the note is visible only to operators
            note = f"{refund.note}; {report.detail}" if refund.note else report.detail
            await refund_lists.add_note(tx, refund.id, note[:_NOTE_MAX])
    elif effect is RefundEffect.CONTRADICT:
        await _report_contradiction(tx, refund)
    elif report.reference is not None and refund.reference is None:
        await refund_store.set_reference(tx, refund.id, report.reference)
    return effect


async def lock_refund(tx: Tx, refund_id: UUID) -> tuple[Payment | None, Refund, datetime]:
    """Lock the payment, the capture and the refund, in this order; also return the time."""
    unlocked_refund = await refund_store.get(tx, refund_id)
    assert unlocked_refund is not None  # noqa: S101 - refunds are never deleted
    payment = None
    if unlocked_refund.payment_id is not None:
        payment, now = await payment_store.lock_payment(tx, unlocked_refund.payment_id)
    else:
        now = await get_current_time(tx)
    await capture_store.lock(tx, unlocked_refund.capture_id)
    return payment, await refund_store.lock(tx, refund_id), now


async def _apply_success(
    tx: Tx, payment: Payment | None, refund: Refund, report: RefundReport, now: datetime
) -> None:
    await refund_store.mark_succeeded(tx, refund, report.reference, now)
    if refund.case_id is not None:
        note = f"{ids.format_id(ids.REFUND, refund.id)} succeeded"
        await case_store.close(tx, refund.case_id, "REFUNDED", refund.requested_by, note)
        await case_store.close_refunded_cases(tx, refund.capture_id, refund.requested_by, note)
    if refund.amount is None or payment is None:
        return
    is_final = payment.refunded_amount + refund.amount == payment.amount
    transition = TransitionRequest(
        payment=payment,
        trigger=PaymentTrigger.FINAL_REFUND if is_final else PaymentTrigger.PARTIAL_REFUND,
        at=now,
        refund_amount=refund.amount,
    )
    await apply_transitions(tx, [transition])


async def _report_contradiction(tx: Tx, refund: Refund) -> None:
    """Open a case, at most once, because a report contradicts the refund's final status.

    A refund that was handed over to an operator already has a case, which is reopened instead.
    """
    has_failed = refund.failure_reason is not None
    kind = CaseKind.RECONCILIATION if has_failed else CaseKind.REFUND_REVERSED
    note = _REFUNDED_LATER if has_failed else ""
    case_id = await open_case(
        tx,
        kind,
        make_refund_origin(refund),
        capture_id=refund.capture_id,
        refund_id=refund.id,
        note=note,
    )
    if case_id is not None or (
        has_failed and await case_store.reopen_for_refund(tx, refund.id, note, once=True)
    ):
        _log.error("refund_contradicted", refund=ids.format_id(ids.REFUND, refund.id), case=kind)


def make_refund_origin(refund: Refund) -> MoneyOrigin:
    return MoneyOrigin(
        merchant_id=refund.merchant_id,
        payment_id=refund.payment_id,
        session_id=None,  # taken from the capture
    )
