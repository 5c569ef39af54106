import asyncio
import secrets
import time
from typing import Any

import aiohttp
import pytest

from tests.sandbox.simulator.simulator_setup import (
    OTHER_KEY,
    SCALE,
    Merchant,
    Reply,
    Shop,
    running_simulator,
)
from tests.sandbox.simulator.test_cards import (
    APPROVED,
    OTHER_CURRENCY,
    REFUND_OUT_OF_ORDER,
    REFUND_PENDING,
    REFUND_REFUSED,
    is_signed,
)

TOTAL = 159_000


async def paid(shop: Shop, card: str = APPROVED, **changes: Any) -> dict[str, Any]:
    session = await shop.create(**changes)
    await shop.pay(session, card)
    return await shop.inquire(session["id"])


def order(shop: Shop, session: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {
        "reference": f"ref_{secrets.token_hex(11)}",
        "capture": session["capture"]["id"],
        "amount_minor": TOTAL,
        "currency": session["capture"]["currency"],
        "callback_url": shop.callback_url,
    } | changes


async def refund(shop: Shop, body: dict[str, Any], **options: Any) -> Reply:
    return await shop.call("POST", "/v1/refunds", json=body, **options)


async def inquire(shop: Shop, name: str) -> Reply:
    return await shop.call("GET", f"/v1/refunds/{name}")


async def callback_of(merchant: Merchant, reference: str) -> Any:
    """Return the callback about a refund; the rest are about its session."""
    for count in range(1, 10):
        received = (await merchant.wait_for(count))[count - 1]
        if received.event.get("refund", {}).get("reference") == reference:
            return received
    raise AssertionError


async def test_a_refund_succeeds_immediately_and_is_reported_by_a_signed_callback(
    shop: Shop, merchant: Merchant
) -> None:
    session = await paid(shop)
    request = order(shop, session, amount_minor=1)
    reply = await refund(shop, request)
    assert reply.status == 201
    del request["callback_url"]
    assert reply.json == {"id": reply.json["id"], "status": "succeeded"} | request
    assert reply.json["id"].startswith("re_")
    for name in (reply.json["id"], request["reference"]):
        assert (await inquire(shop, name)).json == reply.json
    received = await callback_of(merchant, request["reference"])
    assert received.event["type"] == "refund.succeeded"
    assert received.event["id"] == received.headers["sim-id"]
    assert received.event["refund"] == reply.json
    assert is_signed(received)
    assert (await shop.inquire(session["id"]))["capture"]["refunded_minor"] == 1


async def test_refund_callbacks_are_retried_until_a_2xx_response(
    shop: Shop, merchant: Merchant
) -> None:
    session = await paid(shop)
    await merchant.wait_for(1)
    merchant.answers.extend([500, 404])
    request = order(shop, session)
    await refund(shop, request)
    received = await merchant.wait_for(4)
    assert len({callback.headers["sim-id"] for callback in received[1:]}) == 1
    entries = await shop.log(kind="callback", reference=request["reference"])
    assert [entry["attempt"] for entry in entries] == [1, 2, 3]


async def test_a_repeated_reference_refunds_once_and_a_different_amount_gets_a_409(
    shop: Shop,
) -> None:
    session = await paid(shop)
    request = order(shop, session, amount_minor=60_000)
    first, repeated = await refund(shop, request), await refund(shop, request)
    assert (first.status, repeated.status, repeated.json) == (201, 200, first.json)
    assert (await refund(shop, request | {"amount_minor": 1})).status == 409
    assert (await shop.inquire(session["id"]))["capture"]["refunded_minor"] == 60_000


async def test_concurrent_requests_with_the_same_reference_refund_once(shop: Shop) -> None:
    session = await paid(shop)
    request = order(shop, session, amount_minor=60_000)
    replies = await asyncio.gather(*(refund(shop, request) for _ in range(8)))
    assert sorted(reply.status for reply in replies) == [200] * 7 + [201]
    assert len({reply.json["id"] for reply in replies}) == 1


async def test_refunds_cannot_exceed_the_captured_amount(shop: Shop) -> None:
    session = await paid(shop)
    part = order(shop, session, amount_minor=100_000)
    over = order(shop, session, amount_minor=59_001)
    remainder = order(shop, session, amount_minor=59_000)
    statuses = [(await refund(shop, request)).status for request in (part, over, remainder, over)]
    assert statuses == [201, 422, 201, 422]
    assert (await inquire(shop, over["reference"])).status == 404


async def test_refunds_need_a_known_capture_its_currency_and_its_account(
    shop: Shop,
) -> None:
    session = await paid(shop)
    request = order(shop, session)
    assert (await refund(shop, request | {"capture": "cap_nobody"})).status == 404
    assert (await refund(shop, request | {"currency": "USD"})).status == 422
    assert (await refund(shop, request, key=OTHER_KEY)).status == 404
    assert (await refund(shop, request, key="nobody")).status == 401
    unknown = await inquire(shop, request["reference"])
    assert (unknown.status, unknown.json) == (404, {"error": "no such refund"})
    refund_id = (await refund(shop, request)).json["id"]
    assert (await shop.call("GET", f"/v1/refunds/{refund_id}", key=OTHER_KEY)).status == 404


async def test_a_capture_in_another_currency_is_refunded_in_that_currency(shop: Shop) -> None:
    session = await paid(shop, OTHER_CURRENCY)
    assert session["capture"]["currency"] == "USD"
    assert (await refund(shop, order(shop, session))).status == 201


@pytest.mark.parametrize(
    "change",
    [
        {"amount_minor": 0},
        {"amount_minor": "1"},
        {"amount_minor": 1.5},
        {"reference": "re_looks_like_ours"},
        {"callback_url": "javascript:alert(1)"},
        {"capture": None},
    ],
)
async def test_an_invalid_refund_is_refused_with_a_reason(
    shop: Shop, change: dict[str, Any]
) -> None:
    reply = await refund(shop, order(shop, await paid(shop)) | change)
    assert reply.status == 400
    assert reply.json["error"]


async def test_a_pending_refund_reserves_its_amount_and_succeeds_a_scaled_minute_later(
    shop: Shop, merchant: Merchant
) -> None:
    session = await paid(shop, REFUND_PENDING)
    request = order(shop, session)
    started = time.monotonic()
    reply = await refund(shop, request)
    assert (reply.status, reply.json["status"]) == (201, "pending")
    assert (await refund(shop, order(shop, session, amount_minor=1))).status == 422
    received = await callback_of(merchant, request["reference"])
    assert time.monotonic() - started >= 60 / SCALE
    assert received.event["type"] == "refund.succeeded"
    assert (await inquire(shop, request["reference"])).json["status"] == "succeeded"


async def test_a_tester_can_decide_a_pending_refund_early(
    slow_shop: Shop, merchant: Merchant
) -> None:
    session = await paid(slow_shop, REFUND_PENDING)
    path = "/_sim/refunds/{id}".format
    for status in ("refused", "succeeded"):
        request = order(slow_shop, session)
        pending = (await refund(slow_shop, request)).json
        assert pending["status"] == "pending"
        settled = await slow_shop.call("POST", path(**pending), json={"status": status})
        assert (settled.status, settled.json["status"]) == (200, status)
        callback = await callback_of(merchant, request["reference"])
        assert callback.event["type"] == f"refund.{status}"
    repeated = await slow_shop.call("POST", path(**pending), json={"status": "refused"})
    assert repeated.status == 409
    bad = await slow_shop.call("POST", path(**pending), json={"status": "pending"})
    assert bad.status == 400
    assert (
        await slow_shop.call("POST", path(id="re_no"), json={"status": "refused"})
    ).status == 404


async def test_a_refused_refund_is_reported_and_moves_no_money(
    shop: Shop, merchant: Merchant
) -> None:
    session = await paid(shop, REFUND_REFUSED)
    request = order(shop, session)
    reply = await refund(shop, request)
    assert (reply.status, reply.json["status"]) == (201, "refused")
    assert reply.json["reason"]
    assert (await callback_of(merchant, request["reference"])).event["type"] == "refund.refused"
    assert (await refund(shop, request)).json == reply.json
    assert (await shop.inquire(session["id"]))["capture"]["refunded_minor"] == 0


async def test_refunds_of_the_failing_card_return_503_unless_a_rule_enables_them(
    shop: Shop,
) -> None:
    session = await paid(shop, REFUND_OUT_OF_ORDER)
    request = order(shop, session)
    for _ in range(5):
        assert (await refund(shop, request)).status == 503
    assert (await inquire(shop, request["reference"])).status == 404
    await shop.set_rules({"match": {}, "action": "refunds_work"})
    assert (await refund(shop, request)).status == 201
    await shop.set_rules()
    assert (await refund(shop, request)).status == 200
    assert (await refund(shop, order(shop, session))).status == 503


async def test_refunds_and_refund_inquiries_can_fail_separately(shop: Shop) -> None:
    session = await paid(shop)
    request = order(shop, session)
    await shop.set_rules({"match": {"reference": request["reference"]}, "action": "503_refund"})
    assert (await refund(shop, request)).status == 503
    assert (await inquire(shop, request["reference"])).status == 404
    await shop.set_rules({"match": {"amount": "1590"}, "action": "503_refund_inquiry"})
    assert (await refund(shop, request)).status == 201
    assert (await inquire(shop, request["reference"])).status == 503
    await shop.set_rules()
    assert (await inquire(shop, request["reference"])).json["status"] == "succeeded"


async def test_a_hanging_refund_succeeds_and_responds_late(shop: Shop, merchant: Merchant) -> None:
    session = await paid(shop)
    rule = {"match": {"reference": session["reference"]}, "action": "hang_refund"}
    await shop.set_rules(rule)
    request = order(shop, session)
    started = time.monotonic()
    reply = await refund(shop, request)
    assert time.monotonic() - started >= 35 / SCALE
    assert (reply.status, reply.json["status"]) == (201, "succeeded")
    assert (await callback_of(merchant, request["reference"])).event["refund"] == reply.json


async def test_a_refund_decided_by_a_tester_does_not_change_after_its_minute(
    merchant: Merchant,
) -> None:
    with running_simulator(scale=100) as url:  # a scaled minute is 0.6 s
        async with aiohttp.ClientSession() as http:
            shop = Shop(http, url, merchant.url)
            session = await paid(shop, REFUND_PENDING)
            decided, status = {}, 0
            while status != 200:  # retry if a slow machine was too late
                decided = (await refund(shop, order(shop, session, amount_minor=1))).json
                path = f"/_sim/refunds/{decided['id']}"
                status = (await shop.call("POST", path, json={"status": "refused"})).status
            later = order(shop, session, amount_minor=1)
            await refund(shop, later)
            await callback_of(merchant, later["reference"])
            assert (await inquire(shop, decided["id"])).json["status"] == "refused"
