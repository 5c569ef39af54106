import base64
import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from payintent_sandbox.emulators.twoc2p.cards import CARDS
from payintent_sandbox.emulators.twoc2p.machine import TwoC2pEmulator
from payintent_sandbox.emulators.twoc2p.model import Order
from tests.sandbox.simulator.simulator_setup import Merchant
from tests.sandbox.twoc2p.emulator_setup import (
    APPROVED,
    BARE,
    DECLINED,
    MERCHANT,
    OTHER_MERCHANT,
    OTHER_SECRET,
    PAID_LATE,
    PAID_LESS,
    PAID_MORE,
    RETURN_URL,
    SILENT,
    UNSETTLED,
    Shop,
    accounts,
    envelope,
    jwt,
    opened,
)

pytestmark = pytest.mark.full


async def test_a_repeated_order_returns_the_same_token_and_page(shop: Shop) -> None:
    order, token = await shop.token(idempotencyID="once")
    assert token["webPaymentUrl"] == f"{shop.url}/payment/4.3/token/{token['paymentToken']}"
    assert await shop.ask("paymentToken", order) == token
    dearer = await shop.ask("paymentToken", order | {"amount": 1591})
    assert dearer["respCode"] == "9015"
    careless = await shop.ask("paymentToken", order | {"idempotencyID": None})
    assert careless["respCode"] == "9015"


@pytest.mark.parametrize(
    "changes",
    [
        {"amount": 0},
        {"amount": -1},
        {"amount": 0.000001},
        {"amount": "much"},
        {"currencyCode": "baht"},
        {"invoiceNo": "a-b"},
        {"invoiceNo": "a" * 51},
        {"description": ""},
        {"description": "a" * 251},
        {"frontendReturnUrl": "javascript:alert(1)"},
        {"backendReturnUrl": None},
        {"locale": "zh-TW"},
        {"locale": "ms"},
    ],
)
async def test_an_invalid_order_gets_a_signed_error(shop: Shop, changes: dict[str, Any]) -> None:
    assert (await shop.ask("paymentToken", shop.order(**changes)))["respCode"] == "9004"


async def test_an_unauthenticated_request_gets_an_unsigned_error(shop: Shop) -> None:
    forged = envelope(shop.order(), "not the secret")
    unknown_merchant = envelope(shop.order(merchantID="nobody"))
    none = json.dumps({"payload": jwt(json.dumps(shop.order()).encode(), alg="none")}).encode()
    for body, code in (
        (forged, "9042"),
        (unknown_merchant, "9007"),
        (none, "9042"),
        (b"{", "9004"),
    ):
        _, response = await shop.post("/payment/4.3/paymentToken", body)
        assert json.loads(response)["respCode"] == code


async def test_the_page_works_without_scripts_and_escapes_text(shop: Shop) -> None:
    _, token = await shop.token(description="A &lt;b&gt; &amp; c")
    status, page = await shop.show(token["webPaymentUrl"])
    assert status == 200
    assert "Test mode" in page
    assert "A &lt;b&gt; &amp; c" in page
    assert "<script" not in page
    assert all(f'value="{card}"' in page for card in CARDS)
    assert (await shop.show(f"{shop.url}/payment/4.3/token/unknown"))[0] == 404


async def test_an_approved_payment_is_reported_by_notification_and_by_the_browser(
    shop: Shop, merchant: Merchant
) -> None:
    order, token = await shop.token()
    assert (await shop.inquire(order["invoiceNo"]))["respCode"] == "2002"
    _, page = await shop.press(token["webPaymentUrl"], card="4111 1111-1111 1111")
    [received] = await merchant.wait_for(1)
    notice, answer = opened(received.body), await shop.inquire(order["invoiceNo"])
    assert notice["amount"] == "000000001590.00000"
    assert answer["amount"] == 1590.0
    assert notice | {"amount": 0} == answer | {"amount": 0}
    assert (notice["respCode"], notice["accountNo"]) == ("0000", "411111XXXXXX1111")
    assert (notice["merchantID"], notice["userDefined1"]) == (MERCHANT, "ours")
    assert f'action="{RETURN_URL}"' in page
    response = page.partition('name="paymentResponse" value="')[2].partition('"')[0]
    carried = json.loads(base64.urlsafe_b64decode(response))
    assert carried["invoiceNo"] == order["invoiceNo"]
    assert carried["respCode"] == "2000"


@pytest.mark.parametrize(
    "card", [number for number, card in CARDS.items() if card.code.startswith("4")]
)
async def test_a_declined_card_ends_the_invoice(shop: Shop, merchant: Merchant, card: str) -> None:
    order, token = await shop.token()
    await shop.press(token["webPaymentUrl"], card=card)
    [received] = await merchant.wait_for(1)
    assert opened(received.body)["respCode"] == CARDS[card].code
    await shop.press(token["webPaymentUrl"], card=APPROVED)
    assert (await shop.inquire(order["invoiceNo"]))["respCode"] == CARDS[card].code


async def test_a_silent_card_pays_without_a_notification(shop: Shop, merchant: Merchant) -> None:
    order, token = await shop.token()
    await shop.press(token["webPaymentUrl"], card=SILENT)
    assert (await shop.inquire(order["invoiceNo"]))["respCode"] == "0000"
    _, declined_token = await shop.token()
    await shop.press(declined_token["webPaymentUrl"], card=DECLINED)
    await merchant.wait_for(1)
    assert [opened(notice.body)["respCode"] for notice in merchant.received] == ["4005"]


async def test_the_page_rejects_an_unknown_card_and_the_buyer_can_cancel(
    shop: Shop, merchant: Merchant
) -> None:
    order, token = await shop.token()
    status, page = await shop.press(token["webPaymentUrl"], card="4242424242424242")
    assert (status, 'role="alert"' in page) == (422, True)
    await shop.press(token["webPaymentUrl"], cancel="1")
    assert (await shop.inquire(order["invoiceNo"]))["respCode"] == "5010"
    await shop.press(token["webPaymentUrl"], card=APPROVED)
    assert (await shop.inquire(order["invoiceNo"]))["respCode"] == "5010"


async def test_notifications_are_retried_until_a_200_response(
    shop: Shop, merchant: Merchant
) -> None:
    merchant.answers.extend([500, 302, 204, 200])
    _, token = await shop.token()
    await shop.press(token["webPaymentUrl"], card=APPROVED)
    received = await merchant.wait_for(4)
    assert len({notice.body for notice in received}) == 1
    assert [notice.status for notice in received] == [500, 302, 204, 200]


async def test_a_payment_deadline_is_in_the_merchants_time_zone(shop: Shop) -> None:
    there = datetime.now(UTC) + timedelta(hours=8)
    for minutes, code in ((-1, "9008"), (5, "0000")):
        expiry = (there + timedelta(minutes=minutes)).strftime("%Y-%m-%d %H:%M:%S")
        response = await shop.ask("paymentToken", shop.order(paymentExpiry=expiry))
        assert response["respCode"] == code
    response = await shop.ask("paymentToken", shop.order(paymentExpiry="tomorrow"))
    assert response["respCode"] == "9008"


def test_an_invoice_cannot_be_paid_or_cancelled_after_its_deadline() -> None:
    emulator = TwoC2pEmulator(accounts(), time_scale=1)
    account = emulator.account(MERCHANT)
    order = Order(
        merchantID=MERCHANT,
        invoiceNo="1",
        description="A book",
        amount=Decimal(1),
        currencyCode="THB",
        frontendReturnUrl=RETURN_URL,
        backendReturnUrl=RETURN_URL,
    )
    invoice = emulator.order(account, order, "")
    assert invoice.payable
    invoice.ends_at = datetime.now(UTC)
    assert not emulator.pay(invoice, CARDS[APPROVED])
    assert not emulator.give_up(invoice)
    assert invoice.code is None


async def test_invoices_of_another_merchant_are_not_found(shop: Shop) -> None:
    order, token = await shop.token()
    await shop.press(token["webPaymentUrl"], card=APPROVED)
    inquiry = {"merchantID": OTHER_MERCHANT, "invoiceNo": order["invoiceNo"]}
    assert (await shop.ask("paymentInquiry", inquiry, OTHER_SECRET))["respCode"] == "2002"


async def test_an_unsettled_payment_has_status_a(shop: Shop) -> None:
    order, token = await shop.token()
    await shop.press(token["webPaymentUrl"], card=UNSETTLED)
    assert (await shop.get_invoice(order["invoiceNo"]))["status"] == "A"


async def test_missing_fields_are_null(shop: Shop, merchant: Merchant) -> None:
    unknown = await shop.inquire("nobody")
    assert (unknown["respCode"], unknown["merchantID"], unknown["invoiceNo"]) == (
        "2002",
        None,
        None,
    )
    order, token = await shop.token()
    await shop.press(token["webPaymentUrl"], card=BARE)
    assert (await shop.inquire(order["invoiceNo"]))["tranRef"] is None
    [received] = await merchant.wait_for(1)
    assert opened(received.body)["tranRef"]


@pytest.mark.parametrize(
    ("card", "code"), [(PAID_MORE, "5015"), (PAID_LESS, "5016"), (PAID_LATE, "5017")]
)
async def test_wrong_and_late_payments_have_their_own_codes_and_are_settled(
    shop: Shop, card: str, code: str
) -> None:
    order, token = await shop.token()
    await shop.press(token["webPaymentUrl"], card=card)
    assert (await shop.inquire(order["invoiceNo"]))["respCode"] == code
    assert (await shop.get_invoice(order["invoiceNo"]))["status"] == "S"
