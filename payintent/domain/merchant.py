"""Merchants and their payment methods."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal

from payintent.domain.activation import ActivationStatus
from payintent.domain.amount_limits import AmountLimits
from payintent.domain.errors import quote_input
from payintent.domain.price import FeeMode, TaxCountry, TaxManager
from payintent.domain.quote import ExpectedToken
from payintent.domain.web_origin import web_origin


@dataclass(frozen=True, slots=True)
class Market:
    """The countries and currencies a merchant was activated for; `None` means all."""

    countries: tuple[str, ...] | None = None
    currencies: tuple[str, ...] | None = None

    def includes(self, currency: str, country: str) -> bool:
        return (self.countries is None or country in self.countries) and (
            self.currencies is None or currency in self.currencies
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Merchant:
    id: int
    name: str
    activation: ActivationStatus
    market: Market
    callback_url: str | None
    tax_manager: TaxManager
    default_country: str
    locale: str
    logo_url: str | None
    support_url: str | None
    return_url: str | None
    allowed_origins: tuple[str, ...]
    tax_country: TaxCountry = TaxCountry.SELECTION
    auto_refund: bool = True  # automatically refund money without a payment
    allow_http: bool = False  # for its callback URL
    accent_colour: str | None = None  # of the checkout, such as `#0b5bd3`
    terms_url: str | None = None
    mail_receipts: bool = False  # to buyers with an e-mail address
    livemode: bool = True  # False for a test side, which moves no money
    live_merchant: int | None = None  # for a test side: its live merchant
    time_zone: str = "UTC"  # of the days of its statements
    #: By currency, the daily refunds at gateways above which approval is needed.
    refund_approval_above: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def title(self) -> str:
        """The merchant in messages to operators."""
        return f"merchant {self.id} ({quote_input(self.name)})"

    @property
    def origins(self) -> frozenset[str]:
        return frozenset(filter(None, map(web_origin, self.allowed_origins)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    provider: str
    currencies: tuple[str, ...]
    countries: tuple[str, ...] | None  # None: all
    account_countries: tuple[str, ...] | None  # None: all
    token: str | None
    token_decimals: int | None  # on its chain; None if it has no supported token
    enabled: bool
    account_enabled: bool  # account and provider are enabled, and the chain is watched
    #: Its gateway's decimals by currency; None: the same as ours.
    decimals: Mapping[str, int] | None = field(default=None, repr=False)
    #: Limits of a total by currency: the method's own, otherwise the gateway's.
    amount_limits: Mapping[str, AmountLimits] = field(
        default_factory=dict[str, AmountLimits], repr=False
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PaymentMethod(Acceptance):
    id: int
    merchant_id: int
    account_id: int
    provider_name: str  # as shown by the API
    kind: str
    label: str
    chain: str | None
    fee_mode: FeeMode
    fee_rate: Decimal
    position: int  # lower positions are offered first
    limits: tuple[str, ...] = ()  # as entered by the operator: USD:0.50:1000
    expected_token: ExpectedToken | None = field(default=None, repr=False)
    token_minimum: int = field(default=1, repr=False)  # set by the contract
