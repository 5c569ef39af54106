"""The kinds of case, money or a contradiction that a person must look at, and whose it is."""

from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID


class CaseKind(StrEnum):
    ORPHAN_CAPTURE = "ORPHAN_CAPTURE"  # the session had been replaced or given up
    LATE_PAYMENT = "LATE_PAYMENT"  # the payment had ended without money
    DOUBLE_PAYMENT = "DOUBLE_PAYMENT"  # the payment had been paid
    AMOUNT_MISMATCH = "AMOUNT_MISMATCH"  # not the amount or currency of the frozen quote
    TOKEN_MISMATCH = "TOKEN_MISMATCH"  # noqa: S105 - a kind
    UNKNOWN_REFERENCE = "UNKNOWN_REFERENCE"  # the capture names no payment or session of ours
    REFUND_REVERSED = "REFUND_REVERSED"
    RECONCILIATION = "RECONCILIATION"
    DISPUTE = "DISPUTE"  # the buyer's bank asks for the money back
    UNDECIDED = "UNDECIDED"  # its gateway was still deciding when the payment expired
    OUTSIDE_REFUND = "OUTSIDE_REFUND"  # refunded at the gateway, and not requested here
    FRAUD_WARNING = "FRAUD_WARNING"  # the issuer of the card warns of fraud


#: Money that belongs to no payment: refunded at once where the merchant has `auto_refund`.
AUTOMATIC = frozenset(
    {
        CaseKind.ORPHAN_CAPTURE,
        CaseKind.LATE_PAYMENT,
        CaseKind.DOUBLE_PAYMENT,
        CaseKind.AMOUNT_MISMATCH,
        CaseKind.TOKEN_MISMATCH,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MoneyOrigin:
    merchant_id: int | None
    payment_id: UUID | None
    session_id: UUID | None


UNKNOWN_ORIGIN = MoneyOrigin(merchant_id=None, payment_id=None, session_id=None)
