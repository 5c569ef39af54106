"""Locks the capture of a gateway's report, after its payment."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from payintent.domain.case import MoneyOrigin
from payintent.domain.payment import Payment
from payintent.payments.transitions import lock_payments
from payintent.storage import captures, sessions
from payintent.storage.captures import LockedCapture
from payintent.storage.database import Tx, current_time


class EarlyReportError(Exception):
    """The report's capture is not known yet, but its session is."""

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
    """Lock the payment and then the capture with a gateway's reference.

    Returns None for an unknown capture, which belongs to a different shop at the gateway. Raises
    `EarlyReportError` if it may belong to a session that has not ended.
    """
    # Queried before the capture, so that a capture that is stored in between is found.
    running_id = await sessions.find_running(tx, account_id, reference)
    unlocked = await captures.find(tx, account_id, reference)
    if unlocked is None and running_id is not None:
        raise EarlyReportError(running_id)
    if unlocked is None:
        return None
    payment, now = None, await current_time(tx)
    if unlocked.payment_id is not None:
        locked_payments = await lock_payments(tx, [unlocked.payment_id])
        payment, now = locked_payments.payments[0], locked_payments.now
    capture = await captures.lock(tx, unlocked.id)
    if capture.payment_id != unlocked.payment_id:  # adopted in between
        adopted = await captures.find(tx, account_id, reference)
        assert adopted is not None and adopted.session_id is not None  # noqa: S101, PT018 - it was
        raise EarlyReportError(adopted.session_id)
    origin = MoneyOrigin(
        merchant_id=unlocked.merchant_id,
        payment_id=unlocked.payment_id,
        session_id=unlocked.session_id,
    )
    return ReportedCapture(capture, origin, payment, now)
