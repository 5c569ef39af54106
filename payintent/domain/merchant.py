"""Merchants, and the payment methods that the operator has set up for them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal

from payintent.domain.activation import ActivationStatus
from payintent.domain.amount_limits import AmountLimits
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
    auto_refund: bool = True  # money that belongs to no payment is refunded at once
    allow_http: bool = False  # its callback URL need not be https
    accent_colour: str | None = None  # on the checkout, such as `#0b5bd3`
    terms_url: str | None = None
    mail_receipts: bool = False  # buyers who gave an address get a receipt by e-mail
    livemode: bool = True  # False: a test side, whose money is none
    live_merchant: int | None = None  # whose test side it is
    time_zone: str = "UTC"  # in which its statements' days end
    #: By currency, what may go back at gateways in a day without a second person.
    refund_approval_above: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def origins(self) -> frozenset[str]:
        return frozenset(filter(None, map(web_origin, self.allowed_origins)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    provider: str
    currencies: tuple[str, ...]
    countries: tuple[str, ...] | None  # None: all
    account_countries: tuple[str, ...] | None  # where its account takes payments; None: all
    token: str | None
    token_decimals: int | None  # on its chain; None where it is no token, or taken nowhere
    enabled: bool
    account_enabled: bool  # its account and provider are enabled, its chain is watched
    #: Decimals in which its gateway counts each currency; None: it counts as we do.
    decimals: Mapping[str, int] | None = field(default=None, repr=False)
    #: Of a total, by currency: its own, and for other currencies its gateway's.
    amount_limits: Mapping[str, AmountLimits] = field(
        default_factory=dict[str, AmountLimits], repr=False
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PaymentMethod(Acceptance):
    id: int
    merchant_id: int
    account_id: int
    provider_name: str  # the name that the API shows
    kind: str
    label: str
    chain: str | None
    fee_mode: FeeMode
    fee_rate: Decimal
    position: int  # lower ones are offered first
    limits: tuple[str, ...] = ()  # as the operator set them: USD:0.50:1000
    expected_token: ExpectedToken | None = field(default=None, repr=False)  # where it is taken
    token_minimum: int = field(default=1, repr=False)  # set by the contract
