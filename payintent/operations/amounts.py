"""Parsing of the amounts that operators enter."""

import re
from decimal import Decimal

from payintent.domain.currencies import MINOR_DECIMALS
from payintent.domain.errors import BadRequestError
from payintent.domain.money import to_smallest_unit
from payintent.operations.validation import quote_input
from payintent.storage import payouts
from payintent.storage.database import Executor

_AMOUNT = re.compile(r"(-?)((?:0|[1-9][0-9]{0,40})(?:\.[0-9]{1,18})?)", re.ASCII)


async def read_amount_minor(
    database: Executor,
    name: str,
    amount: str,
    *,
    currency: str,
    chain: str | None,
    signed: bool = False,
) -> int:
    """Parse an amount such as 1590.00 into smallest units of its currency or token.

    Raises `BAD_REQUEST` for zero, too many decimals, an unknown currency, and unless `signed` for
    a negative amount.
    """
    match = _AMOUNT.fullmatch(amount)
    if match is None or (match[1] and not signed):
        raise BadRequestError(f"{name} must be a plain decimal, not {quote_input(amount)}")
    decimals = await _get_decimals(database, currency, chain)
    amount_minor = to_smallest_unit(Decimal(match[2]), decimals)
    if not amount_minor:
        rule = "must not be zero" if signed else "must be above zero"
        raise BadRequestError(f"{name} {rule}, with at most {decimals} decimals")
    return -amount_minor if match[1] else amount_minor


async def _get_decimals(database: Executor, currency: str, chain: str | None) -> int:
    decimals = MINOR_DECIMALS.get(currency)
    if chain is not None:
        decimals = await payouts.find_token_decimals(database, chain, currency)
    if decimals is None:
        network = "" if chain is None else f" on {quote_input(chain)}"
        raise BadRequestError(f"{quote_input(currency)}{network} is not known")
    return decimals
