"""Records refunds that were made at a gateway itself: they count, and open a case.

The gateway has moved the money already, so nothing here can refuse it. What it takes is no longer
refundable, the payment becomes PARTIALLY_REFUNDED or REFUNDED, and a person learns of it.
"""

from decimal import ROUND_DOWN, Decimal
from uuid import UUID

from payintent.domain import ids
from payintent.domain.case import CaseKind
from payintent.domain.currencies import CURRENCIES
from payintent.domain.dispute import refundable
from payintent.domain.gateway import GatewayRefundState, RefundReport
from payintent.domain.money import EXACT, format_amount, format_smallest_units
from payintent.domain.outside_reports import OutsideRefund
from payintent.domain.payment import Payment
from payintent.domain.refund import OUTSIDE, RefundStep
from payintent.log import get_logger
from payintent.payments.cases import open_case
from payintent.payments.reported_capture import ReportedCapture, lock_reported_capture
from payintent.payments.settle_refund import settle_refund
from payintent.storage import cases, payments, refunds
from payintent.storage.captures import LockedCapture
from payintent.storage.database import Tx
from payintent.storage.refunds import NewRefund

_log = get_logger("outside_refund")
_REASON = "Made at the payment provider"


class RefundUnderWayError(Exception):
    """Refunds that we requested reserve the money: one of the two will not be done."""


async def record_outside_refund(tx: Tx, account_id: int, report: OutsideRefund) -> UUID | None:
    """Apply a report, however late or often it arrives; returns the payment, if there is one.

    Raises `EarlyReportError` if its money is not known yet, and `RefundUnderWayError` until it is
    known what became of our own refunds of the same money.
    """
    reported = await lock_reported_capture(tx, account_id, report.capture)
    if reported is None:
        _log.warning("outside_refund_unknown", account=account_id, refund=report.reference)
        return None
    refund_id = await refunds.find_by_reference(tx, reported.capture.id, report.reference)
    if refund_id is None:
        refund_id = await _add(tx, reported, report)
    if refund_id is not None:
        as_reported = RefundReport(
            state=report.state, reference=report.reference, detail=report.detail
        )
        await settle_refund(tx, refund_id, as_reported)
    return reported.origin.payment_id


async def open_outside_refund_case(tx: Tx, account_id: int, report: OutsideRefund) -> None:
    """Open the case of a refund that cannot be counted yet, once."""
    reported = await lock_reported_capture(tx, account_id, report.capture)
    if reported is not None:
        await _open_case(tx, reported, report, "not counted: our own refunds reserve this money")


async def _add(tx: Tx, reported: ReportedCapture, report: OutsideRefund) -> UUID | None:
    """Store a refund that is reported for the first time; None if it cannot be counted."""
    capture, amount_minor = reported.capture, report.amount_minor
    is_undone = report.state not in {GatewayRefundState.DONE, GatewayRefundState.PENDING}
    unreturned = capture.remaining_minor + capture.reserved_minor
    is_part = amount_minor <= unreturned and report.currency == capture.currency
    fits = is_part and amount_minor <= capture.remaining_minor
    if amount_minor <= 0 or (is_undone and not fits):
        return None
    if not fits:
        if is_part:
            raise RefundUnderWayError
        await _open_case(tx, reported, report, "not counted: it is no part of what is left")
        return None
    part = await _part(tx, reported.payment, capture, amount_minor)
    if part is None and is_undone:
        return None
    case_id = None if is_undone else await _open_case(tx, reported, report, "counted")
    refund = await refunds.add(
        tx,
        NewRefund(
            id=tx.id_generator.new_id(),
            merchant_id=capture.merchant_id,
            payment_id=capture.payment_id,
            capture_id=capture.id,
            case_id=case_id if part is None else None,
            amount=part,
            amount_text=None if part is None else _text(reported.payment, part),
            currency=reported.payment.currency if part and reported.payment else capture.currency,
            amount_minor=amount_minor,
            reason=_REASON,
            destination=None,
            step=RefundStep.SENT,
            requested_by=OUTSIDE,
            at=reported.now,
            reference=report.reference,
        ),
    )
    return refund.id


async def _part(
    tx: Tx, payment: Payment | None, capture: LockedCapture, amount_minor: int
) -> Decimal | None:
    """Return the part of the payment's amount that a refund gives back.

    None if the capture did not pay a payment, or if the part is too small to be counted.
    """
    if payment is None or not capture.credited:
        return None
    left = payment.amount - payment.refunded_amount
    left -= await payments.get_reserved_amount(tx, payment.id)
    if amount_minor == capture.remaining_minor:
        return left or None
    remaining = capture.remaining_minor - amount_minor
    part = left - refundable(payment.amount, left, capture.amount_minor, remaining)
    places = CURRENCIES[payment.currency].amount_decimals
    return part.quantize(Decimal(1).scaleb(-places), ROUND_DOWN, EXACT) or None


def _text(payment: Payment | None, part: Decimal) -> str | None:
    if payment is None:
        return None
    currency = CURRENCIES[payment.currency]
    return format_amount(part, currency.amount_decimals, trim=currency.crypto)


async def _open_case(tx: Tx, reported: ReportedCapture, report: OutsideRefund, remark: str) -> UUID:
    amount = format_smallest_units(report.amount_minor, report.currency, None, on_chain=False)
    note = f"{report.reference}: {amount or report.amount_minor} {report.currency} {report.state}"
    case_id = await open_case(
        tx,
        CaseKind.OUTSIDE_REFUND,
        reported.origin,
        capture_id=reported.capture.id,
        subject=report.reference,
        note=f"{note}; {remark}",
    )
    if case_id is not None:
        _log.error("outside_refund", case=ids.format_id(ids.CASE, case_id))
        return case_id
    earlier_id = await cases.find_about(
        tx, CaseKind.OUTSIDE_REFUND, reported.origin, report.reference
    )
    assert earlier_id is not None  # noqa: S101 - only an earlier case of the same refund stands
    await cases.add_note(tx, earlier_id, remark)
    return earlier_id
