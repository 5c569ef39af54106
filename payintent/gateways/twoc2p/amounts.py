"""Exact conversion of 2C2P's amounts, which are decimals with up to five places."""

import re

from payintent.domain.currencies import minor_decimals
from payintent.gateways.minor_units import from_gateway, to_gateway

#: The decimals of ISO 4217, except that rupiah are whole.
DECIMALS = {"USD": 2, "THB": 2, "TWD": 2, "PHP": 2, "IDR": 0, "JPY": 0}

_PLACES = 5
_REFUND_PLACES = 2  # the maintenance API always writes two
_AMOUNT = re.compile(r"[0-9]{1,12}(\.[0-9]{1,5})?")


def format_order_amount(amount_minor: int, currency: str) -> str:
    """Format a price, such as `1590.00`; ValueError if 2C2P cannot represent it."""
    return _format(amount_minor, currency, DECIMALS[currency])


def format_action_amount(amount_minor: int, currency: str) -> str:
    """Format a refund with at least two places; ValueError if 2C2P cannot represent it.

    Any currency is possible, because unexpected captures can be refunded too.
    """
    decimals = DECIMALS.get(currency, minor_decimals(currency))
    to_gateway(amount_minor, currency, decimals)
    return _format(amount_minor, currency, max(_REFUND_PLACES, decimals))


def parse_order_amount(text: str, currency: str) -> int:
    """Parse an amount to our minor units; ValueError if it is malformed or has more decimals."""
    if not currency or not _AMOUNT.fullmatch(text):
        raise ValueError("the amount or the currency is malformed")
    whole, _, places = text.partition(".")
    return from_gateway(int(whole + places.ljust(_PLACES, "0")), currency, _PLACES)


def _format(amount_minor: int, currency: str, decimals: int) -> str:
    whole, rest = divmod(to_gateway(amount_minor, currency, decimals), 10**decimals)
    return f"{whole}.{rest:0{decimals}}" if decimals else str(whole)
