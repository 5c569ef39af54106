"""Conversion between our minor units and a gateway's: exact, or not at all."""

import re

from payintent.domain.currencies import minor_decimals
from payintent.domain.gateway import Capture

_AMOUNT = re.compile(r"[0-9]{1,15}(\.[0-9]{1,18})?")
_CURRENCY = re.compile(r"[0-9A-Za-z]{1,12}")


def to_gateway(amount_minor: int, currency: str, decimals: int) -> int:
    """Convert an amount to a gateway's units; ValueError where they cannot represent it exactly."""
    surplus = minor_decimals(currency) - decimals
    if surplus <= 0:
        return amount_minor * 10**-surplus
    units, rest = divmod(amount_minor, 10**surplus)
    if rest:
        raise ValueError(f"{amount_minor} minor units of {currency} have no {decimals} decimals")
    return units


def from_gateway(units: int, currency: str, decimals: int) -> int:
    """Convert a gateway's units to ours; ValueError where they are finer."""
    surplus = minor_decimals(currency) - decimals
    if surplus >= 0:
        return units * 10**surplus
    amount_minor, rest = divmod(units, 10**-surplus)
    if rest:
        raise ValueError(f"{units} units of {currency} with {decimals} decimals are too fine")
    return amount_minor


def read_capture(reference: str, amount: str, currency: str) -> Capture:
    """Build a capture from a decimal amount in any currency.

    What is finer than the currency's minor unit is left out of `amount_minor` and kept in
    `verbatim`: such money pays nothing, but it was taken. ValueError for what is no amount.
    """
    if not _AMOUNT.fullmatch(amount) or not _CURRENCY.fullmatch(currency):
        raise ValueError("this is no amount of a currency")
    whole, _, places = amount.partition(".")
    decimals = minor_decimals(currency)
    rest = places[decimals:].strip("0")
    return Capture(
        reference=reference,
        amount_minor=int(whole + places[:decimals].ljust(decimals, "0")),
        currency=currency,
        verbatim=f"{amount} {currency}" if rest else None,
    )
