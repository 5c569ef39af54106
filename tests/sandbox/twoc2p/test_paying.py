import base64
import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from payintent_sandbox.emulators.twoc2p.cards import CARDS
from payintent_sandbox.emulators.twoc2p.machine import TwoC2pEmulator
from payintent_sandbox.emulators.twoc2p.model import Order
from tests.sandbox.simulator.running import Merchant
from tests.sandbox.twoc2p.running import (
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


async def test_a_token_leads_to_a_page_and_the_same_order_to_the_same_token(shop: Shop) -> None:
    order, said = await shop.token(idempotencyID="once")
    assert said["webPaymentUrl"] == f"{shop.url}/payment/4.3/token/{said['paymentToken']}"
    assert await shop.ask("paymentToken", order) == said
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
async def test_a_bad_order_is_refused_by_a_signed_word(shop: Shop, changes: dict[str, Any]) -> None:
    assert (await shop.ask("paymentToken", shop.order(**changes)))["respCode"] == "9004"


async def test_who_cannot_be_made_out_is_refused_unsigned(shop: Shop) -> None:
    forged = envelope(shop.order(), "not the secret")
    nobody = envelope(shop.order(merchantID="nobody"))
    none = json.dumps({"payload": jwt(json.dumps(shop.order()).encode(), alg="none")}).encode()
    for body, code in ((forged, "9042"), (nobody, "9007"), (none, "9042"), (b"{", "9004")):
        _, said = await shop.post("/payment/4.3/paymentToken", body)
        assert json.loads(said)["respCode"] == code


async def test_the_page_works_without_scripts_and_escapes_what_it_shows(shop: Shop) -> None:
    _, said = await shop.token(description="A &lt;b&gt; &amp; c")
    status, page = await shop.show(said["webPaymentUrl"])
    assert status == 200
    assert "Test mode" in page
    assert "A &lt;b&gt; &amp; c" in page
    assert "<script" not in page
    assert all(f'value="{card}"' in page for card in CARDS)
    assert (await shop.show(f"{shop.url}/payment/4.3/token/unknown"))[0] == 404


async def test_an_approved_card_is_notified_signed_and_carried_back_by_the_browser(
    shop: Shop, merchant: Merchant
) -> None:
    order, said = await shop.token()
    assert (await shop.inquire(order["invoiceNo"]))["respCode"] == "2002"
    _, page = await shop.press(said["webPaymentUrl"], card="4111 1111-1111 1111")
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
    order, said = await shop.token()
    await shop.press(said["webPaymentUrl"], card=card)
    [received] = await merchant.wait_for(1)
    assert opened(received.body)["respCode"] == CARDS[card].code
    await shop.press(said["webPaymentUrl"], card=APPROVED)
    assert (await shop.inquire(order["invoiceNo"]))["respCode"] == CARDS[card].code


async def test_a_silent_card_is_paid_and_told_to_nobody(shop: Shop, merchant: Merchant) -> None:
    order, said = await shop.token()
    await shop.press(said["webPaymentUrl"], card=SILENT)
    assert (await shop.inquire(order["invoiceNo"]))["respCode"] == "0000"
    _, loud = await shop.token()
    await shop.press(loud["webPaymentUrl"], card=DECLINED)
    await merchant.wait_for(1)
    assert [opened(notice.body)["respCode"] for notice in merchant.received] == ["4005"]


async def test_a_buyer_cancels_or_names_no_card(shop: Shop, merchant: Merchant) -> None:
    order, said = await shop.token()
    status, page = await shop.press(said["webPaymentUrl"], card="4242424242424242")
    assert (status, 'role="alert"' in page) == (422, True)
    await shop.press(said["webPaymentUrl"], cancel="1")
    assert (await shop.inquire(order["invoiceNo"]))["respCode"] == "5010"
    await shop.press(said["webPaymentUrl"], card=APPROVED)
    assert (await shop.inquire(order["invoiceNo"]))["respCode"] == "5010"


async def test_notifications_are_repeated_until_200_and_no_longer(
    shop: Shop, merchant: Merchant
) -> None:
    merchant.answers.extend([500, 302, 204, 200])
    _, said = await shop.token()
    await shop.press(said["webPaymentUrl"], card=APPROVED)
    received = await merchant.wait_for(4)
    assert len({notice.body for notice in received}) == 1
    assert [notice.status for notice in received] == [500, 302, 204, 200]


async def test_a_deadline_is_read_on_the_merchants_own_clock(shop: Shop) -> None:
    there = datetime.now(UTC) + timedelta(hours=8)
    for minutes, code in ((-1, "9008"), (5, "0000")):
        expiry = (there + timedelta(minutes=minutes)).strftime("%Y-%m-%d %H:%M:%S")
        said = await shop.ask("paymentToken", shop.order(paymentExpiry=expiry))
        assert said["respCode"] == code
    said = await shop.ask("paymentToken", shop.order(paymentExpiry="tomorrow"))
    assert said["respCode"] == "9008"


def test_nobody_pays_or_cancels_after_the_deadline() -> None:
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


async def test_invoices_of_others_are_not_found(shop: Shop) -> None:
    order, said = await shop.token()
    await shop.press(said["webPaymentUrl"], card=APPROVED)
    inquiry = {"merchantID": OTHER_MERCHANT, "invoiceNo": order["invoiceNo"]}
    assert (await shop.ask("paymentInquiry", inquiry, OTHER_SECRET))["respCode"] == "2002"


async def test_what_is_not_settled_says_so(shop: Shop) -> None:
    order, said = await shop.token()
    await shop.press(said["webPaymentUrl"], card=UNSETTLED)
    assert (await shop.kept(order["invoiceNo"]))["status"] == "A"


async def test_what_is_not_set_is_null(shop: Shop, merchant: Merchant) -> None:
    unknown = await shop.inquire("nobody")
    assert (unknown["respCode"], unknown["merchantID"], unknown["invoiceNo"]) == (
        "2002",
        None,
        None,
    )
    order, said = await shop.token()
    await shop.press(said["webPaymentUrl"], card=BARE)
    assert (await shop.inquire(order["invoiceNo"]))["tranRef"] is None
    [received] = await merchant.wait_for(1)
    assert opened(received.body)["tranRef"]


@pytest.mark.parametrize(
    ("card", "code"), [(PAID_MORE, "5015"), (PAID_LESS, "5016"), (PAID_LATE, "5017")]
)
async def test_money_that_came_otherwise_has_a_code_of_its_own_and_can_go_back(
    shop: Shop, card: str, code: str
) -> None:
    order, said = await shop.token()
    await shop.press(said["webPaymentUrl"], card=card)
    assert (await shop.inquire(order["invoiceNo"]))["respCode"] == code
    assert (await shop.kept(order["invoiceNo"]))["status"] == "S"
