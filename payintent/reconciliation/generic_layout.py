"""The layout of our own that any gateway's export can be brought into."""

import re
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from uuid import UUID

from payintent.domain import ids
from payintent.domain.currencies import minor_decimals
from payintent.domain.errors import quote_input
from payintent.domain.money import to_smallest_unit
from payintent.domain.settlement_file import (
    FileLayout,
    ListedPayout,
    PayoutLine,
    ProviderFileLine,
)

HEADER = ("type", "reference", "our_reference", "amount", "currency", "at")
HEADER_WITH_FEE = (*HEADER, "fee")
_DAY_CHARS = len("2026-11-21")
#: The type of the id in `our_reference`; gateways have no id of ours for a dispute.
_TYPES = {"payment": ids.SESSION, "refund": ids.REFUND, "dispute": "", "dispute_reversal": ""}
_REFERENCE_MAX = 200
_AMOUNT = re.compile(r"(0|[1-9][0-9]{0,17})(\.[0-9]{1,18})?", re.ASCII)
_BANK_CURRENCY = re.compile(r"[A-Z]{3}", re.ASCII)  # a token has more letters
_CURRENCY = re.compile(r"[A-Z0-9]{3,12}", re.ASCII)
_AT = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)", re.ASCII)
_PAYOUT = "payout"
_TYPE_WORDS = "type must be payment, refund, dispute, dispute_reversal or payout"
_REFERENCE_WORDS = f"reference has 1 to {_REFERENCE_MAX} printable characters"
_OURS_WORDS = f"our_reference has at most {_REFERENCE_MAX} printable characters"
_AMOUNT_WORDS = "amount must be a plain decimal above zero, such as 12.00"
_FEE_WORDS = "fee must be a plain decimal, such as 0.30, or empty"
_NO_FEE_WORDS = "a payout alone has a fee"
_MONEY_WORDS = "a gateway pays out in a currency of banks"
_CURRENCY_WORDS = "currency must be a code such as USD"
_AT_WORDS = "at must be a time such as 2026-11-21T08:00:00Z"
_MICROSECONDS_CHARS = len("2026-11-21T08:00:00.000000Z")
_MICROSECONDS = re.compile(r"(\.\d{6})\d+")


def _read_with_fee(number: int, row: Sequence[str]) -> ProviderFileLine | PayoutLine:
    if len(row) != len(HEADER_WITH_FEE):
        raise ValueError(f"there are {len(row)} columns, not {len(HEADER_WITH_FEE)}")
    return _read(number, row[:-1], row[-1])


def _read(number: int, row: Sequence[str], fee: str = "") -> ProviderFileLine | PayoutLine:
    if len(row) != len(HEADER):
        raise ValueError(f"there are {len(row)} columns, not {len(HEADER)}")
    kind, reference, ours, amount, currency, at = row
    when = _time(at)
    checks = (
        (kind in _TYPES or kind == _PAYOUT, _TYPE_WORDS, kind),
        (reference != "" and _is_name(reference), _REFERENCE_WORDS, reference),
        (_is_name(ours), _OURS_WORDS, ours),
        (_AMOUNT.fullmatch(amount) and Decimal(amount), _AMOUNT_WORDS, amount),
        (_CURRENCY.fullmatch(currency), _CURRENCY_WORDS, currency),
    )
    for right, what, text in checks:
        if not right:
            raise ValueError(f"{what}, not {quote_input(text)}")
    if when is None:
        raise ValueError(f"{_AT_WORDS}, not {quote_input(at)}")
    if kind == _PAYOUT:
        return PayoutLine(number=number, payout=_payout(row, fee), at=when)
    if fee:
        raise ValueError(f"{_NO_FEE_WORDS}, no {kind}: {quote_input(fee)}")
    return ProviderFileLine(
        number=number,
        type=kind,
        reference=reference,
        our_id=_our_id(_TYPES[kind], ours) if ours and _TYPES[kind] else None,
        amount=Decimal(amount),
        currency=currency,
        at=when,
    )


def _payout(row: Sequence[str], fee: str) -> ListedPayout:
    """Read a payout whose cells are checked so far as those of a payment."""
    _, reference, _, amount, currency, at = row
    if not _BANK_CURRENCY.fullmatch(currency):
        raise ValueError(f"{_MONEY_WORDS}, not in {quote_input(currency)}")
    if fee and not _AMOUNT.fullmatch(fee):
        raise ValueError(f"{_FEE_WORDS}, not {quote_input(fee)}")
    return ListedPayout(
        reference=reference,
        amount_minor=_minor("amount", amount, currency),
        fee_minor=_minor("fee", fee, currency) if fee else None,
        currency=currency,
        paid_on=date.fromisoformat(at[:_DAY_CHARS]),  # the day where the money came
    )


def _minor(name: str, text: str, currency: str) -> int:
    decimals = minor_decimals(currency)
    amount_minor = to_smallest_unit(Decimal(text), decimals)
    if amount_minor is None:
        raise ValueError(
            f"{name} of a payout in {currency} has at most {decimals} decimals,"
            f" not {quote_input(text)}"
        )
    return amount_minor


def _is_name(text: str) -> bool:
    return len(text) <= _REFERENCE_MAX and text.isprintable()


def _time(text: str) -> datetime | None:
    """Parse an RFC 3339 time; digits beyond microseconds are cut off."""
    if not _AT.fullmatch(text):
        return None
    try:
        if len(text) > _MICROSECONDS_CHARS:
            text = _MICROSECONDS.sub(r"\1", text)
        return datetime.fromisoformat(text.upper()).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _our_id(prefix: str, text: str) -> UUID | None:
    """Parse an id of ours, as we write it or as gateways get it; None for any other text."""
    try:
        return ids.parse_id(prefix, text) or UUID(text)
    except ValueError:
        return None


GENERIC = (
    FileLayout(name="generic", matches=lambda first: tuple(first) == HEADER, read=_read),
    FileLayout(
        name="generic with fees",
        matches=lambda first: tuple(first) == HEADER_WITH_FEE,
        read=_read_with_fee,
    ),
)
