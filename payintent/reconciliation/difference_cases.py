"""The cases of what a gateway's list and our records differ in, and what each side says."""

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

#: More than this is not a day's differences but another account's file.
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
    """Make a case of each difference; its text has the line's time where that is exact."""
    return [
        _case(id_generator.new_id(), provider, difference, is_timed=is_timed)
        for difference in differences
    ]


def check_count(found: int) -> None:
    """Refuse more differences than a day can have."""
    if found > OPENED_MAX:
        raise RefusedError(
            ErrorCode.UNPROCESSABLE,
            f"{found} differences are too many for cases: is it the file of "
            f"another account? nothing was written",
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
    """Describe the difference; the same text each time, for it identifies the case."""
    reference = difference.reference or ""
    if len(reference) > _REFERENCE_CHARS_MAX:
        reference = reference[:_REFERENCE_CHARS_MAX] + "…"
    their_money = _money(difference.there, difference.there_currency)
    our_money = _money(difference.here, difference.here_currency)
    if where := _BOOKS.get(difference.what):
        how = f"{their_money} {where}, {our_money} {_ours(difference.type)}"
    elif difference.what == "different":
        how = f"{their_money} there, {our_money} here"
    else:
        how = their_money or our_money
        how += f" at {format_timestamp(difference.at)}" if is_timed else ""
        status = difference.our_status if difference.what == "extra" else None
        how += f", ours is {status}" if status else ""
    return f"{provider} {difference.type} {reference}: {difference.what}, {how}"


def _ours(type_: str) -> str:
    return "disputed" if type_ in DISPUTE_TYPES else "captured or refunded"


def _money(amount: Decimal | None, currency: str | None) -> str:
    if amount is None or currency is None:
        return ""
    fraction = format(amount, "f").partition(".")[2].rstrip("0")
    least = 0 if currency in {*CRYPTO, *SETTLING} else minor_decimals(currency)
    decimals = max(least, len(fraction))
    return f"{format_amount(amount, decimals)} {currency}"
