"""The layout of our own that any gateway's export can be brought into."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from uuid import UUID

from payintent.domain import ids
from payintent.domain.errors import quote_input
from payintent.domain.settlement_file import FileLayout, ProviderFileLine

HEADER = ("type", "reference", "our_reference", "amount", "currency", "at")
_TYPES = {"payment": ids.SESSION, "refund": ids.REFUND}  # the type of the id in `our_reference`
_REFERENCE_MAX = 200
_AMOUNT = re.compile(r"(0|[1-9][0-9]{0,17})(\.[0-9]{1,18})?", re.ASCII)
_CURRENCY = re.compile(r"[A-Z0-9]{3,12}", re.ASCII)
_AT = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)", re.ASCII)
_TYPE_WORDS = "type must be payment or refund"
_REFERENCE_WORDS = f"reference has 1 to {_REFERENCE_MAX} printable characters"
_OURS_WORDS = f"our_reference has at most {_REFERENCE_MAX} printable characters"
_AMOUNT_WORDS = "amount must be a plain decimal above zero, such as 12.00"
_CURRENCY_WORDS = "currency must be a code such as USD"
_AT_WORDS = "at must be a time such as 2026-11-21T08:00:00Z"
_MICROSECONDS_CHARS = len("2026-11-21T08:00:00.000000Z")
_MICROSECONDS = re.compile(r"(\.\d{6})\d+")


def _read(number: int, row: Sequence[str]) -> ProviderFileLine:
    if len(row) != len(HEADER):
        raise ValueError(f"there are {len(row)} columns, not {len(HEADER)}")
    kind, reference, ours, amount, currency, at = row
    when = _time(at)
    checks = (
        (kind in _TYPES, _TYPE_WORDS, kind),
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
    return ProviderFileLine(
        number=number,
        type=kind,
        reference=reference,
        our_id=_our_id(_TYPES[kind], ours) if ours else None,
        amount=Decimal(amount),
        currency=currency,
        at=when,
    )


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


GENERIC = FileLayout(name="generic", matches=lambda first: tuple(first) == HEADER, read=_read)
