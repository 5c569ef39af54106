"""Records fraud warnings of card issuers: a timely refund may prevent a dispute."""

from uuid import UUID

from payintent.domain import ids
from payintent.domain.case import CaseKind
from payintent.domain.outside_reports import FraudWarning
from payintent.log import get_logger
from payintent.payments.cases import open_case
from payintent.payments.reported_capture import lock_reported_capture
from payintent.storage.database import Tx

_log = get_logger("fraud_warning")


async def record_fraud_warning(tx: Tx, account_id: int, warning: FraudWarning) -> UUID | None:
    """Open a case, once for each warning; return the payment's id.

    Raises `EarlyReportError` if the capture is not known yet.
    """
    reported_capture = await lock_reported_capture(tx, account_id, warning.capture)
    if reported_capture is None:
        _log.warning("fraud_warning_unknown", account=account_id, warning=warning.reference)
        return None
    case_id = await open_case(
        tx,
        CaseKind.FRAUD_WARNING,
        reported_capture.origin,
        capture_id=reported_capture.capture.id,
        subject=warning.reference,
        note=": ".join(filter(None, ["the issuer warns of fraud", warning.reason])),
    )
    if case_id is not None:
        _log.error("fraud_warning", case=ids.format_id(ids.CASE, case_id))
    return reported_capture.origin.payment_id
