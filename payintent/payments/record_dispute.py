"""Applies reports of disputes: a case, and money that cannot be refunded.

A payment's status never changes by a dispute: the specification has no such status.
"""

from uuid import UUID

from payintent.domain import ids
from payintent.domain.case import CaseKind
from payintent.domain.dispute import Dispute, comes_back, follow
from payintent.domain.gateway import DisputeReport
from payintent.log import get_logger
from payintent.payments.cases import open_case
from payintent.payments.reported_capture import ReportedCapture, lock_reported_capture
from payintent.storage import cases, disputes
from payintent.storage.database import Tx

_log = get_logger("dispute")


async def take_dispute(tx: Tx, account_id: int, report: DisputeReport) -> UUID | None:
    """Apply a report, however late or out of order it comes; returns the payment, if any.

    The payment is locked first, then the capture, then the dispute. Raises `EarlyReportError` if
    the money is not known yet; a dispute of a capture that we never had is only logged.
    """
    reported = await lock_reported_capture(tx, account_id, report.capture)
    if reported is None:
        _log.warning("dispute_unknown", account=account_id, dispute=report.reference)
        return None
    before = await disputes.lock(tx, account_id, report.reference)
    if before is None:
        await _open(tx, account_id, reported, report)
        return reported.origin.payment_id
    after = follow(before, report)
    if after != before:
        await disputes.update(tx, after)
        if comes_back(before, after):
            await cases.reopen(tx, after.case_id)
        await cases.add_note(tx, after.case_id, _describe(after))
        _log.warning(
            "dispute_followed", case=ids.format_id(ids.CASE, after.case_id), state=after.state
        )
    return reported.origin.payment_id


async def _open(tx: Tx, account_id: int, reported: ReportedCapture, report: DisputeReport) -> None:
    case_id = await open_case(
        tx,
        CaseKind.DISPUTE,
        reported.origin,
        capture_id=reported.capture.id,
        subject=report.reference,
        note=_describe(report),
    )
    assert case_id is not None  # noqa: S101 - the dispute is new, and it is the subject
    dispute = Dispute(
        id=tx.id_generator.new_id(),
        capture_id=reported.capture.id,
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
