import hashlib
import hmac
from datetime import UTC, datetime, timedelta

import pytest

from payintent_sandbox.emulators.simulator.cards import CARDS
from tests.sandbox.simulator.simulator_setup import (
    RETURN_URL,
    SCALE,
    SECRET,
    Merchant,
    Received,
    Shop,
)

pytestmark = pytest.mark.full

APPROVED = "4242424242424242"
CHALLENGE = "4000002500003155"
LATE_CALLBACK = "4000009900000012"
THRICE = "4000009900000020"
NO_CALLBACK = "4000009900000046"
PAID_AFTER_CLOSE = "4000009900000053"
PAID_AFTER_EXPIRY = "4000009900000061"
AMOUNT_OFF = "4000009900000079"
OTHER_CURRENCY = "4000009900000087"
BADLY_SIGNED = "4000009900000095"
FAILED_THEN_PAID = "4000009900000103"
REFUND_PENDING = "4000009900000160"
REFUND_REFUSED = "4000009900000178"
REFUND_OUT_OF_ORDER = "4000009900000186"
DECLINES = {
    "4000000000000002": "card_declined",
    "4000000000009995": "insufficient_funds",
    "4000000000000069": "expired_card",
    "4000000000000127": "incorrect_cvc",
    "4000000000000119": "processing_error",
}


def is_signed(received: Received) -> bool:
    headers = received.headers
    content = f"{headers['sim-id']}.{headers['sim-timestamp']}.".encode() + received.body
    digest = hmac.new(SECRET.encode(), content, hashlib.sha256).hexdigest()
    return headers["sim-signature"] == f"v1={digest}"


def test_these_tests_cover_exactly_the_cards_of_the_simulator() -> None:
    tested = {
        APPROVED,
        CHALLENGE,
        LATE_CALLBACK,
        THRICE,
        NO_CALLBACK,
        PAID_AFTER_CLOSE,
        PAID_AFTER_EXPIRY,
        AMOUNT_OFF,
        OTHER_CURRENCY,
        BADLY_SIGNED,
        FAILED_THEN_PAID,
        REFUND_PENDING,
        REFUND_REFUSED,
        REFUND_OUT_OF_ORDER,
    }
    assert set(CARDS) == tested | set(DECLINES)


async def test_an_approved_card_captures_sends_a_callback_and_redirects_the_buyer(
    shop: Shop, merchant: Merchant
) -> None:
    session = await shop.create()
    reply = await shop.pay(session, "4242 4242-4242 4242")
    assert (reply.status, reply.headers["location"]) == (303, RETURN_URL)
    [received] = await merchant.wait_for(1)
    paid = await shop.inquire(session["id"])
    assert paid["status"] == "paid"
    assert paid["capture"]["amount_minor"] == 159_000
    assert paid["capture"]["currency"] == "THB"
    assert received.event["type"] == "session.paid"
    assert received.event["session"] == paid
    assert received.event["id"] == received.headers["sim-id"]
    assert is_signed(received)


async def test_a_card_submitted_twice_is_captured_once(shop: Shop, merchant: Merchant) -> None:
    session = await shop.create()
    await shop.pay(session, APPROVED)
    capture = (await shop.inquire(session["id"]))["capture"]
    repeated = await shop.pay(session, APPROVED)
    assert (repeated.status, repeated.headers["location"]) == (303, RETURN_URL)
    assert (await shop.inquire(session["id"]))["capture"] == capture
    await merchant.wait_for(1)
    assert len(await shop.log(kind="callback", reference=session["reference"])) == 1


@pytest.mark.parametrize("card", DECLINES)
async def test_a_declined_card_ends_the_session(shop: Shop, merchant: Merchant, card: str) -> None:
    session = await shop.create()
    reply = await shop.pay(session, card)
    assert (reply.status, reply.headers["location"]) == (303, RETURN_URL)
    [received] = await merchant.wait_for(1)
    assert received.event["type"] == "session.declined"
    assert received.event["session"]["decline_code"] == DECLINES[card]
    assert "capture" not in received.event["session"]
    await shop.pay(session, APPROVED)
    assert (await shop.inquire(session["id"]))["status"] == "declined"
    closed = await shop.cancel(session["id"])
    assert (closed.status, closed.json["status"]) == (200, "declined")


@pytest.mark.parametrize(("result", "status"), [("approve", "paid"), ("fail", "declined")])
async def test_a_session_cannot_be_closed_during_a_challenge(
    shop: Shop, merchant: Merchant, result: str, status: str
) -> None:
    session = await shop.create()
    reply = await shop.pay(session, CHALLENGE)
    assert (reply.status, reply.headers["location"]) == (303, session["pay_url"])
    page = await shop.call("GET", session["pay_url"], key="")
    assert "Approve" in page.text
    closed = await shop.cancel(session["id"])
    assert (closed.status, closed.json["status"]) == (409, "authorising")
    challenge = f"{session['pay_url']}/challenge"
    assert (await shop.call("POST", challenge, key="", data={"result": "?"})).status == 422
    answered = await shop.call("POST", challenge, key="", data={"result": result})
    assert (answered.status, answered.headers["location"]) == (303, RETURN_URL)
    [received] = await merchant.wait_for(1)
    assert received.event["type"] == f"session.{status}"
    assert (await shop.call("POST", challenge, key="", data={"result": "approve"})).status == 409
    assert (await shop.inquire(session["id"]))["status"] == status


async def test_an_abandoned_challenge_expires_without_a_capture(
    shop: Shop, merchant: Merchant
) -> None:
    soon = datetime.now(UTC) + timedelta(milliseconds=300)
    session = await shop.create(expires_at=soon.isoformat())
    await shop.pay(session, CHALLENGE)
    await shop.until(session["id"], "expired")
    challenge = f"{session['pay_url']}/challenge"
    assert (await shop.call("POST", challenge, key="", data={"result": "approve"})).status == 409
    assert "capture" not in await shop.inquire(session["id"])


async def test_a_late_callback_arrives_thirty_scaled_seconds_after_the_capture(
    shop: Shop, merchant: Merchant
) -> None:
    session = await shop.create()
    await shop.pay(session, LATE_CALLBACK)
    paid = await shop.inquire(session["id"])
    assert paid["status"] == "paid"
    [received] = await merchant.wait_for(1)
    captured_at = datetime.fromisoformat(paid["capture"]["at"])
    assert received.at - captured_at >= timedelta(seconds=30 / SCALE)


async def test_repeated_callbacks_have_the_same_id_and_content_but_different_bytes(
    shop: Shop, merchant: Merchant
) -> None:
    session = await shop.create()
    await shop.pay(session, THRICE)
    received = await merchant.wait_for(3)
    assert len({callback.headers["sim-id"] for callback in received}) == 1
    assert len({callback.body for callback in received}) == 3
    assert all(callback.event == received[0].event for callback in received)
    assert all(is_signed(callback) for callback in received)


async def test_a_payment_without_a_callback_is_found_by_an_inquiry(
    shop: Shop, merchant: Merchant
) -> None:
    unreported, reported = await shop.create(), await shop.create()
    await shop.pay(unreported, NO_CALLBACK)
    assert (await shop.inquire(unreported["id"]))["status"] == "paid"
    await shop.pay(reported, APPROVED)
    await merchant.wait_for(1)
    assert await shop.log(kind="callback", reference=unreported["reference"]) == []


async def test_a_capture_can_follow_the_close_of_a_session(shop: Shop, merchant: Merchant) -> None:
    session = await shop.create()
    reply = await shop.pay(session, PAID_AFTER_CLOSE)
    assert (reply.status, reply.headers["location"]) == (303, RETURN_URL)
    assert (await shop.inquire(session["id"]))["status"] == "open"
    assert "processed" in (await shop.call("GET", session["pay_url"], key="")).text
    assert merchant.received == []
    asked_at = datetime.now(UTC)  # taken first, because the response may be late on a busy machine
    closed = await shop.cancel(session["id"])
    assert (closed.status, closed.json["status"]) == (200, "closed")
    [received] = await merchant.wait_for(1)
    assert received.event["type"] == "session.paid"
    assert received.at - asked_at >= timedelta(seconds=55 / SCALE)
    assert (await shop.inquire(session["id"]))["status"] == "paid"


async def test_a_capture_can_follow_the_expiry_of_a_session(shop: Shop, merchant: Merchant) -> None:
    expires_at = datetime.now(UTC) + timedelta(seconds=3)  # enough time to pay on any machine
    session = await shop.create(expires_at=expires_at.isoformat())
    await shop.pay(session, PAID_AFTER_EXPIRY)
    [received] = await merchant.wait_for(1)
    assert received.event["type"] == "session.paid"
    captured_at = datetime.fromisoformat(received.event["session"]["capture"]["at"])
    # The protocol truncates times to milliseconds.
    assert captured_at - expires_at >= timedelta(seconds=60 / SCALE, milliseconds=-1)


async def test_a_session_that_is_closed_and_expires_is_captured_once(
    shop: Shop, merchant: Merchant
) -> None:
    now = datetime.now(UTC)
    closed = await shop.create(expires_at=(now + timedelta(seconds=3)).isoformat())
    later = await shop.create(expires_at=(now + timedelta(seconds=3.1)).isoformat())
    await shop.pay(closed, PAID_AFTER_EXPIRY)
    await shop.pay(later, PAID_AFTER_EXPIRY)
    await shop.cancel(closed["id"])
    await merchant.wait_for(2)  # the second is for the later session, after both expiries
    assert [callback.event["session"]["reference"] for callback in merchant.received] == [
        closed["reference"],
        later["reference"],
    ]


async def test_the_captured_amount_is_off_by_one_minor_unit(shop: Shop, merchant: Merchant) -> None:
    session = await shop.create()
    await shop.pay(session, AMOUNT_OFF)
    [received] = await merchant.wait_for(1)
    assert received.event["session"]["capture"]["amount_minor"] == 159_001
    assert received.event["session"]["amount_minor"] == 159_000


@pytest.mark.parametrize(("ordered", "captured"), [("USD", "THB"), ("THB", "USD"), ("JPY", "USD")])
async def test_the_captured_currency_differs_from_the_order(
    shop: Shop, merchant: Merchant, ordered: str, captured: str
) -> None:
    session = await shop.create(currency=ordered)
    await shop.pay(session, OTHER_CURRENCY)
    [received] = await merchant.wait_for(1)
    assert received.event["session"]["capture"]["currency"] == captured


async def test_only_the_first_callback_has_an_invalid_signature(
    shop: Shop, merchant: Merchant
) -> None:
    merchant.answers.extend([401, 500])
    session = await shop.create()
    await shop.pay(session, BADLY_SIGNED)
    received = await merchant.wait_for(3)
    assert [is_signed(callback) for callback in received] == [False, True, True]
    assert len({callback.headers["sim-id"] for callback in received}) == 1


async def test_a_decline_is_followed_by_a_payment(shop: Shop, merchant: Merchant) -> None:
    session = await shop.create()
    await shop.pay(session, FAILED_THEN_PAID)
    declined, paid = await merchant.wait_for(2)
    assert declined.event["type"] == "session.declined"
    assert declined.event["session"]["decline_code"] == "card_declined"
    assert paid.event["type"] == "session.paid"
    assert "decline_code" not in paid.event["session"]
    assert paid.event["id"] != declined.event["id"]
    assert paid.at - declined.at >= timedelta(seconds=2 / SCALE)


async def test_callbacks_are_retried_until_a_2xx_response(shop: Shop, merchant: Merchant) -> None:
    merchant.answers.extend([500, 302, 404, 204])
    session = await shop.create()
    await shop.pay(session, APPROVED)
    received = await merchant.wait_for(4)
    assert len({callback.headers["sim-id"] for callback in received}) == 1
    assert len({callback.body for callback in received}) == 1
    assert all(is_signed(callback) for callback in received)
    entries = await shop.log(kind="callback", reference=session["reference"])
    assert [entry["attempt"] for entry in entries] == [1, 2, 3, 4]
    assert [entry["status"] for entry in entries[:3]] == [500, 302, 404]


async def test_a_callback_has_at_most_six_attempts(shop: Shop, merchant: Merchant) -> None:
    merchant.answers.extend([500] * 6)
    session = await shop.create()
    await shop.pay(session, APPROVED)
    await merchant.wait_for(6)
    entries = await shop.log(kind="callback", reference=session["reference"])
    assert [entry["attempt"] for entry in entries] == [1, 2, 3, 4, 5, 6]


async def test_the_log_shows_that_a_merchant_is_unreachable(shop: Shop) -> None:
    session = await shop.create(callback_url="http://127.0.0.1:9/callback")
    await shop.pay(session, APPROVED)
    entries = []
    while not entries or "error" not in entries[0]:
        entries = await shop.log(kind="callback", reference=session["reference"])
    assert entries[0]["error"] == "ClientConnectorError"
