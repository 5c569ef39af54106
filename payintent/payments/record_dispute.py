"""Applies reports of disputes: a case, and money that cannot be refunded.

A payment's status never changes by a dispute: the specification has no such status.
"""

from uuid import UUID

from payintent.domain import ids
from payintent.domain.case import CaseKind, MoneyOrigin
from payintent.domain.dispute import Dispute, comes_back, follow
from payintent.domain.gateway import DisputeReport
from payintent.log import get_logger
from payintent.payments.cases import open_case
from payintent.payments.transitions import lock_payments
from payintent.storage import captures, cases, disputes, sessions
from payintent.storage.captures import FoundCapture
from payintent.storage.database import Tx

_log = get_logger("dispute")


class EarlyDisputeError(Exception):
    """The dispute is of money that is not known yet, of a session that is."""

    def __init__(self, session_id: UUID) -> None:
        super().__init__(session_id)
        self.session_id = session_id


async def take_dispute(tx: Tx, account_id: int, report: DisputeReport) -> UUID | None:
    """Apply a report, however late or out of order it comes; returns the payment, if any.

    The payment is locked first, then the capture, then the dispute. A dispute of a capture that we
    never had is another shop's at the same gateway, and is only logged; where it may be that of a
    session that runs, `EarlyDisputeError` is raised.
    """
    # Before the capture is looked for: money that comes meanwhile is found.
    running_id = await sessions.find_running(tx, account_id, report.capture)
    found = await captures.find(tx, account_id, report.capture)
    if found is None and running_id is not None:
        raise EarlyDisputeError(running_id)
    if found is None:
        _log.warning("dispute_unknown", account=account_id, dispute=report.reference)
        return None
    if found.payment_id is not None:
        await lock_payments(tx, [found.payment_id])
    locked = await captures.lock(tx, found.id)
    if locked.payment_id != found.payment_id:  # adopted meanwhile: the payment is locked first
        adopted = await captures.find(tx, account_id, report.capture)
        assert adopted is not None and adopted.session_id is not None  # noqa: S101, PT018 - it was
        raise EarlyDisputeError(adopted.session_id)
    before = await disputes.lock(tx, account_id, report.reference)
    if before is None:
        await _open(tx, account_id, found, report)
        return found.payment_id
    after = follow(before, report)
    if after != before:
        await disputes.update(tx, after)
        if comes_back(before, after):
            await cases.reopen(tx, after.case_id)
        await cases.add_note(tx, after.case_id, _describe(after))
        _log.warning(
            "dispute_followed", case=ids.format_id(ids.CASE, after.case_id), state=after.state
        )
    return found.payment_id


async def _open(tx: Tx, account_id: int, found: FoundCapture, report: DisputeReport) -> None:
    origin = MoneyOrigin(
        merchant_id=found.merchant_id,
        payment_id=found.payment_id,
        session_id=found.session_id,
    )
    case_id = await open_case(
        tx,
        CaseKind.DISPUTE,
        origin,
        capture_id=found.id,
        subject=report.reference,
        note=_describe(report),
    )
    assert case_id is not None  # noqa: S101 - the dispute is new, and it is the subject
    dispute = Dispute(
        id=tx.id_generator.new_id(),
        capture_id=found.id,
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
