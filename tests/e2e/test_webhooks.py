"""Merchants that are down, slow or gone: deliveries are recorded, retried and resent."""

import asyncio
import json
import time
from datetime import datetime
from typing import Any

import pytest
from aiohttp import web

from payintent.merchants.operations import SetCallbackUrl
from tests.e2e.conftest import NewMerchant
from tests.e2e.merchant import Answering, Delivery, Merchant, accept, move_clock, stop_clock
from tests.e2e.sandbox import Sandbox
from tests.support.patience import wait_until
from tests.support.world import ACTOR

CHAINS = False
WARM = True
pytestmark = [pytest.mark.e2e, pytest.mark.full]

AFTER_FIRST_S, AFTER_SECOND_S = 5, 30  # and up to a fifth more or less
CANCELLED = "payment.cancelled"
PROMPT_S = 7.0  # half of what one that hangs holds: long for a busy machine, too short for that


def answering(status: int, **headers: str) -> Answering:
    async def answer(_: Delivery) -> web.Response:
        return web.Response(status=status, headers=headers, text="the merchant's own words")

    return answer


async def hang(_: Delivery) -> web.Response:
    await asyncio.sleep(3600)
    raise AssertionError


async def cancelled(merchant: Merchant) -> dict[str, Any]:
    """Create an event in the fastest way."""
    payment = await merchant.create()
    await merchant.cancel(payment)
    return payment


def listed(sandbox: Sandbox, merchant: Merchant, *words: str) -> list[dict[str, Any]]:
    said = sandbox.command("webhooks", "list", "--merchant", str(merchant.id), "--json", *words)
    return json.loads(said)


def shown(sandbox: Sandbox, event_id: str) -> dict[str, Any]:
    return json.loads(sandbox.command("webhooks", "show", event_id, "--json"))


@pytest.mark.parametrize(
    ("answer", "outcome", "status"),
    [
        (answering(500), "http_error", 500),
        (answering(404), "http_error", 404),
        (answering(302, Location="http://127.0.0.1:1/elsewhere"), "redirect", 302),
        (answering(429), "http_error", 429),
    ],
)
async def test_a_refusal_is_recorded_as_what_it_is_and_tried_again_in_five_seconds(
    sandbox: Sandbox, merchant: Merchant, answer: Answering, outcome: str, status: int
) -> None:
    merchant.receiver.answer = answer
    payment = await cancelled(merchant)
    [attempt] = await merchant.attempts(payment)
    await stop_clock(merchant.database)  # a command takes longer than that on a busy machine
    assert (attempt["number"], attempt["outcome"], attempt["status"]) == (1, outcome, status)
    [delivery] = listed(sandbox, merchant)
    assert (delivery["state"], delivery["attempts"]) == ("pending", 1)
    wait_s = waits(attempt, delivery["next_at"])
    assert 0.8 * AFTER_FIRST_S - 0.1 <= wait_s <= 1.2 * AFTER_FIRST_S + 0.5


def waits(attempt: Any, next_at: str) -> float:
    """Return the seconds from the end of an attempt to the next attempt."""
    ended = attempt["started_at"].timestamp() + attempt["duration_ms"] / 1000
    return datetime.fromisoformat(next_at).timestamp() - ended


async def test_a_merchant_who_is_down_is_tried_on_schedule_until_it_is_back(
    sandbox: Sandbox, merchant: Merchant
) -> None:
    await merchant.receiver.stop()
    payment = await cancelled(merchant)
    await merchant.attempts(payment, 1)
    await move_clock(merchant.database, 1.2 * AFTER_FIRST_S)
    attempts = await merchant.attempts(payment, 2)
    await stop_clock(merchant.database)
    assert [attempt["outcome"] for attempt in attempts] == ["connect_error"] * 2
    [delivery] = listed(sandbox, merchant, "--state", "pending")
    wait_s = waits(attempts[1], delivery["next_at"])
    assert 0.8 * AFTER_SECOND_S - 0.1 <= wait_s <= 1.2 * AFTER_SECOND_S + 0.5
    await merchant.receiver.start()
    await move_clock(merchant.database, 1.2 * (AFTER_FIRST_S + AFTER_SECOND_S))
    told = await merchant.told(payment, CANCELLED)
    await merchant.attempts(payment, 3)
    event = shown(sandbox, told.webhook_id)
    assert event["event"]["body"].encode() == told.body
    assert [(attempt["number"], attempt["outcome"]) for attempt in event["attempts"]] == [
        (1, "connect_error"),
        (2, "connect_error"),
        (3, "delivered"),
    ]
    assert listed(sandbox, merchant, "--state", "pending") == []


async def test_every_attempt_has_the_same_id_and_bytes_and_a_signature_of_its_own_time(
    merchant: Merchant,
) -> None:
    merchant.receiver.answer = answering(500)
    payment = await cancelled(merchant)
    await merchant.attempts(payment, 1)
    merchant.receiver.answer = accept
    second = int(time.time())
    await wait_until(lambda: int(time.time()) > second, "another second")
    await move_clock(merchant.database, 1.2 * AFTER_FIRST_S)
    await merchant.attempts(payment, 2)
    one, other = merchant.receiver.of(payment)
    assert (one.webhook_id, one.body) == (other.webhook_id, other.body)
    assert one.headers["webhook-signature"] != other.headers["webhook-signature"]
    assert one.headers["webhook-timestamp"] < other.headers["webhook-timestamp"]


async def test_a_merchant_who_is_gone_is_not_asked_again_about_that_event(
    sandbox: Sandbox, merchant: Merchant, new_merchant: NewMerchant
) -> None:
    merchant.receiver.answer = answering(410)
    payment = await cancelled(merchant)
    [attempt] = await merchant.attempts(payment)
    assert (attempt["outcome"], attempt["status"]) == ("http_error", 410)
    [delivery] = listed(sandbox, merchant)
    assert (delivery["state"], delivery["attempts"]) == ("dead", 1)
    await move_clock(merchant.database, 3 * 24 * 3600)
    other = await new_merchant()
    await other.told(await cancelled(other), CANCELLED)
    assert len(await merchant.attempts(payment)) == 1
    assert len(merchant.receiver.deliveries) == 1


async def test_a_merchant_who_hangs_delays_nobody_else(
    merchant: Merchant, new_merchant: NewMerchant
) -> None:
    merchant.receiver.answer = hang
    hung = [await cancelled(merchant) for _ in range(20)]
    await wait_until(lambda: merchant.receiver.deliveries, "an attempt that hangs")
    other = await new_merchant()
    latencies = []
    for _ in range(20):
        payment = await cancelled(other)
        began = time.monotonic()
        told = await other.told(payment, CANCELLED)
        latencies.append(told.at - began)
    assert max(latencies) < PROMPT_S, latencies
    assert len(merchant.receiver.deliveries) <= 2, "a window of two, until somebody answers"
    first = merchant.receiver.deliveries[0].payment_id
    [attempt, *_] = await merchant.attempts({"id": first})
    assert (attempt["outcome"], attempt["status"]) == ("timeout", None)
    assert 14_900 <= attempt["duration_ms"] <= 25_000
    assert {item["id"] for item in hung} >= {
        delivery.payment_id for delivery in merchant.receiver.deliveries
    }


async def test_a_slow_merchant_is_waited_for(merchant: Merchant) -> None:
    async def answer(_: Delivery) -> web.Response:
        await asyncio.sleep(2.5)
        return web.Response(status=200)

    merchant.receiver.answer = answer
    payment = await cancelled(merchant)
    [attempt] = await merchant.attempts(payment)
    assert (attempt["outcome"], attempt["status"]) == ("delivered", 200)
    assert len(merchant.receiver.deliveries) == 1


async def test_without_a_callback_url_an_event_is_kept_and_can_be_sent_later(
    sandbox: Sandbox, new_merchant: NewMerchant
) -> None:
    merchant = await new_merchant(listening=False)
    payment = await cancelled(merchant)
    [delivery] = listed(sandbox, merchant)
    assert (delivery["state"], delivery["attempts"]) == ("skipped", 0)
    moved = SetCallbackUrl(merchant_id=merchant.id, callback_url=merchant.receiver.url)
    await merchant.service.run_operation(moved, ACTOR)
    sandbox.command("webhooks", "replay-missed", "--merchant", str(merchant.id))
    told = await merchant.told(payment, CANCELLED)
    assert told.webhook_id == delivery["event_id"]
    await merchant.attempts(payment)
    [delivery] = listed(sandbox, merchant)
    assert (delivery["state"], delivery["attempts"]) == ("delivered", 1)


async def test_a_replay_sends_what_had_arrived_once_more_under_the_same_id(
    sandbox: Sandbox, merchant: Merchant
) -> None:
    payment = await cancelled(merchant)
    told = await merchant.told(payment, CANCELLED)
    await merchant.attempts(payment)
    sandbox.command("webhooks", "replay", told.webhook_id)
    await wait_until(lambda: len(merchant.receiver.deliveries) == 2, "the second delivery")
    again = merchant.receiver.deliveries[1]
    assert (again.webhook_id, again.body) == (told.webhook_id, told.body)
    assert await merchant.events(payment) == [CANCELLED]


async def test_a_dead_event_is_sent_again_when_the_operator_says_so(
    sandbox: Sandbox, merchant: Merchant
) -> None:
    merchant.receiver.answer = answering(500)
    payment = await cancelled(merchant)
    [first] = await merchant.attempts(payment)
    await merchant.rows("UPDATE delivery SET state = 'dead' WHERE event_id = $1", first["event_id"])
    merchant.receiver.answer = accept
    sandbox.command("webhooks", "replay-missed", "--merchant", str(merchant.id))
    await merchant.attempts(payment, 2)
    one, other = merchant.receiver.of(payment)
    assert (one.webhook_id, one.body) == (other.webhook_id, other.body)
    assert (await merchant.delivery_of(payment))["state"] == "delivered"
