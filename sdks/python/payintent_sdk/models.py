"""The service's responses as frozen dataclasses, one per object schema in openapi.yaml.

A missing field is None, unknown fields are ignored, and an enumeration may have an unlisted value,
so that a newer service does not break a client. Amounts are decimal strings in major units of their
currency; times are aware `datetime`s in UTC.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar

T = TypeVar("T")

# Enumerations are strings, because a newer service may add values.
PaymentStatus = str  # PENDING PROCESSING PAID FAILED EXPIRED CANCELLED PARTIALLY_REFUNDED REFUNDED
PaymentLinkStatus = str  # OPEN USED_UP EXPIRED INACTIVE
RefundStatus = str  # PENDING SUCCEEDED FAILED
CaseStatus = str  # OPEN REFUNDED ACCEPTED DISMISSED
DisputeState = str  # inquiry open under_review won lost closed
DeliveryState = str  # pending delivered dead skipped
Metadata = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class FraudDecision:
    """Why the service's fraud rules denied a payment."""

    outcome: str
    code: str
    message: str
    risk_level: str
    risk_score: float
    rule: str


@dataclass(frozen=True, kw_only=True)
class CreatedPayment:
    """A payment as it was created. Redirect the buyer to `checkout_url`."""

    id: str
    checkout_id: str
    checkout_url: str
    merchant_id: int
    status: PaymentStatus
    currency: str
    amount: str
    payer_uid: str
    tax_amount: str
    refunded_amount: str
    include_pegged_assets: bool
    tax_manager: str
    created_at: datetime
    updated_at: datetime
    expires_at: datetime
    metadata: Metadata
    return_url: str | None = None
    cancel_url: str | None = None


@dataclass(frozen=True, kw_only=True)
class Payment:
    """The current state of a payment."""

    id: str
    checkout_id: str
    merchant_id: int
    status: PaymentStatus
    currency: str
    amount: str
    payer_uid: str
    tax_amount: str
    refunded_amount: str
    include_pegged_assets: bool
    tax_manager: str
    created_at: datetime
    updated_at: datetime
    metadata: Metadata
    checkout_url: str | None = None
    return_url: str | None = None
    cancel_url: str | None = None
    expires_at: datetime | None = None
    payment_method_id: int | None = None
    provider: str | None = None
    quote_currency: str | None = None
    fee_mode: str | None = None
    fee_rate: str | None = None
    fee_amount: str | None = None
    estimated_tax: str | None = None
    quote_total_amount: str | None = None
    paid_at: datetime | None = None
    receipt_id: str | None = None
    failed_at: datetime | None = None
    failure_reason: str | None = None
    expired_at: datetime | None = None
    cancelled_at: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class Cancelled:
    """The response to a cancellation."""

    status: str


@dataclass(frozen=True, kw_only=True)
class Refund:
    """A refund. Refunds do not trigger webhooks, so poll the refund until it has ended."""

    id: str
    payment_id: str
    amount: str
    currency: str
    status: RefundStatus
    created_at: datetime
    updated_at: datetime
    reason: str | None = None
    destination: str | None = None
    failure_reason: str | None = None


@dataclass(frozen=True, kw_only=True)
class CaseDispute:
    """The dispute of a case."""

    state: DisputeState
    funds: str
    reason: str | None = None
    respond_by: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class Case:
    """Money or a discrepancy that needs manual review."""

    id: str
    kind: str
    status: CaseStatus
    opened_at: datetime
    payment_id: str | None = None
    currency: str | None = None
    amount: str | None = None
    dispute: CaseDispute | None = None
    closed_at: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class Dispute:
    """A buyer's dispute at the gateway."""

    case_id: str
    state: DisputeState
    funds: str
    currency: str
    opened_at: datetime
    updated_at: datetime
    payment_id: str | None = None
    amount: str | None = None
    reason: str | None = None
    respond_by: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class CatalogCurrency:
    """A currency in which buyers in a country can pay."""

    currency: str
    decimals: int


@dataclass(frozen=True, kw_only=True)
class CatalogCountry:
    """A country from which buyers can pay."""

    country_code: str
    name: str
    currencies: list[CatalogCurrency]


@dataclass(frozen=True, kw_only=True)
class Catalog:
    """The countries and currencies in which the merchant can be paid."""

    updated_at: datetime
    countries: list[CatalogCountry]


@dataclass(frozen=True, kw_only=True)
class MovedTimes:
    """The number of rows whose times the test clock has advanced."""

    payments: int
    sessions: int
    refunds: int
    deliveries: int


@dataclass(frozen=True, kw_only=True)
class PaymentLink:
    """A page on which buyers create payments. `uses` is the number of open and paid payments."""

    id: str
    url: str
    status: PaymentLinkStatus
    title: str
    currency: str
    uses: int
    created_at: datetime
    description: str | None = None
    order_id: str | None = None
    amount: str | None = None
    amount_min: str | None = None
    amount_max: str | None = None
    max_uses: int | None = None
    expires_at: datetime | None = None
    return_url: str | None = None
    cancel_url: str | None = None
    deactivated_at: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class Balance:
    """The amount owed to the merchant in a currency, or in a token on its chain."""

    currency: str
    amount: str
    chain: str | None = None


@dataclass(frozen=True, kw_only=True)
class BalanceList:
    """The amounts owed to the merchant."""

    data: list[Balance]


@dataclass(frozen=True, kw_only=True)
class Statement:
    """A day's changes to the amount owed to the merchant. Fees and payouts are negative."""

    id: str
    currency: str
    number: int  # among this currency's statements, starting at 1
    day: str
    time_zone: str
    opening: str
    payments: str
    fees: str
    tax: str
    refunds: str
    disputes: str
    adjustments: str
    payouts: str
    closing: str
    created_at: datetime
    chain: str | None = None


@dataclass(frozen=True, kw_only=True)
class StatementLine:
    """The effect of a payment, refund, dispute, case, adjustment or payout on the balance."""

    at: datetime
    kind: str
    fact: str
    id: str
    amount: str
    fee: str
    tax: str
    net: str
    payment_id: str | None = None


@dataclass(frozen=True, kw_only=True)
class StatementWithLines:
    """A statement, and a page of its lines."""

    id: str
    currency: str
    number: int  # among this currency's statements, starting at 1
    day: str
    time_zone: str
    opening: str
    payments: str
    fees: str
    tax: str
    refunds: str
    disputes: str
    adjustments: str
    payouts: str
    closing: str
    created_at: datetime
    lines: list[StatementLine]
    chain: str | None = None
    next_cursor: str | None = None


@dataclass(frozen=True, kw_only=True)
class TestClock:
    """How far a test merchant's clock has been advanced in total."""

    __test__ = False  # not a test class for pytest

    advanced_seconds: int


@dataclass(frozen=True, kw_only=True)
class AdvancedTestClock:
    """The result of advancing the test clock."""

    advanced_seconds: int
    moved: MovedTimes


@dataclass(frozen=True, kw_only=True)
class Page(Generic[T]):
    """A page of a list. `next_cursor` is None on the last page."""

    data: list[T]
    next_cursor: str | None = None
