"""Amounts as 2C2P writes them: decimal texts with up to five places, converted exactly."""

import re

from payintent.domain.currencies import minor_decimals
from payintent.gateways.minor_units import from_gateway, to_gateway

#: The decimals that are requested: those of ISO 4217, except that rupiah are whole.
DECIMALS = {"USD": 2, "THB": 2, "TWD": 2, "PHP": 2, "IDR": 0, "JPY": 0}

_PLACES = 5
_REFUND_PLACES = 2  # the maintenance API always writes two
_AMOUNT = re.compile(r"[0-9]{1,12}(\.[0-9]{1,5})?")


def format_order_amount(amount_minor: int, currency: str) -> str:
    """Format a price, such as `1590.00`; ValueError where 2C2P cannot represent it."""
    return _text(amount_minor, currency, DECIMALS[currency])


def format_refund_amount(amount_minor: int, currency: str) -> str:
    """Format a refund, with two places or more; ValueError where 2C2P cannot represent it.

    In any currency: a capture in a currency that we never charge can be refunded as well.
    """
    decimals = DECIMALS.get(currency, minor_decimals(currency))
    to_gateway(amount_minor, currency, decimals)
    return _text(amount_minor, currency, max(_REFUND_PLACES, decimals))


def parse_order_amount(text: str, currency: str) -> int:
    """Parse an amount to our minor units; ValueError where it is none or is finer than that."""
    if not currency or not _AMOUNT.fullmatch(text):
        raise ValueError("this is no amount of a currency")
    whole, _, places = text.partition(".")
    return from_gateway(int(whole + places.ljust(_PLACES, "0")), currency, _PLACES)


def _text(amount_minor: int, currency: str, decimals: int) -> str:
    whole, rest = divmod(to_gateway(amount_minor, currency, decimals), 10**decimals)
    return f"{whole}.{rest:0{decimals}}" if decimals else str(whole)
