"""Queries for Stripe's balance transactions, by period or payout."""

from collections.abc import Awaitable, Callable
from datetime import datetime
from urllib.parse import urlencode

from payintent.domain.balance_movement import MovementPage
from payintent.domain.gateway import GatewayAccount, OutcomeUnknown
from payintent.gateways.http_client import HttpAnswer, decode_json, unusable
from payintent.gateways.stripe.api import from_stripe_units
from payintent.gateways.stripe.balance import (
    PAGE,
    PAGES_MAX,
    StripeBalancePage,
    StripeBalanceTransaction,
    read_movement,
    sum_fees,
)

_OK = 200
_REFUSED = frozenset({400, 404})
_PATH = "/balance_transactions"

Get = Callable[[GatewayAccount, str], Awaitable[HttpAnswer | OutcomeUnknown]]


async def list_movements(
    get: Get, account: GatewayAccount, since: datetime, until: datetime, after: str | None
) -> MovementPage | OutcomeUnknown:
    """Query a page of transactions that were created from `since` to before `until`."""
    query = {
        "created[gte]": str(int(since.timestamp())),
        "created[lt]": str(int(until.timestamp())),
        "expand[]": "data.source",
        "limit": str(PAGE),
    }
    if after is not None:
        query["starting_after"] = after
    page = _decode_page(await get(account, f"{_PATH}?{urlencode(query)}"))
    if isinstance(page, OutcomeUnknown):
        return page
    try:
        movements = [read_movement(transaction) for transaction in page.data]
    except ValueError:
        return OutcomeUnknown(detail="the amount of a balance transaction has too many decimals")
    return MovementPage(
        movements=[movement for movement in movements if movement is not None],
        after=page.data[-1].id if page.has_more and page.data else None,
    )


async def sum_payout_fees(
    get: Get, account: GatewayAccount, reference: str
) -> int | OutcomeUnknown:
    """Sum the fees of a payout; 0 for a manual payout, whose transactions Stripe does not list."""
    query = {"payout": reference, "limit": str(PAGE)}
    transactions = list[StripeBalanceTransaction]()
    for _ in range(PAGES_MAX):
        answer = await get(account, f"{_PATH}?{urlencode(query)}")
        if isinstance(answer, HttpAnswer) and answer.status in _REFUSED:
            return 0
        page = _decode_page(answer)
        if isinstance(page, OutcomeUnknown):
            return page
        transactions += page.data
        if not page.has_more or not page.data:
            currency = page.data[-1].currency.upper() if page.data else ""
            return from_stripe_units(sum_fees(transactions), currency)
        query["starting_after"] = page.data[-1].id
    return OutcomeUnknown(detail="the payout has too many transactions")


def _decode_page(answer: HttpAnswer | OutcomeUnknown) -> StripeBalancePage | OutcomeUnknown:
    if isinstance(answer, OutcomeUnknown):
        return answer
    page = decode_json(answer.body, StripeBalancePage) if answer.status == _OK else None
    return page or unusable(answer.status, "balance transactions")
