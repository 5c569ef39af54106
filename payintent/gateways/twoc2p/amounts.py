"""Amounts as 2C2P writes them: decimal texts with up to five places, counted exactly."""

import re

from payintent.domain.currencies import minor_decimals
from payintent.gateways.minor_units import from_gateway, to_gateway

#: What is asked for. As in ISO 4217, but rupiah are whole.
DECIMALS = {"USD": 2, "THB": 2, "TWD": 2, "PHP": 2, "IDR": 0, "JPY": 0}

_PLACES = 5
_REFUND_PLACES = 2  # the maintenance API always writes two
_AMOUNT = re.compile(r"[0-9]{1,12}(\.[0-9]{1,5})?")


def format_order_amount(amount_minor: int, currency: str) -> str:
    """Write what a buyer is to pay, such as `1590.00`; ValueError where 2C2P cannot hold it."""
    return _text(amount_minor, currency, DECIMALS[currency])


def format_refund_amount(amount_minor: int, currency: str) -> str:
    """Write what goes back, with two places or more; ValueError where 2C2P cannot hold it.

    In any currency: money that nobody asked for goes back as well.
    """
    decimals = DECIMALS.get(currency, minor_decimals(currency))
    to_gateway(amount_minor, currency, decimals)
    return _text(amount_minor, currency, max(_REFUND_PLACES, decimals))


def parse_order_amount(text: str, currency: str) -> int:
    """Count an amount in our minor units; ValueError where it is none or has a finer rest."""
    if not currency or not _AMOUNT.fullmatch(text):
        raise ValueError("this is no amount of a currency")
    whole, _, places = text.partition(".")
    return from_gateway(int(whole + places.ljust(_PLACES, "0")), currency, _PLACES)


def _text(amount_minor: int, currency: str, decimals: int) -> str:
    whole, rest = divmod(to_gateway(amount_minor, currency, decimals), 10**decimals)
    return f"{whole}.{rest:0{decimals}}" if decimals else str(whole)
