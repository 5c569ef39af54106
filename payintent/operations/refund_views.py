"""A refund as an operator reads it."""

from dataclasses import dataclass
from datetime import datetime

from payintent.domain import ids
from payintent.domain.money import format_smallest_units
from payintent.operations.json_values import to_hex_or_none
from payintent.storage.refund_reviews import RefundReview


@dataclass(frozen=True, slots=True, kw_only=True)
class RefundView:
    id: str
    status: str
    step: str
    failure_reason: str | None
    merchant_id: int | None
    payment_id: str | None
    case_id: str | None
    provider: str
    account_id: int
    capture_reference: str
    amount: str | None  # a part of the payment's amount; for a case, all that was left
    currency: str
    amount_minor: str  # what the gateway refunds, in the capture's smallest units
    goes_back: str | None  # the same in words; None: the decimals of its token are unknown
    chain: str | None
    payer: str | None
    destination: str | None
    reason: str | None
    requested_by: str
    approved_by: str | None
    note: str
    reference: str | None
    inquiries: int
    sent_at: datetime | None
    created_at: datetime
    updated_at: datetime


def _goes_back(review: RefundReview) -> str | None:
    currency = review.token_symbol or review.capture_currency
    amount = format_smallest_units(
        int(review.amount_minor),
        currency,
        review.token_decimals,
        on_chain=review.chain is not None,
    )
    return None if amount is None else f"{amount} {currency}"


def refund_view(review: RefundReview) -> RefundView:
    return RefundView(
        id=ids.format_id(ids.REFUND, review.id),
        status=review.status,
        step=review.step,
        failure_reason=review.failure_reason,
        merchant_id=review.merchant_id,
        payment_id=review.payment_id and ids.format_id(ids.PAYMENT, review.payment_id),
        case_id=review.case_id and ids.format_id(ids.CASE, review.case_id),
        provider=review.provider,
        account_id=review.account_id,
        capture_reference=review.capture_reference,
        amount=review.amount_text,
        currency=review.currency,
        amount_minor=review.amount_minor,
        goes_back=_goes_back(review),
        chain=review.chain,
        payer=to_hex_or_none(review.payer),
        destination=review.destination,
        reason=review.reason,
        requested_by=review.requested_by,
        approved_by=review.approved_by,
        note=review.note,
        reference=review.reference,
        inquiries=review.inquiries,
        sent_at=review.sent_at,
        created_at=review.created_at,
        updated_at=review.updated_at,
    )
