"""The minimum and maximum total of a payment in each currency."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal

from payintent.core.money import TENDER, format_amount, to_smallest_unit

#: A currency's limits as entered by operators: `USD:0.50:1000`, `USD:0.50:` or `USD::`.
_AMOUNT = r"([0-9]{1,20}(?:\.[0-9]{1,18})?)?"
_ENTRY = re.compile(rf"([A-Z]{{3,8}}):{_AMOUNT}:{_AMOUNT}", re.ASCII)


@dataclass(frozen=True, slots=True)
class AmountLimits:
    """The limits for one currency. None means no limit."""

    minimum: Decimal | None = None
    maximum: Decimal | None = None

    def describe_violation(self, total: Decimal, currency: str) -> str | None:
        if self.minimum is not None and total < self.minimum:
            return f"less than the minimum of {_format(self.minimum, currency)}"
        if self.maximum is not None and total > self.maximum:
            return f"more than the maximum of {_format(self.maximum, currency)}"
        return None


def parse_limits(entries: Iterable[str]) -> Mapping[str, AmountLimits]:
    """Parse limits such as `USD:0.50:1000`, one per currency. Raises `ValueError`."""
    limits: dict[str, AmountLimits] = {}
    for entry in entries:
        match = _ENTRY.fullmatch(entry)
        if match is None or match[1] not in TENDER:
            raise ValueError(f"{entry!r} must be CURRENCY:MINIMUM:MAXIMUM, such as USD:0.50:1000")
        currency = match[1]
        if currency in limits:
            raise ValueError(f"{currency} has more than one entry")
        minimum, maximum = (Decimal(amount) if amount else None for amount in (match[2], match[3]))
        for amount in (minimum, maximum):
            if amount is not None and _has_too_many_decimals(amount, currency):
                raise ValueError(f"{entry!r} has more decimals than {currency} allows")
        if minimum is not None and maximum is not None and minimum > maximum:
            raise ValueError(f"{entry!r} has a minimum above its maximum")
        limits[currency] = AmountLimits(minimum, maximum)
    return limits


def fiat_limits(**amounts: tuple[str, str]) -> Mapping[str, AmountLimits]:
    """Build limits from minimums and maximums, such as `USD=("0.50", "999999.99")`."""
    return {
        currency: AmountLimits(Decimal(minimum), Decimal(maximum))
        for currency, (minimum, maximum) in amounts.items()
    }


def _has_too_many_decimals(amount: Decimal, currency: str) -> bool:
    return to_smallest_unit(amount, TENDER[currency].amount_decimals) is None


def _format(amount: Decimal, currency: str) -> str:
    tender = TENDER[currency]
    return f"{format_amount(amount, tender.amount_decimals, trim=tender.is_crypto)} {currency}"
