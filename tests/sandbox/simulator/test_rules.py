import asyncio
import json
import threading
import time
from typing import Any

import pytest

from payintent_sandbox.emulators.simulator.machine import SimulatorEmulator
from tests.sandbox.simulator.simulator_setup import SCALE, SECRET, Merchant, Shop
from tests.support.timeouts import PATIENCE_S

APPROVED = "4242424242424242"


async def test_the_first_creates_return_503_without_creating_a_session(shop: Shop) -> None:
    await shop.set_rules({"match": {"amount": "13.13"}, "action": "503x2"})
    order = shop.order(amount_minor=1313)
    statuses: list[int] = []
    for _ in range(3):
        statuses.append((await shop.call("POST", "/v1/sessions", json=order)).status)
        inquiry = await shop.call("GET", f"/v1/sessions/{order['reference']}")
        statuses.append(inquiry.status)
    assert statuses == [503, 404, 503, 404, 201, 200]


@pytest.mark.parametrize(
    ("amount", "minor", "currency", "hit"),
    [
        ("13.13", 1313, "THB", True),
        ("13.1", 1310, "USD", True),
        ("13", 13, "JPY", True),
        ("13.00", 13, "JPY", True),
        ("13.13", 1313, "JPY", False),
        ("13.13", 1314, "THB", False),
        ("13.131", 1313, "THB", False),
    ],
)
async def test_a_rule_matches_an_amount_in_major_units(
    shop: Shop, amount: str, minor: int, currency: str, hit: bool
) -> None:
    await shop.set_rules({"match": {"amount": amount}, "action": "503x9"})
    order = shop.order(amount_minor=minor, currency=currency)
    reply = await shop.call("POST", "/v1/sessions", json=order)
    assert reply.status == (503 if hit else 201)


async def test_the_first_matching_rule_applies_and_used_up_rules_are_skipped(shop: Shop) -> None:
    order = shop.order()
    await shop.set_rules(
        {"match": {"reference": "another"}, "action": "bad_json"},
        {"match": {"reference": order["reference"]}, "action": "503x1"},
        {"match": {}, "action": "bad_json"},
    )
    first = await shop.call("POST", "/v1/sessions", json=order)
    second = await shop.call("POST", "/v1/sessions", json=order)
    assert first.status == 503
    assert second.text == '{"id": "ps_'
    await shop.set_rules()
    assert (await shop.call("POST", "/v1/sessions", json=order)).json["status"] == "open"


async def test_a_hanging_create_creates_the_session_and_responds_late(shop: Shop) -> None:
    await shop.set_rules({"match": {}, "action": "hang35s"})
    order = shop.order()
    started = time.monotonic()
    reply = await shop.call("POST", "/v1/sessions", json=order)
    assert reply.status == 201
    assert time.monotonic() - started >= 35 / SCALE
    assert (await shop.inquire(order["reference"]))["status"] == "open"


async def test_a_garbage_response_is_sent_for_a_created_session(shop: Shop) -> None:
    await shop.set_rules({"match": {}, "action": "bad_json"})
    order = shop.order()
    reply = await shop.call("POST", "/v1/sessions", json=order)
    assert reply.status == 200
    with pytest.raises(json.JSONDecodeError):
        _ = reply.json
    assert (await shop.inquire(order["reference"]))["status"] == "open"


async def test_the_callback_can_arrive_before_the_create_response(
    shop: Shop, merchant: Merchant
) -> None:
    await shop.set_rules({"match": {}, "action": "callback_before_response"})
    order = shop.order()
    reply = await shop.call("POST", "/v1/sessions", json=order)
    [received] = merchant.received  # no need to wait: it has arrived already
    assert received.event["session"] == reply.json
    assert (reply.status, reply.json["status"]) == (201, "paid")
    repeated = await shop.call("POST", "/v1/sessions", json=order)
    assert (repeated.status, repeated.json) == (200, reply.json)
    assert len(merchant.received) == 1


async def test_the_pay_page_can_return_500(shop: Shop) -> None:
    session = await shop.create()
    await shop.set_rules({"match": {"reference": session["reference"]}, "action": "hosted_500"})
    assert (await shop.call("GET", session["pay_url"], key="")).status == 500
    assert (await shop.pay(session, APPROVED)).status == 500
    assert (await shop.inquire(session["id"]))["status"] == "open"


async def test_inquiries_and_cancellations_can_fail_separately(shop: Shop) -> None:
    session = await shop.create()
    path = f"/v1/sessions/{session['id']}"
    await shop.set_rules(
        {"match": {}, "action": "503_inquiry"}, {"match": {}, "action": "503_cancel"}
    )
    assert (await shop.call("GET", path)).status == 503
    assert (await shop.call("GET", "/v1/sessions/sess_nobody")).status == 503
    assert (await shop.cancel(session["id"])).status == 503
    await shop.set_rules()
    assert (await shop.inquire(session["id"]))["status"] == "open"


async def test_a_hanging_inquiry_returns_the_state_at_response_time(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    paid = threading.Event()

    async def hang_until_paid(_emulator: SimulatorEmulator) -> None:
        assert await asyncio.to_thread(paid.wait, PATIENCE_S)

    session = await shop.create()
    await shop.set_rules({"match": {}, "action": "hang_inquiry"})
    monkeypatch.setattr(SimulatorEmulator, "hang", hang_until_paid)
    inquiry = asyncio.create_task(shop.inquire(session["id"]))
    path = f"/v1/sessions/{session['id']}"
    while not await shop.log(path=path, method="GET"):
        pass
    await shop.pay(session, APPROVED)
    assert not inquiry.done()
    paid.set()
    assert (await inquiry)["status"] == "paid"


@pytest.mark.parametrize(
    "rules",
    [
        "garbage",
        {"match": {}, "action": "503x1"},
        [{"match": {}, "action": "explode"}],
        [{"match": {}, "action": "503x0"}],
        [{"match": {"colour": "red"}, "action": "503x1"}],
        [{"match": {"amount": "1e3"}, "action": "503x1"}],
        [{"action": "503x1"}],
        [{"match": {}, "action": "503x1"}] * 101,
    ],
)
async def test_invalid_rules_are_refused_and_the_old_rules_remain(shop: Shop, rules: Any) -> None:
    await shop.set_rules({"match": {}, "action": "503x1"})
    reply = await shop.call("PUT", "/_sim/rules", json=rules)
    assert reply.status == 400
    assert reply.json["error"]
    assert (await shop.call("POST", "/v1/sessions", json=shop.order())).status == 503


async def test_the_log_lists_requests_callbacks_and_responses_without_secrets(
    shop: Shop, merchant: Merchant
) -> None:
    session = await shop.create()
    await shop.pay(session, APPROVED)
    await merchant.wait_for(1)
    while "status" not in (await shop.log(kind="callback", reference=session["reference"]))[0]:
        pass
    [callback] = await shop.log(kind="callback", reference=session["reference"])
    assert (callback["type"], callback["status"]) == ("session.paid", 200)
    [paid] = await shop.log(kind="request", path=f"/pay/{session['id']}")
    assert (paid["method"], paid["status"], paid["body"]) == ("POST", 303, f"card={APPROVED}")
    text = (await shop.call("GET", "/_sim/log")).text
    assert SECRET not in text
    assert "Bearer" not in text
