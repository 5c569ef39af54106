"""Amounts between our minor units and a gateway's: exact, or not at all."""

from payintent.domain.market import TENDER


def to_gateway(amount_minor: int, currency: str, decimals: int) -> int:
    """Count an amount in a gateway's units; ValueError where it cannot hold it exactly."""
    surplus = TENDER[currency].amount_decimals - decimals
    if surplus <= 0:
        return amount_minor * 10**-surplus
    units, rest = divmod(amount_minor, 10**surplus)
    if rest:
        raise ValueError(f"{amount_minor} minor units of {currency} have no {decimals} decimals")
    return units


def from_gateway(units: int, currency: str, decimals: int) -> int:
    """Count a gateway's units in ours; ValueError where they are finer."""
    surplus = TENDER[currency].amount_decimals - decimals
    if surplus >= 0:
        return units * 10**surplus
    amount_minor, rest = divmod(units, 10**-surplus)
    if rest:
        raise ValueError(f"{units} units of {currency} with {decimals} decimals are too fine")
    return amount_minor
