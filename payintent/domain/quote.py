"""A quote: a payment method and its price, for a payment in a country."""

from dataclasses import dataclass

from payintent.domain.price import Price


@dataclass(frozen=True, slots=True)
class ExpectedToken:
    """The token at the time of the quote; 20 zero bytes are a chain's native coin."""

    address: bytes
    decimals: int
    approve_zero_first: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Quote:
    payment_method_id: int
    account_id: int
    provider: str
    provider_name: str  # the name that the API shows
    kind: str
    label: str
    country: str
    chain: str | None
    token: str | None
    price: Price
    total_minor: int  # in smallest units of the currency or token
    expected_token: ExpectedToken | None = None
