"""The Stripe emulator behaves as Stripe documents, when used with Stripe's library."""

import json
from collections.abc import AsyncGenerator, Iterator
from typing import Any

import aiohttp
import pytest
import stripe

from payintent.gateways.http_client import GatewayHttpClient
from payintent.gateways.port import GatewayAccount, SessionCreated
from payintent.gateways.stripe.adapter import StripeGateway
from tests.conformance.receiver import Receiver, receiving
from tests.support import stripe as sandbox
from tests.support.stripe import Buyer, running_stripe


@pytest.fixture
async def receiver() -> AsyncGenerator[Receiver]:
    async with receiving() as receiver:
        client = GatewayHttpClient(timeout_s=1, response_bytes_max=1)
        account = GatewayAccount(
            id=1, provider="stripe", base_url="http://x", credentials=sandbox.credentials()
        )
        receiver.serve(StripeGateway(client), account)
        yield receiver


@pytest.fixture
async def buyer(url: str, http: aiohttp.ClientSession, receiver: Receiver) -> Buyer:
    buyer = Buyer(url, http)
    await buyer.listen(receiver.url, sandbox.WEBHOOK_SECRET)
    return buyer


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_stripe(tmp_path_factory.mktemp("stripe") / "log") as url:
        yield url


async def create_intent(
    api: stripe.StripeClient, amount: int = 2_000, currency: str = "thb"
) -> Any:
    return await api.v1.payment_intents.create_async({"amount": amount, "currency": currency})


def make_session(intent: Any) -> SessionCreated:
    card = {"publishable_key": sandbox.PUBLISHABLE_KEY, "client_secret": intent.client_secret}
    return SessionCreated(reference=intent.id, next_action={"embedded_card": card})


async def wait_for_event(receiver: Receiver, kind: str, **fields: object) -> dict[str, Any]:
    """Wait for an event about an object with these fields; return that object."""

    def list_objects() -> list[dict[str, Any]]:
        events = [json.loads(request.body) for request in receiver.received]
        objects = [payload["data"]["object"] for payload in events if payload["type"] == kind]
        return [item for item in objects if fields.items() <= item.items()]

    await receiver.wait_for(lambda _: bool(list_objects()))
    return list_objects()[0]


MINIMUMS = [("usd", 50), ("jpy", 50), ("thb", 1_000), ("twd", 1_625), ("idr", 825_000)]


@pytest.mark.parametrize(("currency", "minimum"), [*MINIMUMS, ("php", 2_900)])
async def test_an_amount_has_its_published_minimum(
    api: stripe.StripeClient, currency: str, minimum: int
) -> None:
    assert (await create_intent(api, minimum, currency)).amount == minimum
    with pytest.raises(stripe.InvalidRequestError) as refused:
        await create_intent(api, minimum - 1, currency)
    assert refused.value.code == "amount_too_small"


@pytest.mark.parametrize(("currency", "digits"), [("usd", 8), ("jpy", 8), ("idr", 12)])
async def test_an_amount_has_its_published_maximum_number_of_digits(
    api: stripe.StripeClient, currency: str, digits: int
) -> None:
    assert (await create_intent(api, 10**digits - 1, currency)).amount == 10**digits - 1
    with pytest.raises(stripe.InvalidRequestError) as refused:
        await create_intent(api, 10**digits, currency)
    assert refused.value.code == "amount_too_large"


async def test_an_intent_stores_its_description_and_excluded_methods(
    api: stripe.StripeClient,
) -> None:
    order: stripe.params.PaymentIntentCreateParams = {
        "amount": 2_000,
        "currency": "thb",
        "description": "pay_1, order 7 & 8",
        "excluded_payment_method_types": ["konbini", "oxxo"],
    }
    created = await api.v1.payment_intents.create_async(order)
    stored = await api.v1.payment_intents.retrieve_async(created.id)
    for intent in (created, stored):
        assert intent.description == "pay_1, order 7 & 8"
        assert intent.excluded_payment_method_types == ["konbini", "oxxo"]


async def test_a_refund_in_the_dashboard_has_no_metadata_and_sends_both_events(
    api: stripe.StripeClient, buyer: Buyer, receiver: Receiver
) -> None:
    intent = await create_intent(api)
    await buyer.pay(make_session(intent))
    refund_id = await buyer.refund_in_dashboard(intent.id, 1_500)
    refund = await wait_for_event(receiver, "refund.created", id=refund_id)
    charge = await wait_for_event(receiver, "charge.refunded", payment_intent=intent.id)
    assert refund["payment_intent"] == intent.id
    assert (refund["amount"], refund["metadata"], refund["status"]) == (1_500, {}, "succeeded")
    assert (charge["amount_refunded"], charge["refunded"]) == (1_500, False)
    await buyer.refund_in_dashboard(intent.id)
    await wait_for_event(receiver, "charge.refunded", refunded=True, amount_refunded=2_000)
    refunds = await api.v1.refunds.list_async({"payment_intent": intent.id})
    assert sum(item.amount for item in refunds.data) == 2_000


async def test_an_early_fraud_warning_is_sent_as_an_event(
    api: stripe.StripeClient, buyer: Buyer, receiver: Receiver
) -> None:
    intent = await create_intent(api)
    await buyer.pay(make_session(intent))
    warning_id = await buyer.warn_of_fraud(intent.id)
    warning = await wait_for_event(receiver, "radar.early_fraud_warning.created", id=warning_id)
    assert warning["payment_intent"] == intent.id
    assert set(warning) <= set(stripe.radar.EarlyFraudWarning.__annotations__) | {"object"}


async def test_a_buyer_who_abandons_a_challenge_can_pay_again(
    api: stripe.StripeClient, buyer: Buyer, receiver: Receiver
) -> None:
    intent = await create_intent(api)
    confirmation = await buyer.confirm(make_session(intent), sandbox.CHALLENGES)
    assert confirmation["status"] == "requires_action"
    await buyer.leave(make_session(intent))
    failed = await wait_for_event(receiver, "payment_intent.payment_failed", id=intent.id)
    assert failed["status"] == "requires_payment_method"
    assert failed["last_payment_error"]["code"] == "payment_method_customer_decline"
    await buyer.pay(make_session(intent))


async def test_a_payment_cancelled_in_the_dashboard_has_a_cancellation_reason(
    api: stripe.StripeClient, buyer: Buyer, receiver: Receiver
) -> None:
    intent = await create_intent(api)
    await buyer.cancel_in_dashboard(intent.id)
    cancelled = await wait_for_event(receiver, "payment_intent.canceled", id=intent.id)
    assert cancelled["status"] == "canceled"
    assert cancelled["cancellation_reason"] == "requested_by_customer"
    assert "error" in await buyer.confirm(make_session(intent), sandbox.PAYS)
