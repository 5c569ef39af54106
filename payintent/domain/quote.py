"""A quote: one payment method and its price for one payment in one country."""

from dataclasses import dataclass

from payintent.domain.price import Price


@dataclass(frozen=True, slots=True)
class ExpectedToken:
    """The token of a quote as it was then; 20 zero bytes are a chain's native coin."""

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
    total_minor: int  # smallest units of the currency or token that is paid
    expected_token: ExpectedToken | None = None
