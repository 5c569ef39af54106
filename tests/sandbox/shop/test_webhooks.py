from uuid import uuid4

import pytest
from standardwebhooks import Webhook

from payintent_sandbox.shop import orders as ledger
from payintent_sandbox.shop.goods import PRODUCTS
from payintent_sandbox.shop.webhook import read_secret
from tests.sandbox.shop.running import OLD_SECRET, SECRET, Api, Visitor, event, signed

pytestmark = pytest.mark.full


@pytest.mark.parametrize(
    ("kind", "fields", "status", "shown"),
    [
        ("payment.completed", {"receipt_id": "rcpt_9"}, "paid", "rcpt_9"),
        ("payment.failed", {"failure_reason": "DECLINED"}, "failed", "DECLINED"),
        ("payment.expired", {}, "expired", "Your payment expired"),
        ("payment.cancelled", {}, "cancelled", "was cancelled"),
    ],
)
async def test_a_verified_event_ends_its_order(
    api: Api, visitor: Visitor, kind: str, fields: dict[str, str], status: str, shown: str
) -> None:
    await visitor.buy()
    body = event("pay_1", kind, **fields)
    headers = signed(body)
    assert await visitor.tell(body, headers) == 204
    assert (await visitor.order())["status"] == status
    api.status = status.upper()
    page = await (await visitor.call("GET", "/orders/A-1001")).text()
    assert shown in page
    assert f'class="state {status}"' in await (await visitor.call("GET", "/orders")).text()
    [kept] = await visitor.webhooks("pay_1")
    assert kept["body"] == body
    assert kept["headers"] == headers
    assert kept["duplicate"] is False


async def test_the_kept_bytes_are_the_signed_ones_whatever_the_metadata_holds(
    visitor: Visitor,
) -> None:
    body = event("pay_1", metadata={"note": "ชา 京都 \U0001f375", "n": 1e3})
    assert await visitor.tell(body, signed(body)) == 204
    [kept] = await visitor.webhooks("pay_1")
    Webhook(SECRET).verify(kept["body"], kept["headers"])


async def test_a_duplicate_is_accepted_and_changes_nothing(visitor: Visitor) -> None:
    await visitor.buy()
    body = event("pay_1", receipt_id="rcpt_9")
    assert await visitor.tell(body, signed(body, webhook_id="event-1")) == 204
    other = event("pay_1", receipt_id="rcpt_other")
    assert await visitor.tell(other, signed(other, webhook_id="event-1")) == 204
    assert [delivery["duplicate"] for delivery in await visitor.webhooks("pay_1")] == [False, True]
    assert (await visitor.order())["receipt_id"] == "rcpt_9"


async def test_an_id_that_came_before_stands_for_what_it_stood_for(visitor: Visitor) -> None:
    await visitor.buy()
    for kind in ("payment.sung", "payment.completed"):
        body = event("pay_1", kind)
        assert await visitor.tell(body, signed(body, webhook_id="event-1")) == 204
    assert (await visitor.order())["status"] == "waiting"


async def test_an_order_ends_once(visitor: Visitor) -> None:
    await visitor.buy()
    for kind in ("payment.completed", "payment.expired"):
        body = event("pay_1", kind)
        assert await visitor.tell(body, signed(body)) == 204
    assert (await visitor.order())["status"] == "paid"


async def test_an_event_faster_than_the_answer_to_the_creation_is_not_lost(
    visitor: Visitor,
) -> None:
    body = event("pay_1", "payment.expired")
    assert await visitor.tell(body, signed(body)) == 204
    await visitor.buy()
    assert (await visitor.order())["status"] == "expired"


async def test_events_of_other_payments_and_unknown_types_leave_the_order_waiting(
    visitor: Visitor,
) -> None:
    await visitor.buy()
    for body in (event("pay_7"), event("pay_1", "payment.sung")):
        assert await visitor.tell(body, signed(body)) == 204
    assert (await visitor.order())["status"] == "waiting"


@pytest.mark.parametrize("secrets", [(SECRET, OLD_SECRET), (OLD_SECRET, SECRET)])
async def test_one_good_signature_among_several_is_enough(
    visitor: Visitor, secrets: tuple[str, ...]
) -> None:
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


async def test_a_webhook_that_is_not_ours_is_401_and_forgotten(visitor: Visitor) -> None:
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


async def test_a_signed_body_that_is_no_event_is_400(visitor: Visitor) -> None:
    for body in ("not json", "[]", '{"type": "x", "data": {"payment": 7}}'):
        assert await visitor.tell(body, signed(body)) == 400, body


def test_a_callback_secret_is_read_strictly_and_never_shown() -> None:
    assert read_secret("whsec_c2VjcmV0") == b"secret"
    for text in ("", "very-secret", "whsec_", "sk_c2VjcmV0", "whsec_c2Vj!cmV0", "whsec_c2Vjc"):
        with pytest.raises(ValueError, match="a callback secret") as refused:
            read_secret(text)
        assert refused.value.__suppress_context__ or "base64" not in str(refused.value)
        assert "c2V" not in str(refused.value)


async def test_a_body_too_large_is_refused(visitor: Visitor) -> None:
    body = event("pay_1", metadata={"long": "x" * 70_000})
    assert await visitor.tell(body, signed(body)) == 413


def test_old_orders_and_webhooks_are_forgotten() -> None:
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
