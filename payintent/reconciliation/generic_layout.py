"""Our own file layout, into which any gateway's export can be converted."""

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
#: The id prefix of `our_reference`; gateways have no id of ours for a dispute.
_TYPES = {"payment": ids.SESSION, "refund": ids.REFUND, "dispute": "", "dispute_reversal": ""}
_REFERENCE_MAX = 200
_AMOUNT = re.compile(r"(0|[1-9][0-9]{0,17})(\.[0-9]{1,18})?", re.ASCII)
_BANK_CURRENCY = re.compile(r"[A-Z]{3}", re.ASCII)  # token symbols are longer
_CURRENCY = re.compile(r"[A-Z0-9]{3,12}", re.ASCII)
_AT = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)", re.ASCII)
_PAYOUT = "payout"
_TYPE_RULE = "type must be payment, refund, dispute, dispute_reversal or payout"
_REFERENCE_RULE = f"reference must have 1 to {_REFERENCE_MAX} printable characters"
_OUR_REFERENCE_RULE = f"our_reference must have at most {_REFERENCE_MAX} printable characters"
_AMOUNT_RULE = "amount must be a plain decimal above zero, such as 12.00"
_FEE_RULE = "fee must be a plain decimal, such as 0.30, or empty"
_NO_FEE_RULE = "only a payout has a fee"
_MONEY_RULE = "a payout must be in an ISO 4217 currency"
_CURRENCY_RULE = "currency must be a code such as USD"
_AT_RULE = "at must be a time such as 2026-11-21T08:00:00Z"
_MICROSECONDS_CHARS = len("2026-11-21T08:00:00.000000Z")
_MICROSECONDS = re.compile(r"(\.\d{6})\d+")


def _parse_line_with_fee(number: int, row: Sequence[str]) -> ProviderFileLine | PayoutLine:
    if len(row) != len(HEADER_WITH_FEE):
        raise ValueError(f"the line has {len(row)} columns, not {len(HEADER_WITH_FEE)}")
    return _parse_line(number, row[:-1], row[-1])


def _parse_line(number: int, row: Sequence[str], fee: str = "") -> ProviderFileLine | PayoutLine:
    if len(row) != len(HEADER):
        raise ValueError(f"the line has {len(row)} columns, not {len(HEADER)}")
    kind, reference, our_reference, amount, currency, at = row
    time = _parse_time(at)
    checks = (
        (kind in _TYPES or kind == _PAYOUT, _TYPE_RULE, kind),
        (reference != "" and _is_name(reference), _REFERENCE_RULE, reference),
        (_is_name(our_reference), _OUR_REFERENCE_RULE, our_reference),
        (_AMOUNT.fullmatch(amount) and Decimal(amount), _AMOUNT_RULE, amount),
        (_CURRENCY.fullmatch(currency), _CURRENCY_RULE, currency),
    )
    for is_valid, rule, text in checks:
        if not is_valid:
            raise ValueError(f"{rule}, not {quote_input(text)}")
    if time is None:
        raise ValueError(f"{_AT_RULE}, not {quote_input(at)}")
    if kind == _PAYOUT:
        return PayoutLine(number=number, payout=_parse_payout(row, fee), at=time)
    if fee:
        raise ValueError(f"{_NO_FEE_RULE}, not a {kind}: {quote_input(fee)}")
    prefix = _TYPES[kind]
    return ProviderFileLine(
        number=number,
        type=kind,
        reference=reference,
        our_id=_parse_our_id(prefix, our_reference) if our_reference and prefix else None,
        amount=Decimal(amount),
        currency=currency,
        at=time,
    )


def _parse_payout(row: Sequence[str], fee: str) -> ListedPayout:
    _, reference, _, amount, currency, at = row
    if not _BANK_CURRENCY.fullmatch(currency):
        raise ValueError(f"{_MONEY_RULE}, not in {quote_input(currency)}")
    if fee and not _AMOUNT.fullmatch(fee):
        raise ValueError(f"{_FEE_RULE}, not {quote_input(fee)}")
    return ListedPayout(
        reference=reference,
        amount_minor=_to_minor_units("amount", amount, currency),
        fee_minor=_to_minor_units("fee", fee, currency) if fee else None,
        currency=currency,
        paid_on=date.fromisoformat(at[:_DAY_CHARS]),  # the local day at the bank
    )


def _to_minor_units(name: str, text: str, currency: str) -> int:
    decimals = minor_decimals(currency)
    amount_minor = to_smallest_unit(Decimal(text), decimals)
    if amount_minor is None:
        raise ValueError(
            f"{name} of a payout in {currency} must have at most {decimals} decimals,"
            f" not {quote_input(text)}"
        )
    return amount_minor


def _is_name(text: str) -> bool:
    return len(text) <= _REFERENCE_MAX and text.isprintable()


def _parse_time(text: str) -> datetime | None:
    """Parse an RFC 3339 time, truncated to microseconds."""
    if not _AT.fullmatch(text):
        return None
    try:
        if len(text) > _MICROSECONDS_CHARS:
            text = _MICROSECONDS.sub(r"\1", text)
        return datetime.fromisoformat(text.upper()).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _parse_our_id(prefix: str, text: str) -> UUID | None:
    """Parse an id of ours, either with its prefix or as a plain UUID."""
    try:
        return ids.parse_id(prefix, text) or UUID(text)
    except ValueError:
        return None


GENERIC = (
    FileLayout(name="generic", matches=lambda first: tuple(first) == HEADER, read=_parse_line),
    FileLayout(
        name="generic with fees",
        matches=lambda first: tuple(first) == HEADER_WITH_FEE,
        read=_parse_line_with_fee,
    ),
)
