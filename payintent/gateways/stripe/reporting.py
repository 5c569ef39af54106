"""Derive balance movements and payout fees from Stripe's balance transactions."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated, Literal
from urllib.parse import urlencode

from msgspec import Meta, Struct

from payintent.gateways.http_client import HttpResponse, HttpResult, decode_json, unusable_response
from payintent.gateways.port import GatewayAccount, OutcomeUnknown
from payintent.gateways.settlement_reports import BalanceMovement, MovementKind, MovementPage
from payintent.gateways.stripe.api import (
    StripeSource,
    StripeText,
    StripeTime,
    from_stripe_units,
    get_refund_id,
    parse_error_body,
)

PAGE_SIZE = 25  # about 5 KB per transaction with its source; the response size is limited
PAGES_MAX = 400  # per payout
_OK = 200
_INVALID_REQUEST = frozenset({400, 404})
_PATH = "/balance_transactions"
_FEE_CATEGORIES = frozenset({"fee", "network_cost"})
_UNFINISHED_REFUND_STATUSES = frozenset({"failed", "canceled", "pending", "requires_action"})
_DISPUTE_KINDS = {
    "dispute": MovementKind.DISPUTE,
    "dispute_reversal": MovementKind.DISPUTE_REVERSAL,
}
_PAYOUT_KINDS = {"payout": MovementKind.PAYOUT, "payout_reversal": MovementKind.PAYOUT_REVERSAL}

GetRequest = Callable[[GatewayAccount, str], Awaitable[HttpResult]]
_Units = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]


class StripeExpandedSource(StripeSource, frozen=True, kw_only=True):
    object: str = ""
    status: str | None = None
    amount: _Units | None = None
    amount_captured: _Units | None = None


class StripeBalanceTransaction(Struct, frozen=True):
    """A balance transaction. Amounts are in the balance's currency."""

    object: Literal["balance_transaction"]
    id: StripeText
    amount: _Units
    fee: _Units
    net: _Units
    currency: StripeText
    created: StripeTime
    available_on: StripeTime
    reporting_category: str
    type: str
    source: StripeExpandedSource | str | None = None


class StripeBalancePage(Struct, frozen=True):
    object: Literal["list"]
    data: list[StripeBalanceTransaction]
    has_more: bool


def to_movement(transaction: StripeBalanceTransaction) -> BalanceMovement | None:
    """Convert a transaction to a movement.

    Returns None for categories that are not movements, and for unfinished refunds. Payments,
    refunds and disputes use the currency of the charge, which may differ from the balance's. A
    failed refund is followed by a reversal, and both are ignored.
    """
    source = transaction.source
    if not isinstance(source, StripeExpandedSource):
        return None
    category = transaction.reporting_category
    if category == "charge":
        units = source.amount if source.amount_captured is None else source.amount_captured
        reference = source.payment_intent or source.id
        return _build_movement(transaction, MovementKind.PAYMENT, reference, units, source.currency)
    if category == "refund" and source.status not in _UNFINISHED_REFUND_STATUSES:
        movement = _build_movement(
            transaction, MovementKind.REFUND, source.id, source.amount, source.currency
        )
        our_id, capture = get_refund_id(source), source.payment_intent
        return movement and replace(movement, our_id=our_id, capture=capture)
    if (kind := _DISPUTE_KINDS.get(category)) is not None and source.object == "dispute":
        is_same_currency = transaction.currency == source.currency
        units = abs(transaction.amount) if is_same_currency else source.amount
        return _build_movement(transaction, kind, source.id, units, source.currency)
    if (kind := _PAYOUT_KINDS.get(category)) is not None:
        units = -transaction.amount if kind is MovementKind.PAYOUT else transaction.amount
        return _build_movement(transaction, kind, source.id, units, transaction.currency)
    return None


def sum_fees(transactions: Sequence[StripeBalanceTransaction]) -> int:
    """Sum the transactions' fees and the transactions that are fees, in Stripe's units."""
    return sum(
        transaction.fee
        - (transaction.amount if transaction.reporting_category in _FEE_CATEGORIES else 0)
        for transaction in transactions
    )


def _build_movement(
    transaction: StripeBalanceTransaction,
    kind: MovementKind,
    reference: str,
    units: int | None,
    currency: str | None,
) -> BalanceMovement | None:
    code = (currency or "").upper()
    if units is None or not code or units == 0:
        return None
    is_payout = kind in _PAYOUT_KINDS.values()
    return BalanceMovement(
        kind=kind,
        reference=reference,
        amount_minor=from_stripe_units(units, code),
        currency=code,
        at=datetime.fromtimestamp(transaction.created, UTC),
        paid_on=datetime.fromtimestamp(transaction.available_on, UTC).date() if is_payout else None,
    )


async def list_movements(
    get: GetRequest, account: GatewayAccount, since: datetime, until: datetime, after: str | None
) -> MovementPage | OutcomeUnknown:
    """Query a page of transactions created at or after `since` and before `until`."""
    query = {
        "created[gte]": str(int(since.timestamp())),
        "created[lt]": str(int(until.timestamp())),
        "expand[]": "data.source",
        "limit": str(PAGE_SIZE),
    }
    if after is not None:
        query["starting_after"] = after
    page = _decode_page(await get(account, f"{_PATH}?{urlencode(query)}"))
    if isinstance(page, OutcomeUnknown):
        return page
    try:
        movements = [to_movement(transaction) for transaction in page.data]
    except ValueError:
        return OutcomeUnknown(detail="the amount of a balance transaction has too many decimals")
    return MovementPage(
        movements=[movement for movement in movements if movement is not None],
        after=page.data[-1].id if page.has_more and page.data else None,
    )


async def sum_payout_fees(
    get: GetRequest, account: GatewayAccount, reference: str
) -> int | OutcomeUnknown:
    """Sum a payout's fees.

    Returns 0 for a manual payout, because Stripe does not list its transactions.
    """
    query = {"payout": reference, "limit": str(PAGE_SIZE)}
    transactions = list[StripeBalanceTransaction]()
    for _ in range(PAGES_MAX):
        response = await get(account, f"{_PATH}?{urlencode(query)}")
        if _is_rejected(response):
            return 0
        page = _decode_page(response)
        if isinstance(page, OutcomeUnknown):
            return page
        transactions += page.data
        if not page.has_more or not page.data:
            currency = page.data[-1].currency.upper() if page.data else ""
            return from_stripe_units(sum_fees(transactions), currency)
        query["starting_after"] = page.data[-1].id
    return OutcomeUnknown(detail="the payout has too many transactions")


def _is_rejected(response: HttpResult) -> bool:
    """Return whether Stripe itself, and not a proxy, rejects the request."""
    return (
        isinstance(response, HttpResponse)
        and response.status in _INVALID_REQUEST
        and parse_error_body(response.body) is not None
    )


def _decode_page(response: HttpResult) -> StripeBalancePage | OutcomeUnknown:
    if isinstance(response, OutcomeUnknown):
        return response
    page = decode_json(response.body, StripeBalancePage) if response.status == _OK else None
    return page or unusable_response(response.status, "unusable balance transactions")
