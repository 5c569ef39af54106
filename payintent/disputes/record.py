"""Record disputes and fraud warnings that gateways report.

A dispute opens a case and blocks refunds of the disputed amount. It never changes the payment's
status, because the specification has no status for disputed payments.
"""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from payintent.cases import store as case_store
from payintent.cases.model import CaseKind
from payintent.cases.store import open_case
from payintent.core import ids
from payintent.db.database import Tx, get_current_time
from payintent.disputes import store as dispute_store
from payintent.disputes.model import Dispute, apply_report, needs_reopening
from payintent.gateways.port import DisputeReport, FraudWarning
from payintent.payments import captures_store as capture_store
from payintent.payments import sessions_store as session_store
from payintent.payments import store as payment_store
from payintent.payments.captures_store import LockedCapture, MoneyOrigin
from payintent.payments.model import Payment
from payintent.runtime.log import get_logger

_log = get_logger("dispute")
_warning_log = get_logger("fraud_warning")


class EarlyReportError(Exception):
    """The report's session is known, but its capture has not been recorded yet."""

    def __init__(self, session_id: UUID) -> None:
        super().__init__(session_id)
        self.session_id = session_id


@dataclass(frozen=True, slots=True)
class ReportedCapture:
    capture: LockedCapture
    origin: MoneyOrigin
    payment: Payment | None
    now: datetime


async def lock_reported_capture(tx: Tx, account_id: int, reference: str) -> ReportedCapture | None:
    """Lock the capture with a gateway's reference, after locking its payment.

    Raises `EarlyReportError` if the capture is unknown, but may belong to a session that has not
    ended. Returns None for any other unknown capture, such as one of another shop that uses the
    same gateway account.
    """
    # Query sessions first, so that a capture stored between the two queries is found.
    unfinished_session_id = await session_store.find_unfinished_id(tx, account_id, reference)
    stored_capture = await capture_store.find(tx, account_id, reference)
    if stored_capture is None and unfinished_session_id is not None:
        raise EarlyReportError(unfinished_session_id)
    if stored_capture is None:
        return None
    payment, now = None, await get_current_time(tx)
    if stored_capture.payment_id is not None:
        payment, now = await payment_store.lock_payment(tx, stored_capture.payment_id)
    capture = await capture_store.lock(tx, stored_capture.id)
    if capture.payment_id != stored_capture.payment_id:  # assigned before the lock
        record = await capture_store.find(tx, account_id, reference)
        assert record is not None and record.session_id is not None  # noqa: S101, PT018 - assigned
        raise EarlyReportError(record.session_id)
    return ReportedCapture(capture, stored_capture, payment, now)


async def record_dispute(tx: Tx, account_id: int, report: DisputeReport) -> UUID | None:
    """Apply a report and return the payment's id. Late and out-of-order reports are safe.

    Locks the payment, the capture and the dispute, in this order. Raises `EarlyReportError` if the
    capture is not recorded yet. A dispute over another shop's capture is only logged.
    """
    reported_capture = await lock_reported_capture(tx, account_id, report.capture)
    if reported_capture is None:
        _log.warning("dispute_unknown", account=account_id, dispute=report.reference)
        return None
    dispute = await dispute_store.lock(tx, account_id, report.reference)
    if dispute is None:
        await _open_dispute(tx, account_id, reported_capture, report)
        return reported_capture.origin.payment_id
    changed_dispute = apply_report(dispute, report)
    if changed_dispute != dispute:
        await dispute_store.write(tx, changed_dispute)
        if needs_reopening(dispute, changed_dispute):
            await case_store.reopen(tx, changed_dispute.case_id)
        await case_store.add_note(tx, changed_dispute.case_id, _describe_dispute(changed_dispute))
        _log.warning(
            "dispute_followed",
            case=ids.format_id(ids.CASE, changed_dispute.case_id),
            state=changed_dispute.state,
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
        note=_describe_dispute(report),
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
    await dispute_store.write(tx, dispute)
    _log.error("dispute_opened", case=ids.format_id(ids.CASE, case_id), state=dispute.state)


def _describe_dispute(dispute: Dispute | DisputeReport) -> str:
    return f"dispute {dispute.state}, money {dispute.funds}"


async def record_fraud_warning(tx: Tx, account_id: int, warning: FraudWarning) -> UUID | None:
    """Open a case for a new warning, and return the payment's id.

    Raises `EarlyReportError` if the capture is not recorded yet.
    """
    reported_capture = await lock_reported_capture(tx, account_id, warning.capture)
    if reported_capture is None:
        _warning_log.warning("fraud_warning_unknown", account=account_id, warning=warning.reference)
        return None
    case_id = await open_case(
        tx,
        CaseKind.FRAUD_WARNING,
        reported_capture.origin,
        capture_id=reported_capture.capture.id,
        subject=warning.reference,
        note=": ".join(filter(None, ["the issuer suspects fraud", warning.reason])),
    )
    if case_id is not None:
        _warning_log.error("fraud_warning", case=ids.format_id(ids.CASE, case_id))
    return reported_capture.origin.payment_id
