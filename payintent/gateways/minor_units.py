"""Exact conversion between our minor units and a gateway's units."""

import re

from payintent.core.money import get_minor_decimals
from payintent.gateways.port import Capture

_AMOUNT = re.compile(r"[0-9]{1,15}(\.[0-9]{1,18})?")
_CURRENCY = re.compile(r"[0-9A-Za-z]{1,12}")


def to_gateway(amount_minor: int, currency: str, decimals: int) -> int:
    """Convert an amount to a gateway's units. Raises `ValueError` if they cannot represent it."""
    surplus = get_minor_decimals(currency) - decimals
    if surplus <= 0:
        return amount_minor * 10**-surplus
    units, remainder = divmod(amount_minor, 10**surplus)
    if remainder:
        raise ValueError(f"{amount_minor} minor units of {currency} need more decimals")
    return units


def from_gateway(units: int, currency: str, decimals: int) -> int:
    """Convert gateway units to minor units. Raises `ValueError` if the amount is too precise."""
    surplus = get_minor_decimals(currency) - decimals
    if surplus >= 0:
        return units * 10**surplus
    amount_minor, remainder = divmod(units, 10**-surplus)
    if remainder:
        raise ValueError(f"{units} units with {decimals} decimals are too precise for {currency}")
    return amount_minor


def parse_capture(reference: str, amount: str, currency: str) -> Capture:
    """Build a capture from a decimal amount in any currency.

    Raises `ValueError` if the amount or the currency is malformed. An amount with more decimals
    than the minor unit is rounded down, and the original is stored in `verbatim`. The money was
    captured, but such an amount never matches a quote.
    """
    if not _AMOUNT.fullmatch(amount) or not _CURRENCY.fullmatch(currency):
        raise ValueError("the amount or the currency is malformed")
    whole, _, fraction = amount.partition(".")
    decimals = get_minor_decimals(currency)
    is_rounded = bool(fraction[decimals:].strip("0"))
    return Capture(
        reference=reference,
        amount_minor=int(whole + fraction[:decimals].ljust(decimals, "0")),
        currency=currency,
        verbatim=f"{amount} {currency}" if is_rounded else None,
    )
