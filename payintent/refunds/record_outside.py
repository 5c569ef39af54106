"""Record refunds made directly at the gateway.

The gateway has already returned the money, so these refunds cannot be rejected. They reduce the
refundable amount, change the payment to PARTIALLY_REFUNDED or REFUNDED, and open a case for the
operator.
"""

from decimal import ROUND_DOWN, Decimal
from uuid import UUID

from payintent.cases import store as case_store
from payintent.cases.model import CaseKind
from payintent.cases.store import open_case
from payintent.core import ids
from payintent.core.money import CURRENCIES, EXACT, format_smallest_units
from payintent.db.database import Tx
from payintent.disputes.model import compute_undisputed_amount
from payintent.disputes.record import ReportedCapture, lock_reported_capture
from payintent.gateways.port import GatewayRefundState, OutsideRefund, RefundReport
from payintent.payments import store as payment_store
from payintent.payments.captures_store import LockedCapture
from payintent.payments.model import Payment
from payintent.refunds import store as refund_store
from payintent.refunds.model import OUTSIDE_REQUESTER, RefundStep, format_payment_amount
from payintent.refunds.settle import settle_refund
from payintent.refunds.store import NewRefund
from payintent.runtime.log import get_logger

_log = get_logger("outside_refund")
_REASON = "Made at the payment provider"


class RefundInProgressError(Exception):
    """The money is reserved by pending refunds that were requested through this service."""


async def record_outside_refund(tx: Tx, account_id: int, report: OutsideRefund) -> UUID | None:
    """Apply a report and return the payment's id. Duplicate and late reports are safe.

    Raises `EarlyReportError` if the capture is not recorded yet, and `RefundInProgressError` while
    pending refunds that were requested through this service reserve the same money.
    """
    reported_capture = await lock_reported_capture(tx, account_id, report.capture)
    if reported_capture is None:
        _log.warning("outside_refund_unknown", account=account_id, refund=report.reference)
        return None
    refund_id = await refund_store.find_by_reference(
        tx, reported_capture.capture.id, report.reference
    )
    if refund_id is None:
        refund_id = await _add_refund(tx, reported_capture, report)
    if refund_id is not None:
        refund_report = RefundReport(
            state=report.state, reference=report.reference, detail=report.detail
        )
        await settle_refund(tx, refund_id, refund_report)
    return reported_capture.origin.payment_id


async def open_outside_refund_case(tx: Tx, account_id: int, report: OutsideRefund) -> None:
    """Open a case for a refund that cannot be counted yet, unless it already has a case."""
    reported_capture = await lock_reported_capture(tx, account_id, report.capture)
    if reported_capture is not None:
        await _open_case(
            tx,
            reported_capture,
            report,
            "not counted: this money is reserved by refunds requested through this service",
        )


async def _add_refund(
    tx: Tx, reported_capture: ReportedCapture, report: OutsideRefund
) -> UUID | None:
    """Store a newly reported refund; return its id, or None if it cannot be counted."""
    capture, amount_minor = reported_capture.capture, report.amount_minor
    has_failed = report.state not in {GatewayRefundState.DONE, GatewayRefundState.PENDING}
    unrefunded_minor = capture.remaining_minor + capture.reserved_minor
    fits_capture = amount_minor <= unrefunded_minor and report.currency == capture.currency
    fits_remainder = fits_capture and amount_minor <= capture.remaining_minor
    is_countable = fits_remainder and amount_minor <= capture.undisputed_minor
    if amount_minor <= 0 or (has_failed and not is_countable):
        return None
    if fits_capture and not fits_remainder:
        raise RefundInProgressError
    if not is_countable:
        problem = (
            "this money is disputed"
            if fits_remainder
            else "it exceeds the capture's remaining amount"
        )
        await _open_case(tx, reported_capture, report, f"not counted: {problem}")
        return None
    amount = await _to_payment_amount(tx, reported_capture.payment, capture, amount_minor)
    if amount is None and has_failed:
        return None
    case_id = None if has_failed else await _open_case(tx, reported_capture, report, "counted")
    payment, amount_text = (None if amount is None else reported_capture.payment), None
    if payment is not None and amount is not None:
        amount_text = format_payment_amount(amount, payment.currency)
    refund = await refund_store.add(
        tx,
        NewRefund(
            id=tx.id_generator.new_id(),
            merchant_id=capture.merchant_id,
            payment_id=capture.payment_id,
            capture_id=capture.id,
            case_id=case_id if amount is None else None,
            amount=amount,
            amount_text=amount_text,
            currency=payment.currency if payment else capture.currency,
            amount_minor=amount_minor,
            reason=_REASON,
            step=RefundStep.SENT,
            requested_by=OUTSIDE_REQUESTER,
            at=reported_capture.now,
            reference=report.reference,
        ),
    )
    return refund.id


async def _to_payment_amount(
    tx: Tx, payment: Payment | None, capture: LockedCapture, amount_minor: int
) -> Decimal | None:
    """Convert a refund's amount to the payment's currency.

    Returns None if the capture was not credited to a payment, or if the amount rounds to zero.
    """
    if payment is None or not capture.credited:
        return None
    remainder = payment.amount - payment.refunded_amount
    remainder -= await payment_store.get_reserved_amount(tx, payment.id)
    if amount_minor == capture.remaining_minor:
        return remainder or None
    remaining_minor = capture.remaining_minor - amount_minor
    amount = remainder - compute_undisputed_amount(
        payment.amount, remainder, capture.amount_minor, remaining_minor
    )
    places = CURRENCIES[payment.currency].amount_decimals
    return amount.quantize(Decimal(1).scaleb(-places), ROUND_DOWN, EXACT) or None


async def _open_case(
    tx: Tx, reported_capture: ReportedCapture, report: OutsideRefund, remark: str
) -> UUID:
    amount = format_smallest_units(report.amount_minor, report.currency, None, on_chain=False)
    note = f"{report.reference}: {amount or report.amount_minor} {report.currency} {report.state}"
    case_id = await open_case(
        tx,
        CaseKind.OUTSIDE_REFUND,
        reported_capture.origin,
        capture_id=reported_capture.capture.id,
        subject=report.reference,
        note=f"{note}; {remark}",
    )
    if case_id is not None:
        _log.error("outside_refund", case=ids.format_id(ids.CASE, case_id))
        return case_id
    existing_id = await case_store.find_by_subject(
        tx, CaseKind.OUTSIDE_REFUND, report.reference, reported_capture.origin.session_id
    )
    assert existing_id is not None  # noqa: S101 - the case already exists
    await case_store.add_note(tx, existing_id, remark)
    return existing_id
