"""Merchants and their payment methods."""

import base64
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum

from payintent.core.addresses import parse_web_origin
from payintent.core.errors import ConflictError, UnprocessableError, quote_input
from payintent.gateways.amount_limits import AmountLimits

SECRET_PREFIX = "whsec_"  # noqa: S105 - the public prefix of every callback secret
SECRET_BYTES_MIN, SECRET_BYTES_MAX = 24, 64
SIGNING_SECRETS_MAX = 3  # callback secrets of a merchant that sign each webhook


class FeeMode(StrEnum):
    """Whether the fee is included in the amount or charged to the buyer on top of it."""

    INCLUSIVE = "INCLUSIVE"
    EXCLUSIVE = "EXCLUSIVE"


class TaxManager(StrEnum):
    """Whether this service manages tax at the operator's rates, or the merchant does (`NONE`)."""

    NONE = "NONE"
    SERVICE = "SERVICE"


class TaxCountry(StrEnum):
    SELECTION = "selection"  # the country that the buyer selects, or the merchant's country
    MERCHANT = "merchant"  # always the merchant's default country


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """The price of a payment with a given method. Amounts and rates are decimal strings."""

    currency: str
    amount: str
    fee_mode: FeeMode
    fee_rate: str
    fee_amount: str
    estimated_tax: str
    total_amount: str


class ActivationStatus(StrEnum):
    NEW = "NEW"
    REQUESTED = "REQUESTED"  # the contract, KYC file and requested market are stored
    APPLIED = "APPLIED"  # payments are possible, so that the integration can be validated
    VALIDATED = "VALIDATED"
    ACTIVE = "ACTIVE"
    SUSPENDED = "SUSPENDED"


class ActivationAction(StrEnum):
    REQUEST = "request"
    APPLY = "apply"
    VALIDATE = "validate"
    ACTIVATE = "activate"
    SUSPEND = "suspend"
    RESUME = "resume"


_ACCEPTING_STATUSES = (
    ActivationStatus.APPLIED,
    ActivationStatus.VALIDATED,
    ActivationStatus.ACTIVE,
)

#: An active merchant stays active while it requests a new market.
TRANSITIONS: Mapping[tuple[ActivationStatus, ActivationAction], ActivationStatus] = {
    (ActivationStatus.NEW, ActivationAction.REQUEST): ActivationStatus.REQUESTED,
    (ActivationStatus.REQUESTED, ActivationAction.REQUEST): ActivationStatus.REQUESTED,
    (ActivationStatus.ACTIVE, ActivationAction.REQUEST): ActivationStatus.ACTIVE,
    (ActivationStatus.REQUESTED, ActivationAction.APPLY): ActivationStatus.APPLIED,
    (ActivationStatus.ACTIVE, ActivationAction.APPLY): ActivationStatus.ACTIVE,
    (ActivationStatus.APPLIED, ActivationAction.VALIDATE): ActivationStatus.VALIDATED,
    (ActivationStatus.VALIDATED, ActivationAction.ACTIVATE): ActivationStatus.ACTIVE,
    (ActivationStatus.APPLIED, ActivationAction.SUSPEND): ActivationStatus.SUSPENDED,
    (ActivationStatus.VALIDATED, ActivationAction.SUSPEND): ActivationStatus.SUSPENDED,
    (ActivationStatus.ACTIVE, ActivationAction.SUSPEND): ActivationStatus.SUSPENDED,
    # The result is ACTIVE if the merchant has ever been active.
    (ActivationStatus.SUSPENDED, ActivationAction.RESUME): ActivationStatus.APPLIED,
}


def next_activation_status(
    status: ActivationStatus, action: ActivationAction, *, was_active: bool
) -> ActivationStatus:
    """Return the status after an action. Raises `CONFLICT` if the action is not allowed."""
    if (status, action) not in TRANSITIONS:
        raise ConflictError(f"cannot {action} a merchant that is {status}")
    if action is ActivationAction.RESUME and was_active:
        return ActivationStatus.ACTIVE
    return TRANSITIONS[status, action]


def require_accepting_payments(activation: ActivationStatus) -> None:
    """Raise `UNPROCESSABLE` if the merchant does not accept payments."""
    if activation not in _ACCEPTING_STATUSES:
        raise UnprocessableError(f"this merchant does not accept payments: it is {activation}")


def accepts_payments(activation: ActivationStatus) -> bool:
    return activation in _ACCEPTING_STATUSES


@dataclass(frozen=True, slots=True)
class ExpectedToken:
    """A token's properties at the time of a quote."""

    address: bytes  # 20 zero bytes for the chain's native coin
    decimals: int
    approve_zero_first: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Quote:
    payment_method_id: int
    account_id: int
    provider: str
    provider_name: str  # the name shown by the API
    kind: str
    label: str
    country: str
    chain: str | None
    token: str | None
    price: Price
    total_minor: int  # in minor units of the currency, or base units of the token
    expected_token: ExpectedToken | None = None
    label_translations: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class Market:
    """Countries and currencies in which payments are accepted. None means all."""

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
    auto_refund: bool = (
        True  # whether money that does not belong to a payment is refunded automatically
    )
    allow_http: bool = False  # whether the callback URL may use http
    accent_colour: str | None = None  # for the checkout page, such as `#0b5bd3`
    terms_url: str | None = None
    mail_receipts: bool = False  # whether receipts are sent to buyers with an email address
    livemode: bool = True  # False for a test merchant, whose payments move no money
    live_merchant: int | None = None  # a test merchant's live merchant
    time_zone: str = "UTC"  # defines the days of the merchant's statements
    #: The daily total of gateway refunds, per currency, above which refunds need approval.
    refund_approval_above: Mapping[str, str] = field(default_factory=dict[str, str])
    #: The maximum shortfall of a deposit that counts as full payment, in percent of the amount.
    deposit_tolerance: Decimal = Decimal(0)

    @property
    def title(self) -> str:
        """The merchant's name in messages to operators."""
        return f"merchant {self.id} ({quote_input(self.name)})"

    @property
    def origins(self) -> frozenset[str]:
        return frozenset(filter(None, map(parse_web_origin, self.allowed_origins)))

    @property
    def return_origins(self) -> frozenset[str]:
        return find_return_origins(self.allowed_origins, self.return_url)


def find_return_origins(allowed_origins: Iterable[str], return_url: str | None) -> frozenset[str]:
    """Return the origins to which a checkout may redirect the buyer."""
    return frozenset(filter(None, map(parse_web_origin, (*allowed_origins, return_url or ""))))


class UnavailablePart(StrEnum):
    """The part that makes an enabled method unavailable."""

    ACCOUNT = "account"  # disabled
    PROVIDER = "provider"  # disabled
    CHAIN = "chain"  # not watched
    ADAPTER = "adapter"  # not installed
    OUTAGE = "outage"  # the gateway does not respond


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    """The properties of a payment method that determine where it can be used."""

    provider: str
    currencies: tuple[str, ...]
    countries: tuple[str, ...] | None  # None means all
    account_countries: tuple[str, ...] | None  # None means all
    token: str | None
    token_decimals: int | None  # on-chain decimals; None if there is no supported token
    enabled: bool
    account_enabled: bool  # whether the account and provider are enabled and the chain is watched
    unavailable_part: UnavailablePart | None = field(default=None, repr=False)
    #: The gateway's decimals per currency. None means the same as in `TENDER`.
    decimals: Mapping[str, int] | None = field(default=None, repr=False)
    #: Limits on the total, per currency. The method's own limits replace the gateway's limits.
    amount_limits: Mapping[str, AmountLimits] = field(
        default_factory=dict[str, AmountLimits], repr=False
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PaymentMethod(Acceptance):
    id: int
    merchant_id: int
    account_id: int
    provider_name: str  # the name shown by the API
    kind: str
    label: str  # for languages without a translation
    chain: str | None
    fee_mode: FeeMode
    fee_rate: Decimal
    position: int  # lower positions are offered first
    limits: tuple[str, ...] = ()  # as entered by the operator: USD:0.50:1000
    label_translations: Mapping[str, str] = field(default_factory=dict[str, str])  # by language
    expected_token: ExpectedToken | None = field(default=None, repr=False)
    token_minimum: int = field(default=1, repr=False)  # the contract's minimum


def encode_secret(key: bytes) -> str:
    """Encode a key in the format that merchants receive (`whsec_…`)."""
    if not SECRET_BYTES_MIN <= len(key) <= SECRET_BYTES_MAX:
        raise ValueError(
            f"a webhook secret must have {SECRET_BYTES_MIN} to {SECRET_BYTES_MAX} bytes"
        )
    return SECRET_PREFIX + base64.b64encode(key).decode()
