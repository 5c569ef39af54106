"""The payment methods that an account offers by default: kinds, labels, fees, countries."""

from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from payintent.domain.currencies import FIAT


@dataclass(frozen=True, slots=True, kw_only=True)
class DefaultMethod:
    """One method of an account; what its gateway does not take is left out of quotes anyway."""

    kind: Literal["card", "redirect"]
    label: str
    fee_rate: Decimal
    currencies: tuple[str, ...] = tuple(FIAT)
    countries: tuple[str, ...] | None = None  # None: all


_CARD_RATE = Decimal("0.029")
_ANYWHERE = (
    DefaultMethod(kind="card", label="Card", fee_rate=_CARD_RATE),
    DefaultMethod(kind="redirect", label="Bank transfer", fee_rate=Decimal("0.01")),
)
_OFFERED = {
    "stripe": (DefaultMethod(kind="card", label="Card (Stripe)", fee_rate=_CARD_RATE),),
    "ecpay": (
        DefaultMethod(
            kind="card",
            label="Card (ECPay)",
            fee_rate=_CARD_RATE,
            currencies=("TWD",),
            countries=("TW",),
        ),
    ),
    "test": (DefaultMethod(kind="card", label="Test card", fee_rate=Decimal(0)),),
    # Its page lets the buyer choose among all methods of the merchant there.
    "2c2p": (DefaultMethod(kind="redirect", label="2C2P", fee_rate=_CARD_RATE),),
}


def default_methods(provider: str) -> tuple[DefaultMethod, ...]:
    """Return the default methods of a provider; a card, and a cheaper transfer, for others."""
    return _OFFERED.get(provider, _ANYWHERE)
