"""Test webhook deliveries when the merchant is unreachable, slow or gone."""

import asyncio
import json
import time
from datetime import datetime
from typing import Any

import pytest
from aiohttp import web

from payintent.merchants.operations import SetCallbackUrl
from tests.e2e.conftest import NewMerchant
from tests.e2e.merchant import Delivery, Merchant, Responder, accept, move_clock, stop_clock
from tests.e2e.sandbox import Sandbox
from tests.support.timeouts import wait_until
from tests.support.world import ACTOR

CHAINS = False
WARM = True
pytestmark = [pytest.mark.e2e, pytest.mark.full]

AFTER_FIRST_S, AFTER_SECOND_S = 5, 30  # plus or minus 20 % of jitter
CANCELLED = "payment.cancelled"
PROMPT_WITHIN_S = 7.0  # half of the delivery timeout


def respond_with(status: int, **headers: str) -> Responder:
    async def answer(_: Delivery) -> web.Response:
        return web.Response(status=status, headers=headers, text="the merchant's error message")

    return answer


async def hang(_: Delivery) -> web.Response:
    await asyncio.sleep(3600)
    raise AssertionError


async def create_cancelled_payment(merchant: Merchant) -> dict[str, Any]:
    """Create a payment that has an event immediately."""
    payment = await merchant.create()
    await merchant.cancel(payment)
    return payment


def list_deliveries(sandbox: Sandbox, merchant: Merchant, *words: str) -> list[dict[str, Any]]:
    output = sandbox.command("webhooks", "list", "--merchant", str(merchant.id), "--json", *words)
    return json.loads(output)


def show_event(sandbox: Sandbox, event_id: str) -> dict[str, Any]:
    return json.loads(sandbox.command("webhooks", "show", event_id, "--json"))


@pytest.mark.parametrize(
    ("answer", "outcome", "status"),
    [
        (respond_with(500), "http_error", 500),
        (respond_with(404), "http_error", 404),
        (respond_with(302, Location="http://127.0.0.1:1/elsewhere"), "redirect", 302),
        (respond_with(429), "http_error", 429),
    ],
)
async def test_a_failed_attempt_is_recorded_and_retried_after_five_seconds(
    sandbox: Sandbox, merchant: Merchant, answer: Responder, outcome: str, status: int
) -> None:
    merchant.receiver.answer = answer
    payment = await create_cancelled_payment(merchant)
    [attempt] = await merchant.attempts(payment)
    await stop_clock(merchant.database)  # on a busy machine, a command takes longer than the delay
    assert (attempt["number"], attempt["outcome"], attempt["status"]) == (1, outcome, status)
    [delivery] = list_deliveries(sandbox, merchant)
    assert (delivery["state"], delivery["attempts"]) == ("pending", 1)
    wait_s = retry_delay_s(attempt, delivery["next_at"])
    assert 0.8 * AFTER_FIRST_S - 0.1 <= wait_s <= 1.2 * AFTER_FIRST_S + 0.5


def retry_delay_s(attempt: Any, next_at: str) -> float:
    """Return the seconds from the end of an attempt to the next attempt."""
    ended = attempt["started_at"].timestamp() + attempt["duration_ms"] / 1000
    return datetime.fromisoformat(next_at).timestamp() - ended


async def test_deliveries_to_an_unreachable_merchant_are_retried_on_schedule(
    sandbox: Sandbox, merchant: Merchant
) -> None:
    await merchant.receiver.stop()
    payment = await create_cancelled_payment(merchant)
    await merchant.attempts(payment, 1)
    await move_clock(merchant.database, 1.2 * AFTER_FIRST_S)
    attempts = await merchant.attempts(payment, 2)
    await stop_clock(merchant.database)
    assert [attempt["outcome"] for attempt in attempts] == ["connect_error"] * 2
    [delivery] = list_deliveries(sandbox, merchant, "--state", "pending")
    wait_s = retry_delay_s(attempts[1], delivery["next_at"])
    assert 0.8 * AFTER_SECOND_S - 0.1 <= wait_s <= 1.2 * AFTER_SECOND_S + 0.5
    await merchant.receiver.start()
    await move_clock(merchant.database, 1.2 * (AFTER_FIRST_S + AFTER_SECOND_S))
    received = await merchant.wait_for_webhook(payment, CANCELLED)
    await merchant.attempts(payment, 3)
    event = show_event(sandbox, received.webhook_id)
    assert event["event"]["body"].encode() == received.body
    assert [(attempt["number"], attempt["outcome"]) for attempt in event["attempts"]] == [
        (1, "connect_error"),
        (2, "connect_error"),
        (3, "delivered"),
    ]
    assert list_deliveries(sandbox, merchant, "--state", "pending") == []


async def test_every_attempt_has_the_same_id_and_body_but_a_new_signature(
    merchant: Merchant,
) -> None:
    merchant.receiver.answer = respond_with(500)
    payment = await create_cancelled_payment(merchant)
    await merchant.attempts(payment, 1)
    merchant.receiver.answer = accept
    second = int(time.time())
    await wait_until(lambda: int(time.time()) > second, "the next second")
    await move_clock(merchant.database, 1.2 * AFTER_FIRST_S)
    await merchant.attempts(payment, 2)
    first_delivery, second_delivery = merchant.receiver.deliveries_for(payment)
    assert (first_delivery.webhook_id, first_delivery.body) == (
        second_delivery.webhook_id,
        second_delivery.body,
    )
    assert (
        first_delivery.headers["webhook-signature"] != second_delivery.headers["webhook-signature"]
    )
    assert (
        first_delivery.headers["webhook-timestamp"] < second_delivery.headers["webhook-timestamp"]
    )


async def test_an_event_is_not_retried_after_a_410_response(
    sandbox: Sandbox, merchant: Merchant, new_merchant: NewMerchant
) -> None:
    merchant.receiver.answer = respond_with(410)
    payment = await create_cancelled_payment(merchant)
    [attempt] = await merchant.attempts(payment)
    assert (attempt["outcome"], attempt["status"]) == ("http_error", 410)
    [delivery] = list_deliveries(sandbox, merchant)
    assert (delivery["state"], delivery["attempts"]) == ("dead", 1)
    await move_clock(merchant.database, 3 * 24 * 3600)
    reachable_merchant = await new_merchant()
    await reachable_merchant.wait_for_webhook(
        await create_cancelled_payment(reachable_merchant), CANCELLED
    )
    assert len(await merchant.attempts(payment)) == 1
    assert len(merchant.receiver.deliveries) == 1


async def test_an_unresponsive_merchant_does_not_delay_another_merchant(
    merchant: Merchant, new_merchant: NewMerchant
) -> None:
    merchant.receiver.answer = hang
    unanswered = [await create_cancelled_payment(merchant) for _ in range(20)]
    await wait_until(lambda: merchant.receiver.deliveries, "an unanswered attempt")
    prompt_merchant = await new_merchant()
    latencies = []
    for _ in range(20):
        payment = await create_cancelled_payment(prompt_merchant)
        began = time.monotonic()
        delivery_received = await prompt_merchant.wait_for_webhook(payment, CANCELLED)
        latencies.append(delivery_received.at - began)
    assert max(latencies) < PROMPT_WITHIN_S, latencies
    assert len(merchant.receiver.deliveries) <= 2, (
        "until a response, at most two deliveries are concurrent"
    )
    first = merchant.receiver.deliveries[0].payment_id
    [attempt, *_] = await merchant.attempts({"id": first})
    assert (attempt["outcome"], attempt["status"]) == ("timeout", None)
    assert 14_900 <= attempt["duration_ms"] <= 25_000
    assert {item["id"] for item in unanswered} >= {
        delivery.payment_id for delivery in merchant.receiver.deliveries
    }


async def test_a_delivery_waits_for_a_slow_response(merchant: Merchant) -> None:
    async def answer(_: Delivery) -> web.Response:
        await asyncio.sleep(2.5)
        return web.Response(status=200)

    merchant.receiver.answer = answer
    payment = await create_cancelled_payment(merchant)
    [attempt] = await merchant.attempts(payment)
    assert (attempt["outcome"], attempt["status"]) == ("delivered", 200)
    assert len(merchant.receiver.deliveries) == 1


async def test_an_event_without_a_callback_url_is_stored_and_can_be_sent_later(
    sandbox: Sandbox, new_merchant: NewMerchant
) -> None:
    merchant = await new_merchant(listening=False)
    payment = await create_cancelled_payment(merchant)
    [delivery] = list_deliveries(sandbox, merchant)
    assert (delivery["state"], delivery["attempts"]) == ("skipped", 0)
    operation = SetCallbackUrl(merchant_id=merchant.id, callback_url=merchant.receiver.url)
    await merchant.service.run_operation(operation, ACTOR)
    sandbox.command("webhooks", "replay-missed", "--merchant", str(merchant.id))
    received = await merchant.wait_for_webhook(payment, CANCELLED)
    assert received.webhook_id == delivery["event_id"]
    await merchant.attempts(payment)
    [delivery] = list_deliveries(sandbox, merchant)
    assert (delivery["state"], delivery["attempts"]) == ("delivered", 1)


async def test_a_replay_resends_a_delivered_event_with_the_same_id(
    sandbox: Sandbox, merchant: Merchant
) -> None:
    payment = await create_cancelled_payment(merchant)
    first_delivery = await merchant.wait_for_webhook(payment, CANCELLED)
    await merchant.attempts(payment)
    sandbox.command("webhooks", "replay", first_delivery.webhook_id)
    await wait_until(lambda: len(merchant.receiver.deliveries) == 2, "the second delivery")
    second_delivery = merchant.receiver.deliveries[1]
    assert (second_delivery.webhook_id, second_delivery.body) == (
        first_delivery.webhook_id,
        first_delivery.body,
    )
    assert await merchant.events(payment) == [CANCELLED]


async def test_the_operator_can_resend_a_dead_event(sandbox: Sandbox, merchant: Merchant) -> None:
    merchant.receiver.answer = respond_with(500)
    payment = await create_cancelled_payment(merchant)
    [first] = await merchant.attempts(payment)
    await merchant.rows("UPDATE delivery SET state = 'dead' WHERE event_id = $1", first["event_id"])
    merchant.receiver.answer = accept
    sandbox.command("webhooks", "replay-missed", "--merchant", str(merchant.id))
    await merchant.attempts(payment, 2)
    first_delivery, second_delivery = merchant.receiver.deliveries_for(payment)
    assert (first_delivery.webhook_id, first_delivery.body) == (
        second_delivery.webhook_id,
        second_delivery.body,
    )
    assert (await merchant.delivery_of(payment))["state"] == "delivered"
