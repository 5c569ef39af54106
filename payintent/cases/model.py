"""Case kinds and case amounts."""

from dataclasses import dataclass
from enum import StrEnum

from payintent.core.money import format_smallest_units
from payintent.core.texts import format_count


class CaseKind(StrEnum):
    ORPHAN_CAPTURE = "ORPHAN_CAPTURE"  # the session had been replaced or abandoned
    LATE_PAYMENT = "LATE_PAYMENT"  # the payment had already failed, expired or been cancelled
    DOUBLE_PAYMENT = "DOUBLE_PAYMENT"  # the payment had already been paid
    AMOUNT_MISMATCH = "AMOUNT_MISMATCH"  # amount or currency differs from the frozen quote
    TOKEN_MISMATCH = "TOKEN_MISMATCH"  # noqa: S105 - a case kind
    SURPLUS = "SURPLUS"  # more money than the payment required; the payment is paid
    UNKNOWN_REFERENCE = "UNKNOWN_REFERENCE"  # the capture does not match any payment or session
    REFUND_REVERSED = "REFUND_REVERSED"
    RECONCILIATION = "RECONCILIATION"
    DISPUTE = "DISPUTE"  # the buyer's bank reclaims the money
    UNDECIDED = "UNDECIDED"  # the gateway had not decided when the payment expired
    OUTSIDE_REFUND = "OUTSIDE_REFUND"  # refunded directly at the gateway
    FRAUD_WARNING = "FRAUD_WARNING"  # from the card issuer


#: Case kinds that are refunded immediately if the merchant has enabled `auto_refund`.
AUTO_REFUND_KINDS = frozenset(
    {
        CaseKind.ORPHAN_CAPTURE,
        CaseKind.LATE_PAYMENT,
        CaseKind.DOUBLE_PAYMENT,
        CaseKind.AMOUNT_MISMATCH,
        CaseKind.TOKEN_MISMATCH,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseAmount:
    amount: str | None  # None if the token is not configured
    currency: str  # the token's address, if it is not configured
    chain: str | None
    amount_minor: str | None = None  # smallest units

    @classmethod
    def from_smallest_units(
        cls,
        amount_minor: str | None,
        currency: str | None,
        chain: str | None,
        token_decimals: int | None,
    ) -> "CaseAmount | None":
        if amount_minor is None or currency is None:
            return None
        amount = format_smallest_units(
            int(amount_minor), currency, token_decimals, on_chain=chain is not None
        )
        return cls(amount=amount, currency=currency, chain=chain, amount_minor=amount_minor)

    @property
    def text(self) -> str:
        amount = self.amount or f"{format_count(int(self.amount_minor or 0), 'smallest unit')} of"
        return f"{amount} {self.currency}" + (f" on {self.chain}" if self.chain else "")
