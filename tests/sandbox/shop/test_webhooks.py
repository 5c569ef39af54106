from uuid import uuid4

import pytest
from standardwebhooks import Webhook

from payintent_sandbox.shop import orders as ledger
from payintent_sandbox.shop.goods import PRODUCTS
from payintent_sandbox.shop.webhook import read_secret
from tests.sandbox.shop.shop_setup import OLD_SECRET, SECRET, Api, Visitor, event, signed

pytestmark = pytest.mark.full


@pytest.mark.parametrize(
    ("kind", "fields", "status", "text"),
    [
        ("payment.completed", {"receipt_id": "rcpt_9"}, "paid", "rcpt_9"),
        ("payment.failed", {"failure_reason": "DECLINED"}, "failed", "DECLINED"),
        ("payment.expired", {}, "expired", "Your payment expired"),
        ("payment.cancelled", {}, "cancelled", "was cancelled"),
    ],
)
async def test_a_verified_event_updates_its_order(
    api: Api, visitor: Visitor, kind: str, fields: dict[str, str], status: str, text: str
) -> None:
    await visitor.buy()
    body = event("pay_1", kind, **fields)
    headers = signed(body)
    assert await visitor.tell(body, headers) == 204
    assert (await visitor.order())["status"] == status
    api.status = status.upper()
    page = await (await visitor.call("GET", "/orders/A-1001")).text()
    assert text in page
    assert f'class="state {status}"' in await (await visitor.call("GET", "/orders")).text()
    [delivery] = await visitor.webhooks("pay_1")
    assert delivery["body"] == body
    assert delivery["headers"] == headers
    assert delivery["duplicate"] is False


async def test_the_stored_webhook_has_the_signed_bytes(
    visitor: Visitor,
) -> None:
    body = event("pay_1", metadata={"note": "ชา 京都 \U0001f375", "n": 1e3})
    assert await visitor.tell(body, signed(body)) == 204
    [delivery] = await visitor.webhooks("pay_1")
    Webhook(SECRET).verify(delivery["body"], delivery["headers"])


async def test_a_duplicate_webhook_is_accepted_without_effect(visitor: Visitor) -> None:
    await visitor.buy()
    body = event("pay_1", receipt_id="rcpt_9")
    assert await visitor.tell(body, signed(body, webhook_id="event-1")) == 204
    other_body = event("pay_1", receipt_id="rcpt_other")
    assert await visitor.tell(other_body, signed(other_body, webhook_id="event-1")) == 204
    assert [delivery["duplicate"] for delivery in await visitor.webhooks("pay_1")] == [False, True]
    assert (await visitor.order())["receipt_id"] == "rcpt_9"


async def test_a_repeated_webhook_id_is_a_duplicate_even_with_another_event_type(
    visitor: Visitor,
) -> None:
    await visitor.buy()
    for kind in ("payment.sung", "payment.completed"):
        body = event("pay_1", kind)
        assert await visitor.tell(body, signed(body, webhook_id="event-1")) == 204
    assert (await visitor.order())["status"] == "waiting"


async def test_a_completed_order_does_not_change_again(visitor: Visitor) -> None:
    await visitor.buy()
    for kind in ("payment.completed", "payment.expired"):
        body = event("pay_1", kind)
        assert await visitor.tell(body, signed(body)) == 204
    assert (await visitor.order())["status"] == "paid"


async def test_an_event_that_arrives_before_the_create_response_is_not_lost(
    visitor: Visitor,
) -> None:
    body = event("pay_1", "payment.expired")
    assert await visitor.tell(body, signed(body)) == 204
    await visitor.buy()
    assert (await visitor.order())["status"] == "expired"


async def test_events_with_another_payment_or_an_unknown_type_are_ignored(
    visitor: Visitor,
) -> None:
    await visitor.buy()
    for body in (event("pay_7"), event("pay_1", "payment.sung")):
        assert await visitor.tell(body, signed(body)) == 204
    assert (await visitor.order())["status"] == "waiting"


@pytest.mark.parametrize("secrets", [(SECRET, OLD_SECRET), (OLD_SECRET, SECRET)])
async def test_one_valid_signature_is_enough(visitor: Visitor, secrets: tuple[str, ...]) -> None:
    body = event("pay_1")
    assert await visitor.tell(body, signed(body, *secrets)) == 204


BODY = event("pay_1")
STRANGE: dict[str, dict[str, str]] = {
    "another id": {"webhook-id": "moved"},
    "a huge time": {"webhook-timestamp": "9" * 5000},
    "an odd time": {"webhook-timestamp": "²"},
    "no time": {"webhook-timestamp": ""},
    "no id": {"webhook-id": ""},
    "no signature": {"webhook-signature": ""},
    "an empty signature": {"webhook-signature": "v1,"},
    "another version": {
        "webhook-signature": signed(BODY)["webhook-signature"].replace("1", "2", 1)
    },
}


async def test_a_webhook_with_an_invalid_signature_gets_a_401_and_is_not_stored(
    visitor: Visitor,
) -> None:
    await visitor.buy()
    attempts = {name: signed(BODY) | headers for name, headers in STRANGE.items()} | {
        "no header at all": {"content-type": "text/plain"},
        "another secret": signed(BODY, OLD_SECRET),
        "other bytes": signed(BODY + " "),
        "too old": signed(BODY, age_s=301),
        "from the future": signed(BODY, age_s=-302),
    }
    for name, headers in attempts.items():
        assert await visitor.tell(BODY, headers) == 401, name
    assert await visitor.webhooks("pay_1") == []
    assert (await visitor.order())["status"] == "waiting"


async def test_a_signed_body_that_is_not_an_event_gets_a_400(visitor: Visitor) -> None:
    for body in ("not json", "[]", '{"type": "x", "data": {"payment": 7}}'):
        assert await visitor.tell(body, signed(body)) == 400, body


def test_a_callback_secret_is_parsed_strictly_and_not_displayed() -> None:
    assert read_secret("whsec_c2VjcmV0") == b"secret"
    for text in ("", "very-secret", "whsec_", "sk_c2VjcmV0", "whsec_c2Vj!cmV0", "whsec_c2Vjc"):
        with pytest.raises(ValueError, match="a callback secret") as refused:
            read_secret(text)
        assert refused.value.__suppress_context__ or "base64" not in str(refused.value)
        assert "c2V" not in str(refused.value)


async def test_an_oversized_body_is_refused(visitor: Visitor) -> None:
    body = event("pay_1", metadata={"long": "x" * 70_000})
    assert await visitor.tell(body, signed(body)) == 413


def test_old_orders_and_webhooks_are_deleted() -> None:
    orders = ledger.Orders()
    for number in range(ledger.ORDERS_MAX + 1):
        cart = uuid4()
        orders.add(
            ledger.Order(
                id=orders.id_for(cart),
                cart=cart,
                product=PRODUCTS["kyoto"],
                quantity=1,
                amount="2400",
                payment_id=f"pay_{number}",
                checkout_url="https://pay.example/c/cs_1",
            )
        )
    for number in range(ledger.WEBHOOKS_MAX + 1):
        body = event(f"pay_{number}", amount="2400", currency="JPY")
        orders.receive({"webhook-id": str(number)}, body.encode())
    assert len(orders.newest()) == ledger.ORDERS_MAX
    assert orders.find("A-1001") is None
    assert orders.newest()[-1].state is ledger.State.PAID
    assert len(orders.deliveries(None)) == ledger.WEBHOOKS_MAX
    assert orders.deliveries("pay_0") == []
