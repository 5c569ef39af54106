"""Records disputes: each opens a case and blocks refunds of the disputed money.

A dispute never changes a payment's status, since the specification has no status for it.
"""

from uuid import UUID

from payintent.domain import ids
from payintent.domain.case import CaseKind
from payintent.domain.dispute import Dispute, apply_report, needs_review_again
from payintent.domain.gateway import DisputeReport
from payintent.log import get_logger
from payintent.payments.cases import open_case
from payintent.payments.reported_capture import ReportedCapture, lock_reported_capture
from payintent.storage import cases, disputes
from payintent.storage.database import Tx

_log = get_logger("dispute")


async def record_dispute(tx: Tx, account_id: int, report: DisputeReport) -> UUID | None:
    """Apply a report, however late or out of order it arrives; return the payment's id.

    Locks the payment, the capture and the dispute, in this order. Raises `EarlyReportError` if the
    capture is not known yet. A dispute of an unknown capture is only logged.
    """
    reported_capture = await lock_reported_capture(tx, account_id, report.capture)
    if reported_capture is None:
        _log.warning("dispute_unknown", account=account_id, dispute=report.reference)
        return None
    before = await disputes.lock(tx, account_id, report.reference)
    if before is None:
        await _open_dispute(tx, account_id, reported_capture, report)
        return reported_capture.origin.payment_id
    after = apply_report(before, report)
    if after != before:
        await disputes.update(tx, after)
        if needs_review_again(before, after):
            await cases.reopen(tx, after.case_id)
        await cases.add_note(tx, after.case_id, _describe(after))
        _log.warning(
            "dispute_followed", case=ids.format_id(ids.CASE, after.case_id), state=after.state
        )
    return reported_capture.origin.payment_id


async def _open_dispute(
    tx: Tx, account_id: int, reported_capture: ReportedCapture, report: DisputeReport
) -> None:
    case_id = await open_case(
        tx,
        CaseKind.DISPUTE,
        reported_capture.origin,
        capture_id=reported_capture.capture.id,
        subject=report.reference,
        note=_describe(report),
    )
    assert case_id is not None  # noqa: S101 - the subject is a new dispute
    dispute = Dispute(
        id=tx.id_generator.new_id(),
        capture_id=reported_capture.capture.id,
        case_id=case_id,
        account_id=account_id,
        reference=report.reference,
        state=report.state,
        funds=report.funds,
        amount_minor=report.amount_minor,
        currency=report.currency,
        reason=report.reason,
        respond_by=report.respond_by,
    )
    await disputes.add(tx, dispute)
    _log.error("dispute_opened", case=ids.format_id(ids.CASE, case_id), state=dispute.state)


def _describe(dispute: Dispute | DisputeReport) -> str:
    return f"dispute {dispute.state}, money {dispute.funds}"
