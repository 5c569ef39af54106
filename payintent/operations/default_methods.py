"""The default payment methods of each provider."""

from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from payintent.domain.currencies import FIAT


@dataclass(frozen=True, slots=True, kw_only=True)
class DefaultMethod:
    """A method of an account; quotes leave out currencies that its gateway does not support."""

    kind: Literal["card", "redirect"]
    label: str
    fee_rate: Decimal
    currencies: tuple[str, ...] = tuple(FIAT)
    countries: tuple[str, ...] | None = None  # None: all


_CARD_RATE = Decimal("0.029")
_DEFAULT = (
    DefaultMethod(kind="card", label="Card", fee_rate=_CARD_RATE),
    DefaultMethod(kind="redirect", label="Bank transfer", fee_rate=Decimal("0.01")),
)
_BY_PROVIDER = {
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
    # The gateway's page offers all of the merchant's methods.
    "2c2p": (DefaultMethod(kind="redirect", label="2C2P", fee_rate=_CARD_RATE),),
}


def default_methods(provider: str) -> tuple[DefaultMethod, ...]:
    return _BY_PROVIDER.get(provider, _DEFAULT)
