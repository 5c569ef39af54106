"""The sandbox's balance transactions, read with Stripe's own library."""

from collections.abc import Iterator
from typing import Any

import aiohttp
import pytest
import stripe

from payintent.gateways.port import SessionCreated
from tests.sandbox.stripe.conftest import Connect
from tests.support import stripe as sandbox
from tests.support.stripe import Buyer, running_stripe


@pytest.fixture
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_stripe(tmp_path_factory.mktemp("stripe") / "log") as url:
        yield url


async def _pay(api: stripe.StripeClient, url: str, http: aiohttp.ClientSession) -> str:
    intent = await api.v1.payment_intents.create_async({"amount": 10_000, "currency": "usd"})
    card = {"publishable_key": sandbox.PUBLISHABLE_KEY, "client_secret": intent.client_secret}
    created = SessionCreated(
        reference=intent.id, next_action={"type": "embedded_card", "embedded_card": card}
    )
    await Buyer(url, http).pay(created)
    return intent.id


async def _list(api: stripe.StripeClient, **query: Any) -> list[stripe.BalanceTransaction]:
    page = await api.v1.balance_transactions.list_async(query)  # pyright: ignore[reportArgumentType]
    return [transaction async for transaction in page.auto_paging_iter()]


async def test_each_balance_transaction_has_a_category_a_fee_and_a_source(
    api: stripe.StripeClient, url: str, http: aiohttp.ClientSession
) -> None:
    intent = await _pay(api, url, http)
    await api.v1.refunds.create_async({"payment_intent": intent, "amount": 1_000})
    disputed = await _pay(api, url, http)
    dispute = await Buyer(url, http).dispute(disputed)
    await Buyer(url, http).decide_dispute(dispute, "won")
    transactions = await _list(api, limit=2, expand=["data.source"])
    assert sorted(
        (txn.reporting_category, txn.amount, txn.fee, txn.net) for txn in transactions
    ) == [
        ("charge", 10_000, 320, 9_680),
        ("charge", 10_000, 320, 9_680),
        ("dispute", -10_000, 1_500, -11_500),
        ("dispute_reversal", 10_000, 0, 10_000),
        ("refund", -1_000, 0, -1_000),
    ]
    sources: dict[str, Any] = {txn.reporting_category: txn.source for txn in transactions}
    assert sources["charge"].payment_intent in {intent, disputed}
    assert (sources["refund"].object, sources["dispute"].id) == ("refund", dispute)


async def test_balance_transactions_are_limited_to_the_account_and_period(
    api: stripe.StripeClient, connect: Connect, url: str, http: aiohttp.ClientSession
) -> None:
    await _pay(api, url, http)
    [transaction] = await _list(api)
    assert await _list(
        api, created={"gte": transaction.created, "lt": transaction.created + 1}
    ) == [transaction]
    assert await _list(api, created={"gte": transaction.created + 1}) == []
    assert await _list(api, created={"lt": transaction.created}) == []
    other_client = connect(sandbox.OTHER_SECRET_KEY)
    assert await _list(other_client) == []


async def test_a_payout_lists_its_transactions_and_can_fail(
    api: stripe.StripeClient, url: str, http: aiohttp.ClientSession
) -> None:
    await _pay(api, url, http)
    request = {"secret_key": sandbox.SECRET_KEY, "currency": "usd"}
    async with http.post(f"{url}/_sandbox/payouts", json=request) as answer:
        payout = await answer.json()
    settled = await _list(api, payout=payout["id"])
    assert sorted((txn.type, txn.net) for txn in settled) == [("charge", 9_680), ("payout", -9_680)]
    async with http.post(f"{url}/_sandbox/payouts", json=request) as answer:
        assert answer.status == 400
    async with http.post(f"{url}/_sandbox/payouts/{payout['id']}/fail", json={}) as answer:
        assert (await answer.json())["status"] == "failed"
    [back] = await _list(api, type="payout_failure")
    assert (back.reporting_category, back.amount) == ("payout_reversal", 9_680)
