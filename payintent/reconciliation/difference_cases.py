"""Describe differences between a gateway's list and our records, and make a case of each."""

from collections.abc import Sequence
from decimal import Decimal
from uuid import UUID

from payintent.domain.case import CaseKind, MoneyOrigin
from payintent.domain.currencies import CRYPTO, SETTLING, minor_decimals
from payintent.domain.errors import ErrorCode, RefusedError
from payintent.domain.money import format_amount
from payintent.id_generator import IdGenerator
from payintent.json_format import format_timestamp
from payintent.storage.cases import NewCase
from payintent.storage.reconciliation import ReconciliationDifference

#: A file with more differences probably belongs to a different account.
OPENED_MAX = 10_000
_BOOKS = {"ledger": "in the ledger", "merchants": "for the merchant"}
_REFERENCE_CHARS_MAX = 120
DISPUTE_TYPES = ("dispute", "dispute_reversal")


def make_cases(
    id_generator: IdGenerator,
    provider: str,
    differences: Sequence[ReconciliationDifference],
    *,
    is_timed: bool = True,
) -> list[NewCase]:
    """Make a case of each difference; with `is_timed`, its text includes the line's exact time."""
    return [
        _case(id_generator.new_id(), provider, difference, is_timed=is_timed)
        for difference in differences
    ]


def check_count(differences: int) -> None:
    """Refuse more than `OPENED_MAX` differences."""
    if differences > OPENED_MAX:
        raise RefusedError(
            ErrorCode.UNPROCESSABLE,
            f"{differences} differences are too many for cases: does the file belong to a "
            f"different account? Nothing was written.",
        )


def _case(
    case_id: UUID, provider: str, difference: ReconciliationDifference, *, is_timed: bool
) -> NewCase:
    origin = MoneyOrigin(
        merchant_id=difference.merchant_id,
        payment_id=difference.payment_id,
        session_id=difference.session_id,
    )
    return NewCase(
        id=case_id,
        kind=CaseKind.RECONCILIATION,
        origin=origin,
        capture_id=difference.capture_id,
        refund_id=difference.refund_id,
        subject=describe_difference(provider, difference, is_timed=is_timed),
    )


def describe_difference(
    provider: str, difference: ReconciliationDifference, *, is_timed: bool = True
) -> str:
    """Describe the difference; the text must not change, because it identifies the case."""
    reference = difference.reference or ""
    if len(reference) > _REFERENCE_CHARS_MAX:
        reference = reference[:_REFERENCE_CHARS_MAX] + "…"
    their_money = _money(difference.there, difference.there_currency)
    our_money = _money(difference.here, difference.here_currency)
    if books := _BOOKS.get(difference.kind):
        ours = "disputed" if difference.type in DISPUTE_TYPES else "captured or refunded"
        details = f"{their_money} {books}, {our_money} {ours}"
    elif difference.kind == "different":
        details = f"{their_money} there, {our_money} here"
    else:
        details = their_money or our_money
        details += f" at {format_timestamp(difference.at)}" if is_timed else ""
        status = difference.our_status if difference.kind == "extra" else None
        details += f", ours is {status}" if status else ""
    return f"{provider} {difference.type} {reference}: {difference.kind}, {details}"


def _money(amount: Decimal | None, currency: str | None) -> str:
    if amount is None or currency is None:
        return ""
    fraction = format(amount, "f").partition(".")[2].rstrip("0")
    least = 0 if currency in {*CRYPTO, *SETTLING} else minor_decimals(currency)
    decimals = max(least, len(fraction))
    return f"{format_amount(amount, decimals)} {currency}"
